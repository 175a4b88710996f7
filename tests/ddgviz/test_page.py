"""The page that stands alone, in a browser that reaches nothing else."""

import itertools
import json
import urllib.parse
from typing import Any

import kept
import pytest
import simulate
from conftest import Opener
from hostile import TOKENS
from hostile import shown as to_be_seen

from ddgviz.trace import read

pytestmark = pytest.mark.browser
PAINTED = """() => {
  const canvas = document.querySelector("canvas");
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return data.filter((value, index) => index % 4 === 3 && value > 0).length;
}"""


def shown(page: Any) -> int:
    """Passes that the picture shows, once it has drawn what was asked of it."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return int(page.locator(".ddgviz").get_attribute("data-pass"))


RECORD_MARKS = """
const { clearRect, fillText, transform } = CanvasRenderingContext2D.prototype;
Object.assign(CanvasRenderingContext2D.prototype, {
  clearRect(...place) { Object.assign(this.canvas, { marks: [], texts: [] }); clearRect.apply(this, place); },
  fillText(text, ...place) { this.canvas.texts.push(text); fillText.call(this, text, ...place); },
  transform(...matrix) { this.canvas.marks.push(matrix[0]); transform.apply(this, matrix); },
});
"""
"""Keeps, on each canvas, the texts and the sizes of the marks that it was last drawn with."""

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


def test_what_is_not_settled_is_not_called_a_draft(opened: Opener, garden: dict[str, Any]) -> None:
    page = opened(garden, "#pass=1", reduced_motion="reduce")
    shown(page)
    legend = page.locator(".ddg-legend span").all_text_contents()
    assert "not settled" in legend and "draft" not in legend
    for key in ("Tab", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert page.locator(".ddg-tip").inner_text().split("\n")[2] == "not settled"
    page.wait_for_selector("table td", state="attached")
    assert page.locator("table td").all_text_contents()[:2] == ["Die, settled now", "Die, not settled"]


def test_the_keys_show_what_the_mouse_does(opened: Opener) -> None:
    page = opened(kept.trace("clustered"), reduced_motion="reduce")
    tip = page.locator(".ddg-tip")
    page.keyboard.press("Tab")
    assert not tip.is_visible()
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    shown(page)
    lines = tip.inner_text().split("\n")
    assert lines[:2] == ["Großmutter", "Position 2, pass 4"]
    assert any(line.startswith("margin") for line in lines) and any(line.startswith("draft before") for line in lines)
    ring, box = page.locator(".ddg-ring").bounding_box(), tip.bounding_box()
    assert box["y"] >= ring["y"] + ring["height"] and abs(box["x"] - ring["x"]) < 5, "beside the cell"
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    page.keyboard.press("ArrowRight")
    assert tip.is_visible()
    page.keyboard.press("Tab")
    assert not tip.is_visible()


def test_each_draft_has_its_mark_a_small_one_where_room_is_scarce(opened: Opener) -> None:
    trace = simulate.drafted()
    model = read(trace)
    guesses = sum(bool(cell.guess) for row in range(model.rows) for cell in model.cells(row))
    page = opened(trace, "#zoom=0.7", reduced_motion="reduce")
    page.add_init_script(RECORD_MARKS)
    page.reload()
    shown(page)
    marks = page.evaluate("() => document.querySelector('canvas').marks")
    assert len(marks) == guesses > 10 and set(marks) == {0.6, 1}


def test_columns_that_nearly_fit_are_all_seen(opened: Opener) -> None:
    page = opened(simulate.long_block(), reduced_motion="reduce")
    hidden = []
    for width in range(1000, 1600, 40):
        page.set_viewport_size({"width": width, "height": 900})
        shown(page)
        hidden.append(
            page.evaluate(
                "() => (({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('.ddg-scroll'))"
            )
        )
    assert hidden[0] > 0 and hidden[-1] == 0 and not [pixels for pixels in hidden if 0 < pixels < 28]


def hostile(kind: str) -> dict[str, Any]:
    """A run of every kind whose every text is an attack."""
    trace = simulate.hostile() if kind == "window" else kept.either(kind)
    pieces = sorted(trace["pieces"], key=int)
    attacks = dict(zip(pieces[2:], itertools.cycle(TOKENS), strict=False))
    trace["pieces"] |= {piece: "▁" + attack for piece, attack in attacks.items()}
    origins = [row["origins"] for row in trace["iterations"]]
    for row in origins:
        row[:] = [origin and TOKENS[0] for origin in row] if kind == "drafted" else row
    return trace | {"source": trace["source"] | {"text": " ".join(TOKENS)}}


@pytest.mark.parametrize(
    "kind", ["window", "beam", "both_ends", "both_ends_beam", "masks", "clustered", "drafted", "measured"]
)
def test_hostile_tokens_are_only_text(opened: Opener, kind: str) -> None:
    page = opened(hostile(kind), '#cluster=16&find="<"', reduced_motion="reduce")
    shown(page)
    page.wait_for_selector("table td", state="attached")
    said = page.locator("table").inner_text()
    page.locator(".ddgviz").focus()
    for _ in range(18):
        page.keyboard.press("ArrowRight")
    shown(page)
    stage = page.locator(".ddg-stage").bounding_box()
    page.mouse.move(stage["x"] + 120, stage["y"] + stage["height"] - 60)
    assert page.evaluate("() => window.owned") is None
    assert (
        page.evaluate("() => document.querySelectorAll('.ddgviz img, .ddgviz script, .ddgviz a, .ddgviz s').length")
        == 0
    )
    if kind == "window":
        assert [token for token in TOKENS if to_be_seen(token) not in said] == []
    if kind == "clustered":
        assert to_be_seen(TOKENS[0]) in page.locator(".ddg-words").inner_text()


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


def record(page: Any) -> dict[str, Any]:
    """The reader's view, as the address tells it a moment later."""
    shown(page)
    page.wait_for_timeout(150)
    pairs = urllib.parse.parse_qsl(page.url.partition("#")[2])
    return {key: json.loads(value) for key, value in pairs}


def place(page: Any, column: int, y: float) -> tuple[float, float]:
    """A point in a column of the garden's picture, `y` below the top of its stage."""
    stage = page.locator(".ddg-stage").bounding_box()
    return stage["x"] + 86 + 84 * column + 40, stage["y"] + y


def test_a_drag_looks_at_a_part(opened: Opener, garden: dict[str, Any]) -> None:
    page = opened(garden, reduced_motion="reduce")
    page.mouse.move(*place(page, 2, 8))
    page.mouse.down()
    page.mouse.move(*place(page, 5, 10), steps=3)
    assert page.evaluate("() => document.querySelectorAll('.ddg-brush').length") in (0, 1)
    page.mouse.up()
    assert record(page) == {"pass": 6, "brush": [2, 5]}
    assert page.locator(".ddg-token").all_text_contents() == ["spielen", "im", "Garten", "hinter"]
    page.locator(".ddgviz").focus()
    page.keyboard.press("Escape")
    assert record(page) == {"pass": 6}
    assert page.locator(".ddg-token").count() == 10


def test_search_finds_the_next(opened: Opener, garden: dict[str, Any]) -> None:
    page = opened(garden, reduced_motion="reduce")
    page.keyboard.press("Tab")
    page.keyboard.press("/")
    page.keyboard.type("ER")
    assert record(page) == {"pass": 6, "find": "er"}
    assert page.locator(".ddg-found").count() == 3
    for column in (1, 5, 6, 1):
        page.keyboard.press("Enter")
        assert record(page)["column"] == column
    page.keyboard.type("x")
    assert record(page)["find"] == "erx"
    assert "ddg-none" in page.locator(".ddg-search").get_attribute("class")


def test_a_click_pins_and_a_second_lets_go(opened: Opener, garden: dict[str, Any]) -> None:
    page = opened(garden, reduced_motion="reduce")
    page.mouse.click(*place(page, 2, page.locator(".ddg-stage").bounding_box()["height"] - 20))
    assert record(page) == {"pass": 6, "row": 5, "column": 2}
    page.mouse.move(5, 5)
    shown(page)
    assert page.locator(".ddg-ring").count() == page.locator(".ddg-band").count() == 1
    page.mouse.click(*place(page, 2, page.locator(".ddg-stage").bounding_box()["height"] - 20))
    page.mouse.move(5, 5)
    assert record(page) == {"pass": 6}
    assert page.locator(".ddg-ring").count() == page.locator(".ddg-band").count() == 0


def test_zoom_shrinks_to_an_overview(opened: Opener) -> None:
    page = opened(simulate.station(), reduced_motion="reduce")
    wide = "() => parseFloat(document.querySelector('.ddg-spread, .ddg-scroll > div').style.width)"
    before = page.evaluate(wide)
    for _ in range(4):
        page.get_by_label("Smaller").click()
    assert record(page)["zoom"] == 0.25
    assert page.evaluate(wide) < before
    assert page.locator(".ddg-token").count() == 0
    assert page.evaluate(PAINTED) > 5_000
    page.keyboard.press("0")
    assert "zoom" not in record(page)


def test_speed_and_loop(opened: Opener, garden: dict[str, Any]) -> None:
    page = opened(garden, "#loop=true&speed=4")
    page.wait_for_function("() => document.querySelector('.ddgviz').dataset.pass === '6'")
    page.wait_for_function("() => document.querySelector('.ddgviz').dataset.pass === '1'")
    page.get_by_label("Loop").click()
    page.get_by_title("Speed").click()
    page.wait_for_selector('[aria-label="Play"]')
    assert record(page) == {"pass": 6, "speed": 0.5}


def test_an_address_shows_the_same_view(opened: Opener) -> None:
    view = '#pass=3&row=2&column=1&brush=[0,4]&zoom=1.25&graph="order"&find="k"'
    page = opened(simulate.measured(), view, reduced_motion="reduce")
    assert shown(page) == 3
    assert page.locator(".ddg-token").all_text_contents() == ["Die", "Kinder", "spielen"]
    assert page.locator(".ddg-arc").count() == 2
    page.keyboard.press("Tab")
    page.keyboard.press("]")
    assert record(page) == {
        "pass": 4, "row": 3, "column": 1, "brush": [0, 4], "zoom": 1.25, "graph": "order", "find": "k"
    }  # fmt: skip


@pytest.mark.parametrize(
    "view", ["#pass=99", "#brush=[9,1]&graph=4", "#pass=x&nonsense", '#brush="<img>"&zoom=-3', "#speed=null"]
)
def test_a_foreign_address_does_no_harm(opened: Opener, garden: dict[str, Any], view: str) -> None:
    page = opened(garden, view, reduced_motion="reduce")
    assert shown(page) == 6
    assert page.locator(".ddg-token").count() == 10
    assert page.evaluate(PAINTED) > 20_000


def test_arcs_are_switched(opened: Opener) -> None:
    page = opened(simulate.measured(), reduced_motion="reduce")
    counts = []
    for _ in range(4):
        shown(page)
        counts.append((page.locator(".ddg-arc").count(), page.locator(".ddg-legend").inner_text().count("token")))
        page.locator("[aria-label^='Arcs']").click()
    assert [arcs for arcs, _ in counts] == [8, 9, 0, 8]
    assert len({said for _, said in counts[:3]}) == 2


def test_a_cluster_tells_its_words(opened: Opener) -> None:
    page = opened(kept.trace("clustered"), reduced_motion="reduce")
    stage = page.locator(".ddg-stage").bounding_box()
    page.mouse.click(stage["x"] + 40, stage["y"] + stage["height"] - 30)
    assert record(page) == {"pass": 5, "cluster": 34}, "the last but one"
    assert page.locator(".ddg-words").inner_text().startswith("Cluster 34 · 1,110 · 6.9%\nhaben  gehen  machen")
    page.mouse.click(stage["x"] + 40, stage["y"] + stage["height"] - 30)
    assert record(page) == {"pass": 5}
    assert not page.locator(".ddg-words").is_visible()


def test_a_hypothesis_is_traced_back(opened: Opener) -> None:
    page = opened(simulate.beam(), reduced_motion="reduce")
    shown(page)
    assert page.locator(".ddg-row").all_text_contents() == ["lane 1", "lane 2", "lane 3"]
    before = page.locator("canvas").screenshot()
    stage = page.locator(".ddg-stage").bounding_box()
    page.mouse.move(stage["x"] + 86 + 3 * 102 + 20, stage["y"] + stage["height"] - 20)
    shown(page)
    assert page.locator(".ddg-tip").inner_text().split("\n")[:3] == ["alt", "Position 4, lane 3", "open"]
    assert page.locator("canvas").screenshot() != before
    page.keyboard.press("Tab")
    page.keyboard.press("[")
    assert shown(page) == 5
    assert page.locator(".ddg-caption").inner_text().startswith("Pass 5 kept 2 hypotheses open, 1 finished.")


@pytest.mark.parametrize(
    ("name", "caption", "bars"),
    [
        ("both_ends", "settled the end.", [*["+2"] * 4, "+1"]),
        ("both_ends_beam", "settled all 11 tokens: the search has ended.", ["+11"]),
        ("masks", "settled all 10 tokens.", ["+10"]),
        ("drafted", "settled the end.", ["+1", "+1", "+1", "+3", "+3", "+1"]),
    ],
)
def test_other_decoders(opened: Opener, name: str, caption: str, bars: list[str]) -> None:
    page = opened(kept.either(name), reduced_motion="reduce")
    shown(page)
    assert caption in page.locator(".ddg-caption").inner_text()
    assert page.locator(".ddg-count").all_text_contents() == bars


@pytest.mark.parametrize("palette", ["print", "colorblind", "colorblind-dark"])
def test_forced_colours_of_print_reach_the_page(opened: Opener, garden: dict[str, Any], palette: str) -> None:
    page = opened(garden, reduced_motion="reduce")
    before = page.evaluate(
        "() => getComputedStyle(document.querySelector('.ddgviz')).getPropertyValue('--ddg-settled')"
    )
    page.evaluate(f"() => document.querySelector('.ddgviz').setAttribute('data-theme', '{palette}')")
    after = page.evaluate("() => getComputedStyle(document.querySelector('.ddgviz')).getPropertyValue('--ddg-settled')")
    assert after and after != before


def test_arrows_stay_among_hypotheses(opened: Opener) -> None:
    page = opened(simulate.beam(), reduced_motion="reduce")
    page.keyboard.press("Tab")
    for key in ["ArrowDown"] * 4 + ["ArrowRight"] * 8 + ["ArrowDown"] * 3:
        page.keyboard.press(key)
    assert record(page)["column"] == 5
    assert page.evaluate(PAINTED) > 10_000
    assert page.locator("[aria-live]").inner_text().startswith("‹end›. Position 6, lane 2")


@pytest.mark.parametrize("view", ["#brush=[5,40]", "#brush=[50,60]"])
def test_arrows_stay_among_positions(opened: Opener, garden: dict[str, Any], view: str) -> None:
    page = opened(garden, view, reduced_motion="reduce")
    page.keyboard.press("Tab")
    for _ in range(14):
        page.keyboard.press("ArrowRight")
    assert record(page)["column"] == 9


def test_an_address_typed_later_moves_the_picture(opened: Opener, garden: dict[str, Any]) -> None:
    page = opened(garden, "#pass=2", reduced_motion="reduce")
    assert shown(page) == 2
    page.evaluate("() => { location.hash = '#pass=4&find=\"KIND\"'; }")
    page.wait_for_selector('.ddgviz[data-pass="4"]')
    assert page.locator(".ddg-found").count() == 1
    page.get_by_label("Larger").click()
    assert record(page)["zoom"] > 1


def test_a_drag_that_is_taken_away_chooses_nothing(opened: Opener, garden: dict[str, Any]) -> None:
    page = opened(garden, reduced_motion="reduce")
    page.mouse.move(*place(page, 2, 8))
    page.mouse.down()
    page.mouse.move(*place(page, 4, 8), steps=3)
    page.evaluate("() => document.querySelector('.ddg-stage').dispatchEvent(new PointerEvent('pointercancel'))")
    page.mouse.move(*place(page, 7, 8))
    page.mouse.up()
    assert record(page) == {}
    assert page.locator(".ddg-brush").count() == 0
