"""Sources of a window's drafts; one file because they combine and each takes a few lines.

A draft is written as candidates ``|`` that are verified side by side in one pass; a candidate is a list of sources ``/`` of
which the first that has a token for a slot gives it; a source is a name, or several scores added with ``+``::

    pad               the padding symbol, as Jacobi iteration starts
    recycled          what the previous pass said at the slot, as Jacobi iteration goes on
    source            the source token at the same position, for vocabularies that both languages share
    prompt            the source token behind the latest place where the output's last tokens stand in the source
    ngram, lexicon    scores of a draft table (`fastdecode_lib.drafts.table`); ``ngram+lexicon`` is their product of probabilities
    head              scores of a draft head (`fastdecode_lib.drafts.head`), alone or added to the others
    pool              continuations of the last token seen in earlier passes of the same sentence; several candidates
    model             what another model of the same vocabulary put out for the sentence, whole, before the first pass
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fastdecode_lib.core import Constraints, Model, Source
from fastdecode_lib.drafts.scores import HEAD, LEXICON, NGRAM, SCORES, BoundHead, Scores, Scratch, scratch_of
from fastdecode_lib.drafts.table import DraftTable

AUTO = "auto"
MODEL = "model"
SLOTWISE = ("pad", "recycled", "source", "prompt", MODEL)
POOL = "pool"
NAMES = (AUTO, *SLOTWISE, *SCORES, POOL)

Outputs = Callable[[Source], Sequence[Sequence[int]]]
"""Function that gives another model's outputs for each sentence of a batch."""

Candidate = list[tuple[int, str]]
"""Tokens behind the last settled one, each with the name of its source."""


class DraftSource(Protocol):
    """A source of draft tokens, slot by slot, for one sentence."""

    name: str

    def token(self, before: list[int], settled: int) -> int:
        """A token for the slot behind `before`, whose first `settled` tokens are settled; -1 for none."""
        ...

    def learn(self, output: list[int], chosen: list[int], settled: int) -> None:
        """Learn from a pass: it chose `settled` tokens, which now end `output`, and unsettled ones behind them."""
        return

    def begin(self, vectors: np.ndarray) -> None:
        """Take the source's vectors (S, E) before the first pass; only where the draft asks for them."""
        return

    def see(self, hidden: np.ndarray) -> None:
        """Take the hidden vector (D,) behind which the last settled token was chosen; only where the draft asks for it."""
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
    """The previous pass's token at the slot, though tokens before it were wrong."""

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
    """The source's continuation of the output's last tokens, at most `longest`, where they occur in it; the latest place wins."""

    source: list[int]
    longest: int = 3
    name: str = "prompt"

    def token(self, before: list[int], settled: int) -> int:
        """The source's continuation of the longest match."""
        place = self.place(before)
        return self.source[place] if place >= 0 else -1

    def place(self, before: list[int]) -> int:
        """Where in the source the longest match goes on, -1 for nowhere."""
        for size in range(min(self.longest, len(before)), 0, -1):
            key = before[-size:]
            for start in range(len(self.source) - size - 1, -1, -1):
                if self.source[start : start + size] == key:
                    return start + size
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

    def begin(self, vectors: np.ndarray) -> None:
        """Ignore the source."""

    def see(self, hidden: np.ndarray) -> None:
        """Ignore the model's vectors."""

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

    def prepare(self) -> bool:
        """Do nothing: it is ready."""
        return False

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

    def begin(self, vectors: np.ndarray) -> None:
        """Show every source the source's vectors (S, E)."""
        for source in self.sources:
            source.begin(vectors)

    def see(self, hidden: np.ndarray) -> None:
        """Show every source the hidden vector (D,) behind which the last settled token was chosen."""
        for source in self.sources:
            source.see(hidden)

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


class LateDrafter:
    """The drafts of one sentence, prepared when a pass first needs them; acts as `Drafter`."""

    def __init__(self, bind: Callable[[], Sequence[Drafter]]):
        self.bind = bind
        self.drafter: Drafter | None = None
        self.vectors: np.ndarray | None = None
        self.hidden: np.ndarray | None = None

    def prepare(self) -> bool:
        """Prepare them, once; whether that was to be done."""
        if self.drafter is not None:
            return False
        (self.drafter,) = self.bind()
        if self.vectors is not None:
            self.drafter.begin(self.vectors)
        if self.hidden is not None:
            self.drafter.see(self.hidden)
        return True

    def propose(self, output: list[int], count: int) -> list[Candidate]:
        """Candidates of at most `count` tokens behind the settled ones."""
        return self.drafter.propose(output, count) if self.drafter is not None else []

    def learn(self, output: list[int], chosen: list[int], settled: int) -> None:
        """Let every source see what a pass chose, once there are sources."""
        if self.drafter is not None:
            self.drafter.learn(output, chosen, settled)

    def begin(self, vectors: np.ndarray) -> None:
        """Keep the source's vectors (S, E)."""
        self.vectors = vectors

    def see(self, hidden: np.ndarray) -> None:
        """Show or keep the hidden vector (D,) behind which the last settled token was chosen."""
        self.hidden = hidden
        if self.drafter is not None:
            self.drafter.see(hidden)


@dataclass(frozen=True, eq=False)
class Draft:
    """The sources of drafts as written (see the head of this file), with the table, head or model that they read.

    Attributes
    ----------
    written : str
        ``"auto"`` is ``"ngram+lexicon"`` with a draft table and ``"recycled/pad"`` without.
    table : DraftTable, or the file of one
    model : callable that gives another model's outputs, or the name of a model
    head : BoundHead, or the file of a draft head
    resolved : bool
        Whether it was made for one model and checked: by `drafts.finding.resolve`, which loads what is only named here.
    """

    written: str = AUTO
    table: DraftTable | str | None = None
    model: Outputs | str | None = None
    head: BoundHead | str | None = None
    resolved: bool = False

    def __post_init__(self) -> None:
        wants_table = self.wants_table  # which refuses a draft that is none
        if isinstance(self.table, str) and not wants_table:
            raise ValueError(
                f"A table is read by ngram and lexicon only: got draft={self.written!r} with table={self.table!r}. Leave table "
                "out, or use draft=ngram+lexicon."
            )
        if isinstance(self.head, str) and not self.needs_head:
            raise ValueError(
                f"A head is used by the draft head only: got draft={self.written!r} with head={self.head!r}. Leave head out, or "
                "use draft=ngram+lexicon+head."
            )
        if isinstance(self.model, str) and not self.needs_model:
            raise ValueError(
                f"A model drafts for draft=model only: got draft={self.written!r} with model={self.model!r}. Leave model out, or "
                "use draft=model."
            )

    def __repr__(self) -> str:
        return f"Draft({self.written!r})"

    @cached_property
    def candidates(self) -> tuple[tuple[str, ...], ...]:
        """The sources of each candidate; scores that are added are one source, ``"ngram+lexicon"``."""
        automatic = "ngram+lexicon" if isinstance(self.table, DraftTable) else "recycled/pad"
        return _parsed(automatic if self.written == AUTO else self.written)

    @cached_property
    def parts(self) -> frozenset[str]:
        """Names of all its sources."""
        return frozenset(part for sources in self.candidates for name in sources for part in name.split("+"))

    @property
    def wants_table(self) -> bool:
        """Whether a draft table would be used."""
        return self.written == AUTO or self.needs_table

    @property
    def needs_table(self) -> bool:
        """Whether drafting is impossible without a draft table."""
        return not self.parts.isdisjoint((NGRAM, LEXICON))

    @property
    def needs_lexicon(self) -> bool:
        """Whether a draft table's lexicon is asked."""
        return LEXICON in self.parts

    @property
    def needs_head(self) -> bool:
        """Whether a draft head is used."""
        return HEAD in self.parts

    @property
    def needs_model(self) -> bool:
        """Whether another model drafts."""
        return MODEL in self.parts

    def branches(self, pool: int) -> int:
        """Most candidates beside the first, where a pool proposes `pool` of them."""
        return sum(pool if sources == (POOL,) else 1 for sources in self.candidates) - 1

    def check(self, model: Model) -> None:
        """Refuse, before any work, a model that lacks what this draft draws on.

        Raises
        ------
        ValueError
            If a draft table, a draft head or a model that drafts is missing, or belongs to another model.
        """
        if self.needs_model and not callable(self.model):
            raise ValueError(
                f"The draft {self.written!r} needs a model that drafts, got none. Name it: "
                "window:draft=model,model=bidirectional."
            )
        if self.needs_head:
            self._check_head(model)
        if not self.needs_table:
            return
        if not isinstance(self.table, DraftTable):
            raise ValueError(
                f"The draft {self.written!r} needs a draft table, got none for this model and direction. Make one with "
                "`fastdecode draft-table`, or use draft=recycled/pad."
            )
        self.table.check_vocabulary(model.outputs[0].vocabulary)

    def _check_head(self, model: Model) -> None:
        if not hasattr(model, "source_vectors"):
            raise ValueError(
                f"The draft {self.written!r} needs a model that shows its source's vectors: got {type(model).__name__}. Use "
                "draft=ngram+lexicon."
            )
        if not isinstance(self.head, BoundHead):
            raise ValueError(
                f"The draft {self.written!r} needs a draft head, got none for this model. Train one with `fastdecode "
                "draft-head`, or use draft=recycled/pad."
            )
        self.head.head.check_fits(int(model.outputs[0].weight.shape[1]), model.outputs[0].vocabulary)

    def bind(self, source: Source, constraints: Constraints, vocabulary: int, pool: int) -> list[Drafter]:
        """The drafts of each sentence of a batch for a target vocabulary, a pool proposing `pool` candidates at most."""
        scratch = scratch_of(vocabulary) if self.needs_table or self.needs_head else None
        outputs: Sequence[Sequence[int]] = [()] * len(source)
        if self.needs_model and callable(self.model):
            outputs = self.model(source)
        return [
            self._bind_row(source.ids[row, :length], constraints, vocabulary, scratch, outputs[row], pool)
            for row, length in enumerate(source.lengths)
        ]

    def _bind_row(
        self,
        source: np.ndarray,
        constraints: Constraints,
        vocabulary: int,
        scratch: Scratch | None,
        output: Sequence[int],
        pool_candidates: int,
    ) -> Drafter:
        ids: list[int] = np.where(source < vocabulary, source, -1).tolist()
        simple: dict[str, Callable[[], DraftSource]] = {
            "pad": lambda: Pad(constraints.padding),
            "recycled": Recycled,
            "source": lambda: SourceCopy(ids),
            "prompt": lambda: PromptLookup(ids),
            MODEL: lambda: Given(list(output)),
        }
        sources: dict[str, DraftSource] = {}
        pool = Pool(pool_candidates)
        candidates: list[Sequence[DraftSource] | Pool] = []
        for names in self.candidates:
            if names == (POOL,):
                candidates.append(pool)
                continue
            for name in names:
                if name not in sources:
                    sources[name] = (
                        simple[name]() if name in simple else self._scores(name, source, constraints, scratch)
                    )
            candidates.append([sources[name] for name in names])
        return Drafter(candidates, [*sources.values(), pool])

    def _scores(self, name: str, source: np.ndarray, constraints: Constraints, scratch: Scratch | None) -> DraftSource:
        parts = name.split("+")
        table = self.table if isinstance(self.table, DraftTable) and parts != [HEAD] else None
        head = self.head if isinstance(self.head, BoundHead) and HEAD in parts else None
        return Scores(name, table, source, constraints.prefix[-1], scratch, head)


def _parsed(written: str) -> tuple[tuple[str, ...], ...]:
    """The candidates of a draft and the sources of each.

    Raises
    ------
    ValueError
        If a part has no such name, or stands where it cannot.
    """
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
    return candidates
