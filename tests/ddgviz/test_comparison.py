"""Two pictures: what is the same, what is not, and the sentence that says so."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import simulate

import ddgviz
from ddgviz.address import MIME, unpack_text
from ddgviz.verdict import pace


def changed(trace: dict[str, Any], tokens: list[int], **pieces: str) -> dict[str, Any]:
    """The trace with another output, as if by another decoder."""
    (best,) = trace["hypotheses"]
    texts = trace["pieces"] | {name.lstrip("t"): piece for name, piece in pieces.items()}
    slots = list(range(len(tokens)))
    row = simulate.row_of_pass(0, slots, [(0, "pad")] * len(slots), tokens, len(slots), known=False) | {"seconds": 0}
    return trace | {"hypotheses": [best | {"tokens": tokens}], "pieces": texts, "iterations": [row]}


@pytest.fixture
def tokens(garden: dict[str, Any]) -> list[int]:
    return list(garden["hypotheses"][0]["tokens"])


def test_the_same_output(garden: dict[str, Any]) -> None:
    other = simulate.jacobi(
        ["▁Die", "▁Kinder", "▁spielen", "▁im", "▁Garten", "▁hinter", "▁der", "▁Schule", "."], {}, width=1
    )
    assert ddgviz.compare(garden, other).verdict.endswith("B in 10. They translate different sentences.")
    comparison = ddgviz.compare(garden, other | {"source": garden["source"]})
    assert comparison.verdict == "Same output: A in 6 passes, B in 10."
    assert comparison.agreement == 1
    assert comparison.a.match == comparison.b.match == list(range(10))
    assert comparison.a.group == comparison.b.group and comparison.a.group.startswith("ddgviz-")
    assert ddgviz.compare(garden, other).a.group != comparison.a.group


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        (0.0063, 0.0127, "In this one run A took 6.3 ms and B 13 ms; a first run takes longer."),
        (2.0, 1.0, "In this one run A took 2,000 ms and B 1,000 ms; a first run takes longer."),
        (1.9, 1.0, ""),
        (None, 1.0, ""),
        (1.0, 0.0, ""),
    ],
)
def test_times_are_told(one: float | None, two: float | None, said: str) -> None:
    assert pace(one, two) == said


def test_runs_of_equal_settings_are_not_said_to_differ_in_time(garden: dict[str, Any]) -> None:
    warming = garden | {"iterations": [row | {"seconds": 3 * row["seconds"]} for row in garden["iterations"]]}
    assert ddgviz.compare(warming, garden).verdict == "Same output: A in 6 passes, B in 6."
    other = garden | {"settings": garden["settings"] | {"projection": "quantised"}}
    assert "A took 72 ms and B 24 ms" in ddgviz.compare(warming, other).verdict


def test_a_comparison_is_saved_as_a_page_and_as_a_picture(garden: dict[str, Any], tmp_path: Path) -> None:
    comparison = ddgviz.compare(garden, simulate.other_words(garden))
    page = ddgviz.save(comparison, tmp_path / "pair.html").read_text(encoding="utf-8")
    assert page.count('"format":"fastdecode-trace"') == 2 and "Outputs differ at 1 of 10 positions" in page
    drawn = ElementTree.fromstring(ddgviz.save(comparison, tmp_path / "pair.svg").read_text(encoding="utf-8"))
    inner = [part for part in drawn if part.tag.endswith("}svg")]
    assert len(inner) == 2 and float(inner[1].get("y")) >= float(inner[0].get("y")) + float(inner[0].get("height"))
    assert [part.text for part in drawn if part.text in ("A", "B")] == ["A", "B"], "as the verdict names them"
    said = "".join(drawn.itertext())
    assert "Outputs differ at 1 of 10 positions" in said and "Garten" in said and "Hof" in said
    for suffix in (".json", ".tex", ".graphml", ".gif"):
        with pytest.raises(ValueError, match=r"One trace is drawn, got 'a comparison of two'\. Pass its a or its b"):
            ddgviz.save(comparison, tmp_path / f"pair{suffix}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pair.html", "pair.svg"]


def test_one_picture_alone_is_not_drawn_as_half_of_two(garden: dict[str, Any]) -> None:
    comparison = ddgviz.compare(garden, garden)
    comparison.reset(two=False)
    assert comparison.a.group == "" and "ddg-upper" not in comparison.a._dom_classes
    assert comparison._repr_mimebundle_()["text/html"].count("<img ") == 1, "nor is the hidden one saved"
    comparison.reset(two=True)
    assert comparison.a.group == comparison.b.group != ""
    assert ("ddg-upper" in comparison.a._dom_classes) and ("ddg-lower" in comparison.b._dom_classes)


def test_one_pass(garden: dict[str, Any], tokens: list[int]) -> None:
    assert ddgviz.compare(changed(garden, tokens), garden).verdict == "Same output: A in 1 pass, B in 6."


def test_another_word(garden: dict[str, Any], tokens: list[int]) -> None:
    other = changed(garden, [*tokens[:4], 90, *tokens[5:]], t90="▁Hof")
    comparison = ddgviz.compare(garden, other)
    assert comparison.verdict == "Outputs differ at 1 of 10 positions, first at position 5: “Garten” in A, “Hof” in B."
    assert comparison.agreement == 0.9
    assert comparison.a.match == comparison.b.match == [0, 1, 2, 3, -1, 5, 6, 7, 8, 9]


def test_a_word_too_many(garden: dict[str, Any], tokens: list[int]) -> None:
    other = changed(garden, [*tokens[:2], 90, 91, *tokens[2:]], t90="▁lauf", t91="en")
    comparison = ddgviz.compare(garden, other)
    assert (
        comparison.verdict == "Outputs differ at 2 of 12 positions, first at position 3: nothing in A, “laufen” in B."
    )
    assert comparison.a.match == [0, 1, *range(4, 12)]
    assert comparison.b.match == [0, 1, -1, -1, *range(2, 10)]


def test_nothing_in_common(garden: dict[str, Any]) -> None:
    other = changed(garden, [90, 91], t90="▁<b>\u202e", t91="▁" + "lang" * 20)
    comparison = ddgviz.compare(garden, other)
    assert comparison.agreement == 0 and comparison.a.match == [-1] * 10
    assert "“<b>⟨U+202E⟩ langlanglanglanglan…” in B" in comparison.verdict


def test_models_with_other_ids_are_compared_by_what_is_written(garden: dict[str, Any], tokens: list[int]) -> None:
    shifted = garden | {
        "settings": garden["settings"] | {"model": "another"},
        "pieces": {str(int(token) + 50): piece for token, piece in garden["pieces"].items()},
        "hypotheses": [garden["hypotheses"][0] | {"tokens": [token + 50 for token in tokens]}],
        "end": [51],
        "iterations": [],
    }
    assert ddgviz.compare(garden, shifted).agreement == 1


def test_a_stopped_run_is_not_compared(garden: dict[str, Any]) -> None:
    cut = garden | {"hypotheses": [garden["hypotheses"][0] | {"stop": "interrupted"}]}
    comparison = ddgviz.compare(garden, cut)
    assert comparison.verdict == "B was stopped, so the outputs are not compared."
    assert comparison.agreement is None and comparison.a.match == []


def test_it_is_shown_where_no_widget_can_be(garden: dict[str, Any]) -> None:
    comparison = ddgviz.compare(garden, garden)
    data = comparison._repr_mimebundle_()
    assert data["text/html"].count("<img ") == 2
    assert len(unpack_text(data[MIME]["packed"])["pictures"]) == 2
    assert data["text/plain"] == repr(comparison)
    assert repr(comparison).endswith("'window:width=5'), agreement=1.0)")


def test_runs_of_unnamed_models_are_compared_by_what_is_written(garden: dict[str, Any]) -> None:
    unnamed = garden | {"settings": {key: value for key, value in garden["settings"].items() if key != "model"}}
    other = unnamed | {"pieces": {key: text + "x" for key, text in garden["pieces"].items()}}
    assert ddgviz.compare(unnamed, other).agreement < 0.5


@pytest.mark.parametrize("hypotheses", [[], [{"tokens": [], "score": None, "stop": "end"}]])
def test_two_empty_outputs_are_the_same(garden: dict[str, Any], hypotheses: list[Any]) -> None:
    empty = garden | {"iterations": [], "hypotheses": hypotheses, "edges": [], "greedy": None}
    comparison = ddgviz.compare(empty, empty)
    assert comparison.verdict.startswith("Same output: A in 0 passes, B in 0.") and comparison.agreement == 1
    assert ddgviz.compare(empty, garden).agreement == 0


def test_two_stopped_runs(garden: dict[str, Any]) -> None:
    stopped = garden | {"hypotheses": [garden["hypotheses"][0] | {"stop": "interrupted"}]}
    assert ddgviz.compare(stopped, stopped).verdict == "Both were stopped, so the outputs are not compared."
