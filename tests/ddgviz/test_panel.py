"""The panel: runs, pauses, steps, stops, compares, remembers, and says what went wrong."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import ipywidgets
import pytest
import simulate

import ddgviz
import fastdecode_lib
from ddgviz import controls, runs
from ddgviz.panel import Panel

WINDOW = {"from": "en", "to": "de", "decoder": "window", "width": 5}
BLOCKS = {"from": "en", "to": "de", "decoder": "gauss_seidel", "width": 6}
REFUSAL = "No such decoder, got <b>broken\u202e. Choose another."
SHOWN = "No such decoder, got <b>broken⟨U+202E⟩. Choose another."


class Runner:
    """Plays simulated runs; a pass is made when it is asked for, and at most as many as were allowed."""

    def __init__(self, passes: int = 1000) -> None:
        self.allowed = threading.Semaphore(passes)
        self.made = self.stopped = self.under_way = 0
        self.asked: list[dict[str, Any]] = []
        self.loading: Callable[[], object] = lambda: None
        self.together = 0

    def choices(self) -> dict[str, Any]:
        return {
            "from": ["en", "de"],
            "to": ["de", "en", "fr"],
            "directions": ["en-de", "en-fr", "de-en"],
            "decoder": ["window", "gauss_seidel", "jacobi", "broken"],
            "width": {"window": 5, "gauss_seidel": 6},
            "projection": ["exact", "quantised"],
        }

    def run(self, text: str, settings: dict[str, Any], stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        self.asked.append({key: value for key, value in settings.items() if key != "projection"})
        self.loading()
        if settings["decoder"] == "broken":
            raise ValueError(REFUSAL)
        self.under_way += 1
        self.together = max(self.together, self.under_way)
        trace = simulate.garden() if settings["decoder"] == "window" else simulate.station()
        start, *passes, end = simulate.events(trace)
        try:
            yield start
            for event in passes:
                self.allowed.acquire(timeout=10)
                self.made += 1
                yield event
                if stop():
                    self.stopped += 1
                    end = end | {"hypotheses": [{"tokens": [], "score": None, "stop": "interrupted"}], "greedy": None}
                    break
            yield end
        finally:
            self.under_way -= 1

    def code(self, settings: dict[str, Any]) -> str:
        against = f" | {settings['against']['decoder']}" if "against" in settings else ""
        return f"decode({settings['decoder']!r}{against}, {settings['text']!r})"


@pytest.fixture
def runner() -> Runner:
    return Runner()


@pytest.fixture
def panel(runner: Runner) -> Panel:
    return ddgviz.explore(runner, start=False)


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in ten seconds"
        time.sleep(0.005)


def finish(panel: Panel) -> None:
    until(lambda: not panel.busy)


def buttons(panel: Panel) -> list[tuple[str, bool]]:
    return [(button.description, button.disabled) for button in (panel._go, panel._hold, panel._step)]


def press(panel: Panel, name: str) -> None:
    next(b for b in (panel._go, panel._hold, panel._step) if b.description == name).click()


# ---------------------------------------------------------------------------------------------------------------- runs


def test_the_first_sentence_runs_at_once(runner: Runner) -> None:
    panel = ddgviz.explore(runner)
    finish(panel)
    assert panel.trace == simulate.garden()
    assert panel.picture.model.finished
    assert panel._result.value == "Die Kinder spielen im Garten hinter der Schule."


def test_run_waits_and_returns_the_trace(panel: Panel, runner: Runner) -> None:
    assert panel.run("A sentence.") == simulate.garden()
    panel.controls.choice["decoder"].value = "gauss_seidel"
    assert panel.run("Another.") == simulate.station()
    assert (runner.asked[0], runner.asked[-1]) == (WINDOW, BLOCKS)
    assert panel._code.value == "decode('gauss_seidel', 'Another.')"


def test_errors_are_shown_as_text(panel: Panel) -> None:
    panel.controls.choice["decoder"].value = "broken"
    assert panel.run("A sentence.") is None
    assert panel.error == SHOWN and not panel.busy
    panel.controls.choice["decoder"].value = "window"
    assert panel.run("A sentence.") == simulate.garden()
    assert panel.error == ""


def test_an_error_takes_the_picture_of_an_earlier_run_away(panel: Panel) -> None:
    panel.controls.choice["against"].value = "gauss_seidel"
    panel.run("A sentence.")
    panel.controls.choice["against"].value = "broken"
    finish(panel)
    a, b = panel.comparison.a, panel.comparison.b
    assert (a.notice, b.notice) == ("", SHOWN) and a.model.complete and b.model.rows == 0
    panel.controls.choice["decoder"].value = "broken"
    finish(panel)
    assert a.notice == SHOWN and a.model.rows == 0 and panel._result.value == "", "also of the same sentence"
    panel.controls.choice["against"].value = ""
    panel.controls.choice["decoder"].value = "window"
    finish(panel)
    assert a.model.complete and not a.earlier
    assert panel.run("  ") is None and a.model.rows == 0


def test_the_picture_of_an_earlier_run_is_faded_until_the_next_begins(panel: Panel, runner: Runner) -> None:
    panel.run("A sentence.")
    loaded = threading.Event()
    runner.loading = lambda: loaded.wait(10)
    panel._box.value = "Another."
    panel.start()
    assert panel.picture.earlier and panel.picture.model.complete
    loaded.set()
    finish(panel)
    assert not panel.picture.earlier and panel.picture.model.complete
    loaded.clear()
    panel.start()
    panel.start()
    panel.stop()
    loaded.set()
    finish(panel)
    assert panel.error == "Stopped before the first pass." and panel.picture.model.rows == 0


def test_two_that_are_stopped_before_the_first_pass_say_so_once(panel: Panel, runner: Runner) -> None:
    panel.controls.choice["against"].value = "gauss_seidel"
    panel.run("A sentence.")
    loaded = threading.Event()
    runner.loading = lambda: loaded.wait(10)
    panel.start()
    panel.start()
    panel.stop()
    loaded.set()
    finish(panel)
    a, b = panel.comparison.a, panel.comparison.b
    assert (a.notice, b.notice) == ("Stopped before the first pass.", "")
    assert (a.model.rows, b.model.rows, a.earlier, b.earlier) == (0, 0, False, False)


def test_a_sentence_without_content_is_a_run_like_any_other() -> None:
    """A zero-width space: the trace has no hypothesis, and the next sentence must find the panel as it was."""
    panel = ddgviz.explore(fastdecode_lib.runner(fastdecode_lib.load("tatoeba-small", device="cpu")), start=False)
    trace = panel.run("\u200b")
    assert trace is not None and trace["hypotheses"] == [] and not panel.busy and panel.error == ""
    assert buttons(panel)[0] == ("Translate", False)
    assert panel.run("Hello.")["hypotheses"] and len(panel.history.options) == 2  # type: ignore[index]


def test_an_empty_sentence_is_refused(panel: Panel) -> None:
    assert panel.run("  ") is None
    assert panel.error == "A sentence is needed, got an empty one. Type one above."


def test_enter_translates(panel: Panel) -> None:
    panel._box._handle_custom_msg({"event": "submit"}, [])
    finish(panel)
    assert panel.trace == simulate.garden()


def test_enter_while_a_run_ends_translates(panel: Panel, runner: Runner) -> None:
    ending, ended = threading.Event(), threading.Event()
    panel.history.observe(lambda _: (ending.set(), ended.wait(10)), "options")
    panel.start()
    assert ending.wait(10)
    threading.Timer(0.1, ended.set).start()
    panel._box._handle_custom_msg({"event": "submit"}, [])
    finish(panel)
    assert runner.asked == [WINDOW, WINDOW]


def test_letters_that_come_just_after_enter_belong_to_it(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    panel._box.value = "The tr"
    panel._box._handle_custom_msg({"event": "submit"}, [])
    panel._box.value = "The train."
    finish(panel)
    assert panel._run is not None and panel._run.text == "The train."
    monkeypatch.setattr(controls, "LATE", 0.0)
    panel._box.value = "The train is"
    time.sleep(0.05)
    assert panel._run.text == "The train." and not panel.busy, "later ones wait for the next Enter"


def test_history_keeps_one_run_for_each_enter(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "LATE", 60.0)
    panel._box.value = "The tr"
    panel._box._handle_custom_msg({"event": "submit"}, [])
    finish(panel)
    for late in ("The tra", "The train."):
        panel._box.value = late
        finish(panel)
    assert [label.split(" · ")[1] for label, _ in panel.history.options] == ["The train."]
    panel._box._handle_custom_msg({"event": "submit"}, [])
    finish(panel)
    panel._box.value = "The train is late."
    finish(panel)
    assert [label.split(" · ")[1] for label, _ in panel.history.options] == ["The train is late.", "The train."]
    panel.history.value = 1
    assert not panel.busy and panel._box.value == "The train.", "a sentence of the history is no late letter"


def test_code_that_cannot_be_had_is_a_comment(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> str:
        raise ValueError(REFUSAL)

    monkeypatch.setattr(panel.runner, "code", refuse)
    panel._box.value = "Else."
    assert panel._code.value == f"# {SHOWN}"


# ------------------------------------------------------------------------------------------------------------- buttons


def test_stop_ends_a_run_and_another_starts() -> None:
    runner = Runner(passes=2)
    panel = ddgviz.explore(runner)
    until(lambda: runner.made == 2)
    assert buttons(panel) == [("Stop", False), ("Pause", False), ("Step", False)]
    press(panel, "Stop")
    runner.allowed.release()
    finish(panel)
    assert runner.stopped == 1 and panel.picture.model.rows == 3
    assert buttons(panel) == [("Translate", False), ("Pause", True), ("Step", False)]
    for _ in range(20):
        runner.allowed.release()
    assert panel.run("Again.") == simulate.garden()


def test_pause_takes_no_further_pass_and_resume_takes_all() -> None:
    runner = Runner(passes=2)
    panel = ddgviz.explore(runner)
    until(lambda: runner.made == 2)
    press(panel, "Pause")
    for _ in range(20):
        runner.allowed.release()
    until(lambda: panel.picture.model.rows >= 2)
    time.sleep(0.05)
    rows = panel.picture.model.rows
    assert runner.made == rows <= 3 and panel.busy
    assert buttons(panel) == [("Stop", False), ("Resume", False), ("Step", False)]
    press(panel, "Resume")
    finish(panel)
    assert panel.trace == simulate.garden()


def test_a_panel_that_is_closed_stops_its_run() -> None:
    panel = ddgviz.explore(Runner(passes=2), start=False)
    panel.start(passes=1)
    worker = panel._worker
    panel.close()
    assert worker is not None
    worker.join(10)
    assert not worker.is_alive() and panel.comparison.a.comm is None and panel.comparison.b.comm is None


def test_step_takes_one_pass_more(panel: Panel, runner: Runner) -> None:
    for rows in (1, 2, 3):
        press(panel, "Step")
        until(lambda rows=rows: panel.picture.model.rows == rows)
        time.sleep(0.02)
        assert runner.made == rows and buttons(panel)[1] == ("Resume", False)
    press(panel, "Stop")
    finish(panel)
    assert len(runner.asked) == 1 and panel.picture.model.finished and not panel.picture.model.complete


def test_steps_lead_to_the_end(panel: Panel) -> None:
    press(panel, "Step")
    for _ in range(len(simulate.garden()["iterations"])):
        panel.step()
    finish(panel)
    assert panel.trace == simulate.garden()


# ------------------------------------------------------------------------------------------------------------- choices


def test_a_choice_runs_again_once(panel: Panel, runner: Runner) -> None:
    panel.run("A sentence.")
    panel.controls.choice["from"].value = "de"
    finish(panel)
    assert panel.settings == WINDOW | {"from": "de", "to": "en", "projection": "exact"}
    panel.controls.choice["decoder"].value = "gauss_seidel"
    finish(panel)
    assert [(a["from"], a["to"], a["decoder"], a["width"]) for a in runner.asked] == [
        ("en", "de", "window", 5),
        ("de", "en", "window", 5),
        ("de", "en", "gauss_seidel", 6),
    ]


def test_choices_before_the_first_run_start_none(panel: Panel, runner: Runner) -> None:
    panel.controls.choice["from"].value = "de"
    panel.controls.choice["decoder"].value = "jacobi"
    assert runner.asked == [] and panel._code.value.startswith("decode('jacobi'")


def test_menus_follow_each_other(panel: Panel) -> None:
    choice = panel.controls.choice
    assert [choice[key].disabled for key in ("from", "to", "decoder", "width", "projection")] == [False] * 5
    assert [choice[key].layout.display for key in ("precision", "engine", "against_width")] == ["none"] * 3
    choice["decoder"].value = "jacobi"
    assert choice["width"].disabled and "width" not in panel.settings
    choice["decoder"].value = "gauss_seidel"
    assert not choice["width"].disabled and panel.settings["width"] == 6
    choice["from"].value = "de"
    assert choice["to"].options == (("English", "en"),) and choice["to"].disabled


def test_many_threads_leave_one_run() -> None:
    runner = Runner(passes=10_000)
    panel = ddgviz.explore(runner)
    acts = [panel.start, panel.pause, panel.step, panel._press, panel.stop]
    acts += [lambda: setattr(panel.controls.choice["width"], "value", 7)]
    threads = [threading.Thread(target=act) for act in acts * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert panel.run("At last.") == simulate.garden()
    assert panel.error == "" and runner.together == 1


# ------------------------------------------------------------------------------------------------ comparison, history


def test_two_decoders_are_compared(panel: Panel, runner: Runner) -> None:
    panel.run("A sentence.")
    a, b = panel.comparison.a, panel.comparison.b
    assert b.layout.display == "none" and panel.comparison.verdict == ""
    panel.controls.choice["against"].value = "gauss_seidel"
    finish(panel)
    assert runner.asked == [WINDOW, WINDOW, BLOCKS]
    assert (a.to_dict(), b.to_dict()) == (simulate.garden(), simulate.station())
    assert (b.layout.display, b.layout.visibility) == (None, "visible")
    assert a.group == b.group != ""
    assert panel.comparison.verdict.startswith("Outputs differ at ") and len(a.match) == 10
    assert panel._code.value == "decode('window' | gauss_seidel, 'A sentence.')"
    panel.controls.choice["against_width"].value = 2
    finish(panel)
    assert runner.asked[-2:] == [WINDOW, BLOCKS | {"width": 2}]
    panel.controls.choice["against"].value = ""
    finish(panel)
    assert b.layout.display == "none" and panel.comparison.verdict == "" and a.match == b.match == []


def test_what_is_hidden_is_not_saved(panel: Panel) -> None:
    def saved() -> int:
        data = panel._repr_mimebundle_()
        assert data is not None
        return int(data.get("text/html", "").count("<img "))

    panel.controls.choice["against"].value = "gauss_seidel"
    panel.run("One.")
    assert saved() == 2
    panel.controls.choice["against"].value = ""
    panel.run("Two.")
    assert saved() == 1, "without the second picture of the run before"
    panel.controls.choice["against"].value = "broken"
    finish(panel)
    assert saved() == 1, "the first is as good as it was"
    panel.controls.choice["against"].value = "gauss_seidel"
    finish(panel)
    assert saved() == 2
    assert panel.run("  ") is None and saved() == 0


def test_an_error_of_the_second_is_shown(panel: Panel) -> None:
    panel.controls.choice["against"].value = "broken"
    panel.run("A sentence.")
    assert panel.comparison.b.notice == panel.error == SHOWN
    assert panel.comparison.b.layout.visibility == "visible" and panel.comparison.a.model.complete


def test_the_second_does_not_begin_once_stopped(panel: Panel, runner: Runner) -> None:
    panel.controls.choice["against"].value = "gauss_seidel"
    press(panel, "Step")
    until(lambda: panel.picture.model.rows == 1)
    press(panel, "Stop")
    finish(panel)
    assert runner.asked == [WINDOW]
    assert panel.comparison.b.layout.visibility == "hidden" and panel.comparison.agreement is None


def test_history_draws_a_run_again_without_running(panel: Panel, runner: Runner) -> None:
    panel.run("The first.")
    panel.controls.choice["decoder"].value = "jacobi"
    panel.controls.choice["against"].value = "window"
    panel.run("The second,\nwhich is rather longer than the first was.")
    count = len(runner.asked)
    first = len(panel.history.options) - 1
    newest, *_, oldest = [label for label, _ in panel.history.options]
    assert oldest == "sliding window, 5 wide: 6 passes, 10 tokens · The first."
    assert newest.endswith("tokens · The second, which is rather…") and panel.history.value == 0
    panel.history.value = first
    assert panel.settings == WINDOW | {"projection": "exact"} and panel._box.value == "The first."
    assert panel.picture.to_dict() == panel.trace == simulate.garden()
    assert panel.comparison.b.layout.display == "none"
    panel.history.value = 0
    assert panel.settings["decoder"] == "jacobi" and panel.controls.choice["against"].value == "window"
    assert panel.comparison.b.to_dict() == simulate.garden() and panel.comparison.agreement is not None
    time.sleep(0.05)
    assert len(runner.asked) == count and not panel.busy
    assert buttons(panel)[0] == ("Translate", False)


def test_history_keeps_each_setting_once_and_says_what_is_unusual(panel: Panel, runner: Runner) -> None:
    def listed() -> list[str]:
        return [label.partition(":")[0] for label, _ in panel.history.options]

    panel.run("A sentence.")
    for decoder in ("gauss_seidel", "jacobi", "gauss_seidel"):
        panel.controls.choice["decoder"].value = decoder
        finish(panel)
    kept = ["Gauss-Seidel, blocks of 6", "Gauss-Seidel, blocks of 6", "sliding window, 5 wide"]
    assert listed() == kept, "the invented Jacobi run bears the same name"
    assert [run.settings[0]["decoder"] for run in panel._past] == ["gauss_seidel", "jacobi", "window"]
    panel.run("A sentence.")
    assert listed() == kept
    panel.step()
    until(lambda: panel.picture.model.rows == 1)
    panel.stop()
    finish(panel)
    kept = ["Gauss-Seidel, blocks of 6", *kept]
    assert listed() == kept, "a run that was stopped takes no other's place"
    panel.controls.choice["projection"].value = "quantised"
    finish(panel)
    panel.controls.choice["to"].value = "fr"
    finish(panel)
    name = "Gauss-Seidel, blocks of 6"
    assert listed() == [f"{name}, English → French, quantised", f"{name}, quantised", *kept]


def test_history_is_no_empty_box(panel: Panel) -> None:
    def chosen() -> str:
        return str(panel.history.label)

    assert chosen() == "None yet" and panel.history.disabled
    assert panel.run("  ") is None and chosen() == "None yet"
    panel.run("A sentence.")
    assert chosen().endswith("A sentence.") and len(panel.history.options) == 1
    panel.controls.choice["decoder"].value = "broken"
    finish(panel)
    assert panel.error == SHOWN and chosen() == "Earlier runs" and len(panel.history.options) == 2
    panel.history.value = 0
    assert panel.error == "" and panel.picture.to_dict() == simulate.garden() and len(panel.history.options) == 1


def test_a_script_that_ends_stops_what_it_decodes(runner: Runner) -> None:
    runner.allowed = threading.Semaphore(1)
    panel = ddgviz.explore(runner)
    until(lambda: runner.made == 1)
    threading.Timer(0.05, runner.allowed.release).start()
    runs._stop_all()
    assert panel._worker is not None and not panel._worker.is_alive() and runner.stopped == 1


def test_marimo_is_told_what_it_can_draw(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "marimo", SimpleNamespace(running_in_notebook=lambda: True))
    with pytest.raises(
        ValueError, match=r"A panel is made of .* got 'a marimo notebook'\. Show single pictures: mo\.ui"
    ):
        ddgviz.explore(runner)
    with pytest.raises(ValueError, match="A comparison is made of"):
        ddgviz.compare(simulate.garden(), simulate.garden())
    assert ddgviz.show(simulate.garden()).model.rows == 6


def test_history_keeps_twenty(panel: Panel) -> None:
    for number in range(23):
        panel.run(f"Number {number}.")
    labels = [label for label, _ in panel.history.options]
    assert len(labels) == 20 and labels[0].endswith("Number 22.") and labels[-1].endswith("Number 3.")


def test_history_takes_the_picture_from_a_run_under_way(panel: Panel, runner: Runner) -> None:
    panel.run("The first.")
    press(panel, "Step")
    until(lambda: runner.made == 7)
    panel.history.value = 0
    panel._worker.join(10)
    assert panel.picture.to_dict() == simulate.garden() and not panel.busy and len(panel.history.options) == 1


def test_nothing_in_the_panel_renders_markup(panel: Panel) -> None:
    waiting, seen = [panel], []
    while waiting:
        widget = waiting.pop()
        seen.append(widget)
        waiting.extend(getattr(widget, "children", ()))
    assert len(seen) > 8
    unsafe = (ipywidgets.HTML, ipywidgets.HTMLMath, ipywidgets.Label)
    assert not any(isinstance(widget, unsafe) for widget in seen)
