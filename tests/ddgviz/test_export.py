"""Saving: every suffix, whole or not at all, and clear words where a browser is missing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import simulate

import ddgviz
from ddgviz import browser as browser_module
from ddgviz.export import write
from ddgviz.page import html


def test_svg_json_and_html(small: dict[str, Any], tmp_path: Path) -> None:
    assert ddgviz.save(small, tmp_path / "a.svg").read_text(encoding="utf-8") == ddgviz.svg(small)
    assert ddgviz.save(small, str(tmp_path / "a.dark.SVG"), theme="dark").is_file()
    assert json.loads(ddgviz.save(small, tmp_path / "a.json").read_text(encoding="utf-8")) == small
    page = ddgviz.save(small, tmp_path / "a.html").read_text(encoding="utf-8")
    assert page == html(small)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.dark.SVG", "a.html", "a.json", "a.svg"]


def test_the_page_is_small_and_closed(small: dict[str, Any]) -> None:
    page = html(small)
    data = re.findall(r'<script type="application/json" id="trace">(.*?)</script>', page)[0]
    assert len(page.encode()) - len(data) < 72_000
    assert "default-src 'none'; script-src 'sha256-" in page
    assert "unsafe" not in page


def test_hostile_text_stays_data_in_the_page() -> None:
    page = html(simulate.hostile())
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    assert "<svg" not in page


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.bmp", {}, r"saved as \.svg, \.pdf, .*\.json, \.graphml, \.gexf, got 'a\.bmp'\. Give the file"),
        ("a", {}, r"saved as .*, got 'a'\. Give the file"),
        ("a.svg", {"theme": "blue"}, r"colorblind-dark, got 'blue'\. Use"),
        ("a.html", {"window": ((0, 2), (0, 2))}, r"part of a picture, \.svg, .*, got 'a\.html'\. Leave the window out"),
        (
            "a.svg",
            {"window": ((7, 9), (0, 2))},
            r"window must lie within 4 passes .*, got \(\(7, 9\).*\. Choose a part",
        ),
        ("a.html", {"animate": True}, r"saved as \.svg or \.gif, got 'a\.html'\. Give"),
    ],
)
def test_what_cannot_be_saved(
    small: dict[str, Any], tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ddgviz.save(small, tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


def test_a_picture_makes_its_folder(small: dict[str, Any], tmp_path: Path) -> None:
    assert ddgviz.save(small, tmp_path / "new" / "folder" / "a.svg").read_text().startswith("<svg")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"saved in a folder, got '.*file'\. Name one that is no file"):
        ddgviz.save(small, tmp_path / "file" / "a.svg")


def test_a_failed_save_leaves_the_old_file(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ddgviz.save(small, tmp_path / "a.svg")
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("ddgviz.export.os.replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        ddgviz.save(simulate.garden(), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.svg"]


@pytest.fixture(scope="module")
def large() -> dict[str, Any]:
    """512 positions in 200 passes."""
    words = [f"▁{number}" for number in range(511)]
    needs = {slot: [] if slot % 64 > 24 else [slot - 1] for slot in range(1, 512)}
    trace = simulate.jacobi(words, needs, width=512)
    rows = trace["iterations"]
    trace["iterations"] = rows + [rows[-1] | {"call": call} for call in range(len(rows), 200)]
    return trace


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png", ".gif", ".tex"])
def test_what_is_too_large_asks_for_a_window(large: dict[str, Any], tmp_path: Path, suffix: str) -> None:
    with pytest.raises(
        ValueError, match=r"at most .*, got .*\. Choose a part, for example window=\(\(0, 40\), \(0, 40\)\)"
    ):
        ddgviz.save(large, tmp_path / f"a{suffix}")
    assert not list(tmp_path.iterdir())


def test_a_window_of_what_is_too_large(large: dict[str, Any], tmp_path: Path) -> None:
    window = ((0, 40), (0, 40))
    drawn = ddgviz.save(large, tmp_path / "a.svg", window=window).read_text(encoding="utf-8")
    assert drawn == ddgviz.svg(large, window=window)
    assert ddgviz.save(large, tmp_path / "a.tex", window=window).stat().st_size < 20_000
    for suffix in (".html", ".graphml"):
        assert ddgviz.save(large, tmp_path / f"a{suffix}").is_file()


@pytest.mark.parametrize("suffix", [".svg", ".html", ".json", ".graphml", ".gexf", ".tex"])
def test_no_browser_is_needed(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setenv("BROWSER_PATH", "/nowhere/chrome")
    assert ddgviz.save(small, tmp_path / f"a{suffix}").is_file()
    if suffix == ".svg":
        assert ddgviz.save(small, tmp_path / "moving.svg", animate=True).is_file()


def test_saving_needs_no_notebook() -> None:
    code = """
import json, pathlib, sys, tempfile
import ddgviz
trace = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
folder = pathlib.Path(tempfile.mkdtemp())
for suffix in ("svg", "html", "json", "graphml", "gexf", "tex"):
    ddgviz.save(trace, folder / f"a.{suffix}")
ddgviz.save(trace, folder / "b.svg", animate=True)
found = {"anywidget", "ipywidgets", "IPython", "plotly", "torch"} & set(sys.modules)
sys.exit(f"imported {found}" if found else 0)
"""
    fixture = Path(__file__).parent / "fixtures" / "small.json"
    done = subprocess.run([sys.executable, "-c", code, fixture], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("suffix", ["pdf", "png", "gif"])
def test_without_a_browser_the_way_out_is_named(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    monkeypatch.setattr("ddgviz.browser.shutil.which", lambda _: None)
    with pytest.raises(
        ValueError, match=r"need Chromium, got no BROWSER_PATH .*\. Install .*chromium.*fonts-noto.*\.svg or \.html"
    ):
        ddgviz.save(small, tmp_path / f"a.{suffix}")
    monkeypatch.setenv("BROWSER_PATH", "/nowhere/chrome")
    with pytest.raises(ValueError, match=r"BROWSER_PATH must name .*, got '/nowhere/chrome'.*\. Install"):
        ddgviz.save(small, tmp_path / f"a.{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.browser
def test_pdf_and_png(small: dict[str, Any], tmp_path: Path, chromium: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER_PATH", chromium)
    pdf, png = (browser_module.convert(ddgviz.svg(small), kind) for kind in ("pdf", "png"))
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    wide = int.from_bytes(png[16:20], "big")
    assert wide == 2 * float(re.findall(r'width="([0-9.]+)"', ddgviz.svg(small))[0])
    assert png.startswith(b"\x89PNG") and ddgviz.save(small, tmp_path / "a.png").read_bytes() == png


def test_scripts_without_a_font_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_module, "_has_font", lambda character: character != "東")
    monkeypatch.setattr("ddgviz.browser.shutil.which", lambda _: "/usr/bin/fc-list")
    with pytest.warns(UserWarning, match=r"No installed font draws U\+6771: .*Install fonts"):
        browser_module._warn_of_missing_fonts("<svg>東</svg>")


def drawn_twice_the_same(draw) -> bool:
    return draw() == draw()


def test_a_page_drawn_twice_has_the_same_bytes() -> None:
    from ddgviz.page import html

    trace = simulate.garden()
    assert drawn_twice_the_same(lambda: html(trace))


def test_a_drawing_that_changes_is_caught() -> None:
    numbers = iter(range(2))
    assert not drawn_twice_the_same(lambda: f"<svg id='{next(numbers)}'/>")


def test_a_link_stays_and_what_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    import threading

    (tmp_path / "real.svg").write_text("old")
    (tmp_path / "link.svg").symlink_to(tmp_path / "real.svg")
    write(tmp_path / "link.svg", b"<svg/>")
    assert (tmp_path / "link.svg").is_symlink() and (tmp_path / "real.svg").read_bytes() == b"<svg/>"
    pipe, received = tmp_path / "pipe.svg", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"<svg/>")
    reader.join(10)
    assert received == [b"<svg/>"] and pipe.is_fifo()
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(ValueError, match=r"saved as a file, got '.*Name a file that is no folder"):
        write(tmp_path / "folder.svg", b"<svg/>")


def test_a_file_keeps_its_permissions(small: dict[str, Any], tmp_path: Path) -> None:
    path = ddgviz.save(small, tmp_path / "a.svg")
    path.chmod(0o600)
    assert ddgviz.save(small, path).stat().st_mode & 0o777 == 0o600
