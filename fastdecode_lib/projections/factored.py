"""Output layers of smaller products, SVD-softmax and adaptive softmax; one file because both preview before they score."""

import json
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from fastdecode_lib.core import Model, Projection
from fastdecode_lib.kernels.factored import best_adaptive, best_previewed
from fastdecode_lib.kernels.ids import checked
from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.projections.queries import host, layer, within
from fastdecode_lib.projections.shortlists import Fitted, Listed, Support
from fastdecode_lib.store import ModelFiles, atomic_folder, check_replaceable, read_json, read_tensors

FORMAT, VERSION = "fastdecode-projection", 1
CONTEXTS = 2048
"""Contexts, at most, on which adaptive softmax fits the scores of its tails and counts how often they are opened."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Svd(Listed):
    """SVD-softmax (Shim et al. 2017): approximate scores of all tokens, then exact scores of the best ones.

    With ``weight = U S V'``, hidden vectors are rotated by V'; their first `window` components times the first columns of U S
    are the preview. For the best tokens, the paper adds the other components; here the rows of the weight itself are multiplied,
    which gives the same numbers. Probabilities are over the vocabulary: all other tokens have their preview scores.

    Attributes
    ----------
    window : int
        Singular directions of the preview, at most D.
    full : int
        Tokens scored exactly.
    basis : float32 array (D, D)
        The rows of V', those of the largest singular values first.
    """

    window: int
    full: int
    basis: np.ndarray = field(repr=False)
    _rotation: Matrix = field(init=False, repr=False)
    _preview: Matrix = field(init=False, repr=False)

    name = "svd"
    support: ClassVar[Support] = "vocabulary"

    @classmethod
    def fit(cls, weight: Any, bias: Any = None, *, window: int = 64, full: int | None = None) -> "Svd":
        """Find the singular directions of a weight (V, D); ``dataclasses.replace`` changes the knobs without a new fit.

        By default 512 tokens are scored exactly.
        """
        weight, bias = layer(weight, bias)
        full = min(512, len(weight)) if full is None else full
        doubles = weight.astype(np.float64)
        basis = np.linalg.eigh(doubles.T @ doubles)[1][:, ::-1].T.astype(np.float32)
        return cls(weight=weight, bias=bias, window=window, full=full, basis=basis)

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self.name, "window", self.window, 1, self.width)
        within(self.name, "full", self.full, 1, self.vocabulary)
        rotation = Matrix.of(self.basis[: self.window], name="The SVD's basis")
        object.__setattr__(self, "_rotation", rotation)
        object.__setattr__(self, "_preview", Matrix.of(rotation(self.weight), self.bias, name="The SVD's preview"))

    @property
    def longest(self) -> int:
        """`full`."""
        return self.full

    @property
    def search_bytes(self) -> float:
        """Bytes of the rotation and the preview."""
        return self._rotation.memory_bytes + self._preview.memory_bytes

    def _make_buffers(self, batch: int) -> tuple[Any, ...]:
        stored, listed = super()._make_buffers(batch)
        rotated, previews = (np.empty((batch, m.outputs), np.float32) for m in (self._rotation, self._preview))
        return stored, listed, (rotated, previews)

    def _run_kernel(self, hidden: np.ndarray, asked: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        stored, listed, staged = self._buffers(len(hidden))
        rotation, preview = self._rotation.record, self._preview.record
        best_previewed(hidden, rotation, preview, self.full, *staged, stored, listed, asked, results)


@dataclass(frozen=True, kw_only=True, eq=False)
class Adaptive(Fitted):
    """Adaptive softmax (Grave et al. 2017): frequent tokens in a head, the others in tails of ever narrower products.

    It replaces a trained output layer and is made from it: the head has the rows of the frequent tokens, each tail the best
    low-rank approximation of its rows, and the score of a tail is the linear function of the hidden vector that, on recorded
    contexts, is nearest to the log-sum-exp of the tail's logits. The scores are normalised log-probabilities over the
    vocabulary. The best k are found exactly: a tail is opened only if its probability exceeds that of the k-th best token so far.

    Attributes
    ----------
    head_layer : Matrix (head + T, D)
        Rows of the head's tokens, then one row for each tail.
    down, up : tuple of Matrix
        Factors of each tail: (width / factor^(tail + 1), D) and (tokens, width / factor^(tail + 1)).
    order : int64 array (V,)
        Tokens from frequent to rare.
    visited : float32 array (T,)
        Share of the contexts of `fit` whose best token needed the tail to be opened.
    """

    head_layer: Matrix = field(repr=False)
    down: tuple[Matrix, ...] = field(repr=False)
    up: tuple[Matrix, ...] = field(repr=False)
    order: np.ndarray = field(repr=False)
    visited: np.ndarray = field(repr=False)
    _ranks: np.ndarray = field(init=False, repr=False)
    _starts: np.ndarray = field(init=False, repr=False)
    _records: tuple[np.ndarray, ...] = field(init=False, repr=False)

    name, needs = "adaptive", "file"
    support: ClassVar[Support] = "vocabulary"

    @classmethod
    def make(cls, model: Model, files: ModelFiles, *, file: str | None = None) -> Projection:
        """Load the layer that was made for a model and saved in the folder `file`."""
        if file is None:
            raise ValueError(
                f"The projection {cls.name} needs the folder that it was saved in: got none. Use {cls.name}:file=FOLDER."
            )
        layer, vocabulary = cls.load(Path(file).expanduser()), model.outputs[0].vocabulary
        if layer.vocabulary != vocabulary:
            raise ValueError(
                f"The projection in {file} is another model's: it has {layer.vocabulary} tokens, the model {vocabulary}. Make "
                "one from this model's output layer."
            )
        return layer

    @classmethod
    def fit(
        cls,
        contexts: Any,
        counts: np.ndarray,
        weight: Any,
        bias: Any = None,
        *,
        head: int = 2000,
        tails: int = 2,
        factor: float = 4.0,
    ) -> "Adaptive":
        """Make the layer from an output layer and hidden vectors of its network.

        Parameters
        ----------
        contexts : float array (N, D)
        counts : int array (V,)
            Frequencies of the tokens.
        weight, bias : float array (V, D), (V,)
            The output layer; tails have its bias.
        head : int
            Frequent tokens that are always scored.
        tails : int
            Groups of the other tokens; the sizes of the groups grow by a constant factor.
        factor : float
            Each tail is narrower than the one before by this factor.

        Raises
        ------
        ValueError
            If a number is out of range, or tokens were counted less often than there are in the head.
        """
        contexts, counts = host(contexts), np.asarray(counts)
        weight, bias = layer(weight, bias)
        vocabulary = len(weight)
        within(cls.name, "head", head, 1, vocabulary - 1)
        within(cls.name, "tails", tails, 1, vocabulary - head)
        _check_shapes(contexts, counts, weight, head, tails, factor)
        order = np.argsort(-counts, kind="stable")
        weight, bias = weight[order], bias[order]
        sample = contexts[:: -(-len(contexts) // CONTEXTS)]
        down, up, summaries = _tails(weight, bias, [*_cuts(head, tails, vocabulary), vocabulary], factor, sample)
        rows = np.concatenate([np.concatenate([weight[:head], bias[:head, None]], axis=1), summaries])
        projection = cls(
            head_layer=Matrix.of(rows[:, :-1], rows[:, -1], name="The adaptive head"),
            down=down,
            up=up,
            order=order,
            visited=np.zeros(tails, np.float32),
        )
        return replace(projection, visited=projection._opened_shares(sample))

    def __post_init__(self) -> None:
        order = checked("tokens by frequency", self.order, 0, sum(matrix.shape[0] for matrix in self.up) + self.head)
        fits = len(self.down) == len(self.up) and all(
            down.shape[1] == self.width and up.shape[1] == down.shape[0]
            for down, up in zip(self.down, self.up, strict=True)
        )
        if len(np.unique(order)) != self.vocabulary or not fits:
            raise ValueError(
                f"The parts of adaptive do not fit: got {len(order)} tokens for {self.vocabulary} outputs. Fit again."
            )
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        sizes = [self.head, *(matrix.shape[0] for matrix in self.up)]
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "_ranks", ranks)
        object.__setattr__(self, "_starts", np.cumsum(sizes))
        records = tuple(np.stack([matrix.record for matrix in part]) for part in (self.down, self.up))
        object.__setattr__(self, "_records", (self.head_layer.record, *records))

    @property
    def head(self) -> int:
        """Frequent tokens, which are always scored."""
        return self.head_layer.shape[0] - len(self.up)

    @property
    def vocabulary(self) -> int:
        """V."""
        return self.head + sum(matrix.shape[0] for matrix in self.up)

    @property
    def width(self) -> int:
        """D."""
        return self.head_layer.shape[1]

    @property
    def memory_bytes(self) -> int:
        """Bytes of head, tails and the order of tokens."""
        packed = sum(matrix.memory_bytes for matrix in (self.head_layer, *self.down, *self.up))
        return packed + self.order.nbytes + self._ranks.nbytes

    @property
    def bytes_per_query(self) -> int:
        """Bytes of the head, and of each tail times the share of the contexts of `fit` that opened it."""
        pairs = zip(self.down, self.up, self.visited, strict=True)
        tails = sum((down.memory_bytes + up.memory_bytes) * float(share) for down, up, share in pairs)
        return round(self.head_layer.memory_bytes + tails)

    def _make_buffers(self, batch: int) -> tuple[Any, ...]:
        inner, tails = (max(matrix.outputs for matrix in part) for part in (self.down, self.up))
        columns = self.head_layer.outputs, self.width, inner, tails
        products = (np.empty((batch, count), np.float32) for count in columns)
        opened = np.zeros(len(self.up), dtype=np.int64)
        return *products, np.empty((2, batch), np.int64), opened

    def _run_kernel(self, hidden: np.ndarray, asked: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        places = self._starts, self.order, self._ranks
        best_adaptive(hidden, *self._records, *places, *self._buffers(len(hidden)), asked, results)

    def _opened_shares(self, contexts: np.ndarray) -> np.ndarray:
        """The share of contexts (N, D) whose best token needs each tail (T,) to be opened."""
        opened = self._buffers(len(contexts))[-1]
        opened[:] = 0
        self.top_k(contexts, 1)
        return (opened / len(contexts)).astype(np.float32)

    def save(self, folder: str | Path) -> None:
        """Write ``projection.json`` and ``projection.safetensors`` to a folder, whole or not at all."""
        from safetensors.numpy import save_file

        content = {"format": FORMAT, "version": VERSION, "name": self.name, "knobs": {"fingerprint": self.fingerprint}}
        tensors = {"order": self.order, "visited": self.visited} | _of_matrix("head_layer", self.head_layer)
        for number, (down, up) in enumerate(zip(self.down, self.up, strict=True)):
            tensors |= _of_matrix(f"down{number}", down) | _of_matrix(f"up{number}", up)
        with atomic_folder(check_replaceable(folder, "projection.json")) as temporary:
            (temporary / "projection.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            save_file(tensors, temporary / "projection.safetensors")

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The inverse of `save`.

        Raises
        ------
        ValueError
            If the folder holds no projection, one of another class, or a damaged one.
        """
        again = "Fit and save it again."
        content = read_json(Path(folder, "projection.json"), again=again)
        tensors, _ = read_tensors(Path(folder, "projection.safetensors"), again=again)
        try:
            header, knobs = (content["format"], content["version"], content["name"]), content["knobs"]
        except KeyError as error:
            raise ValueError(f"{folder} is no saved projection: it lacks {error}. {again}") from error
        if header != (FORMAT, VERSION, cls.name):
            raise ValueError(
                f"{folder} holds another projection: got {header}, expected {(FORMAT, VERSION, cls.name)}. Give the folder of one."
            )
        try:
            visited, order = tensors["visited"], tensors["order"]
            down, up = (
                tuple(_to_matrix(f"{part}{number}", tensors) for number in range(len(visited)))
                for part in ("down", "up")
            )
            head_layer = _to_matrix("head_layer", tensors)
            return cls(head_layer=head_layer, down=down, up=up, order=order, visited=visited, **knobs)
        except (KeyError, TypeError, IndexError, RuntimeError) as error:
            raise ValueError(f"The projection in {folder} is damaged: got {error!r}. {again}") from error


def _of_matrix(name: str, matrix: Matrix) -> dict[str, np.ndarray]:
    """The weight (N, K) and bias (N,) that a float32 matrix was packed from."""
    return {f"{name}.weight": matrix.unpacked(), f"{name}.bias": matrix.bias[: matrix.shape[0]].copy()}


def _to_matrix(name: str, tensors: dict[str, np.ndarray]) -> Matrix:
    """The inverse of `_of_matrix`."""
    return Matrix.of(tensors[f"{name}.weight"], tensors[f"{name}.bias"], name=name)


def _check_shapes(
    contexts: np.ndarray, counts: np.ndarray, weight: np.ndarray, head: int, tails: int, factor: float
) -> None:
    """Check that the arguments of `Adaptive.fit` fit each other."""
    vocabulary, width = weight.shape
    if contexts.ndim != 2 or contexts.shape[1] != width or not len(contexts):
        raise ValueError(
            f"adaptive needs contexts (N, {width}) for an output layer of {weight.shape}: got {contexts.shape}. Give those that "
            "were recorded with it."
        )
    if not factor >= 1:
        raise ValueError(f"adaptive needs factor >= 1, got {factor:g}. Choose a number in this range.")
    if width < factor**tails:
        raise ValueError(
            f"adaptive narrows {width} columns by {factor:g} for each tail: got {tails} tails, the last without a "
            "column. Use fewer tails or a smaller factor."
        )
    if counts.shape != (vocabulary,):
        raise ValueError(f"adaptive counts {vocabulary} tokens: got counts {counts.shape}. Give one for each token.")
    if counts.sum() < head:
        raise ValueError(
            f"adaptive counts tokens to find the {head} frequent ones of its head: got {counts.sum()} counted. Count "
            "more, or use a smaller head."
        )
    if not np.isfinite(contexts).all():
        raise ValueError("Contexts must be finite: got NaN or infinity. Record them again.")


def _cuts(head: int, tails: int, vocabulary: int) -> list[int]:
    """The rank of the first token of each tail; the lengths of head and tails grow by a constant factor."""
    cuts = [round(head * (vocabulary / head) ** (tail / tails)) for tail in range(tails)]
    for tail in range(1, tails):
        cuts[tail] = min(max(cuts[tail], cuts[tail - 1] + 1), vocabulary - tails + tail)
    return cuts


def _tails(
    weight: np.ndarray, bias: np.ndarray, cuts: list[int], factor: float, sample: np.ndarray
) -> tuple[tuple[Matrix, ...], tuple[Matrix, ...], np.ndarray]:
    """The two factors of each tail between two cuts of an output layer in order of rank, and the rows (T, D + 1) of their heads."""
    augmented = np.concatenate([sample, np.ones((len(sample), 1), np.float32)], axis=1)
    down, up, summaries = [], [], []
    for tail, (first, end) in enumerate(pairwise(cuts), 1):
        rows, constants = weight[first:end], bias[first:end]
        left, sizes, right = np.linalg.svd(rows, full_matrices=False)
        rank = int(weight.shape[1] // factor**tail)
        down.append(Matrix.of(right[:rank], name="An adaptive tail"))
        up.append(Matrix.of(left[:, :rank] * sizes[:rank], constants, name="An adaptive tail"))
        log_sums = np.logaddexp.reduce(sample @ rows.T + constants, axis=1)
        summaries.append(np.linalg.lstsq(augmented, log_sums, rcond=None)[0])
    return tuple(down), tuple(up), np.stack(summaries)
