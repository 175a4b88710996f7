"""Candidates by inner product search: exact at full effort, defined by plain code below it, each row by itself."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import active_tokens

from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.papers.shared.projection_runs import bytes_read
from fastdecode_lib.projections.ann_indexes import Fgd, Scann
from fastdecode_lib.projections.factored import Svd
from fastdecode_lib.projections.mips import GreedyMips, LshMips, PcaMips, RowClusters, lengthened
from fastdecode_lib.projections.shortlists import Listed

seeds = st.integers(0, 2**31)
Maker = Callable[[Any, Any], Listed]

FULL: dict[str, Maker] = {
    "greedy_mips": lambda w, b: GreedyMips.fit(w, b, budget=len(w)),
    "lsh_mips": lambda w, b: LshMips.fit(w, b, tables=2, bits=0),
    "pca_mips": lambda w, b: PcaMips.fit(w, b, depth=0),
    "row_clusters": lambda w, b: RowClusters.fit(w, b, clusters=min(7, len(w)), probes=min(7, len(w)), iterations=3),
    "fgd": lambda w, b: Fgd.fit(w, b, neighbours=len(w), search=len(w), links=64),
}
SOME: dict[str, Maker] = {
    "greedy_mips": lambda w, b: GreedyMips.fit(w, b, budget=max(1, len(w) // 3)),
    "lsh_mips": lambda w, b: LshMips.fit(w, b, tables=3, bits=3),
    "pca_mips": lambda w, b: PcaMips.fit(w, b, depth=min(2, len(w).bit_length() - 1), detours=True),
    "row_clusters": lambda w, b: RowClusters.fit(w, b, clusters=min(7, len(w)), probes=min(2, len(w)), iterations=3),
    "fgd": lambda w, b: Fgd.fit(w, b, neighbours=min(9, len(w)), search=12),
}
methods = pytest.mark.parametrize("name", FULL)


def output_layer(seed: int, vocabulary: int, width: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Weight, bias and a function that draws hidden vectors: topics of low rank, tokens by Zipf's law, lowest id first."""
    random = np.random.default_rng(seed)
    topics, mixture = random.normal(size=(12, 8)), random.normal(size=(8, width)) / 3
    rows = topics[random.integers(12, size=vocabulary)] + random.normal(size=(vocabulary, 8)) / 2
    weight = (rows @ mixture + random.normal(size=(vocabulary, width)) / 10).astype(np.float32)
    ranks = np.arange(1, vocabulary + 1)
    bias = (-0.3 * np.log(ranks)).astype(np.float32)

    def draw(count: int) -> np.ndarray:
        chosen = weight[random.choice(vocabulary, size=count, p=1 / ranks / (1 / ranks).sum())]
        noise = random.normal(size=(count, width)) / 4
        return (4 * chosen / np.linalg.norm(chosen, axis=1, keepdims=True) + noise).astype(np.float32)

    return weight, bias, draw


def whole_numbers(seed: int, vocabulary: int, width: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weight, bias and hidden of small integers: products are exact in float32, and ties are frequent."""
    random = np.random.default_rng(seed)
    sizes = ((vocabulary, width), vocabulary, (rows, width))
    weight, bias, hidden = (random.integers(-2, 3, size=size).astype(np.float32) for size in sizes)
    return weight, bias, hidden


def best(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best ids and scores of rows (N, V), of equals the lowest id; -1 and -inf beyond V."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    found = np.take_along_axis(scores, order, 1)
    order = np.where(np.isneginf(found), -1, order)
    padding = ((0, 0), (0, max(0, k - scores.shape[1])))
    return np.pad(order, padding, constant_values=-1), np.pad(found, padding, constant_values=-np.inf)


def log_sum(scores: np.ndarray) -> np.ndarray:
    top = scores.max(1, keepdims=True)
    return np.log(np.exp(scores - top).sum(1)) + top[:, 0]


def shapes(seed: int) -> tuple[int, int, int]:
    """Vocabulary, width and rows: widths below, at and beside multiples of 16, and more rows than go together."""
    random = np.random.default_rng(seed)
    return (
        int(random.integers(1, 60)),
        int(random.choice([1, 3, 15, 16, 17, 33, 48, 50])),
        int(random.choice([1, 2, 40])),
    )


# ---------------------------------------------------------------------------------------------------------------- laws


@methods
@settings(max_examples=25)
@given(seeds, st.integers(1, 70), st.booleans(), st.sampled_from(["none", "all", "each"]))
def test_full_effort_is_exact(name: str, seed: int, k: int, biased: bool, refused: str) -> None:
    vocabulary, width, rows = shapes(seed)
    weight, bias, hidden = whole_numbers(seed, vocabulary, width, rows)
    bias = bias if biased else np.zeros_like(bias)
    projection = FULL[name](weight, bias if biased else None)
    random = np.random.default_rng(seed)
    scores = hidden @ weight.T + bias
    open_scores, banned = scores.copy(), None
    if refused == "all":
        banned = random.integers(0, vocabulary, size=3)
        open_scores[:, banned] = -np.inf
    elif refused == "each":
        banned = random.integers(-1, vocabulary, size=(rows, 2))
        for row, own in enumerate(banned):
            open_scores[row, own[own >= 0]] = -np.inf
    found = projection.bind(None).top_k(hidden, k, banned, normalise=True)
    ids, values = best(open_scores, k)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.scores, values)
    np.testing.assert_array_equal(found.num_active, vocabulary)
    assert found.support == "active" and found.log_normaliser is not None
    np.testing.assert_allclose(found.log_normaliser, log_sum(scores.astype(np.float64)), rtol=1e-5, atol=1e-5)
    everything = np.tile(np.arange(vocabulary), (rows, 1))
    expected = scores - log_sum(scores.astype(np.float64))[:, None]
    np.testing.assert_allclose(projection.log_probs(hidden, everything), expected, rtol=1e-5, atol=1e-5)


@methods
@settings(max_examples=15)
@given(seeds, st.integers(1, 12), st.booleans())
def test_less_effort_is_exact_among_the_active(name: str, seed: int, k: int, banning: bool) -> None:
    vocabulary, width, rows = shapes(seed)
    weight, bias, draw = output_layer(seed, vocabulary, width)
    hidden, projection = draw(rows), SOME[name](weight, bias)
    scores = hidden.astype(np.float64) @ weight.T.astype(np.float64) + bias
    listed = projection.active_scores(hidden)
    inside = np.full(scores.shape, -np.inf)
    for row, (ids, values) in enumerate(zip(listed.ids, listed.scores, strict=True)):
        count = int((ids >= 0).sum())
        assert (np.diff(ids[:count]) > 0).all() and (ids[count:] == -1).all() and np.isneginf(values[count:]).all()
        np.testing.assert_allclose(values[:count], scores[row, ids[:count]], rtol=1e-4, atol=1e-4)
        inside[row, ids[:count]] = values[:count]
    banned = np.array([0, vocabulary // 2]) if banning else None
    found = projection.top_k(hidden, k, banned, normalise=True)
    np.testing.assert_array_equal(found.num_active, (listed.ids >= 0).sum(1))
    assert found.num_active.max() <= projection.longest and found.log_normaliser is not None
    open_scores = inside.copy()
    open_scores[:, [] if banned is None else banned] = -np.inf
    ids, values = best(open_scores, k)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.scores, values)
    with np.errstate(invalid="ignore", divide="ignore"):
        normaliser = np.where(found.num_active > 0, log_sum(inside), 0)
    np.testing.assert_allclose(found.log_normaliser, normaliser, rtol=1e-5, atol=1e-5)
    everything = np.tile(np.arange(vocabulary), (rows, 1))
    np.testing.assert_allclose(
        projection.log_probs(hidden, everything), inside - normaliser[:, None], rtol=1e-5, atol=1e-5
    )


@methods
@settings(max_examples=8)
@given(seeds)
def test_a_row_knows_nothing_of_its_batch(name: str, seed: int) -> None:
    weight, bias, draw = output_layer(seed, 90, int(np.random.default_rng(seed).choice([7, 16, 40, 50])))
    hidden, projection = draw(37), SOME[name](weight, bias)
    order = np.random.default_rng(seed).permutation(len(hidden))
    wanted = np.random.default_rng(seed).integers(0, 90, size=(len(hidden), 4))
    together, shuffled = (projection.top_k(rows, 6, normalise=True) for rows in (hidden, hidden[order]))
    log_probs = projection.log_probs(hidden, wanted)
    for field in ("ids", "scores", "num_active", "log_normaliser"):
        np.testing.assert_array_equal(getattr(together, field)[order], getattr(shuffled, field))
    for row in range(len(hidden)):
        alone = projection.top_k(hidden[row : row + 1], 6, normalise=True)
        for field in ("ids", "scores", "num_active", "log_normaliser"):
            np.testing.assert_array_equal(getattr(together, field)[row], getattr(alone, field)[0])
        np.testing.assert_array_equal(
            log_probs[row], projection.log_probs(hidden[row : row + 1], wanted[row : row + 1])[0]
        )


@methods
def test_a_row_that_is_no_number_disturbs_no_other(name: str) -> None:
    weight, bias, draw = output_layer(3, 90, 20)
    hidden, projection = draw(5), SOME[name](weight, bias)
    expected = projection.top_k(hidden, 4, normalise=True)
    broken = hidden.copy()
    broken[1, 3], broken[3, 0] = np.nan, np.inf
    found = projection.top_k(broken, 4, normalise=True)
    for row in (0, 2, 4):
        np.testing.assert_array_equal(found.ids[row], expected.ids[row])
        np.testing.assert_array_equal(found.scores[row], expected.scores[row])
    np.testing.assert_array_equal(found.ids[1], -1)


def fit_fgd(weight: np.ndarray, knobs: dict[str, Any], bias: Any = None) -> Fgd:
    return Fgd.fit(weight, bias, **knobs)


def recall(projection: Any, hidden: np.ndarray, exact: np.ndarray) -> float:
    found = projection.top_k(hidden, exact.shape[1]).ids
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found, exact, strict=True)]))


@pytest.mark.parametrize(
    ("name", "knob", "values", "least"),
    [
        ("greedy_mips", "budget", (10, 50, 200, 600), 1.0),
        ("lsh_mips", "tables", (1, 4, 16, 64), 0.9),
        ("pca_mips", "depth", (5, 3, 1, 0), 1.0),
        ("row_clusters", "probes", (1, 3, 10, 25), 1.0),
        ("fgd", "search", (6, 12, 50, 600), 0.99),
        ("fgd", "neighbours", (5, 10, 50, 600), 0.99),
    ],
)
def test_more_effort_finds_more(name: str, knob: str, values: tuple[int, ...], least: float) -> None:
    weight, bias, draw = output_layer(7, 600, 40)
    hidden = draw(200)
    exact, _ = best(hidden.astype(np.float64) @ weight.T + bias, 5)
    made: dict[str, Callable[[int], Listed]] = {
        "greedy_mips": lambda value: GreedyMips.fit(weight, bias, budget=value),
        "lsh_mips": lambda value: LshMips.fit(weight, bias, tables=value, bits=6),
        "pca_mips": lambda value: PcaMips.fit(weight, bias, depth=value, detours=False),
        "row_clusters": lambda value: RowClusters.fit(weight, bias, clusters=25, probes=value),
        "fgd": lambda value: fit_fgd(weight, {"neighbours": 5, "search": 5, knob: value}, bias),
    }
    projections = [made[name](value) for value in values]
    found = [recall(projection, hidden, exact) for projection in projections]
    assert found == sorted(found) and found[-1] >= least and found[0] < found[-1], found
    read = [bytes_read(p, float(p.top_k(hidden, 1).num_active.mean())) for p in projections]
    assert read[0] < read[-1]


# ------------------------------------------------------------------------------------------ definitions, in plain code


@settings(max_examples=20)
@given(seeds)
def test_greedy_candidates_have_the_largest_single_products(seed: int) -> None:
    random = np.random.default_rng(seed)
    weight, bias, hidden = random.normal(size=(30, 5)), random.normal(size=30), random.normal(size=(6, 5))
    hidden[0, 2], hidden[1] = 0, 0
    budget = int(random.integers(1, 31))
    active = active_tokens(GreedyMips.fit(weight, bias, budget=budget), hidden)
    rows, queries = np.concatenate([weight, bias[:, None]], 1), np.concatenate([hidden, np.ones((6, 1))], 1)
    for query, own in zip(queries, active, strict=True):
        products = (rows * query)[:, query != 0]
        largest = np.sort(products.max(1))[::-1][:budget]
        np.testing.assert_allclose(np.sort(products.max(1)[own])[::-1], largest)


@settings(max_examples=20)
@given(seeds)
def test_the_nearest_lengthened_row_is_the_best(seed: int) -> None:
    weight, bias, draw = output_layer(seed, 40, 9)
    rows = lengthened(weight, bias).astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), np.linalg.norm(rows[0]), rtol=1e-5)
    queries = np.concatenate([draw(5), np.ones((5, 1)), np.zeros((5, 1))], 1).astype(np.float64)
    distances = ((queries[:, None] - rows[None]) ** 2).sum(2)
    scores = queries[:, :-2] @ weight.T.astype(np.float64) + bias
    constant = distances + 2 * scores
    np.testing.assert_allclose(constant, np.broadcast_to(constant[:, :1], constant.shape), rtol=1e-5)


@settings(max_examples=20)
@given(seeds)
def test_hashed_candidates_are_on_the_same_sides_in_one_table(seed: int) -> None:
    weight, bias, draw = output_layer(seed, 50, 6)
    hidden, projection = draw(8), LshMips.fit(weight, bias, tables=3, bits=4, seed=seed)
    normals = np.random.default_rng(seed).standard_normal((12, 8), dtype=np.float32)
    queries = np.concatenate([hidden, np.ones((8, 1)), np.zeros((8, 1))], 1)
    sides = [(x @ normals.T >= 0).reshape(-1, 3, 4) for x in (queries, lengthened(weight, bias))]
    same = (sides[0][:, None] == sides[1][None]).all(3).any(2)
    for row, active in enumerate(active_tokens(projection, hidden)):
        np.testing.assert_array_equal(active, np.flatnonzero(same[row]))


@settings(max_examples=20)
@given(seeds, st.integers(0, 4))
def test_a_tree_divides_the_rows_evenly(seed: int, depth: int) -> None:
    weight, bias, draw = output_layer(seed, 53, 10)
    tree = PcaMips.fit(weight, bias, depth=depth, detours=False)
    sizes = np.diff(tree.offsets)
    assert len(sizes) == 2**depth and sizes.max() - sizes.min() <= 1 and sizes.sum() == 53
    np.testing.assert_array_equal(np.sort(tree.order), np.arange(53))
    np.testing.assert_array_equal(tree.weight, weight[tree.order])
    leaves = [set(tree.order[a:b]) for a, b in zip(tree.offsets[:-1], tree.offsets[1:], strict=True)]
    hidden = draw(12)
    wide = replace(tree, detours=True)
    for own, more in zip(active_tokens(tree, hidden), active_tokens(wide, hidden), strict=True):
        assert set(own) in leaves and set(own) <= set(more)
        assert sum(leaf <= set(more) for leaf in leaves) == depth + 1


def test_a_tree_leads_a_row_to_its_own_leaf() -> None:
    """Of a layer whose rows all have the same length, a row brought to that length is its own query."""
    random = np.random.default_rng(3)
    weight = random.normal(size=(64, 8))
    rows = np.concatenate([weight, np.ones((64, 1))], 1)
    weight = rows[:, :-1] * (5 / np.linalg.norm(rows[:, :-1], axis=1, keepdims=True))
    tree = PcaMips.fit(weight, np.ones(64), depth=4, detours=False)
    assert all(token in own for token, own in enumerate(active_tokens(tree, weight)))


@settings(max_examples=20)
@given(seeds, st.integers(1, 6))
def test_clusters_of_the_best_mean_score_are_probed(seed: int, probes: int) -> None:
    weight, bias, draw = output_layer(seed, 50, 6)
    projection, hidden = RowClusters.fit(weight, bias, clusters=6, probes=probes), draw(8)
    clusters = np.split(projection.order, projection.offsets[1:-1])
    scores = hidden.astype(np.float64) @ weight.T + bias
    means = np.stack([scores[:, own].mean(1) for own in clusters], 1)
    for row, active in enumerate(active_tokens(projection, hidden)):
        probed = np.argsort(-means[row])[: projection.probes]
        np.testing.assert_array_equal(active, np.sort(np.concatenate([clusters[i] for i in probed])))


def test_directions_not_sizes_make_clusters() -> None:
    """Two bundles of rows of very different lengths are two clusters."""
    random = np.random.default_rng(0)
    directions = np.repeat(np.eye(2, 5), 20, axis=0) + random.normal(size=(40, 5)) / 50
    weight = directions * random.uniform(0.1, 10, size=(40, 1))
    projection = RowClusters.fit(weight, clusters=2, probes=1)
    assert [set(part) for part in np.split(projection.order, projection.offsets[1:-1])] in (
        [set(range(20)), set(range(20, 40))],
        [set(range(20, 40)), set(range(20))],
    )


# --------------------------------------------------------------------------------------------------- copies and threads


@methods
def test_a_copy_is_the_same(name: str) -> None:
    weight, bias, draw = output_layer(5, 120, 20)
    projection, hidden = replace(SOME[name](weight, bias), fingerprint="abc"), draw(30)
    assert projection.memory_bytes > weight.nbytes and "array" not in repr(projection)
    first = projection.top_k(hidden, 7, normalise=True)
    for other in (copy.deepcopy(projection), replace(projection, fingerprint="")):
        found = other.top_k(hidden, 7, normalise=True)
        for field in ("ids", "scores", "num_active", "log_normaliser"):
            np.testing.assert_array_equal(getattr(found, field), getattr(first, field))


@methods
def test_threads_do_not_meet(name: str) -> None:
    weight, bias, draw = output_layer(6, 300, 40)
    projection, parts = SOME[name](weight, bias), [draw(20) for _ in range(12)]
    alone = [projection.top_k(part, 5) for part in parts]
    with ThreadPoolExecutor(4) as pool:
        for expected, found in zip(alone, pool.map(lambda part: projection.top_k(part, 5), parts * 5), strict=False):
            np.testing.assert_array_equal(expected.ids, found.ids)
            np.testing.assert_array_equal(expected.scores, found.scores)


@methods
def test_fitting_is_repeatable(name: str) -> None:
    weight, bias, draw = output_layer(8, 150, 20)
    hidden = draw(40)
    first, second = (SOME[name](weight, bias).top_k(hidden, 5) for _ in range(2))
    np.testing.assert_array_equal(first.ids, second.ids)


@methods
def test_hidden_vectors_come_in_many_forms(name: str) -> None:
    weight, bias, draw = output_layer(9, 60, 16)
    projection, hidden = SOME[name](torch.from_numpy(weight), torch.from_numpy(bias)), draw(6)
    expected = projection.top_k(hidden, 3)
    locked = hidden.copy()
    locked.flags.writeable = False
    columns = np.asfortranarray(hidden)
    for form in (
        torch.from_numpy(hidden),
        hidden.astype(np.float64),
        locked,
        columns,
        torch.from_numpy(hidden).double(),
    ):
        np.testing.assert_array_equal(projection.top_k(form, 3).ids, expected.ids)
    none = projection.top_k(hidden[:0], 3, normalise=True)
    assert none.ids.shape == (0, 3) and active_tokens(projection, hidden[:0]) == []


# ------------------------------------------------------------------------------------------------------------ bad input


@methods
def test_bad_questions_are_refused(name: str) -> None:
    weight, bias, draw = output_layer(1, 40, 16)
    projection, hidden = SOME[name](weight, bias), draw(3)
    with pytest.raises(ValueError, match=r"hidden vectors of width 16, got \(3, 15\)\. Use the projection of the same"):
        projection.top_k(hidden[:, :15], 1)
    with pytest.raises(ValueError, match=r"needs k from 1, got 0\. Ask for one"):
        projection.top_k(hidden, 0)
    with pytest.raises(ValueError, match="Unknown id among the banned tokens: got 40"):
        projection.top_k(hidden, 1, np.array([40]))
    with pytest.raises(ValueError, match=r"banned ids are \(M,\) for all or \(N, M\): got \(2, 1\) for 3"):
        projection.top_k(hidden, 1, np.array([[1], [2]]))
    with pytest.raises(ValueError, match="Unknown id among the tokens to score: got -1"):
        projection.log_probs(hidden, np.full((3, 1), -1))
    with pytest.raises(ValueError, match=r"needs ids \(N, M\): got \(2, 1\) for 3"):
        projection.log_probs(hidden, np.zeros((2, 1), int))
    with pytest.raises(ValueError, match=r"computes on the CPU: got a tensor on meta\. Move it"):
        projection.top_k(torch.empty(3, 16, device="meta"), 1)


@methods
@pytest.mark.parametrize(
    ("weight", "bias", "message"),
    [
        (np.full((20, 4), np.nan), None, r"weight must be finite: got NaN or infinity\. Load"),
        (np.ones((20, 4)), np.full(20, np.inf), r"bias must be finite: got NaN or infinity"),
        (np.ones(20), None, r"weight is \(V, D\): got shape \(20,\)\. Give one row"),
        (np.ones((20, 4)), np.ones(19), r"bias is \(V,\): got 19 for 20 tokens\. Give"),
    ],
)
def test_a_layer_that_is_none_is_refused(name: str, weight: np.ndarray, bias: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SOME[name](weight, bias)


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda w: GreedyMips.fit(w, budget=0), "greedy_mips needs budget from 1 to 40, got 0. Choose"),
        (lambda w: GreedyMips.fit(w, budget=41), "greedy_mips needs budget from 1 to 40, got 41"),
        (lambda w: LshMips.fit(w, tables=0), "lsh_mips needs tables from 1 to"),
        (lambda w: LshMips.fit(w, bits=21), "lsh_mips needs bits from 0 to 20, got 21"),
        (lambda w: PcaMips.fit(w, depth=6), "pca_mips needs depth from 0 to 5, got 6"),
        (lambda w: RowClusters.fit(w, clusters=41), "row_clusters needs clusters from 1 to 40, got 41"),
        (lambda w: RowClusters.fit(w, clusters=4, probes=5), "row_clusters needs probes from 1 to 4, got 5"),
        (lambda w: replace(RowClusters.fit(w, clusters=1, probes=1), probes=2), "probes from 1 to 1, got 2"),
        (lambda w: Fgd.fit(w, neighbours=41), "fgd needs neighbours from 1 to 40, got 41"),
        (lambda w: Fgd.fit(w, neighbours=4, search=0), "fgd needs search from 1"),
        (lambda w: Fgd.fit(w, links=1), "fgd needs links from 2 to 512, got 1"),
    ],
)
def test_a_knob_out_of_range_is_refused(fit: Callable[[np.ndarray], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(output_layer(1, 40, 16)[0])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scann", None)
    with pytest.raises(ValueError, match=r"needs the package scann, which is not installed. Install it with"):
        Scann.fit(output_layer(1, 120, 16)[0])


# --------------------------------------------------------------------------------------------------- optional packages


def test_scann() -> None:
    pytest.importorskip("scann")
    weight, bias, draw = output_layer(2, 300, 20)
    hidden = draw(50)
    exact, _ = best(hidden.astype(np.float64) @ weight.T + bias, 5)
    projection = Scann.fit(weight, bias, neighbours=40, probes=20, leaves=20)
    assert recall(projection, hidden, exact) > 0.95
    full = replace(projection, neighbours=300).top_k(hidden, 5)
    np.testing.assert_array_equal(full.ids, exact)
    np.testing.assert_array_equal(full.num_active, 300)
    few = replace(projection, neighbours=300, probes=1).top_k(hidden, 5)
    assert few.num_active.max() < 300
    for row in range(5):
        alone = projection.top_k(hidden[row : row + 1], 5)
        np.testing.assert_array_equal(alone.ids[0], projection.top_k(hidden, 5).ids[row])
    assert projection.memory_bytes > weight.nbytes


def test_the_dense_and_the_listed_product_agree() -> None:
    """The scores are those of the exact projection but for the order of summation."""
    weight, bias, draw = output_layer(4, 70, 50)
    hidden = draw(9)
    whole = Matrix.of(weight, bias)(hidden)
    np.testing.assert_allclose(
        FULL["greedy_mips"](weight, bias).active_scores(hidden).scores, whole, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("kind", [Svd, GreedyMips, LshMips, PcaMips, RowClusters, Fgd])
def test_the_defaults_fit_a_vocabulary_of_bytes(kind: Any) -> None:
    weight = np.random.default_rng(5).normal(size=(384, 64)).astype(np.float32)
    found = kind.fit(weight).bind(None).top_k(weight[:9] * 3, 1).ids[:, 0]
    assert (found == np.arange(9)).mean() > 0.5


def test_tokens_that_are_always_candidates_are_found_once() -> None:
    generator = np.random.default_rng(4)
    weight, hidden = generator.normal(size=(300, 12)), generator.normal(size=(40, 12)).astype(np.float32)
    plain = Fgd.fit(weight, neighbours=6, search=12)
    always = replace(plain, always=(7, 250))
    found, more = plain.active_scores(hidden), always.active_scores(hidden)
    for row in range(len(hidden)):
        before, after = (active.ids[row][active.ids[row] >= 0] for active in (found, more))
        assert sorted({*before, 7, 250}) == after.tolist(), "ascending, none twice"
    assert always.longest == 8 and (always.top_k(hidden, 1).ids >= 0).all()
