"""Parts of many tables' rows: a median time, a speedup with its interval, and the paper's values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastdecode_lib.core import Iteration, Measurement
from fastdecode_lib.measuring.quality import quality
from fastdecode_lib.measuring.referee import median_ratio, ratio_of
from fastdecode_lib.trace import Trace


def keyed(**keys: Any) -> dict[str, Any]:
    """What a row is of: its keys, behind a ``name`` that lists their values."""
    return {"name": ", ".join(map(str, keys.values())), **keys}


def speedup_of(base: Measurement, m: Measurement) -> dict[str, Any]:
    """Speedup of a measurement over its baseline, with the interval."""
    return ratio_of("speedup", base.seconds, m.seconds)


def times_as_fast(base: Measurement, m: Measurement) -> float:
    """Speedup of a measurement over another, without an interval."""
    return median_ratio(base.seconds, m.seconds)


def quality_of(texts: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF of texts."""
    return dict(zip(("bleu", "chrf"), quality(texts, references), strict=True))


def bootstrapped(
    column: str, statistic: Callable[[Callable[[np.ndarray], Any]], Any], number: int, seed: int, samples: int = 1_000
) -> dict[str, float]:
    """A statistic under the name `column`, with its 95% interval over sentences.

    Parameters
    ----------
    statistic : callable
        Takes a function that sums counts (N, ...) over sentences: over all, or over those of each sample, drawn with replacement.
    number : int
        N.
    """
    draws = np.random.default_rng(seed).integers(0, number, (samples, number))
    low, high = np.quantile(statistic(lambda counts: counts[draws].sum(1)), [0.025, 0.975])
    value = float(statistic(lambda counts: counts.sum(0)))
    return {column: value, f"{column}_low": float(low), f"{column}_high": float(high)}


def slots_of(trace: Trace) -> Iterator[tuple[dict[str, Any], Iteration, int]]:
    """Each slot of each pass: a row with ``call``, ``slot`` and ``token``, the iteration, and the slot's place in it."""
    for iteration in trace.iterations:
        for place, (slot, token) in enumerate(zip(iteration.slots, iteration.tokens, strict=True)):
            yield {"call": iteration.call, "slot": int(slot), "token": trace.pieces[int(token)]}, iteration, place


def paper_rows(printed: Mapping[str, Sequence[Any]], *columns: str, suffix: str = "") -> list[dict[str, Any]]:
    """Rows of a printed table: a name, with a suffix if there is one, and the values of the columns."""
    return [
        {"name": name + suffix, "kind": "paper"} | dict(zip(columns, values, strict=True))
        for name, values in printed.items()
    ]


def width_rows(name: str, widths: Sequence[int], timings: Sequence[Measurement], steps: int) -> list[dict[str, Any]]:
    """Rows of the cost of a pass by its width, the first width's as 1, from `pass_costs.pass_cost`."""
    return [
        {
            "name": name,
            "width": width,
            **ratio_of("cost", m.seconds, timings[0].seconds),
            "milliseconds": 1000 * median(m) / steps,
        }
        for width, m in zip(widths, timings, strict=True)
    ]


def median(m: Measurement) -> float:
    """Median seconds of a run."""
    return float(np.median(m.seconds))
