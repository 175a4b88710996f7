"""Projections that score a part of the vocabulary exactly."""

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fastdecode_lib.core import Candidates, Model, OfAnySource, Projection
from fastdecode_lib.kernels.ids import plain
from fastdecode_lib.kernels.listed import scratch
from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.projections.queries import NONE, check_width, checked_ids, checked_query, host, layer
from fastdecode_lib.store import ModelFiles

Support = Literal["vocabulary", "active"]
ROWS = 32
"""Hidden vectors that go through the first stage together."""
SAMPLE = 256
"""Rows of the weight, at most, that serve as hidden vectors when an average is counted."""
_NO_SCORES = np.zeros((0, 0), dtype=np.float32)
_NO_IDS = np.zeros((0, 0), dtype=np.int64)
_NO_NUMBERS = np.zeros(0)


class Active(NamedTuple):
    """The tokens scored exactly, ids (N, M) ascending within a row, and their scores; padded with -1 and -inf."""

    ids: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted(OfAnySource, ABC):
    """A projection made by ``fit``: its arrays and knobs never change.

    Attributes
    ----------
    fingerprint : str
        Fingerprint of the model it was fitted on, if ``dataclasses.replace`` has set it; `registry.projection` compares it.
    """

    fingerprint: str = ""
    _local: Any = field(default_factory=threading.local, init=False, repr=False)

    name: ClassVar[str]
    needs: ClassVar[str]
    support: ClassVar[Support]
    """Normaliser of the probabilities."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """V."""

    @property
    @abstractmethod
    def width(self) -> int:
        """D."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""

    @abstractmethod
    def _run_kernel(self, hidden: np.ndarray, asked: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        """Fill the results of `kernels.listed` for hidden (N, D)."""

    @abstractmethod
    def _make_buffers(self, batch: int) -> tuple[Any, ...]:
        """Buffers that `_run_kernel` writes to, for `batch` rows at a time."""

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best active tokens of hidden (N, D); the normaliser counts banned ones."""
        hidden = self._host(hidden)
        rows = len(hidden)
        banned_ids = checked_query(k, banned, rows, self.vocabulary)
        ids, scores = np.empty((rows, k), dtype=np.int64), np.empty((rows, k), dtype=np.float32)
        active, log_normaliser = np.empty(rows, dtype=np.int64), np.empty(rows if normalise else 0)
        results = ids, scores, active, log_normaliser, _NO_SCORES, _NO_IDS, _NO_SCORES
        self._run_kernel(hidden, (banned_ids, np.empty((rows, 0), dtype=np.int64)), results)
        return Candidates(ids, scores, active, log_normaliser if normalise else None, self.support)

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M); -inf for tokens that are not active if only active tokens are normalised."""
        hidden = self._host(hidden)
        rows = len(hidden)
        ids = checked_ids(ids, rows, self.vocabulary)
        log_probs = np.empty(ids.shape, dtype=np.float32)
        no_best = np.empty((rows, 0), dtype=np.int64), np.empty((rows, 0), dtype=np.float32)
        results = *no_best, np.empty(rows, np.int64), _NO_NUMBERS, log_probs, _NO_IDS, _NO_SCORES
        self._run_kernel(hidden, (NONE, ids), results)
        return log_probs

    def _host(self, hidden: Any) -> np.ndarray:
        """Hidden vectors as the kernels read them."""
        if not isinstance(hidden, np.ndarray):
            hidden = host(hidden)
        check_width(hidden, self.width)
        return plain(hidden, np.float32)

    def _buffers(self, rows: int) -> tuple[Any, ...]:
        """Buffers for up to `ROWS` rows at a time, one set for each thread."""
        buffers = getattr(self._local, "buffers", None)
        if buffers is None or buffers[0] < min(rows, ROWS):
            batch = min(max(rows, 1), ROWS)
            buffers = self._local.buffers = batch, self._make_buffers(batch)
        return buffers[1]

    def __reduce__(self) -> Any:
        """A copy has its own buffers."""
        return _rebuilt, (type(self), {item.name: getattr(self, item.name) for item in fields(self) if item.init})


def _rebuilt(cls: Any, values: dict[str, Any]) -> Any:
    return cls(**values)


@dataclass(frozen=True, kw_only=True, eq=False)
class Listed(Fitted):
    """A projection that lists candidates for each hidden vector and scores them exactly.

    Attributes
    ----------
    weight : float32 array (V, D)
    bias : float32 array (V,)
    """

    weight: np.ndarray = field(repr=False)
    bias: np.ndarray = field(repr=False)

    needs: ClassVar[str] = "weights"
    support: ClassVar[Support] = "active"
    first_stage: ClassVar[str] = ""
    """Name of the matrix that hidden vectors are multiplied by before candidates are listed, if there is one."""

    @classmethod
    def make(cls, model: Model, files: ModelFiles, **options: Any) -> Projection:
        """Fit the projection on a model's output matrix, which takes seconds; the options are those of ``fit``."""
        from fastdecode_lib.projections.exact_compiled import output_matrix

        matrix = output_matrix(model)
        if not matrix.format.is_float:
            raise ValueError(
                f"The projection {cls.name} is fitted on float weights: got an output matrix in {matrix.precision}. Load the "
                "model in float32."
            )
        fit: Any = cls.fit  # type: ignore[attr-defined]
        projection: Projection = fit(matrix.unpacked(), matrix.bias[: matrix.shape[0]], **options)
        return projection

    def __post_init__(self) -> None:
        weight, bias = layer(self.weight, self.bias)
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "bias", bias)

    @property
    def vocabulary(self) -> int:
        """V, the number of rows of the weight."""
        return len(self.weight)

    @property
    def width(self) -> int:
        """D, the length of a hidden vector."""
        return int(self.weight.shape[1])

    @property
    @abstractmethod
    def longest(self) -> int:
        """The largest possible number of active tokens."""

    def active_scores(self, hidden: Any) -> Active:
        """The tokens that are scored exactly for hidden (N, D), and their scores; M is the length of the longest row.

        It allocates `longest` tokens for each row: pass few rows at a time.
        """
        hidden = self._host(hidden)
        rows = len(hidden)
        no_best = np.empty((rows, 0), dtype=np.int64), np.empty((rows, 0), dtype=np.float32)
        ids = np.full((rows, self.longest), self.vocabulary, dtype=np.int64)
        scores, active = np.full(ids.shape, -np.inf, dtype=np.float32), np.zeros(rows, dtype=np.int64)
        asked = NONE, np.empty((rows, 0), dtype=np.int64)
        self._run_kernel(hidden, asked, (*no_best, active, _NO_NUMBERS, np.empty((rows, 0), np.float32), ids, scores))
        most = int(active.max(initial=0))
        order = np.argsort(ids[:, :most], axis=1)
        ids, scores = np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1)
        return Active(np.where(ids == self.vocabulary, -1, ids), scores)

    def _mean_active(self) -> float:
        """Mean number of active tokens, counted with a sample of the weight's rows as hidden vectors."""
        return float(self.top_k(self._sample_queries, 1).num_active.mean())

    @property
    def _sample_queries(self) -> np.ndarray:
        return self.weight[:: -(-self.vocabulary // SAMPLE)]

    @property
    @abstractmethod
    def search_bytes(self) -> float:
        """Mean number of bytes read to find candidates."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weight and of the index."""
        parts = (getattr(self, item.name) for item in fields(self))
        return sum(
            part.memory_bytes if isinstance(part, Matrix) else part.nbytes
            for part in parts
            if isinstance(part, Matrix | np.ndarray)
        )

    def _make_buffers(self, batch: int) -> tuple[Any, ...]:
        """Stored arrays, buffers for a list, and a buffer for the products of a first stage.

        A subclass whose rows are in another order has the token of each in an array `order`.
        """
        stored = self.weight, self.bias, getattr(self, "order", NONE[0])
        listed = scratch(self.vocabulary, self.width, self.longest)
        if not self.first_stage:
            return stored, listed
        return stored, listed, np.empty((batch, getattr(self, self.first_stage).outputs), dtype=np.float32)
