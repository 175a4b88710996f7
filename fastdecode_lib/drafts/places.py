"""The source token that each draft came from, worked out afterwards from the trace, so that decoding need not record it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastdecode_lib.core import Iteration, Source
from fastdecode_lib.drafts.scores import DISCOUNT, LEXICON, REACH, Scores, scratch_of
from fastdecode_lib.drafts.sources import Draft, PromptLookup
from fastdecode_lib.drafts.table import DraftTable

COPIED, LOOKED_UP = "source", "prompt"


@dataclass
class SourcePlaces:
    """Finds the source tokens behind the drafts of one sentence, pass by pass.

    A lexicon's draft comes from the source token whose translation gave most of its score (see
    `fastdecode_lib.drafts.scores`), a copied draft from the token that was copied.

    Parameters
    ----------
    ids : int array (S,)
        The source.
    table : DraftTable or None
        The table whose lexicon drafts.
    """

    ids: np.ndarray
    table: DraftTable | None

    def __post_init__(self) -> None:
        self.output: list[int] = []
        self.lookup = PromptLookup(self.ids.tolist())

    @cached_property
    def scores(self) -> Scores:
        """The lexicon's scores, which tell what is translated already."""
        return Scores(LEXICON, self.table, self.ids, -1, scratch_of(0))

    @cached_property
    def translations(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of every translation of every source token: place of the source token, translation, and its probability."""
        assert self.table is not None
        lexicon = self.table.lexicon
        starts, ends = lexicon.offsets[self.ids], lexicon.offsets[self.ids + 1]
        entries = np.concatenate([np.arange(start, end) for start, end in zip(starts, ends, strict=True)])
        places = np.repeat(np.arange(len(self.ids)), ends - starts)
        return places, lexicon.ids[entries], lexicon.probabilities[entries]

    def find(self, iteration: Iteration) -> np.ndarray:
        """Places (W,) in the source of a pass's drafts, -1 for none; call it for the passes in order."""
        prefix = self.output.copy()
        places = []
        for draft, origin in zip(iteration.drafts.tolist(), iteration.origins, strict=True):
            places.append(self._place(draft, origin, prefix) if draft >= 0 else -1)
            prefix.append(draft)
        settled = zip(iteration.tokens.tolist(), iteration.status, strict=True)
        self.output += [token for token, status in settled if status == "settled"]
        return np.array(places, dtype=np.int64)

    def _place(self, draft: int, origin: str, prefix: list[int]) -> int:
        if origin == COPIED:
            return len(prefix)
        if origin == LOOKED_UP:
            return self.lookup.place(prefix)
        if self.table is None or LEXICON not in origin.split("+"):
            return -1
        places, tokens, chances = self.translations
        entries = np.flatnonzero(tokens == draft)
        if len(entries) < 2:
            return int(places[entries[0]]) if len(entries) else -1
        reading = self.scores.reading(prefix, len(self.output))
        nearness = np.exp(-np.abs(places[entries] - reading.aligned - 1) / REACH)
        untranslated = 1 - DISCOUNT * np.minimum(1.0, reading.covered[0][places[entries]])
        return int(places[entries[np.argmax(nearness * untranslated * chances[entries])]])


def source_places(draft: Draft, source: Source) -> list[SourcePlaces]:
    """One `SourcePlaces` for each row of a batch; an empty list if no draft comes from the source."""
    if draft.parts.isdisjoint((LEXICON, COPIED, LOOKED_UP)):
        return []
    table = draft.table if LEXICON in draft.parts and isinstance(draft.table, DraftTable) else None
    return [SourcePlaces(source.ids[row, :length], table) for row, length in enumerate(source.lengths)]
