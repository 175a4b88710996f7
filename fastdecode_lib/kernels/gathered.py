"""Products with a few rows of the output matrix; one file because all kernels read one record of a screen.

The sets of all clusters follow each other in one packed matrix, each from the start of a block; a *table* has the record that
`matrices.multiply` reads for each. Rows of the same cluster are multiplied together; the bits of a row's result do not depend on
the other rows.

If all rows share the union of their sets, its rows of the output matrix are listed and packed during the product (`packing`);
the union of a single set is read from that set.
"""

import numpy as np
from numba import njit

from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import copy, largest_of, log_sum, place
from fastdecode_lib.kernels.matrices import FIELDS, PADDING, longs_at, multiply
from fastdecode_lib.kernels.packing import multiply_listed
from fastdecode_lib.kernels.top_k import pick_row


@kernel
def nearest(hidden, router, count, rounded, scores, clusters):  # type: ignore[no-untyped-def]
    """Write the cluster with the highest score of each hidden vector (N, D), the lowest of equals, to clusters (N,)."""
    together = len(scores)
    for first in range(0, len(hidden), together):
        rows = min(together, len(hidden) - first)
        multiply(hidden[first:], rows, router, rounded, scores)
        for row in range(rows):
            top, cluster = largest_of(scores, row, 0, count), 0
            while cluster < count - 1 and scores[row, cluster] != top:
                cluster += 1
            clusters[first + row] = cluster


@njit(nogil=True, error_model="numpy")
def _by_cluster(clusters, starts, order):  # type: ignore[no-untyped-def]
    """Sort rows stably by their cluster into `order`; `starts` (clusters + 1,) is room."""
    starts[:] = 0
    for cluster in clusters:
        starts[cluster + 1] += 1
    for cluster in range(1, len(starts)):
        starts[cluster] += starts[cluster - 1]
    for row in range(len(clusters)):
        order[starts[clusters[row]]] = row
        starts[clusters[row]] += 1


@njit(nogil=True, error_model="numpy")
def _best_members(scores, row, members, first, count, banned, tops, ids, values):  # type: ignore[no-untyped-def]
    """Write the best of a row's scores of `count` members from `first` on, without banned (M,), to ids and values (k,)."""
    for token in banned:
        if token >= 0:
            at = place(members, first, count, token)
            if at >= 0:
                scores[row, at] = -np.inf
    pick_row(scores, row, count, tops, ids, values)
    for rank in range(len(ids)):
        if ids[rank] >= 0:
            ids[rank] = members[first + ids[rank]]


@kernel
def best_active(  # type: ignore[no-untyped-def]
    hidden, clusters, table, firsts, counts, members, banned, starts, order, rows_room, rounded, scores, tops,
    ids, values, log_normaliser,
):  # fmt: skip
    """Score each hidden vector (N, D) with the set of its cluster and pick the best tokens.

    Parameters
    ----------
    clusters : int64 array (N,)
    table : int64 array (clusters, FIELDS)
        The sets as matrices.
    firsts, counts : int64 arrays (clusters,)
        Start and number of the members of each set.
    members : int64 array
        Tokens of all sets, ascending within each.
    banned : int64 array (1 or N, M)
        Ids not to be picked, padded with -1; one row for all, or one for each.
    starts, order : int64 arrays (clusters + 1,) and (N,)
        Room for sorting.
    rows_room, rounded, scores, tops : arrays
        Room for R rows at a time: (R, D), from `matrices.scratch`, (R, largest padded set) and its spans.
    ids, values : arrays (N, k)
        Results; -1 and -inf if fewer than k are active.
    log_normaliser : float64 array (N,) or (0,)
        Filled if it has room; banned tokens count.
    """
    together = len(scores)
    if len(clusters) > 1:
        _by_cluster(clusters, starts, order)
    else:
        order[:] = 0
    first = 0
    while first < len(order):
        cluster = clusters[order[first]]
        rows = 0
        while rows < together and first + rows < len(order) and clusters[order[first + rows]] == cluster:
            copy(hidden[order[first + rows]], hidden.shape[1], rows_room[rows])
            rows += 1
        count, begin = counts[cluster], firsts[cluster]
        multiply(rows_room, rows, table[cluster], rounded, scores)
        for row in range(rows):
            into = order[first + row]
            if len(log_normaliser):
                log_normaliser[into] = log_sum(scores, row, count)
            refused = banned[0 if len(banned) == 1 else into]
            _best_members(scores, row, members, begin, count, refused, tops, ids[into], values[into])
        first += rows


CLUSTERS, ROUTER, TABLE, FIRSTS, COUNTS, MEMBERS, SCREEN = range(7)
"""Record of a screen: the number of clusters, and the addresses of the arrays that `best_active` reads; its fields and their
number."""


@kernel
def best_of_nearest(  # type: ignore[no-untyped-def]
    hidden, screen, banned, rounded, scores, tops, ids, values, log_normaliser, told
):
    """`nearest` and `best_active` for a single hidden vector (1, D) in one call, since calls take most of its time.

    Parameters
    ----------
    screen : int64 array (SCREEN,)
    told : int64 array (2,)
        The cluster, and the number of tokens scored.
    """
    multiply(hidden, 1, longs_at(screen[ROUTER], FIELDS), rounded, scores)
    clusters = screen[CLUSTERS]
    top, cluster = largest_of(scores, 0, 0, clusters), 0
    while cluster < clusters - 1 and scores[0, cluster] != top:
        cluster += 1
    count, begin = longs_at(screen[COUNTS] + 8 * cluster, 1)[0], longs_at(screen[FIRSTS] + 8 * cluster, 1)[0]
    members = longs_at(screen[MEMBERS] + 8 * begin, count)
    multiply(hidden, 1, longs_at(screen[TABLE] + 8 * FIELDS * cluster, FIELDS), rounded, scores)
    if len(log_normaliser):
        log_normaliser[0] = log_sum(scores, 0, count)
    _best_members(scores, 0, members, 0, count, banned[0], tops, ids[0], values[0])
    told[0], told[1] = cluster, count


@kernel
def active_log_probabilities(  # type: ignore[no-untyped-def]
    hidden, clusters, table, firsts, counts, members, wanted, rounded, scores, found
):
    """Log-probabilities `found` (N, M) of ids `wanted` (N, M) among the active ones, -inf for others; as `best_active`."""
    for row in range(len(hidden)):
        cluster = clusters[row]
        count, begin = counts[cluster], firsts[cluster]
        multiply(hidden[row:], 1, table[cluster], rounded, scores)
        normaliser = log_sum(scores, 0, count)
        for i in range(wanted.shape[1]):
            at = place(members, begin, count, wanted[row, i])
            found[row, i] = scores[0, at] - normaliser if at >= 0 else -np.inf


@kernel
def active_products(hidden, clusters, table, counts, rounded, scores, found):  # type: ignore[no-untyped-def]
    """Write the scores of each row's set, in the order of its members, to `found` (N, at least the largest set's size)."""
    for row in range(len(hidden)):
        multiply(hidden[row:], 1, table[clusters[row]], rounded, scores)
        count = counts[clusters[row]]
        copy(scores[0], count, found[row])
        found[row, count:] = -np.inf


@njit(nogil=True, error_model="numpy")
def _only(clusters):  # type: ignore[no-untyped-def]
    """The cluster of all rows (at least one), or -1 if they differ."""
    for cluster in clusters:
        if cluster != clusters[0]:
            return -1
    return clusters[0]


@kernel
def union(clusters, firsts, counts, members, met, seen, active):  # type: ignore[no-untyped-def]
    """List the tokens of the sets of clusters (N,), N from 1, each once, ascending; return their number.

    Parameters
    ----------
    firsts, counts, members : int64 arrays
        The sets, as for `best_active`.
    met, seen : bool arrays (clusters,) and (V,)
        Room.
    active : int64 array (padded V + 1,)
        Filled; the padding behind the tokens consists of tokens too.
    """
    only, count = _only(clusters), 0
    if only >= 0:
        count = counts[only]
        copy(members[firsts[only] :], count, active)
    else:
        met[:] = False
        seen[:] = False
        for cluster in clusters:
            if not met[cluster]:
                met[cluster] = True
                for i in range(firsts[cluster], firsts[cluster] + counts[cluster]):
                    seen[members[i]] = True
        for token in range(len(seen)):
            active[count] = token
            count += seen[token]
    for i in range(count, (count + PADDING - 1) // PADDING * PADDING):
        active[i] = active[0]
    return count


@njit(nogil=True, error_model="numpy")
def _multiply_union(hidden, rows, clusters, table, listing, active, count, packed, rounded, scores):  # type: ignore[no-untyped-def]
    """Scores of the tokens of a union for the first rows of hidden; a single set is read in place."""
    only = _only(clusters)
    if only >= 0:
        multiply(hidden, rows, table[only], rounded, scores)
    else:
        multiply_listed(hidden, rows, listing, active, count, packed, rounded, scores)


@kernel
def best_of_union(  # type: ignore[no-untyped-def]
    hidden, clusters, table, listing, active, count, banned, packed, rounded, scores, wide, tops,
    ids, values, log_normaliser,
):  # fmt: skip
    """Score all hidden vectors (N, D) with the union of their sets and pick the best tokens of each.

    Parameters
    ----------
    clusters, table, banned, rounded, scores, tops, ids, values, log_normaliser : arrays
        As for `best_active`; scores and tops are room for the vocabulary.
    listing : int64 array (packing.LISTING,)
        The output matrix, of which the union's rows are packed into `packed`.
    active : int64 array
        `count` tokens, from `union`.
    wide : float32 array (1, V) or (1, 0)
        If it has room, a row's scores are scattered into it, with minus infinity for all other tokens, and normalised and
        picked there.
    """
    together, vocabulary = len(scores), wide.shape[1]
    for first in range(0, len(hidden), together):
        rows = min(together, len(hidden) - first)
        _multiply_union(hidden[first:], rows, clusters, table, listing, active, count, packed, rounded, scores)
        for row in range(rows):
            into = first + row
            refused = banned[0 if len(banned) == 1 else into]
            if vocabulary:
                for token in range(vocabulary):
                    wide[0, token] = -np.inf
                for i in range(count):
                    wide[0, active[i]] = scores[row, i]
                if len(log_normaliser):
                    log_normaliser[into] = log_sum(wide, 0, vocabulary)
                for token in refused:
                    if token >= 0:
                        wide[0, token] = -np.inf
                pick_row(wide, 0, vocabulary, tops, ids[into], values[into])
            else:
                if len(log_normaliser):
                    log_normaliser[into] = log_sum(scores, row, count)
                _best_members(scores, row, active, 0, count, refused, tops, ids[into], values[into])


@kernel
def union_log_probabilities(  # type: ignore[no-untyped-def]
    hidden, clusters, table, listing, active, count, wanted, packed, rounded, scores, found
):
    """Log-probabilities `found` (N, M) of ids `wanted` (N, M) in the union, -inf for others; as `best_of_union`."""
    together = len(scores)
    for first in range(0, len(hidden), together):
        rows = min(together, len(hidden) - first)
        _multiply_union(hidden[first:], rows, clusters, table, listing, active, count, packed, rounded, scores)
        for row in range(rows):
            normaliser = log_sum(scores, row, count)
            for i in range(wanted.shape[1]):
                at = place(active, 0, count, wanted[first + row, i])
                found[first + row, i] = scores[row, at] - normaliser if at >= 0 else -np.inf


@kernel
def mixed_log_probabilities(low, up, count, ids, exact, wanted, rounded, scores, total, found):  # type: ignore[no-untyped-def]
    """Log-probabilities over all tokens, some scored exactly and the others by a product of low rank.

    Parameters
    ----------
    low : float32 array (N, rank)
        Hidden vectors brought down to the rank.
    up : int64 array (FIELDS,)
        The matrix (V, rank) that brings them up, with its bias.
    ids, exact : arrays (N, M)
        Tokens scored exactly, -1 at the end of a row, and their scores.
    wanted : int64 array (N, W)
    total : float64 array (N,)
        Filled with the normalisers.
    found : float32 array (N, W)
    """
    together = len(scores)
    for first in range(0, len(low), together):
        rows = min(together, len(low) - first)
        multiply(low[first:], rows, up, rounded, scores)
        for row in range(rows):
            at = first + row
            for i in range(ids.shape[1]):
                if ids[at, i] >= 0:
                    scores[row, ids[at, i]] = exact[at, i]
            total[at] = log_sum(scores, row, count)
            for i in range(wanted.shape[1]):
                found[at, i] = scores[row, wanted[at, i]] - total[at]
