"""The full vocabulary projection on the compiled engine: every token is scored, nothing but the weight is approximated."""

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastdecode_lib.core import Candidates, Model, OfAnySource, Projection
from fastdecode_lib.kernels.matrices import Matrix, StorageFormat, scratch
from fastdecode_lib.kernels.top_k import SPAN, best_tokens, log_probabilities
from fastdecode_lib.projections.queries import (
    NONE,
    check_found,
    check_width,
    checked_query,
    checked_wanted,
    only_output,
)
from fastdecode_lib.store import ModelFiles

ROWS = 32
"""Hidden vectors scored together."""


@dataclass(frozen=True)
class CompiledExact(OfAnySource):
    """The full vocabulary: ``hidden @ weight.T + bias``.

    This is the compiled engine's; torch models have `projections.exact_torch.Exact`.

    Attributes
    ----------
    matrix : Matrix
        The output weight (V, D) and bias, in the model's precision.
    """

    matrix: Matrix
    _rooms: Any = field(default_factory=threading.local, init=False, repr=False, compare=False)

    name, needs = "exact", "nothing"

    @classmethod
    def make(cls, model: Model, files: ModelFiles) -> Projection:
        """The exact projection of any model, on its own engine."""
        from fastdecode_lib.projections.average import per_network

        return per_network(model, exact_of)

    @classmethod
    def of(cls, model: Model) -> "CompiledExact":
        """The projection a model was trained with."""
        weight = only_output(model).weight
        return cls(weight if isinstance(weight, Matrix) else Matrix.of(weight))

    def __reduce__(self) -> Any:
        """A copy has room of its own."""
        return CompiledExact, (self.matrix,)

    @property
    def memory_bytes(self) -> int:
        """Bytes of weight, scales and bias."""
        return self.matrix.memory_bytes

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best tokens of hidden (N, D); the normaliser runs over the vocabulary, banned tokens included."""
        hidden, vocabulary = self.checked_hidden(hidden), self.matrix.shape[0]
        rows = len(hidden)
        refused = checked_query(k, banned, rows, vocabulary, most=vocabulary)
        ids, scores = np.empty((rows, k), dtype=np.int64), np.empty((rows, k), dtype=np.float32)
        log_normaliser = np.empty(rows if normalise else 0)
        best_tokens(
            hidden, self.matrix.record, vocabulary, NONE[0], refused, *self._room(rows), ids, scores, log_normaliser
        )
        check_found(ids, hidden)
        return Candidates(ids, scores, np.full(rows, vocabulary), log_normaliser if normalise else None)

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M)."""
        hidden = self.checked_hidden(hidden)
        ids = checked_wanted(ids, len(hidden), self.matrix.shape[0])
        found = np.empty(ids.shape, dtype=np.float32)
        rounded, scores, _ = self._room(len(hidden))
        log_probabilities(hidden, self.matrix.record, self.matrix.shape[0], ids, rounded, scores, found)
        return found

    def checked_hidden(self, hidden: Any) -> np.ndarray:
        """Hidden vectors (N, D) as float32 in rows, refused where their width is another."""
        check_width(hidden, self.matrix.shape[1])
        return np.ascontiguousarray(hidden, dtype=np.float32)

    def _room(self, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rounded rows, scores and largest scores, for up to `ROWS` rows; each thread has its own."""
        made = getattr(self._rooms, "made", None)
        together = min(max(rows, 1), ROWS)
        if made is None or len(made[1]) < together:
            vocabulary, width = self.matrix.shape
            scores = np.empty((together, self.matrix.outputs), dtype=np.float32)
            made = scratch(together, width), scores, np.empty(-(-vocabulary // SPAN), dtype=np.float32)
            self._rooms.made = made
        return made


def exact_of(model: Model) -> Projection:
    """The exact projection of a model with one output, on its engine."""
    if getattr(model, "engine", None) == "compiled":
        return CompiledExact.of(model)
    from fastdecode_lib.projections.exact_torch import Exact

    return Exact.of(model)


def output_matrix(model: Model, precision: StorageFormat | None = None) -> Matrix:
    """The output matrix of a model with its bias, packed for the CPU: as the model has it, or in another precision.

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
    biases = None if bias is None else bias.detach().float().numpy()
    return Matrix.of(weight.detach().float().numpy(), biases, precision or "float32", name="the output matrix")
