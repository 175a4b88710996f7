"""Imamura and Sumita's tables and figures at tiny scale: each runs, and shows what must hold whatever the weights."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ddgviz
from fastdecode_lib import load
from fastdecode_lib.measuring.counting import WatchedModel
from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.double_token_decoding import ends, quality, speed, systems
from fastdecode_lib.papers.double_token_decoding import printed as imamura_2020
from fastdecode_lib.papers.double_token_decoding import profile as taken_apart
from fastdecode_lib.papers.double_token_decoding.experiments import learned
from fastdecode_lib.papers.double_token_decoding.systems import SYSTEMS, TOY_LENGTH, model_of, session_of
from fastdecode_lib.papers.outcomes import NoResult, committed
from fastdecode_lib.papers.run import CorpusRun, Scale
from fastdecode_lib.papers.shared import training_curves
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.exact_compiled import output_matrix
from fastdecode_lib.projections.screen_compiled import ScreenScorer
from fastdecode_lib.projections.screens import Screen
from fastdecode_lib.training.presets import PRESETS, RECIPES, SYSTEMS_002

TINY = Scale.TINY


def test_every_experiment_is_listed() -> None:
    names = {name for name in experiments() if name.startswith("double_token_decoding.")}
    tables = ("table1", "table2", "table3", "table4", "figure1", "figure2", "figure3")
    beyond = (
        "mask_predict",
        "sizes",
        "rows",
        "tokens_per_step",
        "screened",
        "lossless",
        "learning",
        "recipes",
        "profile",
    )
    beyond = (*beyond, "screened_vocabulary", "junction", "gpu", "gpu_beams")
    assert names == {f"double_token_decoding.{name}" for name in (*tables, *beyond)}


def test_figure1_masks_are_triangular_over_groups() -> None:
    frame = quality.figure1(TINY)
    for system, group in (("single_token_l2r", 1), ("bidirectional", 2)):
        own = frame[frame.system == system]
        assert (own.sees == (own["query"] // group >= own["key"] // group)).all()
    assert list(own[own["query"] == 0].key_token) == ["BOS", "EOS", "We", ".", "will", "Tokyo", "go", "to"]


def test_figure2_grows_from_both_ends() -> None:
    frame = quality.figure2(TINY)
    trace = frame.attrs["traces"]["double_token"]
    for call, own in frame.groupby("call"):
        assert set(own.slot) <= {call, -2 - call, -1}
    assert trace.calls == (len(trace.tokens) - 1) // 2 + 1


def test_table1_has_every_setting_twice() -> None:
    frame = quality.table1(TINY)
    assert len(frame) == len(imamura_2020.TABLE_1) and frame.ours.ne("").all() and frame.paper.ne("").all()
    assert (frame.ours != "not trained").sum() >= 15


@pytest.fixture(scope="module")
def table2():
    return quality.table2(TINY)


def test_table2_has_all_systems_on_both_sets(table2) -> None:
    assert list(table2.system) == 2 * list(SYSTEMS)
    assert table2[["bleu", "chrf", "tokens_per_second", "sentences_per_second", "speedup"]].notna().all().all()
    assert (table2[table2.system == "single_token_l2r"].speedup == 1).all()
    printed = table2.dropna(subset=["paper_bleu_wmt_base"])
    assert set(printed.system) == set(imamura_2020.TABLE_2)


def test_rows_of_table2_are_named_as_the_systems(table2) -> None:
    single = table2[table2.set == "single"]
    assert (
        list(single.name) == list(SYSTEMS) and set(imamura_2020.TABLE_2) <= set(single.name) and table2.name.is_unique
    )


def test_table2_has_two_ratios_of_time_and_of_tokens_a_second(table2) -> None:
    """The paper's is of tokens a second: who says less is not faster by it."""
    for which in ("single", "joined"):
        own = table2[table2.set == which].set_index("system")
        for batch in ("", "_batch_32"):
            tokens, sentences = own[f"tokens_per_second{batch}"], own[f"sentences_per_second{batch}"]
            length = tokens / sentences
            assert np.allclose(own[f"token_ratio{batch}"] / own[f"speedup{batch}"], length / length["single_token_l2r"])
            rounds = np.stack(own[f"seconds{batch}"])
            assert np.allclose(own[f"speedup{batch}"], np.median(rounds[0] / rounds, axis=1))
            for end in ("_low", "_high"):
                told = own[f"token_ratio{batch}{end}"] / own[f"speedup{batch}{end}"]
                expected = own[f"token_ratio{batch}"] / own[f"speedup{batch}"]
                assert np.allclose(told, expected.where(own[f"speedup{batch}{end}"].notna()), equal_nan=True)
    row = table2[table2.system == "bidirectional"].iloc[0]
    assert round(row.paper_ratio_wmt_base, 2) == 1.13 and round(row.paper_ratio_aspec_big, 2) == 1.55


def test_systems_of_another_tokenizer_are_refused_before_any_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(preset: str, scale: Scale) -> Any:
        return load(preset, device="cpu") if preset == "bidirectional" else model_of(preset, scale)

    monkeypatch.setattr(systems, "model_of", model)
    monkeypatch.setattr(quality, "count", lambda *_: pytest.fail("a system was run"))
    with pytest.raises(ValueError, match="one tokenizer: got another of bidirectional than of single-l2r"):
        quality.table2(TINY)


def test_a_mark_is_a_small_chance(table2) -> None:
    for row in table2[table2["marks"].notna()].to_dict("records"):
        assert ("†" in row["marks"]) == (row["bleu_p_l2r"] < 0.05) and ("‡" in row["marks"]) == (
            row["bleu_p_r2l"] < 0.05
        )
    assert quality._marks(0.01, 0.2) == "†" and quality._marks(None, 0.049) == "‡"
    printed = table2[table2["system"] == "bidirectional"]["paper_marks_wmt_base"]
    assert (printed == "†‡").all()


def test_table2_counts_passes(table2) -> None:
    """Mask-Predict's are as many as are asked; toys know no ends, so a step for each token but the start's, or for two."""
    for which in ("single", "joined"):
        own = table2[table2.set == which].set_index("system")
        assert (own.loc[["mask_predict_4", "mask_predict_10"], "passes"] == [4, 10]).all()
        assert own.passes["single_token_l2r"] == TOY_LENGTH - 1 and own.passes["bidirectional"] == TOY_LENGTH // 2 - 1


def test_a_ratio_is_over_single_token_l2r_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(preset: str, scale: Scale) -> Any:
        if preset == "single-l2r":
            raise NoResult("not trained")
        return model_of(preset, scale)

    monkeypatch.setattr(systems, "model_of", without)
    monkeypatch.setattr(quality, "pairs_of", lambda *_: systems.pairs_of("single", CorpusRun(TINY), 2))
    frame = quality.table2(TINY).set_index(["system", "set"]).sort_index()
    assert frame.speedup.isna().all() and frame.gap["single_token_l2r", "single"] == "not trained"
    assert frame.tokens_per_second.drop("single_token_l2r").notna().all()


def test_table3_compares_the_ends() -> None:
    frame = ends.table3(TINY)
    assert len(frame) == 2 * len(imamura_2020.ENDS) * 2
    compared = frame[frame.difference.notna()]
    assert (compared.difference_low <= compared.difference_high).all()
    assert np.allclose(compared.difference, compared.bidirectional - compared.single)
    right, left = (compared[compared.end == end].set_index(["set", "words", "n"]) for end in ("right", "left"))
    assert len(right) and np.allclose(right.against_left, right.difference - left.difference)
    assert (right.against_left_low <= right.against_left_high).all() and left.against_left.isna().all()
    longest = frame[frame.end != "all"].groupby(["set", "words"]).sentences.first().unstack()
    assert (longest.diff(axis=1).iloc[:, 1:] <= 0).all(axis=None), "fewer sentences have twice as many words"
    assert (frame[frame.difference.isna()].sentences == 0).all() and (compared.sentences > 0).all()
    row = frame[(frame.end == "right") & (frame.words == 5) & (frame.n == 1)].iloc[0]
    assert round(row.paper_difference_wmt, 1) == 1.6 and round(row.paper_difference_aspec, 1) == 2.6


def test_table3_leaves_out_what_too_few_sentences_are_long_enough_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ends.LEAST, TINY, 1_000)
    row = ends.table3(TINY).iloc[2]
    assert row["name"].endswith("left 5, 1-gram") and row.sentences < 1_000
    assert (
        row.gap == f"Of {row['set']} sentences {f'only {row.sentences} have' if row.sentences else 'none has'} 10 words"
    )


def test_the_two_ends_are_compared_on_the_same_sentences() -> None:
    """What every sentence loses at both ends alike leaves no doubt about their difference, whatever sentences are drawn."""
    random = np.random.default_rng(3)
    single = np.stack([random.integers(2, 6, 200), np.full(200, 5)], 1)
    both = single - [1, 0]
    behind = {quality.L2R: single, quality.BOTH: both}
    same = ends._against(behind, behind, 0)
    assert same == {"against_left": 0, "against_left_low": 0, "against_left_high": 0}
    better = ends._against(behind, {quality.L2R: single, quality.BOTH: single}, 0)
    assert better["against_left_low"] <= better["against_left"] == 20 <= better["against_left_high"]


def test_ngrams_are_counted_as_said() -> None:
    words, reference = ["a", "b", "c", "d", "e", "f"], ["x", "b", "c", "d", "y", "f"]
    assert ends._correct(words, reference, "all", 0, 1) == (4, 6)
    assert ends._correct(words, reference, "left", 3, 1) == (2, 3)
    assert ends._correct(words, reference, "right", 2, 1) == (1, 2)
    assert ends._correct(words, reference, "all", 0, 2) == (2, 5)
    assert ends._correct(["the", "the", "the"], ["the"], "all", 0, 1) == (1, 3), "as often as the reference has it"
    assert ends._correct(["a"], ["a"], "all", 0, 4) == (0, 0)


def test_table4_and_figure3_have_the_papers_points() -> None:
    frame = speed.table4(TINY)
    assert {"ours", "paper, wmt", "paper, aspec"} == set(frame.group)
    ours = frame[frame.group == "ours"]
    assert ours.tokens.is_monotonic_decreasing and ours.vocabulary.is_monotonic_increasing
    assert np.isfinite(ours.speedup).all()
    first = frame[(frame.group == "paper, wmt") & (frame.vocabulary == 4_000)].iloc[0]
    assert round(100 * first.paper_speedup) == 162
    frame = speed.figure3(TINY)
    ours = frame[frame.kind == "measured"]
    assert ours.beam.is_monotonic_increasing and ours.beam.iloc[0] == 1 and np.isfinite(ours.speedup).all()
    printed = frame[frame.kind == "paper"].set_index("name").paper_speedup
    assert [round(100 * value) for value in printed] == [113, 149, 124, 155]


@pytest.mark.parametrize("run", [speed.sizes, speed.rows, speed.tokens_per_step], ids=lambda run: run.__name__)
def test_passes_are_forced_lengths_over_tokens_a_step(run) -> None:
    frame = run(TINY)
    tokens = systems.TOY.tokens
    assert (frame.passes == tokens // frame.tokens_a_step + 1).all()
    if run is speed.sizes:
        assert list(frame.system[:3]) == ["single_token_l2r", "bidirectional", "shallow_l2r"]
        assert list(frame.layers[:3]) == ["1 + 2", "1 + 2", "2 + 1"]
    if run is speed.tokens_per_step:
        assert frame.bleu.notna().all() and list(frame.tokens_a_step) == [1, 2, 3, 4]


def test_a_profile_accounts_for_the_time_and_for_what_is_saved() -> None:
    frame = taken_apart.profile(TINY)
    cases = frame[["size", "batch", "engine", "numbers"]].apply(tuple, axis=1)
    assert list(cases) == [case for case in taken_apart.CASES for _ in range(2)]
    assert (frame[list(taken_apart.PARTS)] > 0).all(axis=None), "every part is timed"
    two = frame[frame.system == "bidirectional"]
    assert (two.reading == 9 / 5).all(), "8 tokens and the end, by one and by two"
    assert two.arithmetic.between(0.9, 1.1).all(), "as many positions either way, but for what the last pass holds"
    needed = frame.encoder + frame.layers + frame.choice
    assert np.allclose(two.products, needed[two.index - 1].to_numpy() / needed[two.index].to_numpy())


def test_watched_parts_are_of_the_decoding_they_watch() -> None:
    """The model says the same under watch, and no part of a state that came of another is missed."""
    network = taken_apart._network(systems.TOY, "compiled", "float32", 2, 0)
    source = systems.random_source(systems.TOY, 1, 0)
    plain = systems.forced_system("", network, systems.BEAM, systems.TOY.tokens)
    watched, made = taken_apart._profiled_system(network, systems.TOY.tokens)
    assert watched.decode(source) == plain.decode(source) and len(made) == 1 and len(made[0]) == len(taken_apart.PARTS)
    model: Any = WatchedModel(network)
    state = model.start(model.encode(source), np.full((1, 2), systems.START))
    assert model.seconds["encoder"] > 0 == model.seconds["copies"]
    state = state.select(np.array([0, 0]))
    once = model.seconds["copies"]
    model.step(state.select(np.array([1, 0, 1])), np.full((3, 2), 5))
    assert model.seconds["copies"] > once > 0 and model.seconds["layers"] > 0, "a copy's copies are watched, too"


def test_screens_of_random_sets_hold_the_end_and_are_held_to_their_own_projection() -> None:
    frame = taken_apart.screened_vocabulary(TINY)
    assert set(frame.system) == {"single_token_l2r", "bidirectional"} and set(frame.beam) == {1, 10}
    assert (frame[frame.system == "single_token_l2r"].speedup == 1).all()
    exact = frame[(frame.projection == "exact") & (frame.system == "single_token_l2r")]
    assert (exact.over_exact == 1).all() and (frame.passes == np.where(frame.system == "bidirectional", 5, 9)).all()
    scorer: Any = taken_apart._screened(taken_apart._network(systems.TOY, "compiled", "float32", 1, 0), 0)
    sizes = scorer.screen.sets.sizes
    assert sizes.min() == sizes.max() < systems.TOY.vocabulary
    assert all(systems.END in scorer.screen.sets[i] for i in range(taken_apart.SETS))


def trained_run(folder: Path, preset: str, scores: tuple[float, float]) -> list[dict[str, float]]:
    """What is left of a run that came to its end, evaluated twice: its folder below `folder`, and its history."""
    run = folder / "build" / "train" / preset
    (run / "best").mkdir(parents=True)
    (run / "best" / "config.json").write_text("{}", encoding="utf-8")
    updates = (300, (SYSTEMS_002 | RECIPES)[preset].updates)
    entries = [
        {"update": n, "seconds": 60.0 * n, "processor_seconds": 30.0 * n, "dev_chrf": s}
        for n, s in zip(updates, scores, strict=True)
    ]
    (run / "history.json").write_text(json.dumps(entries), encoding="utf-8")
    return entries


def test_learning_is_read_from_the_runs_that_are_here_or_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for presets in (SYSTEMS_002, PRESETS):
        monkeypatch.setitem(presets, "unheard-of", replace(SYSTEMS_002["triple"], name="unheard-of"))
    before = quality.learning()
    assert set(before[before.kind == "measured"].system) >= {"single-l2r", "bidirectional"}, "they are bundled"
    gap = before.set_index("system").gap["unheard-of"]
    assert gap == "The model unheard-of is not trained here. Train it: fastdecode train unheard-of --data DIR"
    entries = trained_run(tmp_path, "unheard-of", (3.0, 24.0))
    frame = quality.learning()
    found = frame[frame.system == "unheard-of"]
    assert list(found.chrf) == [entry["dev_chrf"] for entry in entries] and list(found.minutes) == list(found.updates)
    assert {"chrF, 2000", "chrF, 2800", "chrF, 3000"} <= set(learned(frame)) and set(frame.system) == set(SYSTEMS_002)
    assert systems.updates_of("unheard-of") == entries[-1]["update"]


def test_two_recipes_are_compared_by_the_updates_to_a_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained_run(tmp_path, "single-l2r-muon", (30.0, 60.0))
    trained_run(tmp_path, "single-l2r-adamw", (20.0, 45.0))
    frame = quality.recipes().set_index("name")
    assert frame.processor_minutes["single-l2r-muon, 300"] == 150
    assert frame.muon_share["single-l2r-adamw, 4,500"] == pytest.approx((300 + 1500) / 2 / 4500)
    assert frame.muon_share["single-l2r-muon, 300"] == pytest.approx(300 / (300 + 4200 * 10 / 25))
    beyond = ["single-l2r-adamw, 300", "single-l2r-muon, 1,500"]
    assert frame.muon_share[beyond].isna().all(), "only one of them was seen at such a score"


def test_the_committed_comparison_is_that_of_the_committed_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("learning", "recipes"):
        shown, made = committed(f"double_token_decoding.{name}"), getattr(quality, name)()
        pd.testing.assert_frame_equal(
            shown[["name", "updates", "chrf"]], made[["name", "updates", "chrf"]], check_dtype=False
        )


def test_a_lower_score_later_is_no_later_arrival() -> None:
    rows = [{"updates": n, "chrf": c} for n, c in ((1, 5.0), (2, 7.0), (3, 6.0), (4, 8.0))]
    assert [row["updates"] for row in quality._records(rows)] == [1, 2, 4]


def test_what_is_trained_here_goes_before_what_is_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(systems, "load", lambda name, **_: name)
    assert model_of("single-l2r", Scale.LAPTOP) == "single-l2r"
    entries = trained_run(tmp_path, "single-l2r", (90.0, 84.0))
    assert Path(str(model_of("single-l2r", Scale.LAPTOP))) == Path("build/train/single-l2r/best")
    assert training_curves.history_of("single-l2r") == entries and systems.updates_of("single-l2r") == 300


def test_screened_and_lossless() -> None:
    frame = quality.screened(TINY)
    assert (frame[frame.projection == "exact"].identical == 1).all() and len(frame) == 8
    clustered = frame[frame.projection == "clustered"].identical
    assert clustered.between(0, 1).all() and clustered.min() < 1, "four clusters of five labels change something"
    frame = quality.lossless(TINY).set_index("name")
    exact = [name for name in frame.index if name != "bidirectional alone"]
    assert (frame.loc[exact, "identical"] == 1).all(), "greedy's own output, whatever drafted it"
    assert (frame.loc[exact, "passes"] <= frame.loc["greedy", "passes"]).all()


def test_screened_with_every_token_active_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(model: Any, *_: Any) -> ScreenScorer:
        matrix = output_matrix(model.network)
        vocabulary, width = matrix.shape
        sets = ActiveSets.of([range(vocabulary)], vocabulary)
        return ScreenScorer(Screen("clustered", np.zeros((1, width), np.float32), sets), matrix)

    monkeypatch.setattr(quality, "_screen", everything)
    assert (quality.screened(TINY).identical == 1).all()


def test_toys_are_of_their_kind() -> None:
    kinds = {name: model_of(system.preset, TINY).network for name, system in SYSTEMS.items()}
    assert [kinds[n].tokens_per_step for n in ("single_token_l2r", "double_token_r2l", "bidirectional")] == [1, 2, 2]
    assert kinds["bidirectional"].both_ends and not kinds["double_token_l2r"].both_ends
    assert kinds["mask_predict_4"].kind == "masked"
    assert model_of("double-r2l", TINY).tokenizer.backwards


def test_passes_of_a_system_that_is_not_trained_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(preset: str, scale: Scale) -> None:
        raise NoResult(f"The model {preset} is not trained here.")

    monkeypatch.setattr(quality, "model_of", missing)
    frame = quality.mask_predict(TINY)
    assert frame.gap.tolist() == ["The model mask-predict is not trained here."] and "traces" not in frame.attrs


@pytest.mark.parametrize(
    ("preset", "decoder"),
    [
        ("bidirectional", "double_token"),
        ("bidirectional", "double_token:size=3"),
        ("double-l2r", "double_token"),
        ("quadruple", "double_token"),
        ("mask-predict", "mask_predict:iterations=3"),
    ],
)
def test_real_traces_are_drawn(preset: str, decoder: str, tmp_path: Path) -> None:
    for text in ("The train is late.", "Where would you like to have dinner tonight?"):
        trace = session_of(model_of(preset, TINY), decoder).translate(text).trace
        read = ddgviz.read(trace.to_json())
        assert read.columns == len(trace.tokens) or read.beam
        last = [cell for row in range(read.rows) for cell in read.cells(row) if cell.kind == "new"]
        assert preset == "mask-predict" or len(last) >= len(trace.tokens)
        ddgviz.save(trace, tmp_path / "passes.svg")
        assert (tmp_path / "passes.svg").read_text(encoding="utf-8").startswith("<svg")
