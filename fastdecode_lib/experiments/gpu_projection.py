"""What a screened projection takes on a GPU, and up to which share of active tokens it pays (paper 000, table 2).

``python -m fastdecode_lib.experiments.gpu_projection --json FILE`` measures at the paper's sizes, on random weights, which
cost what trained ones cost. The hidden vectors of a call fall into clusters of their own, and calls take turns through sets
that differ, so that a cache holds no more than it would between two steps of decoding.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fastdecode_lib.measure import (
    System,
    bootstrap_ratio,
    device_name,
    measure,
    noisy,
    provenance,
    synchroniser,
)
from fastdecode_lib.projections.active import ActiveSets
from fastdecode_lib.projections.screen import Screen
from fastdecode_lib.store import write_table

if TYPE_CHECKING:
    import pandas as pd

SHARES = (0.01, 0.02, 0.06, 0.12, 0.25, 0.5)
CALLS = 8
"""Calls with hidden vectors and sets of their own, one after another, in each run."""


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
) -> "pd.DataFrame":
    """Times of a call: all tokens scored, and those of a screen, by torch and by the Triton kernels.

    Parameters
    ----------
    vocabulary, width, rows, clusters : int
        V, D, hidden vectors of a call, and centroids; by default those of ZCode Dense with a beam of 2 on 20 sentences.
    active_share : float or sequence of float
        Tokens of a set, and of the union in a call that shares, in parts of V.
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
        vectors with the ids that torch finds.

    Raises
    ------
    ValueError
        If the device is not there, or a share is not one.
    """
    import pandas as pd
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
    random = np.random.default_rng(seed)
    generator = torch.Generator(device).manual_seed(seed)
    weight = torch.randn(vocabulary, width, generator=generator, device=device).to(getattr(torch, dtype))
    points = random.normal(size=(clusters, width)).astype(np.float32)
    calls = max(1, min(CALLS, clusters // rows))
    chosen = np.arange(calls * rows).reshape(calls, rows) % clusters
    hidden = [torch.from_numpy(points[own]).to(weight) for own in chosen]
    table: list[dict[str, Any]] = []
    for share in shares:
        screens = {
            shared: Screen("clustered", points, _sets(random, vocabulary, clusters, chosen, float(share), shared))
            for shared in (False, True)
        }
        systems, read = _systems(screens, chosen, weight, top)
        found = measure(
            systems, cast(Any, hidden), runs=runs, synchronise=synchroniser(device), progress=progress, warm_up=2
        )
        dense = min(found[:2], key=lambda m: float(np.median(m.seconds)))
        expected = {m.name: m.outputs for m in found}
        for m in found:
            seconds = m.seconds / calls
            low, high = bootstrap_ratio(dense.seconds, m.seconds, seed)
            ids, wanted = (np.array(o) for o in (m.outputs, expected[m.name.replace("triton", "torch")]))
            table.append(
                {
                    "name": m.name,
                    "rows": rows,
                    "vocabulary": vocabulary,
                    "active_share": 1.0 if m in found[:2] else float(share),
                    "milliseconds": 1000 * float(np.median(seconds)),
                    "gigabytes_per_second": read[m.name] / float(np.median(seconds)) / 1e9,
                    "speedup": float(np.median(dense.seconds) / np.median(m.seconds)),
                    "speedup_low": low,
                    "speedup_high": high,
                    "agreement": float((ids == wanted).reshape(-1, top).all(1).mean()),
                    "note": "noisy" if noisy(dense, m) else "",
                    "seconds_each": seconds.tolist(),
                }
            )
    frame = pd.DataFrame(table)
    frame.insert(6, "crossover", frame["name"].map({n: crossover(part) for n, part in frame.groupby("name")}))
    frame.attrs["provenance"] = _about(device, seed) | {
        "dtype": dtype, "width": width, "clusters": clusters, "top": top, "runs": runs,
    }  # fmt: skip
    return frame


def crossover(part: "pd.DataFrame") -> float:
    """The share at which the speedup of one system falls to 1, on a line between two shares measured; NaN where it does not."""
    ordered = part.sort_values("active_share")
    share, gain = ordered["active_share"].to_numpy(), ordered["speedup"].to_numpy() - 1
    falls = np.flatnonzero((gain[:-1] > 0) & (gain[1:] <= 0) & (np.diff(share) > 0))
    if not len(falls):
        return float("nan")
    i = falls[-1]
    return float(share[i] + (share[i + 1] - share[i]) * gain[i] / (gain[i] - gain[i + 1]))


def _sets(
    random: np.random.Generator, vocabulary: int, clusters: int, chosen: np.ndarray, share: float, shared: bool
) -> ActiveSets:
    """Sets of a share of the vocabulary for the clusters of some calls, one for all clusters of a call or one for each."""
    sets: list[Any] = [[0]] * clusters
    for call in chosen:
        for cluster in call:
            if not shared or cluster == call[0]:
                drawn = random.choice(vocabulary, max(1, round(share * vocabulary)), replace=False)
            sets[cluster] = drawn
    return ActiveSets.of(sets, vocabulary)


def _systems(
    screens: dict[bool, Screen], chosen: np.ndarray, weight: Any, top: int
) -> tuple[list[System], dict[str, float]]:
    """What is timed, and the bytes that each has to read in a call."""
    import torch

    from fastdecode_lib.kernels.products import Product
    from fastdecode_lib.projections.exact import Exact
    from fastdecode_lib.projections.screen_torch import TorchScreenScorer

    bias = weight.new_zeros(len(weight))
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
            scored = [screen.sets.sizes[np.unique(call)][: 1 if shared else None].sum() for call in chosen]
            read[name] = screen.points.nbytes + row_bytes * float(np.mean(scored))
    return systems, read


def _about(device: str, seed: int) -> dict[str, Any]:
    from importlib import metadata

    about = provenance(threads=1, seed=seed) | {"device": device_name(device)}
    try:
        return about | {"triton": metadata.version("triton")}
    except metadata.PackageNotFoundError:
        return about


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(prog="python -m fastdecode_lib.experiments.gpu_projection", description=__doc__)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[250_000, 128_000])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 40], help="hidden vectors of a call")
    parser.add_argument("--clusters", type=int, default=1300)
    parser.add_argument("--active-share", type=float, nargs="+", default=SHARES)
    parser.add_argument("--top", type=int, default=1, help="candidates asked for")
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16", "float32", "float64"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="also write the table there, with every run")
    options = parser.parse_args(arguments)
    table: list[dict[str, Any]] = []
    given = " ".join(sys.argv[1:] if arguments is None else arguments)
    command = {"command": f"{parser.prog} {given}".strip()}
    for vocabulary in options.vocabulary:
        for rows in options.rows:
            try:
                frame = projection_times(
                    vocabulary, options.width, rows, options.clusters, options.active_share, options.dtype,
                    options.device, options.runs, top=options.top, seed=options.seed, progress=sys.stderr.isatty(),
                )  # fmt: skip
            except ValueError as error:
                parser.error(str(error))
            print(frame.drop(columns="seconds_each").to_string(index=False, float_format="{:.3g}".format), flush=True)
            table += [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]
    if options.json:
        write_table(options.json, table, frame.attrs["provenance"] | command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
