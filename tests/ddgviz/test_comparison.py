"""Two pictures: what is the same, what is not, and the sentence that says so."""

from typing import Any

import pytest
import simulate

import ddgviz


def changed(trace: dict[str, Any], tokens: list[int], **pieces: str) -> dict[str, Any]:
    """The trace with another output, as if by another decoder."""
    (best,) = trace["hypotheses"]
    texts = trace["pieces"] | {name.lstrip("t"): piece for name, piece in pieces.items()}
    return trace | {"hypotheses": [best | {"tokens": tokens}], "pieces": texts, "iterations": trace["iterations"][:1]}


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
    assert data["text/plain"] == repr(comparison)
    assert repr(comparison).endswith("'window:width=5'), agreement=1.0)")


def test_runs_of_unnamed_models_are_compared_by_what_is_written(garden: dict[str, Any]) -> None:
    unnamed = garden | {"settings": {key: value for key, value in garden["settings"].items() if key != "model"}}
    other = unnamed | {"pieces": {key: text + "x" for key, text in garden["pieces"].items()}}
    assert ddgviz.compare(unnamed, other).agreement < 0.5


def test_two_stopped_runs(garden: dict[str, Any]) -> None:
    stopped = garden | {"hypotheses": [garden["hypotheses"][0] | {"stop": "interrupted"}]}
    assert ddgviz.compare(stopped, stopped).verdict == "Both were stopped, so the outputs are not compared."
