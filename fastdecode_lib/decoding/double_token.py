"""Several tokens a step, from both ends or from one (paper 002): beam search over groups, algorithm 1 for any group."""

from collections.abc import Generator
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar

import numpy as np

from fastdecode_lib.core import (
    Candidates,
    Constraints,
    Hypothesis,
    Iteration,
    Kind,
    Lane,
    Model,
    Projection,
    Source,
    Status,
)
from fastdecode_lib.decoding.choosing import check_fits
from fastdecode_lib.folding import place, unfolded


@dataclass(frozen=True)
class DoubleToken:
    """Algorithm 1 of paper 002, for models of any number n of tokens a step; with ``size=1`` the best group at every step.

    A step scores all slots of a group at once: none sees the others' tokens. The groups are put together slot by slot:
    the 2W best first tokens, with these the 3W best pairs, and so on to (n + 1)W groups. A group that ends in one slot is
    ended in all behind it, at no cost; so of (n + 1)W groups at least W go on.

    Parameters
    ----------
    size : int
        W, the hypotheses kept.
    length_penalty : float
        Finished hypotheses are compared by log-probability over length to this power; the length counts one end.
    tokens : int or None
        Tokens a step; a model has its own, and another number is refused.
    """

    size: int = 1
    length_penalty: float = 1.0
    tokens: int | None = None

    name: ClassVar[str] = "double_token"
    accepts: ClassVar[frozenset[Kind]] = frozenset({"causal"})
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(
                f"double_token needs size >= 1, got {self.size}. The paper has 10; 1 keeps the best alone."
            )
        if not abs(self.length_penalty) <= 100:
            raise ValueError(
                f"double_token needs length_penalty from -100 to 100, got {self.length_penalty}. 1.0 divides scores by the "
                "length."
            )
        if self.tokens is not None and self.tokens < 2:
            raise ValueError(
                f"double_token needs tokens >= 2, got {self.tokens}. Leave it out: a model has its own number."
            )

    def iterate(
        self,
        model: Model,
        projection: Projection,
        source: Source,
        constraints: Constraints,
        *,
        observe: bool = False,
    ) -> Generator[Iteration, None, tuple[Hypothesis, ...]]:
        """One pass per group over all live hypotheses; see `core.Decoder.iterate`.

        Slots count the output's tokens from the left, and from the right below 0, -1 being the end. With ``size=1`` an
        iteration holds the new group; with more, the best hypothesis so far, whose tokens are settled when the search has ended.
        """
        check_fits(self.accepts, self.name, model, projection, source, several=True)
        self._check_group(model)
        clock = perf_counter()
        group, steps = model.group, -(-constraints.limit // model.group)
        prefix = np.tile(np.array(constraints.prefix, dtype=np.int64), (len(source), 1))
        state = model.start(model.encode(source), prefix, len(constraints.prefix) + group * (steps - 1))
        searches = [_Search(self, constraints, model) for _ in range(len(source))]
        rows = np.arange(len(source))
        """The source row of each live lane."""
        last = prefix[:, -group:]
        scorer = projection.bind(source)
        for step in range(steps):
            hidden = model.step(state, last)
            slots = np.tile(np.arange(step * group, (step + 1) * group), len(rows))
            keep = min((group + 1) * self.size, model.outputs[0].vocabulary)
            found = scorer.top_k(
                hidden.reshape(-1, hidden.shape[-1]), keep, constraints.forbidden(slots), normalise=True
            )
            chances = _log_probabilities(found).reshape(len(rows), group, -1)
            ids = found.ids.reshape(chances.shape)
            going: list[tuple[int, Lane]] = []
            offset, seconds = 0, (perf_counter() - clock) / len(np.unique(rows))
            for row in np.unique(rows):
                search, lanes = searches[row], int((rows == row).sum())
                own = slice(offset, offset + lanes)
                search.advance(ids[own], chances[own], step)
                if not search.finished:
                    going += [(offset + lane.parent, lane) for lane in search.live]
                active = found.num_active.reshape(-1, group)[offset]
                yield search.iteration(int(row), step, lanes, seconds, active, observe)
                offset += lanes
            clock = perf_counter()
            if not going:
                break
            parents = np.array([parent for parent, _ in going])
            if len(parents) != len(rows) or (parents != np.arange(len(rows))).any():
                rows, state = rows[parents], state.select(parents)
                scorer = projection.bind(source.rows(rows)) if scorer is not projection else scorer
            last = np.array([lane.tokens[-group:] for _, lane in going])
        return tuple(search.best() for search in searches)

    def _check_group(self, model: Model) -> None:
        if model.group < 2:
            raise ValueError(
                "The decoder double_token needs a model of several tokens a step, got one of a single token. Use greedy or "
                "beam for this model, or load one that fits, such as bidirectional."
            )
        if self.tokens is not None and self.tokens != model.group:
            raise ValueError(
                f"This model was trained for {model.group} tokens a step: got tokens={self.tokens}. Leave tokens out, or load "
                f"a model trained for {self.tokens}."
            )
        if "ragged" not in model.supports:
            raise ValueError(
                "The decoder double_token needs a model that runs several rows at once; this one runs row by row. Load one of "
                "our own, such as bidirectional."
            )


def _log_probabilities(found: Candidates) -> np.ndarray:
    """Of all candidates (N, K); -inf where there is none."""
    assert found.log_normaliser is not None
    with np.errstate(invalid="ignore"):
        return np.where(found.ids >= 0, found.scores - found.log_normaliser[:, None], -np.inf)


@dataclass(frozen=True)
class Groups:
    """Candidate groups, best first: the lane each grows from, its tokens and the summed score.

    Attributes
    ----------
    lanes : int64 array (N,)
    tokens : int64 array (N, n)
    scores : float array (N,)
        The lane's own and those of the tokens.
    """

    lanes: np.ndarray
    tokens: np.ndarray
    scores: np.ndarray


def best_groups(
    ids: np.ndarray, chances: np.ndarray, sums: np.ndarray, end: int, size: int, forced: np.ndarray
) -> Groups:
    """DOUBLETOPK of algorithm 1, for groups of n: the (n + 1)W best groups of all lanes, put together slot by slot.

    Parameters
    ----------
    ids : int64 array (lanes, n, K)
        The best tokens of every slot, at least (n + 1)W where there are as many; -1 for none.
    chances : float array (lanes, n, K)
        Their log-probabilities.
    sums : float array (lanes,)
        The lanes' scores so far.
    end : int
        Behind it, a group holds nothing but ends, at no cost.
    size : int
        W.
    forced : int64 array (n,)
        The token forced at a slot, at no cost; -1 where the model is free.

    Returns
    -------
    Groups
        Fewer where there are not as many. Of equals, the earlier lane's, and the better token's, come first.
    """
    groups = Groups(np.arange(len(sums)), np.zeros((len(sums), 0), dtype=np.int64), sums)
    for slot in range(ids.shape[1]):
        most = (slot + 2) * size
        over = (groups.tokens == end).any(1)
        tokens = ids[groups.lanes, slot, :most].copy()
        added = chances[groups.lanes, slot, :most].copy()
        alone = over | (forced[slot] >= 0)
        tokens[alone], added[alone] = -1, -np.inf
        tokens[alone, 0], added[alone, 0] = np.where(over[alone], end, forced[slot]), 0.0
        scores = np.where(tokens >= 0, groups.scores[:, None] + added, -np.inf)
        order = np.argsort(-scores, axis=None, kind="stable")[:most]
        order = order[np.isfinite(scores.reshape(-1)[order])]
        which, rank = np.unravel_index(order, scores.shape)
        chosen = np.concatenate([groups.tokens[which], tokens[which, rank][:, None]], 1)
        groups = Groups(groups.lanes[which], chosen, scores[which, rank])
    return groups


class _Search:
    """The beam of one sentence."""

    def __init__(self, settings: DoubleToken, constraints: Constraints, model: Model):
        self.settings, self.constraints = settings, constraints
        self.group, self.both_ends = model.group, model.both_ends
        self.live: list[Lane] = [Lane(0, (), 0.0)]
        """Their tokens are slots in the order of emission."""
        self.done: list[Lane] = []
        """Finished hypotheses, best first; their tokens end with one end where there is one, in the order of emission."""
        self.finished = False
        self.shown: dict[int, int] = {}

    def advance(self, ids: np.ndarray, chances: np.ndarray, step: int) -> None:
        """Take the candidates (lanes, n, K) of every slot of a step with their log-probabilities."""
        size, end = self.settings.size, self.constraints.end[0]
        slots = np.arange(step * self.group, (step + 1) * self.group)
        forced = self.constraints.forced(slots)
        # What grows from both ends is whole only with its end.
        forced[slots >= self.constraints.limit - self.both_ends] = end
        sums = np.array([lane.score for lane in self.live])
        found = best_groups(self._with_end(ids), chances, sums, end, size, forced)
        grown = [
            Lane(lane, (*self.live[lane].tokens, *tokens), score)
            for lane, tokens, score in zip(
                found.lanes.tolist(), found.tokens.tolist(), found.scores.tolist(), strict=True
            )
        ] or [Lane(i, (*lane.tokens, *[end] * self.group), lane.score) for i, lane in enumerate(self.live)]
        last = slots[-1] + 1 >= self.constraints.limit
        ended = [last or end in lane.tokens[-self.group :] for lane in grown]
        self.done += [self._closed(lane) for lane, over in zip(grown[:size], ended, strict=False) if over]
        self.done = sorted(self.done, key=lambda lane: -lane.score)[:size]
        self.live = [lane for lane, over in zip(grown, ended, strict=True) if not over][:size]
        self.finished = not self.live or len(self.done) >= size

    def _with_end(self, ids: np.ndarray) -> np.ndarray:
        """Every id that ends a sentence as the one that closes groups."""
        first, *others = self.constraints.end
        return np.where(np.isin(ids, others), first, ids) if others else ids

    def _closed(self, lane: Lane) -> Lane:
        """A finished hypothesis: cut behind its end or at the limit, its score divided by its length."""
        end = self.constraints.end[0]
        tokens = lane.tokens[: lane.tokens.index(end) + 1] if end in lane.tokens else lane.tokens
        tokens = tokens[: self.constraints.limit]
        return Lane(lane.parent, tokens, lane.score / len(tokens) ** self.settings.length_penalty, finished=True)

    def iteration(
        self, row: int, step: int, lanes: int, seconds: float, active: np.ndarray, observe: bool
    ) -> Iteration:
        """The new group, or the best hypothesis after this step, beside what stood there before."""
        over = self.finished
        best = self._best() if over else self.live[0]
        emitted, end = [*best.tokens], self.constraints.end[0]
        ended = emitted.index(end) if end in emitted else len(emitted)
        several = self.settings.size > 1
        first = 0 if several else step * self.group
        held = {place(slot, self.both_ends): emitted[slot] for slot in range(first, ended)}
        if ended < len(emitted):
            held[-1 if self.both_ends else ended] = end
        places = sorted(slot for slot in held if slot >= 0) + sorted(slot for slot in held if slot < 0)
        drafts = np.array([self.shown.get(slot, -1) for slot in places], dtype=np.int64)
        tokens = np.array([held[slot] for slot in places], dtype=np.int64)
        status: list[Status] = ["draft" if a == b else "changed" for a, b in zip(drafts, tokens, strict=True)]
        if over or not several:
            status = ["settled"] * len(places)
        self.shown |= held if several else {}
        return Iteration(
            row=row,
            call=step,
            slots=np.array(places, dtype=np.int64),
            drafts=drafts,
            origins=tuple("recycled" if draft >= 0 else "" for draft in drafts),
            tokens=tokens,
            status=tuple(status),
            num_active=None if several else np.resize(active, len(places)),
            positions=lanes * self.group,
            seconds=seconds,
        )

    def _in_order(self, slots: tuple[int, ...]) -> tuple[int, ...]:
        """Tokens in the order of the sentence, with one end where there is one."""
        end = self.constraints.end[0]
        inside = slots[: slots.index(end)] if end in slots else slots
        return (*unfolded(inside, self.both_ends), *([end] if end in slots else []))

    def _best(self) -> Lane:
        return self.done[0] if self.done else self.live[0]

    def best(self) -> Hypothesis:
        """The best hypothesis once the search has ended."""
        lane = self._best()
        tokens = self._in_order(lane.tokens)
        return Hypothesis(tokens, lane.score, "end" if tokens and tokens[-1] in self.constraints.end else "length")
