"""The drawn picture: well-formed, deterministic, and showing every token."""

import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import kept
import pytest
import simulate
from hostile import TOKENS, shown

from ddgviz import layout
from ddgviz.latex import tikz
from ddgviz.svg import svg
from ddgviz.trace import read

GOLDEN = Path(__file__).parent / "fixtures"
NAMESPACE = "{http://www.w3.org/2000/svg}"


def texts(drawing: str) -> list[str]:
    """All strings a reader can find: what is written, and titles of what is cut."""
    root = ET.fromstring(drawing)
    written = [node for node in root.iter() if node.tag in (f"{NAMESPACE}text", f"{NAMESPACE}title")]
    return [" ".join(filter(None, [node.text, *(child.tail for child in node)])) for node in written]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_golden(small: dict[str, Any], theme: str) -> None:
    assert svg(small, theme=theme) == (GOLDEN / f"small-{theme}.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["beam", "both_ends", "masks", "clustered", "drafted", "measured"])
def test_golden_views(name: str) -> None:
    assert svg(kept.either(name)) == (GOLDEN / f"{name}-light.svg").read_text(encoding="utf-8")


def test_same_trace_same_bytes(any_trace: dict[str, Any]) -> None:
    assert svg(any_trace) == svg(any_trace)
    ET.fromstring(svg(any_trace))


@pytest.mark.parametrize("token", TOKENS)
def test_hostile_tokens_are_drawn_as_text(token: str) -> None:
    drawing = svg(simulate.jacobi(["▁" + token, "▁x"], {}, width=2, source=token, decoder=token))
    assert shown(token) in texts(drawing)
    assert {node.tag.removeprefix(NAMESPACE) for node in ET.fromstring(drawing).iter()} <= {
        "svg", "rect", "text", "title", "path", "circle", "g",
    }  # fmt: skip


def test_colours_are_plain(any_trace: dict[str, Any]) -> None:
    for theme in ("light", "dark"):
        colours = re.findall(r'(?:fill|stroke)="([^"]*)"', svg(any_trace, theme=theme))
        assert all(re.fullmatch(r"#[0-9a-f]{6}|none", colour) for colour in colours)


def test_the_whole_story_is_written(small: dict[str, Any]) -> None:
    said = texts(svg(small))
    for line in ("4 passes for 6 tokens", "greedy needs 6 · identical output", "2 at once", "+2", ".97", "Pass 3"):
        assert line in said
    assert said.count("Katze") == 5
    assert "not settled" in said and "draft" not in said, "a dashed cell is the model's answer, no draft"


def test_a_beam_over_both_ends_is_drawn_as_it_grew() -> None:
    said = texts(svg(kept.trace("both_ends_beam")))
    for line in (
        "double-token, size 4",
        "6 passes for 11 tokens",
        "+11",
        "settled all 11 tokens: the search has ended.",
    ):
        assert any(line in text for text in said)
    assert not any(text.startswith("lane") for text in said), "the trace has none"
    passes = {"Die": 6, ".": 6, "Kinder": 5, "Haus": 5, "im": 3, "dem": 3, "Garten": 2, "hinter": 2, "‹end›": 1}
    assert {token: said.count(token) - 1 for token in passes} == passes, "once more in the graph"


def test_upto_draws_an_earlier_state(small: dict[str, Any]) -> None:
    said = texts(svg(small, upto=2))
    assert "pass 2" in said
    assert "pass 3" not in said
    assert "settled “Katze” and changed 1 draft." in said
    assert "Before the first pass." in texts(svg(small, upto=0))


def test_window_draws_a_part(garden: dict[str, Any]) -> None:
    said = texts(svg(garden, window=((1, 3), (0, 4))))
    assert "pass 1" not in said
    assert "Schule" not in said
    assert any("passes 2–3 of 6, positions 1–4 of 10" in line for line in said)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"upto": 9}, r"upto is a number of passes from 0 to 4, got 9\. Leave it out"),
        ({"theme": "sepia"}, r"ddgviz draws in light, dark, print, .*, got 'sepia'\. Use"),
        ({"window": 3}, r"window is a range of passes and a range of positions, got 3\. Choose a part"),
        ({"window": (0, 4)}, r"window is a range of passes .*, got \(0, 4\)\. Choose a part"),
        ({"window": ((0, "4"), (0, 2))}, r"window is a range of passes .*, got .*\. Choose a part"),
        ({"window": ((9, 12), (0, 2))}, r"window must lie within 4 passes .*, got .*\. Choose a part"),
    ],
)
def test_arguments_out_of_range(small: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        svg(small, **options)


def test_a_part_of_tokens_settled_at_once_counts_them_all(garden: dict[str, Any]) -> None:
    whole, part = svg(garden), svg(garden, window=((0, 6), (0, 5)))
    assert whole.count("3 at once") == 2 and part.count("3 at once") == 1 and "2 at once" not in part
    assert "{3 at once}" in tikz(garden, window=((0, 6), (0, 5)))


def test_a_part_of_a_beam_has_its_passes_alone() -> None:
    drawn = svg(simulate.beam(), window=((1, 2), (0, 6)))
    assert len(texts(drawn)) < len(texts(svg(simulate.beam(), window=((0, 2), (0, 6)))))


def test_huge_pictures_ask_for_a_window() -> None:
    trace = simulate.jacobi(["▁a", "▁b"] * 80, {slot: [slot - 1] for slot in range(1, 160)}, width=1)
    with pytest.raises(ValueError, match=r"at most 20,000 cells, got '161 passes of 161 positions'\. Choose a part"):
        svg(trace)
    ET.fromstring(svg(trace, window=((0, 20), (0, 20))))


def overlaps(places: list[layout.Column]) -> bool:
    """Whether neighbouring columns touch."""
    return any(left.right > right.x for left, right in itertools.pairwise(places))


def test_columns_stand_apart_and_hold_their_tokens(any_trace: dict[str, Any]) -> None:
    model = read(any_trace)
    places = list(layout.columns(model, range(model.columns), 86).values())
    assert not overlaps(places)
    assert min(place.width for place in places) >= layout.NARROWEST
    assert overlaps([layout.Column(0, 50), layout.Column(40, 50)])


def test_no_tokens_no_columns(small: dict[str, Any]) -> None:
    empty = small | {"iterations": [], "hypotheses": [], "greedy": None}
    assert {"no passes", "The run made no pass."} <= set(texts(svg(empty)))
