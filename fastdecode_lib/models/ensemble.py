"""Several networks as one model, with concatenated hidden vectors that `projections.average.Average` scores."""

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
        return self.parts[0].lengths

    def truncate(self, lengths: np.ndarray) -> None:
        """Forget everything after the first `lengths` (B,) slots."""
        for state in self.parts:
            state.truncate(lengths)

    def keep(self, slots: np.ndarray) -> None:
        """Keep these of the last step's slots (B, n)."""
        for state in self.parts:
            state.keep(slots)

    def select(self, rows: np.ndarray) -> "EnsembleState":
        """Independent copies of these rows."""
        return EnsembleState(tuple(state.select(rows) for state in self.parts))


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
        shapes = [getattr(network, "architecture", None) for network in self.parts]
        for label, values in (
            ("target vocabulary", [network.outputs[0].vocabulary for network in self.parts]),
            ("source vocabulary", [getattr(shape, "source_vocabulary", None) for shape in shapes]),
            ("kind", [network.kind for network in self.parts]),
            ("step", [network.tokens_per_step for network in self.parts]),
            ("order", [network.both_ends for network in self.parts]),
            ("engine", [getattr(network, "engine", None) for network in self.parts]),
        ):
            if len(set(values)) > 1:
                raise ValueError(
                    f"The networks of an ensemble need the same {label}: got {', '.join(map(str, values))}. Take models trained "
                    "with the same vocabularies and load them alike."
                )
        self.kind: Kind = self.parts[0].kind
        self.tokens_per_step, self.both_ends = self.parts[0].tokens_per_step, self.parts[0].both_ends
        self.engine = getattr(self.parts[0], "engine", "torch")
        self.supports = frozenset.intersection(*(network.supports for network in self.parts))
        self.outputs: tuple[Output, ...] = tuple(output for network in self.parts for output in network.outputs)
        self.max_source = min(network.max_source for network in self.parts)
        self.max_target = min(network.max_target for network in self.parts)

    @property
    def architecture(self) -> Any:
        """The shape of the first network."""
        return getattr(self.parts[0], "architecture", None)

    def encode(self, source: Source) -> EnsembleEncoded:
        """Run every network's encoder over a batch."""
        return EnsembleEncoded(tuple(network.encode(source) for network in self.parts))

    def start(self, encoded: EnsembleEncoded, prefix: np.ndarray, capacity: int | None = None) -> EnsembleState:
        """A state of each network, fed with all but the last of the prefix ids (B, P)."""
        slots = min(capacity or self.max_target, self.max_target)
        return EnsembleState(
            tuple(model.start(part, prefix, slots) for model, part in zip(self.parts, encoded.parts, strict=True))
        )

    def step(self, state: EnsembleState, tokens: np.ndarray, visible: np.ndarray | None = None) -> Hidden:
        """Feed tokens (B, W) to every network; return the concatenated hidden vectors (B, W, sum of D)."""
        hidden = [model.step(part, tokens, visible) for model, part in zip(self.parts, state.parts, strict=True)]
        if isinstance(hidden[0], np.ndarray):
            return np.concatenate(hidden, -1)
        import torch

        return torch.cat(hidden, -1)

    def align(self, source: Source, tokens: np.ndarray, prefix: np.ndarray) -> np.ndarray:
        """The mean attention (B, T, S) of the networks."""
        networks: tuple[Any, ...] = self.parts
        return np.mean([network.align(source, tokens, prefix) for network in networks], 0)
