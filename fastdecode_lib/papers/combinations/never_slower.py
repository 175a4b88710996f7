"""Drafting what pays, measured where it should and where it should not: `auto` beside greedy decoding and a fixed window."""

from typing import Any

import pandas as pd

from fastdecode_lib.kernels.matrices import PRECISIONS
from fastdecode_lib.loading import load
from fastdecode_lib.measuring.comparing import outputs_of, text_system
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import measure, noisy, ratio_of
from fastdecode_lib.papers.combinations.drafts import BASE, DIRECTION, texts_of
from fastdecode_lib.papers.run import CorpusRun, Scale, experiment
from fastdecode_lib.papers.shared.rows import table_of
from fastdecode_lib.translation import Session

BATCHES = {Scale.TINY: (1, 2), Scale.LAPTOP: (1, 2, 4, 8, 32), Scale.PAPER: (1, 2, 4, 8, 16, 32)}
SETS = ("single", "joined", "technical")
"""Kinds of text; a tiny run has the first."""
SENTENCES = {Scale.TINY: 3, Scale.LAPTOP: 64, Scale.PAPER: 500}
ROUNDS = {Scale.TINY: 2, Scale.LAPTOP: 7, Scale.PAPER: 11}
FIXED = "window:width=3"


@experiment
def auto(run: CorpusRun) -> pd.DataFrame:
    """Speed of `auto` and of a fixed window over greedy decoding, by number format, kind of text and batch size.

    What `auto` learns while it decodes, it keeps for the next batch; in the measured rounds it goes on learning. ``identical`` is
    the share of its outputs that are greedy decoding's, those of the last round: 1 by law. ``width`` is the one that it ended
    with for so many rows, 1 being greedy decoding.
    """
    from tqdm.auto import tqdm

    texts = texts_of(run, SENTENCES[run.scale], *SETS[:1] if run.tiny else SETS)
    cells = [(precision, which, batch) for precision in PRECISIONS for which in texts for batch in BATCHES[run.scale]]
    rows: list[dict[str, Any]] = []
    models = {precision: load(BASE, device="cpu", engine="compiled", precision=precision) for precision in PRECISIONS}
    for precision, which, batch in tqdm(cells, unit="cell", disable=not run.progress):
        model = models[precision]
        sessions = [Session.of(model, *DIRECTION, decoder) for decoder in ("greedy", "auto", FIXED)]
        systems = [text_system(session, batch=batch, threads=1) for session in sessions]
        greedy, chosen, fixed = measure(systems, [model.encode(texts[which], *DIRECTION)], runs=ROUNDS[run.scale])
        experience: Any = sessions[1].decoder
        rows.append(
            {
                "name": f"{precision}, {which}, batch {batch}",
                "precision": precision,
                "set": which,
                "batch": batch,
                "sentences": len(texts[which]),
                **ratio_of("speedup", greedy.seconds, chosen.seconds, run.seed),
                **ratio_of("window", greedy.seconds, fixed.seconds, run.seed),
                "identical": same_share(outputs_of(greedy.outputs[0]), outputs_of(chosen.outputs[0])),
                "width": experience.experience.best(min(batch, len(texts[which]))),
                "noisy": noisy(greedy, chosen),
            }
        )
    fingerprints = {BASE: models["float32"].checkpoint.fingerprint}
    return table_of(
        rows, run, engine="compiled", direction="-".join(DIRECTION), fingerprints=fingerprints, window=FIXED
    )
