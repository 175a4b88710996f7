"""The innermost loop, written in LLVM's terms: a few rows times a few blocks of 16 outputs.

A weight is stored in blocks of 16 outputs. Within a block, for every `group` of columns that are multiplied together, the
entries of the 16 outputs follow each other (`matrices` packs them so). A tile keeps one running sum for each of its rows
and outputs in a register and reads the columns once, first to last. The order of a row's sums does not depend on the other
rows, so that several rows at once equal single rows bit for bit.

Sums of products of 16-bit pairs become ``vpmaddwd`` on x86 and ``smull`` on ARM; only the byte products of AVX-512 VNNI have to
be named.
"""

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types

from fastdecode_lib.kernels import cpu
from fastdecode_lib.kernels.builder import LANES, Builder, emitted

_int32, _int16, _int8, _float = ir.IntType(32), ir.IntType(16), ir.IntType(8), ir.FloatType()


@dataclass(frozen=True)
class Format:
    """Format of a product's numbers.

    Attributes
    ----------
    name : str
    group : int
        Columns that are multiplied and added together.
    row_bytes, weight_bytes : int
        Bytes of an entry of the rows and of the weight.
    instruction : str
        Intrinsic of LLVM that multiplies bytes; empty for plain arithmetic.
    """

    name: str
    group: int
    row_bytes: int
    weight_bytes: int
    instruction: str = ""

    @property
    def is_float(self) -> bool:
        """Whether nothing is quantised."""
        return self.row_bytes == 4


FLOAT32 = Format("float32", 1, 4, 4)
FLOAT16, BFLOAT16 = Format("float16", 1, 4, 2), Format("bfloat16", 1, 4, 2)
"""Weights are widened to float32 when they are read."""
FLOATS = FLOAT32, FLOAT16, BFLOAT16
INT16 = Format("int16", 2, 2, 2)
INT8 = Format("int8", 2, 2, 1)
"""Bytes are widened to 16 bits when they are read."""
INT8_FOURS = Format("int8 in fours", 4, 1, 1, "llvm.x86.avx512.vpdpbusd.512" if cpu.has_vnni() else "")
"""Rows are shifted by 128 to be positive; the initial sums compensate for it."""


def tile(kind: Format, rows: int, blocks: int) -> Any:
    """A function for numba: `rows` rows times `blocks` neighbouring blocks of a weight.

    Its arguments are addresses and distances in bytes: weight and from block to block, rows and from row to row, number of
    groups of columns; of the first output of the block: bias, scale and start of the sum (int32); scale of the first row and
    from row to row; result and from row to row. The result is ``sum * scale * row scale + bias``, for floats ``bias + sum``.
    """

    @emitted(types.void(*[types.intp] * 12))
    def run(
        b: Builder, weight: Any, block_bytes: Any, x: Any, x_bytes: Any, groups: Any, bias: Any, scale: Any, start: Any,
        row_scale: Any, row_scale_bytes: Any, y: Any, y_bytes: Any,
    ) -> None:  # fmt: skip
        floats = ir.VectorType(_float, LANES)
        weights = [b.at(weight, b.times(block_bytes, block)) for block in range(blocks)]
        xs = [b.at(x, b.times(x_bytes, row)) for row in range(rows)]
        biases = [b.load(b.at(bias, 4 * LANES * block), floats) for block in range(blocks)]
        starts = biases if kind.is_float else _starts(b, kind, blocks, start)

        def columns(index: Any, running: list[Any]) -> list[Any]:
            w = [_weights(b, kind, b.at(address, index, kind.group * LANES * kind.weight_bytes)) for address in weights]
            sums = []
            for row in range(rows):
                entry = b.load(b.at(xs[row], index, kind.group * kind.row_bytes), _float if kind.is_float else _int32)
                value = b.everywhere(entry)
                sums += [_added(b, kind, running[row * blocks + block], value, w[block]) for block in range(blocks)]
            return sums

        sums = b.loop(groups, starts * rows, columns)
        totals = [sums[row * blocks : (row + 1) * blocks] for row in range(rows)]
        if kind.is_float:
            results = totals
        else:
            scales = [b.load(b.at(scale, 4 * LANES * block), floats) for block in range(blocks)]
            results = []
            for row in range(rows):
                factor = b.everywhere(b.load(b.at(row_scale, b.times(row_scale_bytes, row)), _float))
                products = [b.ir.fmul(b.ir.sitofp(totals[row][i], floats), scales[i]) for i in range(blocks)]
                results.append([b.fused(products[i], factor, biases[i]) for i in range(blocks)])
        for row, values in enumerate(results):
            for block, value in enumerate(values):
                b.store(value, b.at(b.at(y, b.times(y_bytes, row)), 4 * LANES * block))

    return run


def _starts(b: Builder, kind: Format, blocks: int, start: Any) -> list[Any]:
    """Initial integer sums of each block."""
    integers = ir.VectorType(_int32, LANES)
    if kind.group == 4:
        return [b.load(b.at(start, 4 * LANES * block), integers) for block in range(blocks)]
    return [ir.Constant(integers, [0] * LANES)] * blocks


def _weights(b: Builder, kind: Format, address: Any) -> Any:
    """The weight's entries for one group of columns, in the form of the products."""
    if kind.is_float:
        if kind == FLOAT32:
            return b.load(address, ir.VectorType(_float, LANES))
        halves = b.load(address, ir.VectorType(_int16, LANES))
        return b.widened(halves) if kind == FLOAT16 else b.shifted(halves)
    if kind.instruction:
        return b.load(address, ir.VectorType(_int32, LANES))
    entries = ir.VectorType(_int16, kind.group * LANES)
    if kind.weight_bytes == 2:
        return b.load(address, entries)
    return b.ir.sext(b.load(address, ir.VectorType(_int8, kind.group * LANES)), entries)


def _added(b: Builder, kind: Format, running: Any, x: Any, w: Any) -> Any:
    """The running sums plus the products of one group of columns; integers are exact."""
    if kind.is_float:
        return b.fused(x, w, running)
    if kind.instruction:
        return b.call(kind.instruction, running, x, w)
    count = kind.group * LANES
    wide, narrow = ir.VectorType(_int32, count), ir.VectorType(_int16 if kind.row_bytes == 2 else _int8, count)
    entries = b.ir.bitcast(x, narrow)
    widened = b.ir.zext(entries, wide) if kind.row_bytes == 1 else b.ir.sext(entries, wide)
    return b.ir.add(running, b.grouped_sum(b.ir.mul(widened, b.ir.sext(w, wide)), kind.group))
