"""Products with listed outputs of a weight: their rows are packed during the product, a part at a time.

`matrices.multiply` reads blocks of 16 outputs. A list has no blocks, and to make them number by number takes longer than the
product. Here the rows of 16 outputs are read side by side, four units at a time, and transposed in registers; the packed rows
are multiplied with all hidden vectors while they are in the cache. The sums are bit for bit those of the whole weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from fastdecode_lib.kernels.builder import LANES, Builder, emitted
from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.matrices import (
    BIAS,
    BLOCKS,
    CODE,
    FIELDS,
    PADDING,
    SCALE,
    START,
    WEIGHT,
    Matrix,
    bytes_at,
    call,
    floats_at,
    longs_at,
    padded,
    scratch,
)

WHOLE, ENTRIES, ROW_BYTES, UNIT_BYTES, TOGETHER, LISTING = range(6)
"""Fields of `Listing.record`: addresses of the matrix's record and of the entries, and three numbers."""
CACHED = 1 << 17
"""Bytes of packed rows, at most, that are multiplied before more are packed."""
LINE = 64
"""Bytes of a line of the cache."""
QUARTER = LANES // 4

_int64, _int32 = ir.IntType(64), ir.IntType(32)


@dataclass(frozen=True)
class Listing:
    """A second copy of a packed weight, row after row, from which products with few listed rows are fast.

    Attributes
    ----------
    whole : Matrix
        (N, K).
    entries : uint8 array (padded N, bytes of a row)
    """

    whole: Matrix
    entries: np.ndarray = field(init=False, repr=False, compare=False)
    record: np.ndarray = field(init=False, repr=False, compare=False)
    """int64 (LISTING,) for the kernels; valid as long as this object lives."""

    def __post_init__(self) -> None:
        weight = self.whole.weight
        blocks, units, lanes, group = weight.shape
        rows = np.ascontiguousarray(weight.transpose(0, 2, 1, 3)).reshape(blocks * lanes, units * group).view(np.uint8)
        row_bytes = rows.shape[1]
        together = max(CACHED // (row_bytes * PADDING), 1) * PADDING
        numbers = [row_bytes, group * weight.itemsize, together]
        object.__setattr__(self, "entries", rows)
        record = np.array([self.whole.record.ctypes.data, rows.ctypes.data, *numbers], dtype=np.int64)
        object.__setattr__(self, "record", record)

    def __reduce__(self) -> Any:
        """Build a copy anew, since its arrays have their own addresses."""
        return Listing, (self.whole,)

    def room(self) -> np.ndarray:
        """Room for the rows packed at a time with their scales, biases and starts, uint8, aligned to a line of the cache."""
        buffer = np.empty(int(self.record[TOGETHER]) * (self.entries.shape[1] + 12) + LINE, dtype=np.uint8)
        return buffer[-buffer.ctypes.data % LINE :]

    def __call__(self, x: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Products of rows (M, K) with outputs ids (n,), float32 (M, n); a convenience, with allocation."""
        x = np.ascontiguousarray(x, dtype=np.float32)
        places = np.zeros(padded(len(ids)), dtype=np.int64)
        places[: len(ids)] = ids
        y = np.empty((len(x), len(places)), dtype=np.float32)
        products(x, self.record, places, len(ids), self.room(), scratch(*x.shape), y)
        return y[:, : len(ids)]


def _packer(bits: int) -> Any:
    """A function for numba that packs 16 listed rows, of units of `bits` bits, into one block.

    Its arguments are addresses and numbers: entries and bytes of a row, places (int64), fours of units in a row, bytes to the
    last four, block. If a row is no multiple of four units, some units of the last four are packed twice.
    """

    @emitted(types.void(*[types.intp] * 6))
    def run(b: Builder, entries: Any, row_bytes: Any, places: Any, fours: Any, last: Any, block: Any) -> None:
        unit = ir.IntType(bits)
        listed = [b.load(b.at(places, 8 * row), _int64) for row in range(LANES)]
        starts = [b.at(entries, b.ir.mul(place, row_bytes)) for place in listed]
        four, unit_bytes = ir.VectorType(unit, 4), unit.width // 8

        def four_units(index: Any, _: list[Any]) -> list[Any]:
            offset = b.ir.mul(index, ir.Constant(_int64, 4 * unit_bytes))
            within = b.ir.select(b.ir.icmp_signed("<", offset, last), offset, last)
            rows = [b.load(b.at(start, within), four) for start in starts]
            vectors = [_concatenated(b, rows[first::QUARTER]) for first in range(QUARTER)]
            out = b.at(block, within, LANES)
            for column, units in enumerate(_transposed(b, vectors)):
                b.store(units, b.at(out, column * LANES * unit_bytes))
            return []

        b.loop(fours, [], four_units)

    return run


def _shuffled(b: Builder, pair: Sequence[Any], places: list[int]) -> Any:
    """Entries of two vectors by their indices, which count on from the first to the second."""
    return b.ir.shuffle_vector(*pair, ir.Constant(ir.VectorType(_int32, len(places)), places))


def _concatenated(b: Builder, parts: list[Any]) -> Any:
    """Four vectors, concatenated."""
    halves = [_shuffled(b, parts[i : i + 2], list(range(8))) for i in (0, 2)]
    return _shuffled(b, halves, list(range(LANES)))


def _transposed(b: Builder, rows: list[Any]) -> list[Any]:
    """Four vectors with each quarter transposed, four by four: i-th of the j-th becomes j-th of the i-th."""

    def by_quarters(*places: int) -> list[int]:
        return [place + QUARTER * quarter for quarter in range(4) for place in places]

    low, high = by_quarters(0, LANES, 1, LANES + 1), by_quarters(2, LANES + 2, 3, LANES + 3)
    left, right = by_quarters(0, 1, LANES, LANES + 1), by_quarters(2, 3, LANES + 2, LANES + 3)
    pairs = [[_shuffled(b, rows[i : i + 2], half) for i in (0, 2)] for half in (low, high)]
    return [_shuffled(b, pair, side) for pair in pairs for side in (left, right)]


_words, _halves = _packer(32), _packer(16)


@njit(nogil=True, error_model="numpy")
def _pack(entries, row_bytes, unit, places, block):  # type: ignore[no-untyped-def]
    """Pack the rows at 16 places, int64 numbers at an address, into the block at another."""
    units = row_bytes // unit
    if units >= 4 and unit == 4:
        _words(entries, row_bytes, places, (units + 3) // 4, row_bytes - 4 * unit, block)
    elif units >= 4 and unit == 2:
        _halves(entries, row_bytes, places, (units + 3) // 4, row_bytes - 4 * unit, block)
    else:
        listed, out = longs_at(places, LANES), bytes_at(block, LANES * row_bytes)
        for row in range(LANES):
            own = bytes_at(entries + listed[row] * row_bytes, row_bytes)
            for i in range(row_bytes):
                out[(i // unit * LANES + row) * unit + i % unit] = own[i]


@njit(nogil=True, error_model="numpy")
def _copy_listed(old, places, count, new):  # type: ignore[no-untyped-def]
    """Copy `count` listed numbers of four bytes, all given by their addresses."""
    listed, out = longs_at(places, count), floats_at(new, count)
    for i in range(count):
        out[i] = floats_at(old + 4 * listed[i], 1)[0]


@njit(nogil=True, error_model="numpy")
def multiply_listed(x, rows, listing, places, count, packed, rounded, y):  # type: ignore[no-untyped-def]
    """The first `rows` of x (rows, at least K), float32, times listed outputs into y (rows, at least padded count).

    Parameters
    ----------
    listing : int64 array (LISTING,)
        `Listing.record`.
    places : int64 array (at least padded count,)
        The outputs; any others as padding behind the first `count`.
    packed : uint8 array
        From `Listing.room`.
    rounded : int16 array (rows, ...)
        From `matrices.scratch`.
    """
    whole, part = longs_at(listing[WHOLE], FIELDS), np.empty(FIELDS, dtype=np.int64)
    for i in range(FIELDS):
        part[i] = whole[i]
    entries, row_bytes, unit, together = listing[ENTRIES], listing[ROW_BYTES], listing[UNIT_BYTES], listing[TOGETHER]
    part[WEIGHT] = packed.ctypes.data
    part[SCALE] = part[WEIGHT] + together * row_bytes
    part[BIAS], part[START] = part[SCALE] + 4 * together, part[SCALE] + 8 * together
    at_x, at_part, at_rounded = x.ctypes.data, part.ctypes.data, rounded.ctypes.data
    x_bytes, rounded_bytes, y_bytes = 4 * x.shape[1], 2 * rounded.shape[1], 4 * y.shape[1]
    outputs = (count + PADDING - 1) // PADDING * PADDING
    for first in range(0, outputs, together):
        size, listed, at_y = min(together, outputs - first), places.ctypes.data + 8 * first, y.ctypes.data + 4 * first
        for which in (SCALE, BIAS, START):
            _copy_listed(whole[which], listed, size, part[which])
        for row in range(0, size, LANES):
            _pack(entries, row_bytes, unit, listed + 8 * row, part[WEIGHT] + row * row_bytes)
        part[BLOCKS] = size // LANES
        call(whole[CODE], at_x, x_bytes, rows, at_part, at_rounded, rounded_bytes, at_y, y_bytes)


@kernel
def products(x, listing, places, count, packed, rounded, y):  # type: ignore[no-untyped-def]
    """`multiply_listed` for all rows, to be called from Python."""
    multiply_listed(x, len(x), listing, places, count, packed, rounded, y)
