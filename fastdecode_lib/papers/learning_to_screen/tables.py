"""Chen et al.'s tables and figures of vectors; one file because most of them are views of one set of runs.

The paper's data sets cannot be had: novels stand for the Penn Treebank and WikiText-103, everyday sentences for IWSLT. Models
that are not trained here are named gaps. Settings are chosen on contexts of the dev split and measured on the test split.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any, get_args

import numpy as np
import pandas as pd

from fastdecode_lib.core import Projection
from fastdecode_lib.papers.learning_to_screen import printed as chen_2019
from fastdecode_lib.papers.outcomes import NoResult
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment
from fastdecode_lib.papers.shared.contexts_of import MODELS, TOP, Situation, arrays, situation
from fastdecode_lib.papers.shared.projection_runs import (
    BASELINE,
    EXACT,
    FIRST_ROUND,
    GRIDS,
    Grid,
    Judge,
    Screens,
    Setting,
    best_of,
    context_counts,
    exact_settings,
    fastest,
    precision_judge,
    screen_settings,
    timed_settings,
)
from fastdecode_lib.papers.shared.rivals import JUDGED_ON, Family, rival_settings, tuned
from fastdecode_lib.papers.shared.rows import gap, table_of
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.projections.learning_to_screen import Learning, Reading

SCREENS = ("screened", "kmeans", "clustered")
"""Methods that are timed in several precisions of the output matrix; baselines are in float32 only, and compared with that."""
MAIN = ("translation", "small", "large")
"""The three of table 2, the one with a vocabulary in use first."""
BUDGETS = {"translation": 250, "small": 50}
"""Tokens scored on average where a table has one budget; they bind.

Of the small model's words few are ever among the five best of a cluster: without a budget 50 to 250 clusters have 80 to 53 of
them on average, and a knapsack has nothing to choose.
"""
BINDING = {"translation": (100, 250), "small": (25, 50)}
"""Budgets that leave a knapsack something to choose, by model."""
ROUNDS = range(1, Learning().rounds + 1)
"""Rounds of algorithm 1 that are shown, up to those that screens have."""
COLUMNS = (
    "speedup", "speedup_low", "speedup_high", "over_exact", "p_at_1", "p_at_5", "microseconds", "rows_scored",
    "bytes_read", "gigabytes_per_second", "memory_bytes", "noisy",
)  # fmt: skip
"""Columns of a chosen setting that the tables show."""


def or_gap(make: Callable[[CorpusRun], pd.DataFrame]) -> Callable[[CorpusRun], pd.DataFrame]:
    """A table of one model; where that is not trained here, a single row that says so."""

    @wraps(make)
    def table(run: CorpusRun) -> pd.DataFrame:
        try:
            return make(run)
        except NoResult as missing:
            return table_on([{"name": "all", **gap(missing)}], run)

    return table


def table_on(rows: Any, run: Run, used: Iterable[Situation] = ()) -> pd.DataFrame:
    """Rows as a table that says how it was made: with which models and contexts, and how screens are learned.

    A row's own knobs go before those of the learning.
    """
    used = list(used)
    about = {
        "baseline": "numpy's product of the matrix with one vector, and its partial sort",
        "settings": "the fastest, timed on the test split, of those that are precise enough on contexts of the dev split",
        "learning": repr(Learning(**GRIDS[run.scale].options)),
        "kmeans": FIRST_ROUND,
        "fingerprints": {found.model: found.loaded.checkpoint.fingerprint for found in used},
        "contexts": context_counts(used),
    }
    return table_of(rows, run, **about)


def trained_of(names: Iterable[str], run: CorpusRun) -> Iterator[Situation]:
    """The situations of those models that are trained here."""
    for name in names:
        with suppress(NoResult):
            yield situation(name, run)


@experiment
def table1(run: CorpusRun) -> pd.DataFrame:
    """Table 1: vocabulary and width of each model, ours and the paper's.

    ``ever_best`` is how many words are among the five best of any of the contexts that screens are learned on: the fewer, the
    less is left for a screen to do.
    """
    rows = []
    for name, (paper_name, vocabulary, width) in chen_2019.SIZES.items():
        row = {"name": name, "paper_name": paper_name, "paper_vocabulary": vocabulary, "paper_width": width}
        try:
            recorded = situation(name, run)
            vocabulary, width = recorded.matrix.shape
            row |= {"model": recorded.model, "vocabulary": vocabulary, "width": width}
            rows.append(
                row
                | {"ever_best": len({token for block in recorded.fit.blocks() for token in np.unique(block.labels)})}
            )
        except NoResult as missing:
            rows.append(row | gap(missing))
    return table_on(rows, run, used=trained_of(chen_2019.SIZES, run))


@experiment
def frontiers(run: CorpusRun) -> pd.DataFrame:
    """Every method at the settings looked at, on each model: the source of tables 2 and 5 and figures 2 to 7.

    Screens are tried over a grid; what is tuned by bisection has more settings near the precision it is held to.
    """
    return table_on(_frontiers(run, MAIN, True), run, trained_of(MAIN, run))


@cache
def _frontiers(run: CorpusRun, names: tuple[str, ...], rivals: bool) -> pd.DataFrame:
    """The settings of every method, or of exact projections and screens alone if `rivals` is false."""
    grid, parts = GRIDS[run.scale], []
    known: dict[tuple[str, str], pd.DataFrame] = {}
    for name in names:
        try:
            recorded = situation(name, run)
        except NoResult as missing:
            parts.append(pd.DataFrame([{"set": name, "name": "all", **gap(missing)}]))
            continue
        place = (recorded.model, recorded.direction)
        if place not in known:  # in a tiny run one language model stands for several
            screens = Screens(recorded)
            settings = [*exact_settings(), *screen_settings(screens, grid, run.seed)]
            if rivals:
                judge = _judge(name, recorded)
                settings += tuned_screens(screens, grid, judge, run.seed)
                settings += rival_settings(recorded, grid, judge, run.seed)
            settings = list({setting.label: setting for setting in settings}.values())
            known[place] = distinct(timed_settings(recorded, settings, grid, progress=run.progress))
        parts.append(known[place].assign(set=name, model=recorded.model))
    return pd.concat(parts, ignore_index=True)


def _judge(name: str, recorded: Situation) -> Callable[[str], Judge]:
    """Method -> whether it is as precise as in the paper's table 2; what that does not have is held to its L2S."""
    printed = chen_2019.TABLE_2[name]
    return lambda method: precision_judge(recorded, *printed.get(method, printed["screened"])[1:], limit=JUDGED_ON)


def tuned_screens(screens: Screens, grid: Grid, judge: Callable[[str], Judge], seed: int) -> list[Setting]:
    """Learned screens and k-means with a knapsack in float32, their budgets tuned to what the learned screen is held to."""
    settings = []
    for method, knobs in (("screened", {}), ("kmeans", {"rounds": 1})):
        options = Learning(**{**grid.options, **knobs})

        def make(budget: int, precision: str, options: Learning = options) -> Projection:
            return screens.scorer(screens.learned(budget, options, seed), precision)

        budgets = (min(grid.budgets), min(max(grid.budgets), screens.situation.matrix.shape[0] - 1))
        family = Family(method, *budgets, lambda budget: {"budget": budget, "precision": "float32"}, make)
        settings += tuned(family, judge("screened"), grid.bisections)
    return settings


@experiment
def table2(run: CorpusRun) -> pd.DataFrame:
    """Table 2: speedup, P@1 and P@5 of every method, each at its fastest setting that is not below the paper's precision on dev.

    Knobs of rivals, and budgets in float32, are tuned by bisection; ``at_limit`` is True where one of these stands at an end of
    the range looked through.
    ``reached`` is False where no setting is, and the most precise is shown. What the paper does not have is held to the
    precision of its L2S; of screens ``reached`` says whether they have it, of other methods nothing. All are in float32, but
    where it says otherwise.
    """
    frame = _frontiers(run, MAIN, True)
    return table_on(_chosen(frame, chen_2019.TABLE_2), run, trained_of(MAIN, run))


@experiment
def table5(run: CorpusRun) -> pd.DataFrame:
    """Table 5: the learned screen beside spherical k-means with a knapsack, and FGD."""
    frame = _frontiers(run, MAIN, True)
    return table_on(_chosen(frame, chen_2019.TABLE_5), run, trained_of(MAIN, run))


def limits_named(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose methods say where their knob stands at an end of the range that was looked through."""
    if "at_limit" not in table:
        return table
    at_limit = table["at_limit"].fillna(False).astype(bool)
    return table.assign(method=table["method"].mask(at_limit, table["method"] + " (knob at its limit)"))


def at_equal_budgets(frontiers: pd.DataFrame) -> pd.DataFrame:
    """Gain of learning in precision: spherical k-means and the learned screen, in float32, at every budget that both have."""
    place = ["set", "budget", "method"]
    same = (frontiers["precision"] == "float32") & frontiers["clusters"].isna()
    own = frontiers[same & frontiers["method"].isin(["kmeans", "screened"])]
    both = own[own.duplicated(place[:2], keep=False)].sort_values(place)
    return both[[*place, "rows_scored", "p_at_1", "p_at_5"]].reset_index(drop=True)


def distinct(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows without screens that repeat an earlier one, such as those whose larger budget finds no more tokens to add.

    To choose the fastest of them would be to choose by chance.
    """
    same = ["method", "precision", "rows_scored", "dev_p_at_1", "dev_p_at_5", "p_at_1", "p_at_5"]
    again = frame["method"].isin(SCREENS) & frame.duplicated([column for column in same if column in frame])
    return frame[~again].reset_index(drop=True)


def _chosen(frame: pd.DataFrame, printed: dict[str, dict[str, tuple[float, float, float]]]) -> pd.DataFrame:
    """A row for each model and method of a printed table, ours beside the paper's, then what is exact and our other methods."""
    rows = []
    for name, methods in printed.items():
        own = frame[frame["set"] == name]
        missing = own["gap"].dropna().tolist() if "gap" in own else []
        extra = ["clustered", "screened, any precision", "clustered, any precision", "row_clusters", "quantised", EXACT]
        extra[-2:-2] = ["scann"] if "scann" in set(own.get("method", ())) else []
        extra.append(BASELINE)
        for method in (*methods, *(extra if printed is chen_2019.TABLE_2 else ())):
            speedup, at_1, at_5 = methods.get(method, (None, *methods["screened"][1:]))
            row: dict[str, Any] = {"name": f"{name}, {method}", "set": name, "method": method}
            row |= {"paper_speedup": speedup}
            if method in methods:
                row |= {"paper_p_at_1": at_1, "paper_p_at_5": at_5}
            kind, _, any_precision = method.partition(", ")
            in_float32 = {"precision": "float32"} if kind in SCREENS and not any_precision else {}
            best = None if missing else fastest(own, kind, at_1, at_5, **in_float32)
            if missing:
                row |= gap(missing[0])
            elif best is not None:
                if method in methods or kind in SCREENS:
                    row["reached"] = bool(best["dev_p_at_1"] >= at_1 and best["dev_p_at_5"] >= at_5)
                row["at_limit"] = bool(best["at_limit"])
                row |= {
                    "model": best["model"],
                    "setting": best["name"],
                    **{column: best[column] for column in COLUMNS},
                }
            rows.append(row)
    return pd.DataFrame(rows)


def curve(name: str, run: CorpusRun) -> pd.DataFrame:
    """Precision against speedup of every method on one model: the settings that no other of the method beats on dev.

    Behind them the points that the paper prints in table 2. Outside of `MAIN`, as in the paper's appendix, of screens alone,
    beside what is exact.
    """
    main = name in MAIN
    frame = _frontiers(run, MAIN if main else (name,), main)
    used = trained_of((name,), run)
    own = frame[frame["set"] == name]
    printed = pd.DataFrame(list(_points(name)))
    if "gap" in own and own["gap"].notna().any():
        return table_on(pd.concat([own.dropna(axis=1), printed], ignore_index=True), run, used)
    kept = [front(rows) for _, rows in own[own["method"] != BASELINE].groupby("method", sort=False)]
    return table_on(pd.concat([*kept, printed], ignore_index=True), run, used)


def _points(name: str) -> Iterator[dict[str, Any]]:
    """The paper's points on one model; of its appendix only that L2S is more than so many times faster."""
    known: Mapping[str, Any] = chen_2019.TABLE_2.get(name) or {"screened": (chen_2019.FIGURE_9, None, None)}
    for method, values in known.items():
        row = {"name": f"paper, {chen_2019.METHODS[method]}", "set": name, "method": method, "kind": "paper"}
        yield row | dict(zip(("paper_speedup", "paper_p_at_1", "paper_p_at_5"), values, strict=True))


def front(rows: pd.DataFrame) -> pd.DataFrame:
    """The settings of a method of which none is both slower and less precise on dev than another, fastest first."""
    rows = rows.sort_values("microseconds")
    precision = rows["dev_p_at_1"] + rows["dev_p_at_5"]
    return rows[precision > precision.shift(fill_value=-1).cummax()]


def _figure(name: str, number: int) -> Callable[..., pd.DataFrame]:
    @experiment
    def figure(run: CorpusRun) -> pd.DataFrame:
        return curve(name, run)

    figure.__name__ = f"figure{number}"
    figure.__doc__ = f"Figure {number}: precision at {1 if number < 5 else 5} against speedup, {MODELS[name]}."
    return figure


figure2, figure3, figure4 = _figure("large", 2), _figure("small", 3), _figure("translation", 4)
figure5, figure6, figure7 = _figure("large", 5), _figure("small", 6), _figure("translation", 7)
figure9 = _figure("cased", 9)


@experiment
@or_gap
def table4(run: CorpusRun) -> pd.DataFrame:
    """Table 4: the number of clusters, at one budget that binds, on the translation model.

    The paper varies the budget with the number of clusters, until times are alike.
    """
    recorded = situation("translation", run)
    grid, screens = GRIDS[run.scale], Screens(recorded)
    counts = [_clusters(r, run.scale) for r in chen_2019.TABLE_4]
    settings = [learned(screens, BUDGETS["translation"], grid.learning, run.seed, clusters=r) for r in counts]
    frame = _screened(recorded, settings, run)
    for column, place in (("milliseconds", 0), ("p_at_1", 1), ("p_at_5", 2)):
        frame[f"paper_{column}"] = [printed[place] for printed in chen_2019.TABLE_4.values()]
    frame["paper_clusters"] = list(chen_2019.TABLE_4)
    return table_on(frame.assign(milliseconds=frame["microseconds"] / 1e3), run, [recorded])


def _clusters(printed: int, scale: Scale) -> int:
    """The paper's number of clusters; a tenth in a tiny run."""
    return printed // 10 if scale == Scale.TINY else printed


def learned(screens: Screens, budget: int, options: dict[str, Any], seed: int, **knobs: Any) -> Setting:
    """A learned screen in float32, at some knobs of `Learning` over the grid's options."""
    learning = Learning(**{**options, **knobs})
    return Setting(
        "screened",
        {"budget": budget, **knobs},
        lambda s: screens.scorer(screens.learned(budget, learning, seed), "float32"),
    )


def _screened(recorded: Situation, settings: list[Setting], run: Run) -> pd.DataFrame:
    """The rows of learned screens, timed in turn with numpy's and our exact projection."""
    frame = timed_settings(recorded, [*exact_settings()[:1], *settings], GRIDS[run.scale], progress=run.progress)
    rows = frame[frame["method"] == "screened"].reset_index(drop=True)
    kinds = {knob: type(value) for knob, value in settings[0].knobs.items()}
    return rows.astype(kinds).assign(model=recorded.model)


@experiment
def learning(run: CorpusRun) -> pd.DataFrame:
    """Ours: gain of each round of algorithm 1 over spherical k-means, which is round 1, in both readings of the loss.

    At budgets that bind: where sets hold all that is of any use, learning has little to add. ``reading`` says which model and
    budget it is of, a curve for each.
    """
    parts: list[pd.DataFrame] = []
    for name, budgets in BINDING.items():
        try:
            recorded = situation(name, run)
        except NoResult as missing:
            parts.append(pd.DataFrame([{"name": name, "set": name, **gap(missing)}]))
            continue
        screens = Screens(recorded)
        settings = [
            learned(screens, budget, GRIDS[run.scale].options, run.seed, reading=reading, rounds=rounds)
            for budget in budgets
            for reading in get_args(Reading)
            for rounds in ROUNDS
        ]
        frame = _screened(recorded, settings, run).assign(set=name)
        frame["reading"] = frame["reading"] + f", {name}, budget " + frame["budget"].astype(str)
        parts.append(frame.assign(name=f"{name}, " + frame["name"]))
    return table_on(pd.concat(parts, ignore_index=True), run, trained_of(BINDING, run))


@experiment
@or_gap
def figure8(run: CorpusRun) -> pd.DataFrame:
    """Figure 8: speedup and precision of L2S against the size of the vocabulary.

    Only the rows of the most frequent words are kept of the small language model's output, and each context's best are those
    among them. For every size the fastest setting whose precision at 1 is not below the paper's; ``reached`` is False where none
    is, and the most precise is shown.
    """
    recorded = situation("small", run)
    grid, centroids, rows = GRIDS[run.scale], Screens(recorded).centroids, []
    clusters = _clusters(200, run.scale)
    for words, at_1 in chen_2019.FIGURE_8.items():
        size = recorded.matrix.shape[0] * words // max(chen_2019.FIGURE_8)
        screens = Screens(_cut(recorded, size))
        screens.centroids = centroids
        budgets = [budget for budget in grid.budgets if budget < size]
        settings = [learned(screens, budget, grid.learning, run.seed, clusters=clusters) for budget in budgets]
        frame = distinct(_screened(screens.situation, settings, run))
        best = fastest(frame, "screened", at_1, 0.0)
        assert best is not None
        row = {"name": f"{size} words", "vocabulary": size, "active_share": best["rows_scored"] / size}
        row |= {"setting": best["name"], "clusters": clusters, **{column: best[column] for column in COLUMNS}}
        row["reached"] = bool(best["dev_p_at_1"] >= at_1)
        rows.append(row | {"paper_vocabulary": words, "paper_p_at_1": at_1, "model": recorded.model})
    return table_on(rows, run, [recorded])


@dataclass(frozen=True)
class InMemory:
    """Contexts as arrays, hidden (N, D) and labels (N, K); satisfies `projections.active_sets.Recorded`."""

    hidden: np.ndarray
    labels: np.ndarray
    vocabulary: int
    fingerprint: str

    @property
    def width(self) -> int:
        """D."""
        return int(self.hidden.shape[1])

    @property
    def top(self) -> int:
        """K."""
        return int(self.labels.shape[1])

    def __len__(self) -> int:
        return len(self.hidden)

    def blocks(self) -> "Iterator[InMemory]":
        """All rows at once."""
        yield self

    def sample(self, count: int, seed: int) -> "InMemory":
        """Distinct rows drawn at random, in ascending order."""
        rows = np.sort(np.random.default_rng(seed).choice(len(self), count, replace=False))
        return replace(self, hidden=self.hidden[rows], labels=self.labels[rows])


def _cut(recorded: Situation, size: int) -> Situation:
    """A situation with the first rows of the output matrix alone, special tokens and then the most frequent words."""
    matrix = recorded.matrix.rows(np.arange(size))
    parts: dict[str, Any] = {}
    for name, contexts in (("fit", recorded.fit), ("dev", recorded.dev), ("test", recorded.test)):
        hidden, _ = arrays(contexts)
        labels, _ = best_of(CompiledExact(matrix), hidden, TOP)
        parts[name] = InMemory(hidden, labels, size, contexts.fingerprint)
    return replace(recorded, matrix=matrix, **parts)


@experiment
@or_gap
def table7(run: CorpusRun) -> pd.DataFrame:
    """Table 7: words of some clusters of the small language model, the most characteristic first."""
    recorded = situation("small", run)
    screen = Screens(recorded).learned(BUDGETS["small"], Learning(**GRIDS[run.scale].options), run.seed)
    text = getattr(recorded.loaded, "tokenizer", None) or recorded.loaded.text
    hidden, labels = recorded.queries
    assignment = screen.assign(hidden)
    overall = np.bincount(labels[:, 0], minlength=recorded.matrix.shape[0]) + 1.0
    rows = []
    used = np.bincount(assignment, minlength=len(screen.sets))
    for cluster in np.argsort(-used, kind="stable")[:12]:
        own = np.zeros(len(overall), dtype=np.int64)
        held = screen.sets[cluster]
        own[held] = np.bincount(labels[assignment == cluster, 0], minlength=len(overall))[held]
        best = np.argsort(-own / overall**0.5, kind="stable")[:10]
        words = [word for word, count in zip(text.pieces(best), own[best], strict=True) if count]
        rows.append(
            {
                "name": f"cluster {cluster}",
                "contexts": int(used[cluster]),
                "active": int(screen.sets.sizes[cluster]),
                "words": " ".join(word.replace("▁", "") for word in words),
            }
        )
    return table_on(rows, run, [recorded])
