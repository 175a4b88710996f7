"""The page that stands alone, in a browser that reaches nothing else."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import simulate

import ddgviz

pytestmark = pytest.mark.browser
PAINTED = """() => {
  const canvas = document.querySelector("canvas");
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return data.filter((value, index) => index % 4 === 3 && value > 0).length;
}"""
Opener = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opener]:
    """Opens a trace's page; afterwards, nothing was fetched and nothing complained."""
    contexts, requests, complaints = [], [], []

    def open_page(trace: dict[str, Any], **options: Any) -> Any:
        path = ddgviz.save(trace, tmp_path / "picture.html")
        context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        contexts.append(context)
        context.route("**/*", lambda route: route.continue_() if route.request.url == path.as_uri() else route.abort())
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector(".ddgviz[data-passes]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert set(requests) == {(tmp_path / "picture.html").as_uri()}
    assert complaints == []


def shown(page: Any) -> int:
    """Passes that the picture shows, once it has drawn what was asked of it."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return int(page.locator(".ddgviz").get_attribute("data-pass"))


RECORD_PASSES = """
window.passes = [];
new MutationObserver((changes) => changes.forEach((change) => window.passes.push(change.target.dataset.pass)))
  .observe(document, { subtree: true, attributes: true, attributeFilter: ["data-pass"] });
"""


def test_it_plays_by_itself(opened: Opener, garden: dict[str, Any]) -> None:
    page = opened(garden)
    page.add_init_script(RECORD_PASSES)
    page.reload()
    page.wait_for_function("() => window.passes.at(-1) === '6'")
    page.wait_for_selector('[aria-label="Play"]')
    passes = page.evaluate("() => window.passes")
    assert list(dict.fromkeys(p for p in passes if p != "0")) == ["1", "2", "3", "4", "5", "6"]
    assert page.evaluate(PAINTED) > 20_000
    assert page.locator(".ddg-token").all_text_contents()[:3] == ["Die", "Kinder", "spielen"]
    assert page.locator(".ddg-headline").inner_text() == "6 passes for 10 tokens"
    assert page.locator(".ddg-arc").count() == 9


def test_reduced_motion_shows_the_end_at_once(opened: Opener, garden: dict[str, Any]) -> None:
    assert shown(opened(garden, reduced_motion="reduce")) == 6


def test_keys_step_move_and_play(opened: Opener, garden: dict[str, Any]) -> None:
    page = opened(garden, reduced_motion="reduce")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "ddgviz"
    seen = []
    for key in ("[", "[", "]", "Home", "End"):
        page.keyboard.press(key)
        seen.append(shown(page))
    assert seen == [5, 4, 5, 0, 6]
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    assert page.locator("[aria-live]").inner_text().startswith("Die. Position 1, pass 5, settled in pass 1")
    page.keyboard.press("Space")
    page.wait_for_selector('[aria-label="Pause"]')
    page.keyboard.press("Space")
    page.wait_for_selector('[aria-label="Play"]')
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") != "ddgviz"


def test_mouse_steps_scrubs_and_asks(opened: Opener, garden: dict[str, Any]) -> None:
    page = opened(garden, reduced_motion="reduce")
    page.get_by_label("One pass back").click()
    assert shown(page) == 5
    assert page.locator(".ddg-caption").inner_text().startswith("Pass 5")
    line = page.locator(".ddg-line").bounding_box()
    page.mouse.click(line["x"] + line["width"] / 2, line["y"] + 14)
    assert shown(page) == 3
    page.keyboard.press("End")
    stage = page.locator(".ddg-stage").bounding_box()
    page.mouse.move(stage["x"] + 86 + 4 * 84 + 40, stage["y"] + stage["height"] - 3 * 44 + 20)
    shown(page)
    tip = page.locator(".ddg-tip").inner_text().split("\n")
    assert tip[0] == "Garten"
    assert [line.split(" ")[0] for line in tip[1:]] == [
        "Position",
        "settled",
        "token",
        "probability",
        "margin",
        "draft",
    ]
    assert page.locator(".ddg-lit").count() == 2
    assert page.locator(".ddg-band").count() == 1


def test_hostile_tokens_are_only_text(opened: Opener) -> None:
    page = opened(simulate.hostile(), reduced_motion="reduce")
    shown(page)
    page.locator(".ddgviz").focus()
    for _ in range(18):
        page.keyboard.press("ArrowRight")
    shown(page)
    assert page.evaluate("() => window.owned") is None
    assert (
        page.evaluate("() => document.querySelectorAll('.ddgviz img, .ddgviz script, .ddgviz a, .ddgviz s').length")
        == 0
    )
    page.wait_for_selector("table td", state="attached")
    assert "⟨U+202E⟩" in page.locator("table").inner_text()


@pytest.mark.parametrize(("scheme", "paper"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(17, 20, 23)")])
def test_it_follows_the_reader(opened: Opener, garden: dict[str, Any], scheme: str, paper: str) -> None:
    page = opened(garden, color_scheme=scheme, reduced_motion="reduce")
    background = "() => getComputedStyle(document.querySelector('.ddgviz')).backgroundColor"
    assert page.evaluate(background) == paper
    before = page.locator("canvas").screenshot()
    page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
    page.wait_for_selector(f'.ddgviz:not([data-theme="{scheme}"])')
    assert page.evaluate(background) != paper
    shown(page)
    assert page.locator("canvas").screenshot() != before


def test_long_runs_scroll_and_draw_only_what_is_in_view(opened: Opener) -> None:
    page = opened(simulate.station(), reduced_motion="reduce", device_scale_factor=2)
    shown(page)
    wide = page.evaluate(
        "() => [document.querySelector('canvas').width, document.querySelector('.ddg-scroll').clientWidth]"
    )
    assert wide[0] == 2 * wide[1]
    page.keyboard.press("Tab")
    for _ in range(33):
        page.keyboard.press("ArrowRight")
    shown(page)
    assert page.evaluate("() => document.querySelector('.ddg-scroll').scrollLeft") > 300
    assert page.locator(".ddg-ring").count() == 1
