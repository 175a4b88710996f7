"""Chart, passes and active sets of one sentence: what is measured is drawn, what is chosen is decoded, and what fails is said."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import kept
import pytest
import simulate

import ddgviz
from ddgviz import words
from ddgviz.linked import HINT, Together

SPEEDS = {("exact", 1): 1.0, ("exact", 3): 1.2, ("clustered", 1): 1.6, ("clustered", 3): 1.9}


class Weigher:
    """Says what was written down, and plays runs that are at hand."""

    def __init__(self, kept: float = 1.0) -> None:
        self.kept, self.asked, self.languages = kept, [], []
        self.gate, self.waiting = threading.Event(), threading.Event()
        self.gate.set()

    def choices(self) -> dict[str, Any]:
        return {"from": ["en", "de"], "to": ["de", "fr", "en"], "directions": ["en-de", "en-fr", "de-en"]}

    def weigh(
        self, text: str, languages: dict[str, Any], stop: Callable[[], bool], told: Callable[[float], None]
    ) -> list[dict[str, Any]]:
        self.languages.append(languages)
        if text == "refuse":
            raise ValueError("Nothing to weigh: got <b>nothing. Type some words.")
        told(0.5)
        self.waiting.set()
        self.gate.wait(10)
        if stop():
            return []
        return [
            {
                "projection": projection,
                "width": width,
                "speedup": speedup,
                "speedup_low": speedup - 0.1,
                "speedup_high": speedup + 0.1,
                "passes": 9 if width == 1 else 5,
                "kept": self.kept if projection == "clustered" else 1.0,
                "clusters": projection == "clustered",
                "settings": {"projection": projection, "width": width},
            }
            for (projection, width), speedup in SPEEDS.items()
        ]

    def run(self, text: str, settings: dict[str, Any], stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        self.asked.append((settings["projection"], settings["width"]))
        grouped = settings["projection"] == "clustered"
        yield from simulate.events(kept.trace("clustered") if grouped else simulate.garden())


@pytest.fixture
def weigher() -> Weigher:
    return Weigher()


@pytest.fixture
def together(weigher: Weigher) -> Together:
    return ddgviz.together(weigher, start=False)


def test_what_was_measured_is_a_curve_for_each_projection(together: Together) -> None:
    rows = together.run("A sentence.")
    assert [curve.name for curve in together.chart.data] == ["exact", "clustered (k-means)"]
    drawn = {(c.name, int(x)): y for c in together.chart.data for x, y in zip(c.x, c.y, strict=True)}
    assert drawn == {(words.projection(name), width): speed for (name, width), speed in SPEEDS.items()}
    assert rows == together.rows and together._about.value == "Measured on “A sentence.” · English → German"
    assert list(together.chart.data[0].error_y.array) == pytest.approx([0.1, 0.1])


def test_the_fastest_window_that_keeps_the_output_comes_first(together: Together, weigher: Weigher) -> None:
    together.run("A sentence.")
    assert weigher.asked == [("clustered", 3), ("exact", 3)], "each is decoded once"
    assert together.comparison.a.model.clusters and not together.comparison.b.model.clusters
    assert together.comparison.a.group == together.comparison.b.group != ""
    assert together._message.value.startswith(
        "Window of 3, clustered (k-means): 5 passes, 1.90 times as fast (1.80 to 2.00), every token"
    )

    lossy = Weigher(kept=0.5)
    other = ddgviz.together(lossy, start=False)
    other.run("A sentence.")
    assert lossy.asked[-2:] == [("exact", 3), ("clustered", 3)]
    assert "50% of the tokens greedy decoding's" in other._message.value


def test_a_click_chooses_a_point(together: Together, weigher: Weigher) -> None:
    together.run("A sentence.")

    class Points:
        point_inds, xs, trace_index = (0,), (1,), 0

    together._clicked(together.chart.data[0], Points(), None)
    assert (together.choice["width"].value, together.choice["projection"].value) == (1, "exact")
    assert weigher.asked[-2:] == [("exact", 1), ("clustered", 1)]
    assert together._message.value.startswith("Greedy decoding, exact: 9 passes, 1.00 times as fast")
    together.choice["width"].value = 3
    assert weigher.asked[-2:] == [("exact", 3), ("clustered", 3)]


def test_what_fails_is_said_as_text(together: Together) -> None:
    together.run("A sentence.")
    assert together._repr_mimebundle_()["text/html"].count("<img ") == 2
    together.run("refuse")
    assert "text/html" not in together._repr_mimebundle_(), "pictures of another sentence are not saved"
    assert together.error == "Nothing to weigh: got <b>nothing. Type some words."
    assert together._middle.children[0].value == together.error
    together.run("   ")
    assert together.error == "A sentence is needed, got an empty one. Type one above."
    together.run("A sentence.")
    assert together.error == "" and together._middle.children == together._drawn


def test_it_is_stopped_and_started_again(together: Together, weigher: Weigher) -> None:
    weigher.gate.clear()
    together._go.click()
    assert weigher.waiting.wait(10) and together.busy and together._bar.value == 0.5
    assert together._go.description == "Stop"
    threading.Timer(0.1, weigher.gate.set).start()
    together._go.click()
    assert not together.busy and together.rows == [] and together._go.description == "Measure"
    assert together.run("A sentence.") != []
    weigher.gate.clear(), weigher.waiting.clear()
    together._go.click()
    assert weigher.waiting.wait(10)
    threading.Timer(0.1, weigher.gate.set).start()
    together.stop()
    assert together._middle.children == together._drawn, "what was drawn before is still there"
    assert together._about.value.startswith("Measured on “A sentence.”"), "and says what it is of"


def test_closing_stops_the_measurement_and_removes_the_pictures(together: Together, weigher: Weigher) -> None:
    weigher.gate.clear()
    together.start()
    assert weigher.waiting.wait(10)
    worker = together._worker
    together.close()
    weigher.gate.set()
    worker.join(10)
    assert together.rows == [] and weigher.asked == []
    assert [part.comm for part in (together, together.chart, together.comparison.a, together.comparison.b)] == [
        None
    ] * 4


def test_languages_are_chosen_and_measured_again(together: Together, weigher: Weigher) -> None:
    menus = together.languages
    menus["to"].value = "fr"
    assert weigher.languages == [], "nothing was measured yet"
    together.run("A sentence.")
    menus["from"].value = "de"
    assert together._worker is not None
    together._worker.join()
    assert menus["to"].options == (("English", "en"),)
    assert weigher.languages == [{"from": "en", "to": "fr"}, {"from": "de", "to": "en"}]
    assert together._about.value.endswith(" · German → English")


def test_a_language_chosen_while_the_chart_is_drawn_is_measured(together: Together, weigher: Weigher) -> None:
    drawing, drawn = threading.Event(), threading.Event()
    together.choice["width"].observe(lambda _: (drawing.set(), drawn.wait(10)), "options")
    together._go.click()
    assert drawing.wait(10)
    threading.Timer(0.1, drawn.set).start()
    together.languages["to"].value = "fr"
    together._worker.join(10)
    assert [languages["to"] for languages in weigher.languages] == ["de", "fr"]


def test_enter_measures(together: Together) -> None:
    together._box.value = "A se"
    together._box._handle_custom_msg({"event": "submit"}, [])
    together._box.value = "A sentence."
    together._worker.join(10)
    assert together.rows and together._about.value.startswith("Measured on “A sentence.”")


def test_an_error_takes_the_picture_of_the_earlier_point_away(together: Together, weigher: Weigher) -> None:
    together.run("A sentence.")
    assert together.comparison.a.model.complete

    def refuse(*_: object) -> Iterator[dict[str, Any]]:
        raise ValueError("Nothing to decode.")

    weigher.run = refuse
    together.choose(1, "exact")
    assert together._message.value == together.error == "Nothing to decode." and together.comparison.a.model.rows == 0


def test_it_begins_at_once_unless_told_otherwise(weigher: Weigher) -> None:
    begun = ddgviz.together(weigher)
    assert begun._worker is not None
    begun._worker.join(10)
    assert begun.rows
    waiting = ddgviz.together(weigher, start=False)
    assert waiting._worker is None and waiting._message.value == HINT


def test_something_else_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"an object with choices\(\), weigh\(\) and run\(\).*pass fastdecode_lib.runner\(model\)"
    ):
        ddgviz.together("text")  # type: ignore[arg-type]
