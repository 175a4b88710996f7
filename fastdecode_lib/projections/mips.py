"""Candidates by maximum inner product search, Chen et al.'s rivals; one file because they differ only in how they list rows.

A token's score is the inner product of (weight, bias) with (hidden, 1). Methods for distances lengthen each row by one more
column, ``sqrt(U^2 - |row|^2)`` with the length U of the longest row, and queries by 0: then the nearest row has the highest
score. All methods score their candidates exactly; probabilities are normalised over the candidates.

The default knobs keep more than 8 of 10 greedy outputs of the bundled model ``tatoeba-small`` (100 sentences of the dev split each,
en-de, fr-en and en-es); other models need others.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.kernels.search import best_greedy, best_hashed, best_in_clusters, best_in_tree
from fastdecode_lib.projections.kmeans import kmeans
from fastdecode_lib.projections.queries import layer, within
from fastdecode_lib.projections.shortlists import Listed


@dataclass(frozen=True, kw_only=True, eq=False)
class GreedyMips(Listed):
    """Greedy-MIPS (Yu et al. 2017): the rows with the largest single products ``hidden[d] * weight[i, d]``.

    Attributes
    ----------
    budget : int
        Candidates.
    entries, members : float32 and int32 arrays (D + 1, V)
        Each column of (weight, bias) in descending order, and the tokens of its entries.
    """

    budget: int
    entries: np.ndarray = field(repr=False)
    members: np.ndarray = field(repr=False)

    name = "greedy_mips"

    @classmethod
    def fit(cls, weight: Any, bias: Any = None, *, budget: int | None = None) -> Self:
        """Sort the columns of a weight (V, D); ``dataclasses.replace`` changes the budget without a new fit.

        The default budget is four fifths of the tokens.
        """
        weight, bias = layer(weight, bias)
        budget = max(1, len(weight) * 4 // 5) if budget is None else budget
        columns = np.ascontiguousarray(np.concatenate([weight, bias[:, None]], axis=1).T)
        members = np.argsort(-columns, axis=1, kind="stable").astype(np.int32)
        entries = np.take_along_axis(columns, members, axis=1)
        return cls(weight=weight, bias=bias, budget=budget, entries=entries, members=members)

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self.name, "budget", self.budget, 1, self.vocabulary)

    @property
    def longest(self) -> int:
        """`budget`."""
        return self.budget

    @property
    def search_bytes(self) -> float:
        """Bytes of entry and token of each column's first product and of one product for each candidate: the least possible."""
        return 8 * (self.width + 1 + self.budget)

    def _make_buffers(self, batch: int) -> tuple[Any, ...]:
        columns = self.width + 1
        heap = np.empty(columns, np.float32), np.empty(columns, np.int64), np.empty(columns, np.int64)
        return *super()._make_buffers(batch), heap

    def _run_kernel(self, hidden: np.ndarray, asked: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        stored, listed, heap = self._buffers(len(hidden))
        best_greedy(hidden, self.entries, self.members, self.budget, heap, stored, listed, asked, results)


@dataclass(frozen=True, kw_only=True, eq=False)
class LshMips(Listed):
    """LSH-MIPS (Neyshabur & Srebro 2015, simple-LSH): rows on the same side of random planes as the hidden vector.

    Attributes
    ----------
    planes : Matrix (tables * bits, D)
        Normals, with the bias column as constant.
    offsets : int64 array (tables, 2^bits + 1)
        Where the buckets of each table begin.
    members : int32 array (tables, V)
        Tokens by bucket.
    """

    planes: Matrix = field(repr=False)
    offsets: np.ndarray = field(repr=False)
    members: np.ndarray = field(repr=False)

    name, first_stage = "lsh_mips", "planes"

    @classmethod
    def fit(cls, weight: Any, bias: Any = None, *, tables: int = 96, bits: int = 5, seed: int = 0) -> Self:
        """Hash a weight (V, D) into `tables` of 2^`bits` buckets each; with 0 bits, every token is a candidate."""
        weight, bias = layer(weight, bias)
        within(cls.name, "tables", tables, 1, 4096)
        within(cls.name, "bits", bits, 0, 20)
        rows = lengthened(weight, bias)
        normals = np.random.default_rng(seed).standard_normal((tables * bits, rows.shape[1]), dtype=np.float32)
        offsets = np.zeros((tables, 2**bits + 1), dtype=np.int64)
        members = np.empty((tables, len(rows)), dtype=np.int32)
        for table in range(tables):
            sides = rows @ normals[table * bits : table * bits + bits].T >= 0
            buckets = sides @ (1 << np.arange(bits))
            members[table] = np.argsort(buckets, kind="stable")
            offsets[table, 1:] = np.cumsum(np.bincount(buckets, minlength=2**bits))
        planes = _matrix(normals, weight.shape[1])
        return cls(weight=weight, bias=bias, planes=planes, offsets=offsets, members=members)

    @property
    def longest(self) -> int:
        """The size of the largest buckets of all tables together, V at most."""
        return int(min(self.vocabulary, np.diff(self.offsets).max(1).sum()))

    @cached_property
    def candidates(self) -> float:
        """Mean number of candidates, counted with a sample of the weight's rows as hidden vectors."""
        return self._mean_active()

    @property
    def search_bytes(self) -> float:
        """Bytes of all planes, and for each table two offsets and the tokens between them."""
        return self.planes.memory_bytes + 16 * len(self.offsets) + 4 * self.candidates

    def _run_kernel(self, hidden: np.ndarray, asked: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        stored, listed, sides = self._buffers(len(hidden))
        planes = self.planes.record
        best_hashed(hidden, planes, self.offsets, self.members, sides, stored, listed, asked, results)


@dataclass(frozen=True, kw_only=True, eq=False)
class PcaMips(Listed):
    """PCA-MIPS (Bachrach et al. 2014): a tree that halves the rows at the median of one principal direction for each level.

    The rows are stored leaf by leaf. Hidden vectors are scaled to the length U of the rows, which changes no order.

    Attributes
    ----------
    detours : bool
        Whether to visit also the leaves that differ from the hidden vector's path in one turn.
    directions : Matrix (depth, D)
        Principal directions, with the bias column as constant.
    cuts : float32 array (2^depth - 1,)
        Medians, level by level.
    centre : float32 array (depth,)
        Projections of the rows' mean.
    offsets : int64 array (2^depth + 1,)
        Where each leaf begins.
    order : int64 array (V,)
        The token of each row.
    """

    detours: bool
    directions: Matrix = field(repr=False)
    cuts: np.ndarray = field(repr=False)
    centre: np.ndarray = field(repr=False)
    offsets: np.ndarray = field(repr=False)
    order: np.ndarray = field(repr=False)

    name, first_stage = "pca_mips", "directions"

    @classmethod
    def fit(cls, weight: Any, bias: Any = None, *, depth: int = 2, detours: bool = True) -> Self:
        """Build a tree over a weight (V, D) with 2^`depth` leaves."""
        weight, bias = layer(weight, bias)
        most = min(len(weight).bit_length() - 1, weight.shape[1] + 2)
        within(cls.name, "depth", depth, 0, most)
        rows = lengthened(weight, bias)
        mean = rows.mean(0, dtype=np.float64)
        centred = rows - mean
        spread = centred.T @ centred / len(rows)  # np.cov of a single row is a number before numpy 2.2
        directions = np.linalg.eigh(spread)[1].T[::-1][:depth]
        projections, leaves, cuts = centred @ directions.T, [np.arange(len(rows))], []
        for level in range(depth):
            halves = []
            for leaf in leaves:
                leaf = leaf[np.argsort(projections[leaf, level], kind="stable")]
                middle = len(leaf) // 2
                cuts.append(projections[leaf[middle - 1 : middle + 1], level].mean())
                halves += [np.sort(leaf[:middle]), np.sort(leaf[middle:])]
            leaves = halves
        order = np.concatenate(leaves)
        return cls(
            weight=weight[order],
            bias=bias[order],
            detours=detours,
            directions=_matrix(directions, weight.shape[1]),
            cuts=np.array(cuts, dtype=np.float32),
            centre=(directions @ mean).astype(np.float32),
            offsets=np.cumsum([0, *map(len, leaves)]),
            order=order,
        )

    @property
    def longest(self) -> int:
        """The size of the largest leaf times the number of leaves visited, V at most."""
        return int(min(self.vocabulary, self._leaves_visited * np.diff(self.offsets).max()))

    @property
    def _leaves_visited(self) -> int:
        return 1 + self.detours * len(self.centre)

    @property
    def search_bytes(self) -> float:
        """Bytes of the directions and of a cut for each level."""
        return self.directions.memory_bytes + 4 * len(self.centre) * self._leaves_visited

    def _make_buffers(self, batch: int) -> tuple[Any, ...]:
        return float(np.sqrt(_squares(self.weight, self.bias).max())), *super()._make_buffers(batch)

    def _run_kernel(self, hidden: np.ndarray, asked: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        radius, stored, listed, projections = self._buffers(len(hidden))
        tree = self.directions.record, self.cuts, self.centre, radius, self.detours, self.offsets
        best_in_tree(hidden, *tree, projections, stored, listed, asked, results)


@dataclass(frozen=True, kw_only=True, eq=False)
class RowClusters(Listed):
    """Clusters of the rows by spherical k-means; the clusters with the best mean score are searched.

    Large biases would separate rows with the same direction; therefore the weight is clustered without them. The mean row of a
    cluster includes the bias: its product with a hidden vector is the mean score of the cluster's tokens. The rows are stored
    cluster by cluster, so that a cluster is read as one stretch of memory.

    Attributes
    ----------
    probes : int
        Clusters that are searched.
    centroids : Matrix (C, D)
        Mean rows, with the mean bias as constant.
    offsets : int64 array (C + 1,)
        Where each cluster begins.
    order : int64 array (V,)
        The token of each row.
    """

    probes: int
    centroids: Matrix = field(repr=False)
    offsets: np.ndarray = field(repr=False)
    order: np.ndarray = field(repr=False)

    name, first_stage = "row_clusters", "centroids"

    @classmethod
    def fit(
        cls,
        weight: Any,
        bias: Any = None,
        *,
        clusters: int | None = None,
        probes: int | None = None,
        iterations: int = 20,
        seed: int = 0,
    ) -> Self:
        """Cluster the rows of a weight (V, D); ``dataclasses.replace`` changes the probes without a new fit.

        By default there are 512 clusters, and a quarter of them are searched.
        """
        weight, bias = layer(weight, bias)
        clusters = min(512, len(weight)) if clusters is None else clusters
        within(cls.name, "clusters", clusters, 1, len(weight))
        probes = max(1, clusters // 4) if probes is None else probes
        within(cls.name, "probes", probes, 1, clusters)
        directions = kmeans(weight, clusters, iterations=iterations, seed=seed, spherical=True)
        nearest = Matrix.of(directions)(weight).argmax(1)
        order, sizes = np.argsort(nearest, kind="stable"), np.bincount(nearest)
        sizes = sizes[sizes > 0]
        offsets = np.cumsum([0, *sizes])
        rows = np.concatenate([weight, bias[:, None]], axis=1)[order]
        means = np.add.reduceat(rows, offsets[:-1], dtype=np.float64) / sizes[:, None]
        return cls(
            weight=weight[order],
            bias=bias[order],
            probes=min(probes, len(sizes)),
            centroids=_matrix(means, weight.shape[1]),
            offsets=offsets,
            order=order,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self.name, "probes", self.probes, 1, self.centroids.shape[0])

    @property
    def longest(self) -> int:
        """The size of the `probes` largest clusters together."""
        return int(np.sort(np.diff(self.offsets))[-self.probes :].sum())

    @property
    def search_bytes(self) -> float:
        """Bytes of all centroids."""
        return self.centroids.memory_bytes

    def _make_buffers(self, batch: int) -> tuple[Any, ...]:
        probed = np.empty(self.probes, np.int64), np.empty(self.probes, np.float32)
        return probed, *super()._make_buffers(batch)

    def _run_kernel(self, hidden: np.ndarray, asked: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        probed, stored, listed, products = self._buffers(len(hidden))
        clusters = self.centroids.record, self.probes, self.offsets, probed
        best_in_clusters(hidden, *clusters, products, stored, listed, asked, results)


def lengthened(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Rows (weight, bias, ``sqrt(U^2 - |weight|^2 - bias^2)``), all of length U; float32 (V, D + 2)."""
    squares = _squares(weight, bias)
    missing = np.sqrt(squares.max() - squares)
    return np.concatenate([weight, bias[:, None], missing[:, None]], axis=1, dtype=np.float32)


def _squares(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The squared lengths (V,) of rows (weight, bias), float64."""
    squares: np.ndarray = (weight.astype(np.float64) ** 2).sum(1) + bias.astype(np.float64) ** 2
    return squares


def _matrix(normals: np.ndarray, width: int) -> Matrix:
    """Normals (N, D + 1 or more) as a matrix for hidden vectors, column D as its bias; one row of zeros if there are none."""
    if not len(normals):
        return Matrix.of(np.zeros((1, width), dtype=np.float32))
    return Matrix.of(normals[:, :width], normals[:, width])
