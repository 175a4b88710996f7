"""Saves a picture, its graph or its trace to a file, whose suffix chooses the format."""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from ddgviz.graph import to_networkx
from ddgviz.latex import tikz
from ddgviz.page import html, race_html, tour_html
from ddgviz.schema import fail, optional
from ddgviz.svg import Window, pair, svg
from ddgviz.theme import theme_named
from ddgviz.trace import read
from ddgviz.verdict import judge, pair_of

PICTURES = (".svg", ".pdf", ".png", ".gif", ".tex")
"""Formats of pictures, which have one theme and may show a part of a trace; the others show all."""
SUFFIXES = (*PICTURES, ".html", ".json", ".graphml", ".gexf")


def save(
    trace: Any, path: str | Path, theme: str = "light", *, window: Window | None = None, animate: bool = False
) -> Path:
    """Write a trace as a picture, a page that plays it, a graph, or JSON.

    Parameters
    ----------
    trace : anything that `ddgviz.read` takes
        A race or a tour is also taken, as ``.html``; a comparison too, of `compare` or anything with ``a`` and ``b``, as
        ``.html``, ``.svg``, ``.pdf`` or ``.png``.
    path : str or Path
        File whose suffix chooses the format: ``.svg``, ``.pdf`` or ``.png`` for a picture, ``.gif`` for one that moves,
        ``.tex`` for the dependency graph in TikZ, ``.html`` for a page, ``.graphml`` or ``.gexf`` for the graph as data,
        ``.json`` for the trace. PDF, PNG and GIF need Chromium, GIF Pillow too.
    theme : str
        Theme of a picture, one of `ddgviz.theme.THEMES`; a page follows its reader.
    window : ((first row, end row), (first column, end column)), optional
        The part to draw, as in `ddgviz.svg`.
    animate : bool
        Whether an ``.svg`` moves; a GIF always does.

    Returns
    -------
    Path
        The file written, whole or not at all.

    Raises
    ------
    ValueError
        If the suffix is unknown, the trace damaged or too large for a picture, or Chromium needed and not found.
    """
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise fail(f"A picture is saved as {', '.join(SUFFIXES)}", path.name, "Give the file one of these suffixes.")
    if window is not None and suffix not in PICTURES:
        raise fail(f"A window is a part of a picture, {', '.join(PICTURES)}", path.name, "Leave the window out.")
    if animate and suffix not in (".svg", ".gif"):
        raise fail("An animation is saved as .svg or .gif", path.name, "Give the file one of these suffixes.")
    theme_named(theme)
    write(path, _content(trace, suffix, theme, window, animate))
    return path


def _content(trace: Any, suffix: str, theme: str, window: Window | None, animate: bool) -> bytes:
    two = pair_of(trace) if suffix in (".svg", ".pdf", ".png") and not animate else None
    if suffix == ".json":
        return (read(trace).to_json() + "\n").encode()
    if suffix == ".html":
        if hasattr(trace, "race"):
            return race_html(trace.race).encode()
        return (tour_html(trace.tour) if hasattr(trace, "tour") else html(trace)).encode()
    if suffix in (".graphml", ".gexf"):
        return _graph(trace, suffix).encode()
    if suffix == ".tex":
        return tikz(trace, theme=theme, window=window).encode()
    if suffix == ".gif" or animate:
        from ddgviz.animation import animated_svg, gif

        if suffix == ".gif":
            return gif(trace, theme=theme, window=window)
        return animated_svg(trace, theme=theme, window=window).encode()
    drawing = svg(trace, theme=theme, window=window) if two is None else pair(two, judge(*two).text, theme, window)
    if suffix == ".svg":
        return drawing.encode()
    from ddgviz.browser import convert

    return convert(drawing, suffix.removeprefix("."))


def _graph(trace: Any, suffix: str) -> str:
    """The graph as XML; ``label`` and ``weight`` are what Gephi, yEd and Cytoscape look for."""
    networkx = optional("networkx", f"A {suffix} file")
    graph = to_networkx(trace)
    for _, node in graph.nodes(data=True):
        node["label"] = node["token"]
    for _, _, edge in graph.edges(data=True):
        edge["weight"] = edge["strength"]
    if suffix == ".graphml":
        return "\n".join([*networkx.generate_graphml(graph), ""])
    today = re.compile(r' lastmodifieddate="[^"]*"')  # equal traces give equal files, on every day
    return today.sub("", "\n".join([*networkx.generate_gexf(graph), ""]), count=1)


def write(path: Path, content: bytes) -> None:
    """Write a file so that no reader sees a part of it; links stay, pipes and devices are written to but not replaced."""
    if path.is_fifo() or path.is_char_device():
        path.write_bytes(content)
        return
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise fail("A picture is saved as a file", str(path), "Name a file that is no folder, socket or disk.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise fail("A picture is saved in a folder", str(path.parent), "Name one that is no file.") from None
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".ddgviz.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
