"""`auto`, greedy decoding and a fixed window, measured where drafting pays and where it does not."""

from itertools import product
from typing import Any

import pandas as pd

from fastdecode_lib.kernels.matrices import PRECISIONS
from fastdecode_lib.loading import load
from fastdecode_lib.measuring.comparing import parts_of, rows_of, text_system
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import ratio_of
from fastdecode_lib.papers.combinations.drafts import BASE, DIRECTION, texts_of
from fastdecode_lib.papers.run import CorpusRun, Scale, experiment, table_of
from fastdecode_lib.translation import Session

BATCHES = {Scale.TINY: (1, 2), Scale.LAPTOP: (1, 2, 4, 8, 32), Scale.PAPER: (1, 2, 4, 8, 16, 32)}
SETS = ("single", "joined", "technical")
"""Kinds of text; a tiny run has the first."""
SENTENCES = {Scale.TINY: 3, Scale.LAPTOP: 64, Scale.PAPER: 500}
ROUNDS = {Scale.TINY: 2, Scale.LAPTOP: 9, Scale.PAPER: 11}
FIXED = "window:width=3"


@experiment
def auto(run: CorpusRun) -> pd.DataFrame:
    """Speed of `auto` and of a fixed window over greedy decoding, by number format, kind of text and batch size.

    `auto` learns from each batch for the next, in the measured rounds as well. ``identical`` is the share of its outputs in the
    last round that are greedy decoding's: 1 by law. ``width`` is its last choice for batches of this size; 1 is greedy decoding.
    """
    texts = texts_of(run, SENTENCES[run.scale], *SETS[:1] if run.tiny else SETS)
    cells = [*product(PRECISIONS, texts, BATCHES[run.scale])]
    rows: list[dict[str, Any]] = []
    models = {precision: load(BASE, device="cpu", engine="compiled", precision=precision) for precision in PRECISIONS}
    for precision, set_name, batch in run.bar(cells, unit="cell"):
        model = models[precision]
        sessions = [Session.of(model, *DIRECTION, decoder) for decoder in ("greedy", "auto", FIXED)]
        systems = [text_system(session, batch=batch, threads=1) for session in sessions]
        parts = parts_of(model.encode(texts[set_name], *DIRECTION), batch=batch)
        greedy, adaptive, fixed = run.measure(systems, parts, runs=ROUNDS[run.scale])
        auto_decoder: Any = sessions[1].decoder
        rows.append(
            {
                "name": f"{precision}, {set_name}, batch {batch}",
                "precision": precision,
                "set": set_name,
                "batch": batch,
                "sentences": len(texts[set_name]),
                **ratio_of("speedup", greedy.seconds, adaptive.seconds),
                **ratio_of("window", greedy.seconds, fixed.seconds),
                "identical": same_share(rows_of(greedy.outputs), rows_of(adaptive.outputs)),
                "width": auto_decoder.experience.best(min(batch, len(texts[set_name]))),
            }
        )
    fingerprints = {BASE: models["float32"].checkpoint.fingerprint}
    return table_of(
        rows, run, engine="compiled", direction="-".join(DIRECTION), fingerprints=fingerprints, window=FIXED
    )
