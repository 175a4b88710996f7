"""The loops over passes of a batch; one file because greedy decoding takes over from decoders that draft.

Parallel decoders share a loop: one pass of the network for many sentences, each at its own slots. For each sentence, a decoder
defines which tokens to feed and which of the tokens chosen by the pass to accept; everything about batches is here. Sentences that
have ended leave the batch.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fastdecode_lib.core import Constraints, Hypothesis, Iteration, Model, Passes, Projection, Source, State, Status
from fastdecode_lib.decoding.choosing import Choice, choose
from fastdecode_lib.decoding.single import Single

if TYPE_CHECKING:
    from fastdecode_lib.decoding.auto import Pace
    from fastdecode_lib.drafts.sources import Drafter


class Feed(NamedTuple):
    """Tokens that one sentence feeds in a pass of W.

    Attributes
    ----------
    tokens : int64 array (W,)
        The first is the last settled token (at slot 0 the start symbol), the others are draft tokens.
    slots : int64 array (W,)
        The slot whose token the pass predicts from each token.
    known : sequence of int
        The tokens at the slots before ``slots[0]``; valid until the sentence takes the pass's tokens.
    parents : int64 array (W,) or None
        Index in `tokens` of the token before each, -1 for the first; None where each follows the one before it.
    """

    tokens: np.ndarray
    slots: np.ndarray
    known: Sequence[int]
    parents: np.ndarray | None = None

    def prefix(self, index: int) -> tuple[int, ...]:
        """All tokens before the slot whose token the pass predicts from ``tokens[index]``."""
        if self.parents is None:
            return (*self.known, *self.tokens[1 : index + 1].tolist())
        path: list[int] = []
        while index > 0:
            path.append(int(self.tokens[index]))
            index = int(self.parents[index])
        return (*self.known, *reversed(path))

    def visible(self) -> np.ndarray:
        """Which tokens each one may attend to, bool (W, W): itself and those on its path."""
        width = len(self.tokens)
        if self.parents is None:
            return np.tri(width, dtype=bool)
        visible = np.eye(width, dtype=bool)
        for index in range(1, width):
            visible[index] |= visible[self.parents[index]]
        return visible


class Accepted(NamedTuple):
    """Tokens that one sentence accepted in a pass.

    Attributes
    ----------
    keep : int64 array
        Indices of the fed tokens that are now settled, in order.
    shown : int64 array (W,)
        Indices of the fed tokens whose slots the trace shows, one for each slot.
    drafts, origins, tokens, status
        As in `core.Iteration`, for the slots shown.
    """

    keep: np.ndarray
    shown: np.ndarray
    drafts: np.ndarray
    origins: tuple[str, ...]
    tokens: np.ndarray
    status: tuple[Status, ...]


class Sentence(Protocol):
    """One sentence being decoded: the part of a decoder that handles one row."""

    @property
    def hypothesis(self) -> Hypothesis | None:
        """The output once it is complete."""
        ...

    @property
    def spare(self) -> int:
        """Slots that it needs beyond the longest output, for candidates that are verified side by side."""
        ...

    def feed(self) -> Feed:
        """Tokens and slots of the next pass."""
        ...

    def take(self, tokens: np.ndarray) -> Accepted:
        """Accept or reject drafts by the tokens (W,) that the pass chose at the slots of the feed."""
        ...


Chooser = Callable[[Any, np.ndarray, np.ndarray, Sequence[Feed]], Choice]
"""Function of hidden vectors (N, D), slots (N,), rows (N,) and all feeds that chooses the tokens."""


def constrained(projection: Projection, source: Source, constraints: Constraints, observe: bool) -> Chooser:
    """A chooser of the best token that the constraints allow, by `choosing.choose`."""
    scorer, bound_rows = projection.bind(source), np.arange(len(source))
    rebinds = scorer is not projection and len(source) > 1

    def chooser(hidden: Any, slots: np.ndarray, rows: np.ndarray, feeds: Sequence[Feed]) -> Choice:
        nonlocal scorer, bound_rows
        if rebinds and not np.array_equal(rows, bound_rows):
            scorer, bound_rows = projection.bind(source.rows(rows)), rows
        return choose(scorer, hidden, slots, constraints, observe)

    return chooser


def row_batches(model: Model, source: Source) -> Iterator[tuple[int, Source]]:
    """The whole batch, or single rows for models without ragged batches, each with the number of its first row."""
    if "ragged" in model.supports or len(source) == 1:
        yield 0, source
    else:
        for row in range(len(source)):
            yield row, source.row(row)


def decode_singly(
    model: Model,
    projection: Projection,
    source: Source,
    constraints: Constraints,
    observe: bool,
    timed: Callable[[int, float], None] | None = None,
) -> Passes:
    """Encode a batch and decode it greedily, one token of every row in a pass; `timed` as of a `Single`."""
    outputs: list[list[int]] = [[] for _ in range(len(source))]
    call = 0
    for first_row, batch in row_batches(model, source):
        clock = perf_counter()
        prefix = np.tile(np.array(constraints.prefix, dtype=np.int64), (len(batch), 1))
        state = model.start(model.encode(batch), prefix, len(constraints.prefix) + constraints.limit)
        chooser = constrained(projection, batch, constraints, observe)
        batch_outputs = outputs[first_row : first_row + len(batch)]
        single = Single(batch_outputs, model, chooser, constraints, first_row, timed)
        call = yield from single(range(len(batch)), state, call, clock)
    return tuple(Hypothesis(tuple(output), None, constraints.reason(output)) for output in outputs)


def decode_rows(
    sentences: Sequence[Sentence],
    model: Model,
    projection: Projection,
    source: Source,
    constraints: Constraints,
    observe: bool,
    watchers: "Sequence[Drafter]" = (),
    pace: "Pace | None" = None,
) -> Passes:
    """Encode and decode a batch; row by row for models without ragged batches.

    `watchers`, one for each sentence, see the vectors of a model that is `core.Vectors`; `pace` chooses the width of each pass,
    if the sentences do not.
    """
    call = 0
    for first, batch in row_batches(model, source):
        clock = perf_counter()
        prefix = np.tile(np.array(constraints.prefix, dtype=np.int64), (len(batch), 1))
        encoded = model.encode(batch)
        members = sentences[first : first + len(batch)]
        slots = len(constraints.prefix) + constraints.limit + max(sentence.spare for sentence in members)
        state = model.start(encoded, prefix, slots)
        chooser = constrained(projection, batch, constraints, observe)
        observers = watchers[first : first + len(batch)] if watchers else ()
        viewed: Any = model  # `core.Vectors` where there are watchers, which counting proxies pass on
        for watcher, vectors in zip(observers, viewed.source_vectors(encoded) if observers else (), strict=True):
            watcher.begin(vectors)
        single = None if pace is None else Single(pace.outputs(members), model, chooser, constraints, first, pace.timed)
        call = yield from passes(members, model, state, chooser, first, call, clock, observers, pace, single)
    hypotheses = tuple(sentence.hypothesis for sentence in sentences)
    assert None not in hypotheses
    return hypotheses  # type: ignore[return-value]


def passes(
    sentences: Sequence[Sentence],
    model: Model,
    state: State,
    chooser: Chooser,
    first_row: int = 0,
    call: int = 0,
    clock: float | None = None,
    watchers: "Sequence[Drafter]" = (),
    pace: "Pace | None" = None,
    single: Single | None = None,
) -> Generator[Iteration, None, int]:
    """Run passes until every sentence has its output; return the number of the next pass.

    `state` holds a row for each sentence, fed with all but the last token of the prefix. Once drafts do not pay by `pace`,
    `single` takes over.
    """
    clock, rows = perf_counter() if clock is None else clock, list(range(len(sentences)))
    while rows:
        if single is not None and pace is not None and not pace.drafts(len(rows)):
            end = yield from single(rows, state, call, clock)
            pace.rested([sentences[row] for row in rows], end - call)
            return end
        active = [sentences[row] for row in rows]
        feeds = [sentence.feed() for sentence in active] if pace is None else pace.feeds(active)
        tokens, visible = _stack(feeds)
        hidden = model.step(state, tokens, visible)
        if len(rows) == 1:
            starts = [0, tokens.shape[1]]
            choice = chooser(hidden[0], feeds[0].slots, np.zeros(tokens.shape[1], dtype=np.int64) + rows[0], feeds)
        else:
            row_of, position = np.nonzero(tokens >= 0)
            starts = np.cumsum([0] + [len(feed.tokens) for feed in feeds]).tolist()
            slots = np.concatenate([feed.slots for feed in feeds])
            choice = chooser(hidden[row_of, position], slots, np.array(rows)[row_of], feeds)
        outcomes = [
            sentences[row].take(choice.tokens[start : start + len(feed.tokens)])
            for row, feed, start in zip(rows, feeds, starts[:-1], strict=True)
        ]
        survivors = [i for i, row in enumerate(rows) if sentences[row].hypothesis is None]
        for i in survivors if watchers else ():
            vector = hidden[i, int(outcomes[i].keep[-1])]
            vector = vector.float().cpu() if hasattr(vector, "cpu") else vector
            watchers[rows[i]].see(np.ascontiguousarray(vector, dtype=np.float32))
        if survivors:
            if tokens.shape[1] > 1 or any(len(accepted.keep) != 1 for accepted in outcomes):
                state.keep(_padded([accepted.keep for accepted in outcomes]))
            if len(survivors) < len(rows):
                state = state.select(np.array(survivors))
        if pace is not None:
            pace.end(outcomes)
        seconds = (perf_counter() - clock) / len(rows)
        for row, feed, start, accepted in zip(rows, feeds, starts[:-1], outcomes, strict=True):
            yield Iteration(
                row=first_row + row,
                call=call,
                slots=feed.slots[accepted.shown],
                drafts=accepted.drafts,
                origins=accepted.origins,
                tokens=accepted.tokens,
                status=accepted.status,
                **choice.rows(start + accepted.shown if len(feed.tokens) > 1 else slice(start, start + 1)),
                positions=len(feed.tokens),
                seconds=seconds,
            )
        clock = perf_counter()
        call += 1
        rows = [rows[i] for i in survivors]
    return call


def _stack(feeds: Sequence[Feed]) -> tuple[np.ndarray, np.ndarray | None]:
    """Tokens (B, W) of all rows, padded with -1, and `visible` (B, W, W), None where every row is a chain."""
    if len(feeds) == 1:
        return feeds[0].tokens[None], None if feeds[0].parents is None else feeds[0].visible()[None]
    if all(len(feed.tokens) == 1 for feed in feeds):
        return np.array([feed.tokens for feed in feeds]), None
    tokens = _padded([feed.tokens for feed in feeds])
    if all(feed.parents is None for feed in feeds):
        return tokens, None
    visible = np.zeros((*tokens.shape, tokens.shape[1]), dtype=bool)
    for row, feed in enumerate(feeds):
        width = len(feed.tokens)
        visible[row, :width, :width] = feed.visible()
    return tokens, visible


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of different length in one array, padded with -1."""
    if len(rows) == 1:
        return rows[0][None]
    padded = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int64)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values
    return padded
