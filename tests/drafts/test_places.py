"""Where in the source drafts came from: told from the passes alone, as the drafts were made."""

from typing import Any

import fakes
import numpy as np
import pytest

from fastdecode_lib import load, translate
from fastdecode_lib.core import Iteration, Source
from fastdecode_lib.drafts.places import SourcePlaces, source_places
from fastdecode_lib.drafts.scores import Scores
from fastdecode_lib.drafts.sources import Draft
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.trace import Trace

END = 9


@pytest.fixture(scope="module")
def table() -> DraftTable:
    """A dictionary in which s is translated by s + 10."""
    random = np.random.default_rng(4)
    sources = [random.choice(9, size=5, replace=False) for _ in range(200)]
    return DraftTable.count(
        sources, [source + 10 for source in sources], source_vocabulary=12, vocabulary=24, start=END
    )


def a_pass(first: int, drafts: list[int], origin: str, tokens: list[int], settled: int) -> Iteration:
    status: Any = ("settled",) * settled + ("draft",) * (len(tokens) - settled)
    slots = np.arange(first, first + len(tokens))
    origins = tuple(origin if draft >= 0 else "" for draft in drafts)
    return Iteration(0, first, slots, np.array(drafts), origins, np.array(tokens), status, positions=len(tokens))


def test_a_word_that_stands_twice_is_taken_in_turn(table: DraftTable) -> None:
    places = SourcePlaces(np.array([4, 2, 4, 7]), table)
    assert places.find(a_pass(0, [14, 12, 14, 17], "lexicon", [14, 12, 14, 17], 2)).tolist() == [0, 1, 2, 3]
    assert places.find(a_pass(2, [14, 17, -1], "ngram+lexicon", [14, 17, END], 3)).tolist() == [2, 3, -1]
    again = SourcePlaces(np.array([4, 2, 4, 7]), table)
    again.find(a_pass(0, [-1], "", [12], 1))
    assert again.find(a_pass(1, [14], "lexicon", [14], 1)).tolist() == [2], "the one behind what was translated"


def test_what_no_source_token_gave_has_no_place(table: DraftTable) -> None:
    places = SourcePlaces(np.array([4, 2]), table)
    assert places.find(a_pass(0, [18, 14, 14], "ngram+lexicon", [18, 14, 14], 1)).tolist()[0] == -1
    for origin in ("ngram", "recycled", "pad", "head", "pool", "model"):
        assert SourcePlaces(np.array([4, 2]), table).find(a_pass(0, [14], origin, [14], 1)).tolist() == [-1]


def test_copies_tell_where_they_were_copied() -> None:
    ids = np.array([5, 6, 7, 8])
    assert SourcePlaces(ids, None).find(a_pass(0, [5, 6], "source", [5, 6], 1)).tolist() == [0, 1]
    places = SourcePlaces(ids, None)
    places.find(a_pass(0, [-1], "", [6], 1))
    assert places.find(a_pass(1, [7, 8], "prompt", [7, 8], 2)).tolist() == [2, 3]


def test_drafts_that_never_read_the_source_are_not_followed(table: DraftTable) -> None:
    source = Source(np.array([[4, 2, 0]]), np.array([2]))
    assert source_places(Draft("recycled/pad"), source) == []
    assert source_places(Draft("ngram", table), source) == []
    (row,) = source_places(Draft("ngram+lexicon", table), source)
    assert row.ids.tolist() == [4, 2], "without padding"


@pytest.mark.parametrize("draft", ["ngram+lexicon", "lexicon", "prompt/ngram+lexicon", "recycled|lexicon"])
def test_places_are_where_the_drafts_were_made(draft: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lexicon is aligned for the telling as it was for the drafts, and translates the word into the draft."""
    made: dict[tuple[int, ...], int] = {}
    tokens = Scores.tokens

    def noting(self: Scores, before: list[int], settled: int, count: int) -> list[int]:
        found = tokens(self, before, settled, 1)  # one at a time, so that the alignment of each is seen
        made[tuple(before)] = self.ahead.aligned
        return found

    monkeypatch.setattr(Scores, "tokens", noting)
    told: list[tuple[tuple[int, ...], int]] = []
    reading = Scores.reading

    def watching(self: Scores, before: list[int], settled: int) -> Any:
        found = reading(self, before, settled)
        if self.name == "lexicon" and not self.touched.size:
            told.append((tuple(before), found.aligned))
        return found

    monkeypatch.setattr(Scores, "reading", watching)
    model = load("tatoeba-small", device="cpu")
    for text in fakes.own_sentences()["en"][:6]:
        made.clear()
        told.clear()
        decoder = f"window:width=5,draft={draft}"
        done = translate(model, text, source="en", target="de", decoder=decoder, verify=True)
        assert done.trace.greedy and done.trace.greedy["identical"]
        assert told and all(made[before] == aligned for before, aligned in told)
        found = [place for each in done.trace.iterations for place in each.sources.tolist()]
        assert any(place >= 0 for place in found)
        again = Trace.from_json(done.trace.to_json())
        assert [place for each in again.iterations for place in each.sources.tolist()] == found
    plain = translate(model, text, source="en", target="de", decoder="greedy")
    assert all("sources" not in row for row in plain.trace.to_dict()["iterations"])
