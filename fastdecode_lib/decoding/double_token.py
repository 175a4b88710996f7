"""Several tokens a step (Imamura and Sumita, 2020), greedy and by beam; one file because both read steps and ends the same way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    Passes,
    Projection,
    Scorer,
    Source,
    State,
    Status,
)
from fastdecode_lib.decoding.choosing import check_fits, check_least, choose
from fastdecode_lib.decoding.folding import place, unfolded
from fastdecode_lib.kernels import top_k


@dataclass(frozen=True)
class DoubleToken:
    """Greedy decoding and beam search for models of any number n of tokens a step (Imamura and Sumita, 2020).

    A step scores all slots of a group at once: none sees the others' tokens. Greedy decoding takes the best token of each
    slot, and only ends behind an end. Beam search is algorithm 1: groups are built slot by slot, from the 2W best first tokens
    to the 3W best pairs and so on to (n + 1)W groups. Behind an end, the slots of a group are ends at no cost, so that at least
    W of (n + 1)W groups go on. The search stops at W finished hypotheses.

    With W = 1, algorithm 1 would compare the log-probability of an end with the sum of a whole group's and end too early;
    here a beam of one is greedy decoding.

    Parameters
    ----------
    size : int
        W, the hypotheses kept; 1 for greedy decoding.
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
    several_tokens: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_least(self.name, "size", self.size, 1, "The paper has 10; 1 is greedy decoding.")
        if not abs(self.length_penalty) <= 100:
            raise ValueError(
                f"double_token needs length_penalty from -100 to 100, got {self.length_penalty}. 1.0 divides scores by the "
                "length."
            )
        check_least(self.name, "tokens", self.tokens, 2, "Leave it out: a model has its own number.")

    def iterate(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, *, observe: bool = False
    ) -> Passes:
        """One pass per group over all live hypotheses; see `core.Decoder.iterate`.

        Slots count the output's tokens from the left, and below 0 from the right, -1 being the end. Greedy decoding yields each
        group as it comes. A beam's passes are yielded after the search and show how the output grew: the slots of its right-hand
        tokens depend on its length.
        """
        check_fits(self, model, source)
        # An output that grows from both ends is complete only with its end.
        run = _Run(
            model, projection, source, replace(constraints, forced_end=constraints.forced_end or model.both_ends)
        )
        if self.size == 1:
            return (yield from self._greedy(run, observe))
        return (yield from self._beam(run))

    def _greedy(self, run: "_Run", observe: bool) -> Passes:
        group, end = run.model.tokens_per_step, run.constraints.end[0]
        emitted: list[list[int]] = [[] for _ in range(len(run.source))]
        for step in range(run.steps):
            hidden, slots = run.step(step)
            choice = choose(run.scorer(), hidden, slots, run.constraints, observe)
            tokens = choice.tokens.reshape(-1, group)
            is_end = np.isin(tokens, run.constraints.end)
            tokens[np.logical_or.accumulate(is_end, axis=1)] = end
            ended = is_end.any(1) | (slots[group - 1] + 1 >= run.constraints.limit)
            seconds = run.lap()
            for i, row in enumerate(run.rows):
                start = len(emitted[row])
                emitted[row] += tokens[i].tolist()
                slots_by_place = _places(emitted[row], end, run.constraints.limit, run.model.both_ends, start)
                places = _ordered(slots_by_place)
                indices = np.array([i * group + slots_by_place[slot] - start for slot in places], dtype=np.int64)
                yield Iteration(
                    row=int(row),
                    call=step,
                    slots=np.array(places, dtype=np.int64),
                    drafts=np.full(len(places), -1),
                    origins=("",) * len(places),
                    tokens=np.array([emitted[row][slots_by_place[slot]] for slot in places], dtype=np.int64),
                    status=_SETTLED * len(places),
                    **choice.rows(indices),
                    positions=group,
                    seconds=seconds,
                )
            run.start_lap()
            alive = np.flatnonzero(~ended)
            if not len(alive):
                break
            run.go_on(alive, tokens[alive])
        outputs = [run.in_order(row) for row in emitted]
        return tuple(Hypothesis(tokens, None, run.constraints.reason(tokens)) for tokens in outputs)

    def _beam(self, run: "_Run") -> Passes:
        group, constraints = run.model.tokens_per_step, run.constraints
        live = list(range(len(run.source)))
        searches = [_Search(self, run) for _ in range(len(run.source))]
        for step in range(run.steps):
            hidden, slots = run.step(step)
            keep = min((group + 1) * self.size + len(constraints.end) - 1, run.model.outputs[0].vocabulary)
            candidates = run.scorer().top_k(hidden, keep, constraints.forbidden(slots), normalise=True)
            log_probs = _log_probabilities(candidates).reshape(len(run.rows), group, -1)
            ids = _one_end(candidates.ids, constraints.end).reshape(log_probs.shape)
            forced, last = run.forced(slots[:group]), bool(slots[group - 1] + 1 >= constraints.limit)
            parents: list[int] = []
            offset, positions = 0, []
            for row in live:
                search, lanes = searches[row], len(searches[row].live)
                rows = slice(offset, offset + lanes)
                search.advance(ids[rows], log_probs[rows], forced, last)
                parents += [offset + lane.parent for lane in search.live] if not search.finished else []
                positions.append(lanes * group)
                offset += lanes
            seconds = run.lap()
            for row, number in zip(live, positions, strict=True):
                searches[row].passes.append((number, seconds))
            run.start_lap()
            live = [row for row in live if not searches[row].finished]
            if not live:
                break
            run.go_on(
                np.array(parents), np.array([lane.tokens[-group:] for row in live for lane in searches[row].live])
            )
        grown = [list(search.iterations(row)) for row, search in enumerate(searches)]
        for call in range(max(map(len, grown))):
            yield from (passes[call] for passes in grown if call < len(passes))
        return tuple(search.best() for search in searches)

    def check(self, model: Model) -> None:
        """Refuse, before any work, a model of another number of tokens a step, or one that runs row by row.

        Raises
        ------
        ValueError
            If the model is either.
        """
        if self.tokens is not None and self.tokens != model.tokens_per_step:
            raise ValueError(
                f"This model was trained for {model.tokens_per_step} tokens a step: got tokens={self.tokens}. Leave tokens out, or "
                f"load a model trained for {self.tokens}."
            )
        if "ragged" not in model.supports:
            raise ValueError(
                "The decoder double_token needs a model that runs several rows at once; this one runs row by row. Load one of "
                "our own, such as bidirectional."
            )


class _Run:
    """The state that greedy decoding and beam search share: rows, caches, forced tokens and the clock."""

    def __init__(self, model: Model, projection: Projection, source: Source, constraints: Constraints):
        self.clock = perf_counter()
        self.model, self.projection, self.source, self.constraints = model, projection, source, constraints
        self.rows = np.arange(len(source))
        """The source row of each row of the state."""
        self.steps = -(-constraints.limit // model.tokens_per_step)
        prefix = np.tile(np.array(constraints.prefix, dtype=np.int64), (len(source), 1))
        capacity = len(constraints.prefix) + model.tokens_per_step * (self.steps - 1)
        self.state: State = model.start(model.encode(source), prefix, capacity)
        self.last = prefix[:, -model.tokens_per_step :]
        self.bound: Scorer | None = None

    def step(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Hidden vectors (N, D) of all slots of a step, and their numbers (N,)."""
        hidden = self.model.step(self.state, self.last)
        group = self.model.tokens_per_step
        return hidden.reshape(-1, hidden.shape[-1]), np.tile(
            np.arange(number * group, (number + 1) * group), len(self.rows)
        )

    def scorer(self) -> Scorer:
        """The scorer of a step's slots of every row."""
        if self.bound is None:
            self.bound = self.projection.bind(self.source.rows(np.repeat(self.rows, self.model.tokens_per_step)))
        return self.bound

    def go_on(self, rows: np.ndarray, tokens: np.ndarray) -> None:
        """Keep these rows of the state (R,), which may repeat, and feed them these tokens (R, n) next."""
        if len(rows) != len(self.rows) or (rows != np.arange(len(self.rows))).any():
            self.state = self.state.select(rows)
            self.rows = self.rows[rows]
            self.bound = self.bound if self.bound is self.projection else None
        self.last = tokens

    def forced(self, slots: np.ndarray) -> np.ndarray:
        """The id forced at each slot, an end beyond the limit; -1 where the model is free."""
        return np.where(slots < self.constraints.limit, self.constraints.forced(slots), self.constraints.end[0])

    def in_order(self, slots: Sequence[int]) -> tuple[int, ...]:
        """Emitted slots as an output, in the order of the sentence, with one end if there is any."""
        end = self.constraints.end[0]
        inside = [*slots][: self.constraints.limit]
        ended = end in inside
        inside = inside[: inside.index(end)] if ended else inside
        return (*unfolded(inside, self.model.both_ends), *([end] if ended else []))

    def start_lap(self) -> None:
        """Read the clock."""
        self.clock = perf_counter()

    def lap(self) -> float:
        """Seconds for each source row since the clock was read."""
        return (perf_counter() - self.clock) / len(np.unique(self.rows))


_SETTLED: tuple[Status, ...] = ("settled",)


def _places(emitted: Sequence[int], end: int, limit: int, both_ends: bool, first: int = 0) -> dict[int, int]:
    """The index in `emitted` of each place in the output, for slots from `first` on up to the first end."""
    slots = [*emitted][:limit]
    ended = slots.index(end) if end in slots else len(slots)
    slots_by_place = {place(slot, both_ends): slot for slot in range(first, ended)}
    if first <= ended < len(slots):
        slots_by_place[-1 if both_ends else ended] = ended
    return slots_by_place


def _ordered(places: dict[int, int]) -> list[int]:
    """Places from the left, then those from the right."""
    return sorted(slot for slot in places if slot >= 0) + sorted(slot for slot in places if slot < 0)


def _log_probabilities(candidates: Candidates) -> np.ndarray:
    """Log-probabilities of candidates (N, K); -inf where there is none."""
    assert candidates.log_normaliser is not None
    with np.errstate(invalid="ignore"):
        return np.where(candidates.ids >= 0, candidates.scores - candidates.log_normaliser[:, None], -np.inf)


def _one_end(ids: np.ndarray, ends: Sequence[int]) -> np.ndarray:
    """Replace the best id of each row of ids (N, K) that ends a sentence by the first of `ends`, and drop its others."""
    is_end = np.isin(ids, ends)
    return np.where(is_end & (is_end.cumsum(-1) == 1), ends[0], np.where(is_end, -1, ids))


@dataclass(frozen=True)
class Groups:
    """Candidate groups, best first: the lane each grows from, its tokens and the summed score.

    Attributes
    ----------
    lanes : int64 array (N,)
    tokens : int64 array (N, n)
    scores : float array (N,)
        Sums of the lane's score and the tokens' log-probabilities.
    """

    lanes: np.ndarray
    tokens: np.ndarray
    scores: np.ndarray


def best_groups(
    ids: np.ndarray, log_probs: np.ndarray, sums: np.ndarray, end: int, size: int, forced: np.ndarray
) -> Groups:
    """DOUBLETOPK of algorithm 1, for groups of n: the (n + 1)W best groups of all lanes, built slot by slot.

    Parameters
    ----------
    ids : int64 array (lanes, n, K)
        The best tokens of every slot, at least (n + 1)W or the whole vocabulary; -1 for none.
    log_probs : float array (lanes, n, K)
        Their log-probabilities.
    sums : float array (lanes,)
        The lanes' scores so far.
    end : int
        Behind an end, a group has only ends, at no cost.
    size : int
        W.
    forced : int64 array (n,)
        The token forced at a slot, at no cost; -1 where the model is free.

    Returns
    -------
    Groups
        Fewer if there are not as many. Ties go to the earlier lane, then to the better token. A slot at which no lane has an
        allowed token ends all of them.
    """
    lanes, group, _ = ids.shape
    room = max(lanes, (group + 1) * size)
    found = Groups(np.empty(room, np.int64), np.empty((room, group), np.int64), np.empty(room))
    count = top_k.best_groups(
        np.ascontiguousarray(ids), np.ascontiguousarray(log_probs, dtype=np.float64), sums, end, size, forced,
        found.lanes, found.tokens, found.scores,
    )  # fmt: skip
    return Groups(found.lanes[:count], found.tokens[:count], found.scores[:count])


class _Search:
    """The beam of one sentence."""

    def __init__(self, settings: DoubleToken, run: _Run):
        self.settings, self.run, self.end = settings, run, run.constraints.end[0]
        self.live: list[Lane] = [Lane(0, (), 0.0)]
        """Open hypotheses; their tokens are in the order of emission."""
        self.done: list[Lane] = []
        """Finished hypotheses, best first; their tokens are in the order of emission, up to the first end."""
        self.finished = False
        self.passes: list[tuple[int, float]] = []
        """Positions and seconds of each pass."""

    def advance(self, ids: np.ndarray, log_probs: np.ndarray, forced: np.ndarray, last: bool) -> None:
        """Extend the lanes by the candidates (lanes, n, K) of a step's slots and their log-probabilities.

        Each slot's candidates are best first, with one end at most (`_one_end`). `forced` (n,) has the token forced at a slot,
        or -1; the hypotheses of the `last` step are finished.
        """
        size, before, self.live = self.settings.size, self.live, []
        groups = best_groups(ids, log_probs, np.array([lane.score for lane in before]), self.end, size, forced)
        for rank, (parent, tokens, score) in enumerate(
            zip(groups.lanes.tolist(), groups.tokens.tolist(), groups.scores.tolist(), strict=True)
        ):
            ended = last or self.end in tokens
            kept = rank < size if ended else len(self.live) < size
            if kept:
                lane = Lane(parent, (*before[parent].tokens, *tokens), score)
                (self.done if ended else self.live).append(self._closed(lane) if ended else lane)
        self.done = sorted(self.done, key=lambda lane: -lane.score)[:size]
        self.finished = not self.live or len(self.done) >= size

    def _closed(self, lane: Lane) -> Lane:
        """A finished hypothesis: cut behind its end or at the limit, its score divided by its length."""
        tokens = lane.tokens[: lane.tokens.index(self.end) + 1] if self.end in lane.tokens else lane.tokens
        tokens = tokens[: self.run.constraints.limit]
        return Lane(lane.parent, tokens, lane.score / len(tokens) ** self.settings.length_penalty, finished=True)

    def iterations(self, row: int) -> Iterator[Iteration]:
        """How the best hypothesis grew, pass by pass; the last pass settles all of it."""
        best, drafted = self._best().tokens, set[int]()
        group, limit = self.run.model.tokens_per_step, self.run.constraints.limit
        for call, (positions, seconds) in enumerate(self.passes):
            complete = call + 1 == len(self.passes)
            slots_by_place = _places(best[: (call + 1) * group], self.end, limit, self.run.model.both_ends)
            places = _ordered(slots_by_place)
            tokens = np.array([best[slots_by_place[slot]] for slot in places], dtype=np.int64)
            was_shown = np.array([slot in drafted for slot in places], dtype=bool)
            status: Status = "settled" if complete else "draft"
            yield Iteration(
                row=row,
                call=call,
                slots=np.array(places, dtype=np.int64),
                drafts=np.where(was_shown, tokens, -1),
                origins=tuple("recycled" if shown else "" for shown in was_shown),
                tokens=tokens,
                status=(status,) * len(places),
                positions=positions,
                seconds=seconds,
            )
            drafted |= set(places)

    def _best(self) -> Lane:
        return self.done[0] if self.done else self.live[0]

    def best(self) -> Hypothesis:
        """The best hypothesis once the search has ended."""
        lane = self._best()
        tokens = self.run.in_order(lane.tokens)
        return Hypothesis(tokens, lane.score, self.run.constraints.reason(tokens))
