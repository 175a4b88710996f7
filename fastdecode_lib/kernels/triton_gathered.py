"""Triton kernels for listed rows of a weight on a GPU; one file because they are the steps of one projection (Amer et al., 2022).

They find the nearest centroid, the union of the sets of several rows, the product with a list of rows of the weight, and the
product fused with the search for the best, so that no scores are written. Scores are float32, summed in one fixed order: a
row's bits depend neither on other rows nor on its place, and not on whether its list is shared.

A score and its id make one *key*, a 64-bit number that is larger for a higher score and, of equal scores, for a lower id:
the best keys are the best tokens, the lowest id first, whatever the order of the tiles.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = tl.constexpr(16)
"""Hidden vectors multiplied together: the fewest that matrix units support."""
TOKENS = tl.constexpr(64)
"""Rows of the weight in a tile."""
COLUMNS = tl.constexpr(64)
"""Columns of hidden vectors and weight that are read together."""
SPAN = tl.constexpr(1024)
"""Entries that the stages after the product read together."""
NOTHING = tl.constexpr(-(2**63))
"""The key of no token, below all others."""
VARYING = ("rows", "tiles", "bans", "ban_stride", "k", "missing", "count")
"""Arguments that differ from call to call, for whose values kernels are not compiled anew."""


@dataclass(frozen=True)
class Lists:
    """Lists of rows of a weight, one after another, int32 on the device.

    Attributes
    ----------
    firsts, counts : tensors (L,)
        List i is ``members[firsts[i] : firsts[i] + counts[i]]``; a count of 0 means all rows of the weight.
    members : tensor
    longest : int
        Upper limit of a list's length.
    """

    firsts: Tensor
    counts: Tensor
    members: Tensor
    longest: int

    @classmethod
    def whole(cls, rows: int, device: Any) -> "Lists":
        """One list: all rows of a weight."""
        nothing = torch.zeros(1, dtype=torch.int32, device=device)
        return cls(nothing, nothing, nothing, rows)


@dataclass(frozen=True)
class Best:
    """The best tokens of N hidden vectors: float32 scores and int32 ids (N, k), -inf and -1 if there are fewer.

    `log_normaliser` (N,) runs over the list, banned ids included; empty unless asked for.
    """

    scores: Tensor
    ids: Tensor
    log_normaliser: Tensor


# ------------------------------------------------------------------------------------------------------------ functions


def nearest(hidden: Tensor, points: Tensor, constants: Tensor) -> Tensor:
    """The point of highest ``points @ h + constants`` for each hidden vector (N, D), of equals the first; int32 (N,).

    With constants of ``-|C|^2 / 2`` that is the lowest ``|C|^2 - 2 C h``, eq. 2 of Amer et al.; with none the highest product.
    """
    lists = Lists.whole(len(points), points.device)
    return _top_k(hidden, points, constants, 1, lists, None, None, False, None, missing=0).ids[:, 0]


def union(own: Tensor, lists: Lists, vocabulary: int) -> Lists:
    """The union of the lists `own` (N,) as one ascending list, whose length stays on the device."""
    device, spans = own.device, triton.cdiv(vocabulary, SPAN.value)
    seen = torch.zeros(vocabulary, dtype=torch.int8, device=device)
    tallies = torch.empty(spans, dtype=torch.int32, device=device)
    members = torch.empty(vocabulary, dtype=torch.int32, device=device)
    first_and_count = torch.zeros(2, dtype=torch.int32, device=device)
    with _on(device):
        grid = (triton.cdiv(lists.longest, SPAN.value), len(own))
        _mark[grid](own, lists.firsts, lists.counts, lists.members, seen, vocabulary)
        _tally[(spans,)](seen, tallies, vocabulary)
        _compact[(spans,)](seen, tallies, members, first_and_count[1:], vocabulary)
    longest = min(vocabulary, len(own) * lists.longest)
    return Lists(first_and_count[:1], first_and_count[1:], members, longest)


def gathered_product(hidden: Tensor, weight: Tensor, bias: Tensor, ids: Tensor) -> Tensor:
    """Scores (N, n) of hidden vectors (N, D) with the rows `ids` (n,) of a weight (V, D) and its bias (V,), float32."""
    scores = torch.empty(len(hidden), len(ids), dtype=torch.float32, device=hidden.device)
    grid = (triton.cdiv(len(ids), TOKENS.value), triton.cdiv(len(hidden), ROWS.value))
    with _on(hidden.device):
        _product[grid](hidden.contiguous(), weight, bias, ids, scores, *hidden.shape, len(ids))
    return scores


def gathered_top_k(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    k: int,
    lists: Lists,
    *,
    own: Tensor | None = None,
    banned: Tensor | None = None,
    normalise: bool = False,
    copies: Tensor | None = None,
) -> Best:
    """The k best of the listed rows of a weight for each hidden vector, without writing the scores.

    Hidden vectors with the same list are multiplied together if they are in the same sixteen. Each tile of the product keeps its
    k best, and a second stage picks from these.

    Parameters
    ----------
    hidden : tensor (N, D)
    weight, bias : tensors (V, D) and (V,)
        Contiguous, float16, bfloat16 or float32.
    k : int
        Should be small: the second stage reads the tiles' best k times.
    lists : Lists
    own : int32 tensor (N,) or None
        The list of each row; the first one for all if None.
    banned : int32 tensor (1 or N, M) or None
        Ids that are not picked, padded with -1.
    normalise : bool
    copies : tensor (members, D) or None
        Copies of the rows of all lists, one after another, if there are any; a list of all rows is read from the weight.
    """
    return _top_k(hidden, weight, bias, k, lists, own, banned, normalise, copies, missing=-1)


def _top_k(
    hidden: Tensor, weight: Tensor, bias: Tensor, k: int, lists: Lists, own: Tensor | None, banned: Tensor | None,
    normalise: bool, copies: Tensor | None, *, missing: int,
) -> Best:  # fmt: skip
    """`gathered_top_k`, with `missing` in place of missing ids."""
    rows, width = hidden.shape
    tiles, device = triton.cdiv(lists.longest, TOKENS.value), hidden.device
    keys = torch.empty(rows, tiles, k, dtype=torch.int64, device=device)
    tops, sums = torch.empty(2, rows, tiles if normalise else 0, dtype=torch.float32, device=device)
    scores = torch.empty(rows, k, dtype=torch.float32, device=device)
    ids = torch.empty(rows, k, dtype=torch.int32, device=device)
    log_normaliser = torch.empty(rows if normalise else 0, dtype=torch.float32, device=device)
    bans, stride = (0, 0) if banned is None else (banned.shape[1], banned.shape[1] * (len(banned) > 1))
    with _on(device):
        _best_of_tiles[(tiles, rows if own is not None else min(rows, 1))](
            hidden.contiguous(), own, lists.firsts, lists.counts, lists.members, weight, copies, bias,
            None if banned is None else banned.contiguous(), keys, tops, sums,
            rows, width, len(weight), bans, stride, tiles, k, normalise,
        )  # fmt: skip
        _best_of_all[(rows,)](
            own, lists.counts, keys, tops, sums, scores, ids, log_normaliser, len(weight), tiles, k, missing, normalise
        )
    return Best(scores, ids, log_normaliser)


def _on(device: torch.device) -> Any:
    """A context in which kernels run on this device: they run on the current one, whatever the tensors' is."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


# -------------------------------------------------------------------------------------------------------------- kernels


@triton.jit
def _scores(hidden, row, asking, table, place, in_list, bias, ids, width):  # type: ignore[no-untyped-def]
    """Scores (ROWS, TOKENS) of the hidden vectors `row` with the rows `place` of a table, which are the tokens `ids`."""
    column = tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, TOKENS), tl.float32)
    h_start = hidden + row.to(tl.int64)[:, None] * width + column[None, :]
    w_start = table + place.to(tl.int64)[:, None] * width + column[None, :]
    for first in range(0, width, COLUMNS):
        inside = (first + column < width)[None, :]
        h = tl.load(h_start + first, mask=asking[:, None] & inside, other=0.0)
        w = tl.load(w_start + first, mask=in_list[:, None] & inside, other=0.0)
        total = tl.dot(h.to(w.dtype), tl.trans(w), total, input_precision="ieee")
    return total + tl.load(bias + ids, mask=in_list, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _keys(scores, ids):  # type: ignore[no-untyped-def]
    """Keys of scores (ROWS, TOKENS) and ids (TOKENS,); none for what is minus infinity."""
    bits = scores.to(tl.int32, bitcast=True)
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = (ascending.to(tl.int64) << 32) | (0x7FFFFFFF - ids).to(tl.int64)[None, :]
    return tl.where(scores == float("-inf"), NOTHING, keys)


@triton.jit
def _leads(own, row, mine):  # type: ignore[no-untyped-def]
    """Whether no row before this one has the same list."""
    before = 0
    for first in range(0, row, TOKENS):
        other = first + tl.arange(0, TOKENS)
        before += tl.sum((tl.load(own + other, mask=other < row, other=-1) == mine).to(tl.int32))
    return before == 0


@triton.jit(do_not_specialize=VARYING)
def _best_of_tiles(  # type: ignore[no-untyped-def]
    hidden, own, firsts, counts, members, weight, copies, bias, banned, keys, tops, sums,
    rows, width, whole, bans, ban_stride, tiles, k, NORMALISE: tl.constexpr,
):  # fmt: skip
    """A tile of a list, for all rows that have the list: the k best keys, and the tile's part of the normaliser."""
    tile, leader = tl.program_id(0), tl.program_id(1)
    mine = 0
    if own is not None:
        mine = tl.load(own + leader)
    stored = tl.load(counts + mine)
    works = tile * TOKENS < tl.where(stored > 0, stored, whole)
    if own is not None:
        works = works & _leads(own, leader, mine)
    if works:
        at = tile * TOKENS + tl.arange(0, TOKENS)
        in_list = at < tl.where(stored > 0, stored, whole)
        ids = at
        table = weight
        place = at
        if stored > 0:
            at += tl.load(firsts + mine)
            ids = tl.load(members + at, mask=in_list, other=0)
            place = ids
            if copies is not None:
                table = copies
                place = at
        for first in range(leader // ROWS * ROWS, rows, ROWS):
            row = first + tl.arange(0, ROWS)
            asking = row < rows
            if own is not None:
                asking = asking & (tl.load(own + row, mask=asking, other=-1) == mine)
            if tl.sum(asking.to(tl.int32)) > 0:
                scores = _scores(hidden, row, asking, table, place, in_list, bias, ids, width)
                scores = tl.where(in_list[None, :], scores, float("-inf"))
                row_tile = row.to(tl.int64) * tiles + tile
                if NORMALISE:
                    top = tl.max(scores, 1)
                    shift = tl.where(top == float("-inf"), 0.0, top)
                    tl.store(tops + row_tile, top, mask=asking)
                    tl.store(sums + row_tile, tl.sum(tl.exp(scores - shift[:, None]), 1), mask=asking)
                if banned is not None:
                    for ban in range(bans):
                        refused = tl.load(banned + row * ban_stride + ban, mask=asking, other=-1)
                        scores = tl.where(ids[None, :] == refused[:, None], float("-inf"), scores)
                left = _keys(scores, ids)
                for rank in range(k):
                    best = tl.max(left, 1)
                    tl.store(keys + row_tile * k + rank, best, mask=asking)
                    left = tl.where(left == best[:, None], NOTHING, left)


@triton.jit(do_not_specialize=VARYING)
def _best_of_all(  # type: ignore[no-untyped-def]
    own, counts, keys, tops, sums, scores, ids, log_normaliser, whole, tiles, k, missing, NORMALISE: tl.constexpr
):
    """The k best keys of a row's tiles, as scores and ids; each is the largest below the previous one."""
    row = tl.program_id(0).to(tl.int64)
    mine = 0
    if own is not None:
        mine = tl.load(own + row)
    stored = tl.load(counts + mine)
    filled = tl.cdiv(tl.where(stored > 0, stored, whole), TOKENS)
    last = tl.full((), 2**63 - 1, tl.int64)
    for rank in range(k):
        best = tl.full((), NOTHING, tl.int64)
        for first in range(0, filled * k, SPAN):
            at = first + tl.arange(0, SPAN)
            found = tl.load(keys + row * tiles * k + at, mask=at < filled * k, other=NOTHING)
            best = tl.maximum(best, tl.max(tl.where(found < last, found, NOTHING)))
        ascending = (best >> 32).to(tl.int32)
        score = (ascending ^ ((ascending >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        token = 0x7FFFFFFF - (best & 0x7FFFFFFF).to(tl.int32)
        tl.store(scores + row * k + rank, tl.where(best == NOTHING, float("-inf"), score))
        tl.store(ids + row * k + rank, tl.where(best == NOTHING, missing, token))
        last = best
    if NORMALISE:
        top = tl.full((), float("-inf"), tl.float32)
        for first in range(0, filled, SPAN):
            at = first + tl.arange(0, SPAN)
            top = tl.maximum(top, tl.max(tl.load(tops + row * tiles + at, mask=at < filled, other=float("-inf"))))
        shift = tl.where(top == float("-inf"), 0.0, top)
        total = tl.full((), 0.0, tl.float32)
        for first in range(0, filled, SPAN):
            at = first + tl.arange(0, SPAN)
            highest = tl.load(tops + row * tiles + at, mask=at < filled, other=float("-inf"))
            share = tl.load(sums + row * tiles + at, mask=at < filled, other=0.0)
            total += tl.sum(share * tl.exp(highest - shift))
        tl.store(log_normaliser + row, shift + tl.log(total))


@triton.jit(do_not_specialize=VARYING)
def _product(hidden, weight, bias, ids, scores, rows, width, count):  # type: ignore[no-untyped-def]
    """A tile of the scores (N, n) of listed rows."""
    at = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    in_list, asking = at < count, row < rows
    token = tl.load(ids + at, mask=in_list, other=0)
    found = _scores(hidden, row, asking, weight, token, in_list, bias, token, width)
    tl.store(scores + row.to(tl.int64)[:, None] * count + at[None, :], found, mask=asking[:, None] & in_list[None, :])


@triton.jit
def _mark(own, firsts, counts, members, seen, whole):  # type: ignore[no-untyped-def]
    """Mark a span of the list of a row in a map of the vocabulary."""
    mine = tl.load(own + tl.program_id(1))
    stored = tl.load(counts + mine)
    at = tl.program_id(0) * SPAN + tl.arange(0, SPAN)
    inside = at < tl.where(stored > 0, stored, whole)
    token = at
    if stored > 0:
        token = tl.load(members + tl.load(firsts + mine) + at, mask=inside, other=0)
    tl.store(seen + token, tl.full((SPAN,), 1, tl.int8), mask=inside)


@triton.jit
def _tally(seen, tallies, whole):  # type: ignore[no-untyped-def]
    """Count the marked tokens in a span of the vocabulary."""
    at = tl.program_id(0) * SPAN + tl.arange(0, SPAN)
    tl.store(tallies + tl.program_id(0), tl.sum(tl.load(seen + at, mask=at < whole, other=0).to(tl.int32)))


@triton.jit
def _compact(seen, tallies, members, count, whole):  # type: ignore[no-untyped-def]
    """Write the marked tokens of a span behind those of earlier spans; the last span writes their number."""
    span = tl.program_id(0)
    before = 0
    for first in range(0, span, SPAN):
        other = first + tl.arange(0, SPAN)
        before += tl.sum(tl.load(tallies + other, mask=other < span, other=0))
    at = span * SPAN + tl.arange(0, SPAN)
    marked = tl.load(seen + at, mask=at < whole, other=0).to(tl.int32)
    tl.store(members + before + tl.cumsum(marked) - marked, at, mask=marked > 0)
    if span == tl.num_programs(0) - 1:
        tl.store(count, before + tl.sum(marked))


INTERPRETED = not isinstance(_best_of_tiles, triton.JITFunction)
"""Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1 at the first import), on the CPU and slowly."""
