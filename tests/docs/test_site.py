"""What `make site` has built, in Chromium; its sources are for test_pages.py."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BUILT = "FASTDECODE_SITE"
"""Environment variable that names the folder of a site to look at."""
LARGEST = 15_000_000
sys.path.append(str(ROOT / "docs"))

import playing  # noqa: E402

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def saved(path: Path) -> list[dict[str, Any]]:
    """Outputs of a notebook as it is committed."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


def count(path: Path, kind: str) -> int:
    return sum(kind in output.get("data", {}) for output in saved(path))


@pytest.fixture(scope="module")
def site() -> Path:
    if BUILT not in os.environ:
        pytest.skip(f"{BUILT} names no site: make site builds one and looks at it")
    return Path(os.environ[BUILT]).resolve()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    from ddgviz.browser import find_browser

    try:
        found = find_browser()
    except ValueError as error:
        pytest.skip(str(error))
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(found), args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


def test_it_is_small(site: Path) -> None:
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) <= LARGEST


def test_its_pages_name_no_other_place(site: Path) -> None:
    """Links may lead away; nothing that a page loads may."""
    loads = re.compile(
        r'<(?:script|img|iframe|source|link(?! rel="(?:canonical|author))[^>]*)[^>]*(?:src|href)="(?:https?:)?//[^"]+'
    )
    for path in site.rglob("*.html"):
        assert not loads.search(path.read_text(encoding="utf-8")), path.name


def test_its_links_lead_somewhere(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html") if path.name != playing.ALONE}
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        body = text.partition("<article")[2].partition("</article>")[0]
        for link in re.findall(r'<a [^>]*href="([^"]+)"', body):
            if re.match(r"https?:|mailto:", link):
                continue
            place, _, anchor = link.partition("#")
            target = (path.parent / place).resolve() if place else path
            assert target.is_file(), f"{path.name}: {link}"
            assert not anchor or target not in anchors or anchor in anchors[target], f"{path.name}: {link}"


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_pages_play_at_any_width_in_both_themes(site: Path, browser: Any, width: int, theme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce")
    requests, complaints = [], []
    names = ["docs/index", *(f"notebooks/{path.stem}" for path in NOTEBOOKS)]
    names += [
        "docs/results/README",
        "docs/results/parallel_decoding",
        "docs/api/ddgviz",
        "docs/gallery",
        "docs/glossary",
    ]
    for name in names:
        page = context.new_page()
        page.set_default_timeout(120_000)  # ms: plotly is large
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((site / f"{name}.html").as_uri())
        source = ROOT / f"{name}.ipynb"
        wanted = count(source, playing.MIME) if source.exists() else int(name == "docs/index")
        charts = count(source, playing.CHART) if source.exists() else 0
        drawn = f"document.querySelectorAll('.{playing.CHART_CLASS} .plot-container').length === {charts}"
        page.wait_for_function(f"() => {drawn}")
        frames = [frame for frame in page.frames if frame.url.startswith("about:srcdoc")]
        assert len(frames) == wanted, name
        for frame in frames:
            frame.wait_for_selector(".ddgviz[data-passes]")
            assert frame.locator(".ddgviz").first.get_attribute("data-theme") == theme
            assert frame.evaluate("() => document.documentElement.scrollWidth <= innerWidth + 1"), name
        heights = page.evaluate(
            "() => [...document.querySelectorAll('.playing-picture iframe')].map((f) => f.clientHeight)"
        )
        assert all(height > 300 for height in heights), (name, heights)
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
        broken = "() => [...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src)"
        assert page.evaluate(broken) == [], name
        page.close()
    context.close()
    assert complaints == []
    inside = site.as_uri()
    assert [url for url in requests if not url.startswith((inside, "data:", "about:", "blob:"))] == []


@pytest.mark.browser
def test_a_picture_on_a_page_plays_follows_the_switch_and_opens_alone(site: Path, browser: Any) -> None:
    context = browser.new_context(
        viewport={"width": 1400, "height": 900}, color_scheme="light", reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto((site / "docs" / "index.html").as_uri())
    frame = next(frame for frame in page.frames if frame.url.startswith("about:srcdoc"))
    frame.wait_for_selector(".ddgviz[data-passes]")
    whole = frame.locator(".ddgviz").get_attribute("data-pass")
    frame.get_by_label("One pass back").click()
    assert int(frame.locator(".ddgviz").get_attribute("data-pass")) == int(whole) - 1
    frame.locator(".ddgviz").focus()
    lit = []
    for key in ("Home", *["]"] * 6, *["ArrowRight"] * 9):
        frame.locator(".ddgviz").press(key)
        lit += frame.locator(".ddg-source").all_inner_texts()
    assert {*lit} & {*frame.locator(".ddg-title").inner_text().split()}, "no draft tells its source word"
    page.evaluate("() => { document.documentElement.dataset.theme = 'dark'; }")
    frame.wait_for_selector('.ddgviz[data-theme="dark"]')
    title = frame.locator(".ddg-title").first.inner_text()
    page.get_by_text("Open alone").click()
    page.wait_for_selector(".ddgviz[data-passes]")
    assert page.locator(".ddg-title").first.inner_text() == title and "_static/picture.html#" in page.url
    context.close()
