"""Work on many sentences in batches of similar length, on several threads; results keep the order of the sentences."""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from tqdm import tqdm

BATCH = 64
"""Sentences of a batch, at most, unless the caller says otherwise."""

T = TypeVar("T")


def cores() -> int:
    """Processors this process may run on."""
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available else os.cpu_count() or 1


def check_counts(**counts: int | None) -> None:
    """Refuse numbers of sentences or threads that are not None or whole numbers from 1 on.

    Raises
    ------
    ValueError
        If one of them is neither.
    """
    for name, value in counts.items():
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{name} must be a whole number from 1 on: got {value!r}. Example: {name}=4.")


def several(values: Any) -> list[Any]:
    """Sentences or names as a list: one alone is a list of one, None an empty list."""
    if values is None:
        return []
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]


def in_batches(
    lengths: Sequence[int] | np.ndarray,
    run: Callable[[np.ndarray, Callable[[], bool]], Sequence[T]],
    *,
    batch: int | None = None,
    threads: int = 1,
    progress: "bool | tqdm[Any]" = False,
) -> list[T | None]:
    """Run batches of rows of similar length, the longest first, and return the results in the order of the rows.

    Parameters
    ----------
    lengths : sequence of int
        Length of each row; rows of length 0 are left out.
    run : callable
        Takes the rows of a batch, and a function that returns True once the batch should be given up; returns a result for
        each row, or an empty sequence if it gave up.
    batch : int, optional
        Rows of a batch; by default up to `BATCH`, fewer where some threads would have no batch.
    threads : int
        Batches that run at a time. The first error ends all of them.
    progress : bool or tqdm
        Whether to show a progress bar, or a bar to move.

    Returns
    -------
    list
        None for rows of length 0, and for rows that were not done when Ctrl-C came.
    """
    from tqdm.auto import tqdm

    check_counts(batch=batch, threads=threads)
    sizes = np.asarray(lengths)
    order = np.argsort(-sizes, kind="stable")[: int((sizes > 0).sum())]
    if batch is None:
        batch = max(1, min(BATCH, -(-len(order) // threads)))
    batches = [order[start : start + batch] for start in range(0, len(order), batch)]
    results_by_row: list[T | None] = [None] * len(sizes)
    given_up = threading.Event()

    given: Any = progress
    own_bar = (
        nullcontext(given) if hasattr(given, "update") else tqdm(total=len(order), unit="sentence", disable=not given)
    )
    with own_bar as bar:

        def note(rows: np.ndarray, results: Sequence[T]) -> None:
            for row, result in zip(rows, results, strict=False):
                results_by_row[row] = result
            bar.update(len(results))

        try:
            if threads == 1:
                for rows in batches:
                    note(rows, run(rows, given_up.is_set))
            else:
                _spread(batches, run, note, threads, given_up)
        except KeyboardInterrupt:
            given_up.set()
    return results_by_row


def _spread(
    batches: list[np.ndarray],
    run: Callable[[np.ndarray, Callable[[], bool]], Sequence[T]],
    note: Callable[[np.ndarray, Sequence[T]], None],
    threads: int,
    given_up: threading.Event,
) -> None:
    """Keep `threads` batches running until the results of all are noted."""
    waiting = iter(batches)
    running: dict[Future[Sequence[T]], np.ndarray] = {}
    with ThreadPoolExecutor(threads) as pool:
        try:
            while True:
                while len(running) < threads and (rows := next(waiting, None)) is not None:
                    running[pool.submit(run, rows, given_up.is_set)] = rows
                if not running:
                    return
                # Wakes up every second: Python misses a Ctrl-C that comes just before it begins to wait.
                for done in wait(running, timeout=1, return_when=FIRST_COMPLETED).done:
                    note(running.pop(done), done.result())
        except BaseException as error:
            given_up.set()
            if isinstance(error, KeyboardInterrupt):  # batches that are already running end and count
                for done in wait(running).done:
                    if done.exception() is None:
                        note(running[done], done.result())
            raise
