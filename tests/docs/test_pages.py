"""What the sources of the site promise, without building it."""

import json
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from test_site import NOTEBOOKS, ROOT, count, playing

from fastdecode_lib import cli, registry
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts import sources
from fastdecode_lib.laws import projections

PAGES = sorted((ROOT / "docs").rglob("*.md"))


def load_configuration() -> dict[str, Any]:
    names: dict[str, Any] = {"__file__": str(ROOT / "docs" / "conf.py")}
    exec((ROOT / "docs" / "conf.py").read_text(encoding="utf-8"), names)
    return names


def test_every_page_stands_once_below_another() -> None:
    below = []
    for parent, children in load_configuration()["SECTIONS"].items():
        for child in children:
            name = child.removeprefix("/") if "/" in child else f"{Path(parent).parent}/{child}"
            below.append(name)
            assert any((ROOT / f"{name}{suffix}").is_file() for suffix in (".md", ".ipynb")), name
    pages = [path.relative_to(ROOT).with_suffix("").as_posix() for path in [*PAGES, *NOTEBOOKS]]
    assert sorted([*below, "docs/index"]) == sorted([*pages, "CONTRIBUTING", "CHANGELOG"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_saved_notebook_plays(path: Path) -> None:
    cells = json.loads(playing.notebook(path.read_text(encoding="utf-8")))["cells"]
    shown = "".join(
        "".join(output.get("data", {}).get("text/html", "")) for cell in cells for output in cell.get("outputs", [])
    )
    assert shown.count(f'class="{playing.PICTURE_CLASS}"') == count(path, playing.MIME) > 0
    assert shown.count(f'class="{playing.CHART_CLASS}"') == count(path, playing.CHART)
    assert "{download}`download <" in "".join(cells[0]["source"])


def test_texts_of_a_trace_stay_text() -> None:
    hostile = '</script><img src=x onerror=alert(1)>"'
    page = {"pictures": [{"words": {"title": hostile}}], "verdict": ""}
    drawn = playing.frame(page, "x") + playing.chart({"data": [{"name": hostile}], "layout": {}}, "<svg/>")
    assert "<img" not in drawn and drawn.count("</script>") == 2


def test_what_the_site_does_not_have_is_no_link() -> None:
    text = "[a](../Makefile) [b](trace.md) [c](../fastdecode_lib/results) [d](https://example.org) `x[0](y)`"
    assert playing.page(text, ROOT / "docs") == "a [b](trace.md) c [d](https://example.org) `x[0](y)`"
    raw = playing.page("[Raw](../../fastdecode_lib/results/sharp_models.steps.laptop.json)", ROOT / "docs" / "results")
    assert raw == '<a href="../../_static/results/sharp_models.steps.laptop.json.gz" download>Raw</a>'


def test_a_picture_in_two_themes_follows_the_page() -> None:
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    shown = playing.page(text, ROOT / "docs")
    assert "<picture" not in shown and shown.count("only-dark") == shown.count("only-light") == text.count("<source")
    assert '<img alt="The palette for print, in greys" src="pictures/print.png" class="playing-still">' in shown
    home = playing.page((ROOT / "docs" / "index.md").read_text(encoding="utf-8"), ROOT / "docs")
    assert home.count(playing.PICTURE_CLASS) == 1 and "<picture" not in home


def shown_code(page: str, language: str) -> list[str]:
    """The pieces of code of a language on a page, without their indent."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return [textwrap.dedent(code) for code in re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.S | re.M)]


def patched(text: str, change: str) -> str:
    """A text after a change, which is written as lines that begin with "-", "+" or a space."""
    lines = change.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] in kinds) for kinds in ("- ", "+ "))
    assert text.count(before) == 1, before
    return text.replace(before, after)


WITH_PHRASES = """
import importlib.util, sys
from pathlib import Path

class Patched:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "fastdecode_lib.drafts.sources":
            return importlib.util.spec_from_file_location(name, sys.argv[1])

sys.meta_path.insert(0, Patched)

import fastdecode_lib
from fastdecode_lib import hf, registry
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.sources import Draft
from fastdecode_lib.laws.cases import random_case
from fastdecode_lib.laws.decoders import DECODER_LAWS

file, model = Path(sys.argv[2]), fastdecode_lib.load("tatoeba-small", device="cpu")
spec = f"window:width=4,draft=phrases/recycled,phrases={file}"

def translated(**options):
    text = "Where did you buy this book about the history of the city?"
    done = fastdecode_lib.translate(model, text, source="en", target="de", verify=True, **options)
    assert done.trace.greedy["identical"]
    return done, {origin for row in done.trace.iterations for origin in row.origins}

greedy, _ = translated(decoder="greedy")
file.write_text(greedy.text, encoding="utf-8")
found, origins = translated(decoder=spec)
assert "phrases" in origins and found.trace.calls < greedy.trace.calls
file.write_text("nothing", encoding="utf-8")
assert "phrases" not in translated(decoder=spec)[1], "the file is read again"

made = hf.window(4, "phrases/recycled", phrases=str(file)).decoder
assert made.drafts.phrases == str(file) and registry.describe(made) == spec
for wrong, message in (
    ("window:draft=phrases", "needs a file of phrases, got none. Name it"),
    ("window:draft=pad,phrases=x", "Phrases are read by phrases only: got draft='pad' with phrases='x'. Leave phrases out"),
    ("window:phrase=x", "Unknown option of window: got 'phrase'. Did you mean 'phrases'"),
):
    try:
        translated(decoder=wrong)
    except ValueError as error:
        assert message in str(error), error
    else:
        raise AssertionError(wrong)

window = Window(4, Draft("phrases/recycled", phrases={(a, b): 3 + (a + b) % 10 for a in range(13) for b in range(13)}))
for seed in range(20):
    for law in DECODER_LAWS:
        law(window, random_case(seed))
"""


def test_the_source_that_reads_a_file_takes_the_edits_that_are_shown(tmp_path: Path) -> None:
    _, code = shown_code("add_draft", "python")
    text = Path(sources.__file__).read_text(encoding="utf-8").replace("class Pool:\n", f"{code}\n\nclass Pool:\n")
    changes = shown_code("add_draft", "diff")
    assert len(changes) == 4
    for change in changes:
        text = patched(text, change)
    (tmp_path / "sources.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", WITH_PHRASES, tmp_path / "sources.py", tmp_path / "phrases.txt"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_source_of_drafts_that_is_shown_works(monkeypatch: pytest.MonkeyPatch) -> None:
    import fastdecode_lib

    code, _ = shown_code("add_draft", "python")
    names: dict[str, Any] = {"__name__": "shown"}
    monkeypatch.setitem(sys.modules, "shown", sys)  # where dataclasses look for a class's module
    exec(code, names)
    echo = names["Echo"]()
    assert [echo.token(before, 0) for before in ([], [1], [1, 2], [1, 2, 3, 1])] == [-1, -1, -1, 2]
    monkeypatch.setattr(sources, "Recycled", names["Echo"])
    model = fastdecode_lib.load("tatoeba-small")
    done = fastdecode_lib.translate(
        model,
        "The cat saw the dog, and the dog saw the cat.",
        source="en",
        target="de",
        decoder=Window(4, "recycled"),
        verify=True,
    )
    assert done.trace.greedy and done.trace.greedy["identical"]
    assert "echo" in {origin for row in done.trace.iterations for origin in row.origins}


def test_the_projection_that_is_shown_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, own_test = shown_code("add_projection", "python")
    names: dict[str, Any] = {"__name__": "shown"}
    exec(file, names)
    monkeypatch.setitem(registry.PROJECTIONS, "frequent", names["Frequent"])
    cases = list(projections.projection_cases("frequent"))
    assert len(cases) == len(projections.SENTENCES)
    for case in cases:
        for law in projections.PROJECTION_LAWS:
            law(case)
    exec(own_test, names)
    names["test_with_every_token_it_equals_exact"](tmp_path)
    (tmp_path / "en.txt").write_text("\n".join(projections.SENTENCES), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(
        "^fastdecode (record|fit|translate) (.*)$", (ROOT / "docs/add_projection.md").read_text(), re.M
    )
    for command, options in commands:
        assert cli.main([command, *shlex.split(options)]) == 0, command
    assert [command for command, _ in commands] == ["record", "fit", "translate"]
    assert "a context scores 150.0 tokens on average" in capsys.readouterr().out


def test_no_page_asks_another_place() -> None:
    for path in (ROOT / "docs" / "_static").iterdir():
        text = path.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")  # a name, not a place
        assert not re.search(r"https?://|@import|//cdn", text), path.name
