"""Several networks as one model: their hidden vectors side by side, to be scored by `projections.average.Average`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastdecode_lib.core import Hidden, Kind, Model, Output, Source


@dataclass(frozen=True)
class EnsembleEncoded:
    """Encoder output of each network."""

    parts: tuple[Any, ...]

    @property
    def rows(self) -> int:
        """B, the number of sentences."""
        return int(self.parts[0].rows)


@dataclass
class EnsembleState:
    """The states of the networks, always of the same lengths; see `core.State`."""

    parts: tuple[Any, ...]

    @property
    def lengths(self) -> np.ndarray:
        """Slots fed so far, (B,)."""
        lengths: np.ndarray = self.parts[0].lengths
        return lengths

    def truncate(self, lengths: np.ndarray) -> None:
        """Forget everything after the first `lengths` (B,) slots."""
        for part in self.parts:
            part.truncate(lengths)

    def keep(self, slots: np.ndarray) -> None:
        """Keep these of the last step's slots (B, n)."""
        for part in self.parts:
            part.keep(slots)

    def select(self, rows: np.ndarray) -> "EnsembleState":
        """Independent copies of some rows."""
        return EnsembleState(tuple(part.select(rows) for part in self.parts))


class Ensemble:
    """Networks that share source and target vocabularies, stepped together; satisfies `core.Model` (Devlin, 2017, E1 and E2).

    Parameters
    ----------
    parts : sequence of Model
        At least one, of the same kind and engine.

    Raises
    ------
    ValueError
        If the networks cannot be driven together.
    """

    def __init__(self, parts: Sequence[Model]):
        self.parts = tuple(parts)
        if not self.parts:
            raise ValueError("An ensemble needs networks: got none. Give at least one, better two.")
        for what, found in (
            ("target vocabulary", [part.outputs[0].vocabulary for part in self.parts]),
            ("source vocabulary", [_source_vocabulary(part) for part in self.parts]),
            ("kind", [part.kind for part in self.parts]),
            ("step", [part.tokens_per_step for part in self.parts]),
            ("order", [part.both_ends for part in self.parts]),
            ("engine", [getattr(part, "engine", None) for part in self.parts]),
        ):
            if len(set(found)) > 1:
                raise ValueError(
                    f"The networks of an ensemble need the same {what}: got {', '.join(map(str, found))}. Take models trained "
                    "with the same vocabularies and load them alike."
                )
        self.kind: Kind = self.parts[0].kind
        self.tokens_per_step, self.both_ends = self.parts[0].tokens_per_step, self.parts[0].both_ends
        self.engine = getattr(self.parts[0], "engine", "torch")
        self.supports = frozenset.intersection(*(part.supports for part in self.parts))
        self.outputs: tuple[Output, ...] = tuple(output for part in self.parts for output in part.outputs)
        self.max_source = min(part.max_source for part in self.parts)
        self.max_target = min(part.max_target for part in self.parts)

    @property
    def architecture(self) -> Any:
        """The shape of the first network."""
        return getattr(self.parts[0], "architecture", None)

    def encode(self, source: Source) -> EnsembleEncoded:
        """Run every network's encoder over a batch."""
        return EnsembleEncoded(tuple(part.encode(source) for part in self.parts))

    def start(self, encoded: EnsembleEncoded, prefix: np.ndarray, capacity: int | None = None) -> EnsembleState:
        """A state of each network, fed with all but the last of the prefix ids (B, P)."""
        slots = min(capacity or self.max_target, self.max_target)
        return EnsembleState(
            tuple(part.start(own, prefix, slots) for part, own in zip(self.parts, encoded.parts, strict=True))
        )

    def step(self, state: EnsembleState, tokens: np.ndarray, visible: np.ndarray | None = None) -> Hidden:
        """Feed tokens (B, W) to every network; hidden vectors (B, W, sum of D), one network's after another's."""
        return _concatenated(
            [part.step(own, tokens, visible) for part, own in zip(self.parts, state.parts, strict=True)]
        )

    def align(self, source: Source, tokens: np.ndarray, prefix: np.ndarray) -> np.ndarray:
        """The mean attention (B, T, S) of networks that have one to show."""
        parts: tuple[Any, ...] = self.parts
        alignments: np.ndarray = np.mean([part.align(source, tokens, prefix) for part in parts], 0)
        return alignments


def _source_vocabulary(part: Any) -> Any:
    return getattr(getattr(part, "architecture", None), "source_vocabulary", None)


def _concatenated(hidden: list[Any]) -> Any:
    if isinstance(hidden[0], np.ndarray):
        return np.concatenate(hidden, -1)
    import torch

    return torch.cat(hidden, -1)
