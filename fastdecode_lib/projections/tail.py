"""Full probabilities from a few exact scores: the rest of the vocabulary is scored by a low-rank matrix (Chen et al., sec. 7.3)."""

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
    """A projection's own tokens with their exact scores, and all others with scores of low rank, as one distribution.

    The paper does not say what bias the others have; here it is the exact one.

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
            raise ValueError(f"A tail needs a projection that tells which tokens it scores: got {self.inner.name}.")

    @property
    def name(self) -> str:
        """The projection's."""
        return f"{self.inner.name} with a tail"

    @property
    def memory_bytes(self) -> int:
        """Bytes of the projection and both factors."""
        return int(self.inner.memory_bytes) + self.down.memory_bytes + self.up.memory_bytes

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The projection's own best; the normaliser runs over the vocabulary."""
        found: Candidates = self.inner.top_k(hidden, k, banned)
        nothing = np.empty((len(found.ids), 0), dtype=np.int64)
        total = self._mixed(hidden, nothing)[1] if normalise else None
        return Candidates(found.ids, found.scores, found.num_active, total, "vocabulary", found.cluster)

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M) over the vocabulary."""
        return self._mixed(hidden, checked("tokens to score", ids, 0, self.up.shape[0]))[0]

    def _mixed(self, hidden: Any, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities of some tokens, and the normalisers (N,)."""
        hidden = np.ascontiguousarray(hidden, dtype=np.float32)
        ids, exact = self.inner.active_scores(hidden)
        low = np.ascontiguousarray(self.down(hidden))
        rows = max(1, min(ROWS, len(low)))
        found, total = np.empty(wanted.shape, dtype=np.float32), np.empty(len(low))
        mixed_log_probabilities(
            low, self.up.record, self.up.shape[0], ids, exact, wanted, scratch(rows, low.shape[1]),
            np.empty((rows, self.up.outputs), np.float32), total, found,
        )  # fmt: skip
        return found, total


def low_rank(weight: np.ndarray, bias: np.ndarray | None, rank: int) -> tuple[Matrix, Matrix]:
    """`WithTail.down` and `WithTail.up`: the best approximation of a weight (V, D) by a matrix of some rank.

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
