"""Times of a screened projection on a GPU (Amer et al., 2022, table 2); one file because it runs on another machine.

``fastdecode experiment vocabulary_clusters.gpu`` measures at the paper's sizes, on the output matrix of the bundled model grown
to them (`geometry.grown`) and on hidden vectors of its own decoding of our sentences, so that a machine with a GPU needs no
corpus; `projection_times` measures at any. A set holds the tokens that its centroid scores highest. Calls take turns through hidden
vectors and sets that differ, so that a cache holds no more than it would between two steps of decoding.
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
from fastdecode_lib.papers.shared.devices import short, without
from fastdecode_lib.papers.shared.projection_runs import counted
from fastdecode_lib.papers.shared.rows import median, ratio_of
from fastdecode_lib.papers.vocabulary_clusters import printed
from fastdecode_lib.papers.vocabulary_clusters.geometry import GROWN, geometry, grown
from fastdecode_lib.papers.vocabulary_clusters.tables import NAME
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.clustering import empty_sets
from fastdecode_lib.projections.screens import Screen

SHARES = (0.01, 0.02, 0.06, 0.12, 0.25, 0.5)
CALLS = 8
"""Calls with hidden vectors, clusters and sets of their own, one after another, in each run; fewer if there are fewer clusters."""


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
        V, D, hidden vectors of a call, and centroids; by default those of ZCode Dense with a beam of 2 on 20 sentences. D is not
        smaller than the bundled model's, which the rest is grown from.
    active_share : float or sequence of float
        Tokens of a set, and of the union in a call that shares, in parts of V: those that score highest.
    runs : int
        Each of `CALLS` calls.
    top : int
        Candidates asked for.

    Returns
    -------
    DataFrame with a row per system and share
        ``name``: ``dense`` (a product and torch's own search), ``exact`` (`Exact`, of equals the lowest id), and the screen
        with ``torch`` and ``triton`` (on a GPU), with sets of their own or ``shared``, whose rows are gathered in each call.
        ``milliseconds`` is the median of a call, ``seconds_each`` what a call took in each run; ``gigabytes_per_second``
        counts centroids and rows of the weight once. ``speedup`` is over the faster of the first two, and ``crossover`` the
        share at which it falls to 1, between two shares measured; missing where it does not. ``agreement``: share of
        vectors with the ids that torch finds. ``beside`` is the share of the screens timed in turn with the row's system.

    Raises
    ------
    ValueError
        If the device is not there, a share is not one, or the sizes are below the bundled model's or beyond its contexts.
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
    large, points, vectors, about = _trained(vocabulary, width, clusters, seed)
    weight, bias = (torch.from_numpy(part).to(device, getattr(torch, dtype)) for part in large)
    nearest = Screen("clustered", points, empty_sets(clusters, vocabulary)).assign(vectors)
    chosen = _turns(nearest, rows, seed)
    hidden, owners = [torch.from_numpy(vectors[own]).to(weight) for own in chosen], nearest[chosen]
    calls = len(chosen)
    table: list[dict[str, Any]] = []
    for share in shares:
        screens = {
            shared: Screen("clustered", points, _sets(weight, bias, points, owners, float(share), shared))
            for shared in (False, True)
        }
        systems, read = _systems(screens, owners, weight, bias, top)
        timings = measure(
            systems, cast(Any, hidden), runs=runs, synchronise=synchroniser(device), progress=progress, warm_up=2
        )
        table += _rows(timings, read, sizes, float(share), calls, seed)
    frame = pd.DataFrame(table)
    frame.insert(7, "crossover", frame["name"].map({n: crossover(part) for n, part in frame.groupby("name")}))
    frame.attrs["provenance"] = _about(device, seed) | {
        "dtype": dtype, "width": width, "clusters": clusters, "top": top, "runs": runs, **about,
    }  # fmt: skip
    return frame


def _rows(
    timings: Sequence[Measurement],
    read: Mapping[str, float],
    sizes: Mapping[str, int],
    share: float,
    calls: int,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """A row for each system timed at a share; the first two score all tokens, and `read` has the bytes of a call."""
    dense = min(timings[:2], key=lambda m: median(m))
    expected = {m.name: m.outputs for m in timings}
    for m in timings:
        seconds = m.seconds / calls
        ids, wanted = (np.array(o) for o in (m.outputs, expected[m.name.replace("triton", "torch")]))
        yield {
            "name": m.name,
            "rows": sizes["rows"],
            "vocabulary": sizes["vocabulary"],
            "active_share": 1.0 if m in timings[:2] else share,
            "beside": share,
            "milliseconds": 1000 * float(np.median(seconds)),
            "gigabytes_per_second": read[m.name] / float(np.median(seconds)) / 1e9,
            **ratio_of("speedup", dense.seconds, m.seconds, seed),
            "agreement": float((ids == wanted).reshape(-1, sizes["top"]).all(1).mean()),
            "note": "noisy" if noisy(dense, m) else "",
            "seconds_each": seconds.tolist(),
        }


def crossover(part: pd.DataFrame) -> float:
    """The share at which the speedup of one system falls to 1, on a line between two shares measured; NaN where it does not."""
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
    """A grown output matrix with its bias (V, D) and (V,), centroids (r, D) and other hidden vectors (N, D), and what they are of.

    Centroids are hidden vectors of other sentences.
    """
    recorded = situation(NAME, CorpusRun(Scale.TINY))
    (others, _), (vectors, _) = arrays(recorded.fit), recorded.queries
    if clusters > len(others):
        raise ValueError(f"Clusters are at most the {len(others)} hidden vectors recorded: got {clusters}. Use fewer.")
    points = others[np.linspace(0, len(others) - 1, clusters).astype(int)]
    weight, bias, turned = grown(
        recorded.weight, recorded.bias, np.concatenate([points, vectors]), vocabulary, width, seed
    )
    about = {"model": recorded.model, "geometry": GROWN, "contexts": counted([recorded])}
    return (weight, bias), turned[:clusters], turned[clusters:], about


def _turns(nearest: np.ndarray, rows: int, seed: int) -> np.ndarray:
    """Hidden vectors (calls, rows) of some calls, by index; no two calls have vectors of the same cluster.

    Parameters
    ----------
    nearest : int array (N,)
        The cluster of each vector.
    """
    random = np.random.default_rng(seed)
    present = random.permutation(np.unique(nearest))
    calls = min(CALLS, len(present))
    own = (np.flatnonzero(np.isin(nearest, present[call::calls])) for call in range(calls))
    return np.stack([random.choice(vectors, rows, replace=len(vectors) < rows) for vectors in own])


def _sets(weight: Any, bias: Any, points: np.ndarray, owners: np.ndarray, share: float, shared: bool) -> ActiveSets:
    """Active sets for the clusters of each call: the highest-scoring share of the vocabulary, by centroid or over all of a call's.

    Parameters
    ----------
    weight, bias : tensors (V, D) and (V,)
    points : float array (r, D)
    owners : int array (calls, rows)
        Clusters.
    """
    import torch

    sets = [np.zeros(1, dtype=np.int64)] * len(points)
    size = max(1, round(share * len(weight)))
    for clusters in map(np.unique, owners):
        scores = torch.addmm(bias, torch.from_numpy(points[clusters]).to(weight), weight.T)
        scores = scores.amax(0, keepdim=True) if shared else scores
        best = scores.topk(size, dim=1).indices.sort(dim=1).values.cpu().numpy()
        for cluster, tokens in zip(clusters, np.broadcast_to(best, (len(clusters), size)), strict=True):
            sets[cluster] = tokens
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    return ActiveSets(offsets, np.concatenate(sets), len(weight))


def _systems(
    screens: dict[bool, Screen], owners: np.ndarray, weight: Any, bias: Any, top: int
) -> tuple[list[System], dict[str, float]]:
    """Systems to time, and the bytes that each reads in a call whose vectors are of the clusters `owners` (calls, rows)."""
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
    read = {"dense": float(weight.nbytes), "exact": float(weight.nbytes)}
    for kernels in ("torch", "auto"):
        for shared, screen in screens.items():
            scorer = TorchScreenScorer(screen, weight, bias, shared=shared, kernels=cast(Any, kernels), copies=False)
            name = f"{scorer.kernels}, shared" if shared else scorer.kernels
            if name in read:
                continue
            systems.append(system(name, scorer))
            scored = [screen.sets.sizes[np.unique(call)][: 1 if shared else None].sum() for call in owners]
            read[name] = screen.points.nbytes + row_bytes * float(np.mean(scored))
    return systems, read


@experiment
def gpu(run: Run, *, device: str = "cuda") -> pd.DataFrame:
    """Table 2's projection where the paper measures it, on a GPU: `projection_times` at the geometry of its two models.

    A machine without a CUDA device gives a single row that says so.
    """
    if (nothing := without(device, run)) is not None:
        return nothing
    tiny, parts = run.tiny, []
    for model in printed.GEOMETRY:
        vocabulary, width, clusters = geometry(model, run.scale)
        for rows in (1, 4 if tiny else 40):
            part = projection_times(
                vocabulary, width, rows, clusters, (0.05, 0.5) if tiny else SHARES,
                short(device), device, 2 if tiny else 8,
                seed=run.seed, progress=run.progress,
            )  # fmt: skip
            about = part.attrs["provenance"]
            system = [f"{model}, rows={rows}, {name}" for name in part["name"]]
            name = [f"{what}, beside {share:.0%} active" for what, share in zip(system, part["beside"], strict=True)]
            parts.append(part.assign(name=name, system=part["name"], model=model, kind="measured"))
    frame = pd.concat(parts, ignore_index=True)
    frame.attrs["provenance"] = {key: value for key, value in about.items() if key != "clusters"}
    return frame


def _about(device: str, seed: int) -> dict[str, Any]:
    from importlib import metadata

    about = provenance(threads=1, seed=seed) | {"device": device_name(device)}
    try:
        return about | {"triton": metadata.version("triton")}
    except metadata.PackageNotFoundError:
        return about
