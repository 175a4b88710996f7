"""What the sources of the site promise, without building it."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from test_site import NOTEBOOKS, ROOT, count, playing

from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts import sources

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


def test_the_source_of_drafts_that_is_shown_works(monkeypatch: pytest.MonkeyPatch) -> None:
    import fastdecode_lib

    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "add_draft.md").read_text(encoding="utf-8"), re.S)
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


def test_no_page_asks_another_place() -> None:
    for path in (ROOT / "docs" / "_static").iterdir():
        text = path.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")  # a name, not a place
        assert not re.search(r"https?://|@import|//cdn", text), path.name
