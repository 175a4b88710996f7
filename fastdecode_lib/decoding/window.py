"""Sliding-window decoding: verify some drafted tokens in one pass, keep what greedy decoding would have said, refill.

A pass feeds the last settled token and the drafts after it. Each hidden vector says what greedy decoding puts behind the
token before it; as long as that is the draft, the next one is known too. So a pass settles at least the one token that
greedy decoding would settle, and never more passes are needed. Unlike a block of Jacobi iteration
(`fastdecode_lib.decoding.jacobi`), the window moves with every settled token and ends without a confirming pass.
"""

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from fastdecode_lib.core import Constraints, Hypothesis, Iteration, Kind, Model, Projection, Source, Status
from fastdecode_lib.decoding.choosing import check_fits
from fastdecode_lib.decoding.passes import Feed, Taken, decode_rows
from fastdecode_lib.drafts.finding import cache_folder, find_head, find_table
from fastdecode_lib.drafts.head import DraftHead, DraftHeadError
from fastdecode_lib.drafts.scores import BoundHead
from fastdecode_lib.drafts.sources import AUTO, Candidate, Draft, Drafter, Outputs, parse
from fastdecode_lib.drafts.table import DraftTable, DraftTableError


@dataclass(frozen=True)
class Window:
    """Greedy decoding through a window of drafted tokens.

    Parameters
    ----------
    width : int
        Slots computed for each candidate in a pass: one behind the last settled token and one behind each of
        ``width - 1`` drafts. 1 is greedy decoding.
    draft : str
        Where drafts come from, see `fastdecode_lib.drafts.sources`: ``"ngram+lexicon"`` adds scores, ``"prompt/recycled"``
        takes the first that has a token, ``"recycled|pool"`` verifies several candidates in one pass. ``"auto"`` is
        ``"ngram+lexicon"`` where a draft table for the model and direction is at hand, ``"recycled/pad"`` elsewhere.
    candidates : int
        Most candidates that a ``pool`` proposes at once.
    table : str, optional
        File of the draft table, as ``fastdecode draft-table`` writes it; looked for beside the model otherwise.
    model : str, optional
        For ``draft="model"``: the model that drafts, as `fastdecode_lib.load` takes it; any with the same vocabularies, such as
        one that puts out two tokens a step (paper 002).
    head : str, optional
        File of the draft head, as ``fastdecode draft-head`` writes it; looked for beside the model otherwise.
    """

    width: int = 8
    draft: str = AUTO
    candidates: int = 3
    table: str | None = None
    model: str | None = None
    head: str | None = None
    loaded: DraftTable | None = field(default=None, repr=False, compare=False)
    bound: BoundHead | None = field(default=None, repr=False, compare=False)
    outputs: Outputs | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "window"
    accepts: ClassVar[frozenset[Kind]] = frozenset({"causal"})
    lossless: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"window needs width >= 1, got {self.width}. Use width=1 for plain greedy decoding.")
        if self.candidates < 1:
            raise ValueError(f"window needs candidates >= 1, got {self.candidates}. Leave the pool out of the draft.")
        wants_table = self.wants_table  # which refuses a draft that is none
        if self.table is not None and not wants_table:
            raise ValueError(
                f"A table is read by ngram and lexicon only: got draft={self.draft!r} with table={self.table!r}. Leave table out, "
                "or use draft=ngram+lexicon."
            )

        if self.head is not None and not self.drafts.needs_head:
            raise ValueError(
                f"A head is used by the draft head only: got draft={self.draft!r} with head={self.head!r}. Leave head out, or use "
                "draft=ngram+lexicon+head."
            )
        if self.model is not None and not self.drafts.needs_model:
            raise ValueError(
                f"A model drafts for draft=model only: got draft={self.draft!r} with model={self.model!r}. Leave model out, or use "
                "draft=model."
            )

    @cached_property
    def drafts(self) -> Draft:
        """The draft as written, taken apart."""
        return parse(self.draft, self.loaded, self.candidates, self.outputs, self.bound)

    @property
    def wants_table(self) -> bool:
        """Whether a draft table would be used."""
        return self.draft == AUTO or self.drafts.needs_table

    def with_table(self, table: DraftTable | None) -> "Window":
        """The same with a draft table for its ``ngram`` and ``lexicon``."""
        return replace(self, loaded=table)

    def with_outputs(self, outputs: Outputs) -> "Window":
        """The same with what another model puts out, for ``draft="model"``."""
        return replace(self, outputs=outputs)

    def with_head(self, head: DraftHead, model: Model, target: str | None) -> "Window":
        """The same with a draft head for its ``head``, bound to the model's output rows for a target language."""
        return replace(self, bound=BoundHead(head, model.outputs[0], target))

    def for_model(
        self, model: Model, folder: Path, fingerprint: str, source: str | None, target: str | None
    ) -> "Window":
        """The same with the draft table and the draft head that it names, or else those at hand for the model and direction.

        Parameters
        ----------
        folder, fingerprint
            Of the model: where its weights are and what identifies them.

        Raises
        ------
        DraftTableError
            If a table or head that it names cannot be used, or was made for another model or direction.
        """
        return self._with_found_head(model, folder, fingerprint, target)._with_found_table(
            model.outputs[0].vocabulary, folder, fingerprint, source, target
        )

    def _with_found_head(self, model: Model, folder: Path, fingerprint: str, target: str | None) -> "Window":
        if not self.drafts.needs_head:
            return self
        if self.bound is not None:
            if self.bound.head.about.get("fingerprint") not in (None, fingerprint):
                raise _of_another(self.bound.head, fingerprint)
            return self if self.bound.target == target else self.with_head(self.bound.head, model, target)
        path = Path(self.head) if self.head else find_head(folder, fingerprint)
        if path is None:
            return self
        found = DraftHead.load(path)
        if found.about.get("fingerprint") != fingerprint:
            raise _of_another(found, fingerprint)
        return self.with_head(found, model, target)

    def _with_found_table(
        self, vocabulary: int, folder: Path, fingerprint: str, source: str | None, target: str | None
    ) -> "Window":
        if not self.wants_table:
            return self
        if self.loaded is None and self.table is None:
            path = find_table((folder / "draft-tables", cache_folder(fingerprint)), fingerprint, source, target)
            return self if path is None else self.with_table(DraftTable.load(path))
        table = DraftTable.load(self.table) if self.loaded is None and self.table else self.loaded
        assert table is not None
        table.check_vocabulary(vocabulary)
        wanted = {"source": source, "target": target, "fingerprint": fingerprint}
        told = {name: table.about.get(name) for name in wanted}
        if any(told[name] not in (None, value) for name, value in wanted.items()):
            raise DraftTableError(
                f"The draft table was made for {told['source']}-{told['target']} by the model {told['fingerprint']}: got "
                f"{source}-{target} of {fingerprint}. Name that direction's table, or leave it out to have it found."
            )
        return self.with_table(table)

    def iterate(
        self,
        model: Model,
        projection: Projection,
        source: Source,
        constraints: Constraints,
        *,
        observe: bool = False,
    ) -> Generator[Iteration, None, tuple[Hypothesis, ...]]:
        """One pass of all sentences together; see `core.Decoder.iterate`."""
        check_fits(self.accepts, self.name, model, source)
        self.drafts.check(model)
        spare = self.spare(model, constraints)
        rows = self.sentences(model, source, constraints)
        watchers = [row.drafter for row in rows] if self.drafts.needs_head else []
        return (yield from decode_rows(rows, model, projection, source, constraints, observe, spare, watchers))

    def spare(self, model: Model, constraints: Constraints) -> int:
        """The room beyond the longest output that candidates standing side by side get."""
        wanted = self.drafts.branches * (self.width - 1)
        return max(0, min(wanted, model.max_target - len(constraints.prefix) - constraints.limit))

    def sentences(self, model: Model, source: Source, constraints: Constraints) -> list["WindowRow"]:
        """The rows of a batch; each satisfies `passes.Sentence`."""
        self.drafts.check(model)
        drafters = self.drafts.bind(source, constraints, model.outputs[0].vocabulary)
        longest = min(constraints.limit, model.max_target - len(constraints.prefix) + 1)
        spare = self.spare(model, constraints)
        return [WindowRow(self.width, drafter, constraints, longest, spare) for drafter in drafters]


def _of_another(head: DraftHead, fingerprint: str) -> DraftHeadError:
    return DraftHeadError(
        f"The draft head was trained on the model {head.about.get('fingerprint')}: got {fingerprint}. Name that model's head, or "
        "leave it out to have it found."
    )


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

    def feed(self) -> Feed:
        """The last settled token and the drafts after it."""
        first = len(self.output)
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

    def take(self, tokens: np.ndarray) -> Taken:
        """Settle the token behind the last settled one, and behind each draft that equals the token settled there."""
        chosen: list[int] = tokens.tolist()
        path = [0]
        ends = self.constraints.end
        while True:
            token = chosen[path[-1]]
            self.output.append(token)
            if token in ends or len(self.output) == self.constraints.limit:
                self.hypothesis = Hypothesis(tuple(self.output), None, "end" if token in ends else "length")
                break
            if token not in self.children[path[-1]]:
                break
            path.append(self.children[path[-1]][token])
        shown = path.copy()
        while below := self.children[shown[-1]]:
            shown.append(next(iter(below.values())))
        behind = [*shown[1:], -1]
        drafts = [self.tokens[node] if node > 0 else -1 for node in behind]
        status: list[Status] = [
            "settled" if i < len(path) else "changed" if draft not in (-1, chosen[node]) else "draft"
            for i, (node, draft) in enumerate(zip(shown, drafts, strict=True))
        ]
        self.drafter.learn(self.output, [chosen[node] for node in shown], len(path))
        return Taken(
            keep=np.array(path),
            shown=np.array(shown),
            drafts=np.array(drafts),
            origins=tuple(self.origins[node] if node > 0 else "" for node in behind),
            tokens=np.array([chosen[node] for node in shown]),
            status=tuple(status),
        )
