"""A lossless projection: byte scores of the whole vocabulary, and float32 scores of what may be among the best."""

import threading
from typing import Any

import numpy as np

from fastdecode_lib.core import Candidates, Model, OfAnySource, Projection
from fastdecode_lib.kernels.bounded import best_of_bounded, rounding
from fastdecode_lib.kernels.matrices import Matrix, scratch
from fastdecode_lib.kernels.tiles import INT8_FOURS
from fastdecode_lib.kernels.top_k import SPAN
from fastdecode_lib.projections.average import per_network
from fastdecode_lib.projections.exact_compiled import CompiledExact, output_matrix
from fastdecode_lib.projections.queries import checked_query
from fastdecode_lib.store import ModelFiles

ROWS = 16
"""Hidden vectors scored together."""
UNIT = 2.0**-24
"""Half a unit in the last place of float32, relative."""


class Quantised(OfAnySource):
    """Every token in bytes, in doubt in float32: lossless.

    These are the tokens and scores of the exact projection, ties included, at a fraction of the memory read.

    Tokens are scored again in the order of their upper bounds, so that none is that did not have to be: those whose bound
    reaches the k-th best score, and no other. A first guess of the best, such as a screen's, could only add to them.

    Parameters
    ----------
    whole : Matrix
        The output matrix in float32.
    """

    name, needs = "quantised", "nothing"

    def __init__(self, whole: Matrix):
        if whole.precision != "float32":
            raise ValueError(
                f"quantised gives what float32 gives: got an output matrix in {whole.precision}. Load the model in float32."
            )
        if not np.isfinite(whole.weight).all():
            raise ValueError("quantised needs finite weights: got NaN or infinity. Load another checkpoint.")
        outputs, columns = whole.shape
        self.whole, self.exact = whole, CompiledExact(whole)
        self.small = Matrix.of(whole.unpacked(), whole.bias[:outputs], "int8", name="the output matrix")
        found = np.empty((4, whole.outputs))
        rounding(whole.weight, self.small.weight, self.small.scale, found)
        true, lengths, lost = np.sqrt(found[:3])
        steps = 1.01 * (columns + 8) * UNIT
        self._lengths, self._losses = (
            np.nextafter(_up(a), np.inf) for a in (lengths * (1 + 8 * UNIT), lost + steps * (true + lengths))
        )
        self._rest = _up(steps * np.abs(whole.bias.astype(np.float64)) + (columns + 8) * 2.0**-149)
        self._rest[outputs:] = -np.inf
        with np.errstate(divide="ignore"):
            self._most = 1e38 / found[3].max()
        self._bytes = 1 if self.small.format is INT8_FOURS else 2
        self._rooms = threading.local()

    def __reduce__(self) -> Any:
        """A copy has arrays of its own."""
        return Quantised, (self.whole,)

    @classmethod
    def make(cls, model: Model, files: ModelFiles) -> Projection:
        """The projection of a model in float32 on the CPU."""
        return per_network(model, lambda part: cls(output_matrix(part)))

    @property
    def memory_bytes(self) -> int:
        """Bytes of the output matrix, of its byte form and of the bounds."""
        bounds = self._lengths.nbytes + self._losses.nbytes + self._rest.nbytes
        return self.whole.memory_bytes + self.small.memory_bytes + bounds

    def bounds(self, hidden: np.ndarray) -> bool:
        """Whether no float32 sum of products with these vectors can overflow: the bounds are of numbers that are finite."""
        return bool(np.abs(hidden).max(initial=0) <= self._most)

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best tokens of hidden (N, D), as the exact projection has them; a normaliser costs a product in float32."""
        hidden = self.exact.checked_hidden(hidden)
        if normalise or not self.bounds(hidden):
            return self.exact.top_k(hidden, k, banned, normalise)
        return self.top_k_counted(hidden, k, banned)[0]

    def top_k_counted(
        self, hidden: np.ndarray, k: int, banned: np.ndarray | None = None
    ) -> tuple[Candidates, np.ndarray]:
        """`top_k` of vectors that `bounds` holds of, and how many tokens of each were scored in float32 (N,)."""
        rows, vocabulary = len(hidden), self.whole.shape[0]
        refused = checked_query(k, banned, rows, vocabulary, most=vocabulary)
        ids, scores = np.empty((rows, k), dtype=np.int64), np.empty((rows, k), dtype=np.float32)
        rescored = np.empty(rows, dtype=np.int64)
        rounded, products, uppers, tops, sixteen = self._room(rows)
        best_of_bounded(
            hidden, self.whole.record, self.small.record, self._bytes, vocabulary, self._lengths, self._losses, self._rest,
            refused, rounded, products, uppers, tops, sixteen, ids, scores, rescored,
        )  # fmt: skip
        return Candidates(ids, scores, np.full(rows, vocabulary)), rescored

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M): the exact projection's."""
        return self.exact.log_probs(hidden, ids)

    def _room(self, rows: int) -> tuple[np.ndarray, ...]:
        """Room for up to `ROWS` rows; each thread has its own."""
        made = getattr(self._rooms, "made", None)
        together = min(max(rows, 1), ROWS)
        if made is None or len(made[1]) < together:
            made = (
                scratch(together, self.whole.shape[1]),
                np.empty((together, self.small.outputs), dtype=np.float32),
                np.empty((1, self.small.outputs), dtype=np.float32),
                np.empty(-(-self.whole.shape[0] // SPAN), dtype=np.float32),
                np.empty(16, dtype=np.float32),
            )
            self._rooms.made = made
        return made


def _up(values: np.ndarray) -> np.ndarray:
    """The nearest float32, or the next above it."""
    near = values.astype(np.float32)
    return np.where(near < values, np.nextafter(near, np.float32(np.inf)), near).astype(np.float32)
