"""The referee: times several systems on the same weights and sentences, in turn, in one process.

Systems run interleaved (A B C A B C ...) after a warm-up that does not count, with the garbage collector off and the device
synchronised; every raw time is kept. A speedup is the ratio of median times in one run, with a bootstrap interval.
"""

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

import numpy as np

from fastdecode_lib.core import Measurement, Source, Usage

S = TypeVar("S")
T = TypeVar("T")
NOISY = 0.10
"""Spread (interquartile range over median) above which a time is called noisy."""
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
    """Time systems over all sentences, in turn.

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
    """
    from tqdm.auto import tqdm

    if runs < 1:
        raise ValueError(f"A measurement needs runs >= 1, got {runs}. Use runs=5 for an interval worth printing.")
    synchronise = synchroniser(device)
    seconds: list[list[float]] = [[] for _ in systems]
    outputs: list[tuple[tuple[int, ...], ...]] = [() for _ in systems]
    with (
        tqdm(total=(runs + warm_up) * len(systems), desc="measuring", unit="run", disable=not progress) as rounds,
        _fixed_threads(threads),
        no_garbage_collection(),
    ):
        for number in range(warm_up + runs):
            for i, system in enumerate(systems):
                rounds.set_postfix_str(system.name)
                elapsed, decoded = (
                    system.timed(sources) if system.timed else stopwatch(system.decode, sources, synchronise)
                )
                if number >= warm_up:
                    seconds[i].append(elapsed)
                outputs[i] = decoded
                rounds.update()
            gc.collect()
    measurements = []
    for system, times, decoded in zip(systems, seconds, outputs, strict=True):
        usage = None if system.count is None else sum((system.count(source) for source in sources), Usage())
        measurements.append(Measurement(system.name, np.array(times), decoded, usage))
    return measurements


def noisy(*measurements: Measurement) -> bool:
    """Whether the spread of one of the measurements exceeds `NOISY`."""
    return any(spread(measurement.seconds) > NOISY for measurement in measurements)


def stopwatch(
    decode: Callable[[S], T], sources: Sequence[S], synchronise: Callable[[], None] = lambda: None
) -> tuple[float, tuple[T, ...]]:
    """Seconds to decode sources one after another, and the output of each."""
    synchronise()
    start = perf_counter()
    decoded = tuple(decode(source) for source in sources)
    synchronise()
    return perf_counter() - start, decoded


def spread(seconds: np.ndarray) -> float:
    """Interquartile range over the median."""
    low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    return float((high - low) / middle)


def bootstrap_ratio(
    baseline: np.ndarray, method: np.ndarray, seed: int = 0, samples: int = 2000
) -> tuple[float, float]:
    """A 95% interval of median(baseline) / median(method), by resampling the rounds in which both ran.

    NaN for fewer than three rounds, which say nothing about the spread.
    """
    if len(baseline) < 3:
        return math.nan, math.nan
    if len(baseline) != len(method):
        raise ValueError(f"Both need the same rounds: got {len(baseline)} and {len(method)} times. Time them together.")
    rounds = np.random.default_rng(seed).integers(0, len(baseline), (samples, len(baseline)))
    ratios = np.median(baseline[rounds], axis=1) / np.median(method[rounds], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
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


def ratio_of(column: str, times: np.ndarray, others: np.ndarray, seed: int = 0) -> dict[str, float]:
    """The ratio of the medians of two arrays of times, under the name `column`, with its 95% interval."""
    low, high = bootstrap_ratio(times, others, seed)
    return {column: float(np.median(times) / np.median(others)), f"{column}_low": low, f"{column}_high": high}
