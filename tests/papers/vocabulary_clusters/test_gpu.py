"""The table of times of a screened projection, at sizes that a CPU has in no time; values are not looked at."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

from fastdecode_lib.papers.run import CorpusRun, DeviceRun, Scale
from fastdecode_lib.papers.shared.contexts_of import situation
from fastdecode_lib.papers.vocabulary_clusters import experiments, geometry, gpu, printed
from fastdecode_lib.papers.vocabulary_clusters.gpu import crossover, projection_times

CPU = DeviceRun(Scale.TINY, device="cpu")
WIDTH = 256
"""That of the bundled model, the least there can be."""


def test_every_system_has_a_row_for_every_share() -> None:
    frame = projection_times(CPU, 300, WIDTH, 4, 10, (0.02, 0.5), runs=2)
    assert frame["system"].tolist() == ["dense", "exact", "torch", "torch, shared"] * 2
    assert frame["active_share"].tolist() == [1, 1, 0.02, 0.02, 1, 1, 0.5, 0.5]
    assert frame["beside"].tolist() == [0.02] * 4 + [0.5] * 4
    assert (frame["milliseconds"] > 0).all() and (frame["agreement"] == 1).all()
    assert all(len(seconds) == 2 for seconds in frame["seconds_each"])
    row_bytes = 4 * WIDTH
    for _, row in frame.iterrows():
        read = row["gigabytes_per_second"] * row["milliseconds"] * 1e6 / row_bytes
        scored = read - (10 if row["active_share"] < 1 else 0)
        if row["system"] == "torch":
            assert 1 <= scored / (300 * row["active_share"]) <= 4, "each cluster of a call once"
        else:
            assert scored == pytest.approx(300 * row["active_share"])


def test_more_rows_than_clusters() -> None:
    frame = projection_times(CPU, 50, WIDTH, 7, 3, (0.1,), runs=1)
    assert len(frame) == 4 and frame["crossover"].isna().all()


def test_what_is_measured_is_grown_from_a_trained_model() -> None:
    """Its biases and the lengths of its rows; vectors that are not centroids, of which clusters have unequal numbers."""
    (weight, bias), points, vectors = gpu._trained(2_000, 320, 20, 0)
    found = situation("multilingual", CorpusRun(Scale.TINY))
    assert set(bias.tolist()) <= set(found.bias.tolist())
    lengths, trained = (np.sort(np.linalg.norm(matrix, axis=1)) for matrix in (weight, found.weight))
    quantiles = np.linspace(0.1, 0.9, 9)
    assert np.quantile(lengths, quantiles) == pytest.approx(np.quantile(trained, quantiles), rel=0.05)
    scores, recorded = vectors @ weight.T + bias, found.queries[0] @ found.weight.T + found.bias
    assert scores.std() == pytest.approx(recorded.std(), rel=0.05)
    assert points.shape == (20, 320) and vectors.shape == (len(found.queries[0]), 320)
    distances = ((vectors[:, None] - points[None]) ** 2).sum(-1)
    assert distances.min() > 0 and np.bincount(distances.argmin(1)).std() > 0


@pytest.mark.parametrize("rows", [1, 40])
def test_calls_have_clusters_of_their_own(rows: int) -> None:
    nearest = np.random.default_rng(rows).integers(0, 30, 400) ** 2 // 30
    chosen = gpu._calls(nearest, rows, seed=0)
    assert chosen.shape == (gpu.CALLS, rows)
    clusters = [set(nearest[own].tolist()) for own in chosen]
    assert sum(map(len, clusters)) == len(set.union(*clusters))
    assert len(gpu._calls(np.array([5, 5, 2]), rows, seed=0)) == 2, "as many as there are clusters"


@pytest.mark.parametrize("shared", [False, True])
def test_a_set_holds_what_scores_highest(shared: bool) -> None:
    """By its own centroid; of a call that shares, over all of its clusters."""
    random = np.random.default_rng(0)
    weight, bias, points = (torch.from_numpy(random.normal(size=size)) for size in ((60, 8), (60,), (6, 8)))
    owners = np.array([[0, 3, 3], [4, 1, 4]])
    sets = gpu._sets(weight, bias, points.numpy(), owners, 0.1, shared)
    scores = (points @ weight.T + bias).numpy()
    for call in owners:
        for cluster in call:
            mine = scores[np.unique(call)].max(0) if shared else scores[cluster]
            assert sets[cluster].tolist() == sorted(np.argsort(-mine)[:6].tolist())
    assert len(sets[2]) == len(sets[5]) == 1, "never asked for"


def test_the_experiment_at_the_papers_geometry() -> None:
    frame = gpu.gpu(Scale.TINY, device="cpu")
    assert (
        frame["name"].is_unique and set(frame["model"]) == set(printed.GEOMETRY) and (frame["kind"] == "measured").all()
    )
    assert set(frame["rows"]) == {1, 4} and set(frame["beside"]) == {0.05, 0.5}
    assert not frame.drop(columns=["crossover", "speedup_low", "speedup_high"]).isna().any(axis=None)
    about = frame.attrs["provenance"]
    assert about["dtype"] == "float32" and about["geometry"] == geometry.GROWN and about["model"] in about["contexts"]
    (experiment,) = (e for e in experiments.EXPERIMENTS if e.table == "gpu")
    assert experiment.run is gpu.gpu and not experiment.counted, "it has times"


def test_without_a_gpu_the_experiment_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu, "projection_times", lambda *_, **__: pytest.fail("it has begun"))
    frame = gpu.gpu(Scale.LAPTOP)
    assert frame["kind"].tolist() == ["gap"] and frame.attrs["provenance"]["threads"] == 1
    assert re.search(r"needs a CUDA device: got device='cuda', and none is here\. Run it on a machine", frame["gap"][0])


def test_the_crossover_lies_between_two_shares() -> None:
    def found(**speedups: float) -> float:
        shares = {"low": 0.1, "middle": 0.2, "high": 0.4}
        return crossover(pd.DataFrame([{"active_share": shares[n], "speedup": s} for n, s in speedups.items()]))

    assert found(low=3.0, middle=2.0, high=0.0) == pytest.approx(0.3)
    assert found(high=0.5, low=2.0, middle=1.5) == pytest.approx(0.3)
    assert math.isnan(found(low=3.0, high=2.0)) and math.isnan(found(low=0.9, high=0.5)) and math.isnan(found(low=2.0))
