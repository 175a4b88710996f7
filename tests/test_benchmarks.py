"""The benchmarks at tiny size: one table, printed and written, the same options for all; times are not looked at."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import combinations, cpu, projections
from benchmarks.report import Row, options_of, report
from fastdecode_lib.papers.learning_to_screen import tables
from fastdecode_lib.papers.outcomes import NoResult
from fastdecode_lib.text.corpus import CorpusNotFound

sys.path.insert(0, str(Path(__file__).parent / "ddgviz"))
from benchmarks import ddgviz as pictures

MAINS: dict[str, Callable[..., int]] = {
    "cpu": cpu.main,
    "projections": projections.main,
    "combinations": combinations.main,
    "ddgviz": pictures.main,
}


def run(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    """The rows of a tiny run by name, once what is printed is known to be what is written."""
    file = folder / "bench.json"
    assert MAINS[name](["--tiny", "--json", str(file)]) == 0
    content = json.loads(file.read_text(encoding="utf-8"))
    printed = capsys.readouterr().out
    rows = {row["name"]: row for row in content["rows"]}
    assert len(rows) == len(content["rows"]) and all(f"  {row['name']} " in printed for row in content["rows"])
    assert all(set(row) == {"name", "value", "unit", "low", "high", "note"} for row in rows.values())
    assert content["provenance"]["command"] == f"make bench-{name} BENCH_ARGS='--tiny --json {file}'"
    return rows


def test_projections(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projections, "frontiers", lambda *_, **__: pytest.fail("a long run has begun"))
    rows = run("projections", tmp_path, capsys)
    assert {"novels-small, numpy", "novels-small, exact float32", "novels-small, quantised"} <= set(rows)
    assert any(name.startswith("novels-small, screened:budget=") for name in rows)
    assert all("P@1" in row["note"] for row in rows.values())


def test_of_every_method_only_what_nothing_of_it_beats_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    settings = [("a", 1.0, 0.9), ("b", 2.0, 0.8), ("c", 3.0, 0.95)]
    frame = pd.DataFrame(
        {"set": "small", "method": "svd", "name": name, "microseconds": us, "dev_p_at_1": p, "dev_p_at_5": p, "p_at_1": p,
         "p_at_5": p, "speedup": 10 / us, "speedup_low": 9 / us, "speedup_high": 11 / us}
        for name, us, p in settings
    )  # fmt: skip
    assert [row.name for row in projections.rows_of(frame)] == ["small, a", "small, c"]
    assert len(tables.front(frame)) == 2


@pytest.mark.parametrize("error", [CorpusNotFound("This needs the corpus."), NoResult("The model is not trained.")])
def test_a_bench_measures_what_it_can_and_names_what_it_cannot(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def frontiers(*args: object, **kwargs: object) -> None:
        raise error

    def missing(*args: object, **kwargs: object) -> Any:
        import pandas as pd

        return pd.DataFrame([{"name": "dense", "kind": "gap", "gap": "not here", "mismatches": None}])

    missing.__name__ = "lossless"
    monkeypatch.setattr(projections, "frontiers", frontiers)
    for name in ("lossless", "zcode"):
        monkeypatch.setattr(projections.geometry, name, missing)
    assert projections.main([]) == 0
    said = capsys.readouterr().err
    assert f"frontiers is left out. {error}" in said and "A part of lossless is left out. not here" in said


def test_combinations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run("combinations", tmp_path, capsys)
    plain = rows["tatoeba-small: greedy + exact + float32"]
    assert plain["value"] == 1 and "100% same outputs" in plain["note"]
    assert any("clustered + int8" in name for name in rows)


def test_ddgviz(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "browser_rows", lambda steps: [Row.of_samples("drawn", [1.0] * steps, "ms")])
    rows = run("ddgviz", tmp_path, capsys)
    assert rows["drawn"]["value"] == 1 and rows["recording: decoded"]["value"] == 1
    assert rows["40x24, bytes a row"]["value"] < 1_200 and rows["512x200, bytes a row"]["value"] < 4_500
    assert rows["one script"]["value"] < 60 * 1024 and rows["standalone page without data"]["value"] < 74_000


@pytest.mark.parametrize("name", MAINS)
def test_all_take_the_same_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        MAINS[name](["--help"])
    said = capsys.readouterr().out
    assert f"make bench-{name}" in said
    assert all(option in said for option in ("--quick", "--tiny", "--json FILE", "--seed"))


def test_what_is_quick_replaces_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cpu.main(["--quick", "--results", "results"])
    assert "a quick run is not for --results: got both" in capsys.readouterr().err


def test_the_table_has_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        Row.of_samples("a", [1.0, 2.0, 3.0, 4.0, 2.5, 2.5], "ms"),
        Row("b", 7, "bytes", note="all"),
        Row("c", 2.0, "x", float("nan"), float("nan")),
    ]
    report(rows, "make bench-x", options_of("x", "about").parse_args([]))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert lines[0][:3] == ["a", "2.5", "ms"] and "".join(lines[0][3:]).startswith("[1")
    assert lines[1] == ["b", "7", "bytes", "all"] and lines[2] == ["c", "2", "x"]
