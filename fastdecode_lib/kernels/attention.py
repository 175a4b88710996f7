"""Attention of one position to the slots of a cache.

Sixteen slots are scored at once: their products with the query are added across registers, so that no slot needs a sum of its
own. Which slots stand together depends on their number alone, so that a position has the same result in any batch.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from fastdecode_lib.kernels.builder import LANES, Builder, emitted
from fastdecode_lib.kernels.matrices import floats_at
from fastdecode_lib.kernels.reductions import dot, exponentiated, largest

_int32, _int64, _float = ir.IntType(32), ir.IntType(64), ir.FloatType()
_floats, _integers = ir.VectorType(_float, LANES), ir.VectorType(_int32, LANES)
_NO_BIASES, _NO_PLACES = np.zeros((0, 0), dtype=np.float32), np.zeros(0, dtype=np.int64)
FIRST_PAGE = np.zeros(1, dtype=np.int64)
"""The pages of a cache that is one page."""
_UNROLLED = 4
"""Slots that `_weighted_sum` adds in turns, to four sums."""


@njit(nogil=True, error_model="numpy")
def usual_factor(size):  # type: ignore[no-untyped-def]
    """The default factor of scores: the inverse root of a head's size."""
    return np.float32(1.0) / np.sqrt(np.float32(size))


@njit(nogil=True, error_model="numpy")
def attend(query, keys, values, count, further, scores, offsets, out):  # type: ignore[no-untyped-def]
    """Attention as `attend_from` to keys and values (heads, slots, size), with the usual factor and without biases."""
    factor, keys, values = usual_factor(keys.shape[2]), np.expand_dims(keys, 0), np.expand_dims(values, 0)
    attend_from(
        query, keys, values, FIRST_PAGE, count, further, factor, _NO_BIASES, 0, _NO_PLACES, scores, offsets, out
    )


@njit(nogil=True, error_model="numpy")
def attend_from(  # type: ignore[no-untyped-def]
    query, keys, values, pages, count, further, factor, biases, place, places, scores, offsets, out
):
    """Attention of one position over the slots that it may attend to.

    Parameters
    ----------
    query : float32 array (at least heads * size,)
    keys, values : float32 arrays (P, heads, slots, size)
        Pages of slots; of the same strides; the entries of a slot lie together.
    pages : int64 array
        The page of the first slots, of the next ones, and so on.
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
    scores, offsets : float32 and int64 arrays
        Room for a number for each slot attended to, rounded up to a multiple of 16.
    out : float32 array (at least heads * size,)
        Zeros if no slot is attended to.
    """
    _, heads, page_slots, size = keys.shape
    seen = _write_offsets(count, further, pages, page_slots, keys.strides[0], keys.strides[2], offsets)
    if seen == 0:
        for i in range(heads * size):
            out[i] = np.float32(0.0)
        return
    groups, at_scores, at_offsets = (seen + LANES - 1) // LANES, scores.ctypes.data, offsets.ctypes.data
    for head in range(heads):
        at_query, at_out = query.ctypes.data + 4 * head * size, out.ctypes.data + 4 * head * size
        at_keys, at_values = keys.ctypes.data + head * keys.strides[1], values.ctypes.data + head * values.strides[1]
        if size % LANES == 0:
            _products(at_query, at_keys, at_offsets, seen, size // LANES, factor, at_scores)
        else:
            for slot in range(seen):
                scores[slot] = dot(at_query, at_keys + offsets[slot], size) * factor
            for slot in range(seen, groups * LANES):
                scores[slot] = -np.inf
        if len(biases) > 0:
            _add_biases(scores, count, further, biases[head], place, places)
        total = exponentiated(at_scores, groups, largest(at_scores, groups))
        if size % LANES == 0:
            _weighted_sum(at_scores, at_values, at_offsets, seen, size // LANES, np.float32(1.0) / total, at_out)
        else:
            _weighted_singles(scores, at_values, offsets, seen, total, out[head * size : head * size + size])


@njit(nogil=True, error_model="numpy")
def _write_offsets(count, further, pages, page_slots, page_step, step, offsets):  # type: ignore[no-untyped-def]
    """Write where each slot attended to is, in bytes behind the first page, the last one repeatedly up to a multiple of 16."""
    for first in range(0, count, max(page_slots, 1)):
        start = pages[first // page_slots] * page_step
        for slot in range(first, min(first + page_slots, count)):
            offsets[slot] = start + (slot - first) * step
    seen = count
    for slot in range(count, count + len(further)):
        if further[slot - count]:
            offsets[seen] = pages[slot // page_slots] * page_step + slot % page_slots * step
            seen += 1
    for slot in range(seen, (seen + LANES - 1) // LANES * LANES):
        offsets[slot] = offsets[seen - 1]
    return seen


@njit(nogil=True, error_model="numpy")
def _add_biases(scores, count, further, biases, place, places):  # type: ignore[no-untyped-def]
    farthest, seen = len(biases) // 2, count
    for slot in range(count):
        scores[slot] += biases[min(max(slot - place, -farthest), farthest) + farthest]
    for slot in range(len(further)):
        if further[slot]:
            scores[seen] += biases[min(max(places[slot] - place, -farthest), farthest) + farthest]
            seen += 1


@njit(nogil=True, error_model="numpy")
def _weighted_singles(shares, values, offsets, count, total, out):  # type: ignore[no-untyped-def]
    """The weighted mean of vectors of any length, entry by entry."""
    out[:] = np.float32(0.0)
    for slot in range(count):
        value = floats_at(values + offsets[slot], len(out))
        for i in range(len(out)):
            out[i] += shares[slot] * value[i]
    for i in range(len(out)):
        out[i] /= total


@emitted(types.void(*[types.intp] * 5, types.float32, types.intp))
def _products(
    b: Builder, query: Any, keys: Any, offsets: Any, count: Any, blocks: Any, factor: Any, scores: Any
) -> None:
    """Write the products of a query with `count` slots, times a factor; then minus infinity up to a multiple of 16.

    Parameters
    ----------
    query, keys, offsets, scores : int
        Addresses: float32 (16 * blocks,), the first slot's key, int64 distances in bytes, float32.
    """
    factor, nothing = b.everywhere(factor), ir.Constant(_floats, [0.0] * LANES)
    lanes = ir.Constant(_integers, list(range(LANES)))
    absent = ir.Constant(_floats, [float("-inf")] * LANES)

    def sixteen_slots(group: Any, _: list[Any]) -> list[Any]:
        places = [b.load(b.at(b.at(offsets, group, 8 * LANES), 8 * slot), _int64) for slot in range(LANES)]
        starts = [b.at(keys, place) for place in places]

        def block(index: Any, sums: list[Any]) -> list[Any]:
            part = b.load(b.at(query, index, 4 * LANES), _floats)
            return [
                b.fused(part, b.load(b.at(start, index, 4 * LANES), _floats), running)
                for start, running in zip(starts, sums, strict=True)
            ]

        products = b.ir.fmul(_added_across(b, b.loop(blocks, [nothing] * LANES, block)), factor)
        left = b.ir.trunc(b.ir.sub(count, b.ir.mul(group, ir.Constant(_int64, LANES))), _int32)
        present = b.ir.icmp_signed("<", lanes, b.everywhere(left))
        b.store(b.ir.select(present, products, absent), b.at(scores, group, 4 * LANES))
        return []

    b.loop(_groups(b, count, LANES), [], sixteen_slots)


@emitted(types.void(*[types.intp] * 5, types.float32, types.intp))
def _weighted_sum(
    b: Builder, shares: Any, values: Any, offsets: Any, count: Any, blocks: Any, factor: Any, out: Any
) -> None:
    """Write the sum of the values of `count` slots, each times its share, times a factor; arguments as of `_products`.

    Shares behind `count`, up to a multiple of 4, must be 0.
    """
    factor, nothing = b.everywhere(factor), ir.Constant(_floats, [0.0] * LANES)

    def block(index: Any, _: list[Any]) -> list[Any]:
        column = b.at(values, index, 4 * LANES)

        def slots(group: Any, sums: list[Any]) -> list[Any]:
            results = []
            for slot, running in enumerate(sums):
                place = b.load(b.at(b.at(offsets, group, 8 * _UNROLLED), 8 * slot), _int64)
                share = b.load(b.at(b.at(shares, group, 4 * _UNROLLED), 4 * slot), _float)
                value = b.load(b.at(column, place), _floats)
                results.append(b.fused(b.everywhere(share), value, running))
            return results

        first, second, third, fourth = b.loop(_groups(b, count, _UNROLLED), [nothing] * _UNROLLED, slots)
        total = b.ir.fadd(b.ir.fadd(first, second), b.ir.fadd(third, fourth))
        b.store(b.ir.fmul(total, factor), b.at(out, index, 4 * LANES))
        return []

    b.loop(blocks, [], block)


def _groups(b: Builder, count: Any, size: int) -> Any:
    """The number of groups of a power of two that `count` things need."""
    up = b.ir.add(count, ir.Constant(_int64, size - 1))
    return b.ir.lshr(up, ir.Constant(_int64, size.bit_length() - 1))


def _added_across(b: Builder, vectors: list[Any]) -> Any:
    """The sums of the 16 lanes of each of 16 vectors: upper halves are added to lower halves, two vectors at a time."""
    width = LANES
    while len(vectors) > 1:
        width //= 2
        low, high = (
            ir.Constant(_integers, [start + half + i for start in range(0, 2 * LANES, 2 * width) for i in range(width)])
            for half in (0, width)
        )
        vectors = [
            b.ir.fadd(b.ir.shuffle_vector(x, y, low), b.ir.shuffle_vector(x, y, high))
            for x, y in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]
