"""Chen et al.'s tables and figures of single vectors; one file because most of them are views of one set of runs.

In place of the paper's data sets, novels are used for the Penn Treebank and WikiText-103, and everyday sentences for IWSLT. The row
of a model that is not trained here is a gap. Settings are chosen on contexts of the dev split and measured on the test split.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args

import numpy as np
import pandas as pd

from fastdecode_lib.core import Projection
from fastdecode_lib.papers.learning_to_screen import printed as chen_2019
from fastdecode_lib.papers.outcomes import NoResult
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment, gap, table_of
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
from fastdecode_lib.papers.shared.rows import keyed
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.projections.learning_to_screen import Learning, Reading

SCREENS = ("screened", "kmeans", "clustered")
"""Methods that are timed in several precisions of the output matrix; rivals are timed and compared in float32 only."""
OTHERS = (
    "clustered", "screened, any precision", "clustered, any precision", "row_clusters", "scann", "quantised", EXACT, BASELINE,
)  # fmt: skip
"""Methods of our table 2 that the paper does not have; ScaNN where it is installed."""
MAIN = ("translation", "small", "large")
"""The models of table 2; the first is the one that uses most of its vocabulary."""
BUDGETS = {"translation": 250, "small": 50}
"""Tokens scored on average where a table has a single budget; the budget binds.

Few of the small model's words are ever among the five best of a cluster: without a budget, 50 to 250 clusters have 80 to 53
of them on average, and a knapsack has no choice.
"""
BINDING = {"translation": (100, 250), "small": (25, 50)}
"""Budgets that bind, so that a knapsack has a choice, by model."""
ROUNDS = range(1, Learning().rounds + 1)
"""Rounds of algorithm 1."""
COLUMNS = (
    "speedup", "speedup_low", "speedup_high", "over_exact", "p_at_1", "p_at_5", "microseconds", "rows_scored",
    "bytes_read", "gigabytes_per_second", "memory_bytes",
)  # fmt: skip
"""Columns of a chosen setting that the tables show."""


def table_on(rows: Any, run: Run, situations: Iterable[Situation] = (), **further: Any) -> pd.DataFrame:
    """Rows as a table whose provenance has the models, the contexts, the options of learning and `further` facts.

    Knobs in a row take precedence over these options.
    """
    situations = list(situations)
    facts = {
        "baseline": "numpy's product of the matrix with one vector, and its partial sort",
        "settings": "the fastest, timed on the test split, of those that are precise enough on contexts of the dev split",
        "learning": repr(Learning(**GRIDS[run.scale].options)),
        "kmeans": FIRST_ROUND,
        "fingerprints": {recorded.model: recorded.loaded.checkpoint.fingerprint for recorded in situations},
        "contexts": context_counts(situations),
        **further,
    }
    return table_of(rows, run, **facts)


def trained_of(names: Iterable[str], run: CorpusRun) -> Iterator[Situation]:
    """The situations of the models that are trained here."""
    for name in names:
        with suppress(NoResult):
            yield situation(name, run)


@experiment
def table1(run: CorpusRun) -> pd.DataFrame:
    """Table 1: vocabulary and width of each model, ours and the paper's.

    ``ever_best`` is the number of words that are among the five best of any context that screens are learned on: the fewer, the
    less a screen can leave out beyond a fixed list.
    """
    rows = []
    for name, (paper_name, vocabulary, width) in chen_2019.SIZES.items():
        row = {"name": name, "paper_name": paper_name, "paper_vocabulary": vocabulary, "paper_width": width}
        try:
            recorded = situation(name, run)
            vocabulary, width = recorded.matrix.shape
            row |= {"model": recorded.model, "vocabulary": vocabulary, "width": width}
            row["ever_best"] = len({token for block in recorded.fit.blocks() for token in np.unique(block.labels)})
            rows.append(row)
        except NoResult as missing:
            rows.append(row | gap(missing))
    return table_on(rows, run, trained_of(chen_2019.SIZES, run))


@experiment
def frontiers(run: CorpusRun) -> pd.DataFrame:
    """Every method at every setting tried, on each model: the source of tables 2 and 5 and figures 2 to 7.

    Screens are tried over a grid; methods tuned by bisection have more settings near the precision that they must reach.
    """
    return table_on(_frontiers(run, MAIN, True), run, trained_of(MAIN, run))


@cache
def _frontiers(run: CorpusRun, names: tuple[str, ...], rivals: bool) -> pd.DataFrame:
    """The settings of every method, or of exact projections and screens alone if `rivals` is false."""
    grid, parts = GRIDS[run.scale], []
    frames: dict[tuple[str, str], pd.DataFrame] = {}
    for name in names:
        try:
            recorded = situation(name, run)
        except NoResult as missing:
            parts.append(pd.DataFrame([{"set": name, "name": "all", **gap(missing)}]))
            continue
        key = (recorded.model, recorded.direction)
        if key not in frames:  # in a tiny run one language model replaces several
            screens = Screens(recorded)
            settings = [*exact_settings(recorded.matrix), *screen_settings(screens, grid, run.seed)]
            if rivals:
                judge = _judge(name, recorded)
                settings += tuned_screens(screens, grid, judge, run.seed)
                settings += rival_settings(recorded, grid, judge, run.seed)
            settings = list({setting.label: setting for setting in settings}.values())
            frames[key] = distinct(timed_settings(recorded, settings, grid, progress=run.progress))
        parts.append(frames[key].assign(set=name, model=recorded.model))
    return pd.concat(parts, ignore_index=True)


def _judge(name: str, recorded: Situation) -> Callable[[str], Judge]:
    """Method -> the judge whether it is as precise as in the paper's table 2; a method not in it must be as precise as its L2S."""
    printed = chen_2019.TABLE_2[name]
    return lambda method: precision_judge(recorded, *printed.get(method, printed["screened"])[1:], limit=JUDGED_ON)


def tuned_screens(screens: Screens, grid: Grid, judge: Callable[[str], Judge], seed: int) -> list[Setting]:
    """Learned screens and k-means with a knapsack in float32, budgets tuned to the precision that the learned screen must reach."""
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

    Knobs of rivals, and budgets in float32, are tuned by bisection; ``at_limit`` is True where a knob is at an end of the range
    searched. ``reached`` is False where no setting is precise enough, and the most precise is shown. A method that the paper does
    not have must be as precise as the paper's L2S; ``reached`` is given for screens among them, not for others. All methods are
    in float32 unless the row says otherwise.
    """
    frame = _frontiers(run, MAIN, True)
    return table_on(_chosen_settings(frame, chen_2019.TABLE_2), run, trained_of(MAIN, run))


@experiment
def table5(run: CorpusRun) -> pd.DataFrame:
    """Table 5: the learned screen, spherical k-means with a knapsack, and FGD."""
    frame = _frontiers(run, MAIN, True)
    return table_on(_chosen_settings(frame, chen_2019.TABLE_5), run, trained_of(MAIN, run))


def marked(table: pd.DataFrame) -> pd.DataFrame:
    """The table with marks in the names: a knob at an end of the range searched; no setting as precise on dev as the paper's."""
    name = table["name"]
    for column, value, mark in (("at_limit", True, "knob at its limit"), ("reached", False, "less precise")):
        if column in table:
            name = name.mask(table[column].eq(value), name + f" ({mark})")
    return table.assign(name=name)


def at_equal_budgets(frontiers: pd.DataFrame) -> pd.DataFrame:
    """Gain of learning in precision: spherical k-means and the learned screen, in float32, at every budget that both have."""
    keys = ["set", "budget", "method"]
    in_float32 = (frontiers["precision"] == "float32") & frontiers["clusters"].isna()
    screens = frontiers[in_float32 & frontiers["method"].isin(["kmeans", "screened"])]
    pairs = screens[screens.duplicated(keys[:2], keep=False)].sort_values(keys)
    return pairs[[*keys, "rows_scored", "p_at_1", "p_at_5"]].reset_index(drop=True)


def distinct(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows without screens that repeat an earlier one, such as those whose larger budget adds no tokens.

    Their times differ by chance alone, and so would the choice of the fastest.
    """
    columns = ["method", "precision", "rows_scored", "dev_p_at_1", "dev_p_at_5", "p_at_1", "p_at_5"]
    repeated = frame["method"].isin(SCREENS) & frame.duplicated([column for column in columns if column in frame])
    return frame[~repeated].reset_index(drop=True)


def _chosen_settings(frame: pd.DataFrame, printed: dict[str, dict[str, tuple[float, float, float]]]) -> pd.DataFrame:
    """A row for each model and method of a printed table with the paper's values, then our other methods and the exact ones."""
    rows = []
    for name, methods in printed.items():
        settings = frame[frame["set"] == name]
        gaps = settings["gap"].dropna().tolist() if "gap" in settings else []
        others = [method for method in OTHERS if method != "scann" or "scann" in set(settings.get("method", ()))]
        for method in (*methods, *(others if printed is chen_2019.TABLE_2 else ())):
            speedup, at_1, at_5 = methods.get(method, (None, *methods["screened"][1:]))
            row = keyed(set=name, method=method) | {"paper_speedup": speedup}
            if method in methods:
                row |= {"paper_p_at_1": at_1, "paper_p_at_5": at_5}
            kind, _, any_precision = method.partition(", ")
            in_float32 = {"precision": "float32"} if kind in SCREENS and not any_precision else {}
            best = None if gaps else fastest(settings, kind, at_1, at_5, **in_float32)
            if gaps:
                row |= gap(gaps[0])
            elif best is not None:
                if method in methods or kind in SCREENS:
                    row["reached"] = bool(best["dev_p_at_1"] >= at_1 and best["dev_p_at_5"] >= at_5)
                row["at_limit"] = bool(best["at_limit"])
                row |= {"model": best["model"], "setting": best["name"]} | {column: best[column] for column in COLUMNS}
            rows.append(row)
    return pd.DataFrame(rows)


def curve(name: str, run: CorpusRun) -> pd.DataFrame:
    """Precision against speedup of every method on one model: the settings that no other of the method beats on dev.

    The last rows are the points of the paper's table 2. For a model that is not in `MAIN`, as in the paper's appendix, the methods
    are screens and exact projections.
    """
    main = name in MAIN
    frame = _frontiers(run, MAIN if main else (name,), main)
    settings = frame[frame["set"] == name]
    if "gap" in settings and settings["gap"].notna().any():
        parts = [settings.dropna(axis=1)]
    else:
        parts = [front(rows) for _, rows in settings[settings["method"] != BASELINE].groupby("method", sort=False)]
    printed = pd.DataFrame(list(_points(name)))
    return table_on(pd.concat([*parts, printed], ignore_index=True), run, trained_of((name,), run))


def _points(name: str) -> Iterator[dict[str, Any]]:
    """The paper's points on one model; of its appendix only the least speedup of L2S."""
    points: Mapping[str, Any] = chen_2019.TABLE_2.get(name) or {"screened": (chen_2019.FIGURE_9, None, None)}
    for method, values in points.items():
        row = {"name": f"paper, {chen_2019.METHODS[method]}", "set": name, "method": method, "kind": "paper"}
        yield row | dict(zip(("paper_speedup", "paper_p_at_1", "paper_p_at_5"), values, strict=True))


def front(rows: pd.DataFrame) -> pd.DataFrame:
    """The settings of a method of which none is both slower and less precise on dev than another, fastest first."""
    rows = rows.sort_values("speedup", ascending=False)
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
def table4(run: CorpusRun) -> pd.DataFrame:
    """Table 4: the number of clusters, at one budget that binds, on the translation model.

    The paper varies the budget with the number of clusters, until times are alike.
    """
    recorded = situation("translation", run)
    grid, screens = GRIDS[run.scale], Screens(recorded)
    counts = [_clusters(r, run.scale) for r in chen_2019.TABLE_4]
    settings = [learned(screens, BUDGETS["translation"], grid.learning, run.seed, clusters=r) for r in counts]
    frame = _screened(recorded, settings, run)
    for index, column in enumerate(("milliseconds", "p_at_1", "p_at_5")):
        frame[f"paper_{column}"] = [printed[index] for printed in chen_2019.TABLE_4.values()]
    frame["paper_clusters"] = list(chen_2019.TABLE_4)
    return table_on(frame.assign(milliseconds=frame["microseconds"] / 1e3), run, [recorded])


def _clusters(printed: int, scale: Scale) -> int:
    """The paper's number of clusters; a tenth in a tiny run."""
    return printed // 10 if scale == Scale.TINY else printed


def learned(screens: Screens, budget: int, options: dict[str, Any], seed: int, **knobs: Any) -> Setting:
    """A learned screen in float32; `knobs` replace options of `Learning`."""
    return screens.setting("screened", {"budget": budget, **knobs}, Learning(**{**options, **knobs}), seed)


def _screened(recorded: Situation, settings: list[Setting], run: Run) -> pd.DataFrame:
    """The rows of learned screens, timed in turn with numpy's and our own exact projection."""
    settings_timed = [*exact_settings(recorded.matrix)[:1], *settings]
    frame = timed_settings(recorded, settings_timed, GRIDS[run.scale], progress=run.progress)
    rows = frame[frame["method"] == "screened"].reset_index(drop=True)
    dtypes = {knob: type(value) for knob, value in settings[0].knobs.items()}
    return rows.astype(dtypes).assign(model=recorded.model)


@experiment
def learning(run: CorpusRun) -> pd.DataFrame:
    """Ours: gain of each round of algorithm 1 over spherical k-means, which is round 1, in both readings of the loss.

    The budgets bind: without a limit, sets hold every useful token, and learning has little to add. ``reading`` includes the model
    and the budget, so that each has its curve.
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
def figure8(run: CorpusRun) -> pd.DataFrame:
    """Figure 8: speedup and precision of L2S against the size of the vocabulary.

    The small language model's output matrix is cut to the rows of the most frequent words, and each context's best words are the
    best among them. For every size, the fastest setting whose precision at 1 is not below the paper's; ``reached`` is False where
    there is none, and the most precise is shown.
    """
    recorded = situation("small", run)
    grid, centroids, rows = GRIDS[run.scale], Screens(recorded).centroids, []
    clusters = _clusters(200, run.scale)
    for words, at_1 in chen_2019.FIGURE_8.items():
        size = recorded.matrix.shape[0] * words // max(chen_2019.FIGURE_8)
        screens = Screens(_with_vocabulary(recorded, size))
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


def _with_vocabulary(recorded: Situation, size: int) -> Situation:
    """A situation with the first rows of the output matrix: special tokens, then the most frequent words."""
    matrix = recorded.matrix.rows(np.arange(size))
    parts: dict[str, Any] = {}
    for name, contexts in (("fit", recorded.fit), ("dev", recorded.dev), ("test", recorded.test)):
        hidden, _ = arrays(contexts)
        labels, _ = best_of(CompiledExact(matrix), hidden, TOP)
        parts[name] = InMemory(hidden, labels, size, contexts.fingerprint)
    return replace(recorded, matrix=matrix, **parts)


@experiment
def table7(run: CorpusRun) -> pd.DataFrame:
    """Table 7: words of the largest clusters of the small language model, the most characteristic first."""
    recorded = situation("small", run)
    screen = Screens(recorded).learned(BUDGETS["small"], Learning(**GRIDS[run.scale].options), run.seed)
    text = getattr(recorded.loaded, "tokenizer", None) or recorded.loaded.text
    hidden, labels = recorded.queries
    assignment = screen.assign(hidden)
    overall = np.bincount(labels[:, 0], minlength=recorded.matrix.shape[0]) + 1.0
    rows = []
    contexts = np.bincount(assignment, minlength=len(screen.sets))
    for cluster in np.argsort(-contexts, kind="stable")[:12]:
        counts = np.zeros(len(overall), dtype=np.int64)
        active_set = screen.sets[cluster]
        counts[active_set] = np.bincount(labels[assignment == cluster, 0], minlength=len(overall))[active_set]
        best = np.argsort(-counts / overall**0.5, kind="stable")[:10]
        words = [word for word, count in zip(text.pieces(best), counts[best], strict=True) if count]
        rows.append(
            {
                "name": f"cluster {cluster}",
                "contexts": int(contexts[cluster]),
                "active": int(screen.sets.sizes[cluster]),
                "words": " ".join(word.replace("▁", "") for word in words),
            }
        )
    return table_on(rows, run, [recorded])
