"""A pass of a transformer in one call: encoder, or decoder over a cache, for Marian, mBART, M2M-100, T5 and our own shapes.

All positions of all rows are in one array without padding, so that a matrix is read once for all of them.
"""

import numpy as np
from numba import njit

from fastdecode_lib.kernels.attention import FIRST_PAGE, attend_from, usual_factor
from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import (
    activate,
    copy,
    divide_by_root_mean_square,
    multiply_halves,
    normalise,
    of_bits,
)
from fastdecode_lib.kernels.matrices import floats_at, multiply
from fastdecode_lib.kernels.slots import PAGE

SELF_INPUTS, SELF_OUT, CROSS_QUERIES, CROSS_OUT, INNER, OUTER, CROSS_MEMORY, MATRICES = range(8)
"""Matrices of a layer: queries, keys and values together; the encoder has no cross-attention."""
SELF_NORM, CROSS_NORM, FINAL_NORM, NORMS = range(4)
"""Norms of a layer. Two more rows behind the layers have one norm each: of the embeddings, and the last one."""
NORM_WEIGHT, NORM_BIAS, NORM_EPSILON, NORM_FIELDS = range(4)
"""Fields of a norm: two addresses, and the bits of a float32. Without a weight there is no norm, without a bias it divides by the
root mean square."""
WIDTH, ATTENTION, FEED_FORWARD, GATED, ACTIVATION, UNSCALED, PRE_NORM, PADDING, SIGHT, SETTINGS = range(10)
"""Settings of a side: width, size of all heads together, width of the feed-forward layers and whether they are gated, number of
the activation, whether scores are unscaled, whether norms are before blocks, id without a position (-1: none), and number of
slots of a pass that see each other."""


@njit(nogil=True, error_model="numpy")
def _embed(ids, places, embedding, positions, scale, width, padding, norm, x):  # type: ignore[no-untyped-def]
    for row in range(len(ids)):
        token, place = ids[row], places[row]
        positioned = np.float32(0.0 if token == padding else 1.0)
        if len(positions) > 0:
            for i in range(width):
                x[row, i] = embedding[token, i] * scale + positions[place, i] * positioned
        else:
            for i in range(width):
                x[row, i] = embedding[token, i] * scale
    _norm_if(x, len(ids), width, norm)


@njit(nogil=True, error_model="numpy")
def _norm_if(x, rows, width, norm):  # type: ignore[no-untyped-def]
    if norm[NORM_WEIGHT] != 0:
        _norm(x, rows, width, norm, x)


@njit(nogil=True, error_model="numpy")
def _norm(x, rows, width, norm, out):  # type: ignore[no-untyped-def]
    weight, epsilon = floats_at(norm[NORM_WEIGHT], width), of_bits(np.int32(norm[NORM_EPSILON]))
    if norm[NORM_BIAS] != 0:
        normalise(x, rows, width, weight, floats_at(norm[NORM_BIAS], width), epsilon, out)
    else:
        divide_by_root_mean_square(x, rows, width, weight, epsilon, out)


@njit(nogil=True, error_model="numpy")
def _before(x, rows, width, pre_norm, norm, h):  # type: ignore[no-untyped-def]
    """Write the input of a block to h: x, normalised in pre-norm models."""
    if pre_norm:
        _norm(x, rows, width, norm, h)
    else:
        for row in range(rows):
            copy(x[row], width, h[row])


@njit(nogil=True, error_model="numpy")
def _after(x, block, rows, width, pre_norm, norm):  # type: ignore[no-untyped-def]
    """Add a block's result to x; normalise the sum in post-norm models."""
    for row in range(rows):
        for i in range(width):
            x[row, i] += block[row, i]
    if not pre_norm:
        _norm_if(x, rows, width, norm)


@njit(nogil=True, error_model="numpy")
def _feed_forward(x, h, wide, rounded, rows, settings, matrices, norm):  # type: ignore[no-untyped-def]
    width, inner = settings[WIDTH], settings[FEED_FORWARD]
    _before(x, rows, width, settings[PRE_NORM], norm, h)
    multiply(h, rows, matrices[INNER], rounded, wide)
    activate(wide, rows, inner, settings[ACTIVATION])
    if settings[GATED]:
        multiply_halves(wide, rows, inner)
    multiply(wide, rows, matrices[OUTER], rounded, h)
    _after(x, h, rows, width, settings[PRE_NORM], norm)


@njit(nogil=True, error_model="numpy")
def _store(wide, row, first, cache, slot):  # type: ignore[no-untyped-def]
    """Copy a key or value, from column `first` of a row on, to a slot of a cache (heads, slots, size)."""
    heads, _, size = cache.shape
    source = wide.ctypes.data + row * wide.strides[0] + 4 * first
    target = cache.ctypes.data + slot * cache.strides[1]
    for head in range(heads):
        vector = floats_at(source + 4 * head * size, size)
        copy(vector, size, floats_at(target + head * cache.strides[0], size))


@njit(nogil=True, error_model="numpy")
def _factor(settings, size):  # type: ignore[no-untyped-def]
    return np.float32(1.0) if settings[UNSCALED] else usual_factor(size)


@kernel
def encode(  # type: ignore[no-untyped-def]
    ids, starts, settings, matrices, norms, memory, embedding, positions, biases, scale,
    x, h, wide, rounded, scores, offsets, indices, nothing, keys, values, memory_keys, memory_values,
):  # fmt: skip
    """Run the encoder, and compute the decoder's keys and values of cross-attention.

    Parameters
    ----------
    ids : int64 array (N,)
        All sentences, concatenated; sentence b is from ``starts[b]`` to ``starts[b + 1]``.
    settings, matrices, norms : int64 arrays (SETTINGS,), (L, MATRICES, FIELDS), (L + 2, NORMS, NORM_FIELDS)
    memory : int64 array (decoder layers, MATRICES, FIELDS)
        The decoder's matrices.
    embedding, positions, biases : float32 arrays (V, D), (P, D), (heads, 2 * farthest + 1)
        Positions or biases of distances are empty.
    x, h, wide, rounded, scores, offsets, indices, nothing : arrays
        Room: (N, padded D or ATTENTION) twice, (N, padded widest), `matrices.scratch` of the widest, (padded longest,),
        int64 (padded longest,), int64 (5, N), bool (0,).
    keys, values : float32 arrays (1, heads, N, size)
        Room.
    memory_keys, memory_values : float32 arrays (decoder layers, B, heads, S, size)
        Results.
    """
    rows, width, pre_norm = len(ids), settings[WIDTH], settings[PRE_NORM]
    layers, inner, factor = len(matrices), settings[ATTENTION], _factor(settings, keys.shape[3])
    places = indices[0, :rows]
    for sentence in range(len(starts) - 1):
        for row in range(starts[sentence], starts[sentence + 1]):
            places[row] = row - starts[sentence]
    _embed(ids, places, embedding, positions, scale, width, settings[PADDING], norms[layers, 0], x)
    for layer in range(layers):
        _before(x, rows, width, pre_norm, norms[layer, SELF_NORM], h)
        multiply(h, rows, matrices[layer, SELF_INPUTS], rounded, wide)
        for row in range(rows):
            _store(wide, row, inner, keys[0], row)
            _store(wide, row, 2 * inner, values[0], row)
        for sentence in range(len(starts) - 1):
            first, last = starts[sentence], starts[sentence + 1]
            for row in range(first, last):
                attend_from(
                    wide[row], keys[:, :, first:], values[:, :, first:], FIRST_PAGE, last - first, nothing, factor, biases,
                    row - first, places, scores, offsets, h[row],
                )  # fmt: skip
        multiply(h, rows, matrices[layer, SELF_OUT], rounded, wide)
        _after(x, wide, rows, width, pre_norm, norms[layer, SELF_NORM])
        _feed_forward(x, h, wide, rounded, rows, settings, matrices[layer], norms[layer, FINAL_NORM])
    _norm_if(x, rows, width, norms[layers + 1, 0])
    for layer in range(len(memory)):
        multiply(x, rows, memory[layer, CROSS_MEMORY], rounded, wide)
        for sentence in range(len(starts) - 1):
            for row in range(starts[sentence], starts[sentence + 1]):
                _store(wide, row, 0, memory_keys[layer, sentence], row - starts[sentence])
                second = memory_keys.shape[2] * memory_keys.shape[4]
                _store(wide, row, second, memory_values[layer, sentence], row - starts[sentence])


@kernel
def decode(  # type: ignore[no-untyped-def]
    tokens, visible, filled, sources, settings, matrices, norms, embedding, positions, biases, scale,
    x, h, wide, rounded, scores, offsets, indices, nothing, keys, values, pages, memory_keys, memory_values, memory_lengths, hidden,
):  # fmt: skip
    """Run the decoder over the next slots of each row.

    Parameters
    ----------
    tokens : int64 array (B, W)
        -1 at the end of a row feeds nothing.
    visible : bool array (B, W, W) or (0, 0, 0)
        The slots of the W that each one sees; if empty, the ``settings[SIGHT]`` of its group and those before it.
    filled, sources : int64 arrays (B,)
        Number of slots in the cache of each row; index of the sentence that it translates.
    keys, values : float32 arrays (L, P, heads, PAGE, size)
        The cache, written behind the filled slots.
    pages : int64 array (B, C)
        The pages of each row.
    memory_keys, memory_values, memory_lengths : arrays
        From `encode`, with the lengths of the sentences.
    hidden : float32 array (B, W, D)
        Result, unchanged where nothing was fed.
    """
    batch, slots = tokens.shape
    layers, width, pre_norm, sight = len(matrices), settings[WIDTH], settings[PRE_NORM], settings[SIGHT]
    inner, factor, tree = settings[ATTENTION], _factor(settings, keys.shape[4]), len(visible) > 0
    ids, places, row_of, slot_of, fed = indices[0], indices[1], indices[2], indices[3], indices[4]
    rows = 0
    for row in range(batch):
        fed[row] = 0
        for slot in range(slots):
            if tokens[row, slot] < 0:
                break
            ids[rows], row_of[rows], slot_of[rows] = tokens[row, slot], row, slot
            places[rows] = filled[row] + (visible[row, slot].sum() - 1 if tree else slot)
            fed[row] += 1
            rows += 1
    _embed(ids[:rows], places[:rows], embedding, positions, scale, width, settings[PADDING], norms[layers, 0], x)
    for layer in range(layers):
        _before(x, rows, width, pre_norm, norms[layer, SELF_NORM], h)
        multiply(h, rows, matrices[layer, SELF_INPUTS], rounded, wide)
        for n in range(rows):
            slot = filled[row_of[n]] + slot_of[n]
            page = pages[row_of[n], slot // PAGE]
            _store(wide, n, inner, keys[layer, page], slot % PAGE)
            _store(wide, n, 2 * inner, values[layer, page], slot % PAGE)
        for n in range(rows):
            row, slot = row_of[n], slot_of[n]
            k, v, own_pages = keys[layer], values[layer], pages[row]
            if tree:
                others = places[n - slot : n - slot + slots]
                attend_from(
                    wide[n], k, v, own_pages, filled[row], visible[row, slot], factor, biases, places[n], others,
                    scores, offsets, h[n],
                )  # fmt: skip
            else:
                seen = filled[row] + min((slot // sight + 1) * sight, fed[row])
                attend_from(
                    wide[n], k, v, own_pages, seen, nothing, factor, biases, places[n], places, scores, offsets, h[n]
                )
        multiply(h, rows, matrices[layer, SELF_OUT], rounded, wide)
        _after(x, wide, rows, width, pre_norm, norms[layer, SELF_NORM])
        _before(x, rows, width, pre_norm, norms[layer, CROSS_NORM], h)
        multiply(h, rows, matrices[layer, CROSS_QUERIES], rounded, wide)
        for n in range(rows):
            source = sources[row_of[n] : row_of[n] + 1]
            attend_from(
                wide[n], memory_keys[layer], memory_values[layer], source, memory_lengths[source[0]], nothing, factor,
                biases[:0], 0, places, scores, offsets, h[n],
            )  # fmt: skip
        multiply(h, rows, matrices[layer, CROSS_OUT], rounded, wide)
        _after(x, wide, rows, width, pre_norm, norms[layer, CROSS_NORM])
        _feed_forward(x, h, wide, rounded, rows, settings, matrices[layer], norms[layer, FINAL_NORM])
    _norm_if(x, rows, width, norms[layers + 1, 0])
    for n in range(rows):
        for i in range(width):
            hidden[row_of[n], slot_of[n], i] = x[n, i]
