"""Attention of one position to the slots of a cache."""

import numpy as np
from numba import njit

from fastdecode_lib.kernels.elementwise import softmax
from fastdecode_lib.kernels.reductions import dot


@njit(nogil=True, error_model="numpy")
def inner_product(a, b):  # type: ignore[no-untyped-def]
    """The inner product of two vectors."""
    return dot(a.ctypes.data, b.ctypes.data, len(a))


@njit(nogil=True, error_model="numpy")
def add_scaled(share, value, out):  # type: ignore[no-untyped-def]
    """Add a vector times a number to `out`."""
    for i in range(len(out)):
        out[i] += share * value[i]


@njit(nogil=True, error_model="numpy")
def usual_factor(size):  # type: ignore[no-untyped-def]
    """The default factor of scores: the inverse root of a head's size."""
    return np.float32(1.0) / np.sqrt(np.float32(size))


_NO_BIASES, _NO_PLACES = np.zeros((0, 0), dtype=np.float32), np.zeros(0, dtype=np.int64)


@njit(nogil=True, error_model="numpy")
def attend(query, keys, values, count, further, scores, out):  # type: ignore[no-untyped-def]
    """Attention as `attend_from`, with the usual factor and without biases."""
    factor = usual_factor(keys.shape[2])
    attend_from(query, keys, values, count, further, factor, _NO_BIASES, 0, _NO_PLACES, scores, out)


@njit(nogil=True, error_model="numpy")
def attend_from(  # type: ignore[no-untyped-def]
    query, keys, values, count, further, factor, biases, place, places, scores, out
):
    """Attention of one position over the slots that it may attend to.

    Parameters
    ----------
    query : float32 array (at least heads * size,)
    keys, values : float32 arrays (heads, slots, size)
    count : int
        The first `count` slots are attended to.
    further : bool array (W,)
        Of the W slots behind them, those that are attended to as well.
    factor : float32
        Factor of the inner products.
    biases : float32 array (heads, 2 * D + 1) or (0, ...)
        Added to the scores of slots by their distance from the position, from -D to D; farther slots count as the farthest.
    place : int
        Place of the position; the first `count` slots are at 0, 1, ...
    places : int64 array (at least W,)
        Places of the slots in `further`.
    scores : float32 array
        Room for a number for each slot attended to.
    out : float32 array (at least heads * size,)
    """
    heads, _, size = keys.shape
    for head in range(heads):
        q, seen = query[head * size : head * size + size], count
        for slot in range(count):
            scores[slot] = inner_product(q, keys[head, slot]) * factor
        for slot in range(len(further)):
            if further[slot]:
                scores[seen] = inner_product(q, keys[head, count + slot]) * factor
                seen += 1
        if len(biases) > 0:
            _add_biases(scores, count, further, biases[head], place, places)
        softmax(scores, seen)
        part, seen = out[head * size : head * size + size], count
        part[:] = np.float32(0.0)
        for slot in range(count):
            add_scaled(scores[slot], values[head, slot], part)
        for slot in range(len(further)):
            if further[slot]:
                add_scaled(scores[seen], values[head, count + slot], part)
                seen += 1


@njit(nogil=True, error_model="numpy")
def _add_biases(scores, count, further, biases, place, places):  # type: ignore[no-untyped-def]
    farthest, seen = len(biases) // 2, count
    for slot in range(count):
        scores[slot] += biases[min(max(slot - place, -farthest), farthest) + farthest]
    for slot in range(len(further)):
        if further[slot]:
            scores[seen] += biases[min(max(places[slot] - place, -farthest), farthest) + farthest]
            seen += 1
