"""Products of a few rows with a packed weight in any precision; one file because packing and products share a layout.

Quantised products are ``integer sum * scale of the row * scale of the output + bias``. The integer sum is exact: `Matrix.of`
rounds the weights of an output to integers so small that no row can overflow the sum, and rows are rounded within the limits that
this assumes. A row with an entry that is not finite becomes NaN throughout.
"""

import sys
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from fastdecode_lib.kernels import amx, cpu
from fastdecode_lib.kernels.builder import LANES, Builder, emitted
from fastdecode_lib.kernels.compiling import callback, kernel
from fastdecode_lib.kernels.elementwise import of_bits
from fastdecode_lib.kernels.ids import checked
from fastdecode_lib.kernels.tiles import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOATS,
    INT8,
    INT8_FOURS,
    INT16,
    Format,
    tile,
)

Precision = Literal["float32", "int16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("float32", "int16", "int8")
"""Precisions of an engine's products."""
StorageFormat = Literal["float32", "int16", "int8", "float16"]
STORAGE_FORMATS: tuple[StorageFormat, ...] = (*PRECISIONS, "float16")
"""What a weight can be rounded to; float16 is converted to float32 when it is read."""

PADDING = 4 * LANES
"""Outputs are padded to a multiple of this."""
GROUP = 4
"""Columns are padded to a multiple of this."""
CHECKED = 256
"""Rows of a weight that are looked at together."""
ROWS_AT_ONCE = 48
"""Rows that are multiplied with the whole weight together; more would not fit the cache."""

INT8_LIMIT, INT16_LIMIT = 127, 4095
"""Largest integer of a row."""
SUM_LIMIT = 2**31 - 1
TINY = 1e-30
"""Rows, and weights of an output, with all entries below this may be rounded to zero."""

WEIGHT, SCALE, BIAS, START, CODE, BLOCKS, COLUMNS, MULTIPLIER, LIMIT, FLOAT, FIELDS = range(11)
"""Fields of a matrix's record for the kernels: five addresses and five numbers; the last is a float format's place in `FLOATS`,
or -1."""


class OverflowRisk(ValueError):
    """A weight that 16-bit products cannot hold without overflow or gross rounding."""


def padded(size: int, multiple: int = PADDING) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


@dataclass(frozen=True)
class Matrix:
    """A packed weight.

    Attributes
    ----------
    shape : (N, K)
        Outputs and columns.
    precision : str
    format : Format
        The precision's; for float32 that float16 or bfloat16 holds exactly, the shorter one, with the same products bit for
        bit.
    weight : array (padded N / 16, padded K / group, 16, group)
        float32, int16, int8, or the bits of float16 or bfloat16 as int16.
    scale, bias : float32 arrays (padded N,)
    start : int32 array (padded N,)
        Initial values of the integer sums.
    multiplier, limit : int
        With fixed point, rows are multiplied by `multiplier` and cut off at `limit`; with multiplier 0, each row is scaled so
        that its largest entry becomes `limit`.
    """

    shape: tuple[int, int]
    precision: StorageFormat
    format: Format
    weight: np.ndarray
    scale: np.ndarray
    bias: np.ndarray
    start: np.ndarray
    multiplier: int = 0
    limit: int = 0
    record: np.ndarray = field(init=False, repr=False, compare=False)
    """int64 (FIELDS,) for the kernels; valid as long as this object lives."""

    def __reduce__(self) -> Any:
        """Build a copy anew, since its arrays have their own addresses."""
        return Matrix, tuple(getattr(self, item.name) for item in fields(self) if item.init)

    def __post_init__(self) -> None:
        addresses = [array.ctypes.data for array in (self.weight, self.scale, self.bias, self.start)]
        form = FLOATS.index(self.format) if self.format.is_float else -1
        code = _code(self.format, self.format == INT8_FOURS and cpu.has_amx()).address
        numbers = [code, len(self.weight), self.shape[1], self.multiplier, self.limit, form]
        object.__setattr__(self, "record", np.array([*addresses, *numbers], dtype=np.int64))

    @classmethod
    def of(
        cls,
        weight: np.ndarray,
        bias: np.ndarray | None = None,
        precision: StorageFormat = "float32",
        *,
        multiplier: int = 0,
        largest: float = 1.0,
        name: str = "a matrix",
    ) -> "Matrix":
        """Pack a weight (N, K) and a bias (N,).

        Parameters
        ----------
        multiplier : int
            Fixed point as in Devlin (2017), section 4.1, int16 only: weights and rows are multiplied by a fixed number (the
            paper's reference: 1024). The rows' number is halved until the sums fit.
        largest : float
            With a multiplier: where the rows' entries are cut off (1 for tanh, 10 for the clipped ReLU).
        name : str
            Name of the matrix in error messages.

        Raises
        ------
        OverflowRisk
            If fixed point cannot hold the weight.
        """
        if precision not in STORAGE_FORMATS:
            raise ValueError(f"Unknown precision: got {precision!r}. Use one of {', '.join(STORAGE_FORMATS)}.")
        weight = np.asarray(weight, dtype=np.float32)
        if weight.ndim != 2 or weight.size == 0:
            raise ValueError(f"{name} must have outputs and columns: got a weight of shape {weight.shape}. Use (N, K).")
        rows, columns = weight.shape
        outputs = padded(rows)
        biases = np.zeros(outputs, dtype=np.float32)
        if bias is not None:
            biases[:rows] = bias.reshape(-1)
        scale, start = np.ones(outputs, dtype=np.float32), np.zeros(outputs, dtype=np.int32)
        limit = 0
        kind = format_of(precision)
        if precision == "float32":
            kind, entries = _narrowest(weight)
        elif precision == "float16":
            entries = _halves(weight, name)
        elif not np.isfinite(weight).all():
            raise ValueError(f"{name} cannot be rounded to integers: got a weight that is not finite. Train it again.")
        elif multiplier:
            if precision != "int16":
                raise ValueError(f"Fixed point is for int16: got multiplier={multiplier} with {precision}. Use 0.")
            entries, scale[:], multiplier, limit = _fixed_point(weight, multiplier, largest, name)
        else:
            entries, scale[:rows] = _int8(weight) if precision == "int8" else _int16(weight)
            limit = INT8_LIMIT if precision == "int8" else INT16_LIMIT
        if kind == INT8_FOURS:
            start[:rows] = -128 * entries.astype(np.int32).sum(1)
        return cls((rows, columns), precision, kind, pack(entries, kind), scale, biases, start, multiplier, limit)

    def unpacked(self) -> np.ndarray:
        """The weight (N, K) of a float matrix as float32.

        Raises
        ------
        ValueError
            If it is rounded to integers.
        """
        if not self.format.is_float:
            raise ValueError(
                f"Only a float weight can be packed otherwise: got one in {self.precision}. Load the model in float32."
            )
        rows, columns = self.shape
        return np.ascontiguousarray(self.widened().transpose(0, 2, 1, 3).reshape(-1, columns)[:rows])

    def widened(self) -> np.ndarray:
        """The packed weight of a float matrix as float32, which is no copy if it is stored so."""
        return _widened(self.weight, self.format)

    def rows(self, ids: np.ndarray) -> "Matrix":
        """The matrix of these outputs (M,) alone, in their order; its integers are the same."""
        ids = checked("outputs", ids, 0, self.shape[0])
        outputs = padded(len(ids))
        weight = np.zeros((outputs // LANES, *self.weight.shape[1:]), dtype=self.weight.dtype)
        gather(self.weight, ids, weight)
        scale, bias = np.ones(outputs, dtype=np.float32), np.zeros(outputs, dtype=np.float32)
        start = np.zeros(outputs, dtype=np.int32)
        for target, source in ((scale, self.scale), (bias, self.bias), (start, self.start)):
            target[: len(ids)] = source[ids]
        shape = (len(ids), self.shape[1])
        return Matrix(shape, self.precision, self.format, weight, scale, bias, start, self.multiplier, self.limit)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the packed weight with its scales and biases."""
        return self.weight.nbytes + self.scale.nbytes + self.bias.nbytes + self.start.nbytes

    @property
    def outputs(self) -> int:
        """N with padding: the number of columns of a result."""
        return len(self.bias)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """``x @ weight.T + bias`` for rows (M, K), float32 (M, N); a convenience, with allocation."""
        x = np.ascontiguousarray(x, dtype=np.float32)
        if x.ndim != 2 or x.shape[1] != self.shape[1]:
            raise ValueError(f"A product with a weight {self.shape} needs rows of {self.shape[1]}, got {x.shape}.")
        y = np.empty((len(x), self.outputs), dtype=np.float32)
        multiply(x, len(x), self.record, scratch(len(x), self.shape[1]), y)
        return y[:, : self.shape[0]]


def format_of(precision: StorageFormat) -> Format:
    """The format in which this processor multiplies numbers of a precision."""
    layout = cpu.layout()
    if precision == "int8":
        return INT8_FOURS if layout == cpu.VNNI else INT8
    return {"float32": FLOAT32, "float16": FLOAT16, "int16": INT16}[precision]


def scratch(rows: int, columns: int) -> np.ndarray:
    """Room for rows rounded to integers and their scales, int16 (rows, ...)."""
    return np.empty((-(-rows // LANES) * LANES, -(-columns // GROUP) * GROUP + 2), dtype=np.int16)


def pack(entries: np.ndarray, kind: Format) -> np.ndarray:
    """Entries (N, K) in blocks of 16 outputs: (padded N / 16, padded K / group, 16, group)."""
    rows, columns = entries.shape
    padded_entries = np.zeros((padded(rows), columns if kind.is_float else padded(columns, GROUP)), dtype=entries.dtype)
    padded_entries[:rows, :columns] = entries
    blocks = padded_entries.reshape(-1, LANES, padded_entries.shape[1] // kind.group, kind.group)
    return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3))


def _narrowest(weight: np.ndarray) -> tuple[Format, np.ndarray]:
    """The shortest float format that holds a weight (N, K) in float32 exactly, and its entries in it.

    Without F16C, widening float16 costs more than it saves.
    """
    for kind in (BFLOAT16, FLOAT16) if "f16c" in cpu.features() else (BFLOAT16,):
        if all(_holds(kind, weight[first : first + CHECKED]) for first in range(0, len(weight), CHECKED)):
            return kind, _shortened(weight, kind)
    return FLOAT32, weight


def _holds(kind: Format, weight: np.ndarray) -> bool:
    """Whether a shorter format holds these rows of a weight in float32, bit for bit."""
    if kind == BFLOAT16:
        return not (weight.view(np.uint32) & 0xFFFF).any()
    return bool((_widened(_shortened(weight, kind), kind).view(np.int32) == weight.view(np.int32)).all())


def _shortened(weight: np.ndarray, kind: Format) -> np.ndarray:
    """The bits of float16 or, cut off, of bfloat16, as int16: numba has no such floats."""
    if kind == BFLOAT16:
        return (weight.view(np.uint32) >> 16).astype(np.uint16).view(np.int16)
    with np.errstate(over="ignore", under="ignore"):
        return weight.astype(np.float16).view(np.int16)


def _widened(entries: np.ndarray, kind: Format) -> np.ndarray:
    """Entries of any float format as float32."""
    if kind == FLOAT32:
        return entries
    if kind == BFLOAT16:
        return (entries.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return entries.view(np.float16).astype(np.float32)


def _halves(weight: np.ndarray, name: str) -> np.ndarray:
    """The nearest float16 of each weight."""
    entries = _shortened(weight, FLOAT16)
    if not np.array_equal(np.isfinite(_widened(entries, FLOAT16)), np.isfinite(weight)):
        raise OverflowRisk(
            f"{name} does not fit in float16: its largest weight is {np.abs(weight).max():.3g}. Use float32."
        )
    return entries


def _int8(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rounded rows and their scales; 127 * 127 * K stays below 2^31 up to K = 133,000."""
    if weight.shape[1] * INT8_LIMIT**2 > SUM_LIMIT:
        raise OverflowRisk(
            f"int8 products hold up to {SUM_LIMIT // INT8_LIMIT**2} columns, got {weight.shape[1]}. Use float32."
        )
    return _rounded(weight, np.abs(weight).max(1) / INT8_LIMIT, np.int8)


def _int16(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rounded rows, with scales as fine as 16 bits and an exact 32-bit sum allow: a row's magnitudes times 4095 must fit."""
    magnitudes = np.abs(weight).astype(np.float64)
    room = SUM_LIMIT // INT16_LIMIT - weight.shape[1]  # rounding adds at most a half for each column
    if room < weight.shape[1]:
        raise OverflowRisk(f"int16 products cannot hold {weight.shape[1]} columns. Use float32.")
    scale = np.maximum(magnitudes.max(1) / 32767, magnitudes.sum(1) / room)
    return _rounded(weight, scale.astype(np.float32), np.int16)


def _rounded(weight: np.ndarray, scale: np.ndarray, kind: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weights as multiples of a scale for each output, and the scale, 0 for an output without weight."""
    limit = np.iinfo(kind).max
    scale = np.where(scale * limit < TINY, np.float32(0), scale)
    integers = np.rint(weight / np.where(scale > 0, scale, np.float32(np.inf))[:, None])
    return np.clip(integers, -limit, limit).astype(kind), scale


def _fixed_point(
    weight: np.ndarray, multiplier: int, largest: float, name: str
) -> tuple[np.ndarray, np.float32, int, int]:
    """Devlin's fixed point, with a check that it lacks: integer weights, their scale, the rows' multiplier and limit."""
    if not 1 <= multiplier <= 32767:
        raise ValueError(f"A multiplier must be from 1 to 32767, got {multiplier}. The paper's reference uses 1024.")
    top = float(np.abs(weight).max())
    if top * multiplier > 32767:
        raise OverflowRisk(
            f"{name} does not fit in 16 bits: its largest weight is {top:.3g}, times {multiplier} that is more than 32767. "
            "Train with weights clipped to [-1, 1], or lower the multiplier."
        )
    entries = np.rint(weight * multiplier).astype(np.int16)
    heaviest = int(np.abs(entries.astype(np.int64)).sum(1).max())
    rows_multiplier = multiplier
    while heaviest * int(rows_multiplier * largest) > SUM_LIMIT or rows_multiplier * largest > 32767:
        rows_multiplier //= 2
        if rows_multiplier < 64:
            raise OverflowRisk(
                f"{name} can overflow 32-bit sums: rows up to {largest:g} times weights of total magnitude "
                f"{heaviest / multiplier:.0f} leave less than 6 bits for a row. Use precision int16 without a multiplier."
            )
    return entries, np.float32(1 / multiplier), rows_multiplier, int(rows_multiplier * largest)


# ------------------------------------------------------------------------------------------------------------- kernels


@emitted(types.float32(types.float32))
def nearest(b: Builder, value: Any) -> Any:
    """The nearest whole number of a float32, halves to even."""
    return b.call("llvm.rint.f32", value)


def _view(item: Any, size: int) -> Any:
    """A function that makes an array of numbers at an address."""
    array = types.Array(item, 1, "C")

    @intrinsic
    def run(typing, address, length):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            view = make_array(array)(context, builder)
            bytes_each = context.get_constant(types.intp, size)
            populate_array(
                view,
                data=builder.inttoptr(arguments[0], view.data.type),
                shape=cgutils.pack_array(builder, [arguments[1]]),
                strides=cgutils.pack_array(builder, [bytes_each]),
                itemsize=bytes_each,
                meminfo=None,
            )
            return view._getvalue()

        return array(types.intp, types.intp), generate

    return run


floats_at, shorts_at, bytes_at = _view(types.float32, 4), _view(types.int16, 2), _view(types.uint8, 1)
longs_at = _view(types.int64, 8)
"""Views of so many float32, int16, uint8 or int64 numbers at an address."""


@njit(nogil=True, error_model="numpy")
def _nothing(*arguments):  # type: ignore[no-untyped-def]
    return 0


@cache
def _code(kind: Format, has_tiles: bool) -> Any:
    """The compiled product of one format of numbers, in AMX's tiles if told; its arguments are those of `call` but the first."""
    few = 4 if cpu.wide() else 2
    many = 4 if cpu.wide() else 1
    sizes = (1, 4), (2, few), (3, few), (4, many), (6, many)
    one, two, three, four, six = (tile(kind, *size) for size in sizes)
    weight_bytes, group, rounds, bytewise = kind.weight_bytes, kind.group, not kind.is_float, kind == INT8_FOURS
    begin, tall, end, least = amx.KERNELS if has_tiles else (_nothing, _nothing, _nothing, sys.maxsize)

    def run(x, x_bytes, rows, record, rounded, rounded_bytes, y, y_bytes):  # type: ignore[no-untyped-def]
        matrix = longs_at(record, FIELDS)
        columns = matrix[COLUMNS]
        row_scales, scale_bytes = rounded, rounded_bytes
        if rounds:
            for row in range(rows):
                entries = floats_at(x + row * x_bytes, columns)
                _round_row(entries, columns, matrix, rounded + row * rounded_bytes, bytewise)
            x, x_bytes = rounded + 4, rounded_bytes
        groups = columns if group == 1 else ((columns + GROUP - 1) // GROUP) * (GROUP // group)
        block_bytes = groups * group * LANES * weight_bytes
        many_rows, space = rows >= least and columns % amx.COLUMNS == 0, 0
        if many_rows:
            space = begin()
        for first in range(0, rows, ROWS_AT_ONCE):
            last = min(first + ROWS_AT_ONCE, rows)
            left = (last - first) % LANES
            short = first if not many_rows else last - left if left < least else last
            for quarter in range(0, matrix[BLOCKS], 4):
                row = short
                if short > first:
                    w, at = matrix[WEIGHT] + quarter * block_bytes, 4 * LANES * quarter
                    b, s, t = matrix[BIAS] + at, matrix[SCALE] + at, matrix[START] + at
                    tall(
                        w, block_bytes, x, x_bytes, first, short, groups, b, s, t, row_scales, scale_bytes, y + at, y_bytes, space
                    )  # fmt: skip
                while row < last:
                    left = last - row
                    height = 6 if left >= 6 else 4 if left >= 4 else left
                    breadth = many if height >= 4 else few if height >= 2 else 4
                    for block in range(quarter, quarter + 4, breadth):
                        w, at = matrix[WEIGHT] + block * block_bytes, 4 * LANES * block
                        b, s, t = matrix[BIAS] + at, matrix[SCALE] + at, matrix[START] + at
                        xs, scales, ys = x + row * x_bytes, row_scales + row * scale_bytes, y + row * y_bytes + at
                        if height == 1:
                            one(w, block_bytes, xs, x_bytes, groups, b, s, t, scales, scale_bytes, ys, y_bytes)
                        elif height == 2:
                            two(w, block_bytes, xs, x_bytes, groups, b, s, t, scales, scale_bytes, ys, y_bytes)
                        elif height == 3:
                            three(w, block_bytes, xs, x_bytes, groups, b, s, t, scales, scale_bytes, ys, y_bytes)
                        elif height == 4:
                            four(w, block_bytes, xs, x_bytes, groups, b, s, t, scales, scale_bytes, ys, y_bytes)
                        else:
                            six(w, block_bytes, xs, x_bytes, groups, b, s, t, scales, scale_bytes, ys, y_bytes)
                    row += height
        if many_rows:
            end()

    run.__qualname__ = f"multiply_{kind.name}" + (" in tiles" if has_tiles else "")
    return callback(run, 8)


@emitted(types.void(*[types.intp] * 9))
def call(
    b: Builder, code: Any, x: Any, x_bytes: Any, rows: Any, matrix: Any, rounded: Any, rounded_bytes: Any, y: Any, y_bytes: Any
) -> None:  # fmt: skip
    """Call what `_code` compiled with the addresses of arrays and the bytes of their rows."""
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 8)
    arguments = x, x_bytes, rows, matrix, rounded, rounded_bytes, y, y_bytes
    b.ir.call(b.ir.inttoptr(code, kind.as_pointer()), arguments)


@kernel
def gather(weight, ids, out):  # type: ignore[no-untyped-def]
    """Copy these outputs of a packed weight into another."""
    for row in range(len(ids)):
        block, lane = ids[row] // LANES, ids[row] % LANES
        into, place = row // LANES, row % LANES
        for step in range(weight.shape[1]):
            for part in range(weight.shape[3]):
                out[into, step, place, part] = weight[block, step, lane, part]


@njit(nogil=True, error_model="numpy")
def _magnitude(x, columns):  # type: ignore[no-untyped-def]
    """The largest magnitude in a row, infinite or NaN if an entry is: without signs, floats sort as their bits do."""
    bits, largest = x.view(np.int32), np.int32(0)
    for column in range(columns):
        largest = max(largest, np.int32(bits[column] & 0x7FFFFFFF))
    return of_bits(largest)


@njit(nogil=True, error_model="numpy")
def _round_row(x, columns, matrix, rounded, bytewise):  # type: ignore[no-untyped-def]
    """Quantise a row of floats into `rounded`, the format's integers behind a float32 scale."""
    limit, largest = np.float32(matrix[LIMIT]), _magnitude(x, columns)
    if matrix[MULTIPLIER] > 0:
        factor = np.float32(matrix[MULTIPLIER])
        scale = np.float32(1.0) / factor
    else:
        factor = limit / largest if largest >= np.float32(TINY) else np.float32(0.0)
        scale = largest / limit
    floats_at(rounded, 1)[0] = scale if largest < np.float32(np.inf) else np.float32(np.nan)
    if bytewise:
        entries = bytes_at(rounded + 4, columns)
        for column in range(columns):
            value = min(max(-limit, nearest(x[column] * factor)), limit)  # in this order NaN becomes a number
            entries[column] = np.uint8(np.int32(value) + 128)
        rest = bytes_at(rounded + 4 + columns, GROUP)
        for column in range((-columns) % GROUP):
            rest[column] = np.uint8(0)
    else:
        numbers = shorts_at(rounded + 4, columns)
        for column in range(columns):
            value = min(max(-limit, nearest(x[column] * factor)), limit)  # in this order NaN becomes a number
            numbers[column] = np.int16(value)
        tail = shorts_at(rounded + 4 + 2 * columns, GROUP)
        for column in range((-columns) % GROUP):
            tail[column] = np.int16(0)


@kernel
def multiply(x, rows, matrix, rounded, y):  # type: ignore[no-untyped-def]
    """The first `rows` of x (rows, at least K), float32, times a matrix into y (rows, at least its padded outputs).

    Parameters
    ----------
    matrix : int64 array (FIELDS,)
        `Matrix.record`.
    rounded : int16 array (rows, ...)
        From `scratch`.
    """
    at_x, at_matrix, at_rounded, at_y = x.ctypes.data, matrix.ctypes.data, rounded.ctypes.data, y.ctypes.data
    call(matrix[CODE], at_x, 4 * x.shape[1], rows, at_matrix, at_rounded, 2 * rounded.shape[1], at_y, 4 * y.shape[1])
