"""The full vocabulary projection on the compiled engine: it scores every token and approximates at most the weight."""

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastdecode_lib.core import Candidates, Model, OfAnySource, Projection
from fastdecode_lib.kernels.matrices import Matrix, StorageFormat, scratch
from fastdecode_lib.kernels.top_k import SPAN, best_tokens, log_probabilities
from fastdecode_lib.projections.queries import NONE, check_finite, checked_ids, checked_query, float_rows, only_output
from fastdecode_lib.store import ModelFiles

ROWS = 32
"""Hidden vectors scored together."""


@dataclass(frozen=True)
class CompiledExact(OfAnySource):
    """The full vocabulary: ``hidden @ weight.T + bias``.

    For models of the compiled engine; `projections.exact_torch.Exact` is for torch models.

    Attributes
    ----------
    matrix : Matrix
        The output weight (V, D) and bias, in the model's precision.
    """

    matrix: Matrix
    _local: Any = field(default_factory=threading.local, init=False, repr=False, compare=False)

    name, needs = "exact", "nothing"

    @classmethod
    def make(cls, model: Model, files: ModelFiles) -> Projection:
        """The exact projection of any model, on its own engine."""
        from fastdecode_lib.projections.average import per_network

        return per_network(model, exact_of)

    @classmethod
    def of(cls, model: Model) -> "CompiledExact":
        """The projection of a model with one output."""
        weight = only_output(model).weight
        return cls(weight if isinstance(weight, Matrix) else Matrix.of(weight))

    def __reduce__(self) -> Any:
        """A copy has its own buffers."""
        return CompiledExact, (self.matrix,)

    @property
    def memory_bytes(self) -> int:
        """Bytes of weight, scales and bias."""
        return self.matrix.memory_bytes

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best tokens of hidden (N, D); the normaliser runs over the vocabulary, banned tokens included."""
        vocabulary, width = self.matrix.shape
        hidden = float_rows(hidden, width)
        rows = len(hidden)
        banned_ids = checked_query(k, banned, rows, vocabulary, most=vocabulary)
        ids, scores = np.empty((rows, k), dtype=np.int64), np.empty((rows, k), dtype=np.float32)
        log_normaliser = np.empty(rows if normalise else 0)
        empty = best_tokens(
            hidden,
            self.matrix.record,
            vocabulary,
            NONE[0],
            banned_ids,
            *self._buffers(rows),
            ids,
            scores,
            log_normaliser,
        )
        if empty:
            check_finite(hidden)
        return Candidates(ids, scores, np.full(rows, vocabulary), log_normaliser if normalise else None)

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M)."""
        vocabulary, width = self.matrix.shape
        hidden = float_rows(hidden, width)
        ids = checked_ids(ids, len(hidden), vocabulary)
        log_probs = np.empty(ids.shape, dtype=np.float32)
        rounded, scores, _ = self._buffers(len(hidden))
        log_probabilities(hidden, self.matrix.record, vocabulary, ids, rounded, scores, log_probs)
        return log_probs

    def _buffers(self, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Buffers for rounded rows, scores and largest scores of up to `ROWS` rows, one set for each thread."""
        buffers = getattr(self._local, "buffers", None)
        batch = min(max(rows, 1), ROWS)
        if buffers is None or len(buffers[1]) < batch:
            vocabulary, width = self.matrix.shape
            scores = np.empty((batch, self.matrix.outputs), dtype=np.float32)
            span_tops = np.empty(-(-vocabulary // SPAN), dtype=np.float32)
            buffers = self._local.buffers = scratch(batch, width), scores, span_tops
        return buffers


def exact_of(model: Model) -> Projection:
    """The exact projection of a model with one output, on its engine."""
    if getattr(model, "engine", None) == "compiled":
        return CompiledExact.of(model)
    from fastdecode_lib.projections.exact_torch import Exact

    return Exact.of(model)


def output_matrix(model: Model, precision: StorageFormat | None = None) -> Matrix:
    """The output matrix of a model with its bias, packed for the CPU in the model's precision or in another one.

    Raises
    ------
    ValueError
        If the model has several outputs, or its weights are not on the CPU.
    """
    output = only_output(model)
    weight, bias = output.weight, output.bias
    if isinstance(weight, Matrix):
        if precision in (None, weight.precision):
            return weight
        return Matrix.of(weight.unpacked(), weight.bias[: weight.shape[0]], precision, name="the output matrix")
    if getattr(weight, "device", None) is not None and weight.device.type != "cpu":
        raise ValueError(f"This projection runs on the CPU: got a model on {weight.device}. Load it with device='cpu'.")
    bias_values = None if bias is None else bias.detach().float().numpy()
    return Matrix.of(weight.detach().float().numpy(), bias_values, precision or "float32", name="the output matrix")
