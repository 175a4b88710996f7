"""Mask-Predict (Ghazvininejad et al., 2019), the rival of two tokens a step: fill in, mask the least sure, fill in again."""

from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from fastdecode_lib.core import Constraints, Hypothesis, Iteration, Kind, Model, Passes, Projection, Source, Status
from fastdecode_lib.decoding.choosing import check_fits, check_least


@dataclass(frozen=True)
class MaskPredict:
    """Targets of the most probable lengths, whose least probable tokens are masked and predicted again for several passes.

    At first every slot is masked. After pass t of T, the ``floor(length * (T - t) / T)`` least probable tokens are masked
    again, at least one; only these get new tokens and probabilities in the next pass. Of the lengths tried, the target with
    the highest mean log-probability of its tokens is the output.

    Parameters
    ----------
    iterations : int
        T, the passes; the paper has 4 and 10.
    lengths : int
        Lengths tried, the most probable first; the paper has 5.
    """

    iterations: int = 10
    lengths: int = 5

    name: ClassVar[str] = "mask_predict"
    accepts: ClassVar[frozenset[Kind]] = frozenset({"masked"})
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_least(self.name, "iterations", self.iterations, 1, "The paper has 4 and 10.")
        check_least(self.name, "lengths", self.lengths, 1, "The paper has 5.")

    def iterate(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, *, observe: bool = False
    ) -> Passes:
        """One pass per round over all lengths of all rows; see `core.Decoder.iterate`.

        An iteration shows the most probable target so far; its tokens are settled after the last pass. Lengths obey
        `constraints`, which count the end.
        """
        check_fits(self, model, source)
        masked: Any = model
        clock = perf_counter()
        encoded = masked.encode(source)
        lengths = self._lengths(masked.length_log_probs(encoded), constraints, masked.max_target)
        lengths_per_row = lengths.shape[1]
        rows = np.repeat(np.arange(len(source)), lengths_per_row)
        sizes = lengths.reshape(-1)
        tokens = np.where(np.arange(sizes.max()) < sizes[:, None], constraints.padding, -1)
        real = tokens >= 0
        masked_again = real.copy()
        """Slots that the next pass predicts."""
        log_probs = np.zeros(tokens.shape)
        """Log-probability of each token when it was predicted."""
        scorer = projection.bind(source.rows(rows))
        banned = np.unique([*constraints.banned, *constraints.end, constraints.padding])
        for call in range(self.iterations):
            previous, predicted = tokens.copy(), masked_again
            hidden = masked.refine(encoded, np.where(real & masked_again, constraints.padding, tokens), rows)
            row_of, slot = np.nonzero(predicted)
            batch_scorer = scorer if scorer is projection else projection.bind(source.rows(rows[row_of]))
            candidates = batch_scorer.top_k(hidden[row_of, slot], 1, banned, normalise=True)
            assert candidates.log_normaliser is not None
            allowed = candidates.ids[:, 0] >= 0
            with np.errstate(invalid="ignore"):
                best_log_probs = candidates.scores[:, 0] - candidates.log_normaliser
            tokens[row_of, slot] = np.where(allowed, candidates.ids[:, 0], constraints.padding)
            log_probs[row_of, slot] = np.where(allowed, best_log_probs, -np.inf)
            last = call + 1 == self.iterations
            masked_again = np.zeros_like(real) if last else self._least_sure(log_probs, real, sizes, call + 1)
            best = self._best(log_probs, sizes, lengths_per_row)
            seconds = (perf_counter() - clock) / len(source)
            for row, index in enumerate(best):
                slots = slice(0, int(sizes[index]))
                target = _Target(
                    previous[index, slots] if call else np.full(sizes[index], -1),
                    tokens[index, slots].copy(),
                    predicted[index, slots],
                    masked_again[index, slots],
                    np.exp(log_probs[index, slots]),
                )
                end = constraints.end[0] if last else None
                yield target.iteration(row, call, int(lengths[row].sum()), seconds, end)
            clock = perf_counter()
        outputs = [(*tokens[i, : sizes[i]].tolist(), constraints.end[0]) for i in best]
        scores = [float(log_probs[i].sum() / sizes[i]) for i in best]
        return tuple(Hypothesis(o, score, constraints.reason(o)) for o, score in zip(outputs, scores, strict=True))

    def _lengths(self, scores: np.ndarray, constraints: Constraints, max_target: int) -> np.ndarray:
        """The most probable allowed lengths of each row (B, L'), ends not counted; `scores` (B, L) are for lengths from 1."""
        low = max(constraints.min_length, 1)
        high = min(constraints.limit - 1, scores.shape[1], max_target)
        if constraints.exact_length:
            low = constraints.exact_length - 1
        if not 1 <= low <= high:
            raise ValueError(
                f"mask_predict needs a length from 1 to {min(scores.shape[1], max_target)} tokens beside the end: got "
                f"max_length={constraints.max_length}, min_length={constraints.min_length}, "
                f"exact_length={constraints.exact_length}. Raise max_length, or lower min_length or exact_length."
            )
        allowed = scores[:, low - 1 : high]
        order = np.argsort(-allowed, axis=1, kind="stable")[:, : self.lengths]
        return order + low

    def _least_sure(self, log_probs: np.ndarray, real: np.ndarray, lengths: np.ndarray, call: int) -> np.ndarray:
        """The slots to mask after pass `call`, bool (N, T); ties go to the earlier slot."""
        counts = np.maximum(lengths * (self.iterations - call) // self.iterations, 1)
        ranks = np.argsort(np.argsort(np.where(real, log_probs, np.inf), axis=1, kind="stable"), axis=1, kind="stable")
        return (ranks < counts[:, None]) & real

    @staticmethod
    def _best(log_probs: np.ndarray, lengths: np.ndarray, lengths_per_row: int) -> np.ndarray:
        """Index (B,) of each row's target with the highest mean log-probability."""
        means = (log_probs.sum(1) / lengths).reshape(-1, lengths_per_row)
        return means.argmax(1) + np.arange(len(means)) * lengths_per_row


@dataclass(frozen=True)
class _Target:
    """A target after a pass: its tokens before and after, which were predicted, and which are masked again; all (T,)."""

    previous: np.ndarray
    tokens: np.ndarray
    predicted: np.ndarray
    masked_again: np.ndarray
    probabilities: np.ndarray

    def iteration(self, row: int, call: int, positions: int, seconds: float, end: int | None) -> Iteration:
        """The iteration of a trace; after the last pass, with the end behind the tokens."""
        ends = 0 if end is None else 1
        status: list[Status] = ["masked" if masked else "draft" for masked in self.masked_again]
        if end is not None:
            status = ["settled"] * (len(status) + 1)
        origins = ["mask" if was_filled and draft >= 0 else "recycled" if draft >= 0 else "" for was_filled, draft in
                   zip(self.predicted, self.previous, strict=True)]  # fmt: skip
        return Iteration(
            row=row,
            call=call,
            slots=np.arange(len(self.tokens) + ends),
            drafts=np.pad(self.previous, (0, ends), constant_values=-1),
            origins=(*origins, *[""] * ends),
            tokens=self.tokens if end is None else np.append(self.tokens, end),
            status=tuple(status),
            probabilities=np.pad(self.probabilities, (0, ends), constant_values=1.0),
            positions=positions,
            seconds=seconds,
        )
