"""Projections that score a part of the vocabulary exactly; one file because a subclass inherits files, room and calls."""

import json
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from fastdecode_lib.core import Candidates, Model, OfAnySource, Projection
from fastdecode_lib.kernels.listed import scratch
from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.projections.queries import NONE, check_width, checked_query, checked_wanted, host, layer, plain
from fastdecode_lib.store import ModelFiles, atomic_folder, check_replaceable, read_json, read_tensors

Support = Literal["vocabulary", "active"]
FORMAT, VERSION = "fastdecode-projection", 1
ROWS = 32
"""Hidden vectors that go through a first stage together."""
SAMPLE = 256
"""Rows of the weight, at most, that serve as hidden vectors where an average is counted."""
_NO_SCORES = np.zeros((0, 0), dtype=np.float32)
_NO_IDS = np.zeros((0, 0), dtype=np.int64)
_NO_NUMBERS = np.zeros(0)


class Active(NamedTuple):
    """The tokens that were scored exactly, ids (N, M) ascending within a row, and their scores; -1 and -inf at the end."""

    ids: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted(OfAnySource, ABC):
    """A projection made by ``fit``: its arrays and knobs never change, and it can be kept in a folder.

    Attributes
    ----------
    fingerprint : str
        Of the model it was fitted on; the caller's to give and to compare.
    """

    fingerprint: str = ""
    _rooms: Any = field(default_factory=threading.local, init=False, repr=False)

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
    def longest(self) -> int:
        """The most tokens that can be active."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""

    @abstractmethod
    def _answer(self, hidden: np.ndarray, asked: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        """Fill the results of `kernels.listed` for hidden (N, D)."""

    @abstractmethod
    def _make_room(self, together: int) -> tuple[Any, ...]:
        """Buffers that `_answer` writes in, for so many rows at a time."""

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best active tokens of hidden (N, D); the normaliser counts banned ones."""
        hidden = self._host(hidden)
        rows = len(hidden)
        refused = checked_query(k, banned, rows, self.vocabulary)
        ids, scores = np.empty((rows, k), dtype=np.int64), np.empty((rows, k), dtype=np.float32)
        active, log_normaliser = np.empty(rows, dtype=np.int64), np.empty(rows if normalise else 0)
        results = ids, scores, active, log_normaliser, _NO_SCORES, _NO_IDS, _NO_SCORES
        self._answer(hidden, (refused, np.empty((rows, 0), dtype=np.int64)), results)
        return Candidates(ids, scores, active, log_normaliser if normalise else None, self.support)

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M); -inf where they are shares of the active tokens and an id is not one."""
        hidden = self._host(hidden)
        rows = len(hidden)
        ids = checked_wanted(ids, rows, self.vocabulary)
        found = np.empty(ids.shape, dtype=np.float32)
        best = np.empty((rows, 0), dtype=np.int64), np.empty((rows, 0), dtype=np.float32)
        self._answer(hidden, (NONE, ids), (*best, np.empty(rows, np.int64), _NO_NUMBERS, found, _NO_IDS, _NO_SCORES))
        return found

    def active_scores(self, hidden: Any) -> Active:
        """The tokens of hidden (N, D) that are scored exactly, and their scores; M is the longest row's number.

        Needs room for `longest` tokens a row: give it some rows at a time.
        """
        hidden = self._host(hidden)
        rows = len(hidden)
        best = np.empty((rows, 0), dtype=np.int64), np.empty((rows, 0), dtype=np.float32)
        ids = np.full((rows, self.longest), self.vocabulary, dtype=np.int64)
        scores, active = np.full(ids.shape, -np.inf, dtype=np.float32), np.zeros(rows, dtype=np.int64)
        asked = NONE, np.empty((rows, 0), dtype=np.int64)
        self._answer(hidden, asked, (*best, active, _NO_NUMBERS, np.empty((rows, 0), np.float32), ids, scores))
        most = int(active.max(initial=0))
        order = np.argsort(ids[:, :most], axis=1)
        ids, scores = np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1)
        return Active(np.where(ids == self.vocabulary, -1, ids), scores)

    def _host(self, hidden: Any) -> np.ndarray:
        """Hidden vectors as the kernels read them."""
        if not isinstance(hidden, np.ndarray):
            hidden = host(hidden)
        check_width(hidden, self.width)
        return hidden if hidden.dtype == np.float32 and hidden.flags.carray else plain(hidden, np.float32)

    def _room(self, rows: int) -> tuple[Any, ...]:
        """Room for up to `ROWS` rows at a time; each thread has its own."""
        made = getattr(self._rooms, "made", None)
        if made is None or made[0] < min(rows, ROWS):
            together = min(max(rows, 1), ROWS)
            made = together, self._make_room(together)
            self._rooms.made = made
        return made[1]

    def __reduce__(self) -> Any:
        """A copy has room of its own."""
        return _again, (type(self), {item.name: getattr(self, item.name) for item in fields(self) if item.init})

    # --------------------------------------------------------------------------------------------------------- files

    def save(self, folder: str | Path) -> None:
        """Write ``projection.json`` and ``projection.safetensors`` to a folder, whole or not at all."""
        from safetensors.numpy import save_file

        knobs = {item.name: getattr(self, item.name) for item in fields(self) if item.init and item.repr}
        about = {"format": FORMAT, "version": VERSION, "name": self.name, "knobs": knobs}
        with atomic_folder(check_replaceable(folder, "projection.json")) as temporary:
            (temporary / "projection.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            save_file(self._tensors(), temporary / "projection.safetensors")

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The inverse of `save`.

        Raises
        ------
        ValueError
            If the folder holds no such projection, another one, or a damaged one.
        """
        again = "Fit and save it again."
        about = read_json(Path(folder, "projection.json"), again=again)
        tensors, _ = read_tensors(Path(folder, "projection.safetensors"), again=again)
        try:
            found, knobs = (about["format"], about["version"], about["name"]), about["knobs"]
        except KeyError as error:
            raise ValueError(f"{folder} is no saved projection: it lacks {error}. {again}") from error
        if found != (FORMAT, VERSION, cls.name):
            raise ValueError(
                f"{folder} holds another projection: got {found}, expected {(FORMAT, VERSION, cls.name)}. Load it with its own "
                "class."
            )
        try:
            return cls._restored(tensors, knobs)
        except (KeyError, TypeError, IndexError, RuntimeError) as error:
            raise ValueError(f"The projection in {folder} is damaged: got {error!r}. {again}") from error

    def _tensors(self) -> dict[str, np.ndarray]:
        """All arrays by name; a matrix as its weight and its bias."""
        tensors = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.init and isinstance(value, np.ndarray):
                tensors[item.name] = np.ascontiguousarray(value)
            elif item.init and isinstance(value, Matrix):
                tensors |= of_matrix(item.name, value)
        return tensors

    @classmethod
    def _restored(cls, tensors: dict[str, np.ndarray], knobs: dict[str, Any]) -> Self:
        """From `_tensors` and the knobs."""
        arrays: dict[str, Any] = {name: value for name, value in tensors.items() if "." not in name}
        matrices: dict[str, Any] = {
            name: to_matrix(name, tensors) for name in {n.split(".")[0] for n in tensors if "." in n}
        }
        return cls(**(arrays | matrices | knobs))


def _again(cls: Any, values: dict[str, Any]) -> Any:
    return cls(**values)


@dataclass(frozen=True, kw_only=True, eq=False)
class Listed(Fitted):
    """A projection that scores a list of candidates exactly, a list of its own for every hidden vector.

    Attributes
    ----------
    weight : float32 array (V, D)
    bias : float32 array (V,)
    """

    weight: np.ndarray = field(repr=False)
    bias: np.ndarray = field(repr=False)

    needs: ClassVar[str] = "weights"
    support: ClassVar[Support] = "active"

    @classmethod
    def make(cls, model: Model, files: ModelFiles, **options: Any) -> Projection:
        """The projection fitted here and now on a model's output matrix, which takes seconds; the options are those of ``fit``."""
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

    def _counted(self) -> float:
        """Active tokens on average, counted on some rows of the weight taken as hidden vectors."""
        return float(self.top_k(self._sample, 1).num_active.mean())

    @property
    def _sample(self) -> np.ndarray:
        return self.weight[:: -(-self.vocabulary // SAMPLE)]

    @property
    @abstractmethod
    def search_bytes(self) -> float:
        """Bytes read for finding candidates, on average."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weight and of what is searched."""
        return sum(tensor.nbytes for tensor in self._tensors().values())

    @property
    def _order(self) -> np.ndarray:
        """The token of each row of the weight; empty where row and token are the same."""
        return NONE[0]

    @property
    def _first(self) -> Matrix | None:
        """The matrix of the first stage, if there is one."""
        return None

    def _make_room(self, together: int) -> tuple[Any, ...]:
        """Stored arrays, room for a list, and for the products of a first stage."""
        stored, listed = (self.weight, self.bias, self._order), scratch(self.vocabulary, self.width, self.longest)
        if self._first is None:
            return stored, listed
        products = np.empty((together, self._first.outputs), dtype=np.float32)
        return stored, listed, products


def of_matrix(name: str, matrix: Matrix) -> dict[str, np.ndarray]:
    """The weight (N, K) and bias (N,) that a float32 matrix was packed from."""
    return {f"{name}.weight": matrix.unpacked(), f"{name}.bias": matrix.bias[: matrix.shape[0]].copy()}


def to_matrix(name: str, tensors: dict[str, np.ndarray]) -> Matrix:
    """The inverse of `of_matrix`."""
    return Matrix.of(tensors[f"{name}.weight"], tensors[f"{name}.bias"], name=name)
