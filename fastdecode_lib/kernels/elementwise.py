"""Functions of vectors that stand between the products: exponential, activations, normalisation, softmax.

Nothing here depends on how many rows stand beside a row. Only sums over a row are reordered, always in the same way.
"""

from math import erf, log
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

ACTIVATIONS = {"relu": 0, "silu": 1, "swish": 1, "gelu": 2, "gelu_new": 3}
"""Numbers under which the kernels know the activations of `checkpoints.ACTIVATIONS`."""

_reordered = {"reassoc", "contract", "nsz", "nnan"}


@intrinsic
def of_bits(typing, bits):  # type: ignore[no-untyped-def]
    """The float32 that an int32 spells."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@njit(nogil=True, error_model="numpy")
def exponential(x):  # type: ignore[no-untyped-def]
    """E to the power of a float32 from -87.3 to 88, within two units in the last place; constant outside; NaN of NaN."""
    x = min(max(x, np.float32(-87.3)), np.float32(88.0))
    power = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    rest = x - power * np.float32(0.693359375)
    rest = rest - power * np.float32(-2.12194440e-4)
    value = np.float32(1.9875691500e-4)
    value = value * rest + np.float32(1.3981999507e-3)
    value = value * rest + np.float32(8.3334519073e-3)
    value = value * rest + np.float32(4.1665795894e-2)
    value = value * rest + np.float32(1.6666665459e-1)
    value = value * rest + np.float32(5.0000001201e-1)
    value = value * rest * rest + rest + np.float32(1.0)
    return value * of_bits(np.int32((power + np.float32(127.0)) * np.float32(8388608.0)))


@njit(nogil=True, error_model="numpy")
def hyperbolic_tangent(x):  # type: ignore[no-untyped-def]
    """The hyperbolic tangent of a float32, within 2e-7."""
    return np.float32(1.0) - np.float32(2.0) / (exponential(x + x) + np.float32(1.0))


@njit(nogil=True, error_model="numpy")
def logistic(x):  # type: ignore[no-untyped-def]
    """1 / (1 + e^-x) of a float32, within 1e-7."""
    return np.float32(1.0) / (np.float32(1.0) + exponential(-x))


@njit(nogil=True, error_model="numpy")
def activate(x, rows, width, which):  # type: ignore[no-untyped-def]
    """An activation of `ACTIVATIONS` on the first `width` entries x of each row, in place, within 2e-7 * abs(x)."""
    for row in range(rows):
        if which == 0:
            for i in range(width):
                x[row, i] = max(x[row, i], np.float32(0.0))
        elif which == 1:
            for i in range(width):
                x[row, i] = x[row, i] * logistic(x[row, i])
        elif which == 2:
            for i in range(width):
                value = x[row, i]
                x[row, i] = np.float32(0.5) * value * np.float32(1.0 + erf(value * np.float32(0.70710678)))
        else:
            for i in range(width):
                value = x[row, i]
                inner = np.float32(0.79788456) * (value + np.float32(0.044715) * value * value * value)
                x[row, i] = np.float32(0.5) * value * (np.float32(1.0) + hyperbolic_tangent(inner))


@njit(nogil=True, error_model="numpy", fastmath=_reordered)
def _sum(x, row, width):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for i in range(width):
        total += x[row, i]
    return total


@njit(nogil=True, error_model="numpy", fastmath=_reordered)
def _squares(x, row, width, mean):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for i in range(width):
        total += (x[row, i] - mean) * (x[row, i] - mean)
    return total


@njit(nogil=True, error_model="numpy")
def normalise(x, rows, width, weight, bias, out):  # type: ignore[no-untyped-def]
    """Layer normalisation of the first `width` entries of each row, with weight and bias (width,); `out` may be `x`."""
    for row in range(rows):
        mean = _sum(x, row, width) / np.float32(width)
        deviation = np.sqrt(_squares(x, row, width, mean) / np.float32(width) + np.float32(1e-5))
        factor = np.float32(1.0) / deviation
        for i in range(width):
            out[row, i] = (x[row, i] - mean) * factor * weight[i] + bias[i]


@njit(nogil=True, error_model="numpy")
def softmax(scores, count):  # type: ignore[no-untyped-def]
    """Turn the first `count` scores into shares of 1, in place."""
    top = np.float32(-np.inf)
    for i in range(count):
        top = max(top, scores[i])
    for i in range(count):
        scores[i] = exponential(scores[i] - top)
    total = np.float32(0.0)
    for i in range(count):
        total += scores[i]
    share = np.float32(1.0) / total
    for i in range(count):
        scores[i] *= share


@njit(nogil=True, error_model="numpy", fastmath=_reordered)
def _exponentials(scores, row, first, last, top):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for i in range(first, last):
        total += exponential(scores[row, i] - top)
    return total


@njit(nogil=True, error_model="numpy")
def log_sum(scores, row, count):  # type: ignore[no-untyped-def]
    """The logarithm of the sum of the exponentials of a row's first `count` scores."""
    top = np.float32(-np.inf)
    for i in range(count):
        top = max(top, scores[row, i])
    total = 0.0
    for first in range(0, count, 512):
        total += _exponentials(scores, row, first, min(first + 512, count), top)
    return top + log(total)
