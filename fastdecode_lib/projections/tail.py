"""Full probabilities from few exact scores: a low-rank matrix scores the rest of the vocabulary (Chen et al., sec. 7.3)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastdecode_lib.core import Candidates, OfAnySource
from fastdecode_lib.kernels.gathered import mixed_log_probabilities
from fastdecode_lib.kernels.ids import checked
from fastdecode_lib.kernels.matrices import Matrix, scratch

ROWS = 32
"""Hidden vectors scored together."""


@dataclass(frozen=True)
class WithTail(OfAnySource):
    """One distribution over the vocabulary: active tokens with their exact scores, all others with low-rank scores.

    The paper does not say which bias the other tokens have; here it is the exact one.

    Attributes
    ----------
    inner : a projection with `active_scores`
    down : Matrix
        (rank, D).
    up : Matrix
        (V, rank) with the output's bias.
    """

    inner: Any
    down: Matrix
    up: Matrix

    def __post_init__(self) -> None:
        if not hasattr(self.inner, "active_scores"):
            raise ValueError(
                f"A tail needs a projection with active_scores: got {self.inner.name}. Use a fitted one, such as screened."
            )

    @property
    def name(self) -> str:
        """The name of the projection, "with a tail"."""
        return f"{self.inner.name} with a tail"

    @property
    def memory_bytes(self) -> int:
        """Bytes of the projection and both factors."""
        return int(self.inner.memory_bytes) + self.down.memory_bytes + self.up.memory_bytes

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The best tokens of the projection; the normaliser runs over the vocabulary."""
        best: Candidates = self.inner.top_k(hidden, k, banned)
        no_ids = np.empty((len(best.ids), 0), dtype=np.int64)
        log_normaliser = self._mixed(hidden, no_ids)[1] if normalise else None
        return Candidates(best.ids, best.scores, best.num_active, log_normaliser, "vocabulary", best.cluster)

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M) over the vocabulary."""
        return self._mixed(hidden, checked("tokens to score", ids, 0, self.up.shape[0]))[0]

    def _mixed(self, hidden: Any, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities (N, M) of ids (N, M), and the log-normalisers (N,)."""
        hidden = np.ascontiguousarray(hidden, dtype=np.float32)
        active, exact_scores = self.inner.active_scores(hidden)
        projected = np.ascontiguousarray(self.down(hidden))
        batch = max(1, min(ROWS, len(projected)))
        log_probs, log_normalisers = np.empty(ids.shape, dtype=np.float32), np.empty(len(projected))
        mixed_log_probabilities(
            projected, self.up.record, self.up.shape[0], active, exact_scores, ids, scratch(batch, projected.shape[1]),
            np.empty((batch, self.up.outputs), np.float32), log_normalisers, log_probs,
        )  # fmt: skip
        return log_probs, log_normalisers


def low_rank(weight: np.ndarray, bias: np.ndarray | None, rank: int) -> tuple[Matrix, Matrix]:
    """`WithTail.down` and `WithTail.up`: the best approximation of a weight (V, D) by a matrix of a given rank.

    Raises
    ------
    ValueError
        If the rank is out of range.
    """
    if not 1 <= rank <= min(weight.shape):
        raise ValueError(
            f"The tail's rank must be from 1 to {min(weight.shape)}, got {rank}. The paper's is 20 or 200."
        )
    left, sizes, right = np.linalg.svd(weight.astype(np.float64), full_matrices=False)
    return Matrix.of(right[:rank]), Matrix.of(left[:, :rank] * sizes[:rank], bias)
