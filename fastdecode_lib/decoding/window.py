"""Sliding-window decoding: verify draft tokens in one pass, accept those that equal greedy decoding's, draft again.

A pass feeds the last settled token and the drafts after it. Each hidden vector gives the token that greedy decoding would put
behind its input; as long as that token equals the draft there, the next one is settled too. So a pass settles at least one
token, and no sentence needs more passes than greedy decoding. Unlike a block of Jacobi iteration
(`fastdecode_lib.decoding.jacobi`), the window moves with every settled token and ends without a confirming pass.
"""

import difflib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fastdecode_lib.core import OUR_FAMILIES, Constraints, Hypothesis, Kind, Model, Passes, Projection, Source, Status
from fastdecode_lib.decoding.choosing import check_fits, check_least
from fastdecode_lib.decoding.passes import Accepted, Feed, decode_rows
from fastdecode_lib.decoding.single import NO_DRAFT
from fastdecode_lib.drafts.sources import AUTO, FILE_OPTIONS, Candidate, Draft, Drafter

if TYPE_CHECKING:
    from fastdecode_lib.decoding.auto import Pace


@dataclass(frozen=True)
class Window:
    """Greedy decoding through a window of drafted tokens.

    Parameters
    ----------
    width : int
        Slots computed for each candidate in a pass: one behind the last settled token and one behind each of
        ``width - 1`` drafts. 1 is greedy decoding.
    draft : str or Draft
        Where drafts come from, see `fastdecode_lib.drafts.sources`: ``"ngram+lexicon"`` adds scores, ``"prompt/recycled"``
        takes the first that has a token, ``"recycled|pool"`` verifies several candidates in one pass. ``"auto"`` is
        ``"ngram+lexicon"`` where a draft table for the model and direction is at hand, ``"recycled/pad"`` elsewhere.
    candidates : int
        Most candidates that a ``pool`` proposes at once.
    """

    width: int = 8
    draft: str | Draft = AUTO
    candidates: int = 3

    name: ClassVar[str] = "window"
    accepts: ClassVar[frozenset[Kind]] = frozenset({"causal"})
    lossless: ClassVar[bool] = True

    @classmethod
    def of(cls, width: int = 8, draft: str = AUTO, candidates: int = 3, **files: str | None) -> "Window":
        """A window from options that can be typed.

        Parameters
        ----------
        width, draft, candidates
            As above.
        **files : str, optional
            What sources read, by the names in `drafts.sources.FILE_OPTIONS`. ``table`` and ``head`` are files, as ``fastdecode
            draft-table`` and ``draft-head`` write them; by default they are searched for beside the model. ``model`` is the name
            of the model that drafts with ``draft="model"``: any with the same vocabularies, such as one that emits two tokens a
            step (Imamura and Sumita, 2020).
        """
        if unknown := sorted(files.keys() - FILE_OPTIONS.keys()):
            names = ["width", "draft", "candidates", *FILE_OPTIONS]
            close = difflib.get_close_matches(unknown[0], names, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Its options are {', '.join(names)}."
            raise TypeError(f"A window has no such option: got {unknown[0]!r}. {hint}")
        named = any(name is not None for name in files.values())
        return cls(width, Draft(draft, **files) if named else draft, candidates)  # type: ignore[arg-type]

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `of` that give this window; tables, models and heads that came from no file are None."""
        drafts = self.drafts
        files = {name: getattr(drafts, name) for name in FILE_OPTIONS}
        typed = {name: value if isinstance(value, str) else None for name, value in files.items()}
        return {"width": self.width, "draft": drafts.written, "candidates": self.candidates} | typed

    def __post_init__(self) -> None:
        check_least(self.name, "width", self.width, 1, "Use width=1 for plain greedy decoding.")
        check_least(self.name, "candidates", self.candidates, 1, "Leave the pool out of the draft.")
        _ = self.drafts.candidates  # raises for an invalid draft

    @cached_property
    def drafts(self) -> Draft:
        """The draft, parsed."""
        return Draft(self.draft) if isinstance(self.draft, str) else self.draft

    def iterate(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, *, observe: bool = False
    ) -> Passes:
        """One pass of all sentences together; see `core.Decoder.iterate`."""
        check_fits(self, model, source)
        rows = self.sentences(model, source, constraints)
        watchers = [row.drafter for row in rows] if self.drafts.needs("head") else []
        return (yield from decode_rows(rows, model, projection, source, constraints, observe, watchers, self.pace()))

    def with_draft(self, draft: Draft) -> "Window":
        """The same with a draft resolved for a model."""
        return replace(self, draft=draft)

    def pace(self) -> "Pace | None":
        """The choice of the width of every pass of a batch; None where it is the same for all."""
        return None

    def check(self, model: Model) -> None:
        """Refuse, before any work, a model that cannot verify these drafts or lacks what they need.

        Raises
        ------
        ValueError
            If candidates are verified side by side and the model cannot mask them, or a table, model or head is missing.
        """
        if self.drafts.branches(self.candidates) > 0 and "tree" not in model.supports:
            raise ValueError(
                f"The draft {self.drafts.written!r} verifies several candidates in one pass, which this model cannot: it runs row "
                f"by row. Use a single candidate, as in draft=recycled/pad, or {OUR_FAMILIES}."
            )
        if not self.drafts.resolved:
            self.drafts.check(model)

    def bind(self, source: Source, constraints: Constraints, vocabulary: int) -> list[Any]:
        """The drafts of each sentence of a batch: a `Drafter`, or an object with its methods."""
        return self.drafts.bind(source, constraints, vocabulary, self.candidates)

    def sentences(self, model: Model, source: Source, constraints: Constraints) -> list["WindowRow"]:
        """The rows of a batch; each satisfies `passes.Sentence`."""
        drafters = self.bind(source, constraints, model.outputs[0].vocabulary)
        room = model.max_target - len(constraints.prefix)
        side_by_side = self.drafts.branches(self.candidates) * (self.width - 1)
        spare = max(0, min(side_by_side, room - constraints.limit))
        longest = min(constraints.limit, room + 1)
        return [WindowRow(self.width, drafter, constraints, longest, spare) for drafter in drafters]


class WindowRow:
    """One sentence under a window; satisfies `passes.Sentence`.

    The candidates of a pass form a tree whose root is the last settled token; common beginnings are fed once. With a single
    candidate the tree is a chain.
    """

    def __init__(self, width: int, drafter: Drafter, constraints: Constraints, longest: int, spare: int = 0):
        self.width, self.drafter, self.constraints = width, drafter, constraints
        self.longest, self.spare = longest, spare
        """Longest output that the model has positions for, and slots beyond it."""
        self.output: list[int] = []
        self.hypothesis: Hypothesis | None = None

    def widen(self, width: int) -> bool:
        """Set the width of the next pass, and return whether drafts had to be prepared for it."""
        self.width = width
        return width > 1 and bool(self.drafter.prepare())

    def feed(self) -> Feed:
        """The last settled token and the drafts after it."""
        slot = len(self.output)
        if self.width == 1:
            last = self.output[-1] if slot else self.constraints.prefix[-1]
            return Feed(np.array([last]), np.array([slot]), self.output)
        free_slots = max(1, self.longest - slot)
        self.tokens = [self.output[-1] if self.output else self.constraints.prefix[-1]]
        self.parents, self.origins, self.depths = [-1], [""], [0]
        self.children: list[dict[int, int]] = [{}]
        candidates = self.drafter.propose(self.output, min(self.width, free_slots) - 1)
        if len(candidates) == 1:
            return self._chain(candidates[0])
        for candidate in candidates:
            node = 0
            for token, origin in candidate:
                if token not in self.children[node]:
                    if len(self.tokens) == free_slots + self.spare:
                        break
                    self.children[node][token] = len(self.tokens)
                    self.tokens.append(token)
                    self.parents.append(node)
                    self.origins.append(origin)
                    self.depths.append(self.depths[node] + 1)
                    self.children.append({})
                node = self.children[node][token]
        chain = all(parent == index - 1 for index, parent in enumerate(self.parents))
        return Feed(
            np.array(self.tokens),
            slot + np.array(self.depths),
            self.output.copy(),
            None if chain else np.array(self.parents),
        )

    def _chain(self, candidate: Candidate) -> Feed:
        """The feed of a single candidate, a chain, whose tokens need no lists of children."""
        self.children = []
        self.tokens += [token for token, _ in candidate]
        self.origins += [origin for _, origin in candidate]
        slot = len(self.output)
        return Feed(np.array(self.tokens), np.arange(slot, slot + len(self.tokens)), self.output)

    def take(self, tokens: np.ndarray) -> Accepted:
        """Settle the token behind the last settled one, and the one behind each draft that equals the token chosen there."""
        chosen: list[int] = tokens.tolist()
        if self.width == 1:
            return self._take_one(chosen[0], tokens)
        if not self.children:
            return self._take_chain(chosen, tokens)
        path = [0]
        ends = self.constraints.end
        while True:
            token = chosen[path[-1]]
            self.output.append(token)
            if token in ends or len(self.output) == self.constraints.limit:
                self.complete()
                break
            if token not in self.children[path[-1]]:
                break
            path.append(self.children[path[-1]][token])
        nodes = path.copy()
        while children := self.children[nodes[-1]]:
            nodes.append(next(iter(children.values())))
        next_nodes = [*nodes[1:], -1]
        drafts = [self.tokens[node] if node > 0 else -1 for node in next_nodes]
        status: list[Status] = [
            "settled" if i < len(path) else "changed" if draft not in (-1, chosen[node]) else "draft"
            for i, (node, draft) in enumerate(zip(nodes, drafts, strict=True))
        ]
        self.drafter.learn(self.output, [chosen[node] for node in nodes], len(path))
        return Accepted(
            keep=np.array(path),
            shown=np.array(nodes),
            drafts=np.array(drafts),
            origins=tuple(self.origins[node] if node > 0 else "" for node in next_nodes),
            tokens=np.array([chosen[node] for node in nodes]),
            status=tuple(status),
        )

    def _take_chain(self, chosen: list[int], tokens: np.ndarray) -> Accepted:
        """Settle the tokens of a chain up to the first one that differs from its draft."""
        drafts, kept = [*self.tokens[1:], -1], 0
        for token, draft in zip(chosen, drafts, strict=True):
            self.output.append(token)
            kept += 1
            if token in self.constraints.end or len(self.output) == self.constraints.limit:
                self.complete()
                break
            if token != draft:
                break
        status: list[Status] = ["settled"] * kept
        for token, draft in zip(chosen[kept:], drafts[kept:], strict=True):
            status.append("changed" if draft not in (-1, token) else "draft")
        self.drafter.learn(self.output, chosen, kept)
        places = np.arange(len(chosen))
        origins = (*self.origins[1:], "")
        return Accepted(places[:kept], places, np.array(drafts), origins, tokens, tuple(status))

    def _take_one(self, token: int, tokens: np.ndarray) -> Accepted:
        """Settle the only token of a pass."""
        self.output.append(token)
        if token in self.constraints.end or len(self.output) == self.constraints.limit:
            self.complete()
        self.drafter.learn(self.output, [token], 1)
        return Accepted(_FIRST, _FIRST, NO_DRAFT, ("",), tokens, ("settled",))

    def complete(self) -> None:
        """Make the output so far the hypothesis."""
        self.hypothesis = Hypothesis(tuple(self.output), None, self.constraints.reason(self.output))


_FIRST = np.zeros(1, dtype=np.int64)
_FIRST.setflags(write=False)
