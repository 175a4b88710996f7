"""The source view: which word of the source a draft came from, in pictures that stand still and in those that move."""

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import kept
import pytest
import simulate
from hostile import TOKENS

import ddgviz
from ddgviz.packing import pack
from ddgviz.source import source_words
from ddgviz.svg import svg
from ddgviz.trace import read

Opener = Callable[..., Any]


def sourced() -> dict[str, Any]:
    """The garden, each draft from the source word at its own position."""
    trace = simulate.garden()
    words = len(trace["source"]["pieces"])
    for row in trace["iterations"]:
        row["origins"] = [origin and "lexicon" for origin in row["origins"]]
        row["sources"] = [
            slot if slot < words and origin else -1 for slot, origin in zip(row["slots"], row["origins"], strict=True)
        ]
    return trace


@pytest.mark.parametrize(
    ("text", "pieces", "words"),
    [
        ("How are you?", ["▁How", "▁are", "▁you", "?", "</s>"], ["How", "are", "you", "?", None]),
        ("It is unbearable.", [">>de<<", "▁It", "▁is", "▁un", "bear", "able", "."], [None, "It", "is", *["unbearable"] * 3, "."]),
        ("It’s “late”", ["▁It", "'", "s", '▁"', "late", '"'], ["It", None, "s", None, "late", None]),
        ("DAS HAUS", ["▁das", "▁haus"], ["DAS", "HAUS"]),
        ("東京に行く", ["▁東京", "に", "行く"], ["東京", "に", "行く"]),
        ("كيف حالك", ["▁كيف", "▁حال", "ك"], ["كيف", "حالك", "حالك"]),
        ("a \u202eb", ["▁a", "▁\u202eb"], ["a", "⟨U+202E⟩b"]),
        ("the the", ["▁the", "▁the"], ["the", "the"]),
        ("one", [], []),
        ("", ["▁one"], [None]),
        ("one", None, []),
        ("one", [7, "▁one"], [None, "one"]),
        ("a very long way to z", ["▁z"], [None]),
    ],
)  # fmt: skip
def test_pieces_find_their_words(text: str, pieces: Any, words: list[str | None]) -> None:
    shown = ddgviz.text.visible(text)
    parts, of = source_words(shown, pieces)
    assert "".join(parts) == shown
    assert [None if index < 0 else parts[index] for index in of] == words
    assert len({index for index in of if index >= 0}) == len(
        [i for i, w in enumerate(of) if w >= 0 and w not in of[:i]]
    )


def test_a_drawing_says_it_where_the_pointer_rests() -> None:
    drawn = svg(sourced())
    told = re.findall(r"<title>draft before: (.*?)</title>", drawn)
    assert "im, by the lexicon, a translation of “playing”" in told
    assert drawn.count("<g><title>draft") == len(told) > 3
    assert "draft before" not in svg(simulate.garden())


def test_texts_of_the_source_stay_text() -> None:
    trace = sourced()
    trace["source"] = {"text": " ".join(TOKENS), "language": "en", "pieces": ["▁" + token for token in TOKENS]}
    drawn = svg(trace)
    assert "<title>draft before" in drawn and not re.search("<(img|script|s|a)[ >]", drawn)


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ([99] * 5, "10 pieces"),
        ([0], "one entry for each"),
        (["0"] * 5, "list of numbers"),
        ([0.5] * 5, "places in the source"),
        ([True] * 5, "places in the source"),
    ],
)
def test_places_that_are_none_are_refused(sources: list[Any], said: str) -> None:
    trace = sourced()
    trace["iterations"][0]["sources"] = sources
    with pytest.raises(ValueError, match=said):
        read(trace)


def test_places_survive_files_links_and_widgets() -> None:
    trace = sourced()
    assert [row["sources"] for row in read(json.dumps(trace)).to_dict()["iterations"]] == [
        r["sources"] for r in trace["iterations"]
    ]
    record, columns = pack(trace["iterations"][1])
    assert record["has"].endswith("s") and len(columns) > len(pack(simulate.garden()["iterations"][1])[1])
    picture = ddgviz.Picture()
    for event in simulate.events(trace)[:2]:
        picture.append(event)
    for event in simulate.events(trace)[2:]:
        picture.append(event)
    assert picture.words["source"]["said"] == {"lexicon": "by the lexicon, a translation of"}
    assert "source" not in ddgviz.show(simulate.garden()).words


@pytest.mark.browser
@pytest.mark.parametrize("width", [1200, 390])
def test_the_word_lights_up_under_pointer_and_keys(opened: Opener, width: int) -> None:
    page = opened(sourced(), viewport={"width": width, "height": 900}, reduced_motion="reduce")
    lit = page.locator(".ddg-source")
    assert lit.count() == 0 and page.locator(".ddg-title").inner_text() == sourced()["source"]["text"]
    page.locator(".ddgviz").focus()
    for key in ("Home", "]", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_selector(".ddg-source")
    assert lit.all_inner_texts() == ["children"]
    assert "a translation of “children”" in page.locator("[aria-live]").first.text_content()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.ddg-source')?.textContent === 'are'")
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('.ddg-source')")
    stage = page.locator(".ddg-stage").bounding_box()
    top = page.locator(".ddg-row").first.bounding_box()
    page.mouse.move(stage["x"] + (150 if width > 620 else 90), top["y"] + 6)
    page.wait_for_selector(".ddg-source")
    assert f"“{lit.inner_text()}”" in page.locator(".ddg-tip").inner_text()
    page.mouse.move(2, 2)
    page.wait_for_function("() => !document.querySelector('.ddg-source')")


@pytest.mark.browser
def test_a_recorded_run_tells_its_words_and_hostile_ones_are_text(opened: Opener) -> None:
    page = opened(kept.trace("clustered"), reduced_motion="reduce")
    page.locator(".ddgviz").focus()
    for key in ("Home", "]", "]", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_selector(".ddg-source")
    assert page.locator(".ddg-source").inner_text() == "grandmother" and page.locator(".ddg-astray").count() == 0
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_selector(".ddg-astray")
    assert page.locator(".ddg-astray").inner_text() == "to", "“beigebracht” replaced the draft “,”"
    trace = copy.deepcopy(sourced())
    trace["source"] = {"text": " ".join(TOKENS), "language": "en", "pieces": ["▁" + token for token in TOKENS]}
    attacked = opened(trace, reduced_motion="reduce")
    attacked.locator(".ddgviz").focus()
    for _ in range(8):
        attacked.keyboard.press("ArrowRight")
    attacked.wait_for_selector(".ddg-source")
    assert attacked.evaluate("() => window.owned") is None
    assert attacked.locator(".ddgviz img, .ddgviz script, .ddgviz a, .ddgviz s").count() == 0
