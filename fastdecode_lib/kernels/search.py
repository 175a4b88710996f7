"""Lists of candidate rows of a weight, found without scoring all rows: sorted columns, hash tables, trees, clusters.

Each kernel makes a list for every hidden vector (N, D) and writes its results; stored, room, asked and results are those of
`listed`. Products with planes, directions or centroids are computed for `R` rows at a time, in room (R, outputs). Places and
offsets are not checked.
"""

import numpy as np
from numba import njit

from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.listed import answer, best_places, product, sink


@njit(nogil=True, error_model="numpy")
def _add_stretch(first, last, places, count):  # type: ignore[no-untyped-def]
    """Add the places from `first` to before `last` to a list; returns its new length."""
    for place in range(first, last):
        places[count] = place
        count += 1
    return count


@kernel
def best_greedy(hidden, entries, members, budget, heap, stored, room, asked, results):  # type: ignore[no-untyped-def]
    """Candidates by the largest single products ``hidden[d] * weight[i, d]`` (Yu et al. 2017, algorithm 2 and section 3.2).

    Parameters
    ----------
    entries, members : float32 and int32 arrays (D + 1, V)
        Each column of the weight in falling order, and the rows of the entries; the last column is the bias, times 1.
    budget : int
        Distinct candidates.
    heap : float32 (D + 1,), int64 (D + 1,), int64 (D + 1,)
        Room: the next product of every column and the column, both negated: the largest product is on top; and positions.
    """
    products, columns, positions = heap
    places, slots = room[1], room[3]
    width, vocabulary = hidden.shape[1], entries.shape[1]
    for row in range(len(hidden)):
        size = 0
        for column in range(width + 1):
            factor = hidden[row, column] if column < width else np.float32(1.0)
            if factor != 0:
                positions[column] = 0 if factor > 0 else vocabulary - 1
                products[size], columns[size] = -factor * entries[column, positions[column]], -column
                size += 1
        for parent in range(size // 2 - 1, -1, -1):
            sink(columns, products, size, parent)
        count = 0
        while count < budget and size > 0:
            column = -columns[0]
            factor = hidden[row, column] if column < width else np.float32(1.0)
            step, position = 1 if factor > 0 else -1, positions[column]
            place = members[column, position]
            if not _listed(place, places, slots, count):
                places[count], slots[place] = place, count
                count += 1
            while 0 <= position < vocabulary and _listed(members[column, position], places, slots, count):
                position += step
            if 0 <= position < vocabulary:
                positions[column], products[0] = position, -factor * entries[column, position]
            else:
                size -= 1
                products[0], columns[0] = products[size], columns[size]
            if size > 0:
                sink(columns, products, size, 0)
        answer(row, hidden, count, stored, room, asked, results)


@njit(nogil=True, error_model="numpy")
def _listed(place, places, slots, count):  # type: ignore[no-untyped-def]
    """Whether a place is among the first `count`; `slots` has the index where it would be, and needs no clearing."""
    slot = slots[place]
    return slot < count and places[slot] == place


@kernel
def best_hashed(  # type: ignore[no-untyped-def]
    hidden, planes, offsets, members, sides, stored, room, asked, results
):
    """Candidates on the same side of every plane, in at least one table (Neyshabur & Srebro 2015).

    Parameters
    ----------
    planes : int64 array
        `Matrix.record` of tables x bits normals with the bias as their constant.
    offsets : int64 array (tables, 2^bits + 1)
        Start of each bucket of a table in `members`.
    members : int32 array (tables, V)
    """
    tables, buckets = offsets.shape[0], offsets.shape[1] - 1
    places, slots = room[1], room[3]
    together = len(sides)
    for first in range(0, len(hidden), together):
        rows = min(together, len(hidden) - first)
        product(hidden[first:], rows, planes, sides)
        for row in range(rows):
            count, plane = 0, 0
            for table in range(tables):
                bucket, bit = 0, 1
                while bit < buckets:
                    if sides[row, plane] >= 0:
                        bucket += bit
                    bit, plane = 2 * bit, plane + 1
                for i in range(offsets[table, bucket], offsets[table, bucket + 1]):
                    place = members[table, i]
                    if not _listed(place, places, slots, count):
                        places[count], slots[place] = place, count
                        count += 1
            answer(first + row, hidden, count, stored, room, asked, results)


@kernel
def best_in_tree(  # type: ignore[no-untyped-def]
    hidden, directions, cuts, centre, radius, detours, offsets, projections, stored, room, asked, results
):
    """Candidates in the leaf of a tree that the hidden vector falls into (Bachrach et al. 2014, section 3).

    Parameters
    ----------
    directions : int64 array
        `Matrix.record` of one direction for each level, with its share of the bias as constant.
    cuts : float32 array (2^depth - 1,)
        The cut of each node; the children of node n are 2n + 1 and, above the cut, 2n + 2.
    centre : float32 array (depth,)
        The projections of the mean.
    radius : float
        Length to which hidden vectors are scaled, the constant 1 included.
    detours : bool
        Whether leaves that are reached by one opposite turn count too.
    offsets : int64 array (2^depth + 1,)
        Start of each leaf among the rows of the weight.
    """
    depth, together, places = len(centre), len(projections), room[1]
    for first in range(0, len(hidden), together):
        rows = min(together, len(hidden) - first)
        product(hidden[first:], rows, directions, projections)
        for row in range(rows):
            squares = 1.0
            for column in range(hidden.shape[1]):
                squares += np.float64(hidden[first + row, column]) ** 2
            scale, count = radius / np.sqrt(squares), 0
            for detour in range(-1, depth if detours else 0):
                node = 0
                for level in range(depth):
                    above = projections[row, level] * scale - centre[level] > cuts[node]
                    node = 2 * node + (2 if above != (level == detour) else 1)
                leaf = node - len(cuts)
                count = _add_stretch(offsets[leaf], offsets[leaf + 1], places, count)
            answer(first + row, hidden, count, stored, room, asked, results)


@kernel
def best_in_clusters(  # type: ignore[no-untyped-def]
    hidden, centroids, probes, offsets, probed, products, stored, room, asked, results
):
    """Candidates in the clusters whose centroids have the largest products with the hidden vector.

    Parameters
    ----------
    centroids : int64 array
        `Matrix.record` of the centroids, with their bias.
    probes : int
        Number of clusters to search.
    offsets : int64 array (C + 1,)
        Start of each cluster among the rows of the weight.
    probed : int64 and float32 arrays (probes,)
        Room.
    """
    together, places = len(products), room[1]
    for first in range(0, len(hidden), together):
        rows = min(together, len(hidden) - first)
        product(hidden[first:], rows, centroids, products)
        for row in range(rows):
            best_places(products[row], len(offsets) - 1, probes, probed[0], probed[1])
            count = 0
            for cluster in probed[0]:
                count = _add_stretch(offsets[cluster], offsets[cluster + 1], places, count)
            answer(first + row, hidden, count, stored, room, asked, results)
