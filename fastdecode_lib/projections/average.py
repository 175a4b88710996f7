"""The projection of an ensemble: every network scores with its own, and their probabilities are averaged."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastdecode_lib.core import Candidates, Model, Projection, Scorer, Source
from fastdecode_lib.projections.exact_compiled import exact_of
from fastdecode_lib.projections.queries import ban, best_first, check_width


@dataclass(frozen=True)
class Average:
    """The mean of the networks' probabilities; a hidden vector holds those of all networks side by side.

    Attributes
    ----------
    parts : tuple of Projection
        One for each network. If they score candidate lists, these must be the same for all networks.
    widths : tuple of int
        Length of each network's part of a hidden vector.
    vocabulary : int
    """

    parts: tuple[Projection, ...]
    widths: tuple[int, ...]
    vocabulary: int

    name = "average"

    def __post_init__(self) -> None:
        if not self.parts or len(self.parts) != len(self.widths):
            raise ValueError(
                f"Average needs a projection for each network: got {len(self.parts)} for {len(self.widths)} networks. Use "
                "Average.of(ensemble)."
            )

    @classmethod
    def of(cls, model: Model) -> "Average":
        """The exact projection of every network of an ensemble."""
        parts: tuple[Model, ...] = getattr(model, "parts", (model,))
        return cls.over(model, tuple(map(exact_of, parts)))

    @classmethod
    def over(cls, model: Model, parts: tuple[Projection, ...]) -> "Average":
        """Average the given projections, one for each network of an ensemble."""
        return cls(parts, tuple(int(output.weight.shape[1]) for output in model.outputs), model.outputs[0].vocabulary)

    def bind(self, source: Source | None) -> "AverageScorer":
        """The parts bound to a batch of sources."""
        return AverageScorer(tuple(part.bind(source) for part in self.parts), self.widths, self.vocabulary)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.memory_bytes for part in self.parts)


def per_network(model: Any, make: Callable[[Model], Projection]) -> Projection:
    """The projection of a model; for an ensemble, the average of one projection for each network."""
    if len(model.outputs) == 1:
        return make(model)
    return Average.over(model, tuple(make(part) for part in model.parts))


@dataclass(frozen=True)
class AverageScorer:
    """`Average` bound to a batch of sources."""

    parts: tuple[Scorer, ...]
    widths: tuple[int, ...]
    vocabulary: int

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best tokens of hidden (N, sum of D); scores are log-probabilities, so the normaliser is 0."""
        lists = getattr(self.parts[0], "lists", None)
        all_ids = np.broadcast_to(np.arange(self.vocabulary), (len(hidden), self.vocabulary))
        ids = all_ids if lists is None else lists(len(hidden))
        scores = np.where(ids >= 0, self.log_probs(hidden, np.maximum(ids, 0)), -np.inf)
        if banned is not None:
            ban(scores, ids, banned)
        best, chosen = best_first(scores, ids, k)
        return Candidates(
            chosen,
            best,
            (ids >= 0).sum(1),
            np.zeros(len(hidden), dtype=scores.dtype) if normalise else None,
            "vocabulary" if lists is None else "active",
        )

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Logarithms (N, M) of the mean probabilities of ids (N, M)."""
        check_width(hidden, sum(self.widths))
        ids, start, total = np.ascontiguousarray(ids), 0, None
        for part, width in zip(self.parts, self.widths, strict=True):
            own = hidden[:, start : start + width]
            own = np.ascontiguousarray(own) if isinstance(own, np.ndarray) else own.contiguous()
            part_log_probs = part.log_probs(own, ids)
            total = part_log_probs if total is None else np.logaddexp(total, part_log_probs)
            start += width
        assert total is not None
        return total - np.asarray(np.log(len(self.parts)), dtype=total.dtype)
