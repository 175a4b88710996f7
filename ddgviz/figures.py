"""Charts of measured decoders, from tables."""

import html
import math
from itertools import product
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from ddgviz.browser import find_browser
from ddgviz.export import write
from ddgviz.schema import fail
from ddgviz.text import visible
from ddgviz.theme import EITHER, FONT, LIGHT, Theme, theme_named

_NEEDED = ("name", "agreement", "calls", "speedup", "speedup_low", "speedup_high")
_REMEDY = "Pass the table that compare() returns."

_CURVES = ("#16918a", "#d9601c", "#6f74d9", "#b8479c", "#7f8c1f", "#2f86c9", "#a8743a", "#757d86", "#c93a4b", "#3f9a54")
"""Colours of curves, legible on white and on black; after the last one they begin again, with dashes."""
_KINDS = {
    "measured": ("solid", "circle", ""),
    "model": ("dash", "circle-open", ", model"),
    "paper": ("dot", "diamond-open", ", paper"),
}
"""How each kind of row is drawn: line, mark, and what the legend adds."""


def esc(text: object) -> str:
    """`text` for plotly, which reads tags, dollar signs and ``%{...}`` as markup."""
    shown = html.escape(visible(str(text)), quote=False)
    return shown.replace("$", "&#36;").replace("%{", "&#37;{")


def speed_accuracy(frame: Any, theme: str = "auto") -> go.Figure:
    """Speedup of each decoder with its interval, and what it costs in agreement.

    Parameters
    ----------
    frame : pandas.DataFrame
        A comparison: ``name, agreement, calls, positions, speedup, speedup_low, speedup_high, seconds, bleu, chrf``;
        quality may be missing or NaN. The baseline is the row named ``greedy`` if there is one.
    theme : {"auto", "light", "dark"}
        ``auto`` has no background and is legible on a light one and on a dark one.

    Returns
    -------
    plotly.graph_objects.Figure
        One line per row: a filled disc if every output equals greedy's, an open diamond if not; a bar mark where fewer
        passes alone would put it.

    Raises
    ------
    ValueError
        If a column is missing or the table is empty.
    """
    colors = EITHER if theme == "auto" else theme_named(theme)
    rows = _rows(frame)
    names = [esc(row["name"]) for row in rows]
    figure = go.Figure()
    _passes(figure, rows, names, colors)
    exact = [row["agreement"] is not None and row["agreement"] >= 1 for row in rows]
    for wanted, said, symbol in (
        (True, "same output as greedy", "circle"),
        (False, "output may differ", "diamond-open"),
    ):
        chosen = [index for index, value in enumerate(exact) if value is wanted]
        if chosen:
            _marks(figure, [rows[i] for i in chosen], [names[i] for i in chosen], said, symbol, colors)
    _style(figure, names, colors)
    return figure


def curves(
    frame: Any,
    x: str,
    y: str,
    group: str = "name",
    *,
    reference: float | None = None,
    log_x: bool = False,
    x_title: str | None = None,
    y_title: str | None = None,
    theme: str = "auto",
) -> go.Figure:
    """One curve for each group of rows, over a number.

    Rows whose column ``kind`` is *measured*, or that have none, are solid lines with filled marks; *model* is dashed and
    *paper* dotted, both with open marks. A group has one colour in all kinds.

    Parameters
    ----------
    frame : pandas.DataFrame
        Where there are columns ``{y}_low`` and ``{y}_high``, they are drawn as error bars. Rows of kind *paper* may have
        their height in ``paper_{y}``.
    x, y, group : str
        Columns.
    reference : float, optional
        Height of a horizontal line.
    x_title, y_title : str, optional
        The columns' names otherwise.
    theme : {"auto", "light", "dark"}
        As in `speed_accuracy`.

    Raises
    ------
    ValueError
        If a column is missing, or no row has a value.
    """
    colors = EITHER if theme == "auto" else theme_named(theme)
    columns = list(getattr(frame, "columns", []))
    if missing := [name for name in (x, y, group) if name not in columns]:
        raise fail(f"Curves need the column {missing[0]!r}", columns, "Name columns of the table.")
    rows = [{key: _known(value) for key, value in row.items()} for row in frame.to_dict("records")]
    if unknown := {row.get("kind") or "measured" for row in rows} - set(_KINDS):
        raise fail(
            f"Curves know rows of kind {', '.join(_KINDS)}", sorted(unknown)[0], "Rename the kind, or leave it out."
        )
    for row in rows:
        if row.get("kind") == "paper" and row[y] is None:
            row[y] = row.get(f"paper_{y}")
    rows = [row for row in rows if row[x] is not None and row[y] is not None]
    if not rows:
        raise fail("Curves need a row with a value", "none", f"Pass a table with numbers in {x!r} and {y!r}.")
    groups = list(dict.fromkeys(row[group] for row in rows))
    figure = go.Figure()
    for kind, (number, name) in product(_KINDS, enumerate(groups)):
        chosen = [row for row in rows if row[group] == name and (row.get("kind") or "measured") == kind]
        if chosen:
            chosen.sort(key=lambda row: row[x])
            figure.add_trace(_curve(chosen, x, y, esc(name), kind, number))
    if reference is not None:
        figure.add_hline(y=reference, line={"color": colors.muted, "width": 1, "dash": "dot"})
    _style_curves(figure, colors, esc(x_title or x.replace("_", " ")), esc(y_title or y.replace("_", " ")))
    if log_x:
        ticks = sorted({row[x] for row in rows})
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    return figure


def _curve(rows: list[dict[str, Any]], x: str, y: str, name: str, kind: str, number: int) -> go.Scatter:
    dash, symbol, said = _KINDS[kind]
    color = _CURVES[number % len(_CURVES)]
    if kind == "measured" and number >= len(_CURVES):
        dash = "longdash"
    bars = None
    if any(row.get(f"{y}_low") is not None for row in rows):
        over = [_difference(row.get(f"{y}_high"), row[y]) for row in rows]
        under = [_difference(row[y], row.get(f"{y}_low")) for row in rows]
        bars = {"type": "data", "array": over, "arrayminus": under, "color": color, "thickness": 1.2, "width": 3}
    return go.Scatter(
        x=[row[x] for row in rows],
        y=[row[y] for row in rows],
        mode="lines+markers",
        name=name + said,
        line={"color": color, "width": 2 if kind == "measured" else 1.4, "dash": dash},
        marker={"symbol": symbol, "size": 7 if kind == "measured" else 8, "color": color},
        error_y=bars,
        hovertemplate=f"{name}{said}<br>%{{x}}: %{{y:.3g}}<extra></extra>",
    )


def save_chart(figure: go.Figure, stem: str | Path) -> list[Path]:
    """Write a chart as standalone HTML, SVG, PDF and PNG, named after `stem`; all but HTML need Chromium.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    ValueError
        If no Chromium is found; the HTML is written all the same.
    """
    stem = Path(stem)
    page = stem.with_name(f"{stem.name}.html")
    write(page, figure.to_html(include_plotlyjs=True, full_html=True).encode())
    find_browser()
    pictures = [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "pdf", "png")]
    for picture in pictures:
        write(picture, figure.to_image(format=picture.suffix[1:], width=860, scale=2))
    return [page, *pictures]


def _rows(frame: Any) -> list[dict[str, Any]]:
    columns = list(getattr(frame, "columns", []))
    if missing := [name for name in _NEEDED if name not in columns]:
        raise fail(f"A comparison needs the column {missing[0]!r}", columns, _REMEDY)
    rows = [{key: _known(value) for key, value in row.items()} for row in frame.to_dict("records")]
    if not rows:
        raise fail("A chart needs a decoder to show", "an empty table", _REMEDY)
    return rows


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _passes(figure: go.Figure, rows: list[dict[str, Any]], names: list[str], colors: Theme) -> None:
    base = next((row["calls"] for row in rows if row["name"] == "greedy" and row["calls"]), None)
    if base is None:
        return
    ratios = [base / row["calls"] if row["calls"] else None for row in rows]
    figure.add_scatter(
        x=ratios,
        y=names,
        mode="markers",
        name="if only passes counted",
        marker={"symbol": "line-ns", "size": 16, "line": {"width": 2, "color": colors.muted}},
        hovertemplate="%{y}: %{x:.2f} times fewer passes than greedy<extra></extra>",
    )


def _marks(
    figure: go.Figure, rows: list[dict[str, Any]], names: list[str], said: str, symbol: str, colors: Theme
) -> None:
    color = colors.settled if symbol == "circle" else colors.accent
    over = [_difference(row["speedup_high"], row["speedup"]) for row in rows]
    under = [_difference(row["speedup"], row["speedup_low"]) for row in rows]
    figure.add_scatter(
        x=[row["speedup"] for row in rows],
        y=names,
        mode="markers",
        name=said,
        marker={"symbol": symbol, "size": 12, "color": color, "line": {"width": 2, "color": color}},
        error_x={"type": "data", "array": over, "arrayminus": under, "color": color, "thickness": 1.6, "width": 5},
        customdata=[[_quality(row)] for row in rows],
        hovertemplate="%{y}<br>%{x:.2f}x<br>%{customdata[0]}<extra></extra>",
    )


def _difference(high: float | None, low: float | None) -> float:
    return 0.0 if high is None or low is None else max(0.0, high - low)


def _quality(row: dict[str, Any]) -> str:
    parts = [f"{row['agreement']:.1%} of outputs as greedy's"] if row["agreement"] is not None else []
    for key, said in (("bleu", "BLEU"), ("chrf", "chrF")):
        if row.get(key) is not None:
            parts.append(f"{said} {row[key]:.1f}")
    return " · ".join(parts)


def _style(figure: go.Figure, names: list[str], colors: Theme) -> None:
    figure.add_vline(x=1, line={"color": colors.muted, "width": 1, "dash": "dot"})
    figure.update_layout(**_layout(colors), height=120 + 38 * len(names))
    figure.update_xaxes(
        **_axis(colors, "speedup over the baseline"), rangemode="tozero", ticksuffix="x", gridcolor=colors.line
    )
    order = {"categoryorder": "array", "categoryarray": names[::-1]}
    figure.update_yaxes(automargin=True, ticks="", showgrid=False, showline=False, zeroline=False, **order)


def _style_curves(figure: go.Figure, colors: Theme, x_title: str, y_title: str) -> None:
    lines = -(-len(figure.data) // 3)
    figure.update_layout(**_layout(colors), height=360 + 20 * lines)
    figure.update_xaxes(**_axis(colors, x_title), showgrid=False)
    figure.update_yaxes(**_axis(colors, y_title), automargin=True, rangemode="tozero", gridcolor=colors.line)


def _layout(colors: Theme) -> dict[str, Any]:
    return {
        "template": "none",
        "font": {"family": FONT, "size": 12, "color": colors.ink},
        "paper_bgcolor": colors.paper,
        "plot_bgcolor": colors.paper,
        "margin": {"l": 20, "r": 30, "t": 48, "b": 52},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"color": colors.muted}},
        "hoverlabel": {"bgcolor": LIGHT.ink, "font": {"color": LIGHT.paper, "family": FONT}},
    }


def _axis(colors: Theme, title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"color": colors.muted, "size": 12}, "standoff": 14},
        "showline": False,
        "zeroline": False,
        "tickfont": {"color": colors.muted},
    }
