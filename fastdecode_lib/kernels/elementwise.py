"""Functions of vectors between the products: exponential, activations, normalisation, softmax.

The results of a row do not depend on the other rows. Sums over a row are those of `reductions`.
"""

from math import erf, log
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from fastdecode_lib.kernels.builder import LANES, Builder, emitted
from fastdecode_lib.kernels.reductions import FAINT, exponential, exponentials, largest, squares, total

ACTIVATIONS = {"relu": 0, "silu": 1, "swish": 1, "gelu": 2, "gelu_new": 3}
"""Numbers under which the kernels know the activations of `checkpoints.transformer.ACTIVATIONS`."""


@emitted(types.float32(types.int32))
def of_bits(b: Builder, bits: Any) -> Any:
    """The float32 with the bits of an int32."""
    return b.ir.bitcast(bits, ir.FloatType())


@njit(nogil=True, error_model="numpy")
def copy(source, count, target):  # type: ignore[no-untyped-def]
    """Copy the first `count` entries of a vector; slice assignments take seconds to compile because of their error messages."""
    for i in range(count):
        target[i] = source[i]


@njit(nogil=True, error_model="numpy")
def place(members, first, count, token):  # type: ignore[no-untyped-def]
    """The index of a token among `count` ascending members from `first` on, or -1."""
    low, high = first, first + count
    while low < high:
        middle = (low + high) // 2
        if members[middle] < token:
            low = middle + 1
        else:
            high = middle
    return low - first if low < first + count and members[low] == token else -1


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


@njit(nogil=True, error_model="numpy")
def multiply_halves(x, rows, width):  # type: ignore[no-untyped-def]
    """Multiply the first `width` entries of each row by the next `width`, in place."""
    for row in range(rows):
        for i in range(width):
            x[row, i] *= x[row, width + i]


@njit(nogil=True, error_model="numpy")
def divide_by_root_mean_square(x, rows, width, weight, epsilon, out):  # type: ignore[no-untyped-def]
    """Divide the first `width` entries of each row by their root mean square, times weight (width,); `out` may be `x`."""
    for row in range(rows):
        mean = squares(x[row].ctypes.data, width, np.float32(0.0)) / np.float32(width)
        factor = np.float32(1.0) / np.sqrt(mean + epsilon)
        for i in range(width):
            out[row, i] = x[row, i] * factor * weight[i]


@njit(nogil=True, error_model="numpy")
def normalise(x, rows, width, weight, bias, epsilon, out):  # type: ignore[no-untyped-def]
    """Layer normalisation of the first `width` entries of each row, with weight and bias (width,); `out` may be `x`."""
    for row in range(rows):
        start = x[row].ctypes.data
        mean = total(start, width) / np.float32(width)
        deviation = np.sqrt(squares(start, width, mean) / np.float32(width) + epsilon)
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
        below = scores[i] - top
        scores[i] = np.float32(0.0) if below < np.float32(FAINT) else exponential(below)
    total = np.float32(0.0)
    for i in range(count):
        total += scores[i]
    share = np.float32(1.0) / total
    for i in range(count):
        scores[i] *= share


@njit(nogil=True, error_model="numpy")
def largest_of(scores, row, first, last):  # type: ignore[no-untyped-def]
    """The largest of a row's scores from `first` to before `last`; minus infinity if there are none."""
    top, groups = np.float32(-np.inf), (last - first) // LANES
    if groups > 0:
        top = largest(scores[row].ctypes.data + 4 * first, groups)
    for i in range(first + groups * LANES, last):
        top = max(top, scores[row, i])
    return top


@njit(nogil=True, error_model="numpy")
def log_sum(scores, row, count):  # type: ignore[no-untyped-def]
    """The logarithm of the sum of the exponentials of a row's first `count` scores."""
    top, start = largest_of(scores, row, 0, count), scores[row].ctypes.data
    everything = 0.0
    for first in range(0, count, 512):
        everything += exponentials(start + 4 * first, min(count - first, 512), top)
    return top + log(everything)
