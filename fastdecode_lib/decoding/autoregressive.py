"""Decoding one position at a time, greedy and by beam."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from fastdecode_lib.core import (
    OUR_FAMILIES,
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
    Status,
)
from fastdecode_lib.decoding.choosing import check_fits, check_least
from fastdecode_lib.decoding.passes import decode_singly, row_batches
from fastdecode_lib.kernels.top_k import best_continuations


@dataclass(frozen=True)
class Greedy:
    """The most probable token at every position; what every lossless decoder must reproduce."""

    name: ClassVar[str] = "greedy"
    accepts: ClassVar[frozenset[Kind]] = frozenset({"causal"})
    lossless: ClassVar[bool] = True

    def iterate(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, *, observe: bool = False
    ) -> Passes:
        """One pass per position over all rows that have not ended; see `core.Decoder.iterate`."""
        check_fits(self, model, source)
        return (yield from decode_singly(model, projection, source, constraints, observe))


@dataclass(frozen=True)
class Beam:
    """Beam search as Hugging Face's ``generate(num_beams=size)`` does it, with its early-stopping heuristic.

    Parameters
    ----------
    size : int
        Hypotheses kept.
    length_penalty : float, optional
        Scores are divided by the length to this power; the length counts the end and a forced language. By default the value
        in the checkpoint's settings of generation, or else 1.0.
    delta : float or None
        Also stop where the best partial hypothesis' log-probability is more than this below the best completed one's
        (Devlin, 2017, sec. 3, has 3.0). Both are sums over the tokens, not divided by lengths.
    early_stopping : bool, optional
        Stop at `size` finished hypotheses, as Hugging Face's ``early_stopping=True`` and Imamura and Sumita do, without
        waiting for an open one that could be better. By default the value in the checkpoint's settings, or else False.
    renormalised : bool, optional
        Log-probabilities run over the tokens that may be chosen, as with Hugging Face's ``renormalize_logits``. By default the
        value in the checkpoint's settings, or else False.
    """

    size: int = 5
    length_penalty: float | None = None
    delta: float | None = None
    early_stopping: bool | None = None
    renormalised: bool | None = None

    name: ClassVar[str] = "beam"
    accepts: ClassVar[frozenset[Kind]] = frozenset({"causal"})
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_least(self.name, "size", self.size, 1, "Use size=1 for greedy decoding.")
        if not abs(self.length_penalty or 0.0) <= 100:
            raise ValueError(
                f"beam needs length_penalty from -100 to 100, got {self.length_penalty}. 1.0 divides scores by the length."
            )
        if self.delta is not None and not self.delta >= 0:
            raise ValueError(f"beam needs delta >= 0, got {self.delta}. The paper has 3.0; leave it out to search on.")

    def completed(self, rules: Mapping[str, Any]) -> "Beam":
        """The same, with options that are None taken from a checkpoint's settings of generation.

        Raises
        ------
        ValueError
            If the settings need what this search does not do.
        """
        penalty, stopping, renormalised = (
            rules.get(rule, usual) if (value := getattr(self, name)) is None else value
            for name, rule, usual in (
                ("length_penalty", "length_penalty", 1.0),
                ("early_stopping", "early_stopping", False),
                ("renormalised", "renormalize_logits", False),
            )
        )
        if type(stopping) is not bool or type(penalty) not in (int, float):
            raise ValueError(
                f"beam stops early or does not, and has a number as length penalty: the checkpoint's settings say early_stopping="
                f"{stopping!r}, length_penalty={penalty!r}. Say another, as in beam:size={self.size},early_stopping=false."
            )
        return replace(self, length_penalty=float(penalty), early_stopping=stopping, renormalised=bool(renormalised))

    def iterate(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, *, observe: bool = False
    ) -> Passes:
        """One pass per position over all live hypotheses; see `core.Decoder.iterate`.

        An iteration holds the best hypothesis so far in `tokens` and all of them in `lanes`; its tokens are settled
        when the search has ended.
        """
        check_fits(self, model, source)
        hypotheses: list[Hypothesis] = []
        calls = 0
        for first_row, batch in row_batches(model, source):
            outputs, calls = yield from self._batch(model, projection, batch, constraints, first_row, calls)
            hypotheses += outputs
        return tuple(hypotheses)

    def check(self, model: Model) -> None:
        """Refuse, before any work, a model that runs row by row, or one of fewer tokens than hypotheses.

        Raises
        ------
        ValueError
            If the model is either.
        """
        if self.size > 1 and "ragged" not in model.supports:
            raise ValueError(
                f"beam of size {self.size} needs a model that runs several rows at once; this one runs row by row. "
                f"Use beam:size=1, or {OUR_FAMILIES}."
            )
        if self.size > (vocabulary := model.outputs[0].vocabulary):
            raise ValueError(f"beam:size is at most the vocabulary, {vocabulary}: got {self.size}. Use beam:size=5.")

    def _batch(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, first_row: int, call: int
    ) -> Generator[Iteration, None, tuple[list[Hypothesis], int]]:
        clock = perf_counter()
        prefix = np.tile(np.array(constraints.prefix, dtype=np.int64), (len(source), 1))
        state = model.start(model.encode(source), prefix, len(constraints.prefix) + constraints.limit)
        completed = self.completed({})
        searches = [_Search(completed, constraints) for _ in range(len(source))]
        keep = min(searches[0].most, model.outputs[0].vocabulary)
        rows = list(range(len(source)))
        """The source row of each live lane, lane by lane of each sentence."""
        tokens = prefix[:, -1:]
        scorer = projection.bind(source)
        for slot, forced in enumerate(constraints.forced(np.arange(constraints.limit)).tolist()):
            hidden = model.step(state, tokens)[:, 0]
            banned = constraints.forbidden(np.array([slot]))
            candidates = scorer.top_k(hidden, keep, banned, normalise=True)
            if completed.renormalised and banned is not None:
                candidates = _over_the_allowed(candidates, scorer, hidden, banned, model.outputs[0].vocabulary)
            live = list(dict.fromkeys(rows))
            seconds = (perf_counter() - clock) / len(live)
            previous_rows, rows, parents, last, offset = rows, [], [], [], 0
            for row in live:
                search, lanes = searches[row], len(searches[row].live)
                search.advance(candidates, offset, forced, slot)
                if not search.finished:
                    rows += [row] * len(search.live)
                    parents += [offset + lane.parent for lane in search.live]
                    last += [lane.tokens[-1] for lane in search.live]
                offset += lanes
                yield search.iteration(first_row + row, call, slot, lanes, seconds)
            clock = perf_counter()
            call += 1
            if not rows:
                break
            state, tokens = state.select(np.array(parents)), np.array(last)[:, None]
            if rows != previous_rows:
                scorer = projection.bind(source.rows(np.array(rows)))
        return [search.best() for search in searches], call


LITTLE = 1e-3
"""Probability of the allowed tokens below which it is summed directly: 1 minus the others' would be mostly rounding."""


def _over_the_allowed(
    candidates: Candidates, scorer: Scorer, hidden: Any, banned: np.ndarray, vocabulary: int
) -> Candidates:
    """Candidates of hidden (N, D), normalised over the tokens that may be chosen: all but those `banned` (M,)."""
    assert candidates.log_normaliser is not None

    def share(rows: Any, ids: np.ndarray) -> np.ndarray:
        return np.exp(scorer.log_probs(rows, np.tile(ids, (len(rows), 1))), dtype=np.float64).sum(1)

    allowed_share = 1 - share(hidden, np.unique(banned))
    if (small := allowed_share < LITTLE).any():
        allowed_share[small] = share(hidden[small], np.setdiff1d(np.arange(vocabulary), banned))
    with np.errstate(divide="ignore"):
        normaliser = candidates.log_normaliser + np.log(allowed_share)
    return Candidates(candidates.ids, candidates.scores, candidates.num_active, normaliser)


class _Search:
    """The beam of one sentence."""

    def __init__(self, settings: Beam, constraints: Constraints):
        self.settings, self.constraints = settings, constraints
        self.most = (1 + len(constraints.end)) * settings.size
        """Continuations of all lanes together that are looked at: if the best all end, as many are left as the beam is wide."""
        self.live: list[Lane] = [Lane(0, (), 0.0)]
        self.done: list[Lane] = []
        """Finished hypotheses, best first; their scores are divided by their lengths."""
        self.best_done = -np.inf
        """Log-probability of the best finished hypothesis."""
        self.finished = False
        self.previous = np.zeros(0, dtype=np.int64)

    def advance(self, candidates: Candidates, offset: int, forced: int, slot: int) -> None:
        """Extend this sentence's lanes by their candidates, whose rows begin at `offset`."""
        size, end = self.settings.size, self.constraints.end
        continuations = [] if forced >= 0 else self._continuations(candidates, offset)
        if not continuations:  # forced, or no token allowed, which ends a sentence: scores do not change
            token = forced if forced >= 0 else end[0]
            continuations = [(number, token, lane.score) for number, lane in enumerate(self.live)]
        lanes, done, self.live = self.live, len(self.done), []
        length, last = self._length(slot + 1), slot + 1 == self.constraints.limit
        for rank, (parent, token, score) in enumerate(continuations):
            ends = last or token in end
            if ends and rank < size:
                self.best_done = max(self.best_done, score)
                self.done.append(Lane(parent, (*lanes[parent].tokens, token), score / length, finished=True))
            elif not ends and len(self.live) < size:
                self.live.append(Lane(parent, (*lanes[parent].tokens, token), score))
        if len(self.done) > done:
            self.done = sorted(self.done, key=lambda lane: -lane.score)[:size]
        self.finished = not self.live or (
            len(self.done) == size
            and (self.settings.early_stopping or self.live[0].score / length <= self.done[-1].score)
        )
        if self.settings.delta is not None and not self.finished:
            self.finished = self.best_done - self.live[0].score > self.settings.delta

    def _length(self, tokens: int) -> float:
        return float(tokens + len(self.constraints.prefix) - 1) ** (self.settings.length_penalty or 0.0)

    def _continuations(self, candidates: Candidates, offset: int) -> list[tuple[int, int, float]]:
        """Lane, token and score of the best continuations, best first; ties go to the earlier lane, then to the better token."""
        assert candidates.log_normaliser is not None
        rows = slice(offset, offset + len(self.live))
        lanes, tokens, scores = np.empty(self.most, np.int64), np.empty(self.most, np.int64), np.empty(self.most)
        count = best_continuations(
            np.array([lane.score for lane in self.live]),
            candidates.scores[rows], candidates.log_normaliser[rows], candidates.ids[rows],
            lanes, tokens, scores,
        )  # fmt: skip
        return list(zip(lanes[:count].tolist(), tokens[:count].tolist(), scores[:count].tolist(), strict=True))

    def iteration(self, row: int, call: int, slot: int, positions: int, seconds: float) -> Iteration:
        """The best hypothesis after this pass, with the tokens of the one before it as drafts."""
        complete = self.finished or slot + 1 == self.constraints.limit
        tokens = np.array(self.best().tokens if complete else self.live[0].tokens)
        length = len(tokens)
        drafts = np.full(length, -1)
        drafted = min(len(self.previous), length)
        drafts[:drafted] = self.previous[:drafted]
        self.previous = tokens.copy()
        status: list[Status] = ["settled"] * length
        if not complete:
            status = ["draft" if same else "changed" for same in (drafts == tokens).tolist()]
        return Iteration(
            row=row,
            call=call,
            slots=np.arange(length),
            drafts=drafts,
            origins=("recycled",) * drafted + ("",) * (length - drafted),
            tokens=tokens,
            status=tuple(status),
            lanes=(*self.done, *self.live),
            positions=positions,
            seconds=seconds,
        )

    def best(self) -> Hypothesis:
        lane = self.done[0] if self.done else self.live[0]
        return Hypothesis(lane.tokens, lane.score, self.constraints.reason(lane.tokens))
