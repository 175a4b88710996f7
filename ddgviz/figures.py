"""Charts of measured decoders, from comparison tables."""

import html
import math
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
    figure.update_layout(
        template="none",
        font={"family": FONT, "size": 12, "color": colors.ink},
        paper_bgcolor=colors.paper,
        plot_bgcolor=colors.paper,
        height=120 + 38 * len(names),
        margin={"l": 20, "r": 30, "t": 48, "b": 52},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"color": colors.muted}},
        hoverlabel={"bgcolor": LIGHT.ink, "font": {"color": LIGHT.paper, "family": FONT}},
    )
    figure.update_xaxes(
        title={"text": "speedup over the baseline", "font": {"color": colors.muted, "size": 12}, "standoff": 14},
        rangemode="tozero",
        ticksuffix="x",
        showline=False,
        zeroline=False,
        gridcolor=colors.line,
        tickfont={"color": colors.muted},
    )
    order = {"categoryorder": "array", "categoryarray": names[::-1]}
    figure.update_yaxes(automargin=True, ticks="", showgrid=False, showline=False, zeroline=False, **order)
