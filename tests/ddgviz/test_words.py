"""The picture's words."""

from typing import Any

import kept
import pytest
import simulate

from ddgviz import svg, words
from ddgviz.trace import TraceModel, read


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("greedy", "greedy"),
        ("gauss_seidel:block=3", "Gauss-Seidel, blocks of 3"),
        ("beam:size=4", "beam search, 4 hypotheses"),
        ("window:width=5,recycle=no", "sliding window, 5 wide, recycle no"),
        ("mine:block=2", "mine, block 2"),
        ("jacobi", "Jacobi"),
    ],
)
def test_decoders_are_said_plainly(typed: str, said: str) -> None:
    assert words.decoder(typed) == said


def test_languages_fall_back_to_their_code() -> None:
    assert [words.language(code) for code in ("de", "pt-BR", "tlh", "")] == ["German", "Portuguese", "tlh", "?"]


def test_subtitle_and_headline(small: dict[str, Any]) -> None:
    model = read(small)
    assert words.subtitle(model) == "English → German · sliding window, 3 wide · float32"
    assert words.headline(model) == "4 passes for 6 tokens"
    assert words.comparison(model) == "greedy needs 6 · identical output"
    assert words.beyond(model) == "In the whole run, 1 position beyond the end was computed too."


def test_languages_that_nobody_knows_are_left_out(small: dict[str, Any]) -> None:
    small["source"].pop("language"), small["target"].update(language=None)
    assert words.subtitle(read(small)) == "sliding window, 3 wide · float32"


def test_an_output_that_ran_to_the_limit_says_so(small: dict[str, Any]) -> None:
    small["hypotheses"][0]["stop"] = "length"
    assert words.headline(read(small)) == "4 passes for 6 tokens, cut at the limit"


def test_what_the_model_could_not_read_is_said_beside_identical_output(small: dict[str, Any]) -> None:
    small["source"]["pieces"][1:3] = ["<unk>", "<unk>"]
    assert words.comparison(read(small)).endswith("identical output · 2 pieces of the source unknown to the model")
    small["greedy"], small["source"]["pieces"][2] = None, "▁is"
    assert words.comparison(read(small)) == "1 piece of the source unknown to the model"


def test_a_differing_output_is_said(small: dict[str, Any]) -> None:
    small["greedy"]["identical"] = False
    assert words.comparison(read(small)) == "greedy needs 6 · output differs from greedy's"


def test_without_greedy_nothing_is_claimed(small: dict[str, Any]) -> None:
    small["greedy"] = None
    assert words.comparison(read(small)) == ""


def test_other_projections_are_named(small: dict[str, Any]) -> None:
    small["settings"]["projection"] = "clustered:top=2"
    assert "clustered projection, top 2" in words.subtitle(read(small))


def test_captions(small: dict[str, Any]) -> None:
    model = read(small)
    assert [words.caption(model, row) for row in range(model.rows)] == [
        "settled “Die”.",
        "settled “Katze” and changed 1 draft.",
        "settled “schläft” in one pass: “ft” did not have to wait for “schlä”.",
        "settled “.” and the end in one pass: the end did not have to wait for “.”.",
    ]
    assert words.highlight(model, range(4)) == 2


def test_beam_captions() -> None:
    model = read(simulate.beam())
    assert words.caption(model, 0) == "kept 3 hypotheses open."
    assert words.caption(model, 5) == "ended the search with 2 finished hypotheses."


def test_a_run_in_progress_says_so(small: dict[str, Any]) -> None:
    model = TraceModel()
    for event in simulate.events(small)[:3]:
        model.append(event)
    assert words.headline(model) == "2 passes for 2 tokens so far"


def test_a_part_speaks_of_itself() -> None:
    drawn = svg(simulate.station(), window=((0, 2), (0, 5)))
    assert "None of these passes settled more than one token." in drawn
    assert "No pass settled" not in drawn


def test_right_drafts_are_credited() -> None:
    said = [words.caption(read(simulate.drafted()), row) for row in range(6)]
    assert said[3] == "settled “im Garten hinter” in one pass: the drafts “im Garten” were right (lexicon)."
    assert words.origin_legend("ngram+lexicon") == "drafted by n-gram + lexicon"
    assert words.origin_legend("ngram+lexicon+head") == "drafted by n-gram + lexicon + draft head"
    assert words.origin_legend("a\u202eb") == "a⟨U+202E⟩b"


def test_masks_and_both_ends_are_told() -> None:
    masks, grown = read(kept.trace("masks")), read(kept.trace("both_ends"))
    assert [words.caption(masks, row) for row in range(4)] == [
        "predicted 10 tokens; the 7 least sure will be masked again.",
        "predicted 8 tokens; the 4 least sure will be masked again.",
        "predicted 9 tokens; the 2 least sure will be masked again.",
        "settled all 10 tokens.",
    ]
    assert words.caption(grown, 0) == "settled “Wie” and “!”: one token from each end."
    assert words.caption(grown, 4) == "settled the end."
    assert words.progress(grown, 3) == "3 of 5 passes · 6 tokens · 2.00 a pass"
    assert words.caption(read(kept.trace("both_ends_beam")), 5) == "settled all 11 tokens: the search has ended."


def test_an_end_beside_the_last_token_is_no_token_from_the_right() -> None:
    even = read(kept.trace("both_ends_even"))
    assert words.caption(even, 3) == "settled “im” and “hinter”: one token from each end."
    assert words.caption(even, 4) == "settled “alten” and the end."


def test_a_beam_over_both_ends_is_told_as_a_search() -> None:
    model = read(kept.trace("both_ends_beam"))
    for row in range(5):
        assert "nothing" not in words.caption(model, row), "each of these passes added two tokens"
        assert "0 tokens" not in words.progress(model, row + 1)


def test_a_cluster_names_its_words() -> None:
    model = read(kept.trace("clustered"))
    assert words.share(model, 1589) == "1,589 · 9.9%"
    said = words.cluster_words(model, 16)
    assert said.startswith("s  m  n  r  e  ,  Kinder  en") and said.endswith("  and 1,529 more")
    assert words.cluster_words(model, 44).startswith("‹end›  .  Tom  Ich  <pad>")
    assert "more" not in words.cluster_words(model, 44), "all its 50 are listed"
    assert words.cluster_words(model, 99) == "The trace does not say which tokens its active set holds."


def test_a_tiny_share_is_not_called_nothing() -> None:
    model = read(kept.trace("clustered"))
    model.header["settings"]["vocabulary"] = 250_000
    assert words.percent(model, 50) == "<0.1%" and words.share(model, 50) == "50 · <0.1%"
    assert words.percent(model, 0) == "0.0%" and words.percent(model, 25_000) == "10%"
