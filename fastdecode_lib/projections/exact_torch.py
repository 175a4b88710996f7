"""The full vocabulary projection of torch models: it scores every token and approximates nothing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastdecode_lib.core import Candidates, Model, OfAnySource
from fastdecode_lib.kernels.products import Product
from fastdecode_lib.projections.queries import check_width, checked_query, only_output

MAX_SCANS = 2
"""Number of candidates up to which one scan of the scores for each is faster than sorting."""


@dataclass(frozen=True)
class Exact(OfAnySource):
    """``hidden @ weight.T + bias`` over the whole vocabulary, for torch models.

    Attributes
    ----------
    product : Product
        The output weight (V, D) and bias (V,), laid out so that several hidden vectors cost little more than one.
    """

    product: Product

    name = "exact"

    @classmethod
    def of(cls, model: Model) -> "Exact":
        """The projection of a model with one output.

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
        if k <= MAX_SCANS and scores.device.type == "cpu":
            return _candidates(*_best_by_scans(scores.numpy(), k), vocabulary, log_normaliser)
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
    """Candidates of scores and ids (N, K); the id of a banned token becomes -1.

    Raises
    ------
    ValueError
        If a score is not a number.
    """
    if (is_nan := np.isnan(scores).any(1)).any():
        raise ValueError(
            f"Scores must be numbers: got NaN at {is_nan.sum()} of {len(is_nan)} positions, as when a model's values overflow "
            "float16. Load it with dtype='float32'."
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


def _best_by_scans(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best scores and their ids, of equal scores the lowest id first; overwrites the best scores."""
    rows = np.arange(len(scores))
    best, ids = np.empty((len(scores), k), dtype=scores.dtype), np.empty((len(scores), k), dtype=np.int64)
    for rank in range(k):
        ids[:, rank] = scores.argmax(1)
        best[:, rank] = scores[rows, ids[:, rank]]
        scores[rows, ids[:, rank]] = -np.inf
    return best, ids


def top_k_lowest_id_first(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best scores and their ids; of equal scores, the lowest ids come first, where torch.topk leaves the choice open."""
    best, ids = scores.topk(k, dim=1)
    has_tie = (scores >= best[:, -1:]).sum(1) > k
    if len(rows := has_tie.nonzero().flatten()):
        sorted_scores = scores[rows].sort(dim=1, descending=True, stable=True)
        best[rows], ids[rows] = sorted_scores.values[:, :k], sorted_scores.indices[:, :k]
    by_id = ids.argsort(1)
    by_score = best.gather(1, by_id).sort(dim=1, descending=True, stable=True)
    return by_score.values, ids.gather(1, by_id).gather(1, by_score.indices)
