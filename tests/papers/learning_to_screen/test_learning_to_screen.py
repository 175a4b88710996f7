"""Chen et al.'s tables at tiny scale: nothing of ours is missing, the paper's values are printed, and what must hold does."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fastdecode_lib.papers.learning_to_screen import outputs, tables
from fastdecode_lib.papers.learning_to_screen import printed as chen_2019
from fastdecode_lib.papers.learning_to_screen.experiments import EXPERIMENTS
from fastdecode_lib.papers.learning_to_screen.outputs import numpy_log_prob, perplexity
from fastdecode_lib.papers.learning_to_screen.tables import learned
from fastdecode_lib.papers.outcomes import NoResult
from fastdecode_lib.papers.run import CorpusRun, Scale
from fastdecode_lib.papers.shared.contexts_of import situation
from fastdecode_lib.papers.shared.projection_runs import EXACT, GRIDS, Screens, fastest, precision_judge, reaching
from fastdecode_lib.papers.shared.rivals import Family, rival_settings, tuned
from fastdecode_lib.projections.ann_indexes import Fgd
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.projections.learning_to_screen import Learning, fit_screened
from fastdecode_lib.projections.screen_compiled import ScreenScorer
from fastdecode_lib.projections.tail import WithTail, low_rank
from fastdecode_lib.translation import Session
from tests.recorded import case

TABLES = {e.table: e for e in EXPERIMENTS}
KNOBS = {
    "budget", "precision", "clusters", "top", "window", "full", "head", "neighbours", "search", "depth", "tables", "bits",
    "probes", "links", "factor", "detours", "library", "leaves", "reached",
}  # fmt: skip
"""Columns that not every method has."""


@cache
def made(name: str) -> pd.DataFrame:
    frame = TABLES[name].run(Scale.TINY)
    about = frame.attrs["provenance"]
    assert about["threads"] == 1 and "clusters=8, " in about["learning"] and "rounds=2," in about["learning"]
    assert about["kmeans"] and about["contexts"] and about["contexts"].keys() == about["fingerprints"].keys()
    assert "model" not in frame or set(about["contexts"]) == set(frame["model"].dropna())
    assert all(sum(count.values()) > 0 for parts in about["contexts"].values() for count in parts.values())
    assert frame.name.is_unique or name == "frontiers"
    ours = frame[frame.kind == "measured"] if "kind" in frame else frame
    own = [c for c in ours if not c.startswith("paper_") and not c.endswith(("_low", "_high")) and c not in KNOBS]
    assert len(ours) and not ours[own].isna().any(axis=None)
    return frame


def ours(name: str) -> pd.DataFrame:
    return made(name).query("kind == 'measured'")


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_made_without_a_missing_value(name: str) -> None:
    made(name)


def test_table_1_names_every_model() -> None:
    frame = made("table1")
    assert list(frame.paper_vocabulary) == [10_000, 10_000, 24_725, 22_749, 80_000]
    assert (frame.width > 0).all() and (frame.vocabulary > 0).all()


def test_precision_does_not_fall_as_the_budget_grows() -> None:
    """Of k-means certainly: the clusters are the same and the smaller sets lie within the larger ones."""
    kept = ["set", "precision", "clusters"]
    for _, rows in ours("frontiers").query("method == 'kmeans'").groupby(kept, dropna=False):
        rows = rows.sort_values("budget")
        assert rows.p_at_1.is_monotonic_increasing and rows.p_at_5.is_monotonic_increasing
        assert rows.rows_scored.is_monotonic_increasing


def test_what_is_lossless_finds_the_exact_tokens() -> None:
    rows = ours("frontiers").query("method in ('numpy', 'exact float32', 'quantised')")
    assert len(rows) == 9 and (rows.p_at_1 == 1).all() and (rows.p_at_5 == 1).all()


def test_tables_2_and_5_print_the_paper_beside_the_setting_that_was_chosen() -> None:
    for table, printed in (("table2", chen_2019.TABLE_2), ("table5", chen_2019.TABLE_5)):
        frame = made(table).set_index(["set", "method"])
        for name, methods in printed.items():
            for method, values in methods.items():
                row = frame.loc[name, method]
                assert (row.paper_speedup, row.paper_p_at_1, row.paper_p_at_5) == values
                best = fastest(ours("frontiers").query(f"set == '{name}'"), method, *values[1:])
                assert best is not None and row.setting == best["name"]


def test_table_2_says_of_every_screen_whether_it_has_the_papers_precision() -> None:
    frame = made("table2").set_index(["set", "method"])
    own = ours("frontiers")
    for name, methods in chen_2019.TABLE_2.items():
        rows, (_, at_1, at_5) = frame.loc[name], methods["screened"]
        told = rows.drop(index=list(methods)).reached
        assert told.dropna().index.tolist() == ["clustered", "screened, any precision", "clustered, any precision"]
        for method in told.dropna().index:
            chosen = own[(own.set == name) & (own.name == rows.setting[method])].iloc[0]
            assert told[method] == (chosen.dev_p_at_1 >= at_1 and chosen.dev_p_at_5 >= at_5)


def test_rare_words_of_the_small_model_have_the_longer_rows() -> None:
    """Why greedy MIPS finds little: the page says by how much."""
    lengths = np.linalg.norm(situation("small", CorpusRun(Scale.TINY)).weight, axis=1)
    assert lengths[-2_000:].mean().round(1) == 15.8 and lengths[:200].mean().round(1) == 5.0


def test_bisection_finds_the_cheapest_value_within_its_last_step() -> None:
    made: list[int] = []

    def make(value: int) -> Any:
        made.append(value)
        return value

    family = Family("greedy_mips", 5, 8_000, lambda value: {"value": value}, make)
    settings = tuned(family, lambda value: (value >= 700, value), 8)  # type: ignore[operator, arg-type, return-value]
    tried = [setting.knobs["value"] for setting in settings]
    assert tried == sorted(made) and len(made) == 10
    above = [value for value in tried if value >= 700]
    assert above[0] / max(value for value in tried if value < 700) < 1.04
    assert [s.knobs["value"] for s in settings if s.at_limit] == [5, 8_000]
    assert len(tuned(family, lambda value: (True, 1.0), 8)) == 1, "the lowest is good enough: nothing to look for"
    rising = [setting.knobs["value"] for setting in tuned(family, lambda value: (False, 0.0), 3)]
    assert rising == [5, 200, 1_265, 3_181, 8_000], "not even the highest is: points of the curve"


def test_rivals_reach_what_is_asked_of_them() -> None:
    found = situation("small", CorpusRun(Scale.TINY))
    judge = precision_judge(found, 0.9, 0.8, limit=300)
    methods = ("greedy_mips", "row_clusters", "svd", "fgd", "adaptive", "pca_mips", "lsh_mips")
    settings = rival_settings(found, replace(GRIDS[Scale.TINY], bisections=2), lambda method: judge, methods=methods)
    assert {setting.method for setting in settings} == set(methods)
    greedy = [setting.knobs["budget"] for setting in settings if setting.method == "greedy_mips"]
    assert len(greedy) > 1 and greedy == sorted(greedy), "those that do least work come first"
    reached = {setting.method for setting in settings if judge(setting.make())[0]}
    assert {"row_clusters", "svd", "fgd", "adaptive"} <= reached


def test_spherical_k_means_is_the_first_round_of_learning() -> None:
    frame = ours("learning")
    assert list(frame["rounds"]) == [1, 2, 3, 4] * 8 and frame.reading.nunique() == 8
    columns = ["p_at_1", "p_at_5", "rows_scored"]
    first = frame[frame["rounds"] == 1]
    for (name, budget), rows in first.groupby(["set", "budget"]):
        assert budget in tables.BINDING[name] and len(rows) == 2
        assert len(rows[columns].drop_duplicates()) == 1
    rows = ours("frontiers").query("set == 'small' and method == 'kmeans' and precision == 'float32' and budget == 25")
    rows = rows[rows.clusters.isna()]
    assert (rows[columns].to_numpy() == first.query("set == 'small' and budget == 25")[columns].to_numpy()).all()


def test_at_equal_budgets_every_learned_screen_stands_beside_k_means() -> None:
    both = tables.at_equal_budgets(ours("frontiers"))
    assert both.method.tolist() == ["kmeans", "screened"] * (len(both) // 2) and both.budget.isin((25, 200)).all()
    assert not both.duplicated(["set", "budget", "method"]).any() and both.notna().all(axis=None)


@pytest.mark.parametrize("number", range(2, 8))
def test_figures_2_to_7_are_fronts_with_the_papers_points(number: int) -> None:
    frame = made(f"figure{number}")
    paper = frame[frame.kind == "paper"]
    assert len(paper) == 7 and paper.paper_speedup.notna().all() and paper.paper_p_at_5.notna().all()
    for _, rows in frame[frame.kind == "measured"].groupby("method"):
        assert (rows.dev_p_at_1 + rows.dev_p_at_5).is_monotonic_increasing and rows.speedup.is_monotonic_decreasing


def test_figure_9_tells_what_the_paper_says() -> None:
    frame = made("figure9")
    assert frame[frame.kind == "paper"].paper_speedup.tolist() == [15.0]
    measured = frame[frame.kind == "measured"]
    assert set(measured.method) == {*tables.SCREENS, EXACT, "quantised"}, "of screens alone, as the paper's"


def test_table_3_exact_outputs_are_identical() -> None:
    frame = made("table3").set_index(["set", "method", "beam"])
    assert len(frame) == 12 and frame.paper_bleu["translation", "screened", 5] == 30.19
    exact = frame.xs("exact", level="method")
    columns = ["identical", "projection_speedup", "speedup"]
    assert (exact[columns] == 1).all(axis=None)
    assert frame.identical.between(0, 1).all() and (frame.projection_speedup > 0).all()
    settings = frame.setting.xs("fgd", level="method").unstack("beam")
    assert settings[1].str.contains("neighbours=5,").all(), "as table 2 has it"
    assert settings[5].str.contains("neighbours=10,").all(), "as many as the search asks for"


def test_table_4_has_the_papers_numbers_of_clusters() -> None:
    frame = made("table4")
    assert frame.paper_clusters.tolist() == [50, 100, 200, 250] and frame.clusters.tolist() == [5, 10, 20, 25]


def test_table_6_what_is_lossless_has_the_exact_perplexity() -> None:
    frame = made("table6").set_index(["set", "method"])
    assert frame.paper_perplexity["small", "screened"] == 115.91
    for name in chen_2019.TABLE_6:
        values = frame.perplexity[name]
        assert values["numpy"] == values["exact"] == values["quantised"]
        assert (values >= 1).all() and frame.tail_rank[name, "screened"] == chen_2019.TAIL_RANKS[name]
        assert frame.speedup[name, "numpy"] == frame.over_exact[name, "exact"] == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_tail_of_full_rank_leaves_nothing_out(seed: int) -> None:
    matrix, contexts = case(seed)
    weight, bias, gold = matrix.unpacked(), matrix.bias[: matrix.shape[0]], contexts.labels[:, seed % 5]
    exact = perplexity(CompiledExact(matrix), contexts.hidden, gold)
    screen = fit_screened(contexts, budget=9, learning=Learning(clusters=4, rounds=2))
    for inner in (ScreenScorer(screen, matrix), Fgd.fit(weight, bias, neighbours=9)):
        full, rough = (WithTail(inner, *low_rank(weight, bias, rank)) for rank in (matrix.shape[1], 1))
        assert perplexity(full, contexts.hidden, gold) == pytest.approx(exact, rel=1e-4)
        assert perplexity(rough, contexts.hidden, gold) != pytest.approx(exact, rel=1e-4)


def test_numpy_scores_a_token_as_the_exact_projection_does() -> None:
    found = situation("small", CorpusRun(Scale.TINY))
    hidden = found.queries[0][:20]
    wanted = CompiledExact(found.matrix).log_probs(hidden, np.arange(20)[:, None])[:, 0]
    own = [numpy_log_prob(found.weight, found.bias, row[None], token) for token, row in enumerate(hidden)]
    np.testing.assert_allclose(own, wanted, rtol=1e-4)


def test_figure_8_a_larger_vocabulary_has_a_smaller_active_share() -> None:
    frame = made("figure8")
    assert frame.paper_vocabulary.tolist() == list(chen_2019.FIGURE_8)
    assert frame.vocabulary.is_monotonic_increasing and frame.vocabulary.max() == 10_000
    assert ((frame.active_share > 0) & (frame.active_share < 1)).all()
    same = frame[frame.setting == frame.setting.iloc[-1]]
    assert len(same) > 2 and same.active_share.is_monotonic_decreasing


def test_table_7_words_are_held_by_their_cluster() -> None:
    frame = made("table7")
    assert (frame.contexts > 0).any() and frame.contexts.is_monotonic_decreasing and frame.words.str.len().max() > 0
    found = situation("small", CorpusRun(Scale.TINY))
    screen = Screens(found).learned(tables.BUDGETS["small"], Learning(**GRIDS[Scale.TINY].options))
    pieces = [piece.replace("▁", "") for piece in found.loaded.text.pieces(range(found.matrix.shape[0]))]
    for row in frame.to_dict("records"):
        held = {pieces[token] for token in screen.sets[int(row["name"].removeprefix("cluster "))]}
        assert set(row["words"].split()) <= held and row["active"] >= len(row["words"].split())


def test_table_8_shows_what_differs() -> None:
    frame = made("table8")
    loaded = situation("translation", CorpusRun(Scale.TINY)).loaded
    contexts = frame.attrs["provenance"]["contexts"]["tatoeba-small"]
    assert list(contexts["fit"]) == ["de-en"], "the paper's direction alone"
    source, target = next(iter(contexts["fit"])).split("-")
    session = Session.of(loaded, source, target, max_length=8)
    texts = list(frame.source)
    said = loaded.texts(texts, [found.tokens for found in session.decode(texts)])
    assert (
        len(texts) and (frame.exact != frame.screened).all() and frame.same_text.between(0, 1, inclusive="left").all()
    )
    assert [a.split()[:3] for a in said] == [b.split()[:3] for b in frame.exact], (
        "the exact column is the exact projection's"
    )


def test_figure_1_is_a_trace_with_its_clusters() -> None:
    frame, experiment = made("figure1"), TABLES["figure1"]
    trace = frame.attrs["traces"]["screened"]
    assert experiment.traced and set(trace.clusters) == set(frame.cluster) and len(frame) == trace.calls
    assert (frame.active_share < 1).all()


def test_the_first_setting_that_is_precise_enough_is_taken_and_none_made_after_it() -> None:
    found = situation("small", CorpusRun(Scale.TINY))
    screens = Screens(found)
    settings = [learned(screens, budget, {"clusters": 4, "rounds": 1}, 0) for budget in (5, 50, 500)]
    assert reaching(settings, found, 0.0, 0.0)[0] is settings[0] and len(screens.fitted) == 1
    assert reaching(settings, found, 1.0, 1.0)[0] is settings[2]
    with pytest.raises(ValueError, match=r"nothing to choose from: got no setting\. Give at least one"):
        reaching([], found, 0.0, 0.0)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_model_that_is_not_trained_is_a_gap(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object) -> None:
        raise NoResult("The model is not trained here. Train it.")

    for module in (tables, outputs):
        monkeypatch.setattr(module, "situation", missing)
    frame = TABLES[name].run(Scale.TINY, **TABLES[name].accepted({"seed": 9}))
    gaps = frame[frame.kind == "gap"]
    assert len(gaps) and (frame.kind != "measured").all()
    assert gaps.gap.str.startswith("The model is not trained here.").all()
