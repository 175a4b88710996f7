"""Parallel decoding by fixed-point iteration (Santilli et al., 2023): PJ, PGJ and HGJ.

Greedy decoding solves a system of equations, one per position, by substitution. Jacobi iteration guesses all positions of
a block and solves all equations at once, again and again, until nothing changes (eq. 5); by induction the first k tokens
are right after k passes, so a block of m positions takes at most m passes, and the result is greedy decoding's
(Proposition 1). One loop serves the three algorithms, which differ in the sizes of their blocks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar

import numpy as np

from fastdecode_lib.core import Constraints, Hypothesis, Kind, Model, Passes, Projection, Source, Status
from fastdecode_lib.decoding.choosing import check_fits, check_least
from fastdecode_lib.decoding.passes import Accepted, Feed, decode_rows


class _Blocks:
    """Base of PJ, PGJ and HGJ, which differ in the sizes of their blocks."""

    name: ClassVar[str]
    accepts: ClassVar[frozenset[Kind]] = frozenset({"causal"})
    lossless: ClassVar[bool] = True

    def block_sizes(self, source_length: int, constraints: Constraints) -> Iterator[int]:
        """Sizes of the successive blocks of one sentence."""
        raise AssertionError("each algorithm says how long its blocks are")

    def iterate(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, *, observe: bool = False
    ) -> Passes:
        """One pass per Jacobi iteration of all sentences together; see `core.Decoder.iterate`."""
        check_fits(self, model, source)
        rows = self.sentences(model, source, constraints)
        return (yield from decode_rows(rows, model, projection, source, constraints, observe))

    def sentences(self, model: Model, source: Source, constraints: Constraints) -> list["_System"]:
        """The rows of a batch; each satisfies `passes.Sentence`."""
        return [_System(self.block_sizes(int(length), constraints), constraints) for length in source.lengths]


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
        The true number of tokens, the end included, which the paper's experiments assume to be known.
    """

    ratio: float = 1.2
    extra: int = 5
    oracle_length: int | None = None

    name: ClassVar[str] = "jacobi"

    def __post_init__(self) -> None:
        _check_draft_length(self.name, self.ratio, self.extra)
        check_least(self.name, "oracle_length", self.oracle_length, 1, "Leave it out for a guess from the source.")

    def block_sizes(self, source_length: int, constraints: Constraints) -> Iterator[int]:
        """The guessed length, repeated."""
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
        check_least(self.name, "block", self.block, 1, "Use block=1 for plain greedy decoding.")

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
        Number of tokens decoded in blocks; ``ceil(ratio * S) + extra`` by default.
    """

    block: int = 3
    length: int | None = None
    ratio: float = 1.2
    extra: int = 5

    name: ClassVar[str] = "hybrid"

    def __post_init__(self) -> None:
        check_least(self.name, "block", self.block, 1, "Use block=1 for plain greedy decoding.")
        check_least(self.name, "length", self.length, 0, "Leave it out for a guess from the source.")
        _check_draft_length(self.name, self.ratio, self.extra)

    def block_sizes(self, source_length: int, constraints: Constraints) -> Iterator[int]:
        """Blocks of `block` while they fit the length, its remainder, then single positions."""
        guess = _guess(self.ratio, self.extra, source_length, constraints)
        length = guess if self.length is None else self.length
        full_blocks, remainder = divmod(min(length, constraints.limit), self.block)
        yield from repeat(self.block, full_blocks)
        if remainder:
            yield remainder
        yield from repeat(1)


class _System:
    """The equations of one sentence, solved block after block.

    A pass computes the slots from the first unsettled one to the end of the block; the inputs of the slots before it are in the
    network's cache. By eq. 5 a block ends with a pass that changes nothing, even if all of it is settled already. That pass,
    which only confirms the last slot that counts, is kept so that the number of passes is the paper's.
    """

    spare = 0

    def __init__(self, sizes: Iterator[int], constraints: Constraints):
        self.sizes, self.constraints = sizes, constraints
        self.output: list[int] = []
        self.hypothesis: Hypothesis | None = None
        self._open_block()

    def _open_block(self) -> None:
        size = min(next(self.sizes), self.constraints.limit - len(self.output))
        self.block = np.full(size, self.constraints.padding, dtype=np.int64)
        self.origin = "pad"
        self.passes_left = size
        """Passes left until the block is solved in any case (Proposition 1)."""
        self.settled, self.last_slot = 0, size - 1
        """Settled tokens of the block, and the last slot that counts: that of the first settled end, if there is one."""

    @property
    def first(self) -> int:
        """The first slot of the block that the next pass computes."""
        return min(self.settled, self.last_slot)

    def feed(self) -> Feed:
        """The block from its first unsettled slot on, each slot behind the token before it."""
        settled = [*self.output, *self.block[: self.first].tolist()]
        last_token = settled[-1] if settled else self.constraints.prefix[-1]
        slots = np.arange(len(settled), len(self.output) + len(self.block))
        return Feed(np.concatenate([[last_token], self.block[self.first : -1]]), slots, settled)

    def take(self, tokens: np.ndarray) -> Accepted:
        """Replace the unsettled tokens by the pass's; settle those behind tokens that did not change."""
        before, first, start = self.block.copy(), self.first, len(self.output)
        self.block[self.settled :] = tokens[self.settled - first :]
        size = len(self.block)
        unchanged = _first(self.block != before)
        settled = max(self.settled, min(unchanged + 1, size))
        end = _first(np.isin(self.block[:settled], self.constraints.end))
        self.settled = min(settled, end + 1)
        self.last_slot = end if end < self.settled else size - 1
        status: list[Status] = [
            "settled" if i < self.settled else "changed" if self.block[i] != before[i] else "draft"
            for i in range(first, size)
        ]
        predicted = self.block[first:].copy()
        origins = (self.origin,) * (size - first)
        self.origin = "recycled"
        self.passes_left -= 1
        if unchanged > self.last_slot or self.passes_left == 0:
            self._close_block()
        settled_slots = len(self.output) + (0 if self.hypothesis else self.first)
        keep = np.arange(settled_slots - start - first)
        return Accepted(keep, np.arange(size - first), before[first:], origins, predicted, tuple(status))

    def _close_block(self) -> None:
        """Add the solved block to the output, up to its first end, and open the next block."""
        end = _first(np.isin(self.block, self.constraints.end))
        self.output += self.block[: end + 1].tolist()
        if end < len(self.block) or len(self.output) == self.constraints.limit:
            self.hypothesis = Hypothesis(tuple(self.output), None, self.constraints.reason(self.output))
        else:
            self._open_block()


def _guess(ratio: float, extra: int, source_length: int, constraints: Constraints) -> int:
    """Target positions guessed from the source, at most the limit."""
    return math.ceil(min(ratio * source_length + extra, constraints.limit))


def _first(flags: np.ndarray) -> int:
    """Index of the first true entry, or the length if there is none."""
    return int(flags.argmax()) if flags.any() else len(flags)


def _check_draft_length(name: str, ratio: float, extra: int) -> None:
    if not 0 <= ratio < math.inf or extra < 0 or (ratio == 0 and extra == 0):
        raise ValueError(
            f"{name} needs ratio >= 0 and extra >= 0, not both 0: got ratio={ratio}, extra={extra}. "
            "The guessed length is ceil(ratio * source tokens) + extra."
        )
