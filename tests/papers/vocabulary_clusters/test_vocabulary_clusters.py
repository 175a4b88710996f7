"""Amer et al.'s tables at tiny scale: nothing of ours is missing, the paper's values are printed, and what must hold does."""

import numpy as np
import pandas as pd
import pytest

from fastdecode_lib.papers.run import CorpusRun, Scale
from fastdecode_lib.papers.shared.contexts_of import situation
from fastdecode_lib.papers.vocabulary_clusters import decoding, geometry, tables
from fastdecode_lib.papers.vocabulary_clusters import printed as amer_2022
from fastdecode_lib.projections.exact_compiled import CompiledExact


def made(name: str) -> pd.DataFrame:
    frame = getattr(decoding if name in ("end_to_end", "step_share") else tables, name)(Scale.TINY)
    about = frame.attrs["provenance"]
    assert frame.name.is_unique and about["threads"] == 1
    if name not in ("table1", "figure1"):  # they need none
        found = situation(tables.NAME, CorpusRun(Scale.TINY))
        counts = about["contexts"][found.model]
        assert [sum(counts[split].values()) for split in ("fit", "dev", "test")] == [
            len(part) for part in (found.fit, found.dev, found.test)
        ]
    ours = frame[frame.kind == "measured"]
    ours = ours[[c for c in ours if not c.startswith("paper_") and not c.endswith(("_low", "_high"))]]
    assert not ours.isna().any(axis=None)
    return frame


def test_table_1_counts_sentences() -> None:
    frame = made("table1")
    assert len(frame[frame.kind == "paper"]) == len(amer_2022.TABLE_1) and (frame.set_1.dropna() > 0).all()


def test_table_2_unions_are_larger_than_own_sets() -> None:
    frame = made("table2")
    ours = frame[frame.kind == "measured"].pivot(index="direction", columns="method", values="active")
    assert (ours["exact"] == 1).all() and (ours["each row's own"] <= ours["union of the batch"]).all()
    assert (ours["union of the batch"] < 1).all()
    printed = frame[frame.kind == "paper"].set_index("name")
    assert printed.paper_microseconds["en-es, dense"] == 230.09 and len(printed) == 12
    assert (frame.rows.dropna() <= 40).all()


def test_tables_3_and_4_alone_shared_sets_are_a_rows_own() -> None:
    """One row a call: the union is its own set, so that outputs are the same; exact rows agree with themselves."""
    frame = made("table3")
    ours = frame[frame.kind == "measured"].set_index(["protocol", "direction", "method"])
    assert (ours.xs("exact", level="method").identical == 1).all()
    alone = ours.loc["batch 1, beam 1"]
    own, shared = (alone.xs(method, level="method") for method in ("clustered", "clustered, shared"))
    assert (own.identical == shared.identical).all() and (own.bleu == shared.bleu).all()
    assert len(frame[frame.kind == "paper"]) == 24
    other = made("table4")
    assert set(other[other.kind == "measured"].protocol) == {"batch 20, beam 2"}


def test_table_5_sets_are_small_beside_the_output() -> None:
    frame = made("table5")
    ours = frame[frame.kind == "measured"]
    assert (ours.sets_megabytes < 0.1 * ours.output_megabytes).all()
    assert (ours.sets_megabytes < ours.with_copies_megabytes).all()


def test_figure_2_clusters_of_a_target_are_larger() -> None:
    ours = made("figure2").query("kind == 'measured'").pivot(index="clusters", columns="group", values="largest_share")
    assert (ours["target"] >= ours["direction"]).all()


def test_figure_3_has_every_setting() -> None:
    ours = made("figure3")
    assert set(ours.group) == {"K = 1", "K = 3", "K = 5"} and (ours.speedup > 0).all()


def test_figure_4_more_labels_are_more_active_tokens() -> None:
    frame = made("figure4")
    sums = [frame[frame.group == f"K = {top}"].share.sum() for top in (1, 3, 5)]
    assert sums[0] < sums[1] < sums[2]
    for _, part in frame.groupby("group"):
        assert part.share.is_monotonic_decreasing


def test_table_6_counts_what_raters_would_see() -> None:
    frame = made("table6")
    ours = frame[frame.kind == "measured"]
    assert (ours.differing <= ours.segments).all() and ours.identical.between(0, 1).all()
    assert (frame.kind == "paper").sum() == len(amer_2022.TABLE_6)


def test_table_6_where_no_output_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ScreenScorer", lambda screen, matrix: CompiledExact(matrix))
    ours = tables.table6(Scale.TINY).query("kind == 'measured'")
    assert (ours.differing == 0).all() and (ours.identical == 1).all()


def test_sets_of_its_own_make_a_row_independent_of_its_batch() -> None:
    frame = made("sharing")
    own = frame[frame.method == "own sets"]
    assert (own[["together_as_alone", "otherwise_together_as_alone", "window_as_greedy"]] == 1).all(axis=None)


def test_under_a_projection_of_rows_every_parallel_decoder_says_what_greedy_says() -> None:
    frame = made("end_to_end")
    assert set(frame.decoder) == set(decoding.DECODERS)
    rows = frame[frame.method != "clustered, shared"]
    assert (rows.as_greedy == 1).all() and (rows[rows.method.isin(["exact", "quantised"])].identical == 1).all()
    assert frame.rare_recall.between(0, 1).all() and (frame.rare_words > 0).all() and (frame.megabytes >= 0).all()
    greedy = frame[frame.decoder == "greedy"]
    assert greedy.over_greedy.tolist() == greedy.speedup.tolist()
    assert (
        "clusters=8, " in frame.attrs["provenance"]["learning"] and "rounds=2," in frame.attrs["provenance"]["learning"]
    )


def test_the_projection_is_a_part_of_the_step() -> None:
    frame = made("step_share")
    assert frame.share.between(0, 1, inclusive="neither").all() and (frame.most > 1).all() and len(frame) == 10


def test_figure_1_is_a_trace_with_active_sets() -> None:
    frame = made("figure1")
    (trace,) = frame.attrs["traces"].values()
    assert trace.clusters and set(frame.cluster) == set(trace.clusters)


def test_the_lossless_projection_never_differs() -> None:
    frame = geometry.lossless(Scale.TINY)
    assert frame.name.tolist() == ["translation", "dense"] and (frame.mismatches == 0).all()
    assert frame.queries.tolist() == [500, 50] and (frame.scored_again >= geometry.K).all()
    assert frame.recorded.tolist() == [500, 50] and (frame.mixed == 0).all()
    assert {"tatoeba-small"} == set(frame.attrs["provenance"]["contexts"])


def test_beyond_the_recorded_vectors_are_points_between_two_of_them() -> None:
    hidden = np.eye(3, dtype=np.float32)
    made = np.concatenate(list(geometry._vectors(hidden, 50, seed=0)))
    assert (made[:3] == hidden).all() and len(made) == 50
    np.testing.assert_allclose(made.sum(axis=1), 1, rtol=1e-6)
    assert (made >= 0).all() and ((made > 0).sum(axis=1) <= 2).all() and ((made[3:] > 0).sum(axis=1) == 2).any()


def test_a_grown_model_scores_as_the_one_it_grew_from() -> None:
    """Each of its tokens repeats a trained one, and scores what that does but for the noise."""
    random = np.random.default_rng(0)
    weight, bias, hidden = (random.normal(size=size).astype(np.float32) for size in ((30, 8), (30,), (5, 8)))
    large, longer, turned = geometry.grown(weight, bias, hidden, 75, 24, seed=0)
    assert large.shape == (75, 24) and turned.shape == (5, 24)
    scores, trained = turned @ large.T + longer, hidden @ weight.T + bias
    own = np.array([int(np.flatnonzero(bias == value)[0]) for value in longer])
    assert sorted(own.tolist())[:30] != own[:30].tolist() and set(own) == set(range(30))
    assert np.abs(scores - trained[:, own]).max() < 1.5 and np.abs(scores - trained[:, own]).mean() < 0.3
    with pytest.raises(ValueError, match="grown needs a width from 8, got 5"):
        geometry.grown(weight, bias, hidden, 75, 5, seed=0)


def test_times_at_the_papers_geometry() -> None:
    frame = geometry.zcode(Scale.TINY)
    assert set(frame.model) == {"dense", "m3"} and (frame.microseconds > 0).all() and frame.name.is_unique
    assert {"numpy", "exact float32", "clustered 2.0% int8", "clustered 12.5% float16", "quantised"} <= set(
        frame.method
    )
