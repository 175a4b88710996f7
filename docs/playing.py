"""Turns saved notebooks and pages of Markdown into what the site shows: pictures and charts that play without a kernel."""

import gzip
import html
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ddgviz.address import MIME, unpack_text
from ddgviz.page import sealed

ROOT = Path(__file__).parents[1]
CHART, SVG = "application/vnd.plotly.v1+json", "image/svg+xml"
CHART_CLASS, PICTURE_CLASS = "playing-chart", "playing-picture"
ALONE = "picture.html"
"""The page that draws any picture that its address brings."""
RAW = "results"
"""Folder of the committed results, compressed to an eighth."""

_DOWNLOAD = re.compile(r"\[download\]\(([^)/]+\.ipynb)\)")
_PICTURE = re.compile(
    r'(?:<!-- playing: (?P<notebook>\w+) (?P<cell>[\w-]+) -->\n)?<picture>\s*(?:<source [^>]*srcset="(?P<dark>[^"]+)">\s*)?'
    r'<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)">\s*</picture>'
)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)\)")


def notebook(text: str) -> str:
    """A saved notebook, as JSON, with pages in the place of pictures that a page can play."""
    data = json.loads(text)
    for cell in data["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = list(_outputs(cell["outputs"]))
        else:
            cell["source"] = _DOWNLOAD.sub(r"{download}`download <\1>`", "".join(cell["source"]))
    return json.dumps(data)


def _outputs(outputs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    rest = iter(outputs)
    for output in rest:
        data = output.get("data", {})
        if MIME in data:
            packed = data[MIME]["packed"]
            page = unpack_text(packed)
            for _ in page["pictures"][1:]:
                next(rest)  # it is on the same page
            yield output | {"data": {"text/html": frame(page, packed)}}
        elif CHART in data:
            yield output | {"data": {"text/html": chart(data[CHART], "".join(data[SVG]))}}
        else:
            yield output


def frame(page: dict[str, Any], packed: str) -> str:
    """A picture, which site.js puts into an iframe as a page of its own, and the way to that page alone."""
    title = html.escape(page["pictures"][0]["words"]["title"])
    more = f'<a href="../_static/{ALONE}#trace={packed}">Open alone, to share or embed</a>'
    return (
        f'<div class="{PICTURE_CLASS}"><iframe title="{title}, pass by pass"></iframe>{_json(page | {"link": ""})}'
        f'<div class="playing-more">{more}</div></div>'
    )


def chart(figure: dict[str, Any], svg: str) -> str:
    """A chart that plotly draws, or its drawing where no script runs."""
    drawing = html.escape(svg[svg.index("<svg") :])
    still = f'<noscript><iframe title="A chart" srcdoc="{drawing}"></iframe></noscript>'
    return f'<div class="{CHART_CLASS}">{_json(figure)}{still}</div>'


def _json(value: Any) -> str:
    """Data for a script, which cannot end their element."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json">{text}</script>'


def page(text: str, folder: Path) -> str:
    """A page of Markdown: pictures in both themes follow the site's, and what stands outside of the site is no link."""

    def picture(found: re.Match[str]) -> str:
        if found["notebook"]:
            return saved(found["notebook"], found["cell"])
        kinds = {"light": "only-light ", "dark": "only-dark "} if found["dark"] else {"light": ""}
        return "\n".join(
            f'<img alt="{found["alt"]}" src="{found[theme]}" class="{kind}playing-still">'
            for theme, kind in kinds.items()
        )

    def link(found: re.Match[str]) -> str:
        path = folder / found[2]
        if path.suffix == ".json" and path.is_file():
            up = "../" * len(folder.relative_to(ROOT).parts)
            return f'<a href="{up}_static/{RAW}/{path.name}.gz" download>{found[1]}</a>'
        return found[1] if path.exists() and path.suffix not in (".md", ".ipynb") else found[0]

    return _PICTURE.sub(picture, _LINK.sub(link, text))


@cache
def saved(name: str, cell: str) -> str:
    """The first picture of a cell of a saved notebook."""
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    (found,) = (each for each in cells if each.get("id") == cell)
    packed = next(output["data"][MIME]["packed"] for output in found["outputs"] if MIME in output.get("data", {}))
    return frame(unpack_text(packed), packed)


def shell() -> list[str]:
    """The page of a picture, what stands before its data and behind."""
    page = sealed({"pictures": [{"words": {"title": "Decoding"}}]})
    before, _, after = re.split(r'(?<=id="trace">)([^<]*)', page)
    return [before, after]


def write_shared(site: Path, first: str) -> None:
    """Write what all pages share: plotly, the page for one picture, raw results, and the way from the folder to the first page."""
    from plotly.offline import get_plotlyjs

    for pattern in ("*.map", "fa-brands-*"):
        for unused in (site / "_static").rglob(pattern):
            unused.unlink()
    (site / "_static" / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    (site / "_static" / "picture.js").write_text(f"window.picturePage = {json.dumps(shell())};\n", encoding="utf-8")
    for path in (site / "_downloads").rglob("*.ipynb"):
        compact = json.dumps(json.loads(path.read_text(encoding="utf-8")), ensure_ascii=False, separators=(",", ":"))
        path.write_text(compact, encoding="utf-8")
    (site / "_static" / RAW).mkdir(exist_ok=True)
    for path in (ROOT / "fastdecode_lib" / "results").glob("*.json"):
        compressed = gzip.compress(path.read_bytes(), mtime=0)
        (site / "_static" / RAW / f"{path.name}.gz").write_bytes(compressed)
    cells = json.loads((ROOT / "notebooks" / "00_start_here.ipynb").read_text(encoding="utf-8"))["cells"]
    packed = next(o["data"][MIME]["packed"] for c in cells for o in c.get("outputs", []) if MIME in o.get("data", {}))
    (site / "_static" / ALONE).write_text(sealed(unpack_text(packed), packed), encoding="utf-8")
    refresh = f'<meta http-equiv="refresh" content="0; url={first}.html"><a href="{first}.html">fastdecode</a>'
    icon = '<link rel="icon" href="_static/favicon.svg">'
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>fastdecode</title>{icon}{refresh}</html>\n'
    (site / "index.html").write_text(page, encoding="utf-8")
