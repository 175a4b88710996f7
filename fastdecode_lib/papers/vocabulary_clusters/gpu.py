"""Times of a screened projection on a GPU (Amer et al., 2022, table 2); one file because it runs on another machine.

``fastdecode experiment vocabulary_clusters.gpu`` measures at the paper's sizes, on the output matrix of the bundled model grown
to them (`geometry.grown`) and on hidden vectors of its own decoding of our sentences, so that a machine with a GPU needs no
corpus; `projection_times` measures at any size. A set holds the tokens that its centroid scores highest. Successive calls use other
hidden vectors and sets, so that a cache holds no more than it would between two steps of decoding.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pandas as pd

from fastdecode_lib.core import Measurement
from fastdecode_lib.measuring.provenance import device_name, provenance
from fastdecode_lib.measuring.referee import System, measure, noisy, synchroniser
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment
from fastdecode_lib.papers.shared.contexts_of import arrays, situation
from fastdecode_lib.papers.shared.devices import cuda_gap, dtype_for
from fastdecode_lib.papers.shared.projection_runs import context_counts
from fastdecode_lib.papers.shared.rows import median, ratio_of
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
    vocabulary: int = 250_000,
    width: int = 1024,
    rows: int = 40,
    clusters: int = 1300,
    active_share: float | Sequence[float] = SHARES,
    dtype: str = "float16",
    device: str = "cuda",
    runs: int = 20,
    *,
    top: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> pd.DataFrame:
    """Times of a call: all tokens scored, and those of a screen, by torch and by the Triton kernels.

    Parameters
    ----------
    vocabulary, width, rows, clusters : int
        V, D, hidden vectors of a call, and centroids; by default those of ZCode Dense with a beam of 2 on 20 sentences. D is at
        least the bundled model's, from which the matrix is grown.
    active_share : float or sequence of float
        Shares of V in a set, and in the union of a call that shares one: the tokens that score highest.
    runs : int
        Runs of `CALLS` calls.
    top : int
        Best tokens that a call returns.

    Returns
    -------
    DataFrame with a row per system and share
        ``name``: ``dense`` (a product and torch's own search), ``exact`` (`Exact`, which takes the lowest id of equal scores), and
        the screen with ``torch`` and ``triton`` (on a GPU), with a set for each vector or ``shared``, whose rows are gathered in
        each call. ``milliseconds`` is the median of a call, ``seconds_each`` the seconds of a call in each run;
        ``gigabytes_per_second`` counts centroids and rows of the weight once. ``speedup`` is over the faster of the first two,
        and ``crossover`` the share at which it falls to 1, between two shares measured; missing where it does not.
        ``agreement``: share of vectors with the ids that torch finds. ``beside`` is the active share of the screens that were
        timed in turn with the row's system.

    Raises
    ------
    ValueError
        If the device is missing, a share is not above 0 and at most 1, or the sizes are below the bundled model's or need more
        contexts than it has.
    """
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"No CUDA device here: got device={device!r}. Use device='cpu' and small sizes.")
    sizes = {"vocabulary": vocabulary, "width": width, "clusters": clusters, "rows": rows, "top": top}
    if min(sizes.values()) < 1:
        raise ValueError(
            f"Sizes must be at least 1: got {', '.join(f'{n}={v}' for n, v in sizes.items())}. Leave them out."
        )
    shares = np.atleast_1d(np.asarray(active_share, dtype=np.float64))
    if not ((shares > 0) & (shares <= 1)).all():
        raise ValueError(f"A share of the vocabulary is above 0 and at most 1: got {active_share}. Use 0.06 for 6%.")
    layer, centroids, vectors, facts = _trained(vocabulary, width, clusters, seed)
    weight, bias = (torch.from_numpy(part).to(device, getattr(torch, dtype)) for part in layer)
    nearest = Screen("clustered", centroids, empty_sets(clusters, vocabulary)).assign(vectors)
    calls = _calls(nearest, rows, seed)
    hidden, call_clusters = [torch.from_numpy(vectors[indices]).to(weight) for indices in calls], nearest[calls]
    table: list[dict[str, Any]] = []
    for share in shares:
        screens = {
            shared: Screen("clustered", centroids, _sets(weight, bias, centroids, call_clusters, float(share), shared))
            for shared in (False, True)
        }
        systems, bytes_read = _systems(screens, call_clusters, weight, bias, top)
        timings = measure(
            systems, cast(Any, hidden), runs=runs, synchronise=synchroniser(device), progress=progress, warm_up=2
        )
        table += _rows(timings, bytes_read, sizes, float(share), len(calls), seed)
    frame = pd.DataFrame(table)
    frame.insert(7, "crossover", frame["name"].map({n: crossover(part) for n, part in frame.groupby("name")}))
    frame.attrs["provenance"] = _provenance(device, seed) | {
        "dtype": dtype, "width": width, "clusters": clusters, "top": top, "runs": runs, **facts,
    }  # fmt: skip
    return frame


def _rows(
    timings: Sequence[Measurement],
    bytes_read: Mapping[str, float],
    sizes: Mapping[str, int],
    share: float,
    calls: int,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """A row for each system timed at a share; the first two score all tokens, and `bytes_read` is by system, of a call."""
    dense = min(timings[:2], key=median)
    expected = {m.name: m.outputs for m in timings}
    for m in timings:
        seconds = m.seconds / calls
        ids, torch_ids = (np.array(o) for o in (m.outputs, expected[m.name.replace("triton", "torch")]))
        yield {
            "name": m.name,
            "rows": sizes["rows"],
            "vocabulary": sizes["vocabulary"],
            "active_share": 1.0 if m in timings[:2] else share,
            "beside": share,
            "milliseconds": 1000 * float(np.median(seconds)),
            "gigabytes_per_second": bytes_read[m.name] / float(np.median(seconds)) / 1e9,
            **ratio_of("speedup", dense.seconds, m.seconds, seed),
            "agreement": float((ids == torch_ids).reshape(-1, sizes["top"]).all(1).mean()),
            "note": "noisy" if noisy(dense, m) else "",
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
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray, dict[str, Any]]:
    """A grown output matrix with its bias (V, D) and (V,), centroids (r, D), hidden vectors (N, D), and their provenance.

    Centroids are hidden vectors of sentences other than those of the hidden vectors.
    """
    recorded = situation(NAME, CorpusRun(Scale.TINY))
    (fit_vectors, _), (vectors, _) = arrays(recorded.fit), recorded.queries
    if clusters > len(fit_vectors):
        raise ValueError(
            f"Clusters are at most the {len(fit_vectors)} hidden vectors recorded: got {clusters}. Use fewer."
        )
    centroids = fit_vectors[np.linspace(0, len(fit_vectors) - 1, clusters).astype(int)]
    weight, bias, rotated = grown(
        recorded.weight, recorded.bias, np.concatenate([centroids, vectors]), vocabulary, width, seed
    )
    facts = {"model": recorded.model, "geometry": GROWN, "contexts": context_counts([recorded])}
    return (weight, bias), rotated[:clusters], rotated[clusters:], facts


def _calls(nearest: np.ndarray, rows: int, seed: int) -> np.ndarray:
    """Indices (calls, rows) of each call's hidden vectors; no two calls have vectors of the same cluster.

    Parameters
    ----------
    nearest : int array (N,)
        The cluster of each vector.
    """
    random = np.random.default_rng(seed)
    present = random.permutation(np.unique(nearest))
    calls = min(CALLS, len(present))
    candidates = (np.flatnonzero(np.isin(nearest, present[call::calls])) for call in range(calls))
    return np.stack([random.choice(indices, rows, replace=len(indices) < rows) for indices in candidates])


def _sets(
    weight: Any, bias: Any, centroids: np.ndarray, call_clusters: np.ndarray, share: float, shared: bool
) -> ActiveSets:
    """Active sets for the clusters of each call: the highest-scoring share of the vocabulary, by centroid or by call.

    Parameters
    ----------
    weight, bias : tensors (V, D) and (V,)
    centroids : float array (r, D)
    call_clusters : int array (calls, rows)
        The cluster of each vector of each call.
    """
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
    screens: dict[bool, Screen], call_clusters: np.ndarray, weight: Any, bias: Any, top: int
) -> tuple[list[System], dict[str, float]]:
    """Systems to time, and the bytes that each reads in a call whose vectors are of `call_clusters` (calls, rows)."""
    import torch

    from fastdecode_lib.kernels.products import Product
    from fastdecode_lib.projections.exact_torch import Exact
    from fastdecode_lib.projections.screen_torch import TorchScreenScorer

    exact, row_bytes = Exact(Product.of(weight, bias)), weight[0].nbytes

    @torch.inference_mode()
    def dense(hidden: Any) -> tuple[int, ...]:
        scores = torch.addmm(bias, hidden, weight.T)
        ids = scores.max(1).indices if top == 1 else scores.topk(top, dim=1).indices
        return tuple(ids.flatten().tolist())

    def system(name: str, scorer: Any) -> System:
        return System(name, lambda hidden: tuple(scorer.top_k(hidden, top).ids.ravel().tolist()))

    systems = [System("dense", cast(Any, dense)), system("exact", exact)]
    bytes_read = {"dense": float(weight.nbytes), "exact": float(weight.nbytes)}
    for kernels in ("torch", "auto"):
        for shared, screen in screens.items():
            scorer = TorchScreenScorer(screen, weight, bias, shared=shared, kernels=cast(Any, kernels), copies=False)
            name = f"{scorer.kernels}, shared" if shared else scorer.kernels
            if name in bytes_read:
                continue
            systems.append(system(name, scorer))
            rows_scored = [screen.sets.sizes[np.unique(call)][: 1 if shared else None].sum() for call in call_clusters]
            bytes_read[name] = screen.points.nbytes + row_bytes * float(np.mean(rows_scored))
    return systems, bytes_read


@experiment
def gpu(run: Run, *, device: str = "cuda") -> pd.DataFrame:
    """Table 2's projection where the paper measures it, on a GPU: `projection_times` at the geometry of its two models.

    On a machine without a CUDA device the table is a single row that says so.
    """
    if (gap_table := cuda_gap(device, run)) is not None:
        return gap_table
    tiny, parts = run.tiny, []
    for model in printed.GEOMETRY:
        vocabulary, width, clusters = geometry(model, run.scale)
        for rows in (1, 4 if tiny else 40):
            part = projection_times(
                vocabulary, width, rows, clusters, (0.05, 0.5) if tiny else SHARES,
                dtype_for(device), device, 2 if tiny else 8,
                seed=run.seed, progress=run.progress,
            )  # fmt: skip
            facts = part.attrs["provenance"]
            system = [f"{model}, rows={rows}, {name}" for name in part["name"]]
            name = [f"{text}, beside {share:.0%} active" for text, share in zip(system, part["beside"], strict=True)]
            parts.append(part.assign(name=name, system=part["name"], model=model, kind="measured"))
    frame = pd.concat(parts, ignore_index=True)
    frame.attrs["provenance"] = {key: value for key, value in facts.items() if key != "clusters"}
    return frame


def _provenance(device: str, seed: int) -> dict[str, Any]:
    from importlib import metadata

    facts = provenance(threads=1, seed=seed) | {"device": device_name(device)}
    try:
        return facts | {"triton": metadata.version("triton")}
    except metadata.PackageNotFoundError:
        return facts
