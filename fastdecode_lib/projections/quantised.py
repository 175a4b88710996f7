"""A lossless projection: int8 scores of the whole vocabulary, and float32 scores of the tokens that may be among the best."""

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
from fastdecode_lib.projections.queries import checked_query, float_rows
from fastdecode_lib.store import ModelFiles

ROWS = 16
"""Hidden vectors scored together."""
UNIT = 2.0**-24
"""Half a unit in the last place of float32, relative."""


class Quantised(OfAnySource):
    """Every token scored in int8, and again in float32 where int8 cannot decide: lossless.

    Tokens and scores are those of the exact projection, ties included, at a fraction of the memory read.

    Tokens are scored again in the order of their upper bounds: only those whose bound reaches the k-th best score, which no
    method could leave out. A first guess of the best tokens, such as a screen's, could only add to them.

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
        weight = whole.unpacked()
        if not np.isfinite(weight).all():
            raise ValueError("quantised needs finite weights: got NaN or infinity. Load another checkpoint.")
        outputs, columns = whole.shape
        self.whole, self.exact = whole, CompiledExact(whole)
        self.small = Matrix.of(weight, whole.bias[:outputs], "int8", name="the output matrix")
        del weight  # large, and widened once more below in another order
        sums = np.empty((4, whole.outputs))
        rounding(whole.widened(), self.small.weight, self.small.scale, sums)
        true_lengths, lengths, losses = np.sqrt(sums[:3])
        relative_error = 1.01 * (columns + 8) * UNIT
        losses += relative_error * (true_lengths + lengths)
        self._lengths, self._losses = (np.nextafter(_up(a), np.inf) for a in (lengths * (1 + 8 * UNIT), losses))
        self._bias_errors = _up(relative_error * np.abs(whole.bias.astype(np.float64)) + (columns + 8) * 2.0**-149)
        self._bias_errors[outputs:] = -np.inf
        with np.errstate(divide="ignore"):
            self._max_entry = 1e38 / sums[3].max()
        self._bytes = 1 if self.small.format is INT8_FOURS else 2
        self._local = threading.local()

    def __reduce__(self) -> Any:
        """A copy has its own arrays."""
        return Quantised, (self.whole,)

    @classmethod
    def make(cls, model: Model, files: ModelFiles) -> Projection:
        """The projection of a model in float32 on the CPU."""
        return per_network(model, lambda part: cls(output_matrix(part)))

    @property
    def memory_bytes(self) -> int:
        """Bytes of the output matrix, of its int8 form and of the bounds."""
        bounds = self._lengths.nbytes + self._losses.nbytes + self._bias_errors.nbytes
        return self.whole.memory_bytes + self.small.memory_bytes + bounds

    def bounds(self, hidden: np.ndarray) -> bool:
        """Whether the bounds hold for these vectors: no float32 sum of their products can overflow."""
        return bool(np.abs(hidden).max(initial=0) <= self._max_entry)

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best tokens of hidden (N, D), those of the exact projection; a normaliser costs a product in float32."""
        hidden = float_rows(hidden, self.whole.shape[1])
        if normalise or not self.bounds(hidden):
            return self.exact.top_k(hidden, k, banned, normalise)
        return self.top_k_counted(hidden, k, banned)[0]

    def top_k_counted(
        self, hidden: np.ndarray, k: int, banned: np.ndarray | None = None
    ) -> tuple[Candidates, np.ndarray]:
        """`top_k` of vectors for which `bounds` is true, and how many tokens of each were scored in float32 (N,)."""
        rows, vocabulary = len(hidden), self.whole.shape[0]
        banned_ids = checked_query(k, banned, rows, vocabulary, most=vocabulary)
        ids, scores = np.empty((rows, k), dtype=np.int64), np.empty((rows, k), dtype=np.float32)
        rescored = np.empty(rows, dtype=np.int64)
        rounded, products, upper_bounds, span_tops, sixteen = self._buffers(rows)
        best_of_bounded(
            hidden, self.whole.record, self.small.record, self._bytes, vocabulary, self._lengths, self._losses, self._bias_errors,
            banned_ids, rounded, products, upper_bounds, span_tops, sixteen, ids, scores, rescored,
        )  # fmt: skip
        return Candidates(ids, scores, np.full(rows, vocabulary)), rescored

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M): the exact projection's."""
        return self.exact.log_probs(hidden, ids)

    def _buffers(self, rows: int) -> tuple[np.ndarray, ...]:
        """Buffers for up to `ROWS` rows, one set for each thread."""
        buffers = getattr(self._local, "buffers", None)
        batch = min(max(rows, 1), ROWS)
        if buffers is None or len(buffers[1]) < batch:
            buffers = self._local.buffers = (
                scratch(batch, self.whole.shape[1]),
                np.empty((batch, self.small.outputs), dtype=np.float32),
                np.empty((1, self.small.outputs), dtype=np.float32),
                np.empty(-(-self.whole.shape[0] // SPAN), dtype=np.float32),
                np.empty(16, dtype=np.float32),
            )
        return buffers


def _up(values: np.ndarray) -> np.ndarray:
    """The smallest float32 numbers that are not below the values."""
    near = values.astype(np.float32)
    return np.where(near < values, np.nextafter(near, np.float32(np.inf)), near).astype(np.float32)
