"""Runs in the background that a reader may pause, step and stop, and their records."""

import atexit
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

from ddgviz import words
from ddgviz.text import ELLIPSIS, visible

START = 28
_OPEN: "weakref.WeakSet[Any]" = weakref.WeakSet()


def stop_at_exit(panel: Any) -> None:
    """End `panel` when its script ends: compiled code that runs while Python exits would abort."""
    _OPEN.add(panel)


@atexit.register
def _stop_all() -> None:
    for panel in list(_OPEN):
        panel.end()


class Pace:
    """Number of passes that a run may still make: all, some or none.

    Parameters
    ----------
    passes : int, optional
        Passes to take before pausing; all by default.
    """

    def __init__(self, passes: int | None = None) -> None:
        self._changed = threading.Condition()
        self._left = passes
        self._stopped = False

    @property
    def paused(self) -> bool:
        """Whether the run pauses, or will pause after the passes that it may still make."""
        return self._left is not None

    def pause(self) -> None:
        """Take no further pass."""
        self._set(0)

    def resume(self) -> None:
        """Take all passes."""
        self._set(None)

    def step(self) -> None:
        """Take one pass more, then pause."""
        with self._changed:
            self._set((self._left or 0) + 1)

    def stop(self) -> None:
        """End for good."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def stopped(self) -> bool:
        """Whether the run should end."""
        return self._stopped

    def wait(self) -> None:
        """Return once the next pass may be made, or the run should end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._left != 0)
            if self._left:
                self._left -= 1

    def _set(self, left: int | None) -> None:
        with self._changed:
            self._left = left
            self._changed.notify_all()


@dataclass(eq=False)
class Run:
    """A sentence decoded with one or two settings.

    Attributes
    ----------
    text : str
    settings : list of dict
        One for each picture.
    pace : Pace
    traces : list of dict
        Traces of the finished runs, as docs/trace.md describes them.
    series : object
        Equal in runs of which the history keeps only the last, if they follow each other; None in a run that it keeps anyway.
    unusual : str
        The settings of all that are not the usual ones.
    """

    text: str
    settings: list[dict[str, Any]]
    pace: Pace = field(default_factory=Pace)
    traces: list[dict[str, Any]] = field(default_factory=list)
    series: Any = None
    unusual: str = ""

    def __str__(self) -> str:
        text = visible(" ".join(self.text.split()))
        start = text if len(text) <= START else text[: START - 1].rstrip() + ELLIPSIS
        return f"{' | '.join(_description(trace, self.unusual) for trace in self.traces)} · {start}"


def _description(trace: dict[str, Any], unusual: str) -> str:
    decoder = ", ".join(filter(None, (words.decoder(trace["settings"].get("decoder", "?")), unusual)))
    passes = len(trace["iterations"])
    hypothesis: dict[str, Any] = next(iter(trace["hypotheses"]), {})
    count = "stopped" if hypothesis.get("stop") == "interrupted" else f"{len(hypothesis.get('tokens', ()))} tokens"
    return f"{decoder}: {passes} {'pass' if passes == 1 else 'passes'}, {count}"
