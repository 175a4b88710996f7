"""Choice of the token at every slot of a pass, by the logits processors of `generate`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.decoding.choosing import Choice
from fastdecode_lib.decoding.passes import Feed

if TYPE_CHECKING:
    from torch import Tensor


class Choosing:
    """Chooses tokens as `generate` does: runs the processors at every slot with its own prefix; a `passes.Chooser`.

    Parameters
    ----------
    score : callable
        Hidden vectors (N, D) to logits (N, V), a new float32 tensor.
    processors : sequence of (processor, what it reads)
    prompts : list of list of int
        Prompts of all rows of the batch; the passes decode the rows from `first` on.
    keep : bool
        Leave scores and logits of the last pass in `kept`, by row of the batch.

    Attributes
    ----------
    rounds : bool
        Whether passes may round differently from single steps; then the two best scores are left in `best`.
    """

    rounds = False

    def __init__(
        self,
        score: Callable[[Any], "Tensor"],
        processors: Sequence[tuple[Any, str]],
        prompts: list[list[int]],
        first: int,
        keep: bool,
    ):
        self.score, self.processors, self.prompts, self.first, self.keep = score, processors, prompts, first, keep
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}
        self.best: dict[int, list[list[float]]] = {}

    def __call__(self, hidden: Any, slots: np.ndarray, rows: np.ndarray, feeds: Sequence[Feed]) -> Choice:
        """The best token of each slot."""
        logits = self.score(hidden)
        scores = self.process(logits.clone() if self.keep else logits, slots, rows + self.first, feeds)
        if self.keep:
            self.kept = {}
            for number, row in enumerate(rows.tolist()):
                self.kept.setdefault(self.first + row, (scores[number:], logits[number:]))
        if self.rounds:
            self.best = {}
            for row, pair in zip(rows.tolist(), scores.topk(2).values.tolist(), strict=True):
                self.best.setdefault(self.first + row, []).append(pair)
        return Choice(scores.argmax(-1).cpu().numpy(), None, None, np.full(len(slots), scores.shape[1]), None)

    def process(self, scores: "Tensor", slots: np.ndarray, rows: np.ndarray, feeds: Sequence[Feed]) -> "Tensor":
        """Scores (N, V) after the processors."""
        import torch

        fed_tokens = [(feed, index) for feed in feeds for index in range(len(feed.tokens))]
        for processor, looks_at in self.processors:
            if looks_at == "scores":
                scores = processor(torch.zeros(len(scores), 1, dtype=torch.long, device=scores.device), scores)
                continue
            acts = private.ACTS[type(processor).__name__] if looks_at == "length" else None
            for slot in np.unique(slots):
                if acts and not acts(processor, len(self.prompts[0]) + int(slot)):
                    continue
                indices = np.flatnonzero(slots == slot).tolist()
                prefixes = [[*self.prompts[rows[n]], *fed_tokens[n][0].prefix(fed_tokens[n][1])] for n in indices]
                ids = torch.tensor(prefixes, device=scores.device)
                if looks_at != "row":
                    scores[indices] = processor(ids, scores[indices])
                    continue
                batch = len(self.prompts)
                for n, prefix in zip(indices, ids, strict=True):  # a batch of equal rows; only this row's scores count
                    scores[n] = processor(prefix.repeat(batch, 1), scores[n].repeat(batch, 1))[rows[n]]
        return scores
