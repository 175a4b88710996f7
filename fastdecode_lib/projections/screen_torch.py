"""A screen on the output matrix of a torch model; its calls are those of `screen_compiled`.

With torch alone, the rows of a call that are in the same cluster are multiplied with the cluster's rows of the weight, one
cluster after another. On a GPU, the Triton kernels of `kernels.triton_gathered` run a whole call without returning to the host.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fastdecode_lib.core import Candidates, OfAnySource
from fastdecode_lib.projections.exact_torch import top_k_lowest_id_first
from fastdecode_lib.projections.queries import check_width, checked_ids, checked_query
from fastdecode_lib.projections.screens import Screen

Kernels = Literal["auto", "torch", "triton"]
SHORT = (torch.float16, torch.bfloat16, torch.float32)
"""Formats that the Triton kernels read; they accumulate in float32."""
MAX_FUSED = 32
"""Number of candidates up to which the Triton kernels fuse the search with the product."""
FREE_SHARE = 8
"""By default, rows of the weight are copied if that takes at most one part in `FREE_SHARE` of a GPU's free memory."""


class TorchScreenScorer(OfAnySource):
    """A screen on the rows of a torch model's output matrix; satisfies `core.Projection` and `core.Scorer`.

    By default each hidden vector has the set of its own cluster, whatever the other rows of a call are. With `shared`, all rows
    of a call score the union of their sets, as Amer et al. (2022) do for a batch (section 2.3, step 2).

    With the Triton kernels and up to `MAX_FUSED` candidates, a row's cluster, ids, scores and normaliser are bitwise independent
    of the other rows of the call. With torch, the other rows can change the rounding of products: two clusters or two tokens
    whose scores differ by no more than rounding may be swapped. Scores equal those of `Exact` up to rounding. In float16 and
    bfloat16, torch rounds scores to that precision and Triton leaves them in float32; both score centroids in float32.

    Parameters
    ----------
    screen : Screen
    weight : tensor (V, D)
        Has the device and dtype of the hidden vectors.
    bias : tensor (V,) or None
    shared : bool
    kernels : "auto", "torch" or "triton"
        ``auto``: Triton on a CUDA device if it is installed, except for float64; torch otherwise.
    copies : bool or None
        Whether the rows of each set are copied one after another instead of gathered in each call; faster with torch, but all
        sets take memory. None: on a CUDA device, if copies take up to an eighth of the free memory. A union is always
        gathered.

    Raises
    ------
    ValueError
        If the screen is another model's, or the kernels cannot run here.
    """

    def __init__(
        self,
        screen: Screen,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        shared: bool = False,
        kernels: Kernels = "auto",
        copies: bool | None = None,
    ):
        vocabulary, width = weight.shape
        screen.check_fits(vocabulary, width)
        self.screen, self.shared, self.name = screen, shared, screen.method
        self.kernels = _kernels_for(kernels, weight)
        self.weight = weight.detach().contiguous()
        self.bias = weight.new_zeros(vocabulary) if bias is None else bias.detach().reshape(-1).to(weight).contiguous()
        points = torch.from_numpy(screen.points).double()
        constants = -points.square().sum(1) / 2 if screen.method == "clustered" else points.new_zeros(len(points))
        precise = torch.promote_types(weight.dtype, torch.float32)
        self._points, self._constants = (t.to(weight.device, precise) for t in (points, constants))
        self._firsts, self._counts, self._members = (
            torch.from_numpy(array.astype(np.int32)).to(weight.device)
            for array in (screen.sets.offsets[:-1], np.diff(screen.sets.offsets), screen.sets.ids)
        )
        self._everything = torch.arange(vocabulary, dtype=torch.int32, device=weight.device)
        self._sizes = screen.sets.sizes
        self._copies = self.weight.index_select(0, self._members) if self._copies_rows(copies) else None

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model whose contexts the screen was fitted on."""
        return self.screen.fingerprint

    @property
    def memory_bytes(self) -> int:
        """Bytes of the centroids, the sets and their copied rows; the output matrix is the model's own."""
        sets = self._firsts, self._counts, self._members, self._everything, self._copies
        return sum(tensor.nbytes for tensor in (self._points, self._constants, *sets) if tensor is not None)

    @torch.inference_mode()
    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """The k best active tokens of hidden (N, D); the normaliser runs over the active ones, banned ones included."""
        hidden = self._checked(hidden)
        host_ids = checked_query(k, banned, len(hidden), self.weight.shape[0])
        banned_ids = None if banned is None else torch.from_numpy(host_ids.astype(np.int32)).to(hidden.device)
        assigned = self._nearest(hidden)
        search = self._fused if self.kernels == "triton" and k <= MAX_FUSED else self._grouped
        results = assigned, *search(hidden, assigned, k, banned_ids, normalise)
        clusters, scores, ids, counts, log_normaliser = _to_host(*results)
        return Candidates(
            np.where(np.isneginf(scores), -1, ids).astype(np.int64),
            scores,
            np.full(len(hidden), int(counts[0])) if self.shared else self._sizes[clusters],
            log_normaliser if normalise else None,
            "active",
            clusters.astype(np.int64),
        )

    @torch.inference_mode()
    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        """Log-probabilities (N, M) of ids (N, M) among the active tokens; minus infinity for others."""
        hidden = self._checked(hidden)
        ids = checked_ids(ids, len(hidden), self.weight.shape[0])
        scored_ids = torch.from_numpy(ids.astype(np.int32)).to(hidden.device)
        log_probs = torch.empty(ids.shape, dtype=self._points.dtype, device=hidden.device)
        for rows, active, scores in self._scored(hidden, self._nearest(hidden)):
            places, is_active = _places(active, scored_ids[rows])
            log_probs[rows] = torch.where(is_active, scores.log_softmax(1).gather(1, places), -torch.inf)
        return log_probs.cpu().numpy()

    @torch.inference_mode()
    def active_scores(self, hidden: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ascending ids (N, M) that are scored for each hidden vector, and their scores; padded with -1 and -inf."""
        hidden = self._checked(hidden)
        groups = list(self._scored(hidden, self._nearest(hidden)))
        shape = len(hidden), max((len(active) for _, active, _ in groups), default=0)
        ids = torch.full(shape, -1, device=hidden.device)
        active_scores = torch.full(shape, -torch.inf, dtype=self._points.dtype, device=hidden.device)
        for rows, active, scores in groups:
            ids[rows, : len(active)], active_scores[rows, : len(active)] = active.long(), scores
        return ids.cpu().numpy(), active_scores.cpu().numpy()

    @torch.inference_mode()
    def describe(self, cluster: int, most: int) -> dict[str, Any]:
        """Size of a cluster's set and its `most` best tokens at the centroid, in the form of `trace.Trace`."""
        tokens = self.screen.sets[cluster]
        scores = self._scores(self._points[cluster][None].to(self.weight.dtype), self._everything[tokens], None)[0]
        return {"size": len(tokens), "tokens": tokens[np.argsort(-scores.cpu().numpy(), kind="stable")[:most]].tolist()}

    # --------------------------------------------------------------------------------------------------------- steps

    def _nearest(self, hidden: Tensor) -> Tensor:
        """The cluster of each row (N,); of equal scores the lowest number."""
        if self.kernels == "triton":
            from fastdecode_lib.kernels.triton_gathered import nearest

            return nearest(hidden, self._points, self._constants)
        return torch.addmm(self._constants, hidden.to(self._points.dtype), self._points.T).argmax(1)

    def _fused(self, hidden: Tensor, clusters: Tensor, k: int, banned_ids: Tensor | None, normalise: bool) -> Any:
        """Best scores and ids, the size of the union if sets are shared, and normalisers, on the device."""
        from fastdecode_lib.kernels.triton_gathered import Lists, gathered_top_k, union

        lists = Lists(self._firsts, self._counts, self._members, int(self._sizes.max()))
        own: dict[str, Any] = {"own": clusters, "copies": self._copies}
        if self.shared:
            lists, own = union(clusters, lists, len(self.weight)), {}
        best = gathered_top_k(hidden, self.weight, self.bias, k, lists, banned=banned_ids, normalise=normalise, **own)
        return best.scores, best.ids, lists.counts[:1], best.log_normaliser

    def _grouped(self, hidden: Tensor, clusters: Tensor, k: int, banned_ids: Tensor | None, normalise: bool) -> Any:
        """What `_fused` returns, one group of rows after another."""
        best = torch.full((len(hidden), k), -torch.inf, dtype=self._points.dtype, device=hidden.device)
        ids = torch.full(best.shape, -1, dtype=torch.int32, device=hidden.device)
        log_normaliser = torch.empty(len(hidden), dtype=best.dtype, device=hidden.device)
        count = 0
        for rows, active, scores in self._scored(hidden, clusters):
            count, width = len(active), min(k, len(active))
            if normalise:
                log_normaliser[rows] = scores.logsumexp(1)
            if banned_ids is not None:
                of_rows = banned_ids if len(banned_ids) == 1 else banned_ids[rows]
                at, is_active = _places(active, of_rows.expand(len(scores), -1))
                scores.scatter_reduce_(1, at, torch.where(is_active, -torch.inf, torch.inf).to(scores.dtype), "amin")
            top, at = scores.max(1, keepdim=True) if width == 1 else top_k_lowest_id_first(scores, width)
            best[rows, :width], ids[rows, :width] = top, active[at]
        return best, ids, torch.tensor([count]), log_normaliser

    def _scored(self, hidden: Tensor, clusters: Tensor) -> Iterator[tuple[Any, Tensor, Tensor]]:
        """Groups of rows, their ascending active tokens (n,), and their scores (rows, n), in float32 at least."""
        assigned = clusters.cpu().numpy()
        if self.shared and len(assigned):
            active = self._union(assigned)
            yield slice(None), active, self._scores(hidden, active, None)
            return
        for cluster in np.unique(assigned):
            rows = torch.from_numpy(np.flatnonzero(assigned == cluster)).to(hidden.device)
            first, last = self.screen.sets.offsets[cluster : cluster + 2]
            active, table = self._members[first:last], self._copies
            if first == last:
                active, table = self._everything, self.weight
            elif table is not None:
                table = table[first:last]
            yield rows, active, self._scores(hidden[rows], active, table)

    def _scores(self, hidden: Tensor, active: Tensor, table: Tensor | None) -> Tensor:
        """Scores (N, n) of the active tokens (n,), whose rows of the weight are gathered unless `table` has them."""
        if self.kernels == "triton":
            from fastdecode_lib.kernels.triton_gathered import gathered_product

            return gathered_product(hidden, self.weight, self.bias, active)
        table = self.weight.index_select(0, active) if table is None else table
        return torch.addmm(self.bias[active], hidden, table.T).to(self._points.dtype)

    def _union(self, clusters: np.ndarray) -> Tensor:
        """All tokens active in one or more clusters, ascending."""
        is_active, offsets = torch.zeros_like(self._everything, dtype=torch.bool), self.screen.sets.offsets
        for cluster in np.unique(clusters):
            first, last = offsets[cluster : cluster + 2]
            is_active[self._members[first:last] if last > first else self._everything] = True
        return self._everything[is_active]

    def _checked(self, hidden: Any) -> Tensor:
        check_width(hidden, self.weight.shape[1])
        return torch.as_tensor(hidden, dtype=self.weight.dtype, device=self.weight.device)

    def _copies_rows(self, copies: bool | None) -> bool:
        if self.shared:
            return False
        if copies is None and self.weight.is_cuda:
            free, _ = torch.cuda.mem_get_info(self.weight.device)
            return len(self._members) * self.weight[0].nbytes <= free // FREE_SHARE
        return bool(copies)


def _kernels_for(kernels: Kernels, weight: Tensor) -> Literal["torch", "triton"]:
    """Name of the kernels for a weight, checked to run on it."""
    if kernels not in ("auto", "torch", "triton"):
        raise ValueError(f"Unknown kernels: got {kernels!r}. Use 'auto', 'torch' or 'triton'.")
    installed = find_spec("triton") is not None
    if kernels == "auto":
        return "triton" if weight.is_cuda and weight.dtype in SHORT and installed else "torch"
    if kernels == "triton":
        if not installed:
            raise ValueError(
                "The Triton kernels need Triton: it is not installed. pip install triton, or kernels='torch'."
            )
        if weight.dtype not in SHORT:
            raise ValueError(
                f"The Triton kernels add up in float32: got a weight in {weight.dtype}. Use kernels='torch'."
            )
        from fastdecode_lib.kernels.triton_gathered import INTERPRETED

        if not weight.is_cuda and not INTERPRETED:
            raise ValueError(
                f"The Triton kernels run on CUDA devices: got a weight on {weight.device}. Use kernels='torch'."
            )
    return kernels


def _places(active: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Places of ids (N, M) among the ascending active ones (n,), and whether each is active."""
    places = torch.searchsorted(active, ids.contiguous()).clamp_(max=len(active) - 1)
    return places, active[places] == ids


def _to_host(*tensors: Tensor) -> list[np.ndarray]:
    """Tensors as arrays; from a GPU in one transfer, because each transfer takes as long as a kernel."""
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return [tensor.numpy() for tensor in tensors]
    parts = [tensor.to(tensors[0].device).contiguous().view(torch.uint8).flatten() for tensor in tensors]
    pieces = np.split(torch.cat(parts).cpu().numpy(), np.cumsum([len(part) for part in parts])[:-1])
    return [
        part.copy().view(str(tensor.dtype).removeprefix("torch.")).reshape(tensor.shape)
        for part, tensor in zip(pieces, tensors, strict=True)
    ]
