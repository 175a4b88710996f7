"""The methods of the README and of what to use when, all in one run: the bundled model's outputs and times under each."""

from typing import Any

import pandas as pd

from fastdecode_lib.loading import load
from fastdecode_lib.measuring.combinations import named
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.measuring.quality import same_share, signatures
from fastdecode_lib.papers.run import CorpusRun, Scale, experiment, table_of
from fastdecode_lib.papers.shared.rows import quality_of, speedup_of
from fastdecode_lib.text.corpus import join_pairs, spread_over
from fastdecode_lib.translation import Session

MODEL, DIRECTION = "tatoeba-small", ("en", "de")
METHODS = (
    ("greedy", "exact", "float32"),
    ("greedy", "quantised", "float32"),
    ("window:width=3", "exact", "float32"),
    ("window:width=3", "quantised", "float32"),
    ("greedy", "clustered", "float32"),
    ("greedy", "screened", "float32"),
    ("greedy", "lexical", "float32"),
    ("greedy", "exact", "int16"),
    ("greedy", "exact", "int8"),
    ("greedy", "clustered", "int8"),
    ("jacobi", "exact", "float32"),
    ("hybrid:block=3", "exact", "float32"),
    ("auto", "exact", "float32"),
    ("auto", "quantised", "float32"),
)
"""Decoder, projection and precision; the first is the baseline."""
AMOUNTS = {Scale.TINY: (2, 1, 3, 8), Scale.LAPTOP: (200, 60, 25, 120), Scale.PAPER: (1_000, 100, 25, 120)}
"""Sentences for quality and for time, rounds, and most tokens of an output."""


@experiment
def first_page(run: CorpusRun) -> pd.DataFrame:
    """One thread, one sentence at a time, all methods in turns, on single test sentences and joined ones.

    ``agreement`` is the share of outputs that are greedy decoding's with the exact projection in float32, ``speedup`` is over it.
    """
    return _all_methods(run)


@experiment
def second_processor(run: CorpusRun) -> pd.DataFrame:
    """The rows of `first_page`, and `auto`, made on another processor and with a newer engine than its committed result."""
    return _all_methods(run)


def _all_methods(run: CorpusRun) -> pd.DataFrame:
    sentences, timed, rounds, longest = AMOUNTS[run.scale]
    models = {q: load(MODEL, device="cpu", engine="compiled", precision=q) for q in ("float32", "int16", "int8")}
    sessions = {
        named(*method): Session.of(models[method[2]], *DIRECTION, *method[:2], max_length=longest) for method in METHODS
    }
    base, pairs = named(*METHODS[0]), run.pairs(*DIRECTION)
    rows: list[dict[str, Any]] = []
    for set_name, examples in (("single", pairs), ("joined", pairs if run.tiny else join_pairs(pairs, seed=0))):
        chosen = spread_over(examples, sentences)
        texts, references = [text for text, _ in chosen], [reference for _, reference in chosen]
        counts = {name: count(session, texts) for name, session in sessions.items()}
        sources = [models["float32"].encode([text], *DIRECTION) for text in spread_over(texts, timed)]
        systems = [decoder_system(session, name) for name, session in sessions.items()]
        timings = {m.name: m for m in run.measure(systems, sources, runs=rounds)}
        for decoder, projection, precision in METHODS:
            name = named(decoder, projection, precision)
            rows.append(
                {
                    "name": f"{name}, {set_name}",
                    "set": set_name,
                    "decoder": decoder,
                    "projection": projection,
                    "precision": precision,
                    "agreement": same_share(counts[name]["ids"], counts[base]["ids"]),
                    **quality_of(list(counts[name]["text"]), references),
                    **speedup_of(timings[base], timings[name]),
                    "seconds": timings[name].seconds.tolist(),
                }
            )
    facts = {
        "engine": "compiled",
        "device": "cpu",
        "direction": "-".join(DIRECTION),
        "sentences": sentences,
        "timed": timed,
    }
    return table_of(rows, run, models["float32"], rounds=rounds, **facts, **signatures())
