"""The innermost loop, written in LLVM's terms: a few rows times a few blocks of 16 outputs.

A weight is stored in blocks of 16 outputs. Within a block, for every `group` of columns that are multiplied together, the
entries of the 16 outputs follow each other (`matrices` packs them so). A tile keeps one running sum for each of its rows
and outputs in a register and reads the columns once, first to last. The order of a row's sums does not depend on the other
rows, so that several rows at once equal single rows bit for bit.

The vectors are 16 numbers long whatever the machine; LLVM splits them where registers are shorter. Sums of products of
16-bit pairs become ``vpmaddwd`` on x86 and ``smull`` on ARM; only the byte products of AVX-512 VNNI have to be named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastdecode_lib.kernels import cpu

LANES = 16
"""Outputs of a block."""

_int64, _int32, _int16, _int8, _float = ir.IntType(64), ir.IntType(32), ir.IntType(16), ir.IntType(8), ir.FloatType()


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

    @intrinsic
    def run(  # type: ignore[no-untyped-def]
        typing, weight, block_bytes, x, x_bytes, groups, bias, scale, start, row_scale, row_scale_bytes, y, y_bytes
    ):
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _emit(Builder(builder), kind, rows, blocks, arguments)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 12), generate

    return run


class Builder:
    """LLVM's builder with the few operations of a tile."""

    def __init__(self, builder: Any):
        self.ir = builder

    def at(self, address: Any, offset: Any, step: int = 1) -> Any:
        """An address `offset * step` bytes on."""
        if isinstance(offset, int):
            offset, step = ir.Constant(_int64, offset * step), 1
        elif step != 1:
            offset = self.ir.mul(offset, ir.Constant(_int64, step))
        return self.ir.add(address, offset)

    def times(self, value: Any, number: int) -> Any:
        """An integer multiplied by a constant."""
        return self.ir.mul(value, ir.Constant(_int64, number))

    def load(self, address: Any, kind: Any) -> Any:
        """Load the value at an address."""
        return self.ir.load(self.ir.inttoptr(address, ir.PointerType(kind)), align=1)

    def store(self, value: Any, address: Any) -> None:
        """Write to an address, without a check."""
        self.ir.store(value, self.ir.inttoptr(address, ir.PointerType(value.type)), align=1)

    def everywhere(self, value: Any) -> Any:
        """One number in all lanes."""
        undefined = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
        first = self.ir.insert_element(undefined, value, ir.Constant(_int32, 0))
        return self.ir.shuffle_vector(first, undefined, _indices([0] * LANES))

    def like(self, value: Any, other: Any) -> Any:
        """One number in as many lanes as another value has."""
        return self.everywhere(value) if isinstance(other.type, ir.VectorType) else value

    def call(self, name: str, *arguments: Any) -> Any:
        """Call an intrinsic whose result has the type of its arguments."""
        kind = arguments[0].type
        known = self.ir.module.globals.get(name)
        function = known or ir.Function(self.ir.module, ir.FunctionType(kind, [a.type for a in arguments]), name)
        return self.ir.call(function, arguments)

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        """``a * b + c``, rounded once, of single numbers or of 16."""
        return self.call("llvm.fma.v16f32" if isinstance(a.type, ir.VectorType) else "llvm.fma.f32", a, b, c)

    def lanes_added(self, total: Any) -> Any:
        """The sum of 16 lanes."""
        return self.folded(total, self.ir.fadd)

    def folded(self, lanes: Any, operation: Callable[[Any, Any], Any]) -> Any:
        """One number from 16 lanes: an operation on lower and upper half until one is left."""
        count = LANES
        while count > 1:
            count //= 2
            undefined = ir.Constant(lanes.type, ir.Undefined)
            low, high = (
                self.ir.shuffle_vector(lanes, undefined, _indices(list(range(i, i + count)))) for i in (0, count)
            )
            lanes = operation(low, high)
        return self.ir.extract_element(lanes, ir.Constant(_int32, 0))

    def loop(
        self, last: Any, starts: list[Any], step: Callable[[Any, list[Any]], list[Any]], first: Any | None = None
    ) -> list[Any]:
        """Carry values through a loop from `first`, or 0, to before `last`, which may run zero times."""
        first = ir.Constant(_int64, 0) if first is None else first
        before, loop, after = self.ir.block, self.ir.append_basic_block("loop"), self.ir.append_basic_block("done")
        self.ir.cbranch(self.ir.icmp_signed("<", first, last), loop, after)
        self.ir.position_at_end(loop)
        index, running = self.ir.phi(_int64), [self.ir.phi(start.type) for start in starts]
        results = step(index, running)
        following = self.ir.add(index, ir.Constant(_int64, 1))
        for value, start, result in zip([index, *running], [first, *starts], [following, *results], strict=True):
            value.add_incoming(start, before)
            value.add_incoming(result, self.ir.block)
        self.ir.cbranch(self.ir.icmp_signed("<", following, last), loop, after)
        end = self.ir.block
        self.ir.position_at_end(after)
        values = []
        for start, result in zip(starts, results, strict=True):
            value = self.ir.phi(start.type)
            value.add_incoming(start, before)
            value.add_incoming(result, end)
            values.append(value)
        return values

    def widened(self, halves: Any) -> Any:
        """16 finite float16 numbers, given by their bits, as float32.

        Without an instruction for it, magnitudes are shifted to float32's exponent and multiplied by 2^112.
        """
        floats, integers = ir.VectorType(_float, LANES), ir.VectorType(_int32, LANES)
        if "f16c" in cpu.features():
            return self.ir.fpext(self.ir.bitcast(halves, ir.VectorType(ir.HalfType(), LANES)), floats)
        bits = self.ir.zext(halves, integers)
        magnitude = self.ir.shl(self.ir.and_(bits, _numbers(0x7FFF)), _numbers(13))
        value = self.ir.fmul(self.ir.bitcast(magnitude, floats), ir.Constant(floats, [2.0**112] * LANES))
        sign = self.ir.shl(self.ir.and_(bits, _numbers(0x8000)), _numbers(16))
        return self.ir.bitcast(self.ir.or_(self.ir.bitcast(value, integers), sign), floats)

    def shifted(self, halves: Any) -> Any:
        """16 bfloat16 numbers, given by their bits, as float32: their bits are its upper half."""
        bits = self.ir.shl(self.ir.zext(halves, ir.VectorType(_int32, LANES)), _numbers(16))
        return self.ir.bitcast(bits, ir.VectorType(_float, LANES))

    def grouped_sum(self, products: Any, group: int) -> Any:
        """Sums of neighbouring fours or pairs, 16 in all."""
        undefined = ir.Constant(products.type, ir.Undefined)
        parts = [
            self.ir.shuffle_vector(products, undefined, _indices(list(range(part, LANES * group, group))))
            for part in range(group)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = self.ir.add(total, part)
        return total


def _indices(values: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_int32, len(values)), values)


def _numbers(value: int) -> Any:
    return _indices([value] * LANES)


def _emit(b: Builder, kind: Format, rows: int, blocks: int, arguments: Sequence[Any]) -> None:
    weight, block_bytes, x, x_bytes, groups, bias, scale, start, row_scale, row_scale_bytes, y, y_bytes = arguments
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
