"""Tables about a GPU: made on the CPU at tiny scale, and one row that says so where there is no GPU."""

from typing import Any

import numpy as np
import pytest
import torch

from fastdecode_lib import load
from fastdecode_lib.papers.double_token_decoding import gpu as double_token
from fastdecode_lib.papers.parallel_decoding import gpu as parallel
from fastdecode_lib.papers.run import Scale
from fastdecode_lib.papers.shared.grown import grown_on_torch
from fastdecode_lib.papers.vocabulary_clusters import gpu_decoding
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.screens import Screen
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.translation import Session

TABLES = (
    double_token.gpu,
    double_token.gpu_beams,
    parallel.gpu,
    parallel.gpu_passes,
    gpu_decoding.gpu_decoding,
)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.__module__.split('.')[-2]}.{table.__name__}")
def test_without_a_gpu_a_table_is_a_gap(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    frame = table(Scale.LAPTOP)
    assert frame["kind"].tolist() == ["gap"] and "needs a CUDA device: got device='cuda'" in frame["gap"][0]


def test_passes_cost_what_they_cost_in_both_kinds() -> None:
    frame = parallel.gpu_passes(Scale.TINY, device="cpu")
    assert set(frame["kernels"]) == {"plain", "graphs"} and set(frame["width"]) == {1, 4} and len(frame) == 4
    assert (frame.loc[frame["width"] == 1, "cost"] == 1).all() and (frame["milliseconds"] > 0).all()
    assert (frame.loc[frame["kernels"] == "plain", "gain"] == 1).all()


def test_decoders_say_the_same_in_both_kinds_and_in_the_grown_model() -> None:
    frame = parallel.gpu(Scale.TINY, device="cpu")
    assert set(frame["decoder"]) == set(parallel.DECODERS) and (frame["identical"] == 1).all()
    passes = frame.groupby("decoder")["passes"].nunique()
    assert (passes == 1).all() and frame["name"].is_unique, "the grown model has the bundled one's passes"
    greedy = frame[frame["decoder"] == "greedy"]
    assert (greedy["speedup"] == 1).all() and (greedy["passes"].to_numpy() > 1).all()


def test_systems_are_measured_by_both_widths_of_beam() -> None:
    frame = double_token.gpu(Scale.TINY, device="cpu")
    assert (
        set(frame["system"]) == set(double_token.SYSTEMS) and set(frame["beam"]) == {1, 2} and frame["name"].is_unique
    )
    assert (frame["as_float32"] == 1).all(), "on the CPU it is float32"
    assert (frame.loc[frame["system"] == "single_token_l2r", "token_ratio"] == 1).all()


def test_screens_score_less_and_the_exact_projection_everything() -> None:
    frame = gpu_decoding.gpu_decoding(Scale.TINY, device="cpu").set_index("name")
    exact = frame[frame["method"] == "exact"]
    assert (exact["identical"] == 1).all() and (exact["active"] == 1).all() and (exact["speedup"] == 1).all()
    screened = frame[frame["method"] != "exact"]
    assert screened["active"].between(gpu_decoding.SET_SHARE, 0.5).all() and (screened["sentences"] > 1).all()


def test_sets_are_padded_with_added_tokens_of_the_pool() -> None:
    screen = Screen("clustered", np.eye(3, dtype=np.float32), ActiveSets.of([[0, 4], [1], range(30)], 50))
    filled = gpu_decoding.padded_screen(screen, 2, 50, 1_000, seed=0)
    assert filled.points.shape == (3, 6) and filled.sets.sizes.tolist() == [20, 20, 30]
    added = np.concatenate([filled.sets[i][filled.sets[i] >= 50] for i in range(3)])
    assert set(filled.sets[0][:2].tolist()) == {0, 4} and len(set(added.tolist())) <= 100


@pytest.mark.parametrize("times", [1, 3])
def test_a_model_grown_on_torch_says_what_the_small_one_says(times: int) -> None:
    small = load("tatoeba-small", device="cpu", engine="torch")
    large = grown_on_torch(small, times, (5, 3), 16_300, "cpu", "float32")
    shape = large.network.architecture  # type: ignore[attr-defined]
    assert (shape.width, shape.decoder_layers, large.network.outputs[0].vocabulary) == (256 * times, 3, 16_300)
    texts = [text for text, _ in own_pairs("en", "de")][:4]
    said = [[h.tokens for h in Session.of(m, "en", "de", "greedy").decode(texts)] for m in (small, large)]
    assert said[0] == said[1]
