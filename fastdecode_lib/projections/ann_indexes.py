"""Candidates from a library's index: FGD's graph and ScaNN."""

import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from fastdecode_lib.core import optional
from fastdecode_lib.kernels.listed import best_listed
from fastdecode_lib.projections.mips import lengthened
from fastdecode_lib.projections.queries import layer, within
from fastdecode_lib.projections.shortlists import Listed


@dataclass(frozen=True, kw_only=True, eq=False)
class Fgd(Listed):
    """FGD (Zhang et al. 2018): candidates are the neighbours that a walk through a small-world graph of the rows meets.

    If the lengths of rows differ much, as those of tied embeddings do, no link leads to some rows, and no walk finds them,
    however broad: of the bundled model's 16,000 rows, 755 with 16 links, 216 with 32, 12 with 64 and none with 128. With 16 and
    with 32 links, the end of the sentence is among them. The default knobs keep 98 of 100 greedy outputs of that model (dev split).

    Attributes
    ----------
    neighbours : int
        Candidates.
    search : int
        Breadth of the walk (the library's ef), at least `neighbours`.
    links : int
        Neighbours of a row in the graph, M; twice as many on the lowest level.
    index : faiss.IndexHNSWFlat
        Index of the rows, which are lengthened for Euclidean distance.
    always : tuple of int
        Further candidates of every hidden vector; none by default.
    """

    neighbours: int
    search: int
    links: int
    index: Any = field(repr=False)
    always: tuple[int, ...] = ()

    name = "fgd"

    @classmethod
    def fit(
        cls,
        weight: Any,
        bias: Any = None,
        *,
        neighbours: int = 64,
        search: int = 1024,
        links: int = 128,
        construction: int = 64,
    ) -> Self:
        """Build the graph of a weight (V, D), on one thread, so that every build gives the same graph.

        ``dataclasses.replace`` changes `neighbours` and `search` without a new build.

        Parameters
        ----------
        construction : int
            Breadth of the walks that find the links of a new row.

        Raises
        ------
        ValueError
            If a number is out of range.
        """
        weight, bias = layer(weight, bias)
        within(cls.name, "links", links, 2, 512)
        within(cls.name, "construction", construction, 1, 100_000)
        rows = lengthened(weight, bias)
        from threadpoolctl import threadpool_limits

        index = _faiss().IndexHNSWFlat(rows.shape[1], links)
        index.hnsw.efConstruction, index.keep_max_size_level0 = construction, True
        with threadpool_limits(1, user_api="openmp"):
            index.add(rows)
        knobs: dict[str, Any] = {"neighbours": neighbours, "search": search, "links": links}
        return cls(weight=weight, bias=bias, index=index, **knobs)

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self.name, "neighbours", self.neighbours, 1, self.vocabulary)
        within(self.name, "search", self.search, 1, 2**31 - 1)

    @property
    def longest(self) -> int:
        """`neighbours`, and those that are always candidates."""
        return self.neighbours + len(self.always)

    @cached_property
    def _visited_rows(self) -> float:
        """Mean number of rows that a walk compares, as faiss counts them, over a sample of the weight's rows as queries."""
        counts = _faiss().cvar.hnsw_stats
        counts.reset()
        self._mean_active()
        return float(counts.ndis / len(self._sample_queries))

    @property
    def search_bytes(self) -> float:
        """Bytes of the rows that the walk compares, and of their ids in the lists of links."""
        return self._visited_rows * 4 * (self.width + 3)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weight, and of the graph: its own copy of the rows, and the links of the lowest level."""
        return self.weight.nbytes + self.bias.nbytes + 4 * self.vocabulary * (self.width + 2 + 2 * self.links)

    @cached_property
    def _parameters(self) -> Any:
        return _faiss().SearchParametersHNSW(efSearch=max(self.search, self.neighbours))

    def _nearest(self, queries: np.ndarray) -> np.ndarray:
        """Rows (N, neighbours) nearest to queries (N, D + 2), int64, padded with -1 if fewer are found."""
        pointer, k = _faiss().swig_ptr, self.neighbours
        rows, distances = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        self.index.search_c(len(queries), pointer(queries), k, pointer(distances), pointer(rows), self._parameters)
        return rows

    def _run_kernel(self, hidden: np.ndarray, asked: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        queries = np.empty((len(hidden), self.width + 2), dtype=np.float32)
        queries[:, :-2], queries[:, -2], queries[:, -1] = hidden, 1, 0
        found = self._nearest(queries)
        if self.always:
            missing = [np.where((found == token).any(1), -1, token) for token in self.always]
            found = np.column_stack([found, *missing])
        best_listed(hidden, found, *self._buffers(len(hidden)), asked, results)


@dataclass(frozen=True, kw_only=True, eq=False)
class Scann(Listed):
    """ScaNN (Guo et al. 2020): a tree of clusters and products with coarsely quantised rows; an optional package.

    Each row is in two leaves; the second one makes up for the errors of the first (SOAR, Sun et al. 2023). In this way, 16 of 100
    leaves hold 99.9% of the best rows of a small language model; if each row is in one leaf, 20 leaves hold 97%. Each hidden
    vector is searched for by itself, because ScaNN's batched search can give other candidates than its single search.

    Attributes
    ----------
    neighbours : int
        Candidates.
    probes : int
        Leaves that are searched.
    leaves : int
        Leaves of the tree.
    copies : int
        Leaves that a row is in: 2 if `fit` made the index.
    index : scann.ScannSearcher
        Index of the rows (weight, bias).
    """

    neighbours: int = 64
    probes: int = 10
    leaves: int = 100
    copies: int = 1
    index: Any = field(repr=False)

    name = "scann"

    @classmethod
    def fit(
        cls,
        weight: Any,
        bias: Any = None,
        *,
        neighbours: int = 64,
        probes: int = 10,
        leaves: int = 100,
    ) -> Self:
        """Index a weight (V, D). The clusters are drawn at random: two indexes of the same weight differ.

        Raises
        ------
        ValueError
            If a number is out of range, there are fewer than 16 tokens, or scann is not installed.
        """
        weight, bias = layer(weight, bias)
        within(cls.name, "leaves", leaves, 1, len(weight))
        if len(weight) < 16:
            raise ValueError(f"scann needs 16 tokens at least: got {len(weight)}. Use another projection.")
        rows = np.concatenate([weight, bias[:, None]], axis=1)
        builder = _scann().builder(rows, neighbours, "dot_product").set_n_training_threads(1)
        tree = builder.tree(leaves, min(probes, leaves), training_sample_size=len(rows), soar_lambda=1.5)
        index = tree.score_ah(2, anisotropic_quantization_threshold=0.2).build()
        knobs: dict[str, Any] = {"neighbours": neighbours, "probes": probes, "leaves": leaves, "copies": 2}
        return cls(weight=weight, bias=bias, index=index, **knobs)

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self.name, "neighbours", self.neighbours, 1, self.vocabulary)
        within(self.name, "probes", self.probes, 1, self.leaves)
        within(self.name, "copies", self.copies, 1, 2)

    @property
    def longest(self) -> int:
        """`neighbours`."""
        return self.neighbours

    @property
    def _probed_rows(self) -> float:
        """Mean number of rows in the leaves that are searched."""
        return self.copies * self.vocabulary * self.probes / self.leaves

    @property
    def search_bytes(self) -> float:
        """Bytes of the leaves' centres, and half a byte for every two columns of the rows in the leaves searched."""
        return 4 * self.leaves * (self.width + 1) + self._probed_rows * (self.width + 1) / 4

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weight, and of the index as ScaNN writes it."""
        with tempfile.TemporaryDirectory() as folder:
            self.index.serialize(folder, relative_path=True)
            return super().memory_bytes + sum(file.stat().st_size for file in Path(folder).iterdir())

    def _run_kernel(self, hidden: np.ndarray, asked: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        lists = np.full((len(hidden), self.neighbours), -1, dtype=np.int64)
        queries = np.concatenate([hidden, np.ones((len(hidden), 1), np.float32)], axis=1)
        for row, query in enumerate(queries):
            tokens, products = self.index.search(query, self.neighbours, leaves_to_search=self.probes)
            tokens = tokens[~np.isnan(products)]
            lists[row, : len(tokens)] = tokens
        best_listed(hidden, lists, *self._buffers(len(hidden)), asked, results)


def _faiss() -> Any:
    return optional("faiss", "projections")


def _scann() -> Any:
    return optional("scann", "baselines").scann_ops_pybind
