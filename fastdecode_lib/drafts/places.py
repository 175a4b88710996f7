"""Which source token a draft came from: told afterwards, from what a pass shows, so that decoding need not keep it."""

from dataclasses import dataclass
from math import exp

import numpy as np

from fastdecode_lib.core import Iteration, Source
from fastdecode_lib.drafts.scores import DISCOUNT, LEXICON, REACH, Scores, scratch_of
from fastdecode_lib.drafts.sources import Draft, PromptLookup
from fastdecode_lib.drafts.table import DraftTable

COPIED, LOOKED_UP = "source", "prompt"


@dataclass
class SourcePlaces:
    """Finds the source tokens behind the drafts of one sentence, pass by pass.

    A draft of a lexicon comes from the source token whose translation gave most of its lexicon's score (see
    `fastdecode_lib.drafts.scores`); a copied one from where it was copied.

    Parameters
    ----------
    ids : int array (S,)
        The source.
    table : DraftTable or None
        Whose lexicon drafts.
    """

    ids: np.ndarray
    table: DraftTable | None

    def __post_init__(self) -> None:
        self.output: list[int] = []
        self.lookup = PromptLookup(self.ids.tolist())
        self.known: dict[int, list[tuple[int, float]]] = {}
        if self.table is None:
            return
        self.scores = Scores(LEXICON, self.table, self.ids, -1, scratch_of(0))
        lexicon = self.table.lexicon
        for place, id_ in enumerate(self.ids):
            entries = slice(lexicon.offsets[id_], lexicon.offsets[id_ + 1])
            for token, chance in zip(
                lexicon.ids[entries].tolist(), lexicon.probabilities[entries].tolist(), strict=True
            ):
                self.known.setdefault(token, []).append((place, chance))

    def find(self, iteration: Iteration) -> np.ndarray:
        """Places (W,) in the source of a pass's drafts, -1 where none is known; passes are given in order."""
        before = self.output.copy()
        found = []
        for draft, origin in zip(iteration.drafts.tolist(), iteration.origins, strict=True):
            found.append(self._place(draft, origin, before) if draft >= 0 else -1)
            before.append(draft)
        settled = zip(iteration.tokens.tolist(), iteration.status, strict=True)
        self.output += [token for token, status in settled if status == "settled"]
        return np.array(found, dtype=np.int64)

    def _place(self, draft: int, origin: str, before: list[int]) -> int:
        if origin == COPIED:
            return len(before)
        if origin == LOOKED_UP:
            return self.lookup.place(before)
        if LEXICON not in origin.split("+") or draft not in self.known:
            return -1
        reading = self.scores.reading(before, len(self.output))
        covered = reading.covered[0]

        def weight(entry: tuple[int, float]) -> float:
            place, chance = entry
            near = exp(-abs(place - reading.aligned - 1) / REACH)
            return near * (1 - DISCOUNT * min(1.0, float(covered[place]))) * chance

        return max(self.known[draft], key=weight)[0]


def source_places(draft: Draft, source: Source) -> list[SourcePlaces]:
    """One `SourcePlaces` for each row of a batch; none where no draft comes from the source."""
    if draft.parts.isdisjoint((LEXICON, COPIED, LOOKED_UP)):
        return []
    table = draft.table if draft.needs_lexicon and isinstance(draft.table, DraftTable) else None
    return [SourcePlaces(source.ids[row, :length], table) for row, length in enumerate(source.lengths)]
