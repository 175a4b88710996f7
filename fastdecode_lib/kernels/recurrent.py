"""Steps between the products of a recurrent model: gates, attention, clipped layers (Devlin, 2017, sec. 4 and 5).

Sigmoid and tanh are computed in one of three ways: entry by entry by the C library, from tables as in the paper's section 4.4,
or as polynomials in vector registers.
"""

from math import exp, tanh

import numpy as np
from numba import njit

from fastdecode_lib.kernels.builder import LANES
from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import copy, hyperbolic_tangent, logistic, softmax
from fastdecode_lib.kernels.matrices import BLOCKS, floats_at, multiply
from fastdecode_lib.kernels.reductions import dot

LIBRARY, TABLE, POLYNOMIAL = range(3)
"""Ways to compute sigmoid and tanh."""
GRU, LSTM = range(2)

RANGE, CELLS = 8.0, 1024
"""Tables cover -8 to 8 in 1,024 cells, with linear interpolation within and the end values beyond."""

_points = np.linspace(-RANGE, RANGE, CELLS + 1)
SIGMOIDS = (1 / (1 + np.exp(-_points))).astype(np.float32)
TANHS = np.tanh(_points).astype(np.float32)


@njit(nogil=True, error_model="numpy")
def look_up(x, table):  # type: ignore[no-untyped-def]
    """Read each entry of x from a table, in place."""
    for i in range(len(x)):
        place = (min(max(x[i], np.float32(-RANGE)), np.float32(RANGE)) + np.float32(RANGE)) * np.float32(CELLS / 16)
        cell = np.int32(min(place, np.float32(CELLS - 1)))
        low = table[cell]
        x[i] = low + (table[cell + 1] - low) * (place - np.float32(cell))


@kernel
def sigmoid(x, way):  # type: ignore[no-untyped-def]
    """The logistic function of each entry, in place."""
    if way == TABLE:
        look_up(x, SIGMOIDS)
    elif way == POLYNOMIAL:
        for i in range(len(x)):
            x[i] = logistic(x[i])
    else:
        for i in range(len(x)):
            x[i] = np.float32(1.0 / (1.0 + exp(-x[i])))


@kernel
def tangent(x, way):  # type: ignore[no-untyped-def]
    """The hyperbolic tangent of each entry, in place."""
    if way == TABLE:
        look_up(x, TANHS)
    elif way == POLYNOMIAL:
        for i in range(len(x)):
            x[i] = hyperbolic_tangent(x[i])
    else:
        for i in range(len(x)):
            x[i] = np.float32(tanh(x[i]))


@njit(nogil=True, error_model="numpy")
def gru(before, from_state, from_input, after, work, way):  # type: ignore[no-untyped-def]
    """One row of a GRU: u h + (1 - u) tanh(r * (W h) + inputs); gates in the order update, reset, candidate."""
    width = len(after)
    for i in range(2 * width):
        work[i] = from_state[i] + from_input[i]
    sigmoid(work[: 2 * width], way)
    for i in range(width):
        work[2 * width + i] = work[width + i] * from_state[2 * width + i] + from_input[2 * width + i]
    tangent(work[2 * width :], way)
    for i in range(width):
        after[i] = work[2 * width + i] + work[i] * (before[i] - work[2 * width + i])


@njit(nogil=True, error_model="numpy")
def _lstm(before, from_state, from_input, after, work, way):  # type: ignore[no-untyped-def]
    """One row of an LSTM: hidden vector, then memory cell; gates in the order input, forget, output, candidate."""
    width = len(after) // 2
    for i in range(4 * width):
        work[i] = from_state[i] + from_input[i]
    sigmoid(work[: 3 * width], way)
    tangent(work[3 * width :], way)
    for i in range(width):
        after[width + i] = work[width + i] * before[width + i] + work[i] * work[3 * width + i]
        after[i] = after[width + i]
    tangent(after[:width], way)
    for i in range(width):
        after[i] *= work[2 * width + i]


@njit(nogil=True, error_model="numpy")
def _cell(kind, before, from_state, from_input, after, work, way):  # type: ignore[no-untyped-def]
    if kind == GRU:
        gru(before, from_state, from_input, after, work, way)
    else:
        _lstm(before, from_state, from_input, after, work, way)


@kernel
def cells(kind, states, nodes, from_state, shared, from_input, first, way):  # type: ignore[no-untyped-def]
    """One step of a recurrent layer for n rows.

    Parameters
    ----------
    kind : GRU or LSTM
    states : float32 array (nodes, D or 2 D)
        The states of all nodes; new states are written from node `first` on.
    nodes : int64 array (n,)
        The node before each row.
    from_state : float32 array (u, G D)
        Products with the states before; row ``shared[i]`` belongs to row i.
    from_input : float32 array (n, G D)
        All other summands of the gates.
    """
    rounds = from_input.shape[1]
    work = np.empty(rounds, np.float32)
    for row in range(len(nodes)):
        before, after = states[nodes[row]], states[first + row]
        _cell(kind, before, from_state[shared[row], :rounds], from_input[row], after, work, way)


@kernel
def direction(kind, inputs, matrix, rounded, width, backwards, hidden, column, way):  # type: ignore[no-untyped-def]
    """Run a source layer over a sentence in one direction.

    Parameters
    ----------
    inputs : float32 array (S, G H)
        V x + b of every word.
    matrix : int64 array (FIELDS,)
        W, as `matrices.Matrix.record`.
    rounded : int16 array (1, ...)
        From `matrices.scratch`.
    hidden : float32 array (S, ...)
        The hidden vectors are written from `column` on.
    """
    gates = inputs.shape[1]
    size = width if kind == GRU else 2 * width
    state, after = np.zeros((1, size), np.float32), np.zeros((1, size), np.float32)
    product, work = np.empty((1, gates + 64), np.float32), np.empty(gates, np.float32)
    for step in range(len(inputs)):
        place = len(inputs) - 1 - step if backwards else step
        multiply(state, 1, matrix, rounded, product)
        _cell(kind, state[0], product[0, :gates], inputs[place], after[0], work, way)
        copy(after[0], size, state[0])
        for i in range(width):
            hidden[place, column + i] = after[0, i]


@kernel
def look(  # type: ignore[no-untyped-def]
    from_state, shared, from_input, first, sources, lengths, keys, values, weights, contexts, way
):
    """Attend from n rows to their sources: d = tanh(Wa h + Va x) . tanh(Ua s), and the weighted sum of the values.

    Parameters
    ----------
    from_state, from_input : float32 arrays (u, first + A), (n, first + A)
        Products with states and words; those of the attention stand from column `first` on. Row ``shared[i]`` of the former
        belongs to row i.
    sources, lengths : int64 arrays (n,), (B,)
        The sentence of each row, and the sentences' lengths.
    keys, values : float32 arrays (B, S, A), (B, S, ...)
        tanh(Ua s); what is summed: s itself or, precomputed, U s.
    weights, contexts : float32 arrays (n, S), (n, ...)
        Results.
    """
    size = keys.shape[2]
    query = np.empty(size, np.float32)
    for row in range(len(sources)):
        source = sources[row]
        for i in range(size):
            query[i] = from_state[shared[row], first + i] + from_input[row, first + i]
        tangent(query, way)
        count = lengths[source]
        at_keys, at_values = keys[source].ctypes.data, values[source].ctypes.data
        for word in range(count):
            weights[row, word] = dot(query.ctypes.data, at_keys + word * keys.strides[1], size)
        softmax(weights[row], count)
        context = contexts[row]
        context[:] = np.float32(0.0)
        for word in range(count):
            share, value = weights[row, word], floats_at(at_values + word * values.strides[1], len(context))
            for i in range(len(context)):
                context[i] += share * value[i]


@kernel
def bottom_layer(  # type: ignore[no-untyped-def]
    kind,
    states,
    parents,
    merged,
    matrix,
    from_word,
    gates,
    sources,
    lengths,
    keys,
    values,
    rounded,
    first,
    way,
    weights,
):
    """One step of the target's bottom layer for n rows, with attention to values that U has multiplied already.

    `parents` (n,) are the nodes before the rows; those that are equal are multiplied once if `merged`. `matrix` is the record of
    W's and Wa's product with a state, the other arguments are those of `look` and `cells`.
    """
    rows, width = len(parents), states.shape[1] if kind == GRU else states.shape[1] // 2
    different, shared, count = parents.copy(), np.arange(rows), rows
    if merged:
        count = distinct(parents, different, shared)
    before = np.empty((count, width), np.float32)
    for row in range(count):
        copy(states[different[row]], width, before[row])
    from_state = np.empty((count, LANES * matrix[BLOCKS]), np.float32)
    multiply(before, count, matrix, rounded, from_state)
    contexts = np.empty((rows, gates), np.float32)
    look(from_state, shared, from_word, gates, sources, lengths, keys, values, weights, contexts, way)
    for row in range(rows):
        for i in range(gates):
            contexts[row, i] += from_word[row, i]
    cells(kind, states, parents, from_state, shared, contexts, first, way)


@kernel
def clipped(product, skipped, limit):  # type: ignore[no-untyped-def]
    """relu(product + skipped), at most `limit`, in place; `skipped` may have no rows."""
    for row in range(len(product)):
        if len(skipped):
            for i in range(product.shape[1]):
                product[row, i] += skipped[row, i]
        for i in range(product.shape[1]):
            product[row, i] = min(max(product[row, i], np.float32(0.0)), np.float32(limit))


@kernel
def connected(hidden, matrices, top, width, rounded, results, limit, way):  # type: ignore[no-untyped-def]
    """Fully-connected layers, one above the other: relu, and every other layer adds the result of the one two below first.

    Above them there may be a layer of `width` with tanh.

    Parameters
    ----------
    hidden : float32 array (n, K)
    matrices : int64 array (layers, FIELDS)
        Each as `matrices.Matrix.record`.
    top : int64 array (1, FIELDS) or (0, FIELDS)
        The layer with tanh.
    rounded : int16 array (n, ...)
        From `matrices.scratch`, for the widest rows.
    results : float32 array (3, n, padded width)
        Room; the result is one of the three.
    """
    odd, even, following = results[0], results[1], results[2]
    nothing = results[0, :0]
    for layer in range(len(matrices)):
        if layer % 2:
            multiply(odd, len(hidden), matrices[layer], rounded, even)
            clipped(even, nothing, limit)
        else:
            below = even if layer else hidden
            multiply(below, len(hidden), matrices[layer], rounded, following)
            clipped(following, odd if layer else nothing, limit)
            odd, following = following, odd
    last = odd if len(matrices) % 2 else even
    if len(top):
        multiply(last if len(matrices) else hidden, len(hidden), top[0], rounded, following)
        for row in range(len(hidden)):
            tangent(following[row, :width], way)
        return following
    return last


@kernel
def distinct(nodes, different, shared):  # type: ignore[no-untyped-def]
    """The `different` nodes among some nodes (n,), in the order they come, and the place of each among them, `shared` (n,).

    Returns
    -------
    int
        How many there are.
    """
    count = 0
    for row in range(len(nodes)):
        place = 0
        while place < count and different[place] != nodes[row]:
            place += 1
        different[place], shared[row] = nodes[row], place
        count = max(count, place + 1)
    return count
