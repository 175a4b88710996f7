"""The exact best tokens from byte scores with rigorous error bounds: only possible best tokens are scored in float32.

With the hidden vector h, its rounded form q, an output's weight w, its rounded form v and its bias b, the byte product is
``q v + b`` but for a few roundings, and::

    |h w - q v| <= |h| |w - v| + |h - q| |v|

(Cauchy and Schwarz). The float32 score of a row, made of D fused steps, lies within ``(D + 1) u (|h| |w| + |b|)``, u = 2^-24,
of the true one. The sum of both is the row's radius, multiplied by a little more than 1 for its own rounding and with some of the
smallest numbers added for underflow. A row with a radius that is not finite is scored.
"""

import numpy as np
from numba import njit

from fastdecode_lib.kernels.builder import LANES
from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import largest_of
from fastdecode_lib.kernels.matrices import BIAS, COLUMNS, FLOAT, WEIGHT, bytes_at, floats_at, multiply, shorts_at
from fastdecode_lib.kernels.reductions import highest_bound
from fastdecode_lib.kernels.tiles import BFLOAT16, FLOAT16, FLOAT32, tile
from fastdecode_lib.kernels.top_k import SPAN

_of_floats, _of_halves, _of_bfloats = tile(FLOAT32, 1, 1), tile(FLOAT16, 1, 1), tile(BFLOAT16, 1, 1)


@njit(nogil=True, error_model="numpy")
def _exact(x, whole, token, sixteen):  # type: ignore[no-untyped-def]
    """The float32 score of one token, bit for bit that of `matrices.multiply`."""
    columns, block, form = whole[COLUMNS], token // LANES, whole[FLOAT]
    weight, bias = whole[WEIGHT] + block * columns * (2 if form else 4) * LANES, whole[BIAS] + 4 * LANES * block
    at, out = x.ctypes.data, sixteen.ctypes.data
    if form == 0:
        _of_floats(weight, 0, at, 0, columns, bias, 0, 0, 0, 0, out, 0)
    elif form == 1:
        _of_halves(weight, 0, at, 0, columns, bias, 0, 0, 0, 0, out, 0)
    else:
        _of_bfloats(weight, 0, at, 0, columns, bias, 0, 0, 0, 0, out, 0)
    return sixteen[token % LANES]


@njit(nogil=True, error_model="numpy")
def _lengths(x, columns, rounded, bytes_each):  # type: ignore[no-untyped-def]
    """Upper bounds of the lengths of a row and of its rounding error; `rounded` is the address of its integers."""
    scale = np.float64(floats_at(rounded, 1)[0])
    whole, rest = 0.0, 0.0
    if bytes_each == 1:
        entries = bytes_at(rounded + 4, columns)
        for column in range(columns):
            value = np.float64(x[column])
            whole += value * value
            lost = value - scale * (np.float64(entries[column]) - 128.0)
            rest += lost * lost
    else:
        numbers = shorts_at(rounded + 4, columns)
        for column in range(columns):
            value = np.float64(x[column])
            whole += value * value
            lost = value - scale * np.float64(numbers[column])
            rest += lost * lost
    return np.float32(np.sqrt(whole) * (1 + 1e-6)), np.float32(np.sqrt(rest) * (1 + 1e-6))


@njit(nogil=True, error_model="numpy")
def _raise(scores, row, outputs, length, lost, lengths, losses, rest, uppers, tops):  # type: ignore[no-untyped-def]
    """Upper bounds of a row's scores, and the highest of each span; infinite beyond the range of float32."""
    at, sizes, lost_by, more, bounds = (
        scores[row].ctypes.data, lengths.ctypes.data, losses.ctypes.data, rest.ctypes.data, uppers.ctypes.data
    )  # fmt: skip
    for span in range((outputs + SPAN - 1) // SPAN):
        first = 4 * SPAN * span
        groups = (min(SPAN * span + SPAN, outputs) - SPAN * span) // LANES
        tops[span] = highest_bound(
            at + first, sizes + first, lost_by + first, more + first, bounds + first, length, lost, groups
        )  # fmt: skip


@kernel
def rounding(whole, small, scale, found):  # type: ignore[no-untyped-def]
    """The terms of every output's bounds, summed in float64.

    Parameters
    ----------
    whole, small : float32 (B, K, 16, 1) and int8 (B, G, 16, group) arrays
        The packed weight w, and its rounded form v over `scale`.
    scale : float32 array (16 * B,)
    found : float64 array (4, 16 * B)
        The squared lengths of w, of v and of w - v, and the sum of the magnitudes of w.
    """
    group = small.shape[3]
    found[:] = 0.0
    for block in range(len(whole)):
        for column in range(whole.shape[1]):
            for lane in range(LANES):
                output = block * LANES + lane
                true = np.float64(whole[block, column, lane, 0])
                near = np.float64(scale[output]) * np.float64(small[block, column // group, lane, column % group])
                found[0, output] += true * true
                found[1, output] += near * near
                found[2, output] += (true - near) * (true - near)
                found[3, output] += abs(true)


@kernel
def best_of_bounded(  # type: ignore[no-untyped-def]
    hidden, whole, small, bytes_each, count, lengths, losses, rest, banned, rounded, scores, uppers, tops, sixteen,
    ids, values, rescored,
):  # fmt: skip
    """The best tokens of hidden (N, D) by their float32 scores, found by means of byte scores.

    The token with the highest upper bound is scored exactly, then the next, until no bound reaches the worst of the k best
    so far: then no other token can be among them.

    Parameters
    ----------
    whole, small : int64 arrays (FIELDS,)
        The output matrix in float32, and in int8.
    bytes_each : int
        Bytes of a rounded entry of a row.
    lengths, losses, rest : float32 arrays (padded V,)
        For each output: |v|, the factor of |h|, and the summand, which is minus infinity for padding.
    ids, values : arrays (N, k)
    rescored : int64 array (N,)
        Tokens scored exactly.
    """
    together, k = len(scores), ids.shape[1]
    spans = (count + SPAN - 1) // SPAN
    for first in range(0, len(hidden), together):
        rows = min(together, len(hidden) - first)
        multiply(hidden[first:], rows, small, rounded, scores)
        for row in range(rows):
            at, x = first + row, hidden[first + row]
            length, lost = _lengths(x, whole[COLUMNS], rounded[row].ctypes.data, bytes_each)
            _raise(scores, row, len(rest), length, lost, lengths, losses, rest, uppers, tops)
            for token in banned[0 if len(banned) == 1 else at]:
                if token >= 0 and uppers[0, token] > -np.inf:
                    uppers[0, token] = -np.inf
                    span = token // SPAN
                    tops[span] = largest_of(uppers, 0, span * SPAN, min(span * SPAN + SPAN, count))
            ids[at], values[at] = -1, -np.inf
            found = 0
            while True:
                best = 0
                for span in range(1, spans):
                    if tops[span] > tops[best]:
                        best = span
                if tops[best] == -np.inf or (found >= k and tops[best] < values[at, k - 1]):
                    break
                token = best * SPAN
                while uppers[0, token] != tops[best]:
                    token += 1
                uppers[0, token] = -np.inf
                tops[best] = largest_of(uppers, 0, best * SPAN, min(best * SPAN + SPAN, count))
                score = _exact(x, whole, token, sixteen)
                found += 1
                place = k
                while (
                    score > -np.inf
                    and place > 0
                    and (
                        score > values[at, place - 1]
                        or ids[at, place - 1] < 0
                        or (score == values[at, place - 1] and token < ids[at, place - 1])
                    )
                ):
                    place -= 1
                if place < k:
                    for rank in range(k - 1, place, -1):
                        ids[at, rank], values[at, rank] = ids[at, rank - 1], values[at, rank - 1]
                    ids[at, place], values[at, place] = token, score
            rescored[at] = found
