"""Chen et al. (2019), learning to screen (L2S); one file because algorithm 1 learns weights and active sets in turns.

With sets fixed, the weights v of the clusters go down the gradient of the loss by straight-through Gumbel samples (eq. 8);
with weights fixed, sets are filled greedily, as a knapsack (eq. 7). In the first turn the sets are empty, every cluster
costs the same, and the gradient is exactly zero: one turn is spherical k-means with a knapsack.

In the code `points` are the paper's v, `sets` its c, and `labels` its y, the best tokens of a context.

The paper does not give the contexts, the budget B, the number of turns, the learning rate, the size of batches or the momentum
of the moving average. Every screen therefore records its own.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from fastdecode_lib.projections.active_sets import ActiveSets, Recorded, check_guards, count_all, sampled
from fastdecode_lib.projections.clustering import empty_sets, with_guards
from fastdecode_lib.projections.kmeans import kmeans
from fastdecode_lib.projections.screens import Screen, ScreenProjection

Reading = Literal["literal", "linear"]


@dataclass(frozen=True)
class Learning:
    """Settings of algorithm 1: those up to `temperature` are the paper's, `reading` and `skip` what it leaves open, others ours.

    Attributes
    ----------
    clusters : int
        r; 50 to 250 in the paper (table 4).
    top : int
        Labels of a context; 5 in the paper.
    penalty : float
        lambda, the price of an active token that is no label (eq. 6).
    pressure : float
        gamma, the weight of exceeding the budget (eq. 8). It is added to the sum of a batch's losses, as printed: beside their
        mean, 10 would outweigh them, since sets use the whole budget and every other batch exceeds it.
    temperature : float
        Temperature of the Gumbel softmax.
    reading : "literal" or "linear"
        Where the samples are in the loss: inside the squares, as in eq. 7, or outside. Both give the same value. Inside, a label
        that is covered already has no gradient, and one that is not has a doubled gradient.
    skip : bool
        Whether the knapsack goes on after the first token that does not fit. The paper: "add one by one until reaching B".
    rounds, epochs, batch, momentum
        Ours: turns of algorithm 1; passes over the contexts in a turn; contexts of a batch; and momentum of the moving average of
        the mean set.
    sharpness, rate
        Ours. Weights begin at the centroids, scaled so that the largest product with a hidden vector of mean length is
        `sharpness`. With centroids of length 1 and short hidden vectors, products are smaller than the Gumbel noise: training
        chooses clusters by chance, and the result is worse than k-means. The learning rate is relative to both lengths.
    """

    clusters: int = 100
    top: int = 5
    penalty: float = 0.0003
    pressure: float = 10.0
    temperature: float = 1.0
    reading: Reading = "literal"
    skip: bool = False
    rounds: int = 4
    epochs: int = 1
    sharpness: float = 30.0
    rate: float = 20.0
    batch: int = 512
    momentum: float = 0.9

    def __post_init__(self) -> None:
        if self.reading not in ("literal", "linear"):
            raise ValueError(f"Unknown reading of the loss: got {self.reading!r}. Use 'literal' or 'linear'.")
        for name, least in (("clusters", 1), ("top", 1), ("rounds", 1), ("batch", 1), ("epochs", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < least:
                raise ValueError(
                    f"{name} must be a whole number from {least}, got {value}. The default is a good start."
                )
        for name in ("penalty", "pressure", "rate", "momentum"):
            if not 0 <= getattr(self, name) < (1 if name == "momentum" else np.inf):
                most = "to below 1" if name == "momentum" else "up"
                raise ValueError(
                    f"{name} must be from 0 {most}, got {getattr(self, name)}. The default is a good start."
                )
        for name in ("temperature", "sharpness"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}. The default is a good start.")


def fit_screened(
    contexts: Recorded,
    *,
    budget: float = 300.0,
    learning: Learning | None = None,
    seed: int = 0,
    most: int = 500_000,
    always: Sequence[int] = (),
    at_least: int = 0,
    progress: bool = False,
    points: np.ndarray | None = None,
) -> Screen:
    """Learn a screen from recorded contexts.

    Parameters
    ----------
    contexts : Recorded
        At least `Learning.top` labels for each context.
    budget : float
        B, the mean size of a context's set; the knob of the paper's curves. The mean number of tokens scored may be higher, because
        a cluster that the knapsack leaves empty scores the whole vocabulary; it is ``scored`` in ``about``.
    most : int
        Contexts, at most, that weights are learned from, drawn at random; the sets are made of all contexts.
    always : sequence of int
        Ours: tokens that are active in every cluster, such as the end of the sentence. They come in addition to the budget.
    at_least : int
        Ours: smaller sets are filled up with the most frequent tokens of all contexts.
    points : float array (r, D), optional
        Directions of the initial weights, `Learning.clusters` of them; by default from spherical k-means, as in the paper.

    Raises
    ------
    ValueError
        If the budget is not above 0, there are too few contexts or labels, points do not fit, or tokens are outside the
        vocabulary.
    """
    learning = learning or Learning()
    _check(contexts, learning, budget, most, points)
    check_guards(contexts.vocabulary, always, at_least)
    chosen = contexts if len(contexts) <= most else contexts.sample(most, seed)
    hidden = sampled(chosen, most, seed)
    labels = np.concatenate([block.labels[:, : learning.top] for block in chosen.blocks()])
    if points is None:
        points = kmeans(hidden, learning.clusters, seed=seed, spherical=True)
    lengths = np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    mean_length = np.sqrt(np.square(hidden, dtype=np.float64).sum(1).mean())
    points = (points / lengths * (learning.sharpness / mean_length)).astype(np.float32)
    about: dict[str, Any] = {
        "fingerprint": contexts.fingerprint,
        "contexts": len(contexts),
        "budget": budget,
        "seed": seed,
        "most": most,
        "always": [int(token) for token in always],
        "at_least": at_least,
        **asdict(learning),
    }
    screen = Screen("screened", points, empty_sets(len(points), contexts.vocabulary), about)
    random = np.random.default_rng(seed)
    for turn in range(learning.rounds):  # algorithm 1
        if turn > 0:  # line 6, whose gradient is zero in the first turn
            learned = learn_points(screen.points, screen.sets, hidden, labels, budget, learning, random, progress)
            screen = replace(screen, points=learned)
        counted = contexts if turn == learning.rounds - 1 else chosen
        counts = count_all(screen.assign, counted, learning.top, len(screen.sets))  # line 7
        screen = replace(screen, sets=knapsack(*counts, contexts.vocabulary, budget, learning.penalty, learning.skip))
    return with_guards(screen, *counts)


class Screened(ScreenProjection):
    """Clusters and sets learned together (Chen et al., 2019, L2S)."""

    name, remedy = "screened", "a larger --budget"
    fit = staticmethod(fit_screened)


def _check(contexts: Recorded, learning: Learning, budget: float, most: int, points: np.ndarray | None) -> None:
    """Check that the settings fit each other and the contexts."""
    if not 0 < budget < np.inf:
        raise ValueError(f"The budget must be above 0, got {budget}. It is the mean number of tokens scored.")
    if most < learning.clusters:
        raise ValueError(
            f"Weights are learned from as many contexts as there are clusters, or more: got most={most} for "
            f"{learning.clusters} clusters. Raise most."
        )
    if points is not None and (
        np.shape(points) != (learning.clusters, contexts.width) or not np.isfinite(points).all()
    ):
        raise ValueError(
            f"Weights begin at finite points {(learning.clusters, contexts.width)}, clusters by width: got {np.shape(points)}. "
            "Leave points out, or set Learning.clusters."
        )
    if contexts.top < learning.top:
        raise ValueError(
            f"Learning to screen needs the {learning.top} best tokens of each context: got contexts with {contexts.top}. Record "
            f"them with top={learning.top}, or lower top."
        )


def knapsack(
    keys: np.ndarray,
    counts: np.ndarray,
    members: np.ndarray,
    vocabulary: int,
    budget: float,
    penalty: float,
    skip: bool = False,
) -> ActiveSets:
    """Fill the sets greedily by value, up to a mean size of the budget over all contexts (eq. 7, weights fixed).

    A cluster without a token has size 0 here; in decoding, an empty set stands for the whole vocabulary.

    A token of a cluster has the value ``n_ts - lambda (n_t - n_ts)`` and the weight ``n_t``. All tokens of all clusters are ordered
    by value over weight, that is by ``n_ts / n_t``, the share of the cluster's contexts that have the token as a label. The
    penalty only cuts off shares up to ``lambda / (1 + lambda)``.

    Parameters
    ----------
    keys, counts : int64 arrays (M,)
        ``cluster * V + token`` and n_ts, how many contexts of the cluster have the token as a label.
    members : int64 array (r,)
        n_t, contexts of each cluster.
    skip : bool
        Go on after the first token that does not fit.
    """
    clusters = keys // vocabulary
    weights = members[clusters]
    value = counts - penalty * (weights - counts)
    candidates = np.flatnonzero(value > 0)
    share = counts[candidates] / weights[candidates]
    order = candidates[np.lexsort((keys[candidates], -counts[candidates], -share))]
    capacity = budget * members.sum()
    filled = np.cumsum(weights[order])
    within_budget = filled <= capacity
    taken = order[within_budget]
    if skip and not within_budget.all():
        remaining, later = capacity - (filled[within_budget][-1] if within_budget.any() else 0), []
        for item in order[len(taken) :]:
            if weights[item] <= remaining:
                remaining -= weights[item]
                later.append(item)
        taken = np.concatenate([taken, np.array(later, dtype=np.int64)])
    return ActiveSets.of_keys(np.sort(keys[taken]), len(members), vocabulary)


def learn_points(
    points: np.ndarray,
    sets: ActiveSets,
    hidden: np.ndarray,
    labels: np.ndarray,
    budget: float,
    learning: Learning,
    random: np.random.Generator,
    progress: bool = False,
) -> np.ndarray:
    """Weights (r, D) after `Learning.epochs` passes of stochastic gradient descent on eq. 8, over hidden (N, D), labels (N, K)."""
    from tqdm.auto import tqdm

    points, active = points.astype(np.float32), _Active(sets)
    mean_set: float | None = None
    starts = range(0, len(hidden), learning.batch)
    rate = np.float32(learning.rate * learning.sharpness / np.square(hidden, dtype=np.float64).sum(1).mean())
    with tqdm(total=learning.epochs * len(starts), desc="screening", unit="batch", disable=not progress) as bar:
        for _ in range(learning.epochs):
            order = random.permutation(len(hidden))
            for start in starts:
                rows = np.sort(order[start : start + learning.batch])
                noise = random.gumbel(size=(len(rows), len(points))).astype(np.float32)
                gradient, mean_set = batch_gradient(
                    points, active, hidden[rows], labels[rows], noise, mean_set, budget, learning
                )
                points -= rate * gradient
                bar.update()
    return points


class _Active:
    """Sets as tables: which tokens are active (r, V), sizes (r,), and how many tokens two clusters share (r, r)."""

    def __init__(self, sets: ActiveSets):
        self.table = np.zeros((len(sets), sets.vocabulary), dtype=bool)
        self.table.reshape(-1)[sets.keys] = True
        self.sizes = np.diff(sets.offsets).astype(np.float32)
        floats = self.table.astype(np.float32)
        self.shared = floats @ floats.T


def batch_gradient(
    points: np.ndarray,
    active: _Active,
    hidden: np.ndarray,
    labels: np.ndarray,
    noise: np.ndarray,
    mean_set: float | None,
    budget: float,
    learning: Learning,
) -> tuple[np.ndarray, float]:
    """The gradient (r, D) of a batch's loss and the budget's hinge, divided by the batch's size, and the new average set size.

    The samples are one-hot in the forward pass and softmax in the backward pass. The gradient is therefore that of the softmax
    over the clusters' costs, and no table of contexts and tokens is needed. In the hinge, only the batch's share of the moving
    average has a gradient.

    Parameters
    ----------
    hidden, labels : arrays (B, D) and (B, K)
    noise : float array (B, r)
        Gumbel samples.
    """
    logits = (hidden @ points.T + noise) / np.float32(learning.temperature)
    logits -= logits.max(1, keepdims=True)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(1, keepdims=True)
    chosen = probabilities.argmax(1)
    covered = active.table[:, labels].transpose(1, 0, 2)
    penalty = np.float32(learning.penalty)
    # The costs are derivatives of eq. 7 in the one-hot sample.
    if learning.reading == "linear":
        hits = covered.sum(2)
        cost = labels.shape[1] - hits + penalty * (active.sizes - hits)
    else:
        in_chosen = active.table[chosen[:, None], labels][:, None]
        cost = -2 * (covered & ~in_chosen).sum(2) + 2 * penalty * (active.shared[chosen] - (covered & in_chosen).sum(2))
    cost = cost.astype(np.float32)
    batch_mean = float(active.sizes[chosen].mean())
    batch_share = 1.0 if mean_set is None else 1 - learning.momentum
    average = batch_mean if mean_set is None else learning.momentum * mean_set + batch_share * batch_mean
    if average > budget:
        cost += np.float32(learning.pressure * batch_share / len(hidden)) * active.sizes
    cost -= (probabilities * cost).sum(1, keepdims=True)
    return (probabilities * cost).T @ hidden / np.float32(len(hidden) * learning.temperature), average
