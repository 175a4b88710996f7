"""Times of a screened projection on a GPU (Amer et al., 2022, table 2).

``fastdecode experiment vocabulary_clusters.gpu`` measures at the paper's sizes, on the output matrix of the bundled model grown
to them (`geometry.grown`) and on hidden vectors of its own decoding of our sentences, so that a machine with a GPU needs no
corpus. A set holds the tokens that its centroid scores highest. Successive calls use other hidden vectors and sets, so that a cache
holds no more than it would between two steps of decoding.
"""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pandas as pd

from fastdecode_lib.core import Measurement
from fastdecode_lib.measuring.provenance import device_name
from fastdecode_lib.measuring.referee import System
from fastdecode_lib.papers.run import CorpusRun, DeviceRun, Scale, experiment, table_of
from fastdecode_lib.papers.shared.contexts_of import Situation, arrays, situation
from fastdecode_lib.papers.shared.projection_runs import context_counts, projection_system
from fastdecode_lib.papers.shared.rows import ratio_of, times_as_fast
from fastdecode_lib.papers.vocabulary_clusters import printed
from fastdecode_lib.papers.vocabulary_clusters.geometry import GROWN, geometry, grown
from fastdecode_lib.papers.vocabulary_clusters.tables import NAME
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.clustering import empty_sets
from fastdecode_lib.projections.screens import Screen

SHARES = (0.01, 0.02, 0.06, 0.12, 0.25, 0.5)
CALLS = 8
"""Successive calls of a run, each with other hidden vectors, clusters and sets; fewer if there are fewer clusters."""


def projection_times(
    run: DeviceRun,
    vocabulary: int,
    width: int,
    rows: int,
    clusters: int,
    shares: Sequence[float] = SHARES,
    runs: int = 8,
) -> pd.DataFrame:
    """Times of a call that returns the best token: all tokens scored, and those of a screen, by torch and by the Triton kernels.

    Parameters
    ----------
    vocabulary, width, rows, clusters : int
        V, D, hidden vectors of a call, and centroids. D is at least the bundled model's, from which the matrix is grown.
    shares : sequence of float
        Shares of V in a set, and in the union of a call that shares one: the tokens that score highest.
    runs : int
        Runs of `CALLS` calls.

    Returns
    -------
    DataFrame with a row per system and share
        ``system``: ``dense`` (a product and torch's own search), ``exact`` (`Exact`, which takes the lowest id of equal scores),
        and the screen with ``torch`` and ``triton`` (on a GPU), with a set for each vector or ``shared``, whose rows are gathered
        in each call. ``milliseconds`` is the median of a call, ``seconds_each`` the seconds of a call in each run;
        ``gigabytes_per_second`` counts centroids and rows of the weight once. ``speedup`` is over the faster of the first two,
        and ``crossover`` the share at which it falls to 1, between two shares measured; missing where it does not.
        ``agreement``: share of vectors with the ids that torch finds. ``beside`` is the active share of the screens that were
        timed in turn with the row's system.
    """
    import torch

    layer, centroids, vectors = _trained(vocabulary, width, clusters, run.seed)
    weight, bias = (torch.from_numpy(part).to(run.device, getattr(torch, run.dtype)) for part in layer)
    nearest = Screen("clustered", centroids, empty_sets(clusters, vocabulary)).assign(vectors)
    calls = _calls(nearest, rows, run.seed)
    hidden, call_clusters = [torch.from_numpy(vectors[indices]).to(weight) for indices in calls], nearest[calls]
    table: list[dict[str, Any]] = []
    for share in shares:
        screens = {
            shared: Screen("clustered", centroids, _sets(weight, bias, centroids, call_clusters, share, shared))
            for shared in (False, True)
        }
        systems, bytes_read = _systems(screens, call_clusters, weight, bias)
        timings = run.measure(systems, cast(Any, hidden), runs=runs, warm_up=2)
        facts = {"rows": rows, "vocabulary": vocabulary, "beside": share}
        table += (facts | row for row in _rows(timings, bytes_read, share, len(calls)))
    frame = pd.DataFrame(table)
    return frame.assign(crossover=frame["system"].map({n: crossover(part) for n, part in frame.groupby("system")}))


def _rows(
    timings: Sequence[Measurement], bytes_read: Mapping[str, float], share: float, calls: int
) -> Iterator[dict[str, Any]]:
    """A row for each system timed at a share; the first two score all tokens, and `bytes_read` is by system, of a call."""
    dense = timings[1 if times_as_fast(timings[0], timings[1]) > 1 else 0]
    expected = {m.name: m.outputs for m in timings}
    for m in timings:
        seconds = m.seconds / calls
        ids, torch_ids = (np.array(o) for o in (m.outputs, expected[m.name.replace("triton", "torch")]))
        yield {
            "system": m.name,
            "active_share": 1.0 if m in timings[:2] else share,
            "milliseconds": 1000 * float(np.median(seconds)),
            "gigabytes_per_second": bytes_read[m.name] / float(np.median(seconds)) / 1e9,
            **ratio_of("speedup", dense.seconds, m.seconds),
            "agreement": float((ids == torch_ids).mean()),
            "seconds_each": seconds.tolist(),
        }


def crossover(part: pd.DataFrame) -> float:
    """The share at which a system's speedup falls to 1, interpolated between two shares measured; NaN where it does not."""
    ordered = part.sort_values("active_share")
    share, gain = ordered["active_share"].to_numpy(), ordered["speedup"].to_numpy() - 1
    falls = np.flatnonzero((gain[:-1] > 0) & (gain[1:] <= 0) & (np.diff(share) > 0))
    if not len(falls):
        return float("nan")
    i = falls[-1]
    return float(share[i] + (share[i + 1] - share[i]) * gain[i] / (gain[i] - gain[i + 1]))


@lru_cache(maxsize=1)
def _trained(
    vocabulary: int, width: int, clusters: int, seed: int
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray]:
    """A grown output matrix with its bias (V, D) and (V,), centroids (r, D) and hidden vectors (N, D).

    Centroids are hidden vectors of sentences other than those of the hidden vectors.
    """
    recorded = _recorded()
    (fit_vectors, _), (vectors, _) = arrays(recorded.fit), recorded.queries
    centroids = fit_vectors[np.linspace(0, len(fit_vectors) - 1, clusters).astype(int)]
    weight, bias, rotated = grown(
        recorded.weight, recorded.bias, np.concatenate([centroids, vectors]), vocabulary, width, seed
    )
    return (weight, bias), rotated[:clusters], rotated[clusters:]


def _recorded() -> Situation:
    """The bundled model with the contexts of our own sentences."""
    return situation(NAME, CorpusRun(Scale.TINY))


def _calls(nearest: np.ndarray, rows: int, seed: int) -> np.ndarray:
    """Indices (calls, rows) of each call's hidden vectors, of clusters `nearest` (N,); no two calls have one cluster."""
    random = np.random.default_rng(seed)
    present = random.permutation(np.unique(nearest))
    calls = min(CALLS, len(present))
    candidates = (np.flatnonzero(np.isin(nearest, present[call::calls])) for call in range(calls))
    return np.stack([random.choice(indices, rows, replace=len(indices) < rows) for indices in candidates])


def _sets(
    weight: Any, bias: Any, centroids: np.ndarray, call_clusters: np.ndarray, share: float, shared: bool
) -> ActiveSets:
    """Active sets for each call's clusters (calls, rows): the highest-scoring share of tokens, by centroid or by call."""
    import torch

    sets = [np.zeros(1, dtype=np.int64)] * len(centroids)
    size = max(1, round(share * len(weight)))
    for clusters in map(np.unique, call_clusters):
        scores = torch.addmm(bias, torch.from_numpy(centroids[clusters]).to(weight), weight.T)
        scores = scores.amax(0, keepdim=True) if shared else scores
        best = scores.topk(size, dim=1).indices.sort(dim=1).values.cpu().numpy()
        for cluster, tokens in zip(clusters, np.broadcast_to(best, (len(clusters), size)), strict=True):
            sets[cluster] = tokens
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    return ActiveSets(offsets, np.concatenate(sets), len(weight))


def _systems(
    screens: dict[bool, Screen], call_clusters: np.ndarray, weight: Any, bias: Any
) -> tuple[list[System], dict[str, float]]:
    """Systems to time, and the bytes that each reads in a call whose vectors are of `call_clusters` (calls, rows)."""
    import torch

    from fastdecode_lib.kernels.products import Product
    from fastdecode_lib.projections.exact_torch import Exact
    from fastdecode_lib.projections.screen_torch import TorchScreenScorer

    exact, row_bytes = Exact(Product.of(weight, bias)), weight[0].nbytes

    @torch.inference_mode()
    def dense(hidden: Any) -> tuple[int, ...]:
        return tuple(torch.addmm(bias, hidden, weight.T).max(1).indices.tolist())

    systems = [System("dense", cast(Any, dense)), projection_system("exact", exact, 1)]
    bytes_read = {"dense": float(weight.nbytes), "exact": float(weight.nbytes)}
    for kernels in ("torch", "auto"):
        for shared, screen in screens.items():
            scorer = TorchScreenScorer(screen, weight, bias, shared=shared, kernels=cast(Any, kernels), copies=False)
            name = f"{scorer.kernels}, shared" if shared else scorer.kernels
            if name in bytes_read:
                continue
            systems.append(projection_system(name, scorer, 1))
            rows_scored = [screen.sets.sizes[np.unique(call)][: 1 if shared else None].sum() for call in call_clusters]
            bytes_read[name] = screen.points.nbytes + row_bytes * float(np.mean(rows_scored))
    return systems, bytes_read


@experiment
def gpu(run: DeviceRun) -> pd.DataFrame:
    """Table 2's projection where the paper measures it, on a GPU: `projection_times` at the geometry of its two models."""
    parts, shares, runs = [], (0.05, 0.5) if run.tiny else SHARES, 2 if run.tiny else 9
    for model in printed.GEOMETRY:
        vocabulary, width, clusters = geometry(model, run.scale)
        for rows in (1, 4 if run.tiny else 40):
            part = projection_times(run, vocabulary, width, rows, clusters, shares, runs)
            systems = zip(part["system"], part["beside"], strict=True)
            names = [f"{model}, rows={rows}, {system}, beside {share:.0%} active" for system, share in systems]
            parts.append(part.assign(name=names, model=model))
    recorded = _recorded()
    facts = {
        "model": recorded.model,
        "geometry": GROWN,
        "contexts": context_counts([recorded]),
        "width": width,
        "runs": runs,
    }
    if importlib.util.find_spec("triton"):
        import triton

        facts["triton"] = triton.__version__
    return table_of(pd.concat(parts, ignore_index=True), run, device=device_name(run.device), dtype=run.dtype, **facts)
