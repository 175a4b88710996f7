"""The full vocabulary projection: every token is scored, nothing is approximated."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastdecode_lib.core import Candidates, Model, OfAnySource
from fastdecode_lib.kernels.products import Product
from fastdecode_lib.projections.queries import check_width, checked_query, only_output

FEW = 2
"""Up to so many of the best, running over the scores once for each is faster than sorting."""


@dataclass(frozen=True)
class Exact(OfAnySource):
    """``hidden @ weight.T + bias`` over the whole vocabulary, for torch models.

    Attributes
    ----------
    product : Product
        The output weight (V, D) and bias (V,), laid out so that some rows cost little more than one.
    """

    product: Product

    name = "exact"

    @classmethod
    def of(cls, model: Model) -> "Exact":
        """The projection a model was trained with.

        Raises
        ------
        ValueError
            If the model has several outputs, or is not a torch model.
        """
        output = only_output(model)
        if not isinstance(output.weight, Tensor):
            raise ValueError(
                f"Exact is for the torch engine, this model's output is a {type(output.weight).__name__}. "
                "Load the model with engine='torch'."
            )
        weight = output.weight
        bias = weight.new_zeros(weight.shape[0]) if output.bias is None else output.bias.reshape(-1)
        return cls(Product.of(weight, bias))

    @property
    def memory_bytes(self) -> int:
        """Bytes of weight and bias; a small weight is kept in two layouts."""
        return self.product.memory_bytes

    @torch.inference_mode()
    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best tokens of hidden (N, D); the normaliser runs over the vocabulary, banned tokens included."""
        scores = self._scores(hidden)
        vocabulary = scores.shape[1]
        checked_query(k, None, len(scores), vocabulary, most=vocabulary)
        log_normaliser = scores.logsumexp(1).cpu().numpy() if normalise else None
        if banned is not None:
            _ban(scores, banned)
        if k <= FEW and scores.device.type == "cpu":
            return _candidates(*_best_few(scores.numpy(), k), vocabulary, log_normaliser)
        best, ids = scores.max(1, keepdim=True) if k == 1 else top_k_lowest_id_first(scores, k)
        return _candidates(best.cpu().numpy(), ids.cpu().numpy(), vocabulary, log_normaliser)

    @torch.inference_mode()
    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M)."""
        scores = self._scores(hidden).log_softmax(1)
        return scores.gather(1, torch.from_numpy(ids).to(scores.device)).cpu().numpy()

    def _scores(self, hidden: Any) -> Tensor:
        """Raw scores (N, V), in float32 at least."""
        check_width(hidden, self.product.shape[1])
        scores = self.product(hidden)
        return scores if scores.dtype in (torch.float32, torch.float64) else scores.float()


def _candidates(scores: np.ndarray, ids: np.ndarray, vocabulary: int, log_normaliser: np.ndarray | None) -> Candidates:
    """Scores and ids (N, K), of which those that are banned are none.

    Raises
    ------
    ValueError
        If a best score is no number.
    """
    if (none := np.isnan(scores).any(1)).any():
        raise ValueError(
            f"The scores are no numbers: got NaN at {none.sum()} of {len(none)} positions, as where a model's numbers grow too "
            "large for float16. Load it with dtype='float32'."
        )
    return Candidates(np.where(np.isneginf(scores), -1, ids), scores, np.full(len(ids), vocabulary), log_normaliser)


def _ban(scores: Tensor, banned: np.ndarray) -> None:
    """Set banned scores to -inf: ids (M,) for every row, or (N, M) padded with -1."""
    if banned.ndim == 1:
        scores[:, torch.from_numpy(banned).to(scores.device)] = -torch.inf
    else:
        row, column = np.nonzero(banned >= 0)
        ids = torch.from_numpy(banned[row, column]).to(scores.device)
        scores[torch.from_numpy(row).to(scores.device), ids] = -torch.inf


def _best_few(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best scores and their ids, of equals the lowest id first; overwrites the winners' scores."""
    rows = np.arange(len(scores))
    best, ids = np.empty((len(scores), k), dtype=scores.dtype), np.empty((len(scores), k), dtype=np.int64)
    for rank in range(k):
        ids[:, rank] = scores.argmax(1)
        best[:, rank] = scores[rows, ids[:, rank]]
        scores[rows, ids[:, rank]] = -np.inf
    return best, ids


def top_k_lowest_id_first(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """torch.topk leaves the order of equal scores open, and which of those at the edge it returns; this does not."""
    best, ids = scores.topk(k, dim=1)
    tied = (scores >= best[:, -1:]).sum(1) > k
    if len(rows := tied.nonzero().flatten()):
        order = scores[rows].sort(dim=1, descending=True, stable=True)
        best[rows], ids[rows] = order.values[:, :k], order.indices[:, :k]
    by_id = ids.argsort(1)
    by_score = best.gather(1, by_id).sort(dim=1, descending=True, stable=True)
    return by_score.values, ids.gather(1, by_id).gather(1, by_score.indices)
