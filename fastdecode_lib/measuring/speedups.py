"""The fastest way to decode a text with a model on this machine; outputs are compared with those of greedy decoding."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Measurement
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.combinations import Combination, combinations, named
from fastdecode_lib.measuring.comparing import parts_of, rows_of, text_system
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import measure, median_ratio, noisy, ratio_of, stopwatch

if TYPE_CHECKING:
    import pandas as pd

DECODERS = (
    "greedy",
    "auto",
    *(f"window:width={width},draft=ngram+lexicon" for width in (2, 3, 4, 5)),
    *(f"window:width={width},draft=ngram+lexicon+head" for width in (3, 4, 5)),
)
SCREENING_ROUNDS = 3
"""Rounds in which all combinations are timed."""
FINALISTS = 3
"""How many combinations of each kind are timed longer: the fastest of the first rounds."""
ROUNDS = 9
"""Rounds in which they are."""
SURE = ("greedy", "auto")
"""Decoders whose lossless combinations are timed longer whatever the first rounds say, which other load disturbs."""
MORE = 3
"""How many times as many rounds there are where the times are noisy."""


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
    seed: int = 0,
    progress: bool = False,
    **limits: Any,
) -> tuple["pd.DataFrame", dict[str, str | None]]:
    """Time decoders with the exact projections in every precision, in batches of `batch`, `threads` of them at a time.

    All combinations are timed briefly. The fastest of those that change no output, and of those that change few outputs, are
    timed again together with greedy decoding, and only these times count; where they are noisy, in three times as many rounds.

    Parameters
    ----------
    models : mapping of precision to TranslationModel
        The same weights, the most precise first; its greedy decoding is the baseline.
    texts : sequence of str
        Sentences with content.
    near : float
        Smallest share of outputs identical to greedy decoding's for a combination to count as nearly lossless.

    Returns
    -------
    DataFrame
        A row per combination that runs, those timed again before the others, the fastest first: ``name, decoder, projection,
        precision, speedup``, for those timed again ``speedup_low, speedup_high``; ``unchanged``: share of outputs identical to the
        baseline's; ``lossless``: whether all outputs are those of greedy decoding in the same precision; ``note``.
    dict
        Name of the fastest lossless combination by precision, greedy decoding if none is faster; under ``"near"`` the fastest
        nearly lossless combination, None if the lossless one in the first precision is as fast.
    """
    candidates = combinations(models, source, target, decoders, registry.EXACT, texts[0], **limits)
    by_name = {c.name: c for c in candidates}
    sessions = {c.name: c.session for c in candidates if c.session is not None}
    first = next(iter(models))
    plain = [named("greedy", "exact", precision) for precision in models]
    baseline = plain[0]
    for name in plain:
        if name not in by_name:
            raise ValueError(
                f"Greedy decoding is what others are compared with: got decoders {', '.join(decoders)}. Add greedy."
            )
        if name not in sessions:
            raise ValueError(by_name[name].refused)
    session = sessions[baseline]

    def timed(names: Sequence[str], rounds: int) -> dict[str, Measurement]:
        systems = [text_system(sessions[name], name, batch=batch, threads=threads) for name in names]
        parts = parts_of(session.model.encode(texts, session.source, session.target), batch=batch, threads=threads)
        device = session.model.device
        measured = measure(systems, parts, runs=rounds, threads=threads, device=device, seed=seed, progress=progress)
        return dict(zip(names, measured, strict=True))

    screening = timed(list(sessions), SCREENING_ROUNDS)
    table = _rows([by_name[name] for name in sessions], screening, baseline)
    finalists = [*plain]
    kinds = [table["lossless"] & (table["precision"] == precision) for precision in models]
    for kind in (*kinds, ~kinds[0] & (table["unchanged"] >= near)):
        finalists += table[kind]["name"][:FINALISTS].tolist()
    finalists += table[table["lossless"] & table["decoder"].isin(SURE)]["name"].tolist()
    finalists = list(dict.fromkeys(finalists))
    final = timed(finalists, ROUNDS)
    ratios = [ratio_of("speedup", final[baseline].seconds, m.seconds) for m in final.values()]
    if any(noisy(*ratio.values()) for ratio in ratios):
        final = timed(finalists, MORE * ROUNDS)
    for name, measurement in final.items():
        _add_times(table, name, final[baseline], measurement)
    table = table.sort_values("speedup", ascending=False)
    table = table.sort_values("speedup_low", key=lambda low: low.isna(), kind="stable", ignore_index=True)
    choices: dict[str, str | None] = {p: _best_lossless(table, final, p) for p in models}
    best = choices[first] or baseline
    is_close = table["name"].isin(list(final)) & (table["unchanged"] >= near)
    close = table[is_close & ~(table["lossless"] & (table["precision"] == first))]
    close = close.sort_values("speedup_low", ascending=False)["name"]
    choices["near"] = next((name for name in close if _faster(final[best], final[name])), None)
    return table, choices


def _rows(combinations: Sequence[Combination], screening: Mapping[str, Measurement], baseline: str) -> "pd.DataFrame":
    import pandas as pd

    outputs = {name: rows_of(m.outputs) for name, m in screening.items()}
    rows = []
    for c in combinations:
        name, greedy_outputs = c.name, outputs[named("greedy", "exact", c.precision)]
        rows.append(
            {
                "name": name,
                "decoder": c.decoder,
                "projection": c.projection,
                "precision": c.precision,
                "speedup": median_ratio(screening[baseline].seconds, screening[name].seconds),
                "speedup_low": np.nan,
                "speedup_high": np.nan,
                "unchanged": same_share(outputs[name], outputs[baseline]),
                "lossless": c.keeps_outputs and outputs[name] == greedy_outputs,
                "note": "differs by rounding" if c.keeps_outputs and outputs[name] != greedy_outputs else "",
            }
        )
    return pd.DataFrame(rows).sort_values("speedup", ascending=False, ignore_index=True)


def _add_times(table: "pd.DataFrame", name: str, baseline: Measurement, measurement: Measurement) -> None:
    """Write the speedup of the longer timing into the table."""
    ratio = ratio_of("speedup", baseline.seconds, measurement.seconds)
    row = table["name"] == name
    table.loc[row, list(ratio)] = list(ratio.values())
    if noisy(*ratio.values()):
        table.loc[row, "note"] = (table.loc[row, "note"] + " noisy").str.strip()


def _best_lossless(table: "pd.DataFrame", final: Mapping[str, Measurement], precision: str) -> str:
    """The fastest lossless combination of a precision by the lower ends of intervals, if it is faster than greedy decoding."""
    greedy = named("greedy", "exact", precision)
    timed = table[table["lossless"] & (table["precision"] == precision) & table["name"].isin(list(final))]
    best = str(timed.sort_values("speedup_low", ascending=False)["name"].iloc[0]) if len(timed) else greedy
    return best if _faster(final[greedy], final[best]) else greedy


def _faster(slow: Measurement, fast: Measurement) -> bool:
    """Whether one measurement is significantly faster than another."""
    ratio = ratio_of("speedup", slow.seconds, fast.seconds)
    return ratio["speedup"] > 1 and not ratio["speedup_low"] <= 1


def seconds_each(session: Any, texts: Sequence[str], batch: int, threads: int = 1) -> float:
    """Seconds for each sentence, decoded in batches after compilation."""
    session.decode(texts[:2], batch=batch, threads=threads)
    seconds, _ = stopwatch(lambda batch_texts: session.decode(batch_texts, batch=batch, threads=threads), [list(texts)])
    return seconds / len(texts)
