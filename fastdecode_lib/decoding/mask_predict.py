"""Mask-Predict (Ghazvininejad et al., 2019), the rival of two tokens a step: fill in, mask the least sure, fill in again."""

from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from fastdecode_lib.core import Constraints, Hypothesis, Iteration, Kind, Model, Passes, Projection, Source, Status
from fastdecode_lib.decoding.choosing import check_fits


@dataclass(frozen=True)
class MaskPredict:
    """Targets of the likeliest lengths, each filled in anew where it was least sure, as often as is asked.

    At first every slot is masked. After pass t of T, the ``floor(length * (T - t) / T)`` least probable tokens are masked
    again, at least one; only these get new tokens and probabilities in the next pass. Of the lengths tried, the target with
    the highest mean log-probability of its tokens is the output.

    Parameters
    ----------
    iterations : int
        T, the passes; the paper has 4 and 10.
    lengths : int
        Lengths tried, the likeliest first; the paper has 5.
    """

    iterations: int = 10
    lengths: int = 5

    name: ClassVar[str] = "mask_predict"
    accepts: ClassVar[frozenset[Kind]] = frozenset({"masked"})
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ValueError(f"mask_predict needs iterations >= 1, got {self.iterations}. The paper has 4 and 10.")
        if self.lengths < 1:
            raise ValueError(f"mask_predict needs lengths >= 1, got {self.lengths}. The paper has 5.")

    def iterate(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, *, observe: bool = False
    ) -> Passes:
        """One pass per round over all lengths of all rows; see `core.Decoder.iterate`.

        An iteration shows the target that is the likeliest so far; its tokens are settled after the last pass. Lengths
        obey `constraints`, which count the end.
        """
        check_fits(self, model, source)
        masked: Any = model
        clock = perf_counter()
        encoded = masked.encode(source)
        lengths = self._lengths(masked.length_log_probs(encoded), constraints, masked.max_target)
        each = lengths.shape[1]
        rows = np.repeat(np.arange(len(source)), each)
        sizes = lengths.reshape(-1)
        tokens = np.where(np.arange(sizes.max()) < sizes[:, None], constraints.padding, -1)
        real = tokens >= 0
        again = real.copy()
        """Slots to be filled in by the next pass."""
        chances = np.zeros(tokens.shape)
        """Log-probability of each token when it was filled in."""
        scorer = projection.bind(source.rows(rows))
        banned = np.unique([*constraints.banned, *constraints.end, constraints.padding])
        for call in range(self.iterations):
            before, filled = tokens.copy(), again
            hidden = masked.refine(encoded, np.where(real & again, constraints.padding, tokens), rows)
            which, slot = np.nonzero(filled)
            bound = scorer if scorer is projection else projection.bind(source.rows(rows[which]))
            candidates = bound.top_k(hidden[which, slot], 1, banned, normalise=True)
            assert candidates.log_normaliser is not None
            allowed = candidates.ids[:, 0] >= 0
            with np.errstate(invalid="ignore"):
                sure = candidates.scores[:, 0] - candidates.log_normaliser
            tokens[which, slot] = np.where(allowed, candidates.ids[:, 0], constraints.padding)
            chances[which, slot] = np.where(allowed, sure, -np.inf)
            last = call + 1 == self.iterations
            again = np.zeros_like(real) if last else self._least_sure(chances, real, sizes, call + 1)
            best = self._best(chances, sizes, each)
            seconds = (perf_counter() - clock) / len(source)
            for row, chosen in enumerate(best):
                slots = slice(0, int(sizes[chosen]))
                target = _Target(
                    before[chosen, slots] if call else np.full(sizes[chosen], -1),
                    tokens[chosen, slots].copy(),
                    filled[chosen, slots],
                    again[chosen, slots],
                    np.exp(chances[chosen, slots]),
                )
                end = constraints.end[0] if last else None
                yield target.iteration(row, call, int(lengths[row].sum()), seconds, end)
            clock = perf_counter()
        return tuple(
            Hypothesis((*tokens[i, : sizes[i]].tolist(), constraints.end[0]), float(chances[i].sum() / sizes[i]), "end")
            for i in best
        )

    def _lengths(self, scores: np.ndarray, constraints: Constraints, most: int) -> np.ndarray:
        """The likeliest allowed lengths of each row, (B, L'), ends not counted; scores (B, L) of the lengths from 1."""
        low = max(constraints.min_length, 1)
        high = min(constraints.limit - 1, scores.shape[1], most)
        if constraints.exact_length:
            low = constraints.exact_length - 1
        if not 1 <= low <= high:
            raise ValueError(
                f"mask_predict needs a length from 1 to {min(scores.shape[1], most)} tokens beside the end: got "
                f"max_length={constraints.max_length}, min_length={constraints.min_length}, "
                f"exact_length={constraints.exact_length}. Raise max_length, or lower min_length or exact_length."
            )
        allowed = scores[:, low - 1 : high]
        order = np.argsort(-allowed, axis=1, kind="stable")[:, : self.lengths]
        likeliest: np.ndarray = order + low
        return likeliest

    def _least_sure(self, chances: np.ndarray, real: np.ndarray, lengths: np.ndarray, call: int) -> np.ndarray:
        """The slots to mask after pass `call`, bool (N, T); of equals, the earlier."""
        counts = np.maximum(lengths * (self.iterations - call) // self.iterations, 1)
        ranks = np.argsort(np.argsort(np.where(real, chances, np.inf), axis=1, kind="stable"), axis=1, kind="stable")
        chosen: np.ndarray = (ranks < counts[:, None]) & real
        return chosen

    @staticmethod
    def _best(chances: np.ndarray, lengths: np.ndarray, each: int) -> np.ndarray:
        """Index (B,) of each row's length with the highest mean."""
        means = (chances.sum(1) / lengths).reshape(-1, each)
        best: np.ndarray = means.argmax(1) + np.arange(len(means)) * each
        return best


@dataclass(frozen=True)
class _Target:
    """A target after a pass, (T,) each: what stood there, what stands there, what was filled in, what is masked again."""

    before: np.ndarray
    tokens: np.ndarray
    filled: np.ndarray
    again: np.ndarray
    probabilities: np.ndarray

    def iteration(self, row: int, call: int, positions: int, seconds: float, end: int | None) -> Iteration:
        """Tokens as a trace has them; after the last pass, with the end behind them."""
        behind = 0 if end is None else 1
        status: list[Status] = ["masked" if masked else "draft" for masked in self.again]
        if end is not None:
            status = ["settled"] * (len(status) + 1)
        origins = ["mask" if new and draft >= 0 else "recycled" if draft >= 0 else "" for new, draft in
                   zip(self.filled, self.before, strict=True)]  # fmt: skip
        return Iteration(
            row=row,
            call=call,
            slots=np.arange(len(self.tokens) + behind),
            drafts=np.pad(self.before, (0, behind), constant_values=-1),
            origins=(*origins, *[""] * behind),
            tokens=self.tokens if end is None else np.append(self.tokens, end),
            status=tuple(status),
            probabilities=np.pad(self.probabilities, (0, behind), constant_values=1.0),
            positions=positions,
            seconds=seconds,
        )
