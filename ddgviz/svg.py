"""Writes the picture as SVG: the same bytes for the same trace, and no browser needed."""

import operator
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ddgviz import layout, words
from ddgviz.cells import draw_box, draw_mark, draw_token
from ddgviz.drawing import LEFT, MARGIN, Page, escape, number
from ddgviz.graph import at_once, edges, kind, layers, meaning, pills
from ddgviz.layout import Column
from ddgviz.schema import fail
from ddgviz.text import fit, width
from ddgviz.theme import FONT, theme_named
from ddgviz.trace import Cell, Node, TraceModel, read
from ddgviz.views import active_sets, grid, lattice

MAX_CELLS = 20_000
TOP = 36.0

Window = tuple[tuple[int, int], tuple[int, int]]


def svg(
    trace: Any, *, theme: str = "light", upto: int | None = None, window: Window | None = None, graph: str = "auto"
) -> str:
    """Draw a trace.

    Parameters
    ----------
    trace : anything that `read` takes
    theme : str
        ``light``, ``dark``, or another of `ddgviz.theme.THEMES`.
    upto : int, optional
        Draw the state after this many passes; all of them by default.
    window : ((first row, end row), (first column, end column)), optional
        Draw a part; needed above 20,000 cells. Rows and columns count from 0, ends are left out.
    graph : {"auto", "measured", "order", "none"}
        Edges to draw: measured dependencies, those of the settling order, or none; ``auto`` draws what was measured.

    Returns
    -------
    str
        An SVG document.

    Raises
    ------
    ValueError
        If the trace is damaged or larger than a picture holds, or an argument is out of range.
    """
    return draw(read(trace), theme, upto, window, graph)


def pair(
    traces: tuple[TraceModel, TraceModel], verdict: str, theme: str = "light", window: Window | None = None
) -> str:
    """Two traces as one drawing, one above the other, under the verdict on them."""
    colors = theme_named(theme)
    docs = [draw(model, theme, None, window) for model in traces]
    sizes = [[float(side) for side in re.findall(r' (?:width|height)="([0-9.]+)"', doc)[:2]] for doc in docs]
    wide, high = max(size[0] for size in sizes), sum(size[1] for size in sizes) + TOP
    text = fit(verdict, wide - 2 * MARGIN, 14)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(wide)}" height="{number(high)}"'
        f' viewBox="0 0 {number(wide)} {number(high)}" font-family="{FONT}" role="img" aria-label="{escape(verdict)}">',
        f'<rect width="{number(wide)}" height="{number(high)}" fill="{colors.paper}"/>',
        f'<text x="{MARGIN}" y="32" font-size="14" fill="{colors.ink}"><title>{escape(verdict)}</title>{escape(text)}</text>',
    ]
    tops = (TOP, TOP + sizes[0][1])
    for name, doc, top in zip("AB", docs, tops, strict=True):
        lines.append(doc.replace("<svg ", f'<svg y="{number(top)}" ', 1))
        lines.append(
            f'<text x="8" y="{number(top + 35)}" font-size="13" font-weight="600" fill="{colors.ink}">{name}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def draw(
    model: TraceModel, theme: str, upto: int | None, window: Window | None, graph: str = "auto", steady: bool = False
) -> str:
    """`svg` of a trace that has been read; a `steady` one is a frame: it has room for later passes, and its last pass's caption."""
    passes = _passes(model, upto)
    rows, columns = _window(model, passes, window)
    room = len(_window(model, model.rows, window)[0]) if steady else len(rows)
    placed = layout.columns(model, columns, LEFT)
    if window is not None and not steady:
        passes = rows.stop
    page = Page(model, theme_named(theme), passes, rows, placed, layout.row_height(model), kind(model, graph), room, [])
    y = _header(page)
    y = _graph(page, y)
    y = lattice(page, y) if model.beam else grid(page, y)
    if model.grouped:
        y = active_sets(page, y + 24)
    y = _caption(page, y + 30, steady)
    y = _legend(page, y + 30)
    return _document(page, y + 26)


def _passes(model: TraceModel, upto: int | None) -> int:
    if upto is None:
        return model.rows
    if not 0 <= upto <= model.rows:
        raise fail(f"upto is a number of passes from 0 to {model.rows}", upto, "Leave it out to draw all of them.")
    return upto


def _window(model: TraceModel, passes: int, window: Window | None) -> tuple[range, range]:
    if window is not None:
        (row, end_row), (column, end_column) = ranges(window)
        rows, columns = range(row, min(end_row, passes)), range(column, min(end_column, model.columns))
        if row < 0 or column < 0 or not rows or not columns:
            raise fail(f"window must lie within {passes} passes and {model.columns} positions", window, _WINDOW)
    else:
        rows, columns = range(passes), range(model.columns)
    if len(rows) * len(columns) > MAX_CELLS:
        size = f"{len(rows)} passes of {len(columns)} positions"
        raise fail(f"A picture holds at most {MAX_CELLS:,} cells", size, _WINDOW)
    return rows, columns


def ranges(window: Window) -> Window:
    """A window, checked to be two pairs of whole numbers."""
    whole = operator.index
    try:
        (row, end_row), (column, end_column) = window
        return (whole(row), whole(end_row)), (whole(column), whole(end_column))
    except (TypeError, ValueError):
        raise fail("window is a range of passes and a range of positions", window, _WINDOW) from None


_WINDOW = "Choose a part, for example window=((0, 40), (0, 40))."


def _document(page: Page, height: float) -> str:
    total, high = number(page.total), number(height)
    label = escape(f"{words.title(page.model)}: {words.headline(page.model)}")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{high}" viewBox="0 0 {total} {high}"'
        f' font-family="{FONT}" xml:space="preserve" role="img" aria-label="{label}">'
    )
    paper = f'<rect width="{total}" height="{high}" fill="{page.theme.paper}"/>'
    return "\n".join([head, paper, *page.out, "</svg>", ""])


def _header(page: Page) -> float:
    model, theme = page.model, page.theme
    edge = page.total - MARGIN
    headline, aside = words.headline(model), words.comparison(model)
    aside_width = max(width(headline, 16, bold=True), width(aside, 12)) + 40
    y = 36.0
    page.text(edge, y, headline, 16, theme.ink, font_weight=600, text_anchor="end")
    page.text(edge, y + 22, aside, 12, theme.muted, text_anchor="end")
    for index, line in enumerate(layout.lines(words.title(model), 16, edge - MARGIN - aside_width, 2)):
        y = 36 + 21 * index
        page.text(MARGIN, y, line, 16, theme.ink, font_weight=600)
    page.text(MARGIN, y + 22, fit(words.subtitle(model), edge - MARGIN - aside_width, 12), 12, theme.muted)
    return y + 42


def _graph(page: Page, top: float) -> float:
    model, theme, placed = page.model, page.theme, page.placed
    shown_edges = [e for e in edges(model, page.upto, page.graph) if e.source in placed and e.target in placed]
    all_edges = [e for e in edges(model, None, page.graph) if e.source in placed and e.target in placed]
    pill = top + layout.graph_height(all_edges, placed) + 4
    for edge in sorted(shown_edges, key=lambda e: e.strength):
        strength = edge.strength
        path = _arc(placed[edge.source], placed[edge.target], pill - 1)
        weight, alpha = (0.8 + 2 * strength, 0.3 + 0.5 * strength) if page.graph == "measured" else (1.6, 0.65)
        page.element("path", d=path, fill="none", stroke=theme.settled, stroke_width=weight, stroke_opacity=alpha)
    for row, columns in layers(model, page.upto):
        for run in pills(model, [column for column in columns if column in placed]):
            _pill(page, row, run, pill)
    settled = {column for _, columns in layers(model, page.upto) for column in columns}
    for column, place in placed.items():
        if column in settled:
            continue
        page.element("circle", cx=place.middle, cy=pill + 13, r=1.6, fill=theme.muted, fill_opacity=0.5)
    several = any(len(pills(model, columns)) < len(columns) for _, columns in layers(model))
    return pill + 26 + (28 if several else 14)


def _arc(source: Column, target: Column, foot: float) -> str:
    start, end, y = number(source.middle), number(target.middle), number(foot)
    lift = number(foot - layout.arc_height(source, target) * 4 / 3)
    return f"M{start} {y}C{start} {lift} {end} {lift} {end} {y}"


def _pill(page: Page, row: int, run: list[int], top: float) -> None:
    theme, placed = page.theme, page.placed
    x, right = placed[run[0]].x + 2, placed[run[-1]].right - 2
    together = len(run) > 1
    alpha = 0.18 if together else 0.1
    page.element("rect", x=x, y=top, width=right - x, height=26, rx=13, fill=theme.settled, fill_opacity=alpha)
    for cell in page.model.cells(row, run):
        draw_token(page, cell, top + 17.5, 13, theme.ink, True)
    if together:
        label = f"{at_once(page.model, row, run)} at once"
        page.text((x + right) / 2, top + 41, label, 10.5, theme.accent, font_weight=600, text_anchor="middle")


def _caption(page: Page, y: float, steady: bool) -> float:
    """The sentence below the grid: of the last pass drawn if the picture is unfinished or `steady`, else of the whole run."""
    model, theme = page.model, page.theme
    is_part = page.rows.start > 0 or len(page.placed) < model.columns
    if steady or (page.upto < model.rows and not (is_part and page.rows)):
        name = words.pass_name(model, page.upto - 1) if page.upto else ""
        text = words.caption(model, page.upto - 1) if page.upto else words.nothing(model)
    else:
        name, text = words.summary(model, page.rows) if page.rows else ("", words.nothing(model))
    start = LEFT
    if name:
        page.text(LEFT, y, name.capitalize(), 13, theme.ink, font_weight=600)
        start += width(name, 13, bold=True) + 8
    page.text(start, y, fit(text, page.total - start - MARGIN, 13), 13, theme.ink if page.upto else theme.muted)
    for note in filter(None, (words.beyond(model), _part(page))):
        y += 20
        page.text(LEFT, y, note, 12, theme.muted)
    return y


def _part(page: Page) -> str:
    rows, places, model = page.rows, list(page.placed), page.model
    if len(rows) == page.upto and len(places) == model.columns:
        return ""
    positions = f"positions {places[0] + 1}–{places[-1] + 1} of {model.columns}"
    return f"A part: passes {rows.start + 1}–{rows.stop} of {model.rows}, {positions}."


def _legend(page: Page, y: float) -> float:
    x = LEFT
    for label, draw in _lattice_legend(page) if page.model.beam else _grid_legend(page):
        need = 22 + width(label, 11) + 22
        if x + need > page.total - MARGIN + 22 and x > LEFT:
            x, y = LEFT, y + 22
        page.out.append(f'<g transform="translate({number(x)} {number(y)})">')
        draw()
        page.out.append("</g>")
        page.text(x + 24, y - 1, label, 11, page.theme.muted)
        x += need
    return y


Entry = tuple[str, Callable[[], None]]


def _grid_legend(page: Page) -> list[Entry]:
    theme, model = page.theme, page.model
    cells = [cell for row in page.rows for cell in model.cells(row, page.placed)]
    kinds = {cell.kind for cell in cells}
    items: list[Entry] = []
    masked = "masked again" if any(cell.token >= 0 for cell in cells if cell.kind == "masked") else "open"
    labels = {"settled": "settled", "new": "settled in this pass", "draft": "not settled", "masked": masked}
    for name, label in labels.items():
        if name in kinds:
            items.append((label, lambda name=name: draw_box(page, name, Column(0, 16), -12, 14, 0.8, 4)))  # type: ignore[misc]
    if any(cell.moved for cell in cells):
        line = {"d": "M4 -7l4 3.5l4 -3.5", "fill": "none", "stroke": theme.accent, "stroke_width": 1.6}
        items.append(("draft replaced", lambda: page.element("path", **line)))
    marked = [cell for cell in cells if cell.guess]
    for origin in sorted({cell.origin for cell in marked}):
        items.append((words.origin_legend(origin), partial(draw_mark, page, origin, False, 4, -9)))
    if marked:
        first = min(cell.origin for cell in marked)
        items.append(("filled: the pass kept the draft", lambda: draw_mark(page, first, True, 4, -9)))
    items += _tick_legend(page, cells)
    if any(block.end_column - block.column > 1 for block in model.blocks()):
        frame = {"x": -2, "y": -13, "width": 20, "height": 16, "rx": 5, "fill": "none", "stroke": theme.muted}
        items.append(("computed together", lambda: page.element("rect", **frame, stroke_opacity=0.55)))
    if edges(model, page.upto, page.graph):
        arc = {"d": "M-4 -1C0 -12 14 -12 19 -1", "fill": "none", "stroke": theme.settled, "stroke_width": 2}
        items.append((meaning(model, page.graph), lambda: page.element("path", **arc)))
    return items


def _lattice_legend(page: Page) -> list[Entry]:
    theme, box = page.theme, Column(0, 16)
    nodes = [node for column in page.model.lattice()[: page.upto] for node in column]
    line = {"d": "M-2 -8C8 -8 8 -2 18 -2", "fill": "none", "stroke": theme.settled, "stroke_width": 2.4}
    items: list[Entry] = [("the best hypothesis", lambda: page.element("path", **line))]
    if any(not node.best for node in nodes):
        items.append(("another hypothesis", lambda: draw_box(page, "draft", box, -12, 14, 0.8, 4)))
    if any(node.finished and not node.best for node in nodes):
        edge = {"x": 0.5, "y": -11.5, "width": 15, "height": 13, "rx": 4, "fill": "none", "stroke": theme.muted}
        items.append(("finished, scored by length", lambda: page.element("rect", **edge)))
    return items + _tick_legend(page, nodes)


def _tick_legend(page: Page, drawn: Sequence[Cell | Node]) -> list[Entry]:
    tick = {"d": "M5 -5h6", "stroke": page.theme.muted, "stroke_width": 1.6}
    ticked = any(item.label.ticked for item in drawn)
    return [("continues the word", lambda: page.element("path", **tick))] if ticked else []
