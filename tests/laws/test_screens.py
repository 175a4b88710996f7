"""Laws of screened projections: all active is exact, a row stands for itself, and what is said of the active set is true."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded

from fastdecode_lib.core import Candidates
from fastdecode_lib.kernels.matrices import STORAGE_FORMATS, Matrix
from fastdecode_lib.projections.active_sets import ActiveSets, count_labels
from fastdecode_lib.projections.clustering import fit_clustered, with_sets
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.projections.screen_compiled import ScreenScorer
from fastdecode_lib.projections.screens import Screen, load_screens, save_screens
from fastdecode_lib.projections.tail import WithTail, low_rank

SEEDS = range(25)


def random_screen(seed: int, matrix: Matrix, method: Any = None, empty: bool = True) -> Screen:
    random = np.random.default_rng(seed)
    vocabulary, width = matrix.shape
    clusters = int(random.integers(1, 12))
    sets = [
        random.choice(vocabulary, random.integers(0 if empty else 1, vocabulary), replace=False)
        for _ in range(clusters)
    ]
    points = random.normal(size=(clusters, width)).astype(np.float32)
    return Screen(method or ("clustered", "screened")[seed % 2], points, ActiveSets.of(sets, vocabulary))


@pytest.mark.parametrize("seed", SEEDS)
def test_all_active_is_exact(seed: int) -> None:
    matrix, contexts = recorded.case(seed, vocabulary=37 + 11 * seed, width=5 + seed)
    vocabulary = matrix.shape[0]
    everything = ActiveSets.of([range(vocabulary)] * 3, vocabulary)
    nothing = ActiveSets.of([()] * 3, vocabulary)
    points = np.random.default_rng(seed).normal(size=(3, matrix.shape[1])).astype(np.float32)
    banned = np.array([1, 5])
    for sets in (everything, nothing):
        for shared in (False, True):
            scorer = ScreenScorer(Screen("clustered", points, sets), matrix, shared=shared)
            for kwargs in ({}, {"banned": banned, "normalise": True}):
                found = scorer.top_k(contexts.hidden, 4, **kwargs)
                wanted = CompiledExact(matrix).top_k(contexts.hidden, 4, **kwargs)
                assert np.array_equal(found.ids, wanted.ids) and np.array_equal(found.scores, wanted.scores)
                assert (found.num_active == vocabulary).all()
                if kwargs:
                    assert np.array_equal(found.log_normaliser, wanted.log_normaliser)
            ids = wanted.ids
            assert np.array_equal(
                scorer.log_probs(contexts.hidden, ids), CompiledExact(matrix).log_probs(contexts.hidden, ids)
            )


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_returned_is_true_of_the_active_set(seed: int) -> None:
    """Scores are the exact projection's, ids its best among the active, probabilities the softmax over these."""
    matrix, contexts = recorded.case(seed)
    screen, hidden = random_screen(seed, matrix), contexts.hidden[:40]
    scorer, random = ScreenScorer(screen, matrix), np.random.default_rng(seed)
    banned = np.where(random.random((40, 5)) < 0.5, random.integers(0, 130, (40, 5)), -1)
    found = scorer.top_k(hidden, 7, banned, normalise=True)
    every = matrix(hidden)
    active = recorded.active_tokens(scorer, hidden)
    probabilities = scorer.log_probs(hidden, np.tile(np.arange(130), (40, 1)))
    for row in range(40):
        assert np.array_equal(active[row], screen.sets[found.cluster[row]]) and found.num_active[row] == len(
            active[row]
        )
        allowed = np.setdiff1d(active[row], banned[row])
        order = allowed[np.argsort(-every[row, allowed], kind="stable")][:7]
        assert found.ids[row].tolist() == [*order, *[-1] * (7 - len(order))]
        assert np.array_equal(found.scores[row, : len(order)], every[row, order])
        assert (found.scores[row, len(order) :] == -np.inf).all()
        exact = every[row, active[row]].astype(np.float64)
        total = np.log(np.exp(exact - exact.max()).sum()) + exact.max()
        assert found.log_normaliser[row] == pytest.approx(total, abs=1e-5)
        assert probabilities[row, active[row]] == pytest.approx(exact - total, abs=1e-5)
        assert np.isneginf(np.delete(probabilities[row], active[row])).all()


@pytest.mark.parametrize("precision", STORAGE_FORMATS)
@pytest.mark.parametrize("seed", range(8))
def test_a_row_does_not_depend_on_the_rows_beside_it(seed: int, precision: Any) -> None:
    matrix, contexts = recorded.case(seed)
    scorer = ScreenScorer(random_screen(seed, matrix), Matrix.of(matrix.unpacked(), matrix.bias[:130], precision))
    random = np.random.default_rng(seed)
    alone = [scorer.top_k(row[None], 3, normalise=True) for row in contexts.hidden]
    for count in (2, 33, 300):
        rows = random.choice(300, count, replace=False)
        together = scorer.top_k(contexts.hidden[rows], 3, normalise=True)
        for place, row in enumerate(rows):
            for name in ("ids", "scores", "log_normaliser", "num_active", "cluster"):
                assert np.array_equal(getattr(together, name)[place], getattr(alone[row], name)[0]), name


@pytest.mark.parametrize("seed", SEEDS)
def test_clusters_are_the_nearest(seed: int) -> None:
    """Euclidean for Amer et al. (2022), the highest product for Chen et al. (2019)."""
    matrix, contexts = recorded.case(seed)
    hidden, places = contexts.hidden.astype(np.float64), np.arange(300)
    clustered, screened = (random_screen(seed, matrix, method) for method in ("clustered", "screened"))
    points = clustered.points.astype(np.float64)
    distances = ((hidden[:, None] - points) ** 2).sum(2)
    products = hidden @ points.T
    assert distances[places, clustered.assign(contexts.hidden)] == pytest.approx(distances.min(1), rel=1e-5)
    assert products[places, screened.assign(contexts.hidden)] == pytest.approx(products.max(1), abs=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bars_of_eq_2_are_no_absolute_value(seed: int) -> None:
    """``|C|^2 - 2 C h`` is negative near its centroid: a vector that is a centroid finds itself, read with bars it does not."""
    _, contexts = recorded.case(seed)
    points = contexts.hidden[:8]
    screen = Screen("clustered", points, ActiveSets.of([[0]] * 8, 130))
    assert screen.assign(points).tolist() == list(range(8))
    printed = (points**2).sum(1) - 2 * points @ points.T
    assert (np.diagonal(printed) < 0).all()
    assert (np.abs(printed).argmin(1) != np.arange(8)).any()


def test_equal_clusters_go_to_the_lowest() -> None:
    points = np.array([[0, 1], [1, 0], [1, 0], [1, 0]], dtype=np.float32)
    screen = Screen("screened", points, ActiveSets.of([[0]] * 4, 5))
    assert screen.assign(np.array([[2, 1], [0, 0]], np.float32)).tolist() == [1, 0]
    assert screen.assign(np.full((1, 2), np.nan, np.float32)).tolist() == [
        3
    ]  # no cluster is right; none is out of range


@pytest.mark.parametrize("seed", SEEDS)
def test_shared_sets_are_the_union(seed: int) -> None:
    """Amer et al., section 3, step 2: one union for the batch, over which all rows are normalised; alone it is the row's own."""
    matrix, contexts = recorded.case(seed)
    screen = random_screen(seed, matrix, empty=False)
    shared, own = ScreenScorer(screen, matrix, shared=True), ScreenScorer(screen, matrix)
    hidden = contexts.hidden[:9]
    found = shared.top_k(hidden, 5, np.array([3]), normalise=True)
    union = np.unique(np.concatenate(recorded.active_tokens(own, hidden)))
    every = matrix(hidden)[:, union]
    assert (found.num_active == len(union)).all() and all(
        np.array_equal(a, union) for a in recorded.active_tokens(shared, hidden)
    )
    allowed = np.where(union == 3, -np.inf, every)
    assert np.array_equal(found.ids[:, 0], union[allowed.argmax(1)])
    assert found.log_normaliser == pytest.approx(np.log(np.exp(every.astype(float)).sum(1)), abs=1e-4)
    single, wanted = shared.top_k(hidden[:1], 5, normalise=True), own.top_k(hidden[:1], 5, normalise=True)
    for name in ("ids", "scores", "log_normaliser", "num_active"):
        assert np.array_equal(getattr(single, name), getattr(wanted, name)), name
    some = np.tile(np.arange(130), (9, 1))
    assert np.isneginf(shared.log_probs(hidden, some)).sum() == 9 * (130 - len(union))
    nothing, none = hidden[:0], np.zeros((0, 4), dtype=np.int64)
    for scorer in (shared, own):
        assert scorer.top_k(nothing, 5, np.array([3]), normalise=True).ids.shape == (0, 5)
        assert scorer.log_probs(nothing, none).shape == (0, 4)


class OfTheFirst(ScreenScorer):
    """A union of the first row's set alone."""

    def _union(self, clusters: np.ndarray) -> tuple[np.ndarray, int]:
        return super()._union(clusters[:1])


class Descending(ScreenScorer):
    """A union in another order than that of the ids."""

    def _union(self, clusters: np.ndarray) -> tuple[np.ndarray, int]:
        active, count = super()._union(clusters)
        active[:count] = active[:count][::-1].copy()
        return active, count


def a_union_scores_as_the_whole_matrix_does(kind: Any, precision: Any) -> None:
    """Bit for bit, whether rows fall into one cluster or many; of equals the lowest id comes first."""
    for seed in range(6):
        random = np.random.default_rng(seed)
        weight, bias = recorded.weight_of(random, 130, 21)
        weight[1::2], bias[1::2] = weight[::2], bias[::2]
        matrix = Matrix.of(weight, bias, precision)
        screen = random_screen(seed, matrix, empty=seed % 2 == 0)
        hidden = recorded.clumps(random, weight, 100)
        clusters = screen.assign(hidden)
        scorer = kind(screen, matrix, shared=True)
        for rows in (clusters == clusters[0], [3], [5, 9], slice(7, 30), slice(None)):
            some, every = hidden[rows], matrix(hidden[rows])
            union = np.unique(np.concatenate([screen.sets[cluster] for cluster in clusters[rows]]))
            found = scorer.top_k(some, 131, normalise=True)
            order = union[np.argsort(-every[:, union], axis=1, kind="stable")]
            assert (found.num_active == len(union)).all() and (found.ids[:, len(union) :] == -1).all()
            assert np.array_equal(found.ids[:, : len(union)], order)
            assert np.array_equal(found.scores[:, : len(union)], np.take_along_axis(every, order, 1))
            total = np.log(np.exp(every[:, union].astype(np.float64)).sum(1))
            assert found.log_normaliser == pytest.approx(total, abs=1e-4)
            expected = np.full(every.shape, -np.inf)
            expected[:, union] = every[:, union] - total[:, None]
            assert scorer.log_probs(some, np.tile(np.arange(130), (len(some), 1))) == pytest.approx(expected, abs=1e-4)
            ids, scores = scorer.active_scores(some)
            assert (ids == union).all() and np.array_equal(scores, every[:, union])


@pytest.mark.parametrize("precision", STORAGE_FORMATS)
def test_a_union_scores_as_the_whole_matrix_does(precision: Any) -> None:
    a_union_scores_as_the_whole_matrix_does(ScreenScorer, precision)
    for broken in (OfTheFirst, Descending):
        with pytest.raises(AssertionError):
            a_union_scores_as_the_whole_matrix_does(broken, precision)


TopK = Callable[[ScreenScorer, np.ndarray, np.ndarray | None], Candidates]


def scattering_changes_nothing(scattered: TopK, seed: int, precision: Any) -> None:
    """Scores among minus infinities have the best tokens and the normaliser of the scores by themselves."""
    matrix, contexts = recorded.case(seed)
    matrix = Matrix.of(matrix.unpacked(), matrix.bias[:130], precision)
    screen, random = random_screen(seed, matrix), np.random.default_rng(seed)
    for count in (1, 2, 9, 70):
        hidden = contexts.hidden[random.choice(300, count, replace=False)]
        for banned in (None, random.integers(-1, 130, 4), random.integers(-1, 130, (count, 3))):
            found = scattered(ScreenScorer(screen, matrix, shared=True, scatter=True), hidden, banned)
            wanted = ScreenScorer(screen, matrix, shared=True).top_k(hidden, 7, banned, normalise=True)
            for name in ("ids", "scores", "num_active", "cluster"):
                assert np.array_equal(getattr(found, name), getattr(wanted, name)), name
            assert found.log_normaliser == pytest.approx(wanted.log_normaliser, abs=1e-5)


def scattered_into(value: float) -> TopK:
    """Step 4 of Amer et al. (2022) written once more, with what stands in an array before the scores come."""

    def top_k(scorer: ScreenScorer, hidden: np.ndarray, banned: np.ndarray | None) -> Candidates:
        active, scores = scorer.active_scores(hidden)
        wide = np.full((len(hidden), 130), value, dtype=np.float32)
        np.put_along_axis(wide, active, scores, 1)
        total = np.log(np.exp(wide.astype(np.float64)).sum(1))
        for row, refused in enumerate(
            np.broadcast_to(banned, (len(hidden), banned.shape[-1])) if banned is not None else ()
        ):
            wide[row, refused[refused >= 0]] = -np.inf
        ids = np.argsort(-wide, axis=1, kind="stable")[:, :7]
        best = np.take_along_axis(wide, ids, 1)
        counts = np.full(len(hidden), active.shape[1])
        return Candidates(
            np.where(best > -np.inf, ids, -1), best, counts, total, "active", scorer.screen.assign(hidden)
        )

    return top_k


@pytest.mark.parametrize("precision", STORAGE_FORMATS)
def test_scattering_changes_nothing(precision: Any) -> None:
    def scorers_own(scorer: ScreenScorer, hidden: np.ndarray, banned: np.ndarray | None) -> Candidates:
        return copy.deepcopy(scorer).top_k(hidden, 7, banned, normalise=True)

    for seed in range(8):
        scattering_changes_nothing(scorers_own, seed, precision)
        scattering_changes_nothing(scattered_into(-np.inf), seed, precision)
    with pytest.raises(AssertionError):
        for seed in range(8):
            scattering_changes_nothing(scattered_into(0), seed, precision)


@pytest.mark.parametrize("seed", range(8))
def test_a_tail_makes_one_distribution_of_exact_and_low_rank_scores(seed: int) -> None:
    """Chen et al. (2019), section 7.3: exact within the set, of low rank elsewhere; of full rank it is the exact softmax."""
    matrix, contexts = recorded.case(seed)
    weight, bias, hidden = matrix.unpacked(), matrix.bias[:130], contexts.hidden[:40]
    scorer = ScreenScorer(random_screen(seed, matrix), matrix)
    every, wanted = matrix(hidden).astype(np.float64), np.tile(np.arange(130), (40, 1))
    ids, exact = scorer.active_scores(hidden)
    for row in range(40):
        own = scorer.screen.sets[scorer.top_k(hidden[row : row + 1], 1).cluster[0]]
        assert np.array_equal(ids[row][ids[row] >= 0], own)
        assert (
            np.array_equal(exact[row, : len(own)], matrix(hidden)[row, own])
            and (exact[row, len(own) :] == -np.inf).all()
        )
    for rank in (3, 20):
        tail = WithTail(scorer, *low_rank(weight, bias, rank))
        left, sizes, right = np.linalg.svd(weight.astype(np.float64), full_matrices=False)
        mixed = hidden @ ((left[:, :rank] * sizes[:rank]) @ right[:rank]).T + bias
        for row in range(40):
            own = ids[row][ids[row] >= 0]
            mixed[row, own] = every[row, own]
        total = np.log(np.exp(mixed - mixed.max(1, keepdims=True)).sum(1)) + mixed.max(1)
        assert tail.log_probs(hidden, wanted) == pytest.approx(mixed - total[:, None], abs=2e-4)
        found, inner = tail.top_k(hidden, 3, normalise=True), scorer.top_k(hidden, 3)
        assert np.array_equal(found.ids, inner.ids) and found.log_normaliser == pytest.approx(total, abs=2e-4)
    assert tail.log_probs(hidden, wanted) == pytest.approx(CompiledExact(matrix).log_probs(hidden, wanted), abs=2e-4)
    with pytest.raises(ValueError, match="rank must be from 1 to 20, got 21"):
        low_rank(weight, bias, 21)
    with pytest.raises(ValueError, match="needs a projection with active_scores: got exact"):
        WithTail(CompiledExact(matrix), *low_rank(weight, bias, 3))


@pytest.mark.parametrize("seed", SEEDS)
def test_sets_of_clusters_hold_every_best_token(seed: int) -> None:
    """Of all contexts, though centroids may come of a few: faiss's silent subsampling would lose some."""
    matrix, contexts = recorded.case(seed)
    for top, most in ((1, 300), (3, 40)):
        screen = fit_clustered(contexts, clusters=6, top=top, most=most, seed=seed)
        assignment = screen.assign(contexts.hidden)
        for cluster in range(6):
            members = contexts.labels[assignment == cluster, :top]
            assert set(screen.sets.ids[slice(*screen.sets.offsets[cluster : cluster + 2])]) == set(
                members.ravel().tolist()
            )
        found = ScreenScorer(screen, matrix).top_k(contexts.hidden, top)
        assert np.array_equal(found.ids, contexts.labels[:, :top])
        assert screen.about["fingerprint"] == "made up" and screen.about["contexts"] == 300


@pytest.mark.parametrize("seed", SEEDS)
def test_more_labels_are_more_active_tokens_and_rare_ones_can_be_left_out(seed: int) -> None:
    _, contexts = recorded.case(seed)
    one = fit_clustered(contexts, clusters=6, top=1, seed=seed)
    sizes = [with_sets(one, contexts, top=top).sets.sizes for top in (1, 3, 5)]
    assert (sizes[0] <= sizes[1]).all() and (sizes[1] <= sizes[2]).all() and sizes[0].sum() < sizes[2].sum()
    rare = with_sets(one, contexts, least_count=3)
    keys, counts = count_labels(one.assign(contexts.hidden), contexts.labels[:, :1], 6, 130)
    assert np.array_equal(rare.sets.keys, keys[counts >= 3])
    guarded = with_sets(one, contexts, always=(0, 129), at_least=9)
    for cluster in np.flatnonzero(np.diff(one.sets.offsets)):
        assert {0, 129, *one.sets[cluster].tolist()} <= set(guarded.sets[cluster].tolist())
        assert len(guarded.sets[cluster]) >= 9
    most_frequent = np.bincount(contexts.labels[:, 0], minlength=130).argmax()
    grown = [c for c in range(6) if len(one.sets[c]) < 7]
    assert all(most_frequent in guarded.sets[c] for c in grown)


@pytest.mark.parametrize("seed", range(5))
def test_saved_and_loaded_it_is_the_same(seed: int, tmp_path: Path) -> None:
    matrix, contexts = recorded.case(seed)
    screens = {"en-de": random_screen(seed, matrix), "de": random_screen(seed + 1, matrix)}
    save_screens(screens, tmp_path / "screens")
    again = load_screens(tmp_path / "screens")
    assert list(again) == ["en-de", "de"]
    for name, screen in screens.items():
        one, other = ScreenScorer(screen, matrix), ScreenScorer(again[name], matrix)
        for copied in (other, copy.deepcopy(one)):
            a, b = one.top_k(contexts.hidden, 3), copied.top_k(contexts.hidden, 3)
            assert np.array_equal(a.ids, b.ids) and np.array_equal(a.scores, b.scores)
        assert again[name].about == screen.about and again[name].method == screen.method
    fit_clustered(contexts, clusters=3).save(tmp_path / "one")
    assert load_screens(tmp_path / "one")["all"].about["clusters"] == 3


def test_bad_input(tmp_path: Path) -> None:
    matrix, contexts = recorded.case(0)
    with pytest.raises(ValueError, match="at least as many vectors as clusters: got 300 for 301"):
        fit_clustered(contexts, clusters=301)
    with pytest.raises(ValueError, match="top must be from 1 to the 5 labels .* got 6"):
        fit_clustered(contexts, clusters=3, top=6)
    with pytest.raises(ValueError, match="least_count must be at least 1, got 0"):
        fit_clustered(contexts, clusters=3, least_count=0)
    broken = recorded.InMemory(np.where(contexts.hidden > 2, np.nan, contexts.hidden), contexts.labels, 130)
    with pytest.raises(ValueError, match="k-means needs finite vectors"):
        fit_clustered(broken, clusters=3)
    screen = fit_clustered(contexts, clusters=3)
    with pytest.raises(ValueError, match="The screen is another model's: got one of width 20 and vocabulary 130"):
        ScreenScorer(screen, Matrix.of(np.ones((130, 21))))
    scorer = ScreenScorer(screen, matrix)
    for call, message in (
        (lambda: scorer.top_k(contexts.hidden[:, :5], 1), r"width 20, got \(300, 5\)"),
        (lambda: scorer.top_k(contexts.hidden, 0), "k from 1, got 0"),
        (lambda: scorer.top_k(contexts.hidden, 1, np.zeros((2, 1))), r"banned ids .* got \(2, 1\)"),
        (
            lambda: scorer.log_probs(contexts.hidden, np.full((300, 1), 130)),
            "Unknown id among the tokens to score: got 130",
        ),
        (lambda: ActiveSets.of([[130]], 130), "Active sets do not fit"),
        (lambda: ActiveSets(np.array([0, 2]), np.array([1, 1]), 5), "must be strictly ascending"),
        (lambda: ScreenScorer(screen, matrix, scatter=True), "scatter=True with shared=False. Use shared=True"),
        (lambda: Screen("screened", screen.points[:1], screen.sets), "a finite point for each set"),
        (lambda: load_screens(tmp_path), "There are no screens in .* screens.json is missing"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    screen.save(tmp_path / "kept")
    weights = tmp_path / "kept" / "all.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(ValueError, match="The screens in .* are damaged"):
        load_screens(tmp_path / "kept")
    (tmp_path / "kept" / "screens.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match="The screens in .* are damaged"):
        load_screens(tmp_path / "kept")
