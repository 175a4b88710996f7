"""The fastest ways to decode a text with a model on this machine, timed as a user decodes, and checked against greedy decoding."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Measurement
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.combinations import Combination, combinations, named
from fastdecode_lib.measuring.comparing import outputs_of, text_system
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import measure, noisy, ratio_of, stopwatch, synchroniser

if TYPE_CHECKING:
    import pandas as pd

DECODERS = (
    "greedy",
    "auto",
    *(f"window:width={width},draft=ngram+lexicon" for width in (2, 3, 4, 5)),
    *(f"window:width={width},draft=ngram+lexicon+head" for width in (3, 4, 5)),
)
LOOKS = 3
"""Rounds in which all combinations are timed."""
FINALISTS = 3
"""Combinations of each kind that are timed longer, the fastest at first look."""


def fastest(
    models: Mapping[str, TranslationModel],
    texts: Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    near: float = 0.95,
    decoders: Sequence[str] = DECODERS,
    batch: int = 1,
    threads: int = 1,
    runs: int = 7,
    seed: int = 0,
    progress: bool = False,
    **limits: Any,
) -> tuple["pd.DataFrame", dict[str, str | None]]:
    """Time decoders with the exact projections in every precision, in batches of `batch`, `threads` of them at a time.

    All are timed briefly; of those that change no output, and of those that change few, the fastest are timed again beside
    greedy decoding, and only that counts.

    Parameters
    ----------
    models : mapping of precision to TranslationModel
        The same weights, the most precise first: its greedy decoding is the baseline of all.
    texts : sequence of str
        Sentences with content.
    near : float
        Smallest share of outputs identical to greedy decoding's for a combination to count as nearly lossless.

    Returns
    -------
    DataFrame
        A row per combination that runs, the fastest first: ``name, decoder, projection, precision, speedup``, for those timed
        again ``speedup_low, speedup_high``; ``unchanged``: share of outputs that are greedy decoding's in the first precision,
        ``lossless``: whether all are greedy decoding's in its own; ``note``.
    dict
        Name of the fastest lossless combination by precision, greedy decoding if none is faster; under ``"near"`` the fastest
        of all whose outputs are `near` enough, None if the first precision's lossless one is as fast.
    """
    tried = combinations(models, source, target, decoders, registry.EXACT, texts[0], **limits)
    combination = {c.name: c for c in tried}
    running = {c.name: c.session for c in tried if c.session is not None}
    first = next(iter(models))
    plain = named("greedy", "exact", first)
    if plain not in running:
        raise ValueError(combination[plain].refused)
    session = running[plain]

    def timed(names: Sequence[str], rounds: int) -> dict[str, Measurement]:
        systems = [text_system(running[name], name, batch=batch, threads=threads) for name in names]
        sources, wait = (
            [session.model.encode(texts, session.source, session.target)],
            synchroniser(session.model.device),
        )
        measured = measure(systems, sources, runs=rounds, threads=threads, synchronise=wait, progress=progress)
        return dict(zip(names, measured, strict=True))

    looks = timed(list(running), LOOKS)
    table = _rows([combination[name] for name in running], looks, plain)
    finalists = [plain, *(named("greedy", "exact", precision) for precision in models if precision != first)]
    kinds = [table["lossless"] & (table["precision"] == precision) for precision in models]
    for kind in (*kinds, ~kinds[0] & (table["unchanged"] >= near)):
        finalists += table[kind]["name"][:FINALISTS].tolist()
    again = timed(list(dict.fromkeys(finalists)), runs)
    for name, measurement in again.items():
        _put(table, name, again[plain], measurement, seed)
    table = table.sort_values("speedup", ascending=False, ignore_index=True)
    chosen: dict[str, str | None] = {p: _best_lossless(table, again, p, seed) for p in models}
    best = chosen[first] or plain
    close = table[table["name"].isin(list(again)) & (table["unchanged"] >= near)]["name"].tolist()
    chosen["near"] = close[0] if close and close[0] != best and _faster(again[best], again[close[0]], seed) else None
    return table, chosen


def _rows(running: Sequence[Combination], looks: Mapping[str, Measurement], plain: str) -> "pd.DataFrame":
    import pandas as pd

    outputs = {name: outputs_of(m.outputs[0]) for name, m in looks.items()}
    rows = []
    for c in running:
        name, greedy_outputs = c.name, outputs[named("greedy", "exact", c.precision)]
        rows.append(
            {
                "name": name,
                "decoder": c.decoder,
                "projection": c.projection,
                "precision": c.precision,
                "speedup": float(np.median(looks[plain].seconds) / np.median(looks[name].seconds)),
                "speedup_low": np.nan,
                "speedup_high": np.nan,
                "unchanged": same_share(outputs[name], outputs[plain]),
                "lossless": c.keeps_outputs and outputs[name] == greedy_outputs,
                "note": "differs by rounding" if c.keeps_outputs and outputs[name] != greedy_outputs else "",
            }
        )
    return pd.DataFrame(rows).sort_values("speedup", ascending=False, ignore_index=True)


def _put(table: "pd.DataFrame", name: str, plain: Measurement, measurement: Measurement, seed: int) -> None:
    """Put the results of the longer timing into the table."""
    ratio = ratio_of("speedup", plain.seconds, measurement.seconds, seed)
    row = table["name"] == name
    table.loc[row, list(ratio)] = list(ratio.values())
    if noisy(plain, measurement):
        table.loc[row, "note"] = (table.loc[row, "note"] + " noisy").str.strip()


def _best_lossless(table: "pd.DataFrame", again: Mapping[str, Measurement], precision: str, seed: int) -> str:
    """The fastest lossless combination of a precision, if it is significantly faster than greedy decoding."""
    greedy = named("greedy", "exact", precision)
    timed = table[table["lossless"] & (table["precision"] == precision) & table["name"].isin(list(again))]
    best = str(timed["name"].iloc[0]) if len(timed) else greedy
    return best if _faster(again[greedy], again[best], seed) else greedy


def _faster(slow: Measurement, fast: Measurement, seed: int) -> bool:
    """Whether one measurement is significantly faster than another."""
    ratio = ratio_of("speedup", slow.seconds, fast.seconds, seed)
    return ratio["speedup"] > 1 and not ratio["speedup_low"] <= 1


def seconds_each(session: Any, texts: Sequence[str], batch: int, threads: int = 1) -> float:
    """Seconds for each sentence, decoded in batches, after everything is compiled."""
    session.decode(texts[:2], batch=batch, threads=threads)
    taken, _ = stopwatch(lambda some: session.decode(some, batch=batch, threads=threads), [list(texts)])
    return taken / len(texts)
