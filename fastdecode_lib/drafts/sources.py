"""Sources of a window's drafts; one file because they combine and each takes a few lines.

A draft is written as candidates separated by ``|``, which are verified side by side in one pass. A candidate is a list of
sources separated by ``/``: each slot takes the token of the first source that has one. A source is one of these names, or a
sum of scores written with ``+``::

    pad               the padding symbol, as Jacobi iteration starts
    recycled          the previous pass's token at the slot, as Jacobi iteration goes on
    source            the source token at the same position, for vocabularies that both languages share
    prompt            the source token behind the last occurrence of the output's last tokens in the source
    ngram, lexicon    scores of a draft table (`fastdecode_lib.drafts.table`); ``ngram+lexicon`` is their product of probabilities
    head              scores of a draft head (`fastdecode_lib.drafts.head`), alone or added to the others
    pool              continuations of the last token seen in earlier passes of the same sentence; several candidates
    model             the output of another model of the same vocabulary, decoded whole before the first pass
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fastdecode_lib.core import Constraints, Model, Source
from fastdecode_lib.drafts.finding import find_head
from fastdecode_lib.drafts.head import DraftHead, DraftHeadError
from fastdecode_lib.drafts.scores import HEAD, LEXICON, NGRAM, SCORES, BoundHead, Scores, Scratch, scratch_of
from fastdecode_lib.drafts.table import DraftTable, DraftTableError
from fastdecode_lib.store import ModelFiles

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

    def tokens(self, before: list[int], settled: int, count: int) -> list[int]:
        """Tokens for the next slots, at least one and at most `count`; an empty list if there is none for the first slot."""
        token = self.token(before, settled)
        return [token] if token >= 0 else []

    def learn(self, output: list[int], chosen: list[int], settled: int) -> None:
        """Learn from a pass: ``chosen[:settled]`` are now the last tokens of `output`, ``chosen[settled:]`` may still change."""
        return

    def begin(self, vectors: np.ndarray) -> None:
        """Take the source's vectors (S, E) before the first pass; called only if the draft needs a head."""
        return

    def see(self, hidden: np.ndarray) -> None:
        """Take the hidden vector (D,) from which the last settled token was chosen; called only if the draft needs a head."""
        return


@dataclass
class Pad(DraftSource):
    """The padding symbol at every slot."""

    padding: int
    name: str = "pad"

    def token(self, before: list[int], settled: int) -> int:
        """The padding symbol."""
        return self.padding


@dataclass
class Recycled(DraftSource):
    """The previous pass's token at the slot, although tokens before it were wrong."""

    tail: Sequence[int] = ()
    name: str = "recycled"

    def token(self, before: list[int], settled: int) -> int:
        """The previous pass's token, -1 if it did not reach the slot."""
        ahead = len(before) - settled
        return self.tail[ahead] if ahead < len(self.tail) else -1

    def learn(self, output: list[int], chosen: list[int], settled: int) -> None:
        """Keep the unsettled tokens."""
        self.tail = chosen[settled:]


@dataclass
class SourceCopy(DraftSource):
    """The source token at the same position; ids that the target vocabulary lacks are -1 in `source`."""

    source: list[int]
    name: str = "source"

    def token(self, before: list[int], settled: int) -> int:
        """The source's token, -1 beyond its end."""
        return self.source[len(before)] if len(before) < len(self.source) else -1


@dataclass
class PromptLookup(DraftSource):
    """The source's continuation behind the last occurrence of the output's last tokens, at most `longest` of them."""

    source: list[int]
    longest: int = 3
    name: str = "prompt"

    def token(self, before: list[int], settled: int) -> int:
        """The source's continuation of the longest match."""
        place = self.place(before)
        return self.source[place] if place >= 0 else -1

    def place(self, before: list[int]) -> int:
        """The place in the source behind the longest match, -1 for none."""
        for size in range(min(self.longest, len(before)), 0, -1):
            key = before[-size:]
            for start in range(len(self.source) - size - 1, -1, -1):
                if self.source[start : start + size] == key:
                    return start + size
        return -1


@dataclass
class ModelOutput(DraftSource):
    """Another model's output: continued at the same slot while it is right, else behind a match of the last tokens."""

    output: list[int]
    name: str = MODEL

    def token(self, before: list[int], settled: int) -> int:
        """The other model's next token."""
        place = len(before)
        if before == self.output[:place]:
            return self.output[place] if place < len(self.output) else -1
        return PromptLookup(self.output).token(before, settled)


class Pool:
    """Continuations seen in the sentence's own passes, by the token they follow; the least recently used leaves first."""

    name = POOL

    def __init__(self, candidates: int, capacity: int = 8):
        self.candidates, self.capacity = candidates, capacity
        self.continuations: dict[int, OrderedDict[tuple[int, ...], None]] = {}

    def propose(self, last: int, count: int) -> list[Candidate]:
        """At most `candidates` continuations of the last settled token, the most recent first."""
        recent = self.continuations.get(last, OrderedDict())
        continuations = list(reversed(recent))[: self.candidates]
        for continuation in reversed(continuations):
            recent.move_to_end(continuation)
        return [[(token, self.name) for token in continuation[:count]] for continuation in continuations]

    def begin(self, vectors: np.ndarray) -> None:
        """Ignore the source."""

    def see(self, hidden: np.ndarray) -> None:
        """Ignore the model's vectors."""

    def learn(self, output: list[int], chosen: list[int], settled: int) -> None:
        """Remember the continuation of each token of the pass."""
        trail = output[-settled - 1 : -settled] + chosen
        for start in range(len(trail) - 1):
            recent = self.continuations.setdefault(trail[start], OrderedDict())
            continuation = tuple(trail[start + 1 :])
            recent[continuation] = None
            recent.move_to_end(continuation)
            if len(recent) > self.capacity:
                recent.popitem(last=False)


class Drafter:
    """The drafts of one sentence."""

    def __init__(self, candidates: Sequence[Sequence[DraftSource] | Pool], sources: Sequence[DraftSource | Pool]):
        self.candidates, self.sources = candidates, sources

    def prepare(self) -> bool:
        """Do nothing: this drafter is ready."""
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
        """Pass the tokens that a pass chose to every source."""
        for source in self.sources:
            source.learn(output, chosen, settled)

    def begin(self, vectors: np.ndarray) -> None:
        """Pass the source's vectors (S, E) to every source."""
        for source in self.sources:
            source.begin(vectors)

    def see(self, hidden: np.ndarray) -> None:
        """Pass the hidden vector (D,) from which the last settled token was chosen to every source."""
        for source in self.sources:
            source.see(hidden)

    @staticmethod
    def _chain(sources: Sequence[DraftSource], output: list[int], count: int) -> Candidate:
        before, settled = output.copy(), len(output)
        candidate: Candidate = []
        while len(candidate) < count:
            for rank, source in enumerate(sources):
                if tokens := source.tokens(before, settled, 1 if rank else count - len(candidate)):
                    before += tokens
                    candidate += [(token, source.name) for token in tokens]
                    break
            else:
                break
        return candidate


class LateDrafter(Drafter):
    """The drafts of one sentence, prepared when a pass first needs them; until then it has no sources."""

    def __init__(self, bind: Callable[[], Sequence[Drafter]]):
        super().__init__((), ())
        self.bind, self.prepared = bind, False
        self.vectors: np.ndarray | None = None
        self.hidden: np.ndarray | None = None

    def prepare(self) -> bool:
        """Prepare the drafts once; True if this call did it."""
        if self.prepared:
            return False
        (drafter,) = self.bind()
        self.candidates, self.sources, self.prepared = drafter.candidates, drafter.sources, True
        if self.vectors is not None:
            super().begin(self.vectors)
        if self.hidden is not None:
            super().see(self.hidden)
        return True

    def begin(self, vectors: np.ndarray) -> None:
        """Keep the source's vectors (S, E)."""
        self.vectors = vectors

    def see(self, hidden: np.ndarray) -> None:
        """Keep and pass on the hidden vector (D,) from which the last settled token was chosen."""
        self.hidden = hidden
        super().see(hidden)


def _load_table(table: DraftTable | str | None, model: Model, files: ModelFiles) -> DraftTable | None:
    """The table of a model and direction: the one that is given, unless it is another's, or the one that is found."""
    if table is None:
        return files.table()
    table = DraftTable.load(table) if isinstance(table, str) else table
    table.check_vocabulary(model.outputs[0].vocabulary)
    source, target = files.direction
    requested = {"source": source, "target": target, "fingerprint": files.fingerprint}
    recorded = {name: table.about.get(name) for name in requested}
    if any(recorded[name] not in (None, value) for name, value in requested.items()):
        raise DraftTableError(
            f"The draft table was made for {recorded['source']}-{recorded['target']} by the model "
            f"{recorded['fingerprint']}: got {source}-{target} of {files.fingerprint}. Name that direction's table, or leave "
            "it out to have it found."
        )
    return table


def _load_head(head: BoundHead | str | None, model: Model, files: ModelFiles) -> BoundHead | None:
    """The head that is given, or the one that is found, bound to the model's output rows for the target language."""
    path = find_head(files.folder, str(files.fingerprint)) if head is None and files.folder else head
    if path is None:
        return None
    bound, trained_head = (path, path.head) if isinstance(path, BoundHead) else (None, DraftHead.load(path))
    fingerprints = (files.fingerprint,) if bound is None else (None, files.fingerprint)
    if trained_head.about.get("fingerprint") not in fingerprints:
        raise DraftHeadError(
            f"The draft head was trained on the model {trained_head.about.get('fingerprint')}: got {files.fingerprint}. Name that "
            "model's head, or leave it out to have it found."
        )
    target = files.direction[1]
    return bound if bound is not None and bound.target == target else BoundHead(trained_head, model.outputs[0], target)


@dataclass(frozen=True)
class FileOption:
    """A file or model that sources read, as an option of a window.

    Attributes
    ----------
    sources : tuple of str
        Names of the sources that read it; `AUTO` if the automatic draft takes it where there is one.
    load : callable
        From the option's value (the text that was typed, an object, or None), the model and its files, what the sources read;
        None where there is nothing.
    purpose, example : str
        Beginning of the error where no source reads it, and a draft that does.
    missing : str
        What is missing, and what to do, in the error where a source does not have it.
    check : callable
        Refuses an object that was made for another model.
    kind : type, optional
        Class of what is loaded; by default any but text.
    """

    sources: tuple[str, ...]
    load: Callable[[Any, Model, ModelFiles], Any]
    purpose: str
    example: str
    missing: str
    check: Callable[[Any, Model], None] = lambda loaded, model: None
    kind: type | None = None

    def is_loaded(self, value: Any) -> bool:
        """Whether the value of the option is what sources read, not its name."""
        return isinstance(value, self.kind) if self.kind else value is not None and not isinstance(value, str)


FILE_OPTIONS = {
    "table": FileOption(
        (AUTO, NGRAM, LEXICON),
        _load_table,
        "A table is read by ngram and lexicon",
        "ngram+lexicon",
        "a draft table, got none for this model and direction. Make one with `fastdecode draft-table`, or use "
        "draft=recycled/pad.",
        lambda table, model: table.check_vocabulary(model.outputs[0].vocabulary),
        DraftTable,
    ),
    MODEL: FileOption(
        (MODEL,),
        lambda drafter, model, files: files.outputs(drafter) if isinstance(drafter, str) else drafter,
        "A model drafts for draft=model",
        "model",
        "a model that drafts, got none. Name it: window:draft=model,model=bidirectional.",
        kind=Callable,  # type: ignore[arg-type]
    ),
    "head": FileOption(
        (HEAD,),
        _load_head,
        "A head is used by the draft head",
        "ngram+lexicon+head",
        "a draft head, got none for this model. Train one with `fastdecode draft-head`, or use draft=recycled/pad.",
        lambda head, model: head.head.check_fits(int(model.outputs[0].weight.shape[1]), model.outputs[0].vocabulary),
        BoundHead,
    ),
}
"""Options that name files and models, by the field of `Draft` that holds them."""


@dataclass(frozen=True, eq=False)
class Draft:
    """The sources of drafts as written (see the head of this file), with the files that they read (see `FILE_OPTIONS`).

    Attributes
    ----------
    written : str
        ``"auto"`` is ``"ngram+lexicon"`` with a draft table and ``"recycled/pad"`` without.
    table : DraftTable, or the file of one
    model : callable that gives another model's outputs, or the name of a model
    head : BoundHead, or the file of a draft head
    resolved : bool
        Whether `resolve` has loaded and checked it for a model.
    """

    written: str = AUTO
    table: DraftTable | str | None = None
    model: Outputs | str | None = None
    head: BoundHead | str | None = None
    resolved: bool = False

    def __post_init__(self) -> None:
        for name, option in FILE_OPTIONS.items():
            wanted = self.wants(name)  # raises for an invalid draft, too
            if isinstance(value := getattr(self, name), str) and not wanted:
                raise ValueError(
                    f"{option.purpose} only: got draft={self.written!r} with {name}={value!r}. Leave {name} out, or use "
                    f"draft={option.example}."
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
        """The names of all sources."""
        return frozenset(source for sources in self.candidates for name in sources for source in name.split("+"))

    def needs(self, option: str) -> bool:
        """Whether a source reads the file or model of an option; without it, drafting is impossible."""
        return not self.parts.isdisjoint(FILE_OPTIONS[option].sources)

    def wants(self, option: str) -> bool:
        """Whether the file or model of an option would be used if there were one."""
        return self.written in FILE_OPTIONS[option].sources or self.needs(option)

    def resolve(self, model: Model, files: ModelFiles) -> "Draft":
        """The draft for a model and direction: with the files that it names loaded, and those that it does not name found.

        Raises
        ------
        DraftTableError
            If a table or head cannot be used, or was made for another model or direction.
        ValueError
            If the draft needs a table, head or model that is neither named nor found.
        """
        loaded = {
            name: option.load(getattr(self, name), model, files)
            for name, option in FILE_OPTIONS.items()
            if self.wants(name)
        }
        resolved = replace(self, **loaded, resolved=True)
        resolved.check(model)
        return resolved

    def branches(self, pool: int) -> int:
        """Number of candidates beside the first, at most, if a pool proposes `pool` of them."""
        return sum(pool if sources == (POOL,) else 1 for sources in self.candidates) - 1

    def check(self, model: Model) -> None:
        """Refuse, before any work, a model for which this draft lacks something.

        Raises
        ------
        ValueError
            If a draft table, a draft head or a model that drafts is missing, or belongs to another model.
        """
        if self.needs("head") and not hasattr(model, "source_vectors"):
            raise ValueError(
                f"The draft {self.written!r} needs a model that shows its source's vectors: got {type(model).__name__}. Use "
                "draft=ngram+lexicon."
            )
        for name, option in FILE_OPTIONS.items():
            if self.needs(name):
                loaded = getattr(self, name)
                if not option.is_loaded(loaded):
                    raise ValueError(f"The draft {self.written!r} needs {option.missing}")
                option.check(loaded, model)

    def bind(self, source: Source, constraints: Constraints, vocabulary: int, pool: int) -> list[Drafter]:
        """The drafts of each sentence of a batch for a target vocabulary; a pool proposes at most `pool` candidates."""
        scratch = scratch_of(vocabulary) if self.needs("table") or self.needs("head") else None
        outputs: Sequence[Sequence[int]] = [()] * len(source)
        if self.needs(MODEL) and callable(self.model):
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
            MODEL: lambda: ModelOutput(list(output)),
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
                        simple[name]() if name in SLOTWISE else self._scores(name, source, constraints, scratch)
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
        If a name is unknown or a combination is not allowed.
    """
    candidates = tuple(tuple(candidate.split("/")) for candidate in written.split("|"))
    for sources in candidates:
        for name in sources:
            parts = name.split("+")
            for source in parts:
                if source not in NAMES[1:]:
                    within = "" if source == written else f" in {written!r}"
                    raise ValueError(f"Unknown draft: got {source!r}{within}. Use one of {', '.join(NAMES)}.")
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
