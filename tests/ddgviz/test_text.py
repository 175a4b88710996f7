"""Tokens on the page: exactly what they are, or visibly escaped."""

import pytest
from hostile import TOKENS, shown
from hypothesis import given
from hypothesis import strategies as st

from ddgviz.text import Label, fit, join, label, visible, width


@pytest.mark.parametrize("token", TOKENS)
def test_hostile_tokens_are_shown(token: str) -> None:
    assert label("▁" + token).text == shown(token)


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        ("▁Haus", Label("Haus", False)),
        ("ung", Label("ung", True)),
        (".", Label(".", False)),
        ("▁", Label("▁", False)),
        ("▁▁x", Label("▁x", False)),
        ("", Label("‹empty›", False)),
        ("می\u200cشود", Label("می\u200cشود", True)),
        ("a\u200cb", Label("a⟨U+200C⟩b", True)),
        ("\u200d", Label("⟨U+200D⟩", False)),
    ],
)
def test_labels(piece: str, expected: Label) -> None:
    assert label(piece) == expected


def test_the_end_is_named() -> None:
    assert label("</s>", is_end=True) == Label("‹end›", False)


def test_a_hyphen_says_itself_that_it_continues_a_word() -> None:
    labels = [label(piece) for piece in ("ft", "-vous", "'s", "▁Die", "<unk>")]
    assert [item.ticked for item in labels] == [True, False, False, False, False]
    assert labels[1].continues and join([label("▁Pouvez"), labels[1]]) == "Pouvez-vous"


@given(st.text())
def test_nothing_hidden_remains(text: str) -> None:
    assert not any(character in visible(text) for character in "\u202e\u2066\u200b\ufeff\x00\n\u2028")


def test_a_filter_that_forgets_directions_is_noticed() -> None:
    forgetful = visible("a\u202eb").replace("⟨U+202E⟩", "\u202e")
    assert any(character in forgetful for character in "\u202e")


@given(st.text(), st.floats(20, 200))
def test_fitted_text_fits_or_is_an_ellipsis(text: str, room: float) -> None:
    fitted = fit(text, room, 12)
    assert fitted == text or fitted.endswith("…")
    assert width(fitted, 12) <= max(room, width("…", 12))


def test_joined_text_reads_like_text() -> None:
    assert join([label(piece) for piece in ["▁Die", "▁Katze", "▁schlä", "ft", "."]]) == "Die Katze schläft."
