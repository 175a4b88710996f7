"""The referee: times several systems on the same weights and inputs, in turns, in one process.

Within each round, systems take short turns in random order, so that a machine that is slow for a second is slow for all of them. A
warm-up does not count, the garbage collector is off, and the device is synchronised; every raw time is kept. A speedup is the
median over the rounds of the ratio of two systems' times, with a 95% interval.
"""

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from fastdecode_lib.core import Measurement, Source, Usage

S = TypeVar("S")
T = TypeVar("T")
WIDE = 0.10
"""Width of a 95% interval, in parts of its value, above which the value is called noisy."""
TURN, SHORTEST = 0.25, 0.03
"""Seconds of a turn: of a mean one, and of one of the fastest system, whose weights have to come into the caches again."""
NO_SOURCE = Source(np.zeros((1, 1), dtype=np.int64), np.ones(1, dtype=np.int64))
"""Source for a system that decodes none, such as a single pass."""


@dataclass(frozen=True)
class System:
    """A system under test: a source in, its tokens out (without the end), for several sentences a tuple of tokens for each."""

    name: str
    decode: Callable[[Source], tuple[Any, ...]]
    count: Callable[[Source], Usage] | None = None
    timed: Callable[[Sequence[Source]], tuple[float, tuple[tuple[Any, ...], ...]]] | None = None
    """For a system in another process: decodes the sources of a turn there with `stopwatch`, and returns seconds and outputs."""


def measure(
    systems: Sequence[System],
    sources: Sequence[Source],
    *,
    runs: int = 5,
    warm_up: int = 1,
    threads: int = 1,
    device: str = "cpu",
    seed: int = 0,
    progress: bool = False,
) -> list[Measurement]:
    """Time systems over all sources, in turns of some sources each.

    The times of a round set how many turns the next one has: as many as last `TURN` seconds on average. A round of one source has
    one turn for each system.

    Parameters
    ----------
    systems : sequence of System
    sources : sequence of Source
        Whatever the systems decode in one call: a sentence, a batch, a vector.
    runs, warm_up : int
        Rounds that count, and rounds before them that do not.
    device : str
        The device to wait for before the clock is read.
    seed : int
        Seed of the order of turns.

    Returns
    -------
    list of Measurement, in the order of the systems
        Its seconds are those of all sources, for each round.
    """
    from tqdm.auto import tqdm

    if runs < 1:
        raise ValueError(f"A measurement needs runs >= 1, got {runs}. Use runs=9 for an interval worth printing.")
    synchronise, random = synchroniser(device), np.random.default_rng(seed)
    seconds = np.zeros((warm_up + runs, len(systems)))
    outputs: list[list[tuple[Any, ...]]] = []
    turns = 1
    total = (warm_up + runs) * len(systems) * len(sources)
    with (
        tqdm(total=total, desc="measuring", unit="input", disable=not progress) as bar,
        _fixed_threads(threads),
        no_garbage_collection(),
    ):
        for elapsed in seconds:
            outputs = [[] for _ in systems]
            for first, end in pairwise(np.linspace(0, len(sources), turns + 1).round().astype(int)):
                part = sources[first:end]
                for i in random.permutation(len(systems)):
                    system = systems[i]
                    bar.set_postfix_str(system.name)
                    spent, decoded = system.timed(part) if system.timed else stopwatch(system.decode, part, synchronise)
                    elapsed[i] += spent
                    outputs[i] += decoded
                    bar.update(len(part))
            turns = _turns(elapsed, len(sources))
            gc.collect()
    return [
        Measurement(
            system.name,
            times,
            tuple(decoded),
            None if system.count is None else sum((system.count(source) for source in sources), Usage()),
        )
        for system, times, decoded in zip(systems, seconds[warm_up:].T.copy(), outputs, strict=True)
    ]


def _turns(seconds: np.ndarray, sources: int) -> int:
    """How many turns a round has in which the systems take so many seconds."""
    most = min(np.mean(seconds) / TURN, np.min(seconds) / SHORTEST) if len(seconds) else 1
    return max(1, min(sources, round(most)))


def noisy(value: Any, low: Any, high: Any) -> Any:
    """Whether a 95% interval is wider than `WIDE` of its value: of numbers, or of columns of a table."""
    return high - low > WIDE * value


def stopwatch(
    decode: Callable[[S], T], sources: Sequence[S], synchronise: Callable[[], None] = lambda: None
) -> tuple[float, tuple[T, ...]]:
    """Seconds to decode sources one after another, and the output of each."""
    synchronise()
    start = perf_counter()
    decoded = tuple(decode(source) for source in sources)
    synchronise()
    return perf_counter() - start, decoded


def median_interval(values: np.ndarray) -> tuple[float, float]:
    """A 95% interval of the median of a distribution, from the order of a sample: exact, whatever the distribution.

    Each value is above the median as a coin shows heads, so that the k-th smallest and the k-th largest have it between them unless
    fewer than k of n coins show heads, or fewer than k tails. NaN for fewer than six values, which have no such interval.
    """
    number, k, outside = len(values), 0, 0.0
    while (outside := outside + 2 * math.comb(number, k) / 2**number) <= 0.05:
        k += 1
    if not k:
        return math.nan, math.nan
    ordered = np.sort(values)
    return float(ordered[k - 1]), float(ordered[-k])


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
    if len(times) != len(others):
        raise ValueError(f"Both need the same rounds: got {len(times)} and {len(others)} times. Time them together.")
    return float(np.median(times / others))


def ratio_of(column: str, times: np.ndarray, others: np.ndarray) -> dict[str, float]:
    """A `median_ratio` under the name `column`, with its 95% interval."""
    ratio = median_ratio(times, others)
    low, high = median_interval(times / others)
    return {column: ratio, f"{column}_low": low, f"{column}_high": high}
