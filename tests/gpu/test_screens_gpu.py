"""Screens on a CUDA device: the CPU's candidates, with torch and with the Triton kernels; a row's bits are its own."""

from typing import Any

import numpy as np
import pytest
import recorded
import torch

from fastdecode_lib.papers.run import DeviceRun
from fastdecode_lib.papers.vocabulary_clusters.gpu import projection_times
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.screen_torch import TorchScreenScorer
from fastdecode_lib.projections.screens import Screen

pytestmark = pytest.mark.gpu

CLOSE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
SHORT = (torch.float32, torch.float16, torch.bfloat16)
every_seed = pytest.mark.parametrize("seed", range(8), ids="seed{}".format)


def case(seed: int, rows: int, dtype: torch.dtype) -> tuple[Screen, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A screen with an empty set, and weight (V, D), bias (V,) and hidden vectors (N, D) rounded to a type, on the CPU."""
    random = np.random.default_rng(seed)
    vocabulary, width = 500 + 777 * seed, (40, 512, 96, 33)[seed % 4]
    weight, bias = recorded.weight_of(random, vocabulary, width)
    points = recorded.clumps(random, weight, 30)
    sizes = random.integers(1, vocabulary // 2, 30)
    sizes[0] = 0
    sets = ActiveSets.of([random.choice(vocabulary, size, replace=False) for size in sizes], vocabulary)
    hidden = points[random.integers(0, 30, rows)] + 0.01 * random.normal(size=(rows, width))
    tensors = [torch.from_numpy(array).to(dtype) for array in (weight / 8, bias, hidden)]
    return Screen(("clustered", "screened")[seed % 2], points, sets), tensors[0], tensors[1], tensors[2]


@every_seed
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kernels", ["torch", "triton"])
def test_candidates_are_those_of_the_cpu(kernels: Any, shared: bool, dtype: torch.dtype, seed: int) -> None:
    """Of equal inputs in float64; short precisions may exchange tokens whose scores they cannot tell apart."""
    if kernels == "triton" and dtype is torch.float64:
        pytest.skip("Triton's kernels add up in float32")
    rows = (1, 3, 16, 40, 100)[seed % 5]
    screen, weight, bias, hidden = case(seed, rows, dtype)
    exact = TorchScreenScorer(screen, weight.double(), bias.double(), shared=shared)
    found_by = TorchScreenScorer(
        screen, weight.cuda(), bias.cuda(), shared=shared, kernels=kernels, copies=seed % 2 == 0
    )
    banned = np.array([[1, 7, -1]] * (rows if seed % 3 else 1))
    close = CLOSE[dtype]
    for k in (1, 5, 16, 40):
        wanted = exact.top_k(hidden, k, banned, normalise=True)
        found = found_by.top_k(hidden.cuda(), k, banned, normalise=True)
        same = np.flatnonzero(found.cluster == wanted.cluster)  # a vector between two centroids may fall either way
        assert len(same) >= 0.9 * rows and (not shared or len(same) == rows)
        for name in ("scores", "log_normaliser", "num_active"):
            np.testing.assert_allclose(
                getattr(found, name)[same], getattr(wanted, name)[same], rtol=close, atol=close, err_msg=name
            )
        assert np.array_equal(found.ids[same] < 0, wanted.ids[same] < 0) and not np.isin(found.ids, [1, 7]).any()
        if dtype in (torch.float64, torch.float32):
            assert (found.ids[same] == wanted.ids[same]).mean() > 0.99
        given = np.where(found.ids < 0, 0, found.ids)
        log_probs = found_by.log_probs(hidden.cuda(), given)
        expected = found.scores - found.log_normaliser[:, None]
        np.testing.assert_allclose(
            log_probs[found.ids >= 0], expected[found.ids >= 0], rtol=close, atol=close, err_msg="log_probs"
        )


@every_seed
@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_with_triton_a_row_does_not_depend_on_the_rows_beside_it(dtype: torch.dtype, seed: int) -> None:
    """Bit for bit, wherever it stands, and whether its set is its own or a union of one."""
    screen, weight, bias, hidden = case(seed, 60, dtype)
    weight, bias, hidden = weight.cuda(), bias.cuda(), hidden.cuda()
    own, shared = (
        TorchScreenScorer(screen, weight, bias, kernels="triton", shared=choice, copies=False)
        for choice in (False, True)
    )
    together = own.top_k(hidden, 3, normalise=True)
    order = np.random.default_rng(seed).permutation(60)[:37]
    others = own.top_k(hidden[order], 3, normalise=True)
    for name in ("ids", "scores", "log_normaliser", "cluster"):
        assert np.array_equal(getattr(others, name), getattr(together, name)[order]), name
        for row in (0, 15, 16, 59):
            for scorer in (own, shared):
                alone = getattr(scorer.top_k(hidden[row : row + 1], 3, normalise=True), name)
                assert np.array_equal(alone[0], getattr(together, name)[row]), name


@pytest.mark.parametrize("kernels", ["torch", "triton"])
def test_ties_go_to_the_lowest(kernels: Any) -> None:
    random = np.random.default_rng(0)
    weight = torch.from_numpy(random.integers(-2, 3, (3000, 6))).float().cuda()
    hidden = torch.from_numpy(random.integers(-2, 3, (50, 6))).float().cuda()
    screen = Screen("screened", np.zeros((1, 6), np.float32), ActiveSets.of([range(1, 3000, 2)], 3000))
    wanted = 1 + 2 * np.argsort(-(hidden @ weight.T).cpu().numpy()[:, 1::2], axis=1, kind="stable")
    for shared in (False, True):
        scorer = TorchScreenScorer(screen, weight, kernels=kernels, shared=shared)
        for k in (1, 3, 16):
            assert np.array_equal(scorer.top_k(hidden, k).ids, wanted[:, :k])


def test_the_choice_of_kernels() -> None:
    screen, weight, bias, _ = case(0, 1, torch.float16)
    assert TorchScreenScorer(screen, weight.cuda(), bias.cuda()).kernels == "triton"
    assert TorchScreenScorer(screen, weight.double().cuda()).kernels == "torch"
    assert TorchScreenScorer(screen, weight, bias).kernels == "torch"


def test_times() -> None:
    frame = projection_times(DeviceRun(), 5000, 320, 6, 24, (0.05, 0.5), runs=2)
    assert {"dense", "exact", "torch", "torch, shared", "triton", "triton, shared"} == set(frame["system"])
    assert (frame["milliseconds"] > 0).all() and (frame["agreement"] > 0.9).all()
