"""LLVM's builder with the few operations of the kernels, and a decorator that makes functions of what is written with it.

numba compiles loops; where the instructions of each round matter, they are written here in LLVM's terms. The vectors are 16
numbers long whatever the machine; LLVM splits them where registers are shorter.
"""

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastdecode_lib.kernels import cpu

LANES = 16
"""Numbers in a vector, and outputs in a block of a weight."""

_int64, _int32, _float = ir.IntType(64), ir.IntType(32), ir.FloatType()


def emitted(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a function for numba of one that takes a `Builder` and LLVM's values, and emits the code.

    Parameters
    ----------
    signature : numba signature
        Types of the result and of the arguments behind the builder.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        def definition(typing, *arguments):  # type: ignore[no-untyped-def]
            def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
                result = emit(Builder(builder), *values)
                return context.get_dummy_value() if signature.return_type is types.void else result

            return signature, generate

        definition.__name__, definition.__doc__ = emit.__name__, emit.__doc__
        definition.__signature__ = inspect.signature(emit)  # type: ignore[attr-defined]  # numba counts arguments by it
        return intrinsic(definition)

    return decorate


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
