"""Where the drafts of a window come from: guesses that cost little, since a wrong one changes nothing but the time.

A draft is written as candidates ``|`` that are verified side by side in one pass; a candidate is a list of sources ``/`` of
which the first that has a token for a slot gives it; a source is a name, or several scores added with ``+``:

    pad               the padding symbol, as Jacobi iteration starts
    recycled          what the previous pass said at the slot, as Jacobi iteration goes on
    source            the source token at the same position, for vocabularies that both languages share
    prompt            the source token behind the latest place where the output's last tokens stand in the source
    ngram, lexicon    scores of a draft table (`fastdecode_lib.draft_table`); ``ngram+lexicon`` is their product of probabilities
    pool              continuations of the last token seen in earlier passes of the same sentence; several candidates
    model             what another model of the same vocabulary put out for the sentence, whole, before the first pass
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fastdecode_lib.core import Constraints, Model, Source
from fastdecode_lib.draft_table import DraftTable, DraftTableError

AUTO = "auto"
MODEL = "model"
SLOTWISE = ("pad", "recycled", "source", "prompt", MODEL)
SCORES = ("ngram", "lexicon")
POOL = "pool"
NAMES = (AUTO, *SLOTWISE, *SCORES, POOL)

Room = tuple[np.ndarray, np.ndarray]
"""What a kernel writes into and clears again: scores (4, V) and the tokens that have any (V,)."""

Outputs = Callable[[Source], Sequence[Sequence[int]]]
"""What another model puts out for each sentence of a batch."""

Candidate = list[tuple[int, str]]
"""Tokens behind the last settled one, each with the name of where it came from."""


class DraftSource(Protocol):
    """Somewhere to take a slot's draft from, for one sentence."""

    name: str

    def token(self, before: list[int], settled: int) -> int:
        """A token for the slot behind `before`, whose first `settled` tokens are settled; -1 for none."""
        ...

    def learn(self, output: list[int], chosen: list[int], settled: int) -> None:
        """See what a pass chose: `settled` tokens, which now end `output`, and behind them what stands there for now."""
        return


@dataclass
class Pad(DraftSource):
    """The padding symbol at every slot."""

    padding: int
    name: str = "pad"

    def token(self, before: list[int], settled: int) -> int:
        """Always the padding."""
        return self.padding


@dataclass
class Recycled(DraftSource):
    """What the previous pass said at the slot, though the tokens before it were wrong."""

    tail: Sequence[int] = ()
    name: str = "recycled"

    def token(self, before: list[int], settled: int) -> int:
        """The previous pass's token, where it reached that far."""
        ahead = len(before) - settled
        return self.tail[ahead] if ahead < len(self.tail) else -1

    def learn(self, output: list[int], chosen: list[int], settled: int) -> None:
        """Keep what is not settled."""
        self.tail = chosen[settled:]


@dataclass
class SourceCopy(DraftSource):
    """The source token at the same position; ids that the target vocabulary lacks are -1 in `source`."""

    source: list[int]
    name: str = "source"

    def token(self, before: list[int], settled: int) -> int:
        """The source's token, where the source is that long."""
        return self.source[len(before)] if len(before) < len(self.source) else -1


@dataclass
class PromptLookup(DraftSource):
    """What follows in the source where the output's last tokens, at most `longest`, stand there; the latest place wins."""

    source: list[int]
    longest: int = 3
    name: str = "prompt"

    def token(self, before: list[int], settled: int) -> int:
        """The source's continuation of the longest match."""
        for size in range(min(self.longest, len(before)), 0, -1):
            key = before[-size:]
            for start in range(len(self.source) - size - 1, -1, -1):
                if self.source[start : start + size] == key:
                    return self.source[start + size]
        return -1


@dataclass
class Given(DraftSource):
    """Another model's output: from the same place as long as it was right, else from behind where its last tokens stand."""

    output: list[int]
    name: str = MODEL

    def token(self, before: list[int], settled: int) -> int:
        """Its next token."""
        place = len(before)
        if before == self.output[:place]:
            return self.output[place] if place < len(self.output) else -1
        return PromptLookup(self.output).token(before, settled)


NGRAM_WEIGHT, LEXICON_WEIGHT = 1.0, 1.8
REACH, DISCOUNT, FLOOR = 1.2, 0.8, 1e-3
BIGRAM_PRIOR, TRIGRAM_PRIOR = 5.0, 1.0


class TableScores(DraftSource):
    """The token with the highest sum of log-probabilities under a draft table's n-grams and lexicon.

    The n-grams are interpolated with Dirichlet priors. The lexicon is asked about the source tokens near the one behind
    that which the previous token translates, less about those that are translated already; both follow from the
    output so far by the lexicon itself.
    """

    def __init__(self, name: str, table: DraftTable, source: np.ndarray, start: int, room: Room | None = None):
        from fastdecode_lib.kernels import drafts

        outside = source[(source < 0) | (source >= table.lexicon.source_vocabulary)]
        if len(outside):
            raise DraftTableError(
                f"The draft table is of another vocabulary: it knows {table.lexicon.source_vocabulary} source tokens, got the "
                f"id {outside[0]}. Make one for this model with `fastdecode draft-table`."
            )
        self.name, self.start, self.source = name, start, source
        self.align, self.best_token = drafts.align, drafts.best_token
        scores = name.split("+")
        self.weights = np.array([
            NGRAM_WEIGHT * ("ngram" in scores), LEXICON_WEIGHT * ("lexicon" in scores), REACH, DISCOUNT, FLOOR,
            BIGRAM_PRIOR, TRIGRAM_PRIOR,
        ])  # fmt: skip
        n, x = table.ngrams, table.lexicon
        self.lexicon = (x.offsets, x.ids, x.probabilities)
        self.arrays = (
            *self.lexicon, n.unigrams, n.bigram_offsets, n.bigram_ids, n.bigram_counts, n.bigram_totals,
            n.context_offsets, n.contexts, n.trigram_offsets, n.trigram_ids, n.trigram_counts, n.trigram_totals,
        )  # fmt: skip
        self.scratch, self.touched = room or scratch_of(table)
        self.settled = _Reading(np.zeros((2, len(source))))
        self.ahead = self.settled.copy()

    def token(self, before: list[int], settled: int) -> int:
        """The best token of the table, -1 where it knows none."""
        previous = before[-1] if before else self.start
        if not 0 <= previous < len(self.touched):
            return -1
        if len(self.ahead.read) <= settled or self.ahead.read != before[: len(self.ahead.read)]:
            self._read(self.settled, before[:settled])
            self.ahead = self.settled.copy()
        self._read(self.ahead, before)
        return int(
            self.best_token(
                previous,
                before[-2] if len(before) > 1 else self.start,
                self.source,
                self.ahead.covered,
                self.ahead.aligned,
                self.weights,
                self.scratch,
                self.touched,
                *self.arrays,
            )
        )

    def _read(self, reading: "_Reading", before: list[int]) -> None:
        """Find the source tokens that the output's new tokens translate."""
        for token in before[len(reading.read) :]:
            reading.aligned = self.align(token, self.source, reading.covered, reading.aligned, REACH, *self.lexicon)
        reading.read = before.copy()


def scratch_of(table: DraftTable) -> Room:
    """Room for `kernels.drafts.best_token`, which leaves it as it was: one is enough for a batch."""
    return np.zeros((4, table.vocabulary), dtype=np.float32), np.zeros(table.vocabulary, dtype=np.int64)


@dataclass
class _Reading:
    """The tokens of an output that are aligned with its source; `covered` is described at `kernels.drafts.align`."""

    covered: np.ndarray
    aligned: int = -1
    read: list[int] = field(default_factory=list)

    def copy(self) -> "_Reading":
        """The same, to go on from."""
        return _Reading(self.covered.copy(), self.aligned, self.read)


class Pool:
    """Continuations seen in the sentence's own passes, by the token they follow; the least recently used leaves first."""

    name = POOL

    def __init__(self, candidates: int, capacity: int = 8):
        self.candidates, self.capacity = candidates, capacity
        self.seen: dict[int, OrderedDict[tuple[int, ...], None]] = {}

    def propose(self, last: int, count: int) -> list[Candidate]:
        """At most `candidates` continuations of the last settled token, the most recent first."""
        known = self.seen.get(last, OrderedDict())
        chosen = list(reversed(known))[: self.candidates]
        for continuation in reversed(chosen):
            known.move_to_end(continuation)
        return [[(token, self.name) for token in continuation[:count]] for continuation in chosen]

    def learn(self, output: list[int], chosen: list[int], settled: int) -> None:
        """Remember what stood behind each token of the pass."""
        trail = output[-settled - 1 : -settled] + chosen
        for start in range(len(trail) - 1):
            known = self.seen.setdefault(trail[start], OrderedDict())
            continuation = tuple(trail[start + 1 :])
            known[continuation] = None
            known.move_to_end(continuation)
            if len(known) > self.capacity:
                known.popitem(last=False)


class Drafter:
    """The drafts of one sentence."""

    def __init__(self, candidates: Sequence[Sequence[DraftSource] | Pool], sources: Sequence[DraftSource | Pool]):
        self.candidates, self.sources = candidates, sources

    def propose(self, output: list[int], count: int) -> list[Candidate]:
        """Candidates of at most `count` tokens behind the settled ones."""
        if count < 1:
            return []
        proposed: list[Candidate] = []
        for candidate in self.candidates:
            if isinstance(candidate, Pool):
                proposed += candidate.propose(output[-1], count) if output else []
            else:
                proposed.append(self._chain(candidate, output, count))
        return proposed

    def learn(self, output: list[int], chosen: list[int], settled: int) -> None:
        """Let every source see what a pass chose."""
        for source in self.sources:
            source.learn(output, chosen, settled)

    @staticmethod
    def _chain(sources: Sequence[DraftSource], output: list[int], count: int) -> Candidate:
        before, candidate, settled = output.copy(), [], len(output)
        for _ in range(count):
            for source in sources:
                token = source.token(before, settled)
                if token >= 0:
                    before.append(token)
                    candidate.append((token, source.name))
                    break
            else:
                break
        return candidate


@dataclass(frozen=True)
class Draft:
    """A draft as it was written, checked; see the head of this file.

    Attributes
    ----------
    candidates : tuple of tuple of str
        For each candidate its sources; scores that are added are one source, ``"ngram+lexicon"``.
    table : DraftTable or None
    pool_candidates : int
    outputs : callable or None
        For ``model``.
    """

    candidates: tuple[tuple[str, ...], ...]
    table: DraftTable | None
    pool_candidates: int
    outputs: Outputs | None = None

    @property
    def branches(self) -> int:
        """Most candidates beside the first."""
        return sum(self.pool_candidates if sources == (POOL,) else 1 for sources in self.candidates) - 1

    @property
    def needs_table(self) -> bool:
        """Whether a draft table is used."""
        return any(part in SCORES for sources in self.candidates for name in sources for part in name.split("+"))

    @property
    def needs_model(self) -> bool:
        """Whether another model drafts."""
        return any(MODEL in sources for sources in self.candidates)

    def check(self, model: Model) -> None:
        """Refuse, before any work, a model that this draft does not fit.

        Raises
        ------
        ValueError
            If candidates stand side by side and the model cannot mask them, or a draft table is missing or another
            vocabulary's.
        """
        written = "|".join("/".join(sources) for sources in self.candidates)
        if self.branches > 0 and "tree" not in model.supports:
            raise ValueError(
                f"The draft {written!r} verifies several candidates in one pass, which this model cannot: it runs row by row. "
                "Use a single candidate, as in draft=recycled, or a Marian, mBART or M2M-100 model."
            )
        if self.needs_model and self.outputs is None:
            raise ValueError(
                f"The draft {written!r} needs a model that drafts, got none. Name it: window:draft=model,model=bidirectional."
            )
        if not self.needs_table:
            return
        if self.table is None:
            raise ValueError(
                f"The draft {written!r} needs a draft table, got none for this model and direction. Make one with `fastdecode "
                "draft-table`, or use draft=recycled."
            )
        self.table.check_vocabulary(model.outputs[0].vocabulary)

    def bind(self, source: Source, constraints: Constraints, vocabulary: int) -> list[Drafter]:
        """The drafts of each sentence of a batch for a target vocabulary."""
        room = scratch_of(self.table) if self.needs_table and self.table is not None else None
        given: Sequence[Sequence[int]] = [()] * len(source)
        if self.needs_model and self.outputs is not None:
            given = self.outputs(source)
        return [
            self._bind_row(source.ids[row, :length], constraints, vocabulary, room, given[row])
            for row, length in enumerate(source.lengths)
        ]

    def _bind_row(
        self, source: np.ndarray, constraints: Constraints, vocabulary: int, room: Room | None, given: Sequence[int]
    ) -> Drafter:
        ids: list[int] = np.where(source < vocabulary, source, -1).tolist()
        sources: dict[str, DraftSource] = {}
        pool = Pool(self.pool_candidates)
        candidates: list[Sequence[DraftSource] | Pool] = []
        for names in self.candidates:
            for name in names:
                if name == MODEL:
                    sources[name] = Given(list(given))
                elif name != POOL and name not in sources:
                    sources[name] = self._source(name, source, ids, constraints, room)
            candidates.append(pool if names == (POOL,) else [sources[name] for name in names])
        return Drafter(candidates, [*sources.values(), pool])

    def _source(
        self, name: str, source: np.ndarray, ids: list[int], constraints: Constraints, room: Room | None
    ) -> DraftSource:
        if name == "pad":
            return Pad(constraints.padding)
        if name == "recycled":
            return Recycled()
        if name == "source":
            return SourceCopy(ids)
        if name == "prompt":
            return PromptLookup(ids)
        assert self.table is not None
        return TableScores(name, self.table, source, constraints.prefix[-1], room)


def parse(
    written: str, table: DraftTable | None = None, pool_candidates: int = 3, outputs: Outputs | None = None
) -> Draft:
    """A draft from how it is written.

    Raises
    ------
    ValueError
        If a part has no such name, or stands where it cannot.
    """
    if written == AUTO:
        written = "ngram+lexicon" if table is not None else "recycled/pad"
    candidates = tuple(tuple(candidate.split("/")) for candidate in written.split("|"))
    for sources in candidates:
        for name in sources:
            parts = name.split("+")
            for part in parts:
                if part not in NAMES[1:]:
                    raise ValueError(f"Unknown draft: got {part!r} in {written!r}. Use one of {', '.join(NAMES)}.")
            if len(parts) > 1 and (len(set(parts)) < len(parts) or not set(parts) <= set(SCORES)):
                raise ValueError(
                    f"Only scores are added, each once: got {name!r} in {written!r}. Write ngram+lexicon, or put the others "
                    "behind a slash, as in prompt/recycled."
                )
        if POOL in sources and len(sources) > 1:
            raise ValueError(
                f"A pool proposes whole candidates: got {'/'.join(sources)!r} in {written!r}. Set it apart, as in recycled|pool."
            )
    return Draft(candidates, table, pool_candidates, outputs)
