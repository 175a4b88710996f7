"""Learning to screen: every trap that algorithm 1 of Chen et al. (2019) has for whoever writes it down."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import recorded
import torch

from fastdecode_lib.projections.active_sets import ActiveSets, count_labels
from fastdecode_lib.projections.clustering import empty_sets
from fastdecode_lib.projections.kmeans import kmeans
from fastdecode_lib.projections.learning_to_screen import (
    Learning,
    _Active,
    batch_gradient,
    fit_screened,
    knapsack,
    learn_points,
)
from fastdecode_lib.projections.screen_compiled import ScreenScorer
from fastdecode_lib.projections.screens import Screen

SEEDS = range(20)


def literal_loss(
    points: torch.Tensor, table: torch.Tensor, hidden: Any, labels: Any, noise: Any, before: float | None, budget: float,
    learning: Learning,
) -> torch.Tensor:  # fmt: skip
    """Eq. 8 as it is printed, with the straight-through samples spelled out: loss and hinge, over the batch's size."""
    logits = torch.from_numpy(hidden).double() @ points.T
    soft = torch.softmax((torch.log_softmax(logits, 1) + torch.from_numpy(noise).double()) / learning.temperature, 1)
    hard = torch.nn.functional.one_hot(soft.argmax(1), len(points)).double()
    sample = soft + (hard - soft).detach()
    wanted = torch.zeros(len(hidden), table.shape[1], dtype=torch.float64).scatter_(
        1, torch.from_numpy(labels).long(), 1.0
    )
    if learning.reading == "literal":
        chosen = sample @ table
        costs = (wanted * (1 - chosen) ** 2).sum(1) + learning.penalty * ((1 - wanted) * chosen**2).sum(1)
    else:
        each = (wanted[:, None] * (1 - table) ** 2).sum(2) + learning.penalty * ((1 - wanted[:, None]) * table**2).sum(
            2
        )
        costs = (sample * each).sum(1)
    own = (sample @ table).sum(1).mean()
    average = own if before is None else learning.momentum * before + (1 - learning.momentum) * own
    return (costs.sum() + learning.pressure * torch.clamp(average - budget, min=0)) / len(hidden)


def situation(seed: int) -> tuple[recorded.InMemory, np.ndarray, ActiveSets, np.ndarray]:
    random = np.random.default_rng(seed)
    _, contexts = recorded.case(seed, vocabulary=60, width=9, count=40)
    sets = ActiveSets.of([random.choice(60, random.integers(1, 30), replace=False) for _ in range(7)], 60)
    noise = random.gumbel(size=(40, 7)).astype(np.float32)
    return contexts, random.normal(size=(7, 9)).astype(np.float32), sets, noise


@pytest.mark.parametrize("reading", ["literal", "linear"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_gradient_is_that_of_the_printed_loss(seed: int, reading: Any) -> None:
    contexts, points, sets, noise = situation(seed)
    active = _Active(sets)
    for before, budget, temperature in ((None, 100.0, 1.0), (None, 5.0, 1.0), (9.0, 8.0, 0.7), (30.0, 40.0, 1.0)):
        learning = Learning(clusters=7, reading=reading, penalty=0.05, temperature=temperature)
        found, mean_set = batch_gradient(
            points, active, contexts.hidden, contexts.labels, noise, before, budget, learning
        )
        free = torch.tensor(points, dtype=torch.float64, requires_grad=True)
        table = torch.from_numpy(active.table.astype(float))
        literal_loss(free, table, contexts.hidden, contexts.labels, noise, before, budget, learning).backward()
        assert free.grad is not None
        assert found == pytest.approx(free.grad.numpy(), abs=2e-5 * max(1, float(free.grad.abs().max())))
        chosen = (contexts.hidden @ points.T + noise).argmax(1)
        own = sets.sizes[chosen].mean()
        assert mean_set == pytest.approx(own if before is None else 0.9 * before + 0.1 * own)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_two_readings_have_one_value_and_two_gradients(seed: int) -> None:
    """Within the squares a covered label pulls no more, and an uncovered one twice as much."""
    contexts, points, sets, noise = situation(seed)
    table = torch.from_numpy(_Active(sets).table.astype(float))
    values, gradients = [], []
    for reading in ("literal", "linear"):
        learning = Learning(clusters=7, reading=reading)  # type: ignore[arg-type]
        free = torch.tensor(points, dtype=torch.float64)
        values.append(float(literal_loss(free, table, contexts.hidden, contexts.labels, noise, None, 1e9, learning)))
        gradients.append(
            batch_gradient(points, _Active(sets), contexts.hidden, contexts.labels, noise, None, 1e9, learning)[0]
        )
    assert values[0] == pytest.approx(values[1]) and not np.allclose(*gradients)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_turn_learns_nothing(seed: int) -> None:
    """With empty sets every cluster costs the same: the gradient is exactly zero, and one turn is k-means and a knapsack."""
    contexts, points, _, noise = situation(seed)
    nothing = empty_sets(7, 60)
    for reading in ("literal", "linear"):
        learning = Learning(clusters=7, reading=reading)  # type: ignore[arg-type]
        gradient, _ = batch_gradient(
            points, _Active(nothing), contexts.hidden, contexts.labels, noise, None, 5.0, learning
        )
        assert np.abs(gradient).max() <= 1e-7 * (5 if reading == "linear" else 0)
    one = fit_screened(contexts, budget=9, learning=Learning(clusters=7, rounds=1), seed=seed)
    centroids = kmeans(contexts.hidden, 7, seed=seed, spherical=True)
    lengths = np.linalg.norm(one.points, axis=1, keepdims=True)
    assert one.points / lengths == pytest.approx(centroids, abs=1e-5) and lengths == pytest.approx(
        lengths[0, 0], rel=1e-5
    )
    plain = Screen("screened", one.points, nothing)
    assignment = plain.assign(contexts.hidden)
    keys, counts = count_labels(assignment, contexts.labels, 7, 60)
    filled = knapsack(keys, counts, np.bincount(assignment, minlength=7), 60, 9, 0.0003)
    assert np.array_equal(one.sets.keys, filled.keys)
    two = fit_screened(contexts, budget=9, learning=Learning(clusters=7, rounds=2, batch=8), seed=seed)
    assert not np.array_equal(two.points, centroids)


def test_every_point_takes_part_in_k_means() -> None:
    """Unless it is told not to, faiss takes 256 points a centroid and no more, and no centroid is the mean of its own."""
    points = np.random.default_rng(0).normal(size=(3_000, 4)).astype(np.float32)
    centroids = kmeans(points, 3, iterations=300)
    nearest = np.square(points[:, None] - centroids).sum(2).argmin(1)
    means = np.stack([points[nearest == cluster].mean(0) for cluster in range(3)])
    assert means == pytest.approx(centroids, abs=1e-4)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_knapsack_is_one_for_all_clusters(seed: int, skip: bool) -> None:
    """By share of the cluster, over all clusters at once; what it weighs counts usage; what is left is only worth less."""
    random = np.random.default_rng(seed)
    members = random.integers(0, 30, 6)
    table = np.array([random.binomial(n, random.beta(0.3, 2, 20)) for n in members])
    keys = np.flatnonzero(table)
    counts, budget, penalty = table.ravel()[keys], float(random.uniform(0.5, 8)), float(random.choice([0.0003, 0.2]))
    found = knapsack(keys, counts, members, 20, budget, penalty, skip)

    room, chosen, stopped = budget * members.sum(), [], False
    share = {k: table.ravel()[k] / members[k // 20] for k in keys}
    for key in sorted(keys, key=lambda k: (-share[k], -table.ravel()[k], k)):
        if share[key] <= penalty / (1 + penalty) or (stopped and not skip):
            continue
        if members[key // 20] <= room:
            room -= members[key // 20]
            chosen.append(key)
        else:
            stopped = True
    assert found.keys.tolist() == sorted(chosen)
    stored = np.diff(found.offsets)
    assert (stored * members).sum() <= budget * members.sum()
    assert not stored[members == 0].any()


def test_shares_decide_and_not_each_cluster_for_itself() -> None:
    """Two clusters of ten contexts: one always says one of four words, the other forty different ones."""
    keys = np.array([0, 1, 2, 3, *range(50 + 4, 50 + 44)])
    counts = np.array([10, 10, 10, 10, *[1] * 40])
    sets = knapsack(keys, counts, np.array([10, 10]), 50, 3.0, 0.0003)
    assert sets.ids[: sets.offsets[1]].tolist() == [0, 1, 2, 3] and sets.sizes[0] == 4
    assert np.diff(sets.offsets).tolist() == [4, 2]  # 4 * 10 + 2 * 10 contexts of 20 make a mean of 3
    everything = knapsack(keys, counts, np.array([10, 10]), 50, 1e9, 0.0003)
    assert np.array_equal(everything.keys, keys)
    assert np.diff(knapsack(keys, counts, np.array([10, 10]), 50, 1e9, 0.2).offsets).tolist() == [4, 0]


def test_ties_are_broken_by_count_then_cluster_then_token() -> None:
    keys, counts, members = np.array([3, 7, 10 + 2, 10 + 5]), np.array([2, 2, 4, 4]), np.array([4, 8])
    for room, wanted in ((8, [12]), (16, [12, 15]), (20, [3, 12, 15])):
        assert knapsack(keys, counts, members, 10, room / 12, 0.0003).keys.tolist() == wanted


@pytest.mark.parametrize("seed", range(6))
def test_the_budget_is_kept_and_more_of_it_is_never_worse(seed: int) -> None:
    matrix, contexts = recorded.case(seed)
    precisions = []
    for budget in (2, 5, 12, 30, 130):
        learning = Learning(clusters=8, rounds=3, batch=64)
        screen = fit_screened(contexts, budget=budget, learning=learning, seed=seed)
        assert screen.about["budget"] == budget and screen.about["rounds"] == 3 and screen.about["contexts"] == 300
        assignment = screen.assign(contexts.hidden)
        stored = np.diff(screen.sets.offsets)
        assert stored[assignment].mean() <= budget
        found = ScreenScorer(screen, matrix).top_k(contexts.hidden, 1)
        precisions.append((found.ids == contexts.labels[:, :1]).mean())
    assert precisions == sorted(precisions) and precisions[-1] == 1
    again = fit_screened(contexts, budget=130, learning=learning, seed=seed)
    assert np.array_equal(again.points, screen.points) and np.array_equal(again.sets.keys, screen.sets.keys)


@pytest.mark.parametrize("seed", range(4))
def test_learning_lowers_what_it_is_told_to_lower(seed: int) -> None:
    """From clusters that were thrown at random, the share of labels that are not active falls."""
    _, contexts = recorded.case(seed, count=600)
    random = np.random.default_rng(seed)
    points = random.normal(size=(8, 20)).astype(np.float32) / 20
    settings = Learning(clusters=8, rounds=6, epochs=4, batch=64)
    missed = []
    for learning in (dataclasses.replace(settings, rounds=1), settings):
        screen = fit_screened(contexts, budget=8, learning=learning, seed=seed, points=points)
        assignment = screen.assign(contexts.hidden)
        table = _Active(screen.sets).table
        missed.append(1 - table[assignment[:, None], contexts.labels].mean())
    assert missed[1] < missed[0]


@pytest.mark.parametrize("seed", range(4))
def test_choices_in_training_are_those_of_use_and_not_the_noises(seed: int) -> None:
    """Centroids of length 1 and short hidden vectors, as the paper has it, leave the choice to the noise."""
    _, contexts = recorded.case(seed)
    noise, same = np.random.default_rng(seed).gumbel(size=(300, 8)), {}
    for sharpness in (1.0, Learning().sharpness):
        learning = Learning(clusters=8, rounds=1, sharpness=sharpness)
        products = contexts.hidden @ fit_screened(contexts, budget=8, learning=learning, seed=seed).points.T
        same[sharpness] = ((products + noise).argmax(1) == products.argmax(1)).mean()
    few, most = same.values()
    assert few < 0.5 and most > 0.8


def test_noise_and_progress(capsys: pytest.CaptureFixture[str]) -> None:
    contexts, points, sets, _ = situation(0)
    learning = Learning(clusters=7, batch=16, epochs=2)
    first, second = (
        learn_points(points, sets, contexts.hidden, contexts.labels, 5, learning, np.random.default_rng(1), progress)
        for progress in (False, True)
    )
    assert np.array_equal(first, second) and " 6/6 " in capsys.readouterr().err


def test_sets_must_ascend() -> None:
    with pytest.raises(ValueError, match=r"strictly ascending: got set 1 of \[4, 4, 9\]\. Use ActiveSets\.of"):
        ActiveSets(np.array([0, 1, 4]), np.array([2, 4, 4, 9]), 10)
    with pytest.raises(ValueError, match=r"must not fall: got \[0, 3, 2, 4\]\. Use ActiveSets\.of"):
        ActiveSets(np.array([0, 3, 2, 4]), np.array([2, 4, 6, 9]), 10)


def test_bad_input() -> None:
    _, contexts = recorded.case(0)
    for call, message in (
        (lambda: fit_screened(contexts, budget=0), "budget must be above 0, got 0"),
        (lambda: fit_screened(contexts, budget=5, learning=Learning(clusters=301)), "got 300 for 301 clusters"),
        (
            lambda: fit_screened(contexts, budget=5, learning=Learning(top=6)),
            "needs the 6 best tokens .* contexts with 5",
        ),
        (lambda: Learning(reading="other"), "Unknown reading of the loss: got 'other'"),  # type: ignore[arg-type]
        (lambda: fit_screened(contexts, budget=np.inf), "budget must be above 0, got inf"),
        (lambda: fit_screened(contexts, budget=5, most=99), "got most=99 for 100 clusters"),
        (
            lambda: fit_screened(contexts, budget=5, points=np.ones((100, 19))),
            r"points \(100, 20\), .* got \(100, 19\)",
        ),
        (lambda: fit_screened(contexts, budget=5, points=np.full((100, 20), np.nan)), "begin at finite points"),
        (lambda: Learning(clusters=0), "clusters must be a whole number from 1, got 0"),
        (lambda: Learning(clusters=2.5), "clusters must be a whole number from 1, got 2.5"),  # type: ignore[arg-type]
        (lambda: Learning(epochs=-1), "epochs must be a whole number from 0, got -1"),
        (lambda: Learning(momentum=1.0), "momentum must be from 0 to below 1, got 1.0"),
        (lambda: Learning(rate=-1.0), "rate must be from 0 up, got -1.0"),
        (lambda: Learning(pressure=np.nan), "pressure must be from 0 up, got nan"),
        (lambda: Learning(sharpness=0.0), "sharpness must be above 0, got 0.0"),
        (lambda: Learning(temperature=np.nan), "temperature must be above 0, got nan"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
