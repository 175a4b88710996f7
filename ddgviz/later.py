"""Delayed calls on one thread for all pictures of a process, since a thread for each would cost more than the calls."""

import sys
import threading
import time
from collections.abc import Callable, Hashable


class Later:
    """Calls at a later time, one for each key."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._wakes = 0.0

    def call(self, key: Hashable, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` after `seconds`, in place of a call that waits under `key`."""
        with self._changed:
            due = time.monotonic() + seconds
            self._due[key] = due, act
            if self._thread is None or not self._thread.is_alive():  # as after a fork
                self._thread = threading.Thread(target=self._work, name="ddgviz-later", daemon=True)
                self._thread.start()
            elif due < self._wakes:
                self._changed.notify()

    def cancel(self, key: Hashable) -> None:
        """Cancel the call that waits under `key`."""
        with self._changed:
            self._due.pop(key, None)

    def _next(self) -> Callable[[], None]:
        """Wait for the call that is due first."""
        with self._changed:
            while True:
                now = time.monotonic()
                key = min(self._due, key=lambda candidate: self._due[candidate][0], default=None)
                self._wakes = self._due[key][0] if key is not None else float("inf")
                if key is not None and self._wakes <= now:
                    return self._due.pop(key)[1]
                self._changed.wait(None if key is None else self._wakes - now)

    def _work(self) -> None:
        while True:
            act = self._next()
            try:
                act()
            except Exception:  # reported like any thread's error; other calls go on
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            del act


LATER = Later()
