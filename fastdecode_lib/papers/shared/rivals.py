"""Rivals of screens, each knob tuned by bisection until the method is good enough."""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from fastdecode_lib.core import Projection
from fastdecode_lib.papers.shared.contexts_of import Situation, arrays
from fastdecode_lib.papers.shared.projection_runs import Grid, Judge, K, Setting, best_of, bytes_read
from fastdecode_lib.projections.ann_indexes import Fgd, Scann
from fastdecode_lib.projections.factored import CONTEXTS, Adaptive, Svd
from fastdecode_lib.projections.mips import GreedyMips, LshMips, PcaMips, RowClusters
from fastdecode_lib.projections.screen_compiled import ScreenScorer

JUDGED_ON = 5_000
"""Contexts of the dev split, at most, that a step of the bisection is judged on."""


@dataclass(frozen=True)
class Family:
    """A method's settings along one knob, from `low` to `high`: at a higher value it computes more and is more precise.

    `knobs` gives all knobs, by their names in tables, for a value of the one; `make` makes the projection of all knobs.
    """

    method: str
    low: int
    high: int
    knobs: Callable[[int], dict[str, Any]]
    make: Callable[..., Projection]


def tuned(family: Family, judge: Judge, halvings: int) -> list[Setting]:
    """The settings that bisection tries, in ascending order of the knob, each with its projection.

    Both ends of the range are tried first; where the lower is not good enough, the range is halved on a logarithmic scale. The
    lowest good setting is then the cheapest to within the last halving; where none is good, the settings tried span the range.
    """
    tried: dict[int, Projection] = {}

    def good_enough(value: int) -> bool:
        tried[value] = family.make(**family.knobs(value))
        return judge(tried[value])[0]

    low, high = family.low, family.high
    if not good_enough(low):
        good_enough(high)
        for _ in range(halvings):
            middle = round((low * high) ** 0.5)
            if middle in (low, high):
                break
            low, high = (low, middle) if good_enough(middle) else (middle, high)
    ends = (family.low, family.high)
    return [
        Setting(family.method, family.knobs(value), lambda projection=projection: projection, at_limit=value in ends)  # type: ignore[misc]
        for value, projection in sorted(tried.items())
    ]


def rival_settings(
    situation: Situation,
    grid: Grid,
    judge: Callable[[str], Judge],
    seed: int = 0,
    *,
    methods: tuple[str, ...] = (),
    whole_vocabulary: bool = False,
) -> list[Setting]:
    """The baselines of Chen et al. and clusters of the output's rows, tuned; those that read the fewest bytes first.

    Parameters
    ----------
    judge : callable
        Method -> the judge of its projections.
    methods : tuple of str
        Methods to tune; all if empty.
    whole_vocabulary : bool
        Tune them for probabilities of the whole vocabulary: adaptive softmax counts the words that came next, not the model's
        best, and FGD returns half of the tokens it scores, not only the best few.
    """
    settings: list[Setting] = []
    for method, families in _families(situation, seed, whole_vocabulary).items():
        if not methods or method in methods:
            for family in islice(families, grid.variants):
                settings += tuned(family, judge(method), grid.bisections)
    sample = arrays(situation.dev)[0][:200]

    def cost(setting: Setting) -> int:
        projection = setting.make()
        return bytes_read(projection, float(best_of(projection, sample, K)[1].mean()))

    return sorted(settings, key=cost)


def with_end(projection: Projection, end: tuple[int, ...]) -> Projection:
    """A screen's or FGD's projection with the end of the sentence among the candidates of every step, so that outputs can stop."""
    if isinstance(projection, ScreenScorer):
        sets = projection.screen.sets.with_always(end)
        return ScreenScorer(replace(projection.screen, sets=sets), projection.whole)
    return replace(projection, always=end) if isinstance(projection, Fgd) else projection


def _families(situation: Situation, seed: int, whole_vocabulary: bool) -> dict[str, Iterator[Family]]:
    """The variants of every rival that is installed, each over the whole range of its knob."""
    rivals = {
        "svd": _svd(situation),
        "adaptive": _adaptive(situation, seed, whole_vocabulary),
        "greedy_mips": _greedy(situation),
        "fgd": _fgd(situation, whole_vocabulary),
        "pca_mips": _trees(situation),
        "lsh_mips": _hashes(situation),
        "row_clusters": _row_clusters(situation),
    }
    return rivals | ({"scann": _scann(situation)} if importlib.util.find_spec("scann") else {})


def _svd(situation: Situation) -> Iterator[Family]:
    vocabulary, width = situation.matrix.shape
    fitted = Svd.fit(situation.weight, situation.bias, full=K)
    for share in (0.25, 0.1, 0.5, 0.75):
        knobs = partial(_knobs, "full", window=max(1, round(share * width)))
        yield Family("svd", K, vocabulary // 2, knobs, partial(replace, fitted))


def _adaptive(situation: Situation, seed: int, whole_vocabulary: bool) -> Iterator[Family]:
    """Adaptive softmax keeps the weights of the output layer: trained on the model's best words, it finds fewer of them."""
    vocabulary = situation.matrix.shape[0]
    counts = np.zeros(vocabulary, dtype=np.int64)
    for block in situation.fit.blocks():
        counts += np.bincount(block.gold if whole_vocabulary else block.labels[:, 0], minlength=vocabulary)
    hidden, _ = arrays(situation.fit.sample(min(CONTEXTS, len(situation.fit)), seed))
    fit = partial(Adaptive.fit, hidden, counts, situation.weight, situation.bias)
    for factor in (4, 2):
        yield Family(
            "adaptive", 50, min(vocabulary // 2, int(counts.sum())), partial(_knobs, "head", factor=factor), fit
        )


def _greedy(situation: Situation) -> Iterator[Family]:
    fitted = GreedyMips.fit(situation.weight, situation.bias)
    yield Family("greedy_mips", K, round(0.8 * fitted.vocabulary), partial(_knobs, "budget"), partial(replace, fitted))


def _fgd(situation: Situation, whole_vocabulary: bool) -> Iterator[Family]:
    for links in (16, 32, 64, 128):
        graph = Fgd.fit(situation.weight, situation.bias, links=links, construction=200)

        def walk(search: int, neighbours: int, links: int, graph: Fgd = graph) -> Projection:
            return replace(graph, search=search, neighbours=neighbours)

        def knobs(search: int, links: int = links) -> dict[str, Any]:
            return {"neighbours": max(K, search // 2) if whole_vocabulary else K, "search": search, "links": links}

        yield Family("fgd", 8, min(1_024, graph.vocabulary), knobs, walk)


def _trees(situation: Situation) -> Iterator[Family]:
    """The knob is the size of the leaves: 1 is the deepest tree."""
    deepest = min(situation.matrix.shape[0].bit_length() - 4, situation.matrix.shape[1])
    fit = partial(PcaMips.fit, situation.weight, situation.bias)
    for detours in (False, True):

        def knobs(leaf: int, detours: bool = detours) -> dict[str, Any]:
            return {"depth": deepest + 1 - leaf, "detours": detours}

        yield Family("pca_mips", 1, deepest, knobs, fit)


def _hashes(situation: Situation) -> Iterator[Family]:
    for bits in (6, 10):
        fit = partial(LshMips.fit, situation.weight, situation.bias)
        yield Family("lsh_mips", 1, 256, partial(_knobs, "tables", bits=bits), fit)


def _row_clusters(situation: Situation) -> Iterator[Family]:
    groups = max(8, round(situation.matrix.shape[0] ** 0.5))
    fitted = RowClusters.fit(situation.weight, situation.bias, clusters=groups)

    def probed(probes: int, clusters: int) -> Projection:
        return replace(fitted, probes=probes)

    yield Family("row_clusters", 1, groups, partial(_knobs, "probes", clusters=groups), probed)


def _scann(situation: Situation) -> Iterator[Family]:
    leaves = max(8, round(situation.matrix.shape[0] ** 0.5))
    fitted = Scann.fit(situation.weight, situation.bias, leaves=leaves)
    for neighbours in (10 * K, K):
        yield Family("scann", 1, leaves, partial(_knobs, "probes", neighbours=neighbours), partial(replace, fitted))


def _knobs(name: str, value: int, **fixed: Any) -> dict[str, Any]:
    return {name: value, **fixed}
