"""The loop that parallel decoders share: many sentences, each at its own place, through one network in one pass.

A decoder says for each sentence what to feed next and what to make of the tokens that the pass chose; everything about
batches is here. Sentences that have ended leave the batch, so that the others get their room.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from fastdecode_lib.core import Constraints, Hypothesis, Iteration, Model, Passes, Projection, Source, State, Status
from fastdecode_lib.decoding.choosing import Choice, choose
from fastdecode_lib.decoding.single import Single


class Feed(NamedTuple):
    """Tokens that one sentence feeds in a pass of W.

    Attributes
    ----------
    tokens : int64 array (W,)
        The first is the last known one (at slot 0 the start symbol), the others are drafts.
    slots : int64 array (W,)
        The slot that the pass decides after each token.
    known : sequence of int
        The tokens at the slots before ``slots[0]``.
    parents : int64 array (W,) or None
        Which of `tokens` stands before each, -1 for the first; None where each follows the one before it.
    """

    tokens: np.ndarray
    slots: np.ndarray
    known: Sequence[int]
    parents: np.ndarray | None = None

    def prefix(self, index: int) -> tuple[int, ...]:
        """All tokens before the slot that the pass decides after ``tokens[index]``."""
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
        seen = np.eye(width, dtype=bool)
        for index in range(1, width):
            seen[index] |= seen[self.parents[index]]
        return seen


class Accepted(NamedTuple):
    """Tokens that one sentence accepted in a pass.

    Attributes
    ----------
    keep : int64 array
        Indices of the fed tokens that are now known to be right, in order.
    shown : int64 array (W,)
        Indices of the fed tokens whose slots the trace shows, one a slot.
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
    """A sentence on its way: the part of a decoder that knows one row."""

    @property
    def hypothesis(self) -> Hypothesis | None:
        """The output once it is complete."""
        ...

    @property
    def spare(self) -> int:
        """Slots that it needs beyond the longest output, for candidates that stand side by side."""
        ...

    def feed(self) -> Feed:
        """Feeds of the next pass."""
        ...

    def take(self, tokens: np.ndarray) -> Accepted:
        """Take the tokens (W,) that the pass chose at the slots of the feed."""
        ...


class Watcher(Protocol):
    """Observer of the network's vectors while a sentence is decoded: drafts that need them."""

    def begin(self, vectors: np.ndarray) -> None:
        """Take the source's vectors (S, E), before the first pass."""
        ...

    def see(self, hidden: np.ndarray) -> None:
        """Take the hidden vector (D,) behind which the last settled token was chosen."""
        ...


class Pace(Protocol):
    """Choice of how much every pass feeds, from what the passes before it took and brought."""

    def feeds(self, sentences: Sequence[Any]) -> list[Feed]:
        """What these sentences feed in the next pass."""
        ...

    def end(self, accepted: Sequence[Accepted]) -> None:
        """Take what each of them accepted."""
        ...

    def drafts(self, rows: int) -> bool:
        """Whether so many sentences are worth drafting for; if not, greedy decoding's own loop takes over, where there is one."""
        ...

    def outputs(self, sentences: Sequence[Any]) -> list[list[int]]:
        """The tokens of these sentences so far, to be added to."""
        ...

    def rested(self, sentences: Sequence[Any], passes: int) -> None:
        """Take sentences whose outputs were completed token by token, in so many passes."""
        ...


Chooser = Callable[[Any, np.ndarray, np.ndarray, Sequence[Feed]], Choice]
"""Hidden vectors (N, D), slots (N,) and rows (N,) of all feeds in turn to the tokens chosen."""


def constrained(projection: Projection, source: Source, constraints: Constraints, observe: bool) -> Chooser:
    """The chooser of `choosing.choose`: the best token that the constraints allow."""
    scorer, bound = projection.bind(source), np.arange(len(source))
    several = scorer is not projection and len(source) > 1

    def chooser(hidden: Any, slots: np.ndarray, rows: np.ndarray, feeds: Sequence[Feed]) -> Choice:
        nonlocal scorer, bound
        if several and not np.array_equal(rows, bound):
            scorer, bound = projection.bind(source.rows(rows)), rows
        return choose(scorer, hidden, slots, constraints, observe)

    return chooser


def row_batches(model: Model, source: Source) -> Iterator[tuple[int, Source]]:
    """The batch whole, or row by row for models without ragged batches, each with its first row's number."""
    if "ragged" in model.supports or len(source) == 1:
        yield 0, source
    else:
        for row in range(len(source)):
            yield row, source.row(row)


def decode_rows(
    sentences: Sequence[Sentence],
    model: Model,
    projection: Projection,
    source: Source,
    constraints: Constraints,
    observe: bool,
    watchers: Sequence[Watcher] = (),
    pace: Pace | None = None,
) -> Passes:
    """Decode a batch from its encoder to its outputs; row by row with models that cannot do otherwise.

    `watchers`, one for each sentence, are shown the vectors of a model that is `core.Vectors`; `pace` chooses how much each pass
    feeds, where sentences leave that open.
    """
    call = 0
    for first, batch in row_batches(model, source):
        clock = perf_counter()
        prefix = np.tile(np.array(constraints.prefix, dtype=np.int64), (len(batch), 1))
        encoded = model.encode(batch)
        part = sentences[first : first + len(batch)]
        slots = len(constraints.prefix) + constraints.limit + max(sentence.spare for sentence in part)
        state = model.start(encoded, prefix, slots)
        chooser = constrained(projection, batch, constraints, observe)
        watching = watchers[first : first + len(batch)] if watchers else ()
        watched: Any = model  # `core.Vectors` where there are watchers, which counting proxies pass on
        for watcher, vectors in zip(watching, watched.source_vectors(encoded) if watching else (), strict=True):
            watcher.begin(vectors)
        single = None if pace is None else Single(pace.outputs(part), model, chooser, constraints, first)
        call = yield from passes(part, model, state, chooser, first, call, clock, watching, pace, single)
    return tuple(_finished(sentence) for sentence in sentences)


def passes(
    sentences: Sequence[Sentence],
    model: Model,
    state: State,
    chooser: Chooser,
    first_row: int = 0,
    call: int = 0,
    clock: float | None = None,
    watchers: Sequence[Watcher] = (),
    pace: Pace | None = None,
    single: Single | None = None,
) -> Generator[Iteration, None, int]:
    """Run passes until every sentence has its output; return the number of the next pass.

    `state` holds a row for each sentence, fed with all but the last token of the prefix. Where `pace` finds that drafts do not
    pay, `single` takes over.
    """
    clock, rows = perf_counter() if clock is None else clock, list(range(len(sentences)))
    while rows:
        if single is not None and pace is not None and not pace.drafts(len(rows)):
            end = yield from single(rows, state, call, clock)
            pace.rested([sentences[row] for row in rows], end - call)
            return end
        going_on = [sentences[row] for row in rows]
        feeds = [sentence.feed() for sentence in going_on] if pace is None else pace.feeds(going_on)
        tokens, visible = _stack(feeds)
        hidden = model.step(state, tokens, visible)
        if len(rows) == 1:
            starts = [0, tokens.shape[1]]
            choice = chooser(hidden[0], feeds[0].slots, np.zeros(tokens.shape[1], dtype=np.int64) + rows[0], feeds)
        else:
            fed, place = np.nonzero(tokens >= 0)
            starts = np.cumsum([0] + [len(feed.tokens) for feed in feeds]).tolist()
            slots = np.concatenate([feed.slots for feed in feeds])
            choice = chooser(hidden[fed, place], slots, np.array(rows)[fed], feeds)
        taken = [
            sentences[row].take(choice.tokens[start : start + len(feed.tokens)])
            for row, feed, start in zip(rows, feeds, starts[:-1], strict=True)
        ]
        going = [i for i, row in enumerate(rows) if sentences[row].hypothesis is None]
        for i in going if watchers else ():
            watchers[rows[i]].see(_host(hidden[i, int(taken[i].keep[-1])]))
        if going:
            if tokens.shape[1] > 1 or any(len(accepted.keep) != 1 for accepted in taken):
                state.keep(_padded([accepted.keep for accepted in taken]))
            if len(going) < len(rows):
                state = state.select(np.array(going))
        if pace is not None:
            pace.end(taken)
        seconds = (perf_counter() - clock) / len(rows)
        for row, feed, start, accepted in zip(rows, feeds, starts[:-1], taken, strict=True):
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
        rows = [rows[i] for i in going]
    return call


def _host(hidden: Any) -> np.ndarray:
    """A hidden vector of any engine in float32 on the host."""
    return np.ascontiguousarray(hidden.float().cpu() if hasattr(hidden, "cpu") else hidden, dtype=np.float32)


def _finished(sentence: Sentence) -> Hypothesis:
    assert sentence.hypothesis is not None
    return sentence.hypothesis


def _stack(feeds: Sequence[Feed]) -> tuple[np.ndarray, np.ndarray | None]:
    """Tokens (B, W) of all rows, -1 where a row feeds less, and who sees whom (B, W, W) where that is no chain."""
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
    """Rows of different length in one array, -1 at their ends."""
    if len(rows) == 1:
        return rows[0][None]
    padded = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int64)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values
    return padded
