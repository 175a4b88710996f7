"""Scores of listed rows of a weight and the best of them, for projections that score a part of the vocabulary only.

The weight is stored row after row, so that a listed row is contiguous in memory. A score is the sum of 16 running sums, one for
every 16th column, added in a fixed order: its bits depend neither on its place in a list nor on the list's length.

Kernels that make lists (`search`) pass each to `answer`. They share four tuples of arrays, with Y for the longest list:

- stored: weight (V, D), bias (V,), and the token of each row, int64 (V,), empty if row and token are the same;
- room: a row of hidden (padded D,), places int64 (Y,), scores (1, Y), slots int32 (V,), from `scratch`;
- asked: banned ids (1 or N, M) and ids to score (N, M), both int64; -1 is none among the banned;
- results: the best ids and scores (N, k), number of active tokens (N,), log-normalisers (N or 0,), log-probabilities of the
  ids to score (N, M), and the active tokens with their scores (N or 0, Y).
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from fastdecode_lib.kernels.builder import LANES, Builder, emitted
from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import copy, log_sum
from fastdecode_lib.kernels.matrices import CODE, call

AT_ONCE = 8
"""Rows of the weight that are read side by side, since memory serves several requests at a time."""

_int64, _float = ir.IntType(64), ir.FloatType()


def scratch(vocabulary: int, width: int, longest: int) -> tuple[np.ndarray, ...]:
    """Room for one hidden vector and its list."""
    return (
        np.zeros(-(-width // LANES) * LANES, dtype=np.float32),
        np.empty(longest, dtype=np.int64),
        np.empty((1, longest), dtype=np.float32),
        np.zeros(vocabulary, dtype=np.int32),
    )


def _dots(rows: int) -> Any:
    """A function for numba: products of a hidden vector with `rows` listed rows of a weight.

    Its arguments are addresses and numbers: weight and bytes of a row, places (int64), hidden vector as `spread` leaves it,
    sixteens of columns, bytes to the last sixteen of a row, results.
    """

    @emitted(types.void(*[types.intp] * 7))
    def run(b: Builder, weight: Any, row_bytes: Any, places: Any, x: Any, groups: Any, last: Any, out: Any) -> None:
        floats = ir.VectorType(_float, LANES)
        listed = [b.load(b.at(places, 8 * row), _int64) for row in range(rows)]
        starts = [b.at(weight, b.ir.mul(place, row_bytes)) for place in listed]

        def columns(index: Any, running: list[Any]) -> list[Any]:
            offset = b.ir.mul(index, ir.Constant(_int64, 4 * LANES))
            within = b.ir.select(b.ir.icmp_signed("<", offset, last), offset, last)
            entries = b.load(b.at(x, offset), floats)
            addresses = [b.at(start, within) for start in starts]
            return [
                b.fused(entries, b.load(address, floats), one) for address, one in zip(addresses, running, strict=True)
            ]

        totals = b.loop(groups, [ir.Constant(floats, [0.0] * LANES)] * rows, columns)
        for row, total in enumerate(totals):
            b.store(b.lanes_added(total), b.at(out, 4 * row))

    return run


_one, _many = _dots(1), _dots(AT_ONCE)


@njit(nogil=True, error_model="numpy")
def product(x, rows, matrix, y):  # type: ignore[no-untyped-def]
    """`matrices.multiply` for matrices in float formats, which are the only ones of these kernels."""
    call(matrix[CODE], x.ctypes.data, 4 * x.shape[1], rows, matrix.ctypes.data, 0, 0, y.ctypes.data, 4 * y.shape[1])


@njit(nogil=True, error_model="numpy")
def spread(hidden, x):  # type: ignore[no-untyped-def]
    """Copy a hidden vector (D,) to x (padded D,): the entries behind the last whole sixteen are at the end, behind zeros.

    In the product with the last sixteen columns of a row, the zeros meet those columns that were multiplied before.
    """
    width = len(hidden)
    whole = width - width % LANES
    copy(hidden, whole, x)
    if whole < width:
        x[whole:] = np.float32(0.0)
        copy(hidden[whole:], width - whole, x[len(x) - (width - whole) :])


@njit(nogil=True, error_model="numpy")
def score(x, weight, bias, places, count, scores):  # type: ignore[no-untyped-def]
    """Scores of the first `count` of `places`: rows of a weight (V, D) times x from `spread`, plus bias (V,)."""
    width, groups = weight.shape[1], len(x) // LANES
    if width < LANES:
        for i in range(count):
            total = np.float32(0.0)
            for column in range(width):
                total += x[LANES - width + column] * weight[places[i], column]
            scores[i] = total + bias[places[i]]
        return
    row_bytes, last = 4 * width, 4 * (width - LANES)
    w, p, v, out = weight.ctypes.data, places.ctypes.data, x.ctypes.data, scores.ctypes.data
    together = count - count % AT_ONCE
    for i in range(0, together, AT_ONCE):
        _many(w, row_bytes, p + 8 * i, v, groups, last, out + 4 * i)
    for i in range(together, count):
        _one(w, row_bytes, p + 8 * i, v, groups, last, out + 4 * i)
    for i in range(count):
        scores[i] += bias[places[i]]


@njit(nogil=True, error_model="numpy")
def pick(scores, tokens, count, banned, ids, values, filled):  # type: ignore[no-untyped-def]
    """Sort the best of `count` scores of `tokens` into ids and values (k,), of which `filled` are there already, best first.

    Ties go to the lowest token; banned (M,) tokens are left out. Returns the new number of entries; the others are -1.
    """
    k = len(ids)
    for i in range(count if k > 0 else 0):
        value, token = scores[i], tokens[i]
        if filled < k:
            if not value > -np.inf:
                continue
        elif not (value > values[k - 1] or (value == values[k - 1] and token < ids[k - 1])):
            continue
        refused = False
        for other in banned:
            refused = refused or other == token
        if refused:
            continue
        place = min(filled, k - 1)
        while place > 0 and (values[place - 1] < value or (values[place - 1] == value and ids[place - 1] > token)):
            ids[place], values[place] = ids[place - 1], values[place - 1]
            place -= 1
        ids[place], values[place] = token, value
        filled = min(filled + 1, k)
    for place in range(filled, k):
        ids[place], values[place] = -1, -np.inf
    return filled


@njit(nogil=True, error_model="numpy")
def best_places(scores, count, wanted, places, values):  # type: ignore[no-untyped-def]
    """The places (wanted,) of the best of `count` scores, unordered; ties go to the first.

    `values` is room for their scores: a heap whose root is the worst of them.
    """
    for i in range(wanted):
        places[i], values[i] = i, scores[i]
    if wanted == count:
        return
    for parent in range(wanted // 2 - 1, -1, -1):
        sink(places, values, wanted, parent)
    for i in range(wanted, count):
        if scores[i] > values[0]:
            places[0], values[0] = i, scores[i]
            sink(places, values, wanted, 0)


@njit(nogil=True, error_model="numpy")
def sink(places, values, size, parent):  # type: ignore[no-untyped-def]
    """Sink an entry of a heap below worse ones: those of lower score, or of equal score and a later place."""
    place, value = places[parent], values[parent]
    while 2 * parent + 1 < size:
        child = 2 * parent + 1
        other = child + 1
        if other < size and (
            values[other] < values[child] or (values[other] == values[child] and places[other] > places[child])
        ):
            child = other
        if not (values[child] < value or (values[child] == value and places[child] > place)):
            break
        places[parent], values[parent] = places[child], values[child]
        parent = child
    places[parent], values[parent] = place, value


@njit(nogil=True, error_model="numpy")
def answer(row, hidden, count, stored, room, asked, results):  # type: ignore[no-untyped-def]
    """Write all results for a row of hidden (N, D), whose list is the first `count` places of the room."""
    weight, bias, order = stored
    x, places, scores, slots = room
    banned, wanted = asked
    ids, values, active, log_normaliser, found, active_ids, active_scores = results
    spread(hidden[row], x)
    score(x, weight, bias, places, count, scores[0])
    if len(order):
        for i in range(count):
            places[i] = order[places[i]]
    tokens, normaliser = places, 0.0
    active[row] = count
    if count and (len(log_normaliser) or wanted.shape[1]):
        normaliser = log_sum(scores, 0, count)
    if len(log_normaliser):
        log_normaliser[row] = normaliser
    pick(scores[0], tokens, count, banned[0 if len(banned) == 1 else row], ids[row], values[row], 0)
    if wanted.shape[1]:
        for i in range(count):
            slots[tokens[i]] = i
        for i in range(wanted.shape[1]):
            slot = slots[wanted[row, i]]
            listed = slot < count and tokens[slot] == wanted[row, i]
            found[row, i] = scores[0, slot] - normaliser if listed else -np.inf
    if len(active_ids):
        copy(tokens, count, active_ids[row])
        copy(scores[0], count, active_scores[row])


@kernel
def best_listed(hidden, lists, stored, room, asked, results):  # type: ignore[no-untyped-def]
    """Write the results for hidden (N, D) with given lists of distinct places (N, Y), -1 for none."""
    places = room[1]
    for row in range(len(hidden)):
        count = 0
        for place in lists[row]:
            if place >= 0:
                places[count] = place
                count += 1
        answer(row, hidden, count, stored, room, asked, results)
