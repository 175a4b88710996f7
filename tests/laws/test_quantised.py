"""The lossless projection gives the exact one's tokens and scores, bit for bit, ties included."""

import copy

import numpy as np
import pytest
import recorded

from fastdecode_lib.kernels import cpu
from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.kernels.tiles import BFLOAT16, FLOAT16, FLOAT32, FLOATS, Format
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.projections.quantised import Quantised

SEEDS = range(40)


def assert_equal(matrix: Matrix, hidden: np.ndarray, k: int, banned: np.ndarray | None = None) -> np.ndarray:
    quantised = Quantised(matrix)
    wanted = CompiledExact(matrix).top_k(hidden, k, banned)
    found, rescored = quantised.top_k_counted(np.ascontiguousarray(hidden, dtype=np.float32), k, banned)
    assert np.array_equal(found.ids, wanted.ids)
    assert np.array_equal(found.scores, wanted.scores)
    return rescored


def stored(weight: np.ndarray, form: Format) -> np.ndarray:
    """The weight, rounded to what a format holds."""
    whole = weight.astype(np.float32)
    if form == FLOAT16:
        return np.clip(whole, -6e4, 6e4).astype(np.float16).astype(np.float32)
    return (whole.view(np.uint32) & 0xFFFF0000).view(np.float32) if form == BFLOAT16 else whole


@pytest.mark.parametrize("form", FLOATS, ids=lambda form: form.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_outputs(seed: int, form: Format) -> None:
    """Of all sizes and scales, with and without bias, isotropic and not, and however the exact weights are stored."""
    random = np.random.default_rng(seed)
    vocabulary, width = int(random.integers(1, 900)), int(random.integers(1, 140))
    weight, bias = recorded.weight_of(random, vocabulary, width)
    if seed % 3 == 0:
        weight = random.normal(size=weight.shape)
    scale = 10.0 ** random.integers(-6, 6)
    matrix = Matrix.of(stored(weight * scale, form), bias if seed % 2 else None)
    assert (matrix.format == FLOAT32) == (form == FLOAT32) or "f16c" not in cpu.features()
    hidden = recorded.clumps(random, weight, 50) * 10.0 ** random.integers(-3, 4)
    for k in {1, min(5, vocabulary), vocabulary}:
        assert_equal(matrix, hidden, k)
    banned = np.where(random.random((50, 7)) < 0.5, random.integers(0, vocabulary, (50, 7)), -1)
    assert_equal(matrix, hidden, min(3, vocabulary), banned)
    assert_equal(matrix, hidden, 1, np.arange(vocabulary))


@pytest.mark.parametrize("seed", SEEDS)
def test_adversarial_outputs(seed: int) -> None:
    """Equal rows, rows that differ by one unit in the last place, rows of very different lengths, empty ones, and outliers."""
    random = np.random.default_rng(seed)
    width = int(random.integers(2, 70))
    base = random.normal(size=(40, width)).astype(np.float32)
    twins = base[random.integers(0, 40, 600)]
    near = np.nextafter(twins, np.float32(np.inf) * random.choice([-1, 1], twins.shape).astype(np.float32))
    weight = np.where(random.random((600, 1)) < 0.5, twins, near)
    weight[::7] *= np.float32(1e-8)
    weight[::11] = 0
    weight[::13, 0] = 1e4
    bias = random.choice([0, 0, 1e-7, -1e-7], 600)
    matrix = Matrix.of(weight, bias)
    hidden = np.concatenate([base, -base, np.zeros((1, width)), np.full((1, width), 1e-30), 1e6 * base[:3]])
    for k in (1, 5, 64):
        assert_equal(matrix, hidden, k)


def test_equal_scores_are_all_looked_at() -> None:
    matrix = Matrix.of(np.ones((700, 8)))
    rescored = assert_equal(matrix, np.ones((3, 8)), 2)
    assert (rescored == 700).all()
    assert Quantised(matrix).top_k(np.ones((1, 8)), 2).ids.tolist() == [[0, 1]]


@pytest.mark.parametrize("seed", range(10))
def test_few_tokens_are_scored_again_and_company_changes_nothing(seed: int) -> None:
    random = np.random.default_rng(seed)
    weight, bias = recorded.weight_of(random, 3_000, 48)
    matrix, hidden = Matrix.of(weight, bias), recorded.clumps(random, weight, 120)
    assert assert_equal(matrix, hidden, 1).mean() < 30
    quantised = Quantised(matrix)
    together = quantised.top_k(hidden, 4)
    for other in (quantised, copy.deepcopy(quantised)):
        alone = [other.top_k(row[None], 4) for row in hidden]
        assert all(np.array_equal(a.ids[0], ids) for a, ids in zip(alone, together.ids, strict=True))
        assert all(np.array_equal(a.scores[0], scores) for a, scores in zip(alone, together.scores, strict=True))


@pytest.mark.parametrize("seed", range(10))
def test_probabilities_are_exact(seed: int) -> None:
    random = np.random.default_rng(seed)
    weight, bias = recorded.weight_of(random, 400, 30)
    matrix, hidden = Matrix.of(weight, bias), recorded.clumps(random, weight, 20)
    quantised, exact = Quantised(matrix), CompiledExact(matrix)
    found, wanted = (each.top_k(hidden, 3, normalise=True) for each in (quantised, exact))
    assert np.array_equal(found.log_normaliser, wanted.log_normaliser)
    assert np.array_equal(quantised.log_probs(hidden, found.ids), exact.log_probs(hidden, found.ids))


def test_what_is_no_number_is_refused_as_by_the_exact_projection() -> None:
    matrix = Matrix.of(np.random.default_rng(0).normal(size=(50, 6)))
    hidden = np.ones((3, 6), np.float32)
    hidden[1, 2] = np.inf
    found, wanted = Quantised(matrix).top_k(hidden, 2), CompiledExact(matrix).top_k(hidden, 2)
    assert np.array_equal(found.ids, wanted.ids) and np.array_equal(found.scores, wanted.scores)
    hidden[0, 1] = np.nan
    for projection in (Quantised(matrix), CompiledExact(matrix)):
        with pytest.raises(ValueError, match="Scores must be numbers: got hidden vectors .* at 2 of 3 positions"):
            projection.top_k(hidden, 2)


def test_bad_input() -> None:
    matrix = Matrix.of(np.ones((50, 6)))
    for call, message in (
        (lambda: Quantised(Matrix.of(np.ones((50, 6)), precision="int8")), "gives what float32 gives: got .* in int8"),
        (lambda: Quantised(Matrix.of(np.full((50, 6), np.inf))), "quantised needs finite weights"),
        (lambda: Quantised(matrix).top_k(np.ones((1, 6)), 51), "k from 1 to the vocabulary's size 50, got 51"),
        (lambda: Quantised(matrix).top_k(np.ones((1, 5)), 1), r"width 6, got \(1, 5\)"),
        (
            lambda: Quantised(matrix).top_k(np.ones((1, 6)), 1, np.array([50])),
            "Unknown id among the banned tokens: got 50",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("of_weights", "of_vectors"),
    [(1e-22, 1e-23), (3e-24, 3e-24), (1.0, 1e37), (1e20, 1e18), (1e-44, 1.0), (1e30, 1e-30)],
)
def test_it_is_exact_to_the_ends_of_float32(of_weights: float, of_vectors: float) -> None:
    """Where products underflow no bound is relative, and where they overflow none is finite."""
    random = np.random.default_rng(7)
    weight = (random.normal(size=(600, 200)) * of_weights).astype(np.float32)
    hidden = (random.normal(size=(64, 200)) * of_vectors).astype(np.float32)
    matrix = Matrix.of(weight)
    with np.errstate(over="ignore"):
        found, wanted = Quantised(matrix).top_k(hidden, 5), CompiledExact(matrix).top_k(hidden, 5)
    assert np.array_equal(found.ids, wanted.ids) and np.array_equal(found.scores, wanted.scores)
