"""The referee: times several systems on the same weights and sentences, in turn, in one process.

Within each round systems take short turns (A B C C B A A B C ...), so that a machine that is slow for a second, or gets slower, is
so for all of them. A warm-up does not count, the garbage collector is off, and the device is synchronised; every raw time is kept.
A speedup is the median over the rounds of the ratio of two systems' times, with a bootstrap interval.
"""

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from fastdecode_lib.core import Measurement, Source, Usage

S = TypeVar("S")
T = TypeVar("T")
NOISY = 0.10
"""Width of a ratio's 95% interval, in parts of the ratio, above which it is called noisy."""
TURN = 0.25
"""Seconds that the fastest system's turn takes, about: its weights are read into the caches again in each of them."""
NO_SOURCE = Source(np.zeros((1, 1), dtype=np.int64), np.ones(1, dtype=np.int64))
"""Source for a system that decodes none, such as a single pass."""


@dataclass(frozen=True)
class System:
    """A system under test, which decodes one sentence: ids in, ids out (without the end)."""

    name: str
    decode: Callable[[Source], tuple[int, ...]]
    count: Callable[[Source], Usage] | None = None
    timed: Callable[[Sequence[Source]], tuple[float, tuple[tuple[int, ...], ...]]] | None = None
    """For a system in another process: decodes all sentences there with `stopwatch`, and returns seconds and outputs."""


def measure(
    systems: Sequence[System],
    sources: Sequence[Source],
    *,
    runs: int = 5,
    warm_up: int = 1,
    threads: int = 1,
    device: str = "cpu",
    progress: bool = False,
) -> list[Measurement]:
    """Time systems over all sentences, in turns of some sentences each; the last round says how many.

    Parameters
    ----------
    systems : sequence of System
    sources : sequence of Source
        One sentence each.
    runs, warm_up : int
        Rounds that count, and rounds before them that do not.
    device : str
        The device to wait for before the clock is read.

    Returns
    -------
    list of Measurement, in the order of the systems
        Its seconds are those of all sentences, for each round.
    """
    from tqdm.auto import tqdm

    if runs < 1:
        raise ValueError(f"A measurement needs runs >= 1, got {runs}. Use runs=5 for an interval worth printing.")
    synchronise = synchroniser(device)
    seconds = np.zeros((len(systems), warm_up + runs))
    outputs: list[list[tuple[int, ...]]] = []
    order = list(range(len(systems)))
    turn = max(1, len(sources))
    total = (warm_up + runs) * len(systems) * len(sources)
    with (
        tqdm(total=total, desc="measuring", unit="sentence", disable=not progress) as bar,
        _fixed_threads(threads),
        no_garbage_collection(),
    ):
        for number in range(warm_up + runs):
            outputs = [[] for _ in systems]
            for start in range(0, len(sources), turn):
                part = sources[start : start + turn]
                for i in order:
                    system = systems[i]
                    bar.set_postfix_str(system.name)
                    elapsed, decoded = (
                        system.timed(part) if system.timed else stopwatch(system.decode, part, synchronise)
                    )
                    seconds[i, number] += elapsed
                    outputs[i] += decoded
                    bar.update(len(part))
                order.reverse()
            fastest = seconds[:, number].min(initial=math.inf)
            turn = max(1, len(sources) if fastest < TURN else round(len(sources) * TURN / fastest))
            gc.collect()
    return [
        Measurement(
            system.name,
            times[warm_up:],
            tuple(decoded),
            None if system.count is None else sum((system.count(source) for source in sources), Usage()),
        )
        for system, times, decoded in zip(systems, seconds, outputs, strict=True)
    ]


def noisy(ratio: Any, low: Any, high: Any) -> Any:
    """Whether the interval of a ratio of times is wider than `NOISY` of the ratio: numbers, or columns of a table."""
    return high - low > NOISY * ratio


def stopwatch(
    decode: Callable[[S], T], sources: Sequence[S], synchronise: Callable[[], None] = lambda: None
) -> tuple[float, tuple[T, ...]]:
    """Seconds to decode sources one after another, and the output of each."""
    synchronise()
    start = perf_counter()
    decoded = tuple(decode(source) for source in sources)
    synchronise()
    return perf_counter() - start, decoded


def bootstrap_ratio(
    baseline: np.ndarray, method: np.ndarray, seed: int = 0, samples: int = 2000
) -> tuple[float, float]:
    """A 95% interval of the median of baseline / method over the rounds, which are resampled.

    NaN for fewer than three rounds, which say nothing about the spread.
    """
    if len(baseline) != len(method):
        raise ValueError(f"Both need the same rounds: got {len(baseline)} and {len(method)} times. Time them together.")
    if len(baseline) < 3:
        return math.nan, math.nan
    rounds = np.random.default_rng(seed).integers(0, len(baseline), (samples, len(baseline)))
    low, high = np.quantile(np.median((baseline / method)[rounds], axis=1), [0.025, 0.975])
    return float(low), float(high)


def synchroniser(device: str) -> Callable[[], None]:
    """A function that waits for a device to finish; on the CPU it does nothing."""
    if device.startswith("cuda"):
        import torch

        return lambda: torch.cuda.synchronize(device)
    return lambda: None


@contextmanager
def _fixed_threads(threads: int) -> Iterator[None]:
    """Set one number of threads for torch and for numpy's linear algebra."""
    import torch
    from threadpoolctl import threadpool_limits

    previous = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(previous)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Turn automatic garbage collection off, and freeze all present objects, so that later collections skip them."""
    enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.collect()
    if not frozen:
        gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
        if enabled:
            gc.enable()


def median_ratio(times: np.ndarray, others: np.ndarray) -> float:
    """The median over the rounds of the ratio of two arrays of times of the same rounds."""
    return float(np.median(times / others))


def ratio_of(column: str, times: np.ndarray, others: np.ndarray, seed: int = 0) -> dict[str, float]:
    """A `median_ratio` under the name `column`, with its 95% interval."""
    low, high = bootstrap_ratio(times, others, seed)
    return {column: median_ratio(times, others), f"{column}_low": low, f"{column}_high": high}
