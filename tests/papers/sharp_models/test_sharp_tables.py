"""Devlin's tables at tiny scale: nothing of ours is missing, and what must hold does; all can be read."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fastdecode_lib import cli
from fastdecode_lib.checkpoints.hub import bundled
from fastdecode_lib.checkpoints.recurrent import SYSTEMS
from fastdecode_lib.models.compiled_recurrent import ladder
from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.experiment import Scale
from fastdecode_lib.papers.outcomes import committed
from fastdecode_lib.papers.reading import texts
from fastdecode_lib.papers.sharp_models import printed as devlin_2017
from fastdecode_lib.papers.sharp_models.ladder import BEYOND, ENSEMBLES, GEOMETRIES, MODEL, Trained, _RandomWords
from fastdecode_lib.papers.sharp_models.quality import quality
from fastdecode_lib.text.words import END, UNKNOWN
from fastdecode_lib.training import presets
from fastdecode_lib.training.presets import PRESETS


def made(name: str) -> pd.DataFrame:
    """A table as the command makes it, once it has been read."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.json"
        assert cli.main(["experiment", f"sharp_models.{name}", "--scale", "tiny", "--json", str(file)]) == 0
        frame = pd.DataFrame(json.loads(file.read_text(encoding="utf-8"))["rows"])
    experiment = experiments()[f"sharp_models.{name}"]
    rows = experiment.arrange(frame) if experiment.arrange else frame
    assert len(texts(rows, *experiment.columns)) > 1
    return frame


def ours(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that are not the paper's; a tiny run has too few rounds for intervals."""
    own = (c for c in frame if not c.startswith("paper_") and not c.endswith(("_low", "_high")))
    return frame[[c for c in own if c != "widest_gap"]]


def test_table_1_says_of_how_many_sentences_its_outputs_are() -> None:
    frame, note = committed("sharp_models.table1"), experiments()["sharp_models.table1"].note
    trained = frame.sentences.dropna().unique().tolist()
    random = frame.attrs["provenance"]["geometry"]["sentences"]
    assert f"on {trained[0]:.0f} sentences" in note and len(trained) == 1 and f"on {random} of random words" in note
    shares = frame[frame.sentences.isna()].agreement * random
    assert (abs(shares - shares.round()) < 1e-9).all()


def test_table_1_climbs_the_ladder_twice() -> None:
    frame = made("table1")
    stages = [*ladder(), *BEYOND]
    parts = [part.set_index("name") for _, part in frame.groupby("set", sort=False)]
    assert [list(part.index) for part in parts] == [stages, stages]
    for part in parts:
        assert part.factor["baseline"] == 1 and (part.words_per_second > 0).all()
        assert {
            name: (row.paper_words_per_second, row.paper_factor) for name, row in part.iterrows() if name in ladder()
        } == {name: tuple(map(float, printed)) for name, printed in devlin_2017.TABLE_1.items()}
    random, trained = parts
    assert not ours(random).drop(columns=["agreement", "sentences"]).isna().any(axis=None)
    assert not ours(trained).isna().any(axis=None) and not trained.widest_gap.isna().any()
    assert (trained.agreement[["baseline", "packed float32 products"]] == 1).all()
    assert (trained.widest_gap[trained.agreement == 1] == 0).all()


def test_table_2_has_every_system_or_says_what_is_missing() -> None:
    frame = made("table2")
    measured = frame[frame.kind == "measured"].set_index("name")
    assert list(measured.index) == [*SYSTEMS, *ENSEMBLES]
    assert (measured.words_per_second > 0).all() and measured.distinct_states.between(0, 1, inclusive="right").all()
    assert measured.speed_over_s1["S1"] == 1
    assert (measured.bleu.notna() ^ measured.gap.notna()).all()
    assert measured.bleu.notna()["S4"], "the bundled model is trained"
    assert list(frame[frame.kind == "paper"].name) == list(devlin_2017.CITED)
    arrange = experiments()["sharp_models.table2"].arrange
    assert arrange
    speed = arrange(frame).set_index("name").paper_speed_over_s1
    assert {name for name in devlin_2017.CITED if speed.notna()[name]} == {
        name for name, (_, words) in devlin_2017.CITED.items() if words
    }
    assert speed["S1"] == 1 and speed["E1"] == 102 / 418


def test_quality_names_the_command_for_what_is_not_trained() -> None:
    frame = made("quality")
    missing = frame[frame.bleu.isna()]
    assert missing.gap.str.startswith("not trained: fastdecode train sharp-").all()
    assert (frame.bleu.dropna() > 0).all()


def test_shortlists_are_the_papers() -> None:
    """Twenty translations a word and no frequent words; at the paper's sizes some 500 candidates."""
    assert _RandomWords(GEOMETRIES[Scale.LAPTOP], 0).candidates == pytest.approx(500, rel=0.02)
    trained = Trained.find(MODEL)
    source = trained.text.encode(["Could you close the window, please?"], *trained.text.direction)
    shortlist = trained.projection(trained.network(ladder()["baseline"])).candidates(source.ids[0])
    assert trained.text.lexicon is not None
    assert set(shortlist) == {END, UNKNOWN, *trained.text.lexicon.pruned(20).candidates(source.ids[0])}


def test_figure_1_compares_with_the_library() -> None:
    frame = made("figure1")
    assert not ours(frame).isna().any(axis=None)
    assert frame.groupby("name").batch.apply(list).map(lambda rows: rows == list(range(1, 9))).all()
    assert (frame.speedup[frame.name == "library float32"] == 1).all()
    assert set(frame.name[frame.paper_speedup_low.notna()]) == {"ours int16"}


def test_distinct_states_are_a_share() -> None:
    frame = made("unique_states")
    assert not ours(frame).isna().any(axis=None) and frame["unique"].between(0, 1, inclusive="right").all()


def test_larger_tables_cover_more() -> None:
    frame = made("coverage")
    assert not ours(frame).isna().any(axis=None)
    assert frame.source_coverage.is_monotonic_increasing and frame.target_coverage.is_monotonic_increasing
    assert np.allclose(frame.megabytes / frame.words, frame.megabytes[0] / frame.words[0])


def test_layers_and_training_are_timed() -> None:
    layers, training = made("layers"), made("training_cost").set_index("name")
    assert not ours(layers).isna().any(axis=None) and (layers.cost > 0).all()
    assert not ours(training).isna().any(axis=None) and training.time_over_s4["S4"] == 1


def test_a_run_that_was_broken_off_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "find_weights", lambda name: None)
    shutil.copytree(bundled()["sharp-s4"], tmp_path / "sharp-s2" / "best")
    for updates, trained in ((300, False), (PRESETS["sharp-s2"].updates, True)):
        (tmp_path / "sharp-s2" / "history.json").write_text(
            json.dumps([{"update": updates, "dev_chrf": 1.0}]), encoding="utf-8"
        )
        row = quality(Scale.TINY, folder=str(tmp_path)).set_index("name").loc["S2"]
        assert pd.notna(row.bleu) == trained
        assert trained == pd.isna(row.gap) and (
            trained or row.gap == "not trained: fastdecode train sharp-s2 --data DIR"
        )
