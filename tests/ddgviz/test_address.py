"""A picture that travels in an address: small, the same in a fresh browser, and harmless when it is damaged."""

import json
import random
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kept
import pytest
import simulate
from conftest import Opener
from test_page import PAINTED, RECORD_MARKS, shown

import ddgviz
from ddgviz.address import contents, pack_text


def full() -> dict[str, Any]:
    """Forty positions in 24 passes that compute every one, with numbers that do not repeat."""
    numbers = random.Random(7)
    needs = {i: [i - 1] if i % 5 in (0, 2, 4) else [max(0, i - 3)] for i in range(1, 40)}
    trace = simulate.jacobi([f"▁wort{i}" for i in range(39)], needs, width=40, block=True)
    for row in trace["iterations"]:
        row["probabilities"] = [numbers.random() for _ in row["slots"]]
        row["margins"] = [5 * numbers.random() for _ in row["slots"]]
    assert (len(trace["iterations"]), len(trace["iterations"][0]["slots"])) == (24, 40)
    return trace


def test_forty_positions_in_24_passes_take_at_most_8_kb() -> None:
    found = ddgviz.link(full(), "https://example.org/picture.html#pass=3")
    assert found.startswith("https://example.org/picture.html#trace=") and len(found) <= 8192


def test_what_is_packed_is_what_is_drawn(any_trace: dict[str, Any]) -> None:
    packed = ddgviz.link(any_trace, "").removeprefix("#trace=")
    text = zlib.decompress(urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), -15)
    (picture,) = json.loads(text)["pictures"]
    (before,) = contents(any_trace)["pictures"]
    assert picture["words"] == json.loads(json.dumps(before["words"]))
    for one, two in zip(picture["trace"]["iterations"], any_trace["iterations"], strict=True):
        assert all(one[key] == two[key] for key in ("call", "slots", "tokens", "drafts", "origins", "status", "lanes"))
        pairs = zip(one["probabilities"] or [], two["probabilities"] or [], strict=True)
        assert all(a == b or abs(a - b) <= 0.005 for a, b in pairs)


def test_what_is_too_long_is_shared_as_a_file() -> None:
    numbers = random.Random(1)
    trace = simulate.jacobi([f"▁{numbers.random()}" for _ in range(600)], {}, width=100, block=True)
    with pytest.raises(ValueError, match=r"at most 32,000 characters, got '\d+,\d+'\. Save the page and share"):
        ddgviz.link(trace, "page.html")
    assert '"link":""' in ddgviz.page.html(trace)


@pytest.mark.browser
def test_a_fresh_browser_draws_the_same_picture(opened: Opener) -> None:
    trace = full()
    seen = []
    for own, view in ((trace, ""), (simulate.garden(), ddgviz.link(trace, ""))):
        page = opened(own, view, reduced_motion="reduce")
        assert shown(page) == 24
        texts = [
            page.locator(place).all_inner_texts()
            for place in (".ddg-title", ".ddg-headline", ".ddg-legend", ".ddg-count")
        ]
        seen.append([texts, page.locator(".ddg-token").all_text_contents(), page.evaluate(PAINTED)])
    assert seen[0][:2] == seen[1][:2]
    assert abs(seen[0][2] - seen[1][2]) < 0.001 * seen[0][2], "but for shades of probabilities rounded"


@pytest.mark.browser
def test_the_link_that_is_copied_brings_picture_and_view(opened: Opener) -> None:
    page = opened(simulate.garden(), "#pass=2", reduced_motion="reduce")
    assert shown(page) == 2
    copied = "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"
    page.evaluate(f"() => {{ {copied} }}")
    page.get_by_text("Copy link").click()
    page.get_by_text("Copied").wait_for()
    link = page.evaluate("() => window.copied")
    assert "pass=2" in link and f"trace={pack_text(contents(simulate.garden()))}" in link
    page.get_by_text("Copy line to embed").click()
    page.wait_for_function("() => window.copied.startsWith('<iframe src=')")
    other = opened(simulate.station(), "#" + link.partition("#")[2], reduced_motion="reduce")
    assert shown(other) == 2 and other.locator(".ddg-title").inner_text().startswith("The children")


@pytest.mark.browser
@pytest.mark.parametrize("packed", ["AAAA", "%00", "S8vPV0hKLAIA", pack_text(contents(simulate.garden()))[:400]])
def test_a_damaged_link_says_so(opened: Opener, packed: str) -> None:
    page = opened(simulate.garden(), f"#trace={packed}", reduced_motion="reduce")
    assert shown(page) == 6
    assert page.locator(".ddg-notice").inner_text().startswith("The address holds no picture that can be drawn")
    caption = "getComputedStyle(document.querySelector('.ddg-caption')).display"
    assert page.evaluate(f"() => {caption}") != "none"
    undrawn = "document.querySelector('.ddgviz').dataset.passes = 0"
    assert page.evaluate(f"() => {{ {undrawn}; return {caption}; }}") == "none", "nothing drawn, nothing waited for"


def altered(**changes: Any) -> dict[str, Any]:
    """What a page draws, the one trace's fields changed."""
    data = contents(simulate.garden())
    (picture,) = data["pictures"]
    return data | {"pictures": [picture | {"trace": picture["trace"] | changes}]}


def worded(**changes: Any) -> dict[str, Any]:
    """What a page draws, the one picture's words changed."""
    data = contents(simulate.garden())
    (picture,) = data["pictures"]
    return data | {"pictures": [picture | {"words": picture["words"] | changes}]}


ROWS = contents(simulate.garden())["pictures"][0]["trace"]["iterations"]


def far() -> dict[str, Any]:
    return altered(iterations=[ROWS[0] | {"slots": [30_000_000 + slot for slot in ROWS[0]["slots"]]}])


@pytest.mark.browser
@pytest.mark.parametrize(
    "data",
    [
        far(),
        altered(hypotheses=[{}]),
        altered(iterations=[{"slots": [0]}]),
        {"pictures": [], "verdict": ""},
        worded(passes=None),
        altered(iterations=[row | {"probabilities": "x"} for row in ROWS]),
        altered(
            iterations=[
                row | {"lanes": [1]} for row in contents(simulate.garden())["pictures"][0]["trace"]["iterations"]
            ]
        ),
    ],
    ids=[
        *("a slot far away", "an output of nothing", "a pass without tokens", "no picture"),
        *("no words of passes", "no probabilities", "no lanes"),
    ],
)
def test_a_link_with_something_else_says_so(opened: Opener, data: dict[str, Any]) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = urlsafe_b64encode(packer.compress(json.dumps(data).encode()) + packer.flush()).decode().rstrip("=")
    page = opened(simulate.garden(), f"#trace={packed}", reduced_motion="reduce")
    notice = page.locator(".ddg-notice").inner_text()
    assert shown(page) == 6 and notice.startswith("The address holds no picture that can be drawn: ")


@pytest.mark.browser
def test_the_link_to_an_empty_translation_is_drawn(opened: Opener) -> None:
    page = opened(
        simulate.garden(), f"#trace={pack_text(altered(hypotheses=[], iterations=[]))}", reduced_motion="reduce"
    )
    page.wait_for_function("() => document.querySelector('.ddg-title')?.textContent")
    assert page.locator(".ddg-notice").inner_text() == ""


@pytest.mark.browser
def test_the_link_to_a_run_that_was_cut_off_is_drawn(opened: Opener) -> None:
    page = opened(simulate.garden(), f"#trace={pack_text(altered(hypotheses=[]))}", reduced_motion="reduce")
    page.wait_for_function("() => document.querySelector('.ddg-title')?.textContent")
    assert page.locator(".ddg-notice").inner_text() == "" and shown(page) == 6


@pytest.mark.browser
def test_a_view_of_no_place_is_drawn(opened: Opener) -> None:
    assert shown(opened(simulate.garden(), "#pass=3&row=-5&column=0", reduced_motion="reduce")) == 3


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["station", "beam", "clustered"])
def test_on_a_phone_nothing_is_wider_than_the_screen(opened: Opener, name: str, scheme: str) -> None:
    page = opened(
        kept.either(name), viewport={"width": 390, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    shown(page)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert page.locator(".ddg-title").bounding_box()["height"] <= 50, "two lines"
    assert page.locator(".ddg-player").bounding_box()["height"] <= 40, "one row of controls"
    assert page.evaluate("() => document.querySelector('.ddg-scroll').scrollLeft") == 0, "the first words first"


@pytest.mark.browser
def test_two_that_are_compared_are_both_in_view(browser: Any, tmp_path: Path) -> None:
    pair = SimpleNamespace(a=simulate.station(), b=simulate.long_block())
    page = browser.new_page(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
    page.goto(ddgviz.save(pair, tmp_path / "pair.html").as_uri())
    page.wait_for_function("() => document.querySelectorAll('.ddg-scroll:has(.ddg-token)').length === 2")
    boxes = [place.bounding_box() for place in page.locator(".ddg-stage").all()]
    assert all(box["y"] >= 0 and box["y"] + box["height"] <= 900 for box in boxes)
    assert page.locator(".ddg-player:visible").count() == 1
    assert page.locator(".ddg-judgement b").all_inner_texts() == ["A", "B"], "as the verdict names them"
    page.locator(".ddgviz").first.focus()
    page.keyboard.press("Home")
    page.wait_for_function("() => [...document.querySelectorAll('.ddgviz')].every((root) => root.dataset.pass === '0')")
    assert page.locator(".ddg-scroll").evaluate_all("(all) => all.map((each) => each.scrollLeft)") == [0, 0]
    page.close()


@pytest.mark.browser
def test_low_rows_of_hypotheses_have_their_tokens_without_scores(browser: Any, tmp_path: Path) -> None:
    beam = simulate.beam()
    first = beam["iterations"][0]["lanes"]
    first += [first[-1] | {"tokens": [token]} for token in (4, 6)]
    page = browser.new_page(viewport={"width": 1000, "height": 800}, reduced_motion="reduce")
    page.add_init_script(RECORD_MARKS)
    page.goto(ddgviz.save(SimpleNamespace(a=simulate.greedy(), b=beam), tmp_path / "pair.html").as_uri())
    page.wait_for_selector(".ddgviz >> nth=1")
    page.wait_for_function("() => document.querySelectorAll('canvas')[1].texts.includes('alt')")
    assert not [text for text in page.evaluate("() => document.querySelectorAll('canvas')[1].texts") if "−" in text]
    page.locator(".ddgviz").nth(1).focus()
    page.keyboard.press("ArrowRight")
    assert "score −0.31" in page.locator(".ddg-tip:visible").inner_text()
    page.close()


@pytest.mark.browser
def test_the_line_ends_where_its_buttons_begin(browser: Any, tmp_path: Path) -> None:
    """Buttons may appear after the first drawing, as that of the speed does where two are compared."""
    page = browser.new_page(viewport={"width": 1000, "height": 700}, reduced_motion="reduce")
    page.goto(ddgviz.save(simulate.station(), tmp_path / "one.html").as_uri())
    page.wait_for_selector(".ddg-knob")
    page.locator(".ddgviz").focus()
    page.keyboard.press("End")
    page.evaluate("() => { document.querySelector('.ddg-speed').style.minWidth = '150px'; }")
    page.wait_for_function("""() => {
      const line = document.querySelector(".ddg-line");
      return line.querySelector(".ddg-knob").getBoundingClientRect().right <= line.getBoundingClientRect().right;
    }""")
    page.close()
