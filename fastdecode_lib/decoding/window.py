"""Sliding-window decoding: verify some drafted tokens in one pass, keep what greedy decoding would have said, refill.

A pass feeds the last settled token and the drafts after it. Each hidden vector says what greedy decoding puts behind the
token before it; as long as that is the draft, the next one is known too. So a pass settles at least the one token that
greedy decoding would settle, and never more passes are needed. Unlike a block of Jacobi iteration
(`fastdecode_lib.decoding.jacobi`), the window moves with every settled token and ends without a confirming pass.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fastdecode_lib.core import Constraints, Hypothesis, Kind, Model, Passes, Projection, Source, Status
from fastdecode_lib.decoding.choosing import check_fits
from fastdecode_lib.decoding.passes import Accepted, Feed, Pace, decode_rows
from fastdecode_lib.decoding.single import NO_DRAFT
from fastdecode_lib.drafts.sources import AUTO, Candidate, Draft, Drafter


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
    def of(
        cls,
        width: int = 8,
        draft: str = AUTO,
        candidates: int = 3,
        table: str | None = None,
        model: str | None = None,
        head: str | None = None,
    ) -> "Window":
        """A window from what can be typed.

        Parameters
        ----------
        width, draft, candidates
            As above.
        table : str, optional
            File of the draft table, as ``fastdecode draft-table`` writes it; looked for beside the model otherwise.
        model : str, optional
            For ``draft="model"``: the model that drafts, as `fastdecode_lib.load` takes it; any with the same vocabularies,
            such as one that puts out two tokens a step (Imamura and Sumita, 2020).
        head : str, optional
            File of the draft head, as ``fastdecode draft-head`` writes it; looked for beside the model otherwise.
        """
        named = (table, model, head) != (None, None, None)
        return cls(width, Draft(draft, table, model, head) if named else draft, candidates)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `of` that give this window; what was loaded from no file is left out."""
        drafts = self.drafts
        files = {"table": drafts.table, "model": drafts.model, "head": drafts.head}
        typed = {name: value if isinstance(value, str) else None for name, value in files.items()}
        return {"width": self.width, "draft": drafts.written, "candidates": self.candidates} | typed

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"{self.name} needs width >= 1, got {self.width}. Use width=1 for plain greedy decoding.")
        if self.candidates < 1:
            raise ValueError(
                f"{self.name} needs candidates >= 1, got {self.candidates}. Leave the pool out of the draft."
            )
        _ = self.drafts.candidates  # which refuses a draft that is none

    @cached_property
    def drafts(self) -> Draft:
        """The draft taken apart."""
        return Draft(self.draft) if isinstance(self.draft, str) else self.draft

    def iterate(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, *, observe: bool = False
    ) -> Passes:
        """One pass of all sentences together; see `core.Decoder.iterate`."""
        check_fits(self, model, source)
        rows = self.sentences(model, source, constraints)
        watchers = [row.drafter for row in rows] if self.drafts.needs_head else []
        return (yield from decode_rows(rows, model, projection, source, constraints, observe, watchers, self.pace()))

    def with_draft(self, draft: Draft) -> "Window":
        """The same with a draft resolved for a model."""
        return replace(self, draft=draft)

    def pace(self) -> Pace | None:
        """What chooses the width of every pass of a batch; None where it is the same for all."""
        return None

    def check(self, model: Model) -> None:
        """Refuse, before any work, a model that cannot verify these drafts or has none of them.

        Raises
        ------
        ValueError
            If candidates stand side by side and the model cannot mask them, or what the draft draws on is missing.
        """
        if self.drafts.branches(self.candidates) > 0 and "tree" not in model.supports:
            raise ValueError(
                f"The draft {self.drafts.written!r} verifies several candidates in one pass, which this model cannot: it runs row "
                "by row. Use a single candidate, as in draft=recycled/pad, or a Marian, mBART, M2M-100 or T5 model."
            )
        if not self.drafts.resolved:
            self.drafts.check(model)

    def bind(self, source: Source, constraints: Constraints, vocabulary: int) -> list[Any]:
        """The drafts of each sentence of a batch: a `Drafter`, or what acts like one."""
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

    The candidates of a pass form a tree whose root is the last settled token, common beginnings being fed once; with a
    single candidate it is a chain.
    """

    def __init__(self, width: int, drafter: Drafter, constraints: Constraints, longest: int, spare: int = 0):
        self.width, self.drafter, self.constraints = width, drafter, constraints
        self.longest, self.spare = longest, spare
        """Tokens that the model has positions for, and room beyond them."""
        self.output: list[int] = []
        self.hypothesis: Hypothesis | None = None

    def widen(self, width: int) -> bool:
        """Set the width of the next pass; whether drafts had to be prepared for it."""
        self.width = width
        return width > 1 and bool(self.drafter.prepare())

    def feed(self) -> Feed:
        """The last settled token and the drafts after it."""
        first = len(self.output)
        if self.width == 1:
            last = self.output[-1] if first else self.constraints.prefix[-1]
            return Feed(np.array([last]), np.array([first]), self.output)
        room = max(1, self.longest - first)
        self.tokens = [self.output[-1] if self.output else self.constraints.prefix[-1]]
        self.parents, self.origins, self.depths = [-1], [""], [0]
        self.children: list[dict[int, int]] = [{}]
        candidates = self.drafter.propose(self.output, min(self.width, room) - 1)
        if len(candidates) == 1:
            return self._chain(candidates[0])
        for candidate in candidates:
            node = 0
            for token, origin in candidate:
                if token not in self.children[node]:
                    if len(self.tokens) == room + self.spare:
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
            first + np.array(self.depths),
            self.output.copy(),
            None if chain else np.array(self.parents),
        )

    def _chain(self, candidate: Candidate) -> Feed:
        """A single candidate: each token behind the one before."""
        for number, (token, origin) in enumerate(candidate, 1):
            self.children[-1][token] = number
            self.children.append({})
            self.tokens.append(token)
            self.origins.append(origin)
        known = self.output.copy()
        return Feed(np.array(self.tokens), np.arange(len(known), len(known) + len(self.tokens)), known)

    def take(self, tokens: np.ndarray) -> Accepted:
        """Settle the token behind the last settled one, and behind each draft that equals the token settled there."""
        chosen: list[int] = tokens.tolist()
        if self.width == 1:
            return self._take_one(chosen[0], tokens)
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
        while below := self.children[nodes[-1]]:
            nodes.append(next(iter(below.values())))
        behind = [*nodes[1:], -1]
        drafts = [self.tokens[node] if node > 0 else -1 for node in behind]
        status: list[Status] = [
            "settled" if i < len(path) else "changed" if draft not in (-1, chosen[node]) else "draft"
            for i, (node, draft) in enumerate(zip(nodes, drafts, strict=True))
        ]
        self.drafter.learn(self.output, [chosen[node] for node in nodes], len(path))
        return Accepted(
            keep=np.array(path),
            shown=np.array(nodes),
            drafts=np.array(drafts),
            origins=tuple(self.origins[node] if node > 0 else "" for node in behind),
            tokens=np.array([chosen[node] for node in nodes]),
            status=tuple(status),
        )

    def _take_one(self, token: int, tokens: np.ndarray) -> Accepted:
        """Settle the only token of a pass."""
        self.output.append(token)
        if token in self.constraints.end or len(self.output) == self.constraints.limit:
            self.complete()
        self.drafter.learn(self.output, [token], 1)
        return Accepted(_FIRST, _FIRST, NO_DRAFT, ("",), tokens, ("settled",))

    def complete(self) -> None:
        """Take the output as it is for complete."""
        ended = self.output[-1] in self.constraints.end
        self.hypothesis = Hypothesis(tuple(self.output), None, "end" if ended else "length")


_FIRST = np.zeros(1, dtype=np.int64)
_FIRST.setflags(write=False)
