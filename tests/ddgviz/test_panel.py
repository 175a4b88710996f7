"""The panel: runs, stops, and says what went wrong."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets
import simulate

import ddgviz


class Runner:
    """Plays simulated runs."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.stopped = 0
        self.asked: list[dict[str, str]] = []

    def choices(self) -> dict[str, list[str]]:
        return {"decoder": ["window:width=5", "gauss_seidel:block=6", "broken"], "from": ["en"], "to": ["de", "fr"]}

    def run(self, text: str, settings: dict[str, str], stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        self.asked.append(settings)
        if settings["decoder"] == "broken":
            raise ValueError("No such decoder, got <b>broken\u202e. Choose another.")
        trace = simulate.garden() if settings["decoder"].startswith("window") else simulate.station()
        for event in simulate.events(trace):
            if stop():
                self.stopped += 1
                return
            time.sleep(self.pause)
            yield event

    def code(self, settings: dict[str, str]) -> str:
        return f"decode({settings['decoder']!r}, {settings['text']!r})"


def test_the_first_sentence_runs_at_once() -> None:
    panel = ddgviz.explore(Runner())
    panel._worker.join(10)
    assert panel.trace == simulate.garden()
    assert panel.picture.model.finished


def test_run_waits_and_returns_the_trace() -> None:
    runner = Runner()
    panel = ddgviz.explore(runner, start=False)
    assert panel.run("A sentence.") == simulate.garden()
    panel._choice["decoder"].value = "gauss_seidel:block=6"
    assert panel.run("A sentence.") == simulate.station()
    assert runner.asked[-1] == {"from": "en", "to": "de", "decoder": "gauss_seidel:block=6"}
    assert panel._code.value == "decode('gauss_seidel:block=6', 'A sentence.')"


def test_errors_are_shown_as_text() -> None:
    panel = ddgviz.explore(Runner(), start=False)
    panel._choice["decoder"].value = "broken"
    assert panel.run("A sentence.") is None
    assert panel.error == "No such decoder, got <b>broken\u202e. Choose another."
    panel._choice["decoder"].value = "window:width=5"
    assert panel.run("A sentence.") == simulate.garden()
    assert panel.error == ""


def test_an_empty_sentence_is_refused() -> None:
    panel = ddgviz.explore(Runner(), start=False)
    assert panel.run("  ") is None
    assert panel.error == "A sentence is needed, got an empty one. Type one above."


def test_the_button_stops_a_run_and_a_new_one_starts() -> None:
    runner = Runner(pause=0.05)
    panel = ddgviz.explore(runner)
    deadline = time.monotonic() + 5
    while panel._button.description != "Stop" and time.monotonic() < deadline:
        time.sleep(0.01)
    panel._button.click()
    panel._worker.join(5)
    assert (runner.stopped, panel.trace, panel._button.description) == (1, None, "Translate")
    assert panel.run("Again.") == simulate.garden()


def test_enter_translates() -> None:
    panel = ddgviz.explore(Runner(), start=False)
    panel._box._handle_custom_msg({"event": "submit"}, [])
    panel._worker.join(5)
    assert panel.trace == simulate.garden()


def test_nothing_in_the_panel_renders_markup() -> None:
    panel = ddgviz.explore(Runner(), start=False)
    waiting, seen = [panel], []
    while waiting:
        widget = waiting.pop()
        seen.append(widget)
        waiting.extend(getattr(widget, "children", ()))
    assert len(seen) > 8
    assert not any(isinstance(widget, (ipywidgets.HTML, ipywidgets.HTMLMath)) for widget in seen)
