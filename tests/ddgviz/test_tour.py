"""The tour: six steps that say what is so and move the picture to it."""

from pathlib import Path
from typing import Any

import pytest
import simulate
from test_page import shown

import ddgviz


def test_what_is_said_is_of_the_run(garden: dict[str, Any]) -> None:
    steps = ddgviz.tour(garden).tour["steps"]
    assert [step["view"]["pass"] for step in steps] == [0, 1, 1, 4, 6, 6]
    said = [step["text"] for step in steps]
    assert "has 10 tokens" in said[0] and "computes 5 positions at once" in said[1] and "wrong draft" in said[2]
    assert said[3] == "Pass 4 settled 3 tokens in one pass."
    assert said[5].startswith("In the end: 6 passes for 10 tokens; greedy needs 10 · identical output.")
    plain = [step["text"] for step in ddgviz.tour(simulate.greedy()).tour["steps"]]
    assert "one position." in plain[1] and "This pass has no others." in plain[2] and "one token, as every" in plain[3]


def test_a_last_pass_that_settles_nothing_is_not_overlooked() -> None:
    trace = simulate.greedy()
    last = trace["iterations"][-1]
    idle = last | {"call": last["call"] + 1}
    said = [step["text"] for step in ddgviz.tour(trace | {"iterations": [*trace["iterations"], idle]}).tour["steps"]]
    assert said[3].endswith("settled one token, and no pass settled more.")


def test_a_search_is_not_toured() -> None:
    with pytest.raises(ValueError, match=r"settles tokens as it goes, got .*beam.* Show this one with"):
        ddgviz.tour(simulate.beam())


@pytest.mark.browser
def test_each_step_moves_the_picture(browser: Any, garden: dict[str, Any], tmp_path: Path) -> None:
    path = ddgviz.save(ddgviz.tour(garden), tmp_path / "tour.html")
    page = browser.new_page(viewport={"width": 390, "height": 800}, reduced_motion="reduce")
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector(".ddgviz[data-passes]")
    seen = []
    for _ in range(6):
        seen.append(shown(page))
        if page.get_by_text("Next").is_enabled():
            page.get_by_text("Next").click()
    assert seen == [0, 1, 1, 4, 6, 6]
    page.get_by_text("Back").click()
    assert page.get_by_text("5 of 6").count() == 1 and "arc says" in page.locator(".ddg-step").inner_text()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390 and complaints == []
    page.close()
