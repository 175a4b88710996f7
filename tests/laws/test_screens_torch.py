"""Laws of screened projections for torch models: all active is exact, a row has its own set, what is said of it is true."""

import copy
from typing import Any

import fakes
import numpy as np
import pytest
import recorded
import torch

from fastdecode_lib import load, translate
from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.kernels.products import Product
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.exact_torch import Exact
from fastdecode_lib.projections.screen_compiled import ScreenScorer
from fastdecode_lib.projections.screen_torch import TorchScreenScorer
from fastdecode_lib.projections.screens import Screen
from fastdecode_lib.translation import Session

SEEDS = range(20)
DTYPES = (torch.float64, torch.float32)
CLOSE = {torch.float64: {"rtol": 1e-11, "atol": 1e-11}, torch.float32: {"rtol": 1e-4, "atol": 1e-4}}
VOCABULARY = 130
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float64", "float32"])
every_seed = pytest.mark.parametrize("seed", SEEDS)


def case(seed: int, dtype: torch.dtype, count: int = 60) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weight (V, D), bias (V,) and hidden vectors (N, D)."""
    random = np.random.default_rng(seed)
    weight, bias = recorded.weight_of(random, VOCABULARY, 5 + seed)
    hidden = recorded.clumps(random, weight, count)
    return tuple(torch.from_numpy(array).to(dtype) for array in (weight, bias, hidden))  # type: ignore[return-value]


def random_screen(seed: int, weight: torch.Tensor, *, empty: bool = True) -> Screen:
    random = np.random.default_rng(seed)
    vocabulary, width = weight.shape
    clusters = int(random.integers(1, 12))
    sets = [
        random.choice(vocabulary, random.integers(0 if empty else 1, vocabulary), replace=False)
        for _ in range(clusters)
    ]
    points = random.normal(size=(clusters, width)).astype(np.float32)
    return Screen(("clustered", "screened")[seed % 2], points, ActiveSets.of(sets, vocabulary))


@every_dtype
@every_seed
def test_all_active_is_exact(seed: int, dtype: torch.dtype) -> None:
    weight, bias, hidden = case(seed, dtype)
    exact = Exact(Product.of(weight, bias))
    points = np.random.default_rng(seed).normal(size=(3, weight.shape[1])).astype(np.float32)
    some = np.random.default_rng(seed).integers(0, VOCABULARY, (len(hidden), 7))
    for members in (range(VOCABULARY), ()):
        screen = Screen("clustered", points, ActiveSets.of([members] * 3, VOCABULARY))
        for options in ({}, {"copies": True}, {"shared": True}):
            scorer = TorchScreenScorer(screen, weight, bias, **options)
            for kwargs in ({}, {"banned": np.array([1, 5]), "normalise": True}):
                for k in (1, 4):
                    found, wanted = (p.top_k(hidden, k, **kwargs) for p in (scorer, exact))
                    assert np.array_equal(found.ids, wanted.ids) and (found.num_active == VOCABULARY).all()
                    assert found.scores.dtype == wanted.scores.dtype
                    np.testing.assert_allclose(found.scores, wanted.scores, **CLOSE[dtype])
                    if kwargs:
                        np.testing.assert_allclose(found.log_normaliser, wanted.log_normaliser, **CLOSE[dtype])
            np.testing.assert_allclose(scorer.log_probs(hidden, some), exact.log_probs(hidden, some), **CLOSE[dtype])


@every_dtype
@every_seed
def test_what_is_returned_is_true_of_the_active_set(seed: int, dtype: torch.dtype) -> None:
    """Scores are the exact projection's, ids its best among the active, probabilities the softmax over these."""
    weight, bias, hidden = case(seed, dtype, 40)
    screen, random = random_screen(seed, weight), np.random.default_rng(seed)
    scorer = TorchScreenScorer(screen, weight, bias, copies=seed % 3 == 0)
    banned = np.where(random.random((40, 5)) < 0.5, random.integers(0, VOCABULARY, (40, 5)), -1)
    found, active = scorer.top_k(hidden, 7, banned, normalise=True), recorded.active_tokens(scorer, hidden)
    every = (hidden @ weight.T + bias).numpy()
    probabilities = scorer.log_probs(hidden, np.tile(np.arange(VOCABULARY), (40, 1)))
    for row in range(40):
        assert np.array_equal(active[row], screen.sets[found.cluster[row]])
        assert found.num_active[row] == len(active[row])
        allowed = np.setdiff1d(active[row], banned[row])
        order = allowed[np.argsort(-every[row, allowed], kind="stable")][:7]
        assert found.ids[row].tolist() == [*order, *[-1] * (7 - len(order))]
        np.testing.assert_allclose(found.scores[row, : len(order)], every[row, order], **CLOSE[dtype])
        assert (found.scores[row, len(order) :] == -np.inf).all()
        exact = every[row, active[row]].astype(np.float64)
        total = np.log(np.exp(exact - exact.max()).sum()) + exact.max()
        np.testing.assert_allclose(found.log_normaliser[row], total, **CLOSE[dtype])
        np.testing.assert_allclose(probabilities[row, active[row]], exact - total, **CLOSE[dtype])
        assert np.isneginf(np.delete(probabilities[row], active[row])).all()


def row_alone_and_beside_others(scorer: TorchScreenScorer, hidden: torch.Tensor, seed: int) -> None:
    random = np.random.default_rng(seed)
    alone = [scorer.top_k(row[None], 3, normalise=True) for row in hidden]
    for count in (2, 33, len(hidden)):
        rows = random.choice(len(hidden), count, replace=False)
        together = scorer.top_k(hidden[rows], 3, normalise=True)
        for place, row in enumerate(rows):
            for name in ("ids", "num_active", "cluster"):
                assert np.array_equal(getattr(together, name)[place], getattr(alone[row], name)[0]), name
            for name in ("scores", "log_normaliser"):
                close = CLOSE[scorer.weight.dtype]
                np.testing.assert_allclose(getattr(together, name)[place], getattr(alone[row], name)[0], **close)


@every_dtype
@every_seed
def test_a_row_has_the_set_it_has_alone(seed: int, dtype: torch.dtype) -> None:
    weight, bias, hidden = case(seed, dtype)
    row_alone_and_beside_others(TorchScreenScorer(random_screen(seed, weight), weight, bias), hidden, seed)


def test_the_law_of_single_rows_catches_shared_sets() -> None:
    weight, bias, hidden = case(3, torch.float64)
    shared = TorchScreenScorer(random_screen(3, weight, empty=False), weight, bias, shared=True)
    with pytest.raises(AssertionError):
        row_alone_and_beside_others(shared, hidden, 3)


@every_dtype
@every_seed
def test_clusters_are_the_nearest(seed: int, dtype: torch.dtype) -> None:
    """Euclidean for Amer et al., without the absolute value that eq. 2 seems to print; the highest product for Chen et al."""
    weight, _, hidden = case(seed, dtype)
    points = recorded.clumps(np.random.default_rng(seed + 1), weight.float().numpy(), 11)
    sets, places, h = ActiveSets.of([[0]] * 11, VOCABULARY), np.arange(len(hidden)), hidden.numpy()
    distances, products = ((h[:, None] - points) ** 2).sum(2), h @ points.T.astype(h.dtype)
    clustered, screened = (
        TorchScreenScorer(Screen(method, points, sets), weight).top_k(hidden, 1).cluster
        for method in ("clustered", "screened")
    )
    np.testing.assert_allclose(distances[places, clustered], distances.min(1), **CLOSE[dtype])
    np.testing.assert_allclose(products[places, screened], products.max(1), **CLOSE[dtype])
    itself = TorchScreenScorer(Screen("clustered", points, sets), weight).top_k(torch.from_numpy(points), 1)
    assert itself.cluster.tolist() == list(range(11))


def test_equal_clusters_and_equal_scores_go_to_the_lowest() -> None:
    points = np.array([[0, 1], [1, 0], [1, 0], [1, 0]], dtype=np.float32)
    weight = torch.tensor([[0.0, 1], [1, 0], [1, 0], [0, 0], [1, 0]], dtype=torch.float64)
    screen = Screen("screened", points, ActiveSets.of([[0, 3], [0, 2, 3, 4], [1], [1]], 5))
    found = TorchScreenScorer(screen, weight).top_k(torch.tensor([[2.0, 1], [0, 0]]), 3)
    assert found.cluster.tolist() == [1, 0]
    assert found.ids.tolist() == [[2, 4, 0], [0, 3, -1]] and found.scores.tolist() == [[2, 2, 1], [0, 0, -np.inf]]
    wide = np.random.default_rng(0).integers(-2, 3, (200, 6))  # whole numbers: products without rounding, and ties
    screen = Screen("screened", np.zeros((1, 6), np.float32), ActiveSets.of([range(1, 200, 2)], 200))
    for dtype in DTYPES:
        hidden = torch.from_numpy(np.random.default_rng(1).integers(-2, 3, (30, 6))).to(dtype)
        scores = wide[1::2] @ hidden.numpy().T
        for k in (1, 2, 5, 150):
            found = TorchScreenScorer(screen, torch.from_numpy(wide).to(dtype)).top_k(hidden, k)
            wanted = 1 + 2 * np.argsort(-scores.T, axis=1, kind="stable")[:, :k]
            assert np.array_equal(found.ids[:, :100], wanted) and (found.ids[:, 100:] == -1).all()


@every_dtype
@every_seed
def test_shared_sets_are_the_union(seed: int, dtype: torch.dtype) -> None:
    """Amer et al., section 3, step 2: one union for the batch, over which all rows are normalised; alone it is the row's own."""
    weight, bias, hidden = case(seed, dtype, 9)
    screen = random_screen(seed, weight, empty=False)
    shared, own = TorchScreenScorer(screen, weight, bias, shared=True), TorchScreenScorer(screen, weight, bias)
    found = shared.top_k(hidden, 5, np.array([3]), normalise=True)
    union = np.unique(np.concatenate(recorded.active_tokens(own, hidden)))
    assert (found.num_active == len(union)).all() and all(
        np.array_equal(a, union) for a in recorded.active_tokens(shared, hidden)
    )
    every = (hidden @ weight.T + bias).numpy()[:, union]
    order = np.argsort(np.where(union == 3, np.inf, -every), axis=1, kind="stable")[:, :5]
    left = min(5, len(union) - (3 in union))
    assert np.array_equal(found.ids[:, :left], union[order[:, :left]]) and (found.ids[:, left:] == -1).all()
    np.testing.assert_allclose(found.log_normaliser, np.log(np.exp(every.astype(float)).sum(1)), **CLOSE[dtype])
    ids, scores = shared.active_scores(hidden)
    assert (ids == union).all()
    np.testing.assert_allclose(scores, every, **CLOSE[dtype])
    some = np.tile(np.arange(VOCABULARY), (9, 1))
    assert np.isneginf(shared.log_probs(hidden, some)).sum() == 9 * (VOCABULARY - len(union))
    single, wanted = shared.top_k(hidden[:1], 5), own.top_k(hidden[:1], 5)
    for name in ("ids", "scores", "num_active", "cluster"):
        assert np.array_equal(getattr(single, name), getattr(wanted, name)), name


@every_seed
def test_it_is_what_the_compiled_engine_does(seed: int) -> None:
    weight, bias, hidden = case(seed, torch.float32)
    screen = random_screen(seed, weight)
    for shared in (False, True):
        ours = TorchScreenScorer(screen, weight, bias[None], shared=shared)  # some checkpoints have it as one row
        theirs = ScreenScorer(screen, Matrix.of(weight.numpy(), bias.numpy()), shared=shared)
        found, wanted = (scorer.top_k(hidden, 6, np.array([0, 7]), normalise=True) for scorer in (ours, theirs))
        for name in ("ids", "num_active", "cluster"):
            one, other = getattr(found, name), getattr(wanted, name)
            assert np.array_equal(one, other) and one.dtype == other.dtype, name
        for name in ("scores", "log_normaliser"):
            np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-4, atol=1e-4)
        assert (ours.name, found.support) == (theirs.name, wanted.support)
        for cluster in range(len(screen.sets)):
            assert ours.describe(cluster, 4) == theirs.describe(cluster, 4)
        if not shared:
            for one, other in zip(ours.active_scores(hidden), theirs.active_scores(hidden), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_precisions_run(dtype: torch.dtype) -> None:
    weight, bias, hidden = case(0, dtype)
    scorer = TorchScreenScorer(random_screen(0, weight), weight, bias)
    found = scorer.top_k(hidden, 3, normalise=True)
    assert found.scores.dtype == np.float32
    assert (found.scores[:, 0] - found.log_normaliser <= 1e-6).all()


@pytest.mark.parametrize("projection", ["quantised", "clustered", "screened"])
def test_hidden_vectors_in_bfloat16_are_read(projection: str) -> None:
    model = load("tatoeba-small", engine="torch", dtype="bfloat16", device="cpu")
    session = Session.of(model, "en", "de", projection=projection)
    hidden = torch.randn(4, 256, generator=torch.Generator().manual_seed(0)).bfloat16()
    found, wanted = (session.projection.bind(None).top_k(rows, 2) for rows in (hidden, hidden.float().numpy()))
    np.testing.assert_array_equal(found.ids, wanted.ids)
    assert session.translate("The train is late.").text


@pytest.mark.parametrize("decoder", ["jacobi", "gauss_seidel:block=3", "window"])
def test_parallel_decoding_stays_lossless(marian: Any, decoder: str) -> None:
    """In float64, a screen with sets of its own for each row gives greedy's tokens in every order of decoding."""
    output = marian.network.outputs[0]
    for seed in (0, 1):
        random = np.random.default_rng(seed)
        sets = [random.choice(output.vocabulary, 60, replace=False) for _ in range(5)]
        points = random.normal(size=(5, output.weight.shape[1])).astype(np.float32)
        screen = Screen("screened", points, ActiveSets.of(sets, output.vocabulary).with_always([0]))
        scorer = TorchScreenScorer(screen, output.weight, output.bias)
        for text in fakes.own_sentences()["en"][:4]:
            found, wanted = (
                translate(marian, text, source="en", target="de", decoder=d, projection=scorer, max_length=20)
                for d in (decoder, "greedy")
            )
            assert found.tokens == wanted.tokens


def test_memory_is_counted_and_a_copy_is_the_same() -> None:
    weight, bias, hidden = case(1, torch.float64)
    screen = random_screen(1, weight)
    gathers, copies = (TorchScreenScorer(screen, weight, bias, copies=choice) for choice in (False, True))
    assert copies.memory_bytes - gathers.memory_bytes == len(screen.sets.ids) * weight.shape[1] * 8
    one, other = (scorer.top_k(hidden, 3) for scorer in (copies, copy.deepcopy(copies)))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    nothing = gathers.top_k(hidden[:0], 3, normalise=True)
    assert nothing.ids.shape == (0, 3) and len(nothing.num_active) == len(nothing.log_normaliser) == 0
    assert len(TorchScreenScorer(screen, weight, bias, shared=True).top_k(hidden[:0], 3).ids) == 0
    unbanned = gathers.top_k(hidden, 3, np.zeros(0, dtype=np.int64))
    assert np.array_equal(unbanned.ids, one.ids)


def test_bad_input() -> None:
    weight, bias, hidden = case(0, torch.float64)
    screen = random_screen(0, weight)
    scorer = TorchScreenScorer(screen, weight, bias)
    for call, message in (
        (
            lambda: TorchScreenScorer(screen, weight[:, :4]),
            "another model's: got one of width 5 and vocabulary 130, .* 4",
        ),
        (lambda: TorchScreenScorer(screen, weight, kernels="cuda"), "Unknown kernels: got 'cuda'. Use 'auto'"),  # type: ignore[arg-type]
        (lambda: scorer.top_k(hidden[:, :3], 1), r"width 5, got \(60, 3\). Use the projection of the same model"),
        (lambda: scorer.top_k(hidden, 0), "k from 1, got 0. Ask for one"),
        (lambda: scorer.top_k(hidden, 1, np.zeros((2, 1))), r"banned ids .* got \(2, 1\) for 60"),
        (lambda: scorer.top_k(hidden, 1, np.array([130])), "Unknown id among the banned tokens: got 130"),
        (lambda: scorer.log_probs(hidden, np.zeros(60)), r"log_probs needs ids \(N, M\): got \(60,\)"),
        (lambda: scorer.log_probs(hidden, np.full((60, 1), 130)), "Unknown id among the tokens to score: got 130"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
