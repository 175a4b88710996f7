"""Draws single cells: a box by the kind of cell, the token, its probability, and marks in the corners."""

from dataclasses import replace

from ddgviz import layout, words
from ddgviz.drawing import Page, escape, number
from ddgviz.layout import Column
from ddgviz.source import origin_of
from ddgviz.text import ELLIPSIS, fit
from ddgviz.trace import Cell

SHAPES = {
    "source": "M0 0l7 3.5l-7 3.5z",
    "prompt": "M0 0l7 3.5l-7 3.5z",
    "ngram": "M3.5 0l3.5 7h-7z",
    "lexicon": "M.5 .5h6v6h-6z",
    "ngram+lexicon": "M3.5 -.5l4 4l-4 4l-4 -4z",
    "pool": "M2.5 0h2v2.5h2.5v2h-2.5v2.5h-2v-2.5h-2.5v-2h2.5z",
    "other": "M0 3.5a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
}
"""Marks, seven pixels wide, by the source of a draft."""


def draw_token(page: Page, cell: Cell, y: float, size: float, fill: str, bold: bool, **attributes: object) -> None:
    """A token in the middle of its column, cut if it is wider, with a tick if it continues a word."""
    place = page.placed[cell.column]
    text = fit(cell.label.text, place.width - 8, size, bold)
    weight = {"font_weight": 600} if bold else {}
    content = escape(text)
    if text.endswith(ELLIPSIS) and text != cell.label.text:
        content = f"<title>{escape(cell.label.text)}</title>{content}"
    place_of_text = {"x": place.middle, "y": y, "font_size": size, "fill": fill, "text_anchor": "middle"}
    page.element("text", content, **place_of_text, **weight, **attributes)
    if cell.label.ticked:
        x = place.x + 2.5
        page.element("path", d=f"M{number(x)} {number(y - 4)}h4", stroke=page.theme.muted, stroke_width=1.4)


def draw_cell(page: Page, cell: Cell, y: float) -> None:
    """One cell with its top at `y`."""
    theme, place, high = page.theme, page.placed[cell.column], page.pitch - 4
    if cell.kind == "empty":
        page.element("circle", cx=place.middle, cy=y + high / 2, r=1.6, fill=theme.muted, fill_opacity=0.45)
        return
    came = origin_of(page.model, words.title(page.model), cell.origin, cell.source) if cell.source >= 0 else ""
    if came:
        drafted = page.model.label(cell.draft).text
        page.out.append(f"<g><title>{escape(f'draft before: {drafted}, {came}')}</title>")
    draw_box(page, cell.kind, place, y, high, 0.8 if cell.probability is None else cell.probability)
    settled = cell.kind in ("settled", "new")
    baseline = y + (high / 2 + 4.5 if cell.probability is None else 18)
    style = {} if settled else {"font_style": "italic"}
    drawn = cell if cell.token >= 0 else replace(cell, label=replace(cell.label, text="·"))
    draw_token(
        page, drawn, baseline, layout.TOKEN_SIZE, theme.ink if settled else theme.muted, cell.kind == "new", **style
    )
    if cell.probability is not None:
        ink = theme.ink if cell.kind == "new" else theme.muted
        page.text(place.middle, y + 33, probability(cell.probability), 10, ink, text_anchor="middle")
    if cell.moved:
        line = f"M{number(place.right - 13)} {number(y + 3.5)}l4 3.5l4 -3.5"
        page.element("path", d=line, fill="none", stroke=theme.accent, stroke_width=1.6)
    if cell.guess:
        draw_mark(page, cell.origin, cell.guess == "right", place.x + 3, y + high - 11)
    if came:
        page.out.append("</g>")


def draw_mark(page: Page, origin: str, right: bool, x: float, y: float) -> None:
    """Draw the mark of a draft's source: filled if the draft was right, hollow if not."""
    style = {"fill": page.theme.ink} if right else {"fill": "none"}
    shape = SHAPES.get(origin, SHAPES["other"])
    where = f"translate({number(x)} {number(y)})"
    page.element("path", d=shape, **style, stroke=page.theme.ink, stroke_width=0.9, opacity=0.7, transform=where)


def draw_box(page: Page, kind: str, place: Column, y: float, high: float, sure: float, rx: float = 6) -> None:
    """Draw the box of a cell by its kind: filled, filled and outlined, dashed, or dashed with hatched corners."""
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
    if kind == "masked":
        page.element("path", d=hatch(place, y, high), stroke=theme.muted, stroke_opacity=0.6)


def hatch(place: Column, y: float, high: float) -> str:
    """Two strokes across the corner at the top left, and two at the bottom right."""
    step = min(high, place.width) / 6
    x, right, foot = place.x + 1, place.right - 1, y + high - 1
    top = [f"M{number(x)} {number(y + 1 + n * step)}L{number(x + n * step)} {number(y + 1)}" for n in (1, 2)]
    end = [f"M{number(right - n * step)} {number(foot)}L{number(right)} {number(foot - n * step)}" for n in (1, 2)]
    return "".join(top + end)


def probability(value: float) -> str:
    """``.97``; ``1.0`` when it rounds to one."""
    return "1.0" if value >= 0.995 else f"{value:.2f}".removeprefix("0")
