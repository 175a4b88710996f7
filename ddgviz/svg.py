"""Writes the picture as SVG: the same bytes for the same trace, and no browser needed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ddgviz import graph, layout, words
from ddgviz.drawing import LEFT, MARGIN, Page, escape, number
from ddgviz.layout import Column
from ddgviz.schema import fail
from ddgviz.text import ELLIPSIS, fit, width
from ddgviz.theme import FONT, theme_named
from ddgviz.trace import Cell, TraceModel, read

MAX_CELLS = 20_000
BAR_UNIT = 22.0
LONGEST_BAR = 72.0

Window = tuple[tuple[int, int], tuple[int, int]]


def svg(trace: Any, *, theme: str = "light", upto: int | None = None, window: Window | None = None) -> str:
    """Draw a trace.

    Parameters
    ----------
    trace : anything that `read` takes
    theme : {"light", "dark"}
    upto : int, optional
        Draw the state after this many passes; all of them by default.
    window : ((first row, end row), (first column, end column)), optional
        Draw a part; needed above 20,000 cells. Rows and columns count from 0, ends are left out.

    Returns
    -------
    str
        An SVG document.

    Raises
    ------
    ValueError
        If the trace is damaged or larger than a picture holds, or an argument is out of range.
    """
    model = read(trace)
    passes = _passes(model, upto)
    rows, columns = _window(model, passes, window)
    placed = layout.columns(model, columns, LEFT)
    page = Page(model, theme_named(theme), passes, rows, placed, layout.row_height(model), [])
    y = _header(page)
    y = _graph(page, y)
    y = _grid(page, y)
    y = _caption(page, y + 30)
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
        (row, end_row), (column, end_column) = window
        rows, columns = range(row, min(end_row, passes)), range(column, min(end_column, model.columns))
        if row < 0 or column < 0 or not rows or not columns:
            raise fail(f"window must lie within {passes} passes and {model.columns} positions", window, _WINDOW)
    else:
        rows, columns = range(passes), range(model.columns)
    if len(rows) * len(columns) > MAX_CELLS:
        size = f"{len(rows)} passes of {len(columns)} positions"
        raise fail(f"A picture holds at most {MAX_CELLS:,} cells", size, _WINDOW)
    return rows, columns


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
    headline, beside = words.headline(model), words.comparison(model)
    taken = max(width(headline, 16, bold=True), width(beside, 12)) + 40
    y = 36.0
    page.text(edge, y, headline, 16, theme.ink, font_weight=600, text_anchor="end")
    page.text(edge, y + 22, beside, 12, theme.muted, text_anchor="end")
    for index, line in enumerate(layout.lines(words.title(model), 16, edge - MARGIN - taken, 2)):
        y = 36 + 21 * index
        page.text(MARGIN, y, line, 16, theme.ink, font_weight=600)
    page.text(MARGIN, y + 22, fit(words.subtitle(model), edge - MARGIN - taken, 12), 12, theme.muted)
    return y + 42


def _graph(page: Page, top: float) -> float:
    model, theme, placed = page.model, page.theme, page.placed
    drawn = [e for e in graph.edges(model, page.upto) if e.source in placed and e.target in placed]
    pill = top + layout.graph_height(drawn, placed) + 4
    for edge in sorted(drawn, key=lambda e: e.strength):
        strength = edge.strength
        path = _arc(placed[edge.source], placed[edge.target], pill - 1)
        weight, alpha = (0.8 + 2 * strength, 0.3 + 0.5 * strength) if model.edges else (1.6, 0.65)
        page.element("path", d=path, fill="none", stroke=theme.settled, stroke_width=weight, stroke_opacity=alpha)
    for row, columns in graph.layers(model, page.upto):
        for run in graph.pills(model, [column for column in columns if column in placed]):
            _pill(page, row, run, pill)
    for column in _unsettled(page):
        place = placed[column]
        page.element("circle", cx=place.middle, cy=pill + 13, r=1.6, fill=theme.muted, fill_opacity=0.5)
    several = any(len(graph.pills(model, columns)) < len(columns) for _, columns in graph.layers(model))
    return pill + 26 + (28 if several else 14)


def _arc(source: Column, target: Column, foot: float) -> str:
    start, end, y = number(source.middle), number(target.middle), number(foot)
    lift = number(foot - layout.arc_height(source, target) * 4 / 3)
    return f"M{start} {y}C{start} {lift} {end} {lift} {end} {y}"


def _unsettled(page: Page) -> list[int]:
    return [c for c in page.placed if c not in page.model.settled or page.model.settled[c][0] >= page.upto]


def _pill(page: Page, row: int, run: list[int], top: float) -> None:
    theme, placed = page.theme, page.placed
    x, right = placed[run[0]].x + 2, placed[run[-1]].right - 2
    together = len(run) > 1
    alpha = 0.18 if together else 0.1
    page.element("rect", x=x, y=top, width=right - x, height=26, rx=13, fill=theme.settled, fill_opacity=alpha)
    for cell in page.model.cells(row, run):
        _token(page, cell, top + 17.5, 13, theme.ink, True)
    if together:
        label = f"{len(run)} at once"
        page.text((x + right) / 2, top + 41, label, 10.5, theme.accent, font_weight=600, text_anchor="middle")


def _token(page: Page, cell: Cell, y: float, size: float, fill: str, bold: bool, **attributes: object) -> None:
    place = page.placed[cell.column]
    text = fit(cell.label.text, place.width - 8, size, bold)
    weight = {"font_weight": 600} if bold else {}
    content = escape(text)
    if text.endswith(ELLIPSIS) and text != cell.label.text:
        content = f"<title>{escape(cell.label.text)}</title>{content}"
    where = {"x": place.middle, "y": y, "font_size": size, "fill": fill, "text_anchor": "middle"}
    page.element("text", content, **where, **weight, **attributes)
    if cell.label.continues:
        x = place.x + 1 if cell.kind != "settled" or bold else place.x
        page.element("path", d=f"M{number(x)} {number(y - 4)}h4", stroke=page.theme.muted, stroke_width=1.4)


def _grid(page: Page, top: float) -> float:
    theme, model = page.theme, page.model
    most = max((len(model.new_columns(row)) for row in range(model.rows)), default=0)
    unit = min(BAR_UNIT, LONGEST_BAR / max(most, 1))
    for index, row in enumerate(page.rows):
        y = top + index * page.pitch
        middle = y + (page.pitch - 4) / 2
        page.text(LEFT - 16, middle + 4, words.pass_name(model, row), 12, theme.muted, text_anchor="end")
        for cell in model.cells(row, page.placed):
            draw_cell(page, cell, y)
        if count := len(model.new_columns(row)):
            x, long = page.right + 18, unit * count
            page.element("rect", x=x, y=middle - 8, width=long, height=16, rx=4, fill=theme.accent, fill_opacity=0.85)
            page.text(x + long + 7, middle + 4.5, f"+{count}", 12, theme.ink, font_weight=600)
    return top + len(page.rows) * page.pitch - 4


def draw_cell(page: Page, cell: Cell, y: float) -> None:
    """One cell with its top at `y`."""
    theme, place, high = page.theme, page.placed[cell.column], page.pitch - 4
    if cell.kind == "empty":
        page.element("circle", cx=place.middle, cy=y + high / 2, r=1.6, fill=theme.muted, fill_opacity=0.45)
        return
    _box(page, cell.kind, place, y, high, 0.8 if cell.probability is None else cell.probability)
    settled = cell.kind in ("settled", "new")
    baseline = y + (high / 2 + 4.5 if cell.probability is None else 18)
    style = {} if settled else {"font_style": "italic"}
    shown = replace(cell, label=replace(cell.label, text="·")) if cell.kind == "masked" else cell
    _token(page, shown, baseline, layout.TOKEN_SIZE, theme.ink if settled else theme.muted, cell.kind == "new", **style)
    if cell.probability is not None:
        ink = theme.ink if cell.kind == "new" else theme.muted
        page.text(place.middle, y + 33, probability(cell.probability), 10, ink, text_anchor="middle")
    if cell.moved:
        x = place.middle - 4.5
        page.element("path", d=f"M{number(x - 3)} {number(y + 0.5)}h15", stroke=theme.paper, stroke_width=3)
        line = f"M{number(x)} {number(y - 1.5)}l4.5 4l4.5 -4"
        page.element("path", d=line, fill="none", stroke=theme.accent, stroke_width=1.6)


def _box(page: Page, kind: str, place: Column, y: float, high: float, sure: float, rx: float = 6) -> None:
    theme = page.theme
    inset = {"x": place.x + 0.5, "y": y + 0.5, "width": place.width - 1, "height": high - 1, "rx": rx}
    if kind == "settled":
        where = {"x": place.x, "y": y, "width": place.width, "height": high, "rx": rx}
        page.element("rect", **where, fill=theme.settled, fill_opacity=0.1 + 0.13 * sure)
    elif kind == "new":
        fill = {"fill": theme.settled, "fill_opacity": 0.26 + 0.22 * sure}
        page.element("rect", **inset, **fill, stroke=theme.accent, stroke_width=1.8)
    else:
        page.element("rect", **inset, fill="none", stroke=theme.muted, stroke_opacity=0.6, stroke_dasharray="2.5 3")


def probability(value: float) -> str:
    """``.97``; ``1.0`` when it rounds to one."""
    return "1.0" if value >= 0.995 else f"{value:.2f}".removeprefix("0")


def _caption(page: Page, y: float) -> float:
    model, theme = page.model, page.theme
    if not page.upto:
        page.text(LEFT, y, "Before the first pass.", 13, theme.muted)
        return y
    if page.upto < model.rows:
        name, said = words.pass_name(model, page.upto - 1), words.caption(model, page.upto - 1)
    else:
        name, said = words.summary(model, page.rows)
    start = LEFT
    if name:
        page.text(LEFT, y, name.capitalize(), 13, theme.ink, font_weight=600)
        start += width(name, 13, bold=True) + 8
    page.text(start, y, fit(said, page.total - start - MARGIN, 13), 13, theme.ink)
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
    theme = page.theme
    cells = [cell for row in page.rows for cell in page.model.cells(row, page.placed)]
    kinds = {cell.kind for cell in cells}
    box = Column(0, 16)
    items: list[tuple[str, Callable[[], None]]] = []
    for kind, said in (("settled", "settled"), ("new", "settled in this pass"), ("draft", "draft"), ("masked", "open")):
        if kind in kinds:
            items.append((said, lambda kind=kind: _box(page, kind, box, -12, 14, 0.8, 4)))  # type: ignore[misc]
    if any(cell.moved for cell in cells):
        line = {"d": "M4 -8l4 5l4 -5", "fill": "none", "stroke": theme.accent, "stroke_width": 1.6}
        items.append(("draft changed since the last pass", lambda: page.element("path", **line)))
    if any(cell.label.continues for cell in cells):
        tick = {"d": "M5 -5h6", "stroke": theme.muted, "stroke_width": 1.6}
        items.append(("continues the word", lambda: page.element("path", **tick)))
    if graph.edges(page.model, page.upto):
        arc = {"d": "M-4 -1C0 -12 14 -12 19 -1", "fill": "none", "stroke": theme.settled, "stroke_width": 2}
        items.append((graph.meaning(page.model), lambda: page.element("path", **arc)))
    x = LEFT
    for said, draw in items:
        need = 22 + width(said, 11) + 22
        if x + need > page.total - MARGIN + 22 and x > LEFT:
            x, y = LEFT, y + 22
        page.out.append(f'<g transform="translate({number(x)} {number(y)})">')
        draw()
        page.out.append("</g>")
        page.text(x + 24, y - 1, said, 11, theme.muted)
        x += need
    return y
