"""Sums and maxima over the numbers at an address, each in one order for all processors and callers.

A compiler that may reorder a sum does so differently in different loops, which changes the last bits. Here the order is
explicit: 32 running sums, one for every 32nd number, are added by halves, and the numbers behind the last whole 32 follow one by
one. No other computation is beside it that the compiler could combine with it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from fastdecode_lib.kernels.builder import LANES, Builder, emitted

_float, _int32, _int64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_floats = ir.VectorType(_float, LANES)
_STRIDE = 2 * LANES
"""Numbers that one round reads."""
FAINT = -60.0
"""Scores this far below the best get a share of 0 instead of one below 1e-26: products with subnormal numbers are slow."""


@emitted(types.float32(types.float32))
def exponential(b: Builder, x: Any) -> Any:
    """E to the power of a float32 from -87.3 to 88, within two units in the last place; constant outside; NaN of NaN."""
    return _exponential(b, x)


@emitted(types.float32(types.intp, types.intp, types.intp))
def dot(b: Builder, x: Any, y: Any, count: Any) -> Any:
    """The sum of the products of `count` float32 numbers at address `x` with those at `y`."""
    return _sum(b, [x, y], count, lambda b, x, y, total: b.fused(x, y, total))


@emitted(types.float32(types.intp, types.intp))
def total(b: Builder, address: Any, count: Any) -> Any:
    """The sum of `count` float32 numbers at an address."""
    return _sum(b, [address], count, lambda b, x, total: b.ir.fadd(total, x))


@emitted(types.float32(types.intp, types.intp, types.float32))
def squares(b: Builder, address: Any, count: Any, mean: Any) -> Any:
    """The sum of the squared differences of `count` float32 numbers at an address from a mean."""

    def add(b: Builder, x: Any, total: Any) -> Any:
        difference = b.ir.fsub(x, b.like(mean, x))
        return b.fused(difference, difference, total)

    return _sum(b, [address], count, add)


@emitted(types.float32(types.intp, types.intp, types.float32))
def exponentials(b: Builder, address: Any, count: Any, top: Any) -> Any:
    """The sum of the exponentials of `count` float32 numbers at an address, minus `top` each."""

    def add(b: Builder, x: Any, total: Any) -> Any:
        return b.ir.fadd(total, _exponential(b, b.ir.fsub(x, b.like(top, x))))

    return _sum(b, [address], count, add)


@emitted(types.float32(types.intp, types.intp, types.float32))
def exponentiated(b: Builder, address: Any, groups: Any, top: Any) -> Any:
    """Replace ``16 * groups`` float32 numbers by the exponentials of their differences from `top`, and return the sum.

    Those that are more than `FAINT` below `top` become 0.
    """
    top, nothing = b.everywhere(top), ir.Constant(_floats, [0.0] * LANES)
    faint = ir.Constant(_floats, [FAINT] * LANES)

    def step(index: Any, running: list[Any]) -> list[Any]:
        place = b.at(address, index, 4 * LANES)
        below = b.ir.fsub(b.load(place, _floats), top)
        power = b.ir.select(b.ir.fcmp_ordered("<", below, faint), nothing, _exponential(b, below))
        b.store(power, place)
        return [b.ir.fadd(running[0], power)]

    return b.lanes_added(b.loop(groups, [nothing], step)[0])


@emitted(types.float32(types.intp, types.intp))
def largest(b: Builder, address: Any, groups: Any) -> Any:
    """The largest of ``16 * groups`` float32 numbers at an address; NaN is ignored; -inf if there is none."""

    def step(index: Any, running: list[Any]) -> list[Any]:
        return [_larger(b, b.load(b.at(address, index, 4 * LANES), _floats), running[0])]

    lowest = b.everywhere(ir.Constant(_float, float("-inf")))
    return _largest_lane(b, b.loop(groups, [lowest], step)[0])


@emitted(types.float32(*[types.intp] * 5, types.float32, types.float32, types.intp))
def highest_bound(
    b: Builder, scores: Any, sizes: Any, losses: Any, rest: Any, bounds: Any, length: Any, lost: Any, groups: Any
) -> Any:
    """The largest of the bounds ``score + (length * loss + lost * size + rest)`` of ``16 * groups`` scores.

    The first five are addresses of float32 numbers; the bounds are written to the last of them, infinity for NaN.
    """
    length, lost = b.everywhere(length), b.everywhere(lost)
    unknown = ir.Constant(_floats, [float("inf")] * LANES)

    def step(index: Any, running: list[Any]) -> list[Any]:
        score, size, loss, other = (
            b.load(b.at(address, index, 4 * LANES), _floats) for address in (scores, sizes, losses, rest)
        )
        radius = b.ir.fadd(b.ir.fadd(b.ir.fmul(length, loss), b.ir.fmul(lost, size)), other)
        bound = b.ir.fadd(score, radius)
        bound = b.ir.select(b.ir.fcmp_unordered("uno", bound, bound), unknown, bound)
        b.store(bound, b.at(bounds, index, 4 * LANES))
        return [_larger(b, bound, running[0])]

    lowest = b.everywhere(ir.Constant(_float, float("-inf")))
    return _largest_lane(b, b.loop(groups, [lowest], step)[0])


def _larger(b: Builder, value: Any, than: Any) -> Any:
    return b.ir.select(b.ir.fcmp_ordered(">", value, than), value, than)


def _largest_lane(b: Builder, top: Any) -> Any:
    """The largest of 16 lanes, none of which is NaN."""
    return b.folded(top, lambda low, high: _larger(b, low, high))


def _exponential(b: Builder, x: Any) -> Any:
    """Exponential of one number or of a vector of 16."""

    def number(value: float) -> Any:
        return b.like(ir.Constant(_float, value), x)

    def times_plus(value: Any, factor: Any, summand: Any) -> Any:
        return b.ir.fadd(b.ir.fmul(value, factor), summand)

    low, high = number(_rounded(-87.3)), number(88.0)
    x = b.ir.select(b.ir.fcmp_ordered("<", x, low), low, x)
    x = b.ir.select(b.ir.fcmp_ordered(">", x, high), high, x)
    wide = isinstance(x.type, ir.VectorType)
    power = b.call(
        "llvm.floor.v16f32" if wide else "llvm.floor.f32", times_plus(x, number(_rounded(1.44269504)), number(0.5))
    )
    remainder = b.ir.fsub(x, b.ir.fmul(power, number(_rounded(0.693359375))))
    remainder = b.ir.fsub(remainder, b.ir.fmul(power, number(_rounded(-2.12194440e-4))))
    value = number(_rounded(1.9875691500e-4))
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        value = times_plus(value, remainder, number(_rounded(coefficient)))
    value = b.ir.fadd(times_plus(b.ir.fmul(value, remainder), remainder, remainder), number(1.0))
    integers = ir.VectorType(_int32, LANES) if wide else _int32
    bits = b.ir.fptosi(b.ir.fmul(b.ir.fadd(power, number(127.0)), number(8388608.0)), integers)
    return b.ir.fmul(value, b.ir.bitcast(bits, x.type))


def _rounded(value: float) -> float:
    """The nearest float32, the form of such constants in LLVM."""
    return float(np.float32(value))


def _sum(b: Builder, addresses: list[Any], count: Any, add: Callable[..., Any]) -> Any:
    """The sum over `count` numbers; ``add(b, *numbers, total)`` adds a term to one or to 16 running sums."""
    rounds = b.ir.lshr(count, ir.Constant(_int64, _STRIDE.bit_length() - 1))

    def sixteens(index: Any, running: list[Any]) -> list[Any]:
        starts = [b.at(address, index, 4 * _STRIDE) for address in addresses]
        return [
            add(b, *(b.load(b.at(start, 4 * LANES * half), _floats) for start in starts), running[half])
            for half in range(2)
        ]

    def single(index: Any, running: list[Any]) -> list[Any]:
        return [add(b, *(b.load(b.at(address, index, 4), _float) for address in addresses), running[0])]

    nothing = ir.Constant(_floats, [0.0] * LANES)
    low, high = b.loop(rounds, [nothing, nothing], sixteens)
    whole = b.lanes_added(b.ir.fadd(low, high))
    return b.loop(count, [whole], single, b.ir.mul(rounds, ir.Constant(_int64, _STRIDE)))[0]
