"""Parallel decoding by fixed-point iteration (Santilli et al., 2023): PJ, PGJ and HGJ.

Greedy decoding solves a system of equations, one per position, by substitution. Jacobi iteration guesses all positions of
a block and solves all equations at once, again and again, until nothing changes (eq. 5); by induction the first k tokens
are right after k passes, so a block of m positions takes at most m passes, and the result is greedy decoding's
(Proposition 1). One loop serves the three algorithms, which differ in the sizes of their blocks.
"""

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter
from typing import ClassVar

import numpy as np

from fastdecode_lib.core import Constraints, Hypothesis, Iteration, Kind, Model, Projection, Source, State, Status
from fastdecode_lib.decoding.choosing import check_fits, choose


class _Blocks:
    """What PJ, PGJ and HGJ share; each says how long its blocks are."""

    name: ClassVar[str]
    accepts: ClassVar[frozenset[Kind]] = frozenset({"causal"})
    lossless: ClassVar[bool] = True

    def block_sizes(self, source_length: int, constraints: Constraints) -> Iterator[int]:
        """Sizes of the successive blocks of one sentence."""
        raise AssertionError("each algorithm says how long its blocks are")

    def iterate(
        self,
        model: Model,
        projection: Projection,
        source: Source,
        constraints: Constraints,
        *,
        observe: bool = False,
    ) -> Generator[Iteration, None, tuple[Hypothesis, ...]]:
        """One pass per Jacobi iteration, sentence by sentence; see `core.Decoder.iterate`."""
        check_fits(self.accepts, self.name, model, projection, source)
        hypotheses = []
        call = 0
        for row in range(len(source)):
            sizes = self.block_sizes(int(source.lengths[row]), constraints)
            solver = _Solver(model, projection, source.row(row), constraints, observe, row, call)
            hypotheses.append((yield from solver.solve(sizes)))
            call = solver.call
        return tuple(hypotheses)


@dataclass(frozen=True)
class Jacobi(_Blocks):
    """Parallel Jacobi decoding, PJ (Algorithm 1): the whole sentence is one block.

    The length of the block is guessed from the source, ``ceil(ratio * S) + extra``; if the sentence has not ended there,
    further blocks of the same length follow.

    Parameters
    ----------
    ratio, extra : float, int
        How many target positions to guess for S source tokens.
    oracle_length : int, optional
        The true number of tokens, the end included, as the paper's experiments assume to know it.
    """

    ratio: float = 1.2
    extra: int = 5
    oracle_length: int | None = None

    name: ClassVar[str] = "jacobi"

    def __post_init__(self) -> None:
        _check_draft_length(self.name, self.ratio, self.extra)
        _check_at_least(self.name, "oracle_length", self.oracle_length, 1)

    def block_sizes(self, source_length: int, constraints: Constraints) -> Iterator[int]:
        """The guessed length, again and again."""
        return repeat(self.oracle_length or _guess(self.ratio, self.extra, source_length, constraints))


@dataclass(frozen=True)
class GaussSeidel(_Blocks):
    """Parallel Gauss-Seidel-Jacobi decoding, PGJ (Algorithm 2): blocks one after another, Jacobi within a block.

    Parameters
    ----------
    block : int
        Positions solved together; 1 is greedy decoding.
    """

    block: int = 3

    name: ClassVar[str] = "gauss_seidel"

    def __post_init__(self) -> None:
        _check_block(self.name, self.block)

    def block_sizes(self, source_length: int, constraints: Constraints) -> Iterator[int]:
        """Blocks of `block`."""
        return repeat(self.block)


@dataclass(frozen=True)
class Hybrid(_Blocks):
    """Hybrid Gauss-Seidel-Jacobi decoding, HGJ (Algorithm 3): blocks up to a length, then one position at a time.

    Parameters
    ----------
    block : int
        Positions solved together.
    length : int, optional
        Up to where to decode in blocks; ``ceil(ratio * S) + extra`` by default.
    """

    block: int = 3
    length: int | None = None
    ratio: float = 1.2
    extra: int = 5

    name: ClassVar[str] = "hybrid"

    def __post_init__(self) -> None:
        _check_block(self.name, self.block)
        _check_at_least(self.name, "length", self.length, 0)
        _check_draft_length(self.name, self.ratio, self.extra)

    def block_sizes(self, source_length: int, constraints: Constraints) -> Iterator[int]:
        """Blocks of `block` while they fit the length, its remainder, then single positions."""
        guess = _guess(self.ratio, self.extra, source_length, constraints)
        length = guess if self.length is None else self.length
        whole, rest = divmod(min(length, constraints.limit), self.block)
        yield from repeat(self.block, whole)
        if rest:
            yield rest
        yield from repeat(1)


class _Solver:
    """Jacobi iteration over the blocks of one sentence.

    A pass computes the slots from the first unsettled one to the end of the block; the state holds the inputs of those
    before it. By eq. 5 a block ends with a pass that changes nothing, even where all of it is settled already: that
    pass, which only confirms, computes the last slot that counts, and is kept so that passes are the paper's.
    """

    def __init__(
        self,
        model: Model,
        projection: Projection,
        source: Source,
        constraints: Constraints,
        observe: bool,
        row: int,
        call: int,
    ):
        self.clock = perf_counter()
        self.model, self.constraints, self.observe, self.row, self.call = model, constraints, observe, row, call
        self.scorer = projection.bind(source)
        prefix = np.array([constraints.prefix], dtype=np.int64)
        self.before_slots = len(constraints.prefix) - 1
        self.state: State = model.start(model.encode(source), prefix, len(constraints.prefix) + constraints.limit)
        self.last = constraints.prefix[-1]

    def solve(self, sizes: Iterator[int]) -> Generator[Iteration, None, Hypothesis]:
        """Block after block until the sentence ends or the limit is reached."""
        output: list[int] = []
        limit = self.constraints.limit
        while len(output) < limit:
            size = min(next(sizes), limit - len(output))
            block = yield from self._block(len(output), size)
            end = _first(np.isin(block, self.constraints.end))
            output += block[: end + 1].tolist()
            if end < len(block):
                return Hypothesis(tuple(output), None, "end")
            self.last = output[-1]
        return Hypothesis(tuple(output), None, "length")

    def _block(self, start: int, size: int) -> Generator[Iteration, None, np.ndarray]:
        """Solve one block; its tokens are right up to the first end of sentence."""
        block = np.full(size, self.constraints.padding, dtype=np.int64)
        origins = ["pad"] * size
        settled, last_slot = 0, size - 1
        for _ in range(size):
            before, first = block.copy(), min(settled, last_slot)
            slots = start + np.arange(first, size)
            self.state.truncate(np.array([self.before_slots + start + first]))
            fed = np.concatenate([[self.last if first == 0 else block[first - 1]], block[first:-1]])
            hidden = self.model.step(self.state, fed[None])
            choice = choose(self.scorer, hidden[0], slots, self.constraints, self.observe)
            block[settled:] = choice.tokens[settled - first :]
            unchanged = _first(block != before)
            settled = max(settled, min(unchanged + 1, size))
            end = _first(np.isin(block[:settled], self.constraints.end))
            settled = min(settled, end + 1)
            last_slot = end if end < settled else size - 1
            status: list[Status] = [
                "settled" if i < settled else "changed" if block[i] != before[i] else "draft"
                for i in range(first, size)
            ]
            seconds = perf_counter() - self.clock
            yield Iteration(
                row=self.row,
                call=self.call,
                slots=slots,
                drafts=before[first:],
                origins=tuple(origins[first:]),
                tokens=block[first:].copy(),
                status=tuple(status),
                **choice.rows(slice(None)),
                seconds=seconds,
            )
            self.clock = perf_counter()
            self.call += 1
            origins = ["recycled"] * size
            if unchanged > last_slot:
                break
        return block


def _guess(ratio: float, extra: int, source_length: int, constraints: Constraints) -> int:
    """Target positions guessed from the source, at most the limit."""
    return math.ceil(min(ratio * source_length + extra, constraints.limit))


def _first(true: np.ndarray) -> int:
    """Index of the first true entry, or the length if there is none."""
    return int(true.argmax()) if true.any() else len(true)


def _check_block(name: str, block: int) -> None:
    if block < 1:
        raise ValueError(f"{name} needs block >= 1, got {block}. Use block=1 for plain greedy decoding.")


def _check_at_least(name: str, option: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(f"{name} needs {option} >= {least}, got {value}. Leave it out for a guess from the source.")


def _check_draft_length(name: str, ratio: float, extra: int) -> None:
    if not 0 <= ratio < math.inf or extra < 0 or (ratio == 0 and extra == 0):
        raise ValueError(
            f"{name} needs ratio >= 0 and extra >= 0, not both 0: got ratio={ratio}, extra={extra}. "
            "The guessed length is ceil(ratio * source tokens) + extra."
        )
