"""The engine tables and `make bench-cpu` at tiny scale: nothing of ours is missing, and what must hold does."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks import cpu
from fastdecode_lib.loading import load
from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.run import CorpusRun, Scale
from fastdecode_lib.papers.shared.random_models import TOY, random_checkpoint
from fastdecode_lib.papers.sharp_models import engines
from fastdecode_lib.papers.sharp_models.engines import SMALL, WIDTHS, throughput_sentences
from fastdecode_lib.text.sentences import own_pairs

COMPILED = ["compiled float32", "compiled int16", "compiled int8"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny `make bench-cpu`, with CTranslate2 in float32 alone: its integers are slow on some processors."""
    folder = tmp_path_factory.mktemp("bench")
    every = engines.workers_of

    def some(geometry: Any, precision: str, *args: Any, **kwargs: Any) -> Any:
        return every(geometry, precision, *args, **kwargs) if precision == "float32" else ([], {})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "workers_of", some)
        options = f"--tiny --folder {folder} --results {folder} --json {folder / 'cpu.json'} --seed 3"
        assert cpu.main(options.split()) == 0
    return folder


def table(bench: Path, name: str) -> pd.DataFrame:
    content = json.loads((bench / f"sharp_models.{name}.tiny.json").read_text(encoding="utf-8"))
    frame = pd.DataFrame(content["rows"])
    frame.attrs["provenance"] = content["provenance"]
    return complete(frame)


def complete(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame, which lacks no value; a tiny run has too few rounds for intervals."""
    assert len(frame) and not frame[[c for c in frame if not c.endswith(("_low", "_high"))]].isna().any(axis=None)
    return frame


def run(name: str) -> pd.DataFrame:
    return complete(experiments()[f"sharp_models.{name}"].run(Scale.TINY))


def test_the_bench_writes_every_row_with_its_unit_and_how_it_was_made(bench: Path) -> None:
    content = json.loads((bench / "cpu.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in content["rows"]}
    assert len(rows) == len(content["rows"]) and all(row["unit"] and row["value"] is not None for row in rows.values())
    for name in (f"{SMALL}, compiled int8", f"{SMALL}, hf float32 / compiled", f"{SMALL}, compiled float32, pass of 8"):
        assert name in rows
    assert {"many sentences, compiled int8", "load and first translation"} <= set(rows)
    about = content["provenance"]
    assert about["seed"] == 3 and "cpu_flags" in about
    assert about["command"].startswith("make bench-cpu BENCH_ARGS='--tiny")


def test_steps(bench: Path) -> None:
    """All systems compute the same: float32 outputs agree, and forced outputs take as many steps everywhere."""
    frame = table(bench, "steps")
    assert set(frame.geometry) == {SMALL, "toy shape", "toy shape in float16"}
    for _, part in frame.groupby("geometry"):
        rows = part.set_index("system")
        assert {*COMPILED, "torch float32", "hf float32"} <= set(rows.index)
        assert (rows.ratio[COMPILED] == 1).all() and (rows.ms_per_step > 0).all()
        assert (rows.agreement[[name for name in rows.index if name.endswith("float32")]] == 1).all()
        raw = frame.attrs["provenance"]["seconds"][part.geometry.iloc[0]]
        assert all(len(raw[name]) == 3 for name in rows.index)
    assert (frame.steps[frame.geometry != SMALL] == engines.FORCED).all()


def test_pass_costs(bench: Path) -> None:
    frame = table(bench, "pass_costs")
    assert (frame.cost[frame.width == 1] == 1).all()
    assert (frame.groupby(["geometry", "system"]).width.apply(tuple) == WIDTHS).all()


def test_throughput(bench: Path) -> None:
    """Batches and threads change no output of ours."""
    frame = table(bench, "throughput").set_index("name")
    assert set(COMPILED) <= set(frame.index) and (frame.sentences_per_second > 0).all()
    assert frame.agreement["compiled float32"] == 1


def test_engines() -> None:
    frame = run("engines")
    assert (frame.agreement == 1).all() and (frame.largest_margin == 0).all()


def test_precisions() -> None:
    """float32 changes nothing of itself, and fewer bits take less memory; the bundled weights are float16."""
    frame = run("precisions")
    exact = frame[frame.precision == "float32"]
    assert (exact.agreement == 1).all() and (exact.bleu_change == 0).all() and (exact.chrf_change == 0).all()
    memory = frame.drop_duplicates("precision").set_index("precision").output_mb
    assert memory["int8"] < memory["int16"] <= memory["float32"]


def test_own_sentences_stand_in_for_the_corpus() -> None:
    texts, which = throughput_sentences(CorpusRun(Scale.TINY), 300)
    assert len(texts) == 300 and which == "own, repeated" and texts[0] == texts[len(own_pairs("en", "de"))]
    with pytest.raises(ValueError, match=r"no own sentences for en-xx: use languages of en, de"):
        own_pairs("en", "xx")


def test_a_random_checkpoint_is_the_same_for_a_seed(tmp_path: Path) -> None:
    a, b, c = (load(str(random_checkpoint(tmp_path / str(i), TOY, seed))) for i, seed in enumerate((3, 3, 4)))
    assert a.checkpoint.fingerprint == b.checkpoint.fingerprint != c.checkpoint.fingerprint
