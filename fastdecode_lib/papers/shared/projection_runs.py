"""Every projection on recorded contexts, timed in turn; one file because all settings are compared on the same labels."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.core import Candidates, Projection, Scorer, Source
from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.measuring.counting import Proxy
from fastdecode_lib.measuring.referee import System, measure
from fastdecode_lib.papers.experiment import rows_where
from fastdecode_lib.papers.run import Scale
from fastdecode_lib.papers.shared.contexts_of import Situation, arrays
from fastdecode_lib.papers.shared.rows import median, speedup_of, times_as_fast
from fastdecode_lib.projections.active_sets import sampled
from fastdecode_lib.projections.clustering import fit_clustered
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.projections.factored import Adaptive
from fastdecode_lib.projections.kmeans import kmeans
from fastdecode_lib.projections.learning_to_screen import Learning, fit_screened
from fastdecode_lib.projections.quantised import Quantised
from fastdecode_lib.projections.screen_compiled import ScreenScorer
from fastdecode_lib.projections.screens import Screen
from fastdecode_lib.projections.shortlists import Listed

BASELINE = "numpy"
"""Baseline of every speedup: numpy's product of the matrix with a vector, and its partial sort."""
EXACT = "exact float32"
"""Our fastest exact projection in float32."""
K = 5
"""Best tokens that a projection returns."""
Judge = Callable[[Projection], tuple[bool, float]]
"""Whether a projection is good enough, and how good it is."""


@dataclass(frozen=True)
class Setting:
    """A method with its knobs; `at_limit`: a knob is at an end of the range that was searched."""

    method: str
    knobs: dict[str, Any]
    make: Callable[[], Projection]
    at_limit: bool = False

    @property
    def label(self) -> str:
        """``method:key=value,...``."""
        knobs = ",".join(f"{key}={value}" for key, value in self.knobs.items())
        return f"{self.method}:{knobs}" if knobs else self.method


@dataclass(frozen=True)
class Grid:
    """Settings of screens, the search for those of rivals, and the amount of timing."""

    clusters: int
    budgets: tuple[int, ...]
    precisions: tuple[str, ...]
    centroids: tuple[int, ...]
    """Numbers of clusters; 1 is a fixed list of all tokens that are ever among the best."""
    variants: int
    """Variants of a rival, each with another second knob."""
    bisections: int
    """Most halvings of the range of a knob that is tuned: a rival's, or a screen's budget."""
    rounds: int
    timed: int
    learning: dict[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        """Options of `Learning`, with the number of clusters."""
        return {"clusters": self.clusters, **self.learning}


GRIDS = {
    Scale.TINY: Grid(8, (25, 200), ("float32", "int8"), (1, 8), 1, 0, 2, 20, {"rounds": 2}),
    Scale.LAPTOP: Grid(
        100,
        (25, 50, 100, 150, 250, 400, 700, 1_200),
        ("float32", "float16", "int8"),
        (1, 100, 400, 1_000),
        4,
        5,
        9,
        400,
        {},
    ),
}
GRIDS[Scale.PAPER] = GRIDS[Scale.LAPTOP]


def numpy_system(weight: np.ndarray, bias: np.ndarray) -> System:
    """The baseline: the K best ids of one hidden vector (1, D), best first, by a product, a partial sort, and a sort of the K."""

    def decode(hidden: Any) -> tuple[int, ...]:
        scores = weight @ hidden[0] + bias
        best = np.argpartition(scores, len(scores) - K)[len(scores) - K :]
        return tuple(best[np.lexsort((best, -scores[best]))].tolist())

    return System(BASELINE, decode)


def projection_system(name: str, projection: Projection, k: int = K, *, normalise: bool = False) -> System:
    """A projection's part of a decoder's step: the k best tokens of hidden vectors (N, D)."""
    scorer: Any = projection.bind(None)
    return System(name, lambda hidden: tuple(scorer.top_k(hidden, k, normalise=normalise).ids.ravel().tolist()))


class Captured(Proxy):
    """A projection that keeps something of every call: the hidden vectors, so that other projections can score them, by default.

    `keep` gives it from the hidden vectors and the candidates of a call.
    """

    def __init__(
        self,
        inner: Projection | Scorer,
        keep: Callable[[Any, Candidates], np.ndarray] = lambda hidden, _: np.array(hidden, dtype=np.float32),
        captured: list[np.ndarray] | None = None,
    ):
        super().__init__(inner)
        self.keep, self.captured = keep, [] if captured is None else captured

    def bind(self, source: Source | None) -> "Captured":
        """The inner scorer, of whose calls the same list keeps something."""
        return Captured(self.inner.bind(source), self.keep, self.captured)

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        """Best tokens of the inner scorer."""
        candidates: Candidates = self.inner.top_k(hidden, k, banned, normalise)
        self.captured.append(self.keep(hidden, candidates))
        return candidates


class Screens:
    """Screens of a situation, each fitted once for all precisions."""

    def __init__(self, situation: Situation):
        self.situation = situation
        self.fitted: dict[str, Screen] = {}
        self.centroids: dict[tuple[int, int], np.ndarray] = {}
        self.matrices: dict[str, Matrix] = {"float32": situation.matrix}

    def learned(self, budget: float, learning: Learning, seed: int = 0) -> Screen:
        """A screen learned by algorithm 1 of Chen et al. (2019)."""
        key = f"{budget} {learning} {seed}"
        if key not in self.fitted:
            points = self._points(learning.clusters, seed)
            self.fitted[key] = fit_screened(
                self.situation.fit, budget=budget, learning=learning, seed=seed, points=points
            )
        return self.fitted[key]

    def setting(self, method: str, knobs: dict[str, Any], learning: Learning, seed: int = 0) -> Setting:
        """A learned screen at a budget, and in a precision if that is a knob, fitted when it is asked for."""

        def make() -> Projection:
            return self.scorer(self.learned(knobs["budget"], learning, seed), knobs.get("precision", "float32"))

        return Setting(method, knobs, make)

    def clustered(self, clusters: int, top: int, seed: int = 0) -> Screen:
        """Clusters with active sets of Amer et al. (2022)."""
        key = f"{clusters} {top} {seed}"
        if key not in self.fitted:
            self.fitted[key] = fit_clustered(self.situation.fit, clusters=clusters, top=top, seed=seed)
        return self.fitted[key]

    def scorer(self, screen: Screen, precision: str) -> ScreenScorer:
        """A screen on the output matrix in some precision."""
        if precision not in self.matrices:
            weight, bias = self.situation.weight, self.situation.bias
            self.matrices[precision] = Matrix.of(weight, bias, precision)  # type: ignore[arg-type]
        return ScreenScorer(screen, self.matrices[precision])

    def _points(self, clusters: int, seed: int) -> np.ndarray:
        """Spherical k-means, once for each number of clusters and seed."""
        if (clusters, seed) not in self.centroids:
            hidden = sampled(self.situation.fit, 500_000, seed)
            self.centroids[clusters, seed] = kmeans(hidden, clusters, seed=seed, spherical=True)
        return self.centroids[clusters, seed]


FIRST_ROUND = "the learned screen's first round"
"""Description of spherical k-means in the provenance."""


def context_counts(situations: Iterable[Situation]) -> dict[str, dict[str, dict[str, int]]]:
    """Contexts recorded of each model, by split and direction."""
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for recorded in situations:
        for split, contexts in (("fit", recorded.fit), ("dev", recorded.dev), ("test", recorded.test)):
            rows = {name: len(contexts.where(direction=name)) for name in contexts.directions}
            by_direction = counts.setdefault(recorded.model, {}).setdefault(split, {})
            by_direction |= {name: number for name, number in rows.items() if number}
    return counts


def exact_settings(matrix: Matrix) -> list[Setting]:
    """Exact projections beside numpy's: our float32 kernel and the lossless byte scores."""
    return [
        Setting(EXACT, {}, lambda: CompiledExact(matrix)),
        Setting("quantised", {}, lambda: Quantised(matrix)),
    ]


def screen_settings(screens: Screens, grid: Grid, seed: int = 0) -> list[Setting]:
    """Learned screens, spherical k-means with a knapsack, and Amer et al.'s clusters, in every precision."""

    def clustered(clusters: int, top: int, precision: str) -> Setting:
        knobs = {"clusters": clusters, "top": top, "precision": precision}
        return Setting("clustered", knobs, lambda: screens.scorer(screens.clustered(clusters, top, seed), precision))

    budgets = [budget for budget in grid.budgets if budget < screens.situation.matrix.shape[0]]
    learned = {"screened": Learning(**grid.options), "kmeans": Learning(**{**grid.options, "rounds": 1})}
    return [
        *(
            screens.setting(method, {"budget": budget, "precision": p}, learning, seed)
            for method, learning in learned.items()
            for budget in budgets
            for p in grid.precisions
        ),
        *(clustered(r, top, p) for r in grid.centroids for top in (1, 5) for p in grid.precisions),
    ]


def timed_settings(
    situation: Situation, settings: Sequence[Setting], grid: Grid, *, seed: int = 0, progress: bool = False
) -> pd.DataFrame:
    """Precision of every setting on dev and test contexts, and its time for one vector of the test contexts.

    All settings are timed in turn with the baseline, ``grid.timed`` vectors one after another, ``grid.rounds`` rounds, one
    thread. ``p_at_1`` and ``p_at_5`` are the precisions on the test split (`precision_at`); settings are chosen by
    ``dev_p_at_1`` and ``dev_p_at_5``.

    Returns
    -------
    DataFrame
        A row for numpy's exact product and one for each setting, with raw seconds.
    """
    from tqdm.auto import tqdm

    projections: dict[str, Projection] = {}
    rows: dict[str, dict[str, Any]] = {}
    (dev, dev_labels), (test, labels) = arrays(situation.dev), situation.queries
    for setting in tqdm(settings, desc=situation.name, unit="setting", disable=not progress):
        projection = projections[setting.label] = setting.make()
        row: dict[str, Any] = {"name": setting.label, "method": setting.method, **setting.knobs}
        row["at_limit"] = setting.at_limit
        for prefix, hidden, exact_labels in (("dev_", dev, dev_labels), ("", test, labels)):
            ids, active = best_of(projection, hidden, K)
            row |= {f"{prefix}p_at_{n}": precision_at(ids, exact_labels, n) for n in (1, 5)}
            row[f"{prefix}rows_scored"] = float(active.mean())
        row["bytes_read"] = bytes_read(projection, row["rows_scored"])
        row["memory_bytes"] = extra_bytes(projection, situation.matrix)
        rows[setting.label] = row
    timed_rows = np.linspace(0, len(test) - 1, min(grid.timed, len(test))).astype(int)
    vectors: Any = [np.ascontiguousarray(test[i : i + 1]) for i in timed_rows]
    weight, bias = situation.weight, situation.bias
    systems = [numpy_system(weight, bias)]
    systems += [projection_system(name, projection) for name, projection in projections.items()]
    timings = measure(systems, vectors, runs=grid.rounds, seed=seed, progress=progress)
    numpy_bytes = weight.nbytes + bias.nbytes
    numpy_ids = np.array(timings[0].outputs)  # numpy rounds otherwise than the model: not all its best are the labels
    precision = {f"p_at_{n}": precision_at(numpy_ids, labels[timed_rows], n) for n in (1, 5)}
    rows = {
        BASELINE: {
            "name": BASELINE, "method": BASELINE, **precision, **{f"dev_{name}": value for name, value in precision.items()},
            "rows_scored": float(len(weight)), "dev_rows_scored": float(len(weight)), "bytes_read": numpy_bytes,
            "memory_bytes": 0, "at_limit": False,
        }
    } | rows  # fmt: skip
    exact = next((m for m in timings if m.name == EXACT), None)
    for m in timings:
        microseconds = 1e6 * median(m) / len(vectors)
        rows[m.name] |= {
            "microseconds": microseconds,
            **speedup_of(timings[0], m),
            "over_exact": times_as_fast(exact, m) if exact else None,
            "gigabytes_per_second": rows[m.name]["bytes_read"] / microseconds / 1e3,
            "seconds": m.seconds.tolist(),
        }
    return pd.DataFrame(list(rows.values()))


def best_of(projection: Projection, hidden: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids (N, k) and active tokens (N,) of many vectors."""
    scorer = projection.bind(None)
    parts = [scorer.top_k(hidden[start : start + 4_096], k) for start in range(0, len(hidden), 4_096)]
    return np.concatenate([part.ids for part in parts]), np.concatenate([part.num_active for part in parts])


def precision_at(ids: np.ndarray, labels: np.ndarray, k: int) -> float:
    """P@k: the mean share of the exact k best that are among the k best found; a place left empty counts as a miss."""
    return float((ids[:, :k, None] == labels[:, None, :k]).any(1).mean())


def extra_bytes(projection: Projection, matrix: Matrix) -> int:
    """Bytes that a projection adds to the model's output matrix; a copy in another order counts."""
    holds_matrix = isinstance(projection, (CompiledExact, Quantised))
    return projection.memory_bytes - (matrix.memory_bytes if holds_matrix else 0)


def bytes_read(projection: Any, rows_scored: float) -> int:
    """Bytes of weights and index that are read to score one vector."""
    if isinstance(projection, Listed):
        return round(projection.search_bytes + rows_scored * 4 * (projection.width + 1))
    if isinstance(projection, Adaptive):
        return projection.bytes_per_query
    if isinstance(projection, ScreenScorer):
        return int(projection.bytes_for(rows_scored))
    if isinstance(projection, Quantised):
        return projection.memory_bytes - projection.whole.memory_bytes
    return projection.memory_bytes


def fastest(frame: pd.DataFrame, method: str, at_1: float, at_5: float, **fixed: Any) -> pd.Series | None:
    """The fastest setting of a method whose precisions on dev are at least these; its most precise where there is none."""
    rows = rows_where(frame, {"method": method, **fixed})
    if not len(rows):
        return None
    good = rows[(rows["dev_p_at_1"] >= at_1) & (rows["dev_p_at_5"] >= at_5)]
    if len(good):
        return good.loc[good["speedup"].idxmax()]
    return rows.loc[(rows["dev_p_at_1"] + rows["dev_p_at_5"]).idxmax()]


def first_of(settings: Iterable[Setting], judge: Judge) -> tuple[Setting, Projection, bool]:
    """The first setting whose projection is good enough, with the projection and True; else the best, with False.

    Give the cheapest settings first: no projection is made after the one that is returned.
    """
    best, highest = None, -np.inf
    for setting in settings:
        projection = setting.make()
        good_enough, score = judge(projection)
        if good_enough:
            return setting, projection, True
        if score > highest:
            best, highest = (setting, projection), score
    if best is None:
        raise ValueError("There is nothing to choose from: got no setting. Give at least one.")
    return *best, False


def reaching(settings: Iterable[Setting], recorded: Situation, at_1: float, at_5: float) -> tuple[Setting, Projection]:
    """The first setting whose precisions on dev are at least these, or else the most precise: see `first_of`."""
    setting, projection, _ = first_of(settings, precision_judge(recorded, at_1, at_5))
    return setting, projection


def precision_judge(recorded: Situation, at_1: float, at_5: float, limit: int | None = None) -> Judge:
    """A judge for `first_of`: whether precisions on dev contexts, at most `limit` of them, are at least these."""
    hidden, labels = arrays(recorded.dev)
    sample = slice(None, None, 1 if limit is None else max(1, -(-len(hidden) // limit)))

    def judge(projection: Projection) -> tuple[bool, float]:
        ids, _ = best_of(projection, hidden[sample], labels.shape[1])
        p_at_1, p_at_5 = (precision_at(ids, labels[sample], n) for n in (1, 5))
        return p_at_1 >= at_1 and p_at_5 >= at_5, p_at_1 + p_at_5

    return judge
