"""The cube: every decoder with every projection of every model in every precision, against the product of their gains.

For each model that is bundled or trained here, every combination in the registry: whether it runs, or the reason why it is refused;
the share of outputs that are plain decoding's; and its speedup, measured and predicted from its parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib import registry
from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.core import Measurement
from fastdecode_lib.loading import load
from fastdecode_lib.measuring.combinations import Combination, Costs, combinations, costs, known_projections, named
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.measuring.quality import same_share, signatures
from fastdecode_lib.papers.outcomes import NoResult, trained
from fastdecode_lib.papers.run import CorpusRun, Scale, experiment, gap, table_of
from fastdecode_lib.papers.shared.rows import quality_of, speedup_of, times_as_fast
from fastdecode_lib.text.corpus import join_pairs, spread_over

MODELS = {"tatoeba-small": "en-de", "sharp-s4": "en-fr", "bidirectional": "en-de", "mask-predict": "en-de"}
"""Models and the direction that each is measured in."""
DECODERS = (*registry.DECODERS, "window:draft=recycled/pad", "window:width=5,draft=ngram+lexicon+head")
"""Every decoder with its default options, the window without a draft table, and the window with table and head."""
SPECS = {
    "svd": "svd:window=64,full=256",
    "fgd": "fgd:neighbours=64,search=128,links=16,construction=200",
    "greedy_mips": "greedy_mips:budget=512",
    "pca_mips": "pca_mips:depth=4,detours=false",
    "lsh_mips": "lsh_mips:tables=16,bits=8",
    "row_clusters": "row_clusters:clusters=256,probes=8",
}
"""What these projections stand for here: the knobs that they had when the committed result was made, before better ones."""
GROUP = 12
"""Combinations that run in turns with plain decoding: a round of all would last so long that the machine changes within it."""


Timings = dict[str, tuple[Measurement, Measurement]]
"""Of each combination: plain decoding's times in its group, and its own."""


@dataclass(frozen=True)
class Amount:
    """Sentences for quality, and for time; rounds; precisions and projections; most tokens of an output."""

    sentences: int
    timed: int
    rounds: int
    precisions: tuple[str, ...]
    projections: tuple[str, ...]
    longest: int


AMOUNTS = {
    Scale.TINY: Amount(2, 1, 1, ("float32", "int8"), ("exact", "quantised", "clustered", "lexical", "scann"), 8),
    Scale.LAPTOP: Amount(60, 6, 11, ("float32", "int16", "int8"), known_projections(), 60),
    Scale.PAPER: Amount(1_000, 50, 11, ("float32", "int16", "int8"), known_projections(), 120),
}


@experiment
def cube(run: CorpusRun, *, models: Mapping[str, str] = MODELS, amount: Amount | None = None) -> pd.DataFrame:
    """Every combination on joined test sentences, one thread, one sentence at a time, in turns with plain decoding.

    ``agreement`` is the share of outputs that are the model's plain ones (greedy, exact, float32); ``as_plain`` the share that are
    plain decoding's with the same projection and precision. Where ``lossless`` is true, the first is 1 by law; where
    ``keeps_outputs`` is true, the second. ``speedup`` is over plain decoding in the same run. ``product`` is the product of the
    speedups of decoder, projection and precision alone; ``predicted`` is computed from counted passes and measured costs of passes,
    and includes savings that cancel. ``megabytes`` are those that the projection adds to the model's output matrix.
    """
    rows: list[dict[str, Any]] = []
    fingerprints: dict[str, str] = {}
    amount = amount or AMOUNTS[run.scale]
    for name, direction in models.items():
        try:
            checkpoint = trained(name)
        except NoResult as missing:
            rows.append({"name": name, "model": name, **gap(missing)})
            continue
        fingerprints[name] = find_checkpoint(checkpoint).fingerprint
        rows += _model_rows(name, checkpoint, direction, amount, run)
    facts = {"engine": "compiled", "device": "cpu", "sentences": amount.sentences, "fingerprints": fingerprints}
    return table_of(rows, run, **facts, **signatures())


def _model_rows(name: str, checkpoint: str, direction: str, amount: Amount, run: CorpusRun) -> list[dict[str, Any]]:
    source, target = direction.split("-")
    models = {q: load(checkpoint, device="cpu", engine="compiled", precision=q) for q in amount.precisions}
    pairs = run.pairs(source, target)
    pairs = spread_over(pairs if run.tiny else join_pairs(pairs, seed=0), amount.sentences)
    texts, references = [a for a, _ in pairs], [b for _, b in pairs]
    timed_texts = spread_over(texts, amount.timed)
    combined = combinations(
        models, source, target, DECODERS, amount.projections, texts[0], specs=SPECS, max_length=amount.longest
    )
    running = [c for c in combined if c.session is not None]
    counts = {
        c.name: count(c.session, texts)  # type: ignore[arg-type]
        for c in run.bar(running, desc=f"{name}, outputs", unit="combination")
    }
    sources = [models["float32"].encode([text], source, target) for text in timed_texts]
    systems = {c.name: decoder_system(c.session, c.name) for c in running}  # type: ignore[arg-type]
    plain = registry.usual(models["float32"].network)
    base = named(plain, "exact", "float32")
    timings: Timings = {}
    others = [name for name in systems if name != base]
    for first in range(0, len(others), GROUP):
        group = [systems[name] for name in (base, *others[first : first + GROUP])]
        measured = run.measure(group, sources, runs=amount.rounds)
        timings |= {m.name: (measured[0], m) for m in measured}
    pass_costs = costs(combined, timed_texts, runs=amount.rounds, progress=run.progress)
    rows = []
    for c in combined:
        row: dict[str, Any] = {
            "name": f"{name}: {c.name}",
            "model": name,
            "direction": direction,
            "decoder": c.decoder,
            "projection": c.projection,
            "precision": c.precision,
            "refused": c.refused.replace(str(models[c.precision].checkpoint.folder), name) or None,
        }
        if c.session is not None:
            row |= _measured(c, counts, timings, plain) | _expected(c, counts, timings, pass_costs, plain)
            row |= quality_of(list(counts[c.name]["text"]), references) | {"megabytes": _extra_bytes(c) / 1e6}
        rows.append(row)
    return rows


def _measured(c: Combination, counts: Mapping[str, Any], timings: Timings, plain: str) -> dict[str, Any]:
    """Agreement, passes and speed of a combination that runs."""
    counted, base = counts[c.name], named(plain, "exact", "float32")
    plain_timing, m = timings[c.name]
    same_scores = named(plain, c.projection, c.precision)
    return {
        "lossless": c.lossless,
        "keeps_outputs": c.keeps_outputs,
        "agreement": same_share(counted["ids"], counts[base]["ids"]),
        "as_plain": same_share(counted["ids"], counts[same_scores]["ids"]) if same_scores in counts else None,
        "passes": float(counted["passes"].mean()),
        "positions": float(counted["positions"].mean()),
        "tokens_per_pass": float(counted["tokens"].sum() / counted["passes"].sum()),
        **speedup_of(plain_timing, m),
        "seconds": m.seconds.tolist(),
        "baseline_seconds": plain_timing.seconds.tolist(),
    }


def _expected(
    c: Combination,
    counts: Mapping[str, Any],
    timings: Timings,
    pass_costs: Mapping[tuple[str, str], Costs],
    plain: str,
) -> dict[str, float]:
    """Speedups predicted from the parts: the product of their speedups alone, and from passes and their measured costs."""
    base = named(plain, "exact", "float32")
    single_changes = (
        named(c.decoder, "exact", "float32"),
        named(plain, c.projection, "float32"),
        named(plain, "exact", c.precision),
    )
    speedups: dict[str, float] = {}
    if all(name in timings for name in single_changes):
        ratios = [times_as_fast(*timings[name]) for name in single_changes]
        speedups["product"] = float(np.prod(ratios))
    if (c.projection, c.precision) in pass_costs and c.decoder != "beam":
        counted, plain_counted = counts[c.name], counts[base]
        seconds = pass_costs[c.projection, c.precision].seconds(counted["passes"].mean(), counted["positions"].mean())
        plain_seconds = pass_costs["exact", "float32"].seconds(
            plain_counted["passes"].mean(), plain_counted["positions"].mean()
        )
        speedups["predicted"] = plain_seconds / seconds
    return speedups


def _extra_bytes(c: Combination) -> int:
    """Bytes that the projection adds to the model's output matrix."""
    assert c.session is not None
    holds_matrix = c.projection in registry.needing("nothing")
    return c.session.projection.memory_bytes - (c.session.model.exact.memory_bytes if holds_matrix else 0)
