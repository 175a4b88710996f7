"""The cube: every decoder with every projection of every model in every precision, against the product of their gains.

For each model that is bundled or trained here, all that the registry holds: it runs, or is refused for a reason; its outputs are
plain decoding's by law, or how often they are; and how fast it is beside what its parts promise.
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
from fastdecode_lib.measuring.quality import quality, same_share, signatures
from fastdecode_lib.measuring.referee import measure
from fastdecode_lib.papers.outcomes import NoResult, trained
from fastdecode_lib.papers.run import CorpusRun, Scale, experiment
from fastdecode_lib.papers.shared.rows import gap, speedup_of, table_of
from fastdecode_lib.text.corpus import join_pairs, spread_over

MODELS = {"tatoeba-small": "en-de", "sharp-s4": "en-fr", "bidirectional": "en-de", "mask-predict": "en-de"}
"""Models and the direction that each is measured in."""
DECODERS = (*registry.DECODERS, "window:draft=recycled/pad", "window:width=5,draft=ngram+lexicon+head")
"""Every decoder as it is without options, and the window without a draft table and with a head beside it."""


@dataclass(frozen=True)
class Amount:
    """Sentences decoded for quality, and for time; rounds; precisions and projections; tokens of an output at most."""

    sentences: int
    timed: int
    rounds: int
    precisions: tuple[str, ...]
    projections: tuple[str, ...]
    longest: int


AMOUNTS = {
    Scale.TINY: Amount(2, 1, 1, ("float32", "int8"), ("exact", "quantised", "clustered", "lexical", "scann"), 8),
    Scale.LAPTOP: Amount(60, 8, 5, ("float32", "int16", "int8"), known_projections(), 60),
    Scale.PAPER: Amount(1_000, 50, 11, ("float32", "int16", "int8"), known_projections(), 120),
}


@experiment
def cube(run: CorpusRun, *, models: Mapping[str, str] = MODELS, amount: Amount | None = None) -> pd.DataFrame:
    """Every combination on joined test sentences, one thread, one sentence at a time, all of a model in turns.

    ``agreement`` is the share of outputs that are the model's plain ones (greedy, exact, float32), ``as_plain`` that of outputs
    that plain decoding has under the same projection and precision; of those marked ``lossless`` the first is 1 by law, of those
    marked ``keeps_outputs`` the second. ``speedup`` is over plain decoding in the same run. ``product`` is the product of what
    decoder, projection and precision gain alone; ``predicted`` comes of counted passes and measured costs of passes, and knows
    what cancels. ``megabytes`` are the projection's beside the model's output matrix.
    """
    rows: list[dict[str, Any]] = []
    fingerprints: dict[str, str] = {}
    amount = amount or AMOUNTS[run.scale]
    for name, direction in models.items():
        try:
            place = trained(name)
        except NoResult as missing:
            rows.append({"name": name, "model": name, **gap(missing)})
            continue
        fingerprints[name] = find_checkpoint(place).fingerprint
        rows += _of_model(name, place, direction, amount, run)
    about = {"engine": "compiled", "device": "cpu", "sentences": amount.sentences, "fingerprints": fingerprints}
    return table_of(rows, run, **about, **signatures())


def _of_model(name: str, place: str, direction: str, amount: Amount, run: CorpusRun) -> list[dict[str, Any]]:
    from tqdm.auto import tqdm

    source, target = direction.split("-")
    models = {q: load(place, device="cpu", engine="compiled", precision=q) for q in amount.precisions}
    pairs = run.pairs(source, target)
    pairs = spread_over(pairs if run.tiny else join_pairs(pairs, seed=0), amount.sentences)
    texts, references = [a for a, _ in pairs], [b for _, b in pairs]
    few = spread_over(texts, amount.timed)
    combined = combinations(models, source, target, DECODERS, amount.projections, texts[0], max_length=amount.longest)
    running = [c for c in combined if c.session is not None]
    counts = {
        c.name: count(c.session, texts, batch=32 if c.alone else 1)
        for c in tqdm(running, desc=f"{name}, outputs", unit="combination", disable=not run.progress)
    }
    sources = [models["float32"].encode([text], source, target) for text in few]
    systems = [decoder_system(c.session, c.name) for c in running]  # type: ignore[arg-type]
    timed = dict(zip(counts, measure(systems, sources, runs=amount.rounds, progress=run.progress), strict=True))
    prices = costs(combined, few, runs=amount.rounds, progress=run.progress)
    plain = registry.usual(models["float32"].network)
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
            row |= _measured(c, counts, timed, plain, run.seed) | _expected(c, counts, timed, prices, plain)
            bleu, chrf = quality(list(counts[c.name]["text"]), references)
            row |= {"bleu": bleu, "chrf": chrf, "megabytes": _extra_bytes(c) / 1e6}
        rows.append(row)
    return rows


def _measured(
    c: Combination, counts: Mapping[str, Any], timed: Mapping[str, Measurement], plain: str, seed: int
) -> dict[str, Any]:
    """Agreement, passes and speed of a combination that runs."""
    own, m, base = counts[c.name], timed[c.name], named(plain, "exact", "float32")
    under = named(plain, c.projection, c.precision)
    return {
        "lossless": c.lossless,
        "keeps_outputs": c.keeps_outputs,
        "agreement": same_share(own["ids"], counts[base]["ids"]),
        "as_plain": same_share(own["ids"], counts[under]["ids"]) if under in counts else None,
        "passes": float(own["passes"].mean()),
        "positions": float(own["positions"].mean()),
        "tokens_per_pass": float(own["tokens"].sum() / own["passes"].sum()),
        **speedup_of(timed[base], m, seed),
        "seconds": m.seconds.tolist(),
    }


def _expected(
    c: Combination,
    counts: Mapping[str, Any],
    timed: Mapping[str, Measurement],
    prices: Mapping[tuple[str, str], Costs],
    plain: str,
) -> dict[str, float]:
    """Speedups predicted from the parts: the product of their own gains, and the passes times their measured costs."""
    base = named(plain, "exact", "float32")
    alone = (
        named(c.decoder, "exact", "float32"),
        named(plain, c.projection, "float32"),
        named(plain, "exact", c.precision),
    )
    found: dict[str, float] = {}
    if all(name in timed for name in alone):
        found["product"] = float(np.prod([_ratio(timed[base], timed[name]) for name in alone]))
    if (c.projection, c.precision) in prices and c.decoder != "beam":
        own, whole = counts[c.name], counts[base]
        first = prices["exact", "float32"].seconds(whole["passes"].mean(), whole["positions"].mean())
        later = prices[c.projection, c.precision].seconds(own["passes"].mean(), own["positions"].mean())
        found["predicted"] = first / later
    return found


def _ratio(baseline: Measurement, m: Measurement) -> float:
    return float(np.median(baseline.seconds) / np.median(m.seconds))


def _extra_bytes(c: Combination) -> int:
    """Bytes that the projection keeps beside the model's own output matrix."""
    assert c.session is not None
    own, whole = c.session.projection.memory_bytes, c.session.model.exact.memory_bytes
    return own - whole if c.projection in registry.needing("nothing") else own
