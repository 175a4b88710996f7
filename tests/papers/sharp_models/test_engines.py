"""The engine tables and `make bench-cpu` at tiny scale: nothing of ours is missing, and what must hold does."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks import cpu
from benchmarks.cpu import GOALS, rows_of
from fastdecode_lib.loading import load
from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.experiment import Scale
from fastdecode_lib.papers.shared.random_models import TOY, random_checkpoint
from fastdecode_lib.papers.sharp_models import engines
from fastdecode_lib.papers.sharp_models.engines import LARGE, SMALL, WIDTHS, many_sentences
from fastdecode_lib.text.sentences import own_pairs

COMPILED = ["compiled float32", "compiled int16", "compiled int8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(autouse=True)
def floats_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """CTranslate2 in float32: with integers, its backends take seconds a token on some processors."""
    every = engines.workers_of

    def some(geometry: Any, precision: str, *args: Any, **kwargs: Any) -> Any:
        return every(geometry, precision, *args, **kwargs) if precision == "float32" else ([], {})

    monkeypatch.setattr(engines, "workers_of", some)


def run(table: str, **settings: object) -> pd.DataFrame:
    frame = experiments()[f"sharp_models.{table}"].run(Scale.TINY, **settings)
    assert len(frame) and not frame.isna().any(axis=None)
    return frame


def test_steps(folder: Path) -> None:
    """All systems compute the same: float32 outputs agree, and forced outputs take as many steps everywhere."""
    frame = run("steps", folder=folder)
    assert set(frame.geometry) == {SMALL, "toy shape"}
    for _, part in frame.groupby("geometry"):
        rows = part.set_index("system")
        assert {*COMPILED, "torch float32", "hf float32"} <= set(rows.index)
        assert (rows.ratio[COMPILED] == 1).all() and (rows.ms_per_step > 0).all()
        assert (rows.agreement[[name for name in rows.index if name.endswith("float32")]] == 1).all()
        raw = frame.attrs["provenance"]["seconds"][part.geometry.iloc[0]]
        assert all(len(raw[name]) == 3 for name in rows.index)
    assert (frame.steps[frame.geometry == "toy shape"] == engines.FORCED).all()


def test_pass_costs(folder: Path) -> None:
    frame = run("pass_costs", folder=folder)
    assert (frame.cost[frame.width == 1] == 1).all()
    assert (frame.groupby(["geometry", "system"]).width.apply(tuple) == WIDTHS).all()


def test_throughput() -> None:
    """Batches and threads change no output of ours."""
    frame = run("throughput").set_index("name")
    assert set(COMPILED) <= set(frame.index) and (frame.sentences_per_second > 0).all()
    assert frame.agreement["compiled float32"] == 1


def test_engines() -> None:
    frame = run("engines")
    assert (frame.agreement == 1).all() and (frame.largest_margin == 0).all()


def test_precisions() -> None:
    """float32 changes nothing of itself, and fewer bits take less memory."""
    frame = run("precisions")
    exact = frame[frame.precision == "float32"]
    assert (exact.agreement == 1).all() and (exact.bleu_change == 0).all() and (exact.chrf_change == 0).all()
    memory = frame.drop_duplicates("precision").set_index("precision").output_mb
    assert memory["int8"] < memory["int16"] < memory["float32"]


def test_own_sentences_stand_in_for_the_corpus() -> None:
    texts, which = many_sentences(Scale.TINY, None, 300)
    assert len(texts) == 300 and which == "own, repeated" and texts[0] == texts[len(own_pairs("en", "de"))]
    with pytest.raises(ValueError, match=r"no own sentences for en-xx: use languages of en, de"):
        own_pairs("en", "xx")


def test_a_random_checkpoint_is_the_same_for_a_seed(tmp_path: Path) -> None:
    a, b, c = (load(str(random_checkpoint(tmp_path / str(i), TOY, seed))) for i, seed in enumerate((3, 3, 4)))
    assert a.checkpoint.fingerprint == b.checkpoint.fingerprint != c.checkpoint.fingerprint


# --------------------------------------------------------------------------------------------------------------- the bench


def frames(systems: list[str]) -> dict[str, pd.DataFrame]:
    """Tables as of a run in which compiled takes 1 second a round and others 3."""
    seconds = {name: [1.0 if name in COMPILED else 3.0] * 4 for name in systems}
    ratios = {"ratio": 3.0, "ratio_low": 3.0, "ratio_high": 3.0, "agreement": 1.0, "backend": "", "note": ""}
    steps = pd.DataFrame(
        [
            {"name": f"{g}, {s}", "geometry": g, "system": s, "ms_per_step": 1.0, "ms_per_sentence": 9.0, "steps": 9}
            | ratios
            for g in (SMALL, LARGE)
            for s in systems
        ]
    )
    steps.attrs["provenance"] = {"seconds": dict.fromkeys((SMALL, LARGE), seconds)}
    many = pd.DataFrame([{"name": s, "sentences_per_second": 5.0, "batch": 4, "threads": 2} | ratios for s in systems])
    many.attrs["provenance"] = {"seconds": seconds}
    passes = pd.DataFrame(
        [
            {"name": f"{SMALL}, {s}", "geometry": SMALL, "system": s, "width": w, "cost": w / 2}
            for s in COMPILED
            for w in (1, 2)
        ]
    )
    passes.attrs["provenance"] = {"seconds": {f"{SMALL}, {s}": [[0.1], [0.2]] for s in COMPILED}}
    start = pd.DataFrame([{"name": "load and first translation", "seconds": 1.5}])
    start.attrs["provenance"] = {"seconds": {"load and first translation": [1.5]}}
    return {"steps": steps, "throughput": many, "pass_costs": passes, "start_up": start}


ALL = [*COMPILED, "torch float32", "hf float32", "ctranslate2 float32", "ctranslate2 int16", "ctranslate2 int8"]


def test_rows_have_the_projects_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_committed", lambda table: {})
    rows = rows_of(frames(ALL))
    assert len({row["name"] for row in rows}) == len(rows)
    for row in rows:
        assert {"name", "value", "unit", "goal", "met", "origin"} <= row.keys() and row["origin"] == "measured"
        assert (row["goal"] is None) == (row["met"] is None)
    by_name = {row["name"]: row for row in rows}
    for goal in GOALS:
        where = goal.geometry or "many sentences"
        row = by_name[f"{where}, {goal.system} / compiled {goal.precision}"]
        assert row["value"] == row["low"] == row["high"] == 3
        assert row["met"] == (None if goal.least is None else goal.least <= 3)
    assert by_name["load and first translation"]["met"] is False
    assert by_name[f"{SMALL}, compiled int8, pass of 2"]["seconds_each"] == [0.2]


def test_what_was_not_measured_comes_from_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {name: cpu._with_origin(frame, "committed") for name, frame in frames(ALL).items()}
    lacking = [name for name in ALL if not name.startswith("ctranslate2")]
    monkeypatch.setattr(cpu, "_committed", kept.__getitem__)
    rows = {row["name"]: row for row in rows_of(frames(lacking))}
    found = rows[f"{SMALL}, ctranslate2 int8 / compiled int8"]
    assert found["origin"] == "committed" and found["value"] == 3 and found["met"] is True
    assert rows[f"{SMALL}, hf float32 / compiled float32"]["origin"] == "measured"
    monkeypatch.setattr(cpu, "_committed", lambda table: {})
    row = {row["name"]: row for row in rows_of(frames(lacking))}[f"{SMALL}, ctranslate2 int8 / compiled int8"]
    assert row["value"] is None and row["met"] is None and "not installed" in row["note"]


def test_the_bench_writes_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = frames(ALL)
    asked: dict[str, dict[str, object]] = {}
    for table in cpu.TABLES:

        def run(scale: Scale, *, table: str = table, **settings: object) -> pd.DataFrame:
            asked[table] = settings
            return made[table]

        monkeypatch.setitem(cpu.TABLES, table, run)  # type: ignore[arg-type]
    assert cpu.main(["--quick", "--out", str(tmp_path), "--seed", "3"]) == 0
    written = json.loads((tmp_path / "cpu.json").read_text(encoding="utf-8"))
    assert written["schema"] == 1 and written["provenance"]["seed"] == 3 and "cpu_flags" in written["provenance"]
    assert written["provenance"]["command"].startswith("make bench-cpu BENCH_ARGS='--quick")
    printed = capsys.readouterr().out
    assert all(row["name"] in printed for row in written["rows"])
    assert asked["steps"]["size"] is engines.QUICK and asked["steps"]["folder"] == tmp_path
