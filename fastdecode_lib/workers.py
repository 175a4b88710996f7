"""Independent tasks, in this process or on dask's workers; results and their order do not depend on the number of workers."""

import pickle
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from logging import ERROR
from typing import Any, TypeVar

from fastdecode_lib.core import optional

AHEAD = 2
"""Tasks submitted at a time for each thread of a worker, so that no thread waits for its next task."""
PATIENCE = 60
"""Seconds to wait for a scheduler and its first worker."""
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""Code that workers start with: Ctrl-C reaches all processes of a terminal, and only the one that submits tasks must react."""

T = TypeVar("T")


def over(
    function: Callable[[Any], T], items: Iterable[Any], *, workers: int | None = None, scheduler: str | None = None
) -> Generator[T, None, None]:
    """``map(function, items)``, in this process or on dask's workers.

    Results come in the order of the items; at most `AHEAD` tasks for each thread are submitted before their turn. The task of a
    worker that dies is run again by another. Closing the generator waits for the tasks that are running.

    Parameters
    ----------
    function : callable
        Must pickle; each process unpickles it once.
    workers : int, optional
        Processes to start on this machine; a script that asks for them needs ``if __name__ == "__main__":``.
    scheduler : str, optional
        Address of a scheduler that has workers, as ``"tcp://10.0.0.1:8786"``.

    Raises
    ------
    ValueError
        If dask is not installed, or the scheduler or its workers are not there.
    RuntimeError
        If a task kills every worker that it runs on.
    """
    if workers is None and scheduler is None:
        yield from map(function, items)
        return
    distributed = check_workers(workers, scheduler)
    with _client(distributed, workers, scheduler) as client:
        packed = client.submit(bytes, pickle.dumps(function), pure=False)
        running: deque[Any] = deque()
        try:
            for number, item in enumerate(items):
                running.append(client.submit(_call, packed, item, pure=False, priority=-number))
                if len(running) >= AHEAD * max(1, sum(client.nthreads().values())):
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except distributed.KilledWorker as error:
            raise RuntimeError(
                f"Several workers died of the same task: got {error}. They may lack memory: use fewer workers."
            ) from error
        finally:
            distributed.wait(list(running))


def check_workers(workers: int | None, scheduler: str | None) -> Any:
    """Check the choice of workers and return the module `distributed`; None where the tasks run in this process.

    Raises
    ------
    ValueError
    """
    if workers is None and scheduler is None:
        return None
    if workers is not None and scheduler is not None:
        raise ValueError(
            f"Workers are started here or belong to a scheduler: got workers={workers} and scheduler={scheduler!r}. Leave out "
            "one."
        )
    if workers is not None and (type(workers) is not int or workers < 1):
        raise ValueError(f"workers must be a whole number from 1 on: got {workers!r}. Example: workers=2.")
    return optional("distributed", "dask")


@contextmanager
def _client(distributed: Any, workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """A client of workers that have answered."""
    if workers is not None:
        cluster = distributed.LocalCluster(
            n_workers=workers,
            processes=True,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=":0",
            silence_logs=ERROR,
            preload=[DEAF],
        )
        with cluster, distributed.Client(cluster) as client:
            yield client
        return
    client = None
    try:
        client = distributed.Client(scheduler, timeout=PATIENCE)
        client.wait_for_workers(1, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        if client is not None:
            client.close()
        raise ValueError(
            f"No scheduler with workers answers: got scheduler={scheduler!r} ({error}). Start them with `dask scheduler` and "
            "`dask worker ADDRESS --nthreads 1`."
        ) from error
    with client:
        yield client


def _call(packed: bytes, item: Any) -> Any:
    return _unpacked(packed)(item)


@lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> Callable[[Any], Any]:
    """The function, unpickled once; torch gets one thread, since several workers share the machine."""
    function: Callable[[Any], Any] = pickle.loads(packed)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    return function
