"""The race: tokens appear when their pass had ended, and the gap is told once both have arrived."""

from pathlib import Path
from typing import Any

import pytest
import simulate

import ddgviz

RUNNING = """() => {
  const time = Number(document.querySelector(".ddg-race").dataset.time);
  return time > 0.002 && time < 0.04;
}"""


def slower(trace: dict[str, Any]) -> dict[str, Any]:
    """The same output by greedy decoding, a token a pass."""
    pieces = [trace["pieces"][str(token)] for token in trace["hypotheses"][0]["tokens"][:-1]]
    return simulate.jacobi(pieces, {}, width=1, source=trace["source"]["text"], decoder="greedy")


def test_tokens_appear_at_the_end_of_their_pass(garden: dict[str, Any]) -> None:
    found = ddgviz.race(garden, slower(garden)).race
    first, second = found["runners"]
    assert [runner["name"] for runner in (first, second)] == ["sliding window, 5 wide", "greedy"]
    assert [round(token["at"], 3) for token in first["tokens"]] == [0.004, 0.008, 0.012, *[0.016] * 3, *[0.02] * 3]
    assert [round(token["at"], 3) for token in second["tokens"]] == [round(0.004 * n, 3) for n in range(1, 10)]
    assert "".join(token["text"] for token in first["tokens"]) == "Die Kinder spielen im Garten hinter der Schule."
    assert found["verdict"] == "Sliding window, 5 wide came first: 24 ms against 40 ms in one run each, same output."
    other = ddgviz.race(simulate.other_words(garden), slower(garden)).race
    assert other["verdict"].endswith("another output.")


def test_what_cannot_race_is_refused(garden: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"the same sentence, got .* Translate one sentence twice"):
        ddgviz.race(garden, simulate.station())
    garden["iterations"][2]["seconds"] = None
    with pytest.raises(ValueError, match=r"the time of every pass, got .*window.* Record the trace"):
        ddgviz.race(garden, slower(simulate.garden()))


@pytest.mark.browser
def test_the_clock_runs_and_the_gap_is_told_at_the_end(browser: Any, garden: dict[str, Any], tmp_path: Path) -> None:
    path = ddgviz.save(ddgviz.race(garden, slower(garden)), tmp_path / "race.html")
    page = browser.new_page(viewport={"width": 390, "height": 800}, reduced_motion="reduce")
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector(".ddg-race")
    assert page.locator(".ddg-judgement").inner_text().startswith("Sliding window, 5 wide came first: 24 ms")
    assert page.locator(".ddg-racer-word:not([hidden])").count() == 18
    assert page.locator(".ddg-racer-clock").all_inner_texts() == ["24.0 ms", "40.0 ms"]
    page.locator("select").select_option("0.01")
    page.get_by_text("Start").click()
    page.wait_for_function(RUNNING)
    assert page.locator(".ddg-judgement").inner_text() == ""
    assert page.locator(".ddg-racer-word:not([hidden])").count() < 18
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert complaints == []
    page.close()
