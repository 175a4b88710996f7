"""A screen on a model's output matrix on the CPU."""

import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fastdecode_lib.core import Candidates, OfAnySource
from fastdecode_lib.kernels.builder import LANES
from fastdecode_lib.kernels.gathered import (
    CLUSTERS,
    COUNTS,
    FIRSTS,
    MEMBERS,
    ROUTER,
    SCREEN,
    TABLE,
    active_log_probabilities,
    active_products,
    best_active,
    best_of_nearest,
    best_of_union,
    nearest,
    union,
    union_log_probabilities,
)
from fastdecode_lib.kernels.matrices import BIAS, BLOCKS, SCALE, START, WEIGHT, Matrix, padded, scratch
from fastdecode_lib.kernels.packing import Listing
from fastdecode_lib.kernels.top_k import SPAN
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.queries import checked_ids, checked_query, float_rows
from fastdecode_lib.projections.screens import ROWS, SHARING_ROWS, Screen

_NO_NORMALISER = np.zeros(0)


@dataclass(frozen=True)
class _SetMatrix:
    """The rows of all sets one after another; each set begins at a block boundary. See `kernels.gathered`.

    Attributes
    ----------
    matrix : Matrix
    table : int64 array (r, FIELDS)
    firsts, counts : int64 arrays (r,)
    members : int64 array
    """

    matrix: Matrix
    table: np.ndarray
    firsts: np.ndarray
    counts: np.ndarray
    members: np.ndarray

    @classmethod
    def of(cls, sets: ActiveSets, whole: Matrix) -> "_SetMatrix":
        stored = np.diff(sets.offsets)
        padded_sizes = np.where(stored > 0, -(-stored // (4 * LANES)) * (4 * LANES), 0)
        starts = np.concatenate([[0], np.cumsum(padded_sizes)])
        rows = np.zeros(int(starts[-1]), dtype=np.int64)
        clusters = np.repeat(np.arange(len(sets)), stored)
        rows[starts[clusters] + np.arange(len(sets.ids)) - sets.offsets[clusters]] = sets.ids
        matrix = whole.rows(rows if len(rows) else np.zeros(1, dtype=np.int64))
        table = np.tile(matrix.record, (len(sets), 1))
        block_bytes = matrix.weight[0].nbytes
        table[:, WEIGHT] += starts[:-1] // LANES * block_bytes
        for column in (SCALE, BIAS, START):
            table[:, column] += 4 * starts[:-1]
        table[:, BLOCKS] = padded_sizes // LANES
        empty = stored == 0
        table[empty] = whole.record
        members, firsts = sets.ids, sets.offsets[:-1]
        if empty.any():
            members = np.concatenate([members, np.arange(sets.vocabulary)])
            firsts = np.where(empty, len(sets.ids), firsts)
        return cls(matrix, table, firsts.astype(np.int64), sets.sizes, np.ascontiguousarray(members))

    def record_with(self, router: Matrix, clusters: int) -> np.ndarray:
        """Addresses of the router and of all arrays, as `kernels.gathered.best_of_nearest` reads them."""
        arrays = {
            ROUTER: router.record,
            TABLE: self.table,
            FIRSTS: self.firsts,
            COUNTS: self.counts,
            MEMBERS: self.members,
        }
        assert all(array.dtype == np.int64 and array.flags.c_contiguous for array in arrays.values())
        record = np.zeros(SCREEN, dtype=np.int64)
        record[CLUSTERS] = clusters
        record[list(arrays)] = [array.ctypes.data for array in arrays.values()]
        return record


class ScreenScorer(OfAnySource):
    """A screen on the rows of a model's output matrix, on the CPU; satisfies `core.Projection` and `core.Scorer`.

    By default each hidden vector has the set of its own cluster, so that no row depends on the other rows of a call. With
    `shared`, all rows of a call score the union of their sets, as Amer et al. (2022) do for a batch (section 2.3, step 2).

    Parameters
    ----------
    screen : Screen
    whole : Matrix
        The output matrix (V, D) with its bias.
    shared : bool
        Whether all rows of a call share one set. The rows of the matrix are then stored one by one, in addition to the copies of
        all sets, which serve calls whose rows are all in one cluster.
    scatter : bool
        With `shared`: each row's best tokens and normaliser are read from an array of the vocabulary's width, in which all other
        tokens score minus infinity (step 4). Only the time and the last digits of the normaliser differ.

    Raises
    ------
    ValueError
        If the screen does not fit the matrix, or `scatter` is asked for without `shared`.
    """

    def __init__(self, screen: Screen, whole: Matrix, *, shared: bool = False, scatter: bool = False):
        screen.check_fits(*whole.shape)
        if scatter and not shared:
            raise ValueError("scatter is a step of shared sets: got scatter=True with shared=False. Use shared=True.")
        self.screen, self.whole, self.shared, self.scatter = screen, whole, shared, scatter
        self.name = screen.method
        self._router = screen.router
        self._sets = _SetMatrix.of(screen.sets, whole)
        self._listing = Listing(whole) if shared else None
        self._widest = padded(whole.shape[0] if shared else int(screen.sets.sizes.max()))
        self._local = threading.local()
        self._record = self._sets.record_with(self._router, len(screen.sets))

    def __reduce__(self) -> Any:
        """A copy has its own arrays."""
        return partial(type(self), shared=self.shared, scatter=self.scatter), (self.screen, self.whole)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model whose contexts the screen was fitted on."""
        return self.screen.fingerprint

    @property
    def memory_bytes(self) -> int:
        """Bytes of the centroids and of all copies: the rows of each set, and, if sets are shared, all rows once.

        The output matrix is the model's own.
        """
        sets = self._sets
        others = sum(array.nbytes for array in (sets.table, sets.firsts, sets.counts, sets.members))
        listed = 0 if self._listing is None else self._listing.entries.nbytes
        return self._router.memory_bytes + sets.matrix.memory_bytes + others + listed

    def bytes_for(self, tokens: float) -> float:
        """Bytes that one hidden vector is multiplied with: the centroids and the rows of a number of tokens."""
        return self._router.memory_bytes + tokens * self.whole.memory_bytes / self.whole.outputs

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best active tokens of hidden (N, D); the normaliser runs over the active ones, banned ones included."""
        hidden = float_rows(hidden, self.whole.shape[1])
        rows = len(hidden)
        banned_ids = checked_query(k, banned, rows, self.whole.shape[0])
        ids, scores = np.empty((rows, k), dtype=np.int64), np.empty((rows, k), dtype=np.float32)
        log_normaliser = np.empty(rows) if normalise else _NO_NORMALISER
        if rows == 1 and not self.scatter:
            routing = np.empty(2, dtype=np.int64)  # the cluster and the size of its set
            best_of_nearest(hidden, self._record, banned_ids, *self._single(), ids, scores, log_normaliser, routing)
            return Candidates(ids, scores, routing[1:], log_normaliser if normalise else None, "active", routing[:1])
        clusters, sets = self._nearest(hidden), self._sets
        if not rows:
            counts = np.zeros(0, dtype=np.int64)
        elif self._listing is not None:
            active, count = self._union(clusters)
            _, _, _, rounded, products, tops = self._buffers(rows)
            packed, wide = self._local.sharing[3:]
            best_of_union(
                hidden, clusters, sets.table, self._listing.record, active, count, banned_ids, packed, rounded, products, wide,
                tops, ids, scores, log_normaliser,
            )  # fmt: skip
            counts = np.full(rows, count)
        else:
            best_active(
                hidden, clusters, sets.table, sets.firsts, sets.counts, sets.members, banned_ids, *self._buffers(rows),
                ids, scores, log_normaliser,
            )  # fmt: skip
            counts = sets.counts[clusters]
        return Candidates(ids, scores, counts, log_normaliser if normalise else None, "active", clusters)

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M) among the active tokens; minus infinity for others."""
        hidden = float_rows(hidden, self.whole.shape[1])
        ids = checked_ids(ids, len(hidden), self.whole.shape[0])
        clusters, log_probs = self._nearest(hidden), np.empty(ids.shape, dtype=np.float32)
        if not len(hidden):
            return log_probs
        sets = self._sets
        _, _, _, rounded, scores, _ = self._buffers(len(hidden))
        if self._listing is not None:
            active, count = self._union(clusters)
            packed = self._local.sharing[3]
            union_log_probabilities(
                hidden, clusters, sets.table, self._listing.record, active, count, ids, packed, rounded, scores, log_probs
            )  # fmt: skip
        else:
            active_log_probabilities(
                hidden, clusters, sets.table, sets.firsts, sets.counts, sets.members, ids, rounded, scores, log_probs
            )
        return log_probs

    def active_scores(self, hidden: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ascending ids (N, M) that are scored for each hidden vector, and their scores; padded with -1 and -inf."""
        hidden, sets = float_rows(hidden, self.whole.shape[1]), self._sets
        clusters = self._nearest(hidden)
        if self._listing is not None and len(hidden):
            active, count = self._union(clusters)
            return np.tile(active[:count], (len(hidden), 1)), self._listing(hidden, active[:count])
        counts = sets.counts[clusters]
        ids = np.full((len(hidden), int(counts.max(initial=0))), -1, dtype=np.int64)
        active_scores = np.empty(ids.shape, dtype=np.float32)
        for row, (first, count) in enumerate(zip(sets.firsts[clusters], counts, strict=True)):
            ids[row, :count] = sets.members[first : first + count]
        _, _, _, rounded, scores, _ = self._buffers(len(hidden))
        active_products(hidden, clusters, sets.table, sets.counts, rounded, scores, active_scores)
        return ids, active_scores

    def describe(self, cluster: int, most: int) -> dict[str, Any]:
        """Size of a cluster's set and its `most` best tokens at the centroid, in the form of `trace.Trace`."""
        tokens = self.screen.sets[cluster]
        scores = self.whole.rows(tokens)(self.screen.points[cluster][None])[0]
        return {"size": len(tokens), "tokens": tokens[np.argsort(-scores, kind="stable")[:most]].tolist()}

    def _union(self, clusters: np.ndarray) -> tuple[np.ndarray, int]:
        """All tokens active in one or more clusters, ascending, and their number; this thread's next call overwrites them."""
        assert self._listing is not None
        if not hasattr(self._local, "sharing"):
            vocabulary = self.whole.shape[0]
            self._local.sharing = (
                np.empty(len(self.screen.sets), dtype=bool),
                np.empty(vocabulary, dtype=bool),
                np.empty(padded(vocabulary) + 1, dtype=np.int64),
                self._listing.room(),
                np.empty((1, vocabulary if self.scatter else 0), dtype=np.float32),
            )
        met_clusters, is_active, active, _, _ = self._local.sharing
        sets = self._sets
        return active, int(union(clusters, sets.firsts, sets.counts, sets.members, met_clusters, is_active, active))

    def _nearest(self, hidden: np.ndarray) -> np.ndarray:
        clusters = np.empty(len(hidden), dtype=np.int64)
        _, _, _, rounded, scores, _ = self._buffers(len(hidden))
        nearest(hidden, self._router.record, len(self.screen.sets), rounded, scores, clusters)
        return clusters

    def _single(self) -> tuple[np.ndarray, ...]:
        """Buffers for scoring one row, one set for each thread."""
        try:
            buffers: tuple[np.ndarray, ...] = self._local.single
        except AttributeError:
            buffers = self._local.single = self._buffers(1)[3:]
        return buffers

    def _buffers(self, rows: int) -> tuple[np.ndarray, ...]:
        """Buffers for sorting `rows` rows and for scoring a batch of them together, one set for each thread."""
        buffers, batch = getattr(self._local, "buffers", None), min(max(rows, 1), SHARING_ROWS if self.shared else ROWS)
        if buffers is None or len(buffers[1]) != rows or len(buffers[4]) < batch:
            if buffers is not None and len(buffers[4]) >= batch:
                scoring = buffers[2:]
            else:
                width, widest = self.whole.shape[1], max(self._widest, self._router.outputs)
                scoring = (
                    np.empty((batch, width), dtype=np.float32),
                    scratch(batch, width),
                    np.empty((batch, widest), dtype=np.float32),
                    np.empty(-(-widest // SPAN), dtype=np.float32),
                )
            sorting = np.empty(len(self.screen.sets) + 1, dtype=np.int64), np.empty(rows, dtype=np.int64)
            buffers = self._local.buffers = (*sorting, *scoring)
        return buffers
