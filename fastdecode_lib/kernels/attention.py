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
def attend(query, keys, values, count, further, scores, out):  # type: ignore[no-untyped-def]
    """Attention of one position over the slots it sees.

    Parameters
    ----------
    query : float32 array (at least heads * size,)
    keys, values : float32 arrays (heads, slots, size)
    count : int
        The first `count` slots are seen.
    further : bool array (W,)
        Of the W slots behind them, those that are seen too.
    scores : float32 array
        Room for a number for each slot seen.
    out : float32 array (at least heads * size,)
    """
    heads, _, size = keys.shape
    factor = np.float32(1.0) / np.sqrt(np.float32(size))
    for head in range(heads):
        q, seen = query[head * size : head * size + size], count
        for slot in range(count):
            scores[slot] = inner_product(q, keys[head, slot]) * factor
        for slot in range(len(further)):
            if further[slot]:
                scores[seen] = inner_product(q, keys[head, count + slot]) * factor
                seen += 1
        softmax(scores, seen)
        part, seen = out[head * size : head * size + size], count
        part[:] = np.float32(0.0)
        for slot in range(count):
            add_scaled(scores[slot], values[head, slot], part)
        for slot in range(len(further)):
            if further[slot]:
                add_scaled(scores[seen], values[head, count + slot], part)
                seen += 1
