"""One sentence in three linked pictures: costs of widths and projections, passes, and active sets."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import ipywidgets
import pandas as pd
import plotly.graph_objects as go

from ddgviz import words
from ddgviz.comparison import Comparison, with_pictures
from ddgviz.controls import menu, offer_languages, offer_targets, on_enter
from ddgviz.figures import curves
from ddgviz.panel import FIRST
from ddgviz.plain import Plain
from ddgviz.runs import stop_at_exit
from ddgviz.schema import check_boxes, fail
from ddgviz.text import ELLIPSIS, visible

WIDE = 960
"""Width of the chart in pixels, since it does not know the width of its page."""

SHOWN = 90
"""Characters of the measured sentence that are shown."""

HINT = "Choose a point: its passes stand below, and under them the same width with another projection."


class Weigher(Protocol):
    """Interface of a runner that the linked pictures call."""

    def choices(self) -> dict[str, Any]:
        """The languages, as `panel.Runner.choices` has them: ``from``, ``to`` and ``directions``."""
        ...

    def weigh(
        self, text: str, languages: dict[str, Any], stop: Callable[[], bool], told: Callable[[float], None]
    ) -> list[dict[str, Any]]:
        """Decode a sentence by windows of several widths under several projections, timed in turns.

        `languages` has the chosen ones as ``from`` and ``to``; it is empty if there is no choice.

        Returns
        -------
        list of dict
            ``width, projection``; ``speedup`` over greedy decoding, with ``speedup_low`` and ``speedup_high``; ``passes``;
            ``kept``, the share of tokens that are greedy decoding's; ``clusters``, whether the projection has any; and
            ``settings``, which `run` takes. Empty if `stop` became true. `told` is called with the share that is done.
        """
        ...

    def run(self, text: str, settings: dict[str, Any], stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Decode as `panel.Runner.run` does."""
        ...


class Together(ipywidgets.VBox):
    """A chart of widths and projections, and the decodings of the point that is chosen in it.

    Attributes
    ----------
    languages : dict of str to Dropdown
        The menus ``from`` and ``to``, not shown if the model names no languages.
    rows : list of dict
        Measured rows of `Weigher.weigh`.
    chart : plotly.graph_objects.FigureWidget
        Speedup over the window's width, a curve for each projection; a click chooses a point.
    comparison : Comparison
        The chosen decoding, and that of the same width under another projection: with clusters if the chosen one has none.
    error : str
        Why the last run failed; empty if it did not.
    """

    def __init__(self, runner: Weigher, text: str, start: bool) -> None:
        self.runner = runner
        self.rows: list[dict[str, Any]] = []
        self.error = ""
        self.comparison = Comparison()
        self.chart = go.FigureWidget()
        self._scrolling = ipywidgets.Box()
        self._scrolling.add_class("ddg-chart")
        self._stopped = threading.Event()
        self._worker: threading.Thread | None = None
        self._lock = threading.RLock()
        self._box = ipywidgets.Text(value=text, placeholder="A sentence to measure")
        self._box.add_class("ddg-sentence")
        self._go = ipywidgets.Button(description="Measure", button_style="primary")
        self._bar = ipywidgets.FloatProgress(min=0.0, max=1.0, description="Measuring")
        self._about = Plain("verdict")
        self._message = Plain("verdict", HINT)
        self._choices = runner.choices()
        self.languages = {"from": menu("From", "from"), "to": menu("To", "to")}
        offer_languages(self.languages, self._choices)
        second = ipywidgets.HBox(list(self.languages.values()))
        second.add_class("ddg-controls")
        second.layout.display = None if self._choices.get("from") else "none"
        self.choice = {"width": menu("Width", "width"), "projection": menu("Projection", "projection")}
        menus = ipywidgets.HBox(list(self.choice.values()))
        menus.add_class("ddg-controls")
        below = ipywidgets.VBox([self._message, menus, self.comparison])
        below.add_class("ddg-below")
        self._drawn = self._about, self._scrolling, below
        first = ipywidgets.HBox([self._box, self._go])
        first.add_class("ddg-first")
        self._middle = ipywidgets.VBox([])
        super().__init__([first, second, self._middle])
        self.add_class("ddg-panel")
        self._go.on_click(lambda _: self._press())
        on_enter(self._box, lambda _: self.start())
        self._quiet = self._offering = False
        for dropdown in self.choice.values():
            dropdown.observe(lambda _: self._draw(), "value")
        for dropdown in self.languages.values():
            dropdown.observe(self._choose_language, "value")
        stop_at_exit(self)
        if start and text.strip():
            self.start()

    @property
    def busy(self) -> bool:
        """Whether something is being measured."""
        return self._worker is not None and self._worker.is_alive()

    def start(self) -> threading.Thread:
        """Measure in the thread that is returned; a running measurement is stopped first."""
        self.stop()
        self._stopped = threading.Event()
        languages = {side: menu.value for side, menu in self.languages.items() if menu.value is not None}
        asked = self._box.value, languages, self._stopped
        self._worker = threading.Thread(target=self._work, args=asked, daemon=True)
        self._go.description = "Stop"
        self._bar.value = 0.0
        self._middle.children = (self._bar,)
        self._worker.start()
        return self._worker

    def stop(self) -> None:
        """Stop the running measurement, and wait for its end."""
        self._stopped.set()
        if self._worker is not None and self._worker is not threading.current_thread():
            self._worker.join()

    def close(self) -> None:
        """Stop the measurement, and remove the panel, its chart and its pictures."""
        self._stopped.set()
        self.comparison.close()
        self.chart.close()
        super().close()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any] | None:
        data = super()._repr_mimebundle_(**kwargs)
        return with_pictures(data, self.comparison) if self._middle.children == self._drawn else data

    end = stop

    def run(self, text: str) -> list[dict[str, Any]]:
        """Measure `text`, wait for it, and return the rows, which are empty if it failed."""
        self._box.value, self.rows = text, []
        self.start().join()
        return self.rows

    def choose(self, width: int, projection: str) -> None:
        """Draw the decoding of a window of this width under this projection, and one to compare it with."""
        with self._lock:
            self._quiet = True
            try:
                self.choice["width"].value, self.choice["projection"].value = width, projection
            finally:
                self._quiet = False
            self._draw()

    def _press(self) -> None:
        if self.busy:
            self.stop()
        else:
            self.start()

    def _choose_language(self, change: Any) -> None:
        """Measure again after a choice, once something has been measured."""
        if self._offering:
            return
        if change["owner"] is self.languages["from"]:
            self._offering = True  # not `_quiet`, which a measurement sets while it draws the chart
            offer_targets(self.languages, self._choices)
            self._offering = False
        if self.rows or self.busy:
            self.start()

    def _work(self, text: str, languages: dict[str, Any], stopped: threading.Event) -> None:
        self.error = ""
        try:
            if not text.strip():
                raise ValueError("A sentence is needed, got an empty one. Type one above.")
            rows = self.runner.weigh(text, languages, stopped.is_set, self._tell)
            if rows and not stopped.is_set():
                self._about.value = _about(text, languages)
                self._show(text, rows)
        except Exception as error:  # shown in the panel, where the reader looks
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            self.error = f"{kind}{error}"
            self._middle.children = (Plain("verdict", self.error),)
        finally:
            self._go.description = "Measure"
            if stopped.is_set():
                self._middle.children = self._drawn if self.rows else ()

    def _tell(self, share: float) -> None:
        self._bar.value = share

    def _show(self, text: str, rows: list[dict[str, Any]]) -> None:
        with self._lock:
            self.rows, self._text = rows, text
            frame = pd.DataFrame(rows).assign(projection=[words.projection(row["projection"]) for row in rows])
            figure = curves(
                frame, "width", "speedup", "projection", reference=1.0,
                x_title="width of the window (1: greedy decoding)", y_title="times as fast as greedy decoding",
            )  # fmt: skip
            self.chart = go.FigureWidget(figure.update_layout(width=WIDE))
            self._scrolling.children = (self.chart,)
            for curve in self.chart.data:
                curve.on_click(self._clicked)
            windows = [row for row in rows if row["kept"] == 1 and row["width"] > 1]
            fastest = max(windows, key=lambda row: row["speedup"], default=rows[0])
            self._quiet = True
            for name, dropdown in self.choice.items():
                spell = words.projection if name == "projection" else str
                dropdown.options = [(spell(value), value) for value in dict.fromkeys(row[name] for row in rows)]
            self._middle.children = self._drawn
            self.choose(fastest["width"], fastest["projection"])

    def _clicked(self, curve: Any, points: Any, _: Any) -> None:
        if points.point_inds:
            projections = list(dict.fromkeys(row["projection"] for row in self.rows))
            self.choose(int(points.xs[0]), projections[points.trace_index])

    def _draw(self) -> None:
        """Decode the chosen setting and the one to compare it with."""
        with self._lock:
            choice = {name: dropdown.value for name, dropdown in self.choice.items()}
            chosen = next((row for row in self.rows if choice.items() <= row.items()), None)
            if chosen is None or self._quiet:
                return
            width = chosen["width"]
            rivals = [row for row in self.rows if row["width"] == width and row["clusters"] != chosen["clusters"]]
            rows = [chosen, *rivals[:1]]
            self.error = ""
            self.comparison.reset(two=len(rows) == 2)
            try:
                for picture, row in zip((self.comparison.a, self.comparison.b), rows, strict=False):
                    for event in self.runner.run(self._text, row["settings"], lambda: False):
                        picture.append(event)
                    picture.layout.visibility = "visible"
            except ValueError as error:
                self._message.value = self.error = str(error)
                self.comparison.reset(two=False)
                self.comparison.a.clear()
                return
            if len(rows) == 2:
                self.comparison.match(timed=False)  # the chart has times of many runs
            self._message.value = " ".join(_sentence(row) for row in rows)


def _about(text: str, languages: dict[str, Any]) -> str:
    """The sentence that was measured, and its languages."""
    said = visible(" ".join(text.split()))
    said = said if len(said) <= SHOWN else said[: SHOWN - 1].rstrip() + ELLIPSIS
    return " · ".join(filter(None, (f"Measured on “{said}”", " → ".join(map(words.language, languages.values())))))


def _sentence(row: dict[str, Any]) -> str:
    kept = "every token greedy decoding's" if row["kept"] == 1 else f"{row['kept']:.0%} of the tokens greedy decoding's"
    name = "Greedy decoding" if row["width"] == 1 else f"Window of {row['width']}"
    speedup = f"{row['speedup']:.2f} times as fast ({row['speedup_low']:.2f} to {row['speedup_high']:.2f})"
    return f"{name}, {words.projection(row['projection'])}: {row['passes']} passes, {speedup}, {kept}."


def together(runner: Weigher, text: str = FIRST, *, start: bool = True) -> Together:
    """A chart of the costs of widths and projections on one sentence, linked with the passes and active sets of each.

    Parameters
    ----------
    runner : Weigher
        ``choices()``, ``weigh(text, languages, stop, told)`` and ``run(text, settings, stop)``.
    text : str
        The first sentence.
    start : bool
        Whether to measure it at once.

    Returns
    -------
    Together
        ``rows`` are the measurements; ``run(text)`` measures and waits.

    Raises
    ------
    ValueError
        If `runner` lacks these methods.
    """
    if not all(callable(getattr(runner, name, None)) for name in ("choices", "weigh", "run")):
        expected = "Linked pictures drive a runner: an object with choices(), weigh() and run()"
        raise fail(expected, type(runner).__name__, "For a model of fastdecode_lib, pass fastdecode_lib.runner(model).")
    check_boxes("The chart with its pictures")
    return Together(runner, text, start)
