"""The command line: good paths, and one clear line with exit status 2 for everything that cannot be done."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import fakes
import pytest

from fastdecode_lib import cli
from fastdecode_lib.cli import check, figures
from fastdecode_lib.cli.common import PICTURES
from fastdecode_lib.cli.examples import EXAMPLES
from fastdecode_lib.cli.main import _parser as parser_of_commands
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.trace import Trace

SENTENCES = fakes.own_sentences()
DIRECTION = ("--from", "en", "--to", "de")


@pytest.fixture
def model(marian_folder: Path) -> tuple[str, ...]:
    return ("--model", str(marian_folder), "--device", "cpu")


def succeed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    status = cli.main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    assert "Traceback" not in captured.err
    return captured.out


def fail(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line on standard error of a command that cannot be done."""
    status = cli.main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert status == 2 and captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("fastdecode: "), captured.err
    assert "Traceback" not in captured.err
    return lines[0].removeprefix("fastdecode: ")


def table(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content.keys() == {"schema", "provenance", "rows"} and content["schema"] == 1
    assert all("name" in row and all(key == key.lower() for key in row) for row in content["rows"])
    assert {"command", "cpu", "threads", "seed", "versions", "python"} <= content["provenance"].keys()
    return content


# ----------------------------------------------------------------------------------------------------------- translate


def test_translate_a_sentence(capsys: pytest.CaptureFixture[str], model: tuple[str, ...], marian: Any) -> None:
    from fastdecode_lib import load, translate

    text = SENTENCES["en"][0]
    expected = translate(load(model[1], device="cpu"), text, source="en", target="de")
    assert succeed(capsys, "translate", text, *model, *DIRECTION) == expected.text + "\n"
    assert succeed(capsys, "translate", text, *model, *DIRECTION, "--decoder", "jacobi") == expected.text + "\n"
    assert succeed(capsys, "translate", "", *model, *DIRECTION) == "\n"


def test_translate_a_file_line_by_line(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path
) -> None:
    texts = [SENTENCES["en"][0], "", SENTENCES["en"][1], "  ", SENTENCES["en"][6]]
    expected = [succeed(capsys, "translate", text, *model, *DIRECTION).rstrip("\n") for text in texts]
    assert expected[1] == expected[3] == "" and expected[0]
    file, out = tmp_path / "in.txt", tmp_path / "out.json"
    for content in ("\n".join(texts), "\n".join(texts) + "\n", "\r\n".join(texts) + "\r\n"):
        file.write_bytes(content.encode())
        found = succeed(capsys, "translate", "--file", file, *model, *DIRECTION, "--json", out)
        assert found.split("\n") == [*expected, ""]
        rows = table(out)["rows"]
        assert [row["source"] for row in rows] == texts and [row["text"] for row in rows] == expected
        assert all(row.keys() == {"name", "source", "text", "tokens", "cut_short"} for row in rows)
        assert [row["name"] for row in rows] == ["1", "2", "3", "4", "5"]
        assert rows[1]["tokens"] == [] and all(isinstance(i, int) for i in rows[0]["tokens"])
    file.write_bytes(b"")
    assert succeed(capsys, "translate", "--file", file, *model, *DIRECTION) == ""
    file.write_bytes(b"\n\n")
    assert succeed(capsys, "translate", "--file", file, *model, *DIRECTION) == "\n\n"


def test_the_name_of_a_file_is_not_translated(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("the text").write_text("Good morning.\n")
    message = fail(capsys, "translate", "the text", *model, *DIRECTION)
    assert message.startswith(
        "the text is a file: to translate its lines, use --file 'the text'. To translate the name, put"
    )
    named = succeed(capsys, "translate", "the text ", *model, *DIRECTION)
    Path("the text").unlink()
    assert succeed(capsys, "translate", "the text", *model, *DIRECTION) == named


def test_what_would_be_lost_is_refused(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "in.txt"
    file.write_text("Good morning.\n")
    (tmp_path / "link").symlink_to(file)
    arguments = ("translate", "--file", file, *model, *DIRECTION)
    for path in (file, tmp_path / "link"):
        assert "--json would replace the file of --file: got" in fail(capsys, *arguments, "--json", path)
    both = ("translate", "Good morning.", *model, *DIRECTION, "--json", tmp_path / "a", "--trace", tmp_path / "a")
    assert "--trace would replace the file of --json: got" in fail(capsys, *both)
    assert file.read_text() == "Good morning.\n" and not (tmp_path / "a").exists()
    assert succeed(capsys, *arguments, "--json", "/dev/null") == succeed(capsys, *arguments)
    twice = ("--decoder", "greedy", "--decoder", "jacobi")
    assert fail(capsys, *arguments, *twice).startswith("--decoder takes one value: got greedy and jacobi. See")
    assert "--from takes one value: got en and de" in fail(capsys, *arguments, "--from", "de")


def test_an_output_of_several_lines_is_one_line(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = tmp_path / "in.txt", tmp_path / "out.json"
    file.write_text("a\nb\n")
    monkeypatch.setattr(TranslationModel, "texts", lambda *_: ["eins\r\nzwei", "drei"])
    arguments = ("translate", "--file", file, *model, *DIRECTION, "--json", out)
    assert succeed(capsys, *arguments) == "eins zwei\ndrei\n"
    assert [row["text"] for row in table(out)["rows"]] == ["eins\r\nzwei", "drei"]


def test_a_line_is_ended_by_a_line_feed_only(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes("a\u2028b\x0bc\x85d\n".encode())
    assert succeed(capsys, "translate", "--file", file, *model, *DIRECTION).count("\n") == 1


def test_standard_input(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SENTENCES["en"][3]
    expected = succeed(capsys, "translate", text, *model, *DIRECTION)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n\n".encode()), encoding="ascii"))
    assert succeed(capsys, "translate", "--file", "-", *model, *DIRECTION) == expected + "\n"


def test_trace_and_json(capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path) -> None:
    trace_file, out = tmp_path / "new" / "trace.json", tmp_path / "table.json"
    text = SENTENCES["en"][2]
    printed = succeed(
        capsys, "translate", text, *model, *DIRECTION, "--decoder", "gauss_seidel:block=3", "--dtype", "float64",
        "--trace", trace_file, "--json", out,
    )  # fmt: skip
    trace = Trace.from_json(trace_file.read_text(encoding="utf-8"))
    assert trace.target["text"] + "\n" == printed and trace.source["text"] == text
    assert trace.settings["decoder"] == "gauss_seidel:block=3" and trace.settings["dtype"] == "float64"
    assert trace.greedy is not None and trace.greedy["identical"]
    (row,) = table(out)["rows"]
    assert tuple(row["tokens"]) == trace.tokens


def test_pictures(capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path) -> None:
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    succeed(capsys, "translate", "Hello <b>.", *model, *DIRECTION, "--svg", svg, "--html", html, "--theme", "dark")
    assert svg.read_text(encoding="utf-8").startswith(("<svg", "<?xml")) and "<html" in html.read_text(encoding="utf-8")
    assert "<b>." not in html.read_text(encoding="utf-8")


def test_every_kind_of_file_has_an_option() -> None:
    from ddgviz.export import SUFFIXES

    assert {f".{kind}" for kind in PICTURES} == set(SUFFIXES) - {".json"}


WITHOUT_BROWSER = ("svg", "html", "tex", "graphml", "gexf")


@pytest.mark.parametrize("kind", WITHOUT_BROWSER)
def test_files_that_need_no_browser(
    capsys: pytest.CaptureFixture[str],
    model: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setenv("BROWSER_PATH", "/nowhere/chrome")
    file, trace = tmp_path / f"a.{kind}", tmp_path / "a.json"
    succeed(capsys, "translate", "a b", *model, *DIRECTION, f"--{kind}", file, "--trace", trace, "--theme", "print")
    import ddgviz

    again = ddgviz.save(trace, tmp_path / f"again.{kind}", "print")
    assert file.read_bytes() == again.read_bytes()


def test_a_part_of_the_picture(capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path) -> None:
    svg, html, trace = tmp_path / "a.svg", tmp_path / "a.html", tmp_path / "a.json"
    common = ("translate", SENTENCES["en"][0], *model, *DIRECTION)
    succeed(capsys, *common, "--part", "1:2,2:3", "--svg", svg, "--html", html, "--trace", trace)
    import ddgviz

    assert svg.read_text(encoding="utf-8") == ddgviz.svg(trace, window=((0, 2), (1, 3)))
    assert html.read_text(encoding="utf-8") == ddgviz.save(trace, tmp_path / "b.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("typed", "parts"),
    [
        ("1:2", ("--part", "as in 1:10,5:20", "'1:2'", "--help")),
        ("0:2,1:2", ("--part", "from 1", "'0:2,1:2'")),
        ("a:b,c:d", ("--part", "'a:b,c:d'")),
        ("90:99,1:2", ("--part shows a part of", "got 90:99,1:2", "All of them are 1:")),
        ("3:2,1:2", ("first pass and position before the last", "'3:2,1:2'")),
    ],
)
def test_parts_that_cannot_be(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path, typed: str, parts: tuple[str, ...]
) -> None:
    message = fail(capsys, "translate", "a b", *model, "--part", typed, "--svg", tmp_path / "a.svg")
    assert all(part in message for part in parts), message
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["pdf", "png", "gif"])
def test_without_a_browser_one_line_names_the_way_out(
    capsys: pytest.CaptureFixture[str],
    model: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setenv("BROWSER_PATH", "/nowhere/chrome")
    message = fail(capsys, "translate", "a b", *model, *DIRECTION, f"--{kind}", tmp_path / f"a.{kind}")
    assert "BROWSER_PATH must name" in message and "'/nowhere/chrome'" in message and ".svg or .html" in message
    assert os.listdir(tmp_path) == []


def test_pictures_need_no_jupyter(model: tuple[str, ...], tmp_path: Path) -> None:
    files = [str(part) for kind in WITHOUT_BROWSER for part in (f"--{kind}", tmp_path / f"a.{kind}")]
    code = """
import sys
from fastdecode_lib import cli
status = cli.main(sys.argv[1:])
found = {"anywidget", "ipywidgets", "IPython", "jupyterlab"} & set(sys.modules)
sys.exit(f"imported {found}" if found else status)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "translate", "a b", *model, *DIRECTION, *files],
        capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(os.listdir(tmp_path)) == len(WITHOUT_BROWSER)


def test_figures_say_what_they_wrote_and_what_is_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    from fastdecode_lib import runners
    from fastdecode_lib.papers import catalogue

    known = catalogue.experiments()
    chosen = {name: e for name, e in known.items() if name in ("start_here.comparison", "parallel_decoding.batch")}
    bars = {"speedup": [1.0, 1.2], "speedup_low": [0.9, 1.1], "speedup_high": [1.1, 1.3]}
    compared = {"name": ["greedy", "jacobi"], "agreement": 1.0, "calls": [9, 7], "bleu": [30.0, 30.0], **bars}
    tables = {
        "start_here.comparison": pd.DataFrame(compared),
        "parallel_decoding.batch": pd.DataFrame({"name": ["a", "a"], "batch": [1, 2], "speedup": [1.0, 1.2]}),
    }
    monkeypatch.setattr(catalogue, "experiments", lambda: chosen)
    monkeypatch.setattr(figures, "_result", lambda e, scale, make: tables[e.name])
    monkeypatch.setattr(runners, "DECODERS", ("jacobi",))
    monkeypatch.setenv("BROWSER_PATH", "/nowhere/chrome")
    status = cli.main(["figures", "--out", str(tmp_path), "--scale", "tiny"])
    captured = capsys.readouterr()
    assert status == 0 and "PDF and PNG are left out. BROWSER_PATH must name" in captured.err
    tabled = [f"{name}.tiny" for name in tables]
    charts = [f"{stem}.html" for stem in (*tabled, "start_here.comparison.tiny.frontier")]
    passes = [f"passes.jacobi.{kind}" for kind in ("svg", "html", "tex", "json")]
    written = [f"{stem}.{kind}" for stem in tabled for kind in ("csv", "tex", "json")]
    assert sorted(os.listdir(tmp_path)) == sorted([*charts, *passes, *written, "index.html"])
    said = captured.out.replace(" .tex .json", "").splitlines()
    stems = [f"{s}.csv" for s in tabled]
    assert sorted(said) == sorted(str(tmp_path / name) for name in [*stems, *charts, *passes, "index.html"])
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert sorted(re.findall(r'href="([^"]+)"', index)) == sorted(charts + passes + written)
    assert re.findall(r'src="([^"]+)"', index) == ["passes.jacobi.svg"]


def test_figures_starts_no_long_run_unasked() -> None:
    import pandas as pd

    from fastdecode_lib.papers.experiment import Experiment
    from fastdecode_lib.papers.outcomes import NoResult
    from fastdecode_lib.papers.run import Run, Scale, experiment

    ran: list[str] = []

    @experiment
    def nothing(run: Run) -> pd.DataFrame:
        ran.append(str(run.scale))
        return pd.DataFrame()

    for live, asked in ((False, True), (True, False), (True, True)):
        figures._result(Experiment(nothing, "", live=live), Scale.LAPTOP, make=asked)
    assert ran == ["laptop"] * 3
    with pytest.raises(NoResult, match="Make it"):
        figures._result(Experiment(nothing, ""), Scale.LAPTOP, make=False)
    assert len(ran) == 3


# ------------------------------------------------------------------------------------------------------------- compare


DECODERS = ("greedy", "beam:size=2", "jacobi", "gauss_seidel:block=3", "hybrid:block=3")
COLUMNS = [
    "name", "agreement", "calls", "positions", "speedup", "speedup_low", "speedup_high", "seconds", "bleu", "chrf",
]  # fmt: skip


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_compare(capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path) -> None:
    source = write_lines(tmp_path / "en.txt", [*SENTENCES["en"][:3], "", "\u200b"])
    reference = write_lines(tmp_path / "de.txt", [*SENTENCES["de"][:3], "", ""])
    out = tmp_path / "out.json"
    decoders = [part for name in DECODERS for part in ("--decoder", name)]
    common = ("compare", *model, "--source", source, *DIRECTION, "--dtype", "float64", "--runs", "6", *decoders)
    printed = succeed(capsys, *common, "--reference", reference, "--json", out)
    assert all(name in printed for name in DECODERS) and "3 sentences, 6 rounds" in printed
    assert (
        "speedup over our greedy loop with the exact projection with a 95% interval: the median of the rounds' ratios, not the "
        "ratio of the seconds shown\n"
    ) in printed
    content = table(out)
    rows = {row["name"]: row for row in content["rows"]}
    assert list(rows) == list(DECODERS), "names exactly as typed, in order"
    for name, row in rows.items():
        assert list(row)[:10] == COLUMNS
        if not name.startswith("beam"):
            assert row["agreement"] == 1.0
        assert 0 < row["speedup_low"] <= row["speedup_high"] and row["seconds"] > 0
        assert row["bleu"] >= 0 and row["chrf"] >= 0
    assert rows["greedy"]["speedup"] == 1.0 and rows["greedy"]["calls"] == rows["greedy"]["positions"]
    assert rows["jacobi"]["calls"] <= rows["greedy"]["calls"] + 3 * 2
    about = content["provenance"]
    assert about["sentences"] == 3 and about["direction"] == "en-de" and about["dtype"] == "float64"
    assert about["bleu"].startswith("nrefs:1") and about["raw_seconds"].keys() == rows.keys()
    assert all(len(times) == 6 for times in about["raw_seconds"].values())
    succeed(capsys, *common, "--json", out)
    assert all(row["bleu"] is None and row["chrf"] is None for row in table(out)["rows"])


def test_compare_leaves_out_greedy_unless_asked(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path
) -> None:
    source, out = write_lines(tmp_path / "en.txt", SENTENCES["en"][:1]), tmp_path / "out.json"
    succeed(
        capsys, "compare", *model, "--source", source, *DIRECTION, "--runs", "1", "--decoder", "jacobi", "--json", out
    )
    assert [row["name"] for row in table(out)["rows"]] == ["jacobi"]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="it takes two cores")
def test_compare_says_which_threads_single_sentences_have(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "en.txt", SENTENCES["en"][:1])
    asked = "compare", *model, "--source", source, *DIRECTION, "--runs", "1", "--decoder", "greedy"
    said = "takes one thread for one sentence at a time"
    for engine, threads, expected in (("compiled", 2, True), ("compiled", 1, False), ("torch", 2, False)):
        assert (said in succeed(capsys, *asked, "--engine", engine, "--threads", str(threads))) == expected


def test_compare_with_baselines(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source, out = write_lines(tmp_path / "en.txt", SENTENCES["en"][:4]), tmp_path / "out.json"
    succeed(
        capsys, "compare", *model, "--source", source, *DIRECTION, "--runs", "1", "--decoder", "greedy",
        "--baseline", "hf", "--baseline", "ctranslate2", "--json", out,
    )  # fmt: skip
    rows = {row["name"]: row for row in table(out)["rows"]}
    assert list(rows) == ["greedy", "hf", "ctranslate2"]
    for name in ("hf", "ctranslate2"):
        assert rows[name]["agreement"] == 1.0 and rows[name]["calls"] is None and rows[name]["positions"] is None
    (converted,) = (tmp_path / "cache" / "fastdecode" / "ctranslate2").iterdir()
    assert (converted / "model.bin").is_file()


def test_baselines_on_the_bundled_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source, out = write_lines(tmp_path / "en.txt", SENTENCES["en"][:2]), tmp_path / "out.json"
    succeed(
        capsys, "compare", "--device", "cpu", "--source", source, *DIRECTION, "--runs", "1", "--decoder", "greedy",
        "--baseline", "hf", "--baseline", "ctranslate2", "--json", out,
    )  # fmt: skip
    assert [row["agreement"] for row in table(out)["rows"]] == [1.0, 1.0, 1.0]


def test_ctranslate2_has_no_float64(capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    source = write_lines(tmp_path / "en.txt", ["a"])
    message = fail(
        capsys, "compare", *model, "--source", source, *DIRECTION, "--dtype", "float64", "--baseline", "ctranslate2"
    )
    assert "CTranslate2 does not compute in float64 on this cpu. Use --dtype float32" in message


# ---------------------------------------------------------------------------------------------- experiments and checks


def test_experiment_list(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "list.json"
    printed = succeed(capsys, "experiment", "--list", "--json", out)
    rows = table(out)["rows"]
    assert "start_here.comparison" in printed and "start_here.comparison" in {row["name"] for row in rows}
    assert {"Amer et al. (2022)", "Devlin (2017)", "Combinations"} <= {row["paper"] for row in rows}
    assert all(row["state"] for row in rows)
    assert "start_here.comparison" in succeed(capsys, "experiment", "--list", "start_here")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    from fastdecode_lib import registry
    from fastdecode_lib.checkpoints.hub import bundled

    printed = succeed(capsys, "list")
    names = {line.split()[0] for line in printed.splitlines() if line.startswith("  ") and line[2] != " "}
    assert names == {*registry.DECODERS, *registry.PROJECTIONS, *bundled(), "a"}
    flowing = " ".join(printed.split())  # a narrow terminal breaks lines elsewhere
    assert "[block=3]" in flowing and "neighbours=64" in flowing and "want tuning for each model" in flowing
    assert "window" not in succeed(capsys, "list", "models")


def test_a_warning_is_one_line_of_ours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(_: Any) -> int:
        print(warnings.formatwarning("A choice\nno longer runs.", UserWarning, "main.py", 51), end="")
        return 0

    before = warnings.formatwarning
    monkeypatch.setattr("fastdecode_lib.cli.listing._list", warn)
    assert succeed(capsys, "list") == "fastdecode: A choice no longer runs.\n" and warnings.formatwarning is before


def test_train_without_a_name_lists_what_can_be_trained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "triple").mkdir()
    states = {line.split()[0]: line.split()[-1] for line in succeed(capsys, "train", "--folder", tmp_path).splitlines()}
    assert states["tatoeba-small"] == "bundled" and states["double-l2r"] == "kept"
    assert states["triple"] == "begun" and states["quadruple"] == "-"


def test_experiment_on_the_bundled_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "table.json"
    printed = succeed(capsys, "experiment", "start_here.comparison", "--scale", "tiny", "--json", out)
    assert "start_here.comparison, scale tiny" in printed
    content = table(out)
    assert content["provenance"]["scale"] == "tiny"
    names = {"greedy", "window:width=3", "hybrid:block=3", "jacobi", "beam:size=5", "hf"}
    assert {row["name"] for row in content["rows"]} == names
    assert all(row["table"] == "comparison" and row["chrf"] >= 0 for row in content["rows"])


def test_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from fastdecode_lib import registry

    out = tmp_path / "laws.json"
    printed = succeed(capsys, "check", "--cases", "1", "--json", out)
    for word in ("device", "features", "versions", "browser", "fonts", "laws hold, 1 random cases each"):
        assert word in printed
    rows = table(out)["rows"]
    assert rows and all(row["broken"] == 0 for row in rows)
    on_projections = {
        row["name"]: row["cases"] for row in rows if row["name"].partition("/")[2] in registry.PROJECTIONS
    }
    assert {"best_come_first/screened", "exact_ones_find_the_best/quantised"} <= on_projections.keys()
    assert {row["cases"] for row in rows if row["name"] not in on_projections} == {1}
    assert {*on_projections.values()} == {2} and not any(name.endswith("/adaptive") for name in on_projections)


def test_a_broken_law_is_status_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from fastdecode_lib.laws import running

    def run_laws(cases: int, seed: int) -> Any:
        yield {"name": "some_law/greedy", "cases": cases, "broken": 1, "first": "case 7 differs"}

    monkeypatch.setattr(running, "run_laws", run_laws)
    assert cli.main(["check", "--cases", "3"]) == 1
    printed = capsys.readouterr().out
    assert "BROKEN some_law/greedy: 1 of 3 cases. case 7 differs" in printed and "1 of 2 laws hold" in printed


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ("COMMAND", "fastdecode --help")),
        (("translat",), ("translat", "translate", "--help")),
        (("translate",), ("needs a sentence or --file FILE", "Example: fastdecode translate")),
        (
            ("translate", "a", "b"),
            ("takes one sentence: got 2 parts, the first 'a'. Put it in quotes, or name a file of sentences",),
        ),
        (
            ("fit", "screened", "--contexts", "x", "--keep", "3"),
            ("Unrecognized arguments: --keep 3", "See fastdecode fit --help"),
        ),
        (("translate", "a", "--file", "x"), ("needs a sentence or --file FILE, one of the two",)),
        (("translate", "a", "--decodr", "greedy"), ("--decodr", "--help")),
        (("train", "tatoeba-small", "--bundle", "--score"), ("--score: not allowed with argument --bundle", "--help")),
        (("translate", "a", "--threads", "two"), ("--threads", "'two'", "--help")),
        (("translate", "a", "--threads", "0"), ("--threads must be from 1 to", "got 0", "Use --threads 1")),
        (("translate", "a", "--threads", "-3"), ("--threads must be from 1 to", "got -3")),
        (("translate", "a", "--model", "tatoeba-smal"), ("Unknown model", "Did you mean 'tatoeba-small'?")),
        (("translate", "a", "--device", "abacus"), ("Unknown device", "'abacus'", "Use auto, cpu")),
        (("translate", "a", "--dtype", "float99"), ("Unknown dtype", "'float99'", "Use one of float64")),
        (("translate", "a", "--theme", "pink"), ("--theme", "'pink'", "--help")),
        (("translate", "a", "--theme", "dark"), ("--theme is a picture's", "Add --svg FILE")),
        (("translate", "a", "--part", "1:2,1:2"), ("--part draws a part of a picture", "Add --svg FILE")),
        (("translate", "--file", "missing.txt"), ("does not exist", "'missing.txt'", "Check the path")),
        (("translate", "--file", "."), ("directory", ".", "Check the path")),
        (
            ("translate", "--file", "x", "--trace", "y"),
            ("Pictures and --trace are for one sentence: give the sentence instead of --file.",),
        ),
        (("compare",), ("required: --source/--file", "--help")),
        (("compare", "missing.txt"), ("required: --source/--file",)),
        (("compare", "--file", "missing.txt"), ("does not exist", "'missing.txt'")),
        (("evaluate", "--file", "missing.txt"), ("does not exist", "'missing.txt'")),
        (("speedup", "--file", "missing.txt"), ("does not exist", "'missing.txt'")),
        (("draft-table", "--file", "missing.txt"), ("does not exist", "'missing.txt'")),
        (("draft-head", "--file", "missing.txt"), ("does not exist", "'missing.txt'")),
        (("record", "--file", "missing.txt"), ("does not exist", "'missing.txt'")),
        (("compare", "--source", "missing.txt"), ("does not exist", "'missing.txt'")),
        (("train", "tatoeba-smal", "--data", "."), ("Unknown model to train", "'tatoeba-smal'", "tatoeba-small")),
        (("train", "tatoeba-small", "--updates", "0"), ("needs updates >= 1", "got 0", "Leave it out")),
        (("train", "x", "--bundle"), ("Unknown model to bundle", "'x'", "Use one of tatoeba-small")),
        (("list", "all"), ("There are decoders, projections, models", "'all'")),
        (("experiment",), ("needs a name", "fastdecode experiment --list")),
        (("experiment", "start"), ("Unknown experiment", "'start'", "Did you mean 'start_here'")),
        (("translat", "Hello."), ("invalid choice: 'translat'", "Did you mean 'translate'?")),
        (("experiment", "start_here", "--scale", "huge"), ("Unknown scale", "'huge'", "tiny, laptop, paper")),
        (("experiment", "--list", "nothing"), ("Unknown stem", "'nothing'", "fastdecode experiment --list")),
        (("check", "--cases", "0"), ("--cases must be at least 1", "got 0", "Use --cases 50")),
    ],
)
def test_what_cannot_be_done(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    parts: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    message = fail(capsys, *arguments)
    assert all(part in message for part in parts), message
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--to", "dd"), ("Unknown target language", "'dd'", "Did you mean 'de'?")),
        (("--from", "xx"), ("Unknown source language", "'xx'", "This model knows en, de")),
        (("--from", "de", "--to", "fr"), ("does not translate de-fr", "It knows en-de")),
        (("--decoder", "jacob"), ("Unknown decoder", "'jacob'", "Did you mean 'jacobi'?")),
        (("--decoder", "beam:sise=2"), ("Unknown option of beam", "'sise'", "Did you mean 'size'?")),
        (("--decoder", "gauss_seidel:block=0"), ("needs block >= 1, got 0", "Use block=1")),
        (("--decoder", "hybrid:ratio=1e999"), ("got ratio=inf",)),
        (("--projection", "exat"), ("Unknown projection", "'exat'", "Did you mean 'exact'?")),
        (("--max-length", "9999"), ("max_length is too long", "got 9999", "Lower max_length")),
        (("--max-length", "0"), ("max_length must be at least 1", "got 0")),
    ],
)
def test_settings_that_cannot_be(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path, arguments: tuple[str, ...], parts: Any
) -> None:
    source = write_lines(tmp_path / "en.txt", ["a"])
    for command in (("translate", "a"), ("compare", "--source", source)):
        message = fail(capsys, *command, *model, *arguments)
        assert all(part in message for part in parts), message


def test_text_that_is_too_long(capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path) -> None:
    long = "house " * fakes.POSITIONS
    assert "source is too long" in fail(capsys, "translate", long, *model)
    file = write_lines(tmp_path / "en.txt", ["a b c", long, "a"])
    message = fail(capsys, "translate", "--file", file, *model)
    assert "sentence 2 has" in message and "Split it into sentences" in message, "the number is the line's"


def test_files_that_are_not_utf8(capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes("Grüße\n".encode("latin-1"))
    good = write_lines(tmp_path / "en.txt", ["a"])
    for arguments in (
        ("translate", "--file", file),
        ("compare", "--source", file),
        ("compare", "--source", good, "--reference", file),
    ):
        message = fail(capsys, *arguments, *model)
        assert f"{file} is not UTF-8" in message and "0xfc" in message and "Save it as UTF-8" in message


def test_lines_that_do_not_match(capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path) -> None:
    source = write_lines(tmp_path / "en.txt", ["a", "b", "c"])
    reference = write_lines(tmp_path / "de.txt", ["a", "b"])
    message = fail(capsys, "compare", *model, "--source", source, "--reference", reference)
    assert (
        "one reference" in message and "3 sentences and 2 references" in message and "same number of lines" in message
    )


def test_nothing_to_compare_on(capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path) -> None:
    source = write_lines(tmp_path / "en.txt", ["", "  ", "\u200b"])
    message = fail(capsys, "compare", *model, "--source", source)
    assert (
        "nothing to compare on" in message and "no sentence with content" in message and "Give at least one" in message
    )
    source = write_lines(tmp_path / "en.txt", ["a"])
    assert "--runs must be at least 1, got 0" in fail(capsys, "compare", *model, "--source", source, "--runs", "0")


def test_a_table_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for out in (tmp_path / "file" / "out.json", tmp_path / "folder"):
        message = fail(capsys, "translate", "a", *model, "--json", out)
        assert "--json cannot write there" in message and repr(str(out)) in message and "Name a file in" in message
    results = tmp_path / "file" / "results"
    message = fail(capsys, "experiment", "sharp_models.coverage", "--scale", "tiny", "--results", results)
    assert "--results cannot write there" in message and repr(str(results)) in message
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"] and os.listdir(tmp_path / "folder") == []


@pytest.mark.parametrize("option", ["--json", "--trace", "--svg", "--html"])
def test_a_full_disk_leaves_no_partial_file(
    capsys: pytest.CaptureFixture[str],
    model: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
) -> None:
    import errno

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "out"
    name = out.with_suffix({"--svg": ".svg", "--html": ".html"}.get(option, ".json"))
    monkeypatch.setattr(os, "replace", full)
    message = fail(capsys, "translate", "a b", *model, *DIRECTION, option, name)
    assert "No space left on device" in message and "the space left" in message
    assert os.listdir(tmp_path) == []


def test_interrupted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "_check", interrupt)
    assert cli.main(["check"]) == 130
    captured = capsys.readouterr()
    assert captured.err == "fastdecode: interrupted\n" and captured.out == ""


def test_the_reader_went_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(check, "_check", broken)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert cli.main(["check"]) == 0


def test_outputs_are_verified(
    capsys: pytest.CaptureFixture[str], model: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = tmp_path / "lines.txt", tmp_path / "out.json"
    file.write_text("\n".join(SENTENCES["en"][:2]), encoding="utf-8")
    told = ["translate", "--file", str(file), *model, *DIRECTION, "--max-length", "5", "--verify", "--batch", "1"]
    window = ["--decoder", "window:width=3,draft=recycled/pad", "--json", str(out)]
    assert cli.main([*told, *window]) == 0
    said = capsys.readouterr().err
    assert "2 of 2 outputs are greedy decoding's" in said and "reached the longest length, 5 tokens" in said
    assert all(row["verified"] and row["cut_short"] for row in table(out)["rows"])
    from fastdecode_lib.decoding.window import WindowRow

    take = WindowRow.take
    monkeypatch.setattr(WindowRow, "take", lambda self, tokens: take(self, tokens * 0 + 5))
    assert cli.main([*told, *window]) == 1, "a lossless decoder that is not is an error"
    assert "0 of 2 outputs are greedy decoding's; different: 1, 2" in capsys.readouterr().err
    assert not any(row["verified"] for row in table(out)["rows"])
    assert "--batch is for --file" in fail(capsys, "translate", "a b", *model, "--batch", "2")


def test_an_output_that_is_cut_is_said() -> None:
    from fastdecode_lib import load, translate

    with pytest.warns(UserWarning, match=r"1 output reached the longest length, 3 tokens, .* Allow more"):
        translate(load("tatoeba-small", device="cpu"), "The train is late.", source="en", target="de", max_length=3)


def test_the_target_may_be_a_tag_in_front(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "tatoeba-small", "--device", "cpu")
    typed = succeed(capsys, "translate", ">>deu<< The train is late.", *asked)
    assert typed == succeed(capsys, "translate", "The train is late.", *asked, *DIRECTION)


# -------------------------------------------------------------------------------------------------- as a real process


def run(*arguments: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastdecode_lib.cli", *map(str, arguments)],
        capture_output=True, text=True, encoding="utf-8", timeout=60, check=False, **settings,
    )  # fmt: skip


def test_process_translates_a_pipe(model: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    text = SENTENCES["de"][0]
    done = run("translate", "--file", "-", *model, "--from", "de", "--to", "en", input=f"{text}\n\n")
    note = "fastdecode: 1 output reached the longest length, 23 tokens, and may be cut short."
    assert done.returncode == 0 and (not done.stderr or (note in done.stderr and done.stderr.count("\n") == 1))
    assert done.stdout == succeed(capsys, "translate", text, *model, "--from", "de", "--to", "en") + "\n"


@pytest.mark.parametrize(
    "settings", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_no_character_stops_the_output(settings: dict[str, str]) -> None:
    code = "from fastdecode_lib.cli.main import _prepare_output; _prepare_output(); print('O\\xf9 ?')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=os.environ | settings, check=True)
    assert done.stdout.decode() == ("O\\xf9 ?\n" if "PYTHONIOENCODING" in settings else "Où ?\n")


def test_process_without_standard_streams() -> None:
    shell = [sys.executable, "-m", "fastdecode_lib.cli", "translate", "--file", "-"]
    for closed, message in ((">&-", "Standard output is closed"), ("<&-", "Standard input is closed")):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *shell], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1


def test_a_dash_is_no_output_file() -> None:
    done = run("translate", "Hello.", "--json", "-")
    assert (
        done.returncode == 2 and "--json names a file: got '-'. For standard output, write /dev/stdout." in done.stderr
    )


def test_process_fails_in_one_line(tmp_path: Path) -> None:
    done = run("translate", "--file", tmp_path / "missing.txt")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "does not exist" in done.stderr and "Traceback" not in done.stderr
    done = run("translate", os.fsdecode(b"bad \xff byte"), "--device", "cpu")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "no valid Unicode" in done.stderr
    done = run("--help")
    assert done.returncode == 0 and "translate" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_ends_with_examples_that_are_understood(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    said = capsys.readouterr().out
    for line in EXAMPLES[command]:
        assert f"  {line}\n" in said
        prog, *arguments = shlex.split(line)
        options = parser_of_commands().parse_args(arguments)
        assert prog == "fastdecode" and arguments[0] == command and callable(options.run)


def test_help_says_the_threads_of_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["draft-head", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "threads (default: 1; all for draft-head and for many sentences on the compiled engine)" in said


def test_every_command_has_examples() -> None:
    (commands,) = (action.choices for action in parser_of_commands()._actions if action.choices)
    assert set(commands) == set(EXAMPLES)
