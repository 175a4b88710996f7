"""Several tables in one go: the same rows for any number of workers, resumed where they stopped, and times never shared."""

import gzip
import json
import multiprocessing
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import fakes
import pytest

from fastdecode_lib import cli
from fastdecode_lib.cli import figures
from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.experiment import Scale
from fastdecode_lib.papers.making import Maker, ResultTable, _warning, make
from fastdecode_lib.papers.outcomes import NoResult, committed
from fastdecode_lib.store import write_table

NAMES = (
    "vocabulary_clusters.table5",
    "double_token_decoding.table1",
    "sharp_models.coverage",
    "parallel_decoding.table4",
)
MAKER = Maker(Scale.TINY, "tatoeba-small", (("device", "cpu"),), (("seed", 0), ("threads", 1)))


def made(folder: Path | None = None, maker: Maker = MAKER, **settings: Any) -> dict[str, Any]:
    chosen = [experiments()[name] for name in NAMES]
    return {e.name: json.dumps(table.rows, default=str) for e, table in make(chosen, maker, results=folder, **settings)}


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("serial")
    return folder, made(folder)


def test_a_gap_does_not_replace_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["experiment", "double_token_decoding.mask_predict", "--scale", "tiny", "--results", str(tmp_path)]
    assert cli.main(command) == 0
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()

    def missing(preset: str, scale: Scale) -> None:
        raise NoResult(f"The model {preset} is not trained here.")

    monkeypatch.setattr("fastdecode_lib.papers.double_token_decoding.quality.model_of", missing)
    capsys.readouterr()
    assert cli.main(command) == 0
    partial = path.with_suffix(".partial.json")
    assert path.read_bytes() == before and json.loads(partial.read_text())["rows"][0]["gap"]
    said = capsys.readouterr().err
    assert f"{path} stays as it is" in said and "mask-predict is not trained here" in said and partial.name in said
    path.unlink()
    partial.unlink()
    assert cli.main(command) == 0 and path.exists() and not partial.exists(), "where nothing was, it is written"
    monkeypatch.undo()
    assert cli.main(command) == 0 and not partial.exists(), "and what is measured takes its place"
    assert len(json.loads(path.read_text())["rows"]) > 1


def test_a_table_that_lacks_a_row_which_was_measured_is_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    table = [{"name": "a", "x": 1}, {"name": "b", "gap": "not trained"}]
    write_table(path, table, {})
    assert not _warning(ResultTable([*table, {"name": "c", "gap": "new"}], {}), path), (
        "it lacks what was lacking, or never was"
    )
    assert "(gone)" in _warning(ResultTable([{"name": "a", "gap": "gone"}, {"name": "b", "x": 2}], {}), path)
    path.write_text("no table")
    assert not _warning(ResultTable([{"name": "a", "gap": "gone"}], {}), path)


def test_workers_make_the_same_tables(serial: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    folder, expected = serial
    assert made(tmp_path, workers=2) == expected
    for path in sorted(folder.iterdir()):
        ours, theirs = (json.loads((place / path.name).read_text(encoding="utf-8")) for place in (folder, tmp_path))
        assert ours == theirs, "and how they were made, the command too"


def test_tables_with_times_are_made_here_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    others: list[set[str]] = []
    whole = Maker.__call__

    def remember(self: Maker, name: str, **more: Any) -> Any:
        others.append({child.name for child in multiprocessing.active_children()})
        return whole(self, name, **more)

    monkeypatch.setattr(Maker, "__call__", remember)
    chosen = [experiments()[name] for name in ("sharp_models.layers", NAMES[1])]
    tables = [e.name for e, _ in make(chosen, MAKER, workers=1)]
    assert tables == [NAMES[1], "sharp_models.layers"]
    assert others == [set()], "the other was made by a worker, which is gone"


def test_what_is_there_is_not_made_again(
    serial: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, expected = serial
    monkeypatch.setattr(Maker, "__call__", lambda _, name, **more: pytest.fail(f"{name} is there already"))
    assert made(folder, resume=True) == expected


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.unlink(),
        lambda path: path.write_text("{"),
        lambda path: path.write_text(path.read_text(encoding="utf-8").replace('"seed": 0', '"seed": 1'), encoding="utf-8"),
        lambda path: path.write_text(path.read_text(encoding="utf-8").replace('"scale": "tiny"', '"scale": "laptop"')),
    ],
    ids=["missing", "cut off", "another seed", "another scale"],
)  # fmt: skip
def test_what_is_not_the_same_run_is_made_again(
    serial: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[Path], object],
) -> None:
    folder, expected = serial
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    harm(tmp_path / f"{NAMES[0]}.tiny.json")
    again: list[str] = []
    whole = Maker.__call__

    def remember(self: Maker, name: str, **more: Any) -> Any:
        again.append(name)
        return whole(self, name, **more)

    monkeypatch.setattr(Maker, "__call__", remember)
    assert made(tmp_path, resume=True) == expected
    assert again == [NAMES[0]]


def test_passes_are_kept_beside_their_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    e, results = experiments()["double_token_decoding.mask_predict"], tmp_path / "results"
    results.mkdir()
    ((_, table),) = make([e], MAKER, results=results)
    monkeypatch.setattr("fastdecode_lib.papers.outcomes.resources.files", lambda _: tmp_path)
    monkeypatch.setattr(Maker, "__call__", lambda _, name, **more: pytest.fail(f"{name} is there already"))
    again = wraps(e.run)(lambda *_, **__: pytest.fail("there already"))
    kept = figures._result(replace(e, run=again), Scale.TINY, make=True)
    trace = kept.attrs["traces"]["mask_predict"]
    assert {"mask_predict": trace.to_dict()} == table.traces
    assert len(kept) == sum(len(iteration.slots) for iteration in trace.iterations) > 0
    assert [found.traces for _, found in make([e], MAKER, results=results, resume=True)] == [table.traces]


def test_a_table_is_of_its_corpus_wherever_that_lies(tmp_path: Path) -> None:
    corpus = fakes.write_corpus(tmp_path / "corpus")
    moved, changed = (Path(shutil.copytree(corpus, tmp_path / name)) for name in ("moved", "changed"))
    with gzip.open(changed / "tatoeba" / "train.en-de.tsv.gz", "at", encoding="utf-8") as file:
        file.write("One more.\tNoch eins.\n")

    def asked(folder: Path) -> dict[str, Any]:
        maker = replace(MAKER, scale=Scale.LAPTOP, settings=(("seed", 0), ("data", str(folder))))
        return maker.identity(experiments()["vocabulary_clusters.table1"])

    assert asked(corpus) == asked(moved) != asked(changed)
    assert str(tmp_path) not in str(asked(corpus))
    assert "corpus" in asked(corpus)["asked"] and "corpus" not in asked(tmp_path / "none")["asked"]


def test_times_are_never_taken_beside_others() -> None:
    known = experiments()
    timed = ("second", "speed", "ratio_low", "cost_low", "per_second")
    checked = 0
    for e in known.values():
        try:
            columns = list(committed(e.name))
        except NoResult:
            continue
        checked += e.counted
        assert not e.counted or not [name for name in columns if any(word in name for word in timed)], e.name
    assert checked > 15


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, serial: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = serial
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    table = tmp_path / "table.json"
    options = f"--scale tiny --results {tmp_path} --json {table}".split()
    assert cli.main(["experiment", NAMES[1], *options]) == 0
    assert NAMES[1] in capsys.readouterr().out
    content = json.loads(table.read_text(encoding="utf-8"))
    assert "device" not in content["provenance"]["asked"], "it loads no model of that"
    assert content["rows"][0]["table"] == "table1"
    assert cli.main(["experiment", NAMES[1], "--scale", "tiny", "--device", "cpu", "--model", "none"]) == 2
    assert f"No table of {NAMES[1]} takes --model, --device: its rows say" in capsys.readouterr().err
    assert cli.main(["experiment", NAMES[1], "--resume"]) == 2
    assert "--resume goes on with what a folder has: got no --results DIR" in capsys.readouterr().err
    assert cli.main(["experiment", NAMES[1], "--workers", "0"]) == 2
    assert "workers must be a whole number from 1 on: got 0" in capsys.readouterr().err
