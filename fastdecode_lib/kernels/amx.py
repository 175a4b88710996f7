"""Products of many rows of bytes in the tile registers of AMX: 16 rows times 64 outputs at a time.

A block of an int8 weight (`tiles.INT8_FOURS`) is already what a tile register holds: for every four columns, the entries of 16
outputs. The integer sums are those of AVX-512 VNNI, and so are the results, bit for bit.
"""

from typing import Any

from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils

from fastdecode_lib.kernels.builder import LANES, Builder, emitted

ROWS = 16
"""Rows of a tile register."""
LEAST = 8
"""Rows from which tile registers are faster than vectors."""
COLUMNS = 64
"""Columns, which are bytes, of a row of a tile register."""
BLOCKS = 4
"""Blocks of 16 outputs that are multiplied together, each in a register of its own; one more has the rows, three the weight."""
TILE_BYTES = ROWS * COLUMNS

_int64, _int32, _int16, _int8, _float = ir.IntType(64), ir.IntType(32), ir.IntType(16), ir.IntType(8), ir.FloatType()
_floats, _integers = ir.VectorType(_float, LANES), ir.VectorType(_int32, LANES)


def _run(b: Builder, lines: str, *operands: Any) -> None:
    """Emit assembler; ``$0`` is the first operand."""
    binding.initialize_native_asmparser()  # which numba does not need otherwise
    kind = ir.FunctionType(ir.VoidType(), [operand.type for operand in operands])
    constraints = ",".join([*["r"] * len(operands), "~{memory}"])
    b.ir.call(ir.InlineAsm(kind, lines, constraints, side_effect=True), operands)


@emitted(types.intp())
def begin(b: Builder) -> Any:
    """Configure all tile registers as 16 rows of 64 bytes; return the address of room for the sums of `BLOCKS` of them."""
    room = cgutils.alloca_once(b.ir, ir.ArrayType(_int8, COLUMNS + BLOCKS * TILE_BYTES))
    space = b.ir.ptrtoint(room, _int64)
    row_bytes = [part for _ in range(2 * BLOCKS) for part in (COLUMNS, 0)]
    numbers = [1, *[0] * 15, *row_bytes, *[0] * 16, *[ROWS] * 2 * BLOCKS, *[0] * 8]
    b.store(ir.Constant(ir.VectorType(_int8, COLUMNS), numbers), space)
    _run(b, "ldtilecfg ($0)", space)
    return b.at(space, COLUMNS)


@emitted(types.void())
def end(b: Builder) -> None:
    """Give the tile registers back."""
    _run(b, "tilerelease")


@emitted(types.void(*[types.intp] * 6))
def sums(b: Builder, weight: Any, block_bytes: Any, x: Any, x_bytes: Any, steps: Any, out: Any) -> None:
    """Write the integer sums of rows and `BLOCKS` neighbouring blocks to `out`, one register after the other.

    `steps` counts 64 columns each.
    """
    line = ir.Constant(_int64, COLUMNS)
    _run(b, "\n".join(f"tilezero %tmm{block}" for block in range(BLOCKS)))
    with cgutils.for_range(b.ir, steps) as loop:
        _run(b, "tileloadd ($0,$1,1), %tmm4", b.at(x, loop.index, COLUMNS), x_bytes)
        for block in range(BLOCKS):
            at, register = b.at(b.at(weight, b.times(block_bytes, block)), loop.index, TILE_BYTES), 5 + block % 3
            lines = f"tileloadd ($0,$1,1), %tmm{register}\ntdpbusd %tmm{register}, %tmm4, %tmm{block}"
            _run(b, lines, at, line)
    for block in range(BLOCKS):
        _run(b, f"tilestored %tmm{block}, ($0,$1,1)", b.at(out, block * TILE_BYTES), line)


@emitted(types.void(*[types.intp] * 6))
def results(b: Builder, sums: Any, bias: Any, scale: Any, start: Any, row_scale: Any, y: Any) -> None:
    """Turn the sums of a row into results as `tiles.tile` does: ``(start + sum) * scale * row scale + bias``."""
    factor = b.everywhere(b.load(row_scale, _float))
    for block in range(BLOCKS):
        at = 4 * LANES * block
        total = b.load(b.at(sums, block * TILE_BYTES), _integers)
        total = b.ir.sitofp(b.ir.add(total, b.load(b.at(start, at), _integers)), _floats)
        product = b.ir.fmul(total, b.load(b.at(scale, at), _floats))
        b.store(b.fused(product, factor, b.load(b.at(bias, at), _floats)), b.at(y, at))


@njit(nogil=True, error_model="numpy")
def tall(  # type: ignore[no-untyped-def]
    w, block_bytes, x, x_bytes, first, last, groups, b, s, t, row_scale, row_scale_bytes, y, y_bytes, space
):
    """Rows `first` to before `last` times `BLOCKS` neighbouring blocks; the others are as for `tiles.tile`, `space` from `begin`.

    Rows are read up to the next multiple of 16.
    """
    steps = groups * 4 // COLUMNS
    for row in range(first, last, ROWS):
        sums(w, block_bytes, x + row * x_bytes, x_bytes, steps, space)
        for place in range(min(ROWS, last - row)):
            at = row + place
            results(space + COLUMNS * place, b, s, t, row_scale + at * row_scale_bytes, y + at * y_bytes)


KERNELS = begin, tall, end, LEAST
