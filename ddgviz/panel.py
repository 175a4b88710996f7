"""A panel: type a sentence, choose a decoder, watch its passes, compare it with another."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import ipywidgets

from ddgviz.comparison import Comparison, with_pictures
from ddgviz.controls import NONE, Controls, menu, on_enter
from ddgviz.plain import Plain
from ddgviz.runs import Pace, Run, stop_at_exit
from ddgviz.schema import check_boxes, fail
from ddgviz.text import visible
from ddgviz.widget import Picture

FIRST = "The children are playing in the garden behind the school."
KEPT = 20
PATIENCE = 10.0


class Runner(Protocol):
    """Interface of a model that a panel drives."""

    def choices(self) -> dict[str, Any]:
        """Choices of each control, the usual value first.

        Lists under ``from``, ``to``, ``decoder``, ``projection``, ``precision`` and ``engine``; a missing key has no menu.
        ``directions`` (``en-de``), if there, limits the pairs of languages. ``width`` has the usual width of each decoder that
        has one.
        """
        ...

    def run(self, text: str, settings: dict[str, Any], stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Decode, yielding the events of docs/trace.md; end early once `stop` returns true.

        A pass is made when its event is requested, so that the panel can pause.
        """
        ...

    def code(self, settings: dict[str, Any]) -> str:
        """Python code that does the same.

        The settings have the sentence as ``text`` and, if two decoders are compared, the other's settings as ``against``.
        """
        ...


class Panel(ipywidgets.VBox):
    """A sentence, its settings and the picture of its decoding, or the pictures of two.

    Attributes
    ----------
    controls : Controls
        The menus.
    history : Dropdown
        The last runs, the newest first; choosing one draws it again.
    comparison : Comparison
        The pictures; the second is shown only if two decoders are compared.
    picture : Picture
        The live picture, the first of the two.
    trace : dict or None
        The last finished run, as docs/trace.md describes it.
    error : str
        Why the last run failed; empty if it did not.
    """

    def __init__(self, runner: Runner, text: str, start: bool) -> None:
        self.runner = runner
        self.comparison = Comparison()
        self.picture: Picture = self.comparison.a
        self.trace: dict[str, Any] | None = None
        self._lock = threading.RLock()
        self._quiet = False
        self._run: Run | None = None
        self._busy = False
        self._worker: threading.Thread | None = None
        self._past: deque[Run] = deque(maxlen=KEPT)
        self._box = ipywidgets.Text(value=text, placeholder="A sentence to translate")
        self._box.add_class("ddg-sentence")
        self._go = ipywidgets.Button()
        self._hold = ipywidgets.Button(tooltip="Stop before the next pass, or go on")
        self._step = ipywidgets.Button(description="Step", tooltip="One pass more, then pause")
        self._result = Plain("result")
        self.controls = Controls(runner.choices())
        self.history = menu("History", "history")
        self._code = Plain("code")
        buttons = ipywidgets.HBox([self._go, self._hold, self._step])
        first = ipywidgets.HBox([self._box, buttons])
        first.add_class("ddg-first")
        second = ipywidgets.HBox([self._result, self.history])
        second.add_class("ddg-second")
        super().__init__([first, self.controls, second, self.comparison, self._code])
        self.add_class("ddg-panel")
        self._list(None)
        self._listen()
        self._refresh()
        stop_at_exit(self)
        if start and text.strip():
            self.start()

    def _listen(self) -> None:
        self._go.on_click(lambda _: self._press())
        self._hold.on_click(lambda _: self.pause())
        self._step.on_click(lambda _: self.step())
        on_enter(self._box, self._enter)
        self._box.observe(lambda _: self._write_code(), "value")
        for choice in self.controls.choice.values():
            choice.observe(self._choose, "value")
        self.history.observe(lambda change: self._recall(change["new"]), "value")

    @property
    def settings(self) -> dict[str, Any]:
        """The chosen settings."""
        return self.controls.settings()[0]

    @property
    def busy(self) -> bool:
        """Whether a run is going on, or its result is not yet completely shown."""
        with self._lock:
            return self._busy

    @property
    def error(self) -> str:
        """Error of the last run; empty if it did not fail."""
        return str(self.comparison.a.notice or self.comparison.b.notice)

    def start(self, passes: int | None = None, series: Any = None) -> None:
        """Decode the sentence in the background; a running one is stopped first.

        Parameters
        ----------
        passes : int, optional
            Passes to take before pausing.
        series : object, optional
            Of several runs in a row with an equal one, the history keeps only the last.
        """
        with self._lock:
            self.stop()
            settings, unusual = self.controls.settings(), self.controls.unusual()
            run = self._run = Run(self._box.value, settings, Pace(passes), series=series, unusual=unusual)
            self._worker = threading.Thread(target=self._work, args=(run, self._worker), name="ddgviz-run", daemon=True)
            self._busy = True
            self._clear(run)
            self._refresh()
            self._worker.start()

    def stop(self) -> None:
        """Stop the run after its present pass."""
        with self._lock:
            if self._run is not None:
                self._run.pace.stop()

    def close(self) -> None:
        """Stop the run, and remove the panel and its pictures."""
        self.stop()
        self.comparison.close()
        super().close()

    def end(self) -> None:
        """Stop, and wait for the present pass."""
        self.stop()
        if self._worker is not None and self._worker is not threading.current_thread():
            self._worker.join(PATIENCE)

    def pause(self) -> None:
        """Pause the run, or go on if it pauses."""
        with self._lock:
            if self._busy and self._run is not None:
                pace = self._run.pace
                pace.resume() if pace.paused else pace.pause()
                self._refresh()

    def step(self) -> None:
        """Make one more pass, then pause; without a run, make the first pass of a new one."""
        with self._lock:
            if self._busy and self._run is not None:
                self._run.pace.step()
                self._refresh()
            else:
                self.start(passes=1)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any] | None:
        return with_pictures(super()._repr_mimebundle_(**kwargs), self.comparison)

    def run(self, text: str) -> dict[str, Any] | None:
        """Decode `text` and wait for it.

        Returns
        -------
        dict or None
            The trace; None if the run failed, for the reason in `error`.
        """
        with self._lock:
            self._box.value = text
            self.start()
            worker = self._worker
        if worker is not None:
            worker.join()
        return None if self.error else self.trace

    def _press(self) -> None:
        with self._lock:
            if self._busy:
                self.stop()
            else:
                self.start()

    def _enter(self, pressed: float) -> None:
        """Decode after Enter, or with the letters that came just after it, but not with a sentence of the history."""
        with self._lock:  # first, since a run that ends is quiet for a moment
            if not self._quiet:
                self.start(series=("enter", pressed))

    def _choose(self, change: Any) -> None:
        """Decode the sentence again after a choice, once a sentence has been decoded; one run for all menus that change."""
        with self._lock:
            if self._quiet:
                return
            with self._quietly():
                self.controls.adjust(change["owner"])
            self._write_code()
            if self._run is not None and self._run.settings != self.controls.settings():
                self.start()

    def _recall(self, index: int | str | None) -> None:
        """Draw an earlier run and restore its settings."""
        with self._lock:
            if self._quiet or not isinstance(index, int):
                return
            self.stop()
            run = self._run = self._past[index]
            with self._quietly():
                self._box.value = run.text
                self.controls.restore(run.settings)
            self._clear(run)
            for picture, trace in zip(self._pictures, run.traces, strict=False):
                picture.show(trace)
                picture.layout.visibility = "visible"
            self._settle(run)

    @property
    def _pictures(self) -> tuple[Picture, Picture]:
        return self.comparison.a, self.comparison.b

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Change menus without starting a run."""
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False

    def _work(self, run: Run, previous: threading.Thread | None) -> None:
        if previous is not None:
            previous.join()
        picture = self.picture
        try:
            if not run.text.strip():
                raise ValueError("A sentence is needed, got an empty one. Type one above.")
            for picture, settings in zip(self._pictures, run.settings, strict=False):
                if not run.pace.stopped():
                    self._decode(run, settings, picture)
            if self.picture.earlier:
                picture = self.picture
                raise ValueError("Stopped before the first pass.")
        except Exception as error:  # shown in the panel, where the reader looks
            with self._lock:
                if run is self._run:
                    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
                    if not run.traces:
                        self.comparison.reset(two=False)
                    if picture.earlier:
                        picture.clear()
                    picture.notice = f"{kind}{error}"
                    picture.layout.visibility = "visible"
        finally:
            with self._lock:
                if run is self._run:
                    try:
                        picture.flush()
                    finally:
                        if run.traces:
                            self._remember(run)
                        self._settle(run)

    def _remember(self, run: Run) -> None:
        """Put a run first in the history, in the place of one that it repeats or of a previous run of the same series."""
        told = (run.text, run.settings, str(run))
        repeated = next((past for past in self._past if (past.text, past.settings, str(past)) == told), None)
        if repeated is not None:
            self._past.remove(repeated)
            run.series = repeated.series
        elif run.series is not None and self._past and self._past[0].series == run.series:
            self._past.popleft()
        self._past.appendleft(run)

    def _list(self, run: Run | None) -> None:
        """List the history, and choose `run` in it; one that it does not keep is chosen as nothing earlier."""
        listed = [(str(past), index) for index, past in enumerate(self._past)]
        kept = run in self._past
        with self._quietly():
            self.history.options = listed if kept else [("Earlier runs" if listed else "None yet", NONE), *listed]
            self.history.value = self._past.index(run) if run is not None and kept else NONE

    def _decode(self, run: Run, settings: dict[str, Any], picture: Picture) -> None:
        for event in self.runner.run(run.text, settings, run.pace.stopped):
            with self._lock:
                if run is not self._run:
                    return
                picture.append(event)
                picture.layout.visibility = "visible"
            if event["event"] != "end":
                run.pace.wait()
        with self._lock:
            if run is self._run and picture.model.finished:
                run.traces.append(picture.to_dict())

    def _clear(self, run: Run) -> None:
        """Clear the result for a new run; the first picture stays, as that of an earlier run, until it draws or fails."""
        for picture in self._pictures:
            picture.notice = ""
        self.picture.earlier = self.picture.model.rows > 0
        self._result.value = ""
        self.comparison.reset(two=len(run.settings) == 2)
        self._list(None)

    def _settle(self, run: Run) -> None:
        """Show the result of a run."""
        self._busy = False
        if run.traces:
            self.trace = run.traces[0]
            self._result.value = visible(self.trace["target"]["text"])
        if len(run.traces) == 2:
            self.comparison.match()
        self._list(run)
        self._refresh()

    def _refresh(self) -> None:
        """Label and enable the buttons as the state of the run requires."""
        paused = self._busy and self._run is not None and self._run.pace.paused
        self._go.description, self._go.button_style = ("Stop", "") if self._busy else ("Translate", "primary")
        self._hold.description, self._hold.disabled = "Resume" if paused else "Pause", not self._busy
        self.history.disabled = not self._past
        self._write_code()

    def _write_code(self) -> None:
        try:
            first, *second = self.controls.settings()
            rival = {"against": second[0]} if second else {}
            self._code.value = self.runner.code({**first, **rival, "text": self._box.value})
        except Exception as error:  # shown, since a callback must not raise
            self._code.value = f"# {visible(str(error))}"


def explore(runner: Runner, text: str = FIRST, *, start: bool = True) -> Panel:
    """A panel that translates what is typed, shows each pass as it happens, and compares decoders.

    Parameters
    ----------
    runner : Runner
        ``choices()``, ``run(text, settings, stop)`` and ``code(settings)``; see `Runner`.
    text : str
        The first sentence.
    start : bool
        Whether to decode it at once.

    Returns
    -------
    Panel
        ``picture`` is the live picture, ``trace`` the last finished run, and ``run(text)`` decodes and waits.

    Raises
    ------
    ValueError
        If `runner` lacks these methods, or in a marimo notebook.
    """
    if not all(callable(getattr(runner, name, None)) for name in ("choices", "run", "code")):
        expected = "A panel drives a runner: an object with choices(), run() and code()"
        raise fail(expected, type(runner).__name__, "For a model of fastdecode_lib, pass fastdecode_lib.runner(model).")
    check_boxes("A panel")
    return Panel(runner, text, start)
