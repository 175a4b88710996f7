"""Checks and counts of all models and their states: sources, prefixes, and the slots each row has been fed."""

from typing import NoReturn

import numpy as np

from fastdecode_lib.core import OUR_FAMILIES
from fastdecode_lib.kernels.ids import checked, plain
from fastdecode_lib.kernels.slots import count_fed, count_kept


def check_length(lengths: np.ndarray, max_source: int) -> int:
    """The longest of sources' lengths (B,).

    Raises
    ------
    ValueError
        If it is more than a model holds.
    """
    longest = int(lengths.max(initial=0))
    if longest > max_source:
        raise ValueError(
            f"The source is too long: got {longest} tokens, this model allows {max_source}. Split it into sentences."
        )
    return longest


def check_prefix(prefix: np.ndarray, sources: int) -> None:
    """Refuse prefix ids (B, P) for another number of sources.

    Raises
    ------
    ValueError
        If they are not one row for each source.
    """
    if prefix.ndim != 2 or len(prefix) != sources:
        raise ValueError(f"A state needs a prefix (P,) for each source: got {prefix.shape} for {sources} sources.")


def fed_before(prefix: np.ndarray, tokens_per_step: int) -> np.ndarray:
    """Prefix ids (B, P) that a state is fed at the start: all but the last, or all but the last group."""
    return prefix[:, : max(prefix.shape[1] - tokens_per_step, 0)]


class Slots:
    """Base of a `core.State`: how far each row is filled, which slots the last step fed, and the checks of both.

    A subclass has `filled` and `before_step`, `max_slots` or a `capacity` of its own, and moves its cache entries in `keep`.
    """

    max_slots: int
    filled: np.ndarray
    """Slots fed so far, int64 (B,)."""
    before_step: np.ndarray
    """The same before the last step."""

    @property
    def lengths(self) -> np.ndarray:
        """Slots fed so far, (B,)."""
        return self.filled.copy()

    @property
    def capacity(self) -> int:
        """Most slots of a row."""
        return self.max_slots

    def truncate(self, lengths: np.ndarray) -> None:
        """Forget everything after the first `lengths` slots of each row."""
        lengths = np.asarray(lengths, dtype=np.int64)
        if lengths.shape != self.filled.shape or (lengths < 0).any() or (lengths > self.filled).any():
            raise ValueError(f"truncate needs lengths from 0 to {self.filled.tolist()}, got {lengths.tolist()}.")
        self.filled = lengths.copy()
        self.before_step = np.minimum(self.before_step, lengths)

    def checked_step(self, tokens: np.ndarray, vocabulary: int, group: int = 1) -> tuple[np.ndarray, np.ndarray, int]:
        """Tokens (B, W) as int64, the number that each row is fed (B,), and the slots of the longest row after them.

        Raises
        ------
        ValueError
            If the number of rows differs from the state's, an id is outside the vocabulary, a -1 stands before a token, a row
            has, or is fed, part of a group, or the slots do not fit.
        """
        tokens = plain(tokens, np.int64)
        if tokens.ndim != 2 or len(tokens) != len(self.filled):
            raise ValueError(f"A step feeds tokens (B, W) to {len(self.filled)} rows: got {tokens.shape}.")
        counts = np.empty(len(tokens), dtype=np.int64)
        longest = count_fed(tokens, self.filled, vocabulary, group, counts)
        if longest < 0:
            self._refuse(checked("tokens", tokens, -1, vocabulary), group)
        if longest > self.capacity:
            raise ValueError(
                f"The target is too long: this pass needs {longest} slots, the state holds {self.capacity}. "
                "Lower max_length, or start the state with more capacity."
            )
        return tokens, counts, longest

    def _refuse(self, tokens: np.ndarray, group: int) -> NoReturn:
        """Say why tokens (B, W) that have known ids cannot be fed."""
        feeding = tokens >= 0
        if (feeding[:, 1:] > feeding[:, :-1]).any():
            raise ValueError(
                f"Slots that feed nothing (-1) must stand at the end of their row: got {tokens.tolist()}. Move them there."
            )
        raise ValueError(
            f"A model of {group} tokens a step is fed whole groups: got {feeding.sum(1).tolist()} tokens behind "
            f"{self.filled.tolist()}. Feed a multiple of {group} to every row."
        )

    def advance(self, counts: np.ndarray) -> None:
        """Record that a step fed these numbers of slots (B,)."""
        self.before_step, self.filled = self.filled, self.filled + counts

    def kept(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
        """Slots (B, n) of the last step to keep as int64, their number in each row (B,), and whether any has to be moved."""
        slots = plain(slots, np.int64)
        fits, counts = slots.ndim == 2 and len(slots) == len(self.filled), np.empty(len(self.filled), dtype=np.int64)
        moved = count_kept(slots, self.filled, self.before_step, counts) if fits else -1
        if moved < 0:
            raise ValueError(
                f"keep needs slots (B, n) of the last step, which fed {(self.filled - self.before_step).tolist()}: got "
                f"{slots.tolist()}. A -1 stands at the end of a row only."
            )
        return slots, counts, moved > 0


class SlotsInOrder(Slots):
    """Base of a state that cannot leave slots out, since each slot depends on the one before."""

    def keep(self, slots: np.ndarray) -> None:
        """Keep first slots of the last step: (B, n) counts from 0, and -1 pads a row."""
        slots, counts, moved = self.kept(slots)
        if moved:
            raise ValueError(
                f"This model keeps the first slots of a step, in their order: got {slots.tolist()}. Trees of candidates need "
                f"{OUR_FAMILIES}."
            )
        self.truncate(self.before_step + counts)
