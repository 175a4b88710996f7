"""Charts of measured decoders, from tables."""

import html
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from ddgviz import labels
from ddgviz.browser import find_browser
from ddgviz.export import write
from ddgviz.schema import fail
from ddgviz.text import visible, width
from ddgviz.theme import EITHER, FONT, LIGHT, Theme, theme_named

_NEEDED = ("name", "agreement", "calls", "speedup", "speedup_low", "speedup_high")
_REMEDY = "Pass the table that compare() returns."

_KINDS = {
    "measured": ("solid", "", ""),
    "model": ("dash", "-open", ", model"),
    "paper": ("dot", "-open", ", paper"),
}
"""Style of each kind of row: line, suffix of its mark, and the legend's addition."""
_EXPLAINED = {"measured": "measured", "model": "calculated", "paper": "the paper's"}
"""Text of a legend for each kind of row."""
_MARKS = ("circle", "square", "triangle-up", "pentagon", "triangle-down", "hexagon", "star")
"""Marks of groups, so that colour is never alone; the diamond is the paper's."""
_MOST_TICKS = 12
_NEAREST_TICKS = 1.12
"""Ratio of neighbours on a logarithmic axis below which their labels would touch."""
_SPELLED = {"bleu": "BLEU", "chrf": "chrF"}


def esc(text: object) -> str:
    """`text` for plotly, which reads tags, dollar signs and ``%{...}`` as markup."""
    escaped = html.escape(visible(str(text)), quote=False)
    return escaped.replace("$", "&#36;").replace("%{", "&#37;{")


def _shown(value: Any) -> Any:
    return esc(value) if isinstance(value, str) else value


def speed_accuracy(frame: Any, theme: str = "auto") -> go.Figure:
    """Speedup of each decoder with its interval, and what it costs in agreement.

    Parameters
    ----------
    frame : pandas.DataFrame
        A comparison: ``name, agreement, calls, positions, speedup, speedup_low, speedup_high, seconds, bleu, chrf``;
        quality may be missing or NaN. The baseline is the row named ``greedy`` if there is one.
    theme : str
        One of `ddgviz.theme.THEMES`, or ``auto``, which has no background and is legible on a light one and a dark one.

    Returns
    -------
    plotly.graph_objects.Figure
        One line for each row: a filled disc if every output equals greedy's, else an open diamond; a bar marks the speedup
        that fewer passes alone would give.

    Raises
    ------
    ValueError
        If a column is missing or the table is empty.
    """
    colors = _theme(theme)
    rows = _rows(frame)
    names = [esc(row["name"]) for row in rows]
    figure = go.Figure()
    _passes(figure, rows, names, colors)
    exact = [row["agreement"] is not None and row["agreement"] >= 1 for row in rows]
    for lossless, label, symbol in (
        (True, "same output as greedy", "circle"),
        (False, "output may differ", "diamond-open"),
    ):
        indices = [index for index, value in enumerate(exact) if value is lossless]
        if indices:
            _marks(figure, [rows[i] for i in indices], [names[i] for i in indices], label, symbol, colors)
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
    from_zero: bool = True,
    x_title: str | None = None,
    y_title: str | None = None,
    note: str = "",
    theme: str = "auto",
) -> go.Figure:
    """One curve for each group of rows, over a number or over names in the table's order.

    Rows whose column ``kind`` is *measured*, or that have none, are solid lines with filled marks; *model* is dashed and
    *paper* dotted, both with open marks. A group has one colour in all kinds.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns ``{y}_low`` and ``{y}_high``, if any, are drawn as error bars. Rows of kind *paper* may have their height in
        ``paper_{y}``.
    x, y, group : str
        Columns.
    reference : float, optional
        Height of a horizontal line.
    log_x : bool
        Whether x is drawn on a logarithmic scale.
    from_zero : bool
        Whether the axis of heights begins at zero instead of at the least value.
    x_title, y_title : str, optional
        The columns' names otherwise.
    note : str
        Small print below the chart, as where and when it was measured.
    theme : str
        As in `speed_accuracy`.

    Raises
    ------
    ValueError
        If a column is missing, or no row has a value.
    """
    colors = _theme(theme)
    rows = _points(frame, x, y, group, "A chart of curves", numbers=(y,))
    has_names = any(isinstance(row[x], str) for row in rows)
    order = list(dict.fromkeys(row[x] for row in rows)) if has_names else sorted({row[x] for row in rows})
    groups = list(dict.fromkeys(row[group] for row in rows))
    names = [_shown(value) for value in order] if has_names else None
    figure = go.Figure()
    for kind, (number, name) in product(_KINDS, enumerate(groups)):
        rows_of_curve = [row for row in rows if row[group] == name and row["kind"] == kind]
        if rows_of_curve:
            rows_of_curve.sort(key=lambda row: order.index(row[x]))
            figure.add_trace(_curve(rows_of_curve, x, y, group, number, colors))
    if reference is not None:
        figure.add_hline(y=reference, line={"color": colors.muted, "width": 1, "dash": "dot"})
    _style_curves(figure, colors, _title(x, x_title), _title(y, y_title))
    if log_x:
        _log_axis(figure, order, x)
    elif has_names:
        figure.update_xaxes(type="category", categoryorder="array", categoryarray=names)
    else:
        figure.update_xaxes(**_whole_steps(row[x] for row in rows))
    figure.update_yaxes(rangemode="tozero" if from_zero else "normal", **_whole_steps(row[y] for row in rows))
    if len(figure.data) > LEGEND:
        heights = [row[key] for row in rows for key in (y, f"{y}_low", f"{y}_high") if row.get(key) is not None]
        _name_ends(figure, names, log_x, (0.0 if from_zero else min(heights), max(heights)), colors)
    if note:
        title = f"{figure.layout.xaxis.title.text}<br><span style='font-size:10px'>{esc(note)}</span>"
        figure.update_xaxes(title_text=title).update_layout(height=figure.layout.height + 14)
    return figure


LEGEND = 6
"""Curves that a legend explains, at most; of more curves the names are written at their ends."""
_APART = 15.0
_MARGIN_FROM = 0.1
"""Share of the axis, counted from its right, in which a curve must end for its name to stand in the margin."""


def _name_ends(
    figure: go.Figure, names: list[Any] | None, log_x: bool, heights: tuple[float, float], colors: Theme
) -> None:
    """Write each curve's name at its end, in its colour, in place of a legend; a group of several kinds is named once.

    Names of curves that end near the right are in the margin, others in the plot; a thin line joins each to its curve. `names`
    are the names on the axis, if any, and `heights` the least and the greatest value.
    """

    def across(value: Any) -> float:
        return float(names.index(value) if names else math.log10(value) if log_x else value)

    ends: dict[int, dict[str, Any]] = {}
    lines = []
    for trace in figure.data:
        lines.append([(across(value), float(height)) for value, height in zip(trace.x, trace.y, strict=True)])
        x, y = lines[-1][-1]
        ends.setdefault(trace.meta["group"], {"x": x, "y": y, "name": trace.name, "color": trace.line.color})
    left, right = (side(x for line in lines for x, _ in line) for side in (min, max))
    margin_from = right - _MARGIN_FROM * (right - left)
    outer = sorted((end for end in ends.values() if end["x"] >= margin_from), key=lambda end: end["y"])
    inner = [end for end in ends.values() if end["x"] < margin_from]
    tall, pad = heights[1] - heights[0] or 1, 0.04 * (right - left or 1)
    low = heights[0] and heights[0] - 0.04 * tall
    sides = [[left - pad, right + pad], [low, heights[1] + (0.15 if inner else 0.06) * tall]]
    room = max(labels.HIGH, _APART * len(outer))
    scale = (sides[1][1] - sides[1][0]) / room
    levels = [(end["y"] - low) / scale for end in outer]
    for end, level, moved in zip(outer, levels, labels.apart(levels, _APART, room), strict=True):
        _name(figure, end, sides[0][1], moved - level, xanchor="left", axref="x")
        lines.append([(end["x"], end["y"]), (sides[0][1], low + moved * scale)])
    for end, place in zip(inner, labels.place(inner, "x", "y", "name", sides, lines), strict=True):
        _name(figure, end, place["xshift"], place["yshift"], xanchor="center")
    figure.update_traces(showlegend=False)
    kinds = [kind for kind in _KINDS if any(trace.meta["kind"] == kind for trace in figure.data)]
    if several := len(kinds) > 1:
        for kind in kinds:
            look = _look(kind, 0, colors.muted)
            figure.add_scatter(x=[None], y=[None], **look, name=_EXPLAINED[kind], showlegend=True)
    top, margin = (
        48 if several else 36,
        40 + max((width(visible(end["name"]), labels.SIZE) for end in outer), default=0),
    )
    figure.update_xaxes(range=sides[0])
    figure.update_yaxes(range=sides[1])
    figure.update_layout(
        showlegend=several, margin={"r": margin, "t": top}, height=round(room) + top + figure.layout.margin.b
    )


def _name(figure: go.Figure, end: dict[str, Any], across: float, up: float, **place: str) -> None:
    """Write a name so many pixels from the end of its curve, or above it at a place of the axis, and a thin line between them."""
    leads = {"arrowhead": 0, "arrowwidth": 0.8, "arrowcolor": end["color"], "ax": across, "ay": -up}
    font = {"color": end["color"], "size": labels.SIZE}
    figure.add_annotation(x=end["x"], y=end["y"], text=end["name"], font=font, standoff=5, **leads, **place)


def _look(kind: str, number: int, color: str) -> dict[str, Any]:
    """Line and mark of a kind of row in the group of this number."""
    dash, opened, _ = _KINDS[kind]
    if kind == "measured" and number >= len(LIGHT.series):
        dash = "longdash"
    return {
        "mode": "lines+markers",
        "line": {"color": color, "width": 2 if kind == "measured" else 1.4, "dash": dash},
        "marker": {
            "symbol": ("diamond" if kind == "paper" else _MARKS[number % len(_MARKS)]) + opened,
            "size": 7 if kind == "measured" else 8,
            "color": color,
        },
    }


def _curve(rows: list[dict[str, Any]], x: str, y: str, group: str, number: int, colors: Theme) -> go.Scatter:
    kind = rows[0]["kind"]
    color = colors.series[number % len(colors.series)]
    name = esc(rows[0][group])
    name += "" if name.startswith((f"{kind},", f"{kind}:")) else _KINDS[kind][2]
    return go.Scatter(
        **_look(kind, number, color),
        x=[_shown(row[x]) for row in rows],
        y=[row[y] for row in rows],
        name=name,
        meta={"kind": kind, "group": number},
        error_y=_bars(rows, y, color),
        customdata=[[_hover(row, name, x, y, group)] for row in rows],
        hovertemplate="%{customdata[0]}<extra></extra>",
    )


NAMED = 24
"""Systems of a frontier up to which all have their names beside them."""


def frontier(
    frame: Any,
    x: str = "speedup",
    y: str = "bleu",
    name: str = "name",
    *,
    x_title: str | None = None,
    y_title: str | None = None,
    theme: str = "auto",
) -> go.Figure:
    """Systems by speed and accuracy, and the front of those that no other beats in both.

    Names are written beside the points. Of more than `NAMED` systems, only those of the front and the paper have names and error
    bars; the others show theirs under the mouse.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row for each system; more is better in both columns. ``{x}_low``, ``{x}_high``, ``{y}_low`` and ``{y}_high``
        are drawn as error bars, if there are such columns. Rows of kind *paper*, whose values may be in ``paper_{x}`` and
        ``paper_{y}``, and of kind *model* are drawn with open marks and do not count for the front.
    x, y, name : str
        Columns.
    x_title, y_title : str, optional
        The columns' names otherwise.
    theme : str
        As in `speed_accuracy`.

    Raises
    ------
    ValueError
        If a column is missing, or no row has both values.
    """
    colors = _theme(theme)
    rows = _points(frame, x, y, name, "A frontier", numbers=(x, y))
    front = _pareto([row for row in rows if row["kind"] == "measured"], x, y)
    sides = [_range(rows, key) for key in (x, y)]
    figure = go.Figure()
    edge = _edge(front, x, y, sides) if front else []
    if edge:
        xs, ys = zip(*edge, strict=True)
        line = {"color": colors.settled, "width": 1.4}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=line, opacity=0.6, hoverinfo="skip", showlegend=False)
    front_ids = [id(row) for row in front]
    behind = [row for row in rows if row["kind"] == "measured" and id(row) not in front_ids]
    for label, group, symbol, size, color in (
        ("on the front", front, "circle", 12, colors.settled),
        ("behind the front", behind, "circle", 7, colors.muted),
        ("calculated", [row for row in rows if row["kind"] == "model"], "circle-open", 9, colors.muted),
        ("the paper's", [row for row in rows if row["kind"] == "paper"], "diamond-open", 11, colors.accent),
    ):
        if group:
            mark = {"symbol": symbol, "size": size, "color": color}
            figure.add_trace(_systems(group, x, y, name, label, mark, bars=group is not behind or len(rows) <= NAMED))
    _style_curves(figure, colors, _title(x, x_title), _title(y, y_title))
    figure.update_layout(height=460)
    figure.update_xaxes(range=sides[0], showgrid=True, gridcolor=colors.line)
    figure.update_yaxes(range=sides[1], rangemode="normal")
    labelled = [row for row in rows if len(rows) <= NAMED or id(row) in front_ids or row["kind"] == "paper"]
    for row, place in zip(labelled, labels.place(labelled, x, y, name, sides, [edge]), strict=True):
        strong = id(row) in front_ids or row["kind"] == "paper"
        figure.add_annotation(
            **place, text=esc(row[name]), font={"size": labels.SIZE, "color": colors.ink if strong else colors.muted}
        )
    return figure


def _systems(
    rows: list[dict[str, Any]], x: str, y: str, name: str, label: str, mark: dict[str, Any], bars: bool
) -> go.Scatter:
    return go.Scatter(
        x=[row[x] for row in rows],
        y=[row[y] for row in rows],
        mode="markers",
        name=label,
        marker=mark | {"line": {"width": 2 if "open" in mark["symbol"] else 0}},
        error_x=_bars(rows, x, mark["color"]) if bars else None,
        error_y=_bars(rows, y, mark["color"]) if bars else None,
        customdata=[[_hover(row, esc(row[name]) + _KINDS[row["kind"]][2], x, y, name)] for row in rows],
        hovertemplate="%{customdata[0]}<extra></extra>",
    )


def _pareto(rows: list[dict[str, Any]], x: str, y: str) -> list[dict[str, Any]]:
    """The Pareto front of the rows, sorted by `x`."""
    front: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (-row[x], -row[y])):
        if not front or row[y] > front[-1][y] or (row[x], row[y]) == (front[-1][x], front[-1][y]):
            front.append(row)
    return front[::-1]


def _edge(front: list[dict[str, Any]], x: str, y: str, sides: list[list[float]]) -> list[tuple[float, float]]:
    """The steps along the front, from the left of the picture to its foot."""
    edge, x_before = [], sides[0][0]
    for row in front:
        edge += [(x_before, row[y]), (row[x], row[y])]
        x_before = row[x]
    return [*edge, (x_before, sides[1][0])]


def _range(rows: list[dict[str, Any]], key: str) -> list[float]:
    """The least and the greatest value, intervals included, with a margin at both ends, not below 0 if no value is."""
    values = [row.get(f"{key}{end}") for row in rows for end in ("", "_low", "_high")]
    numbers = [value for value in values if value is not None]
    room = 0.1 * (max(numbers) - min(numbers)) or 0.1 * abs(numbers[0]) or 1.0
    least = min(numbers)
    return [max(0.0, least - room) if least >= 0 else least - room, max(numbers) + room]


def _points(frame: Any, x: str, y: str, name: str, chart: str, numbers: Sequence[str]) -> list[dict[str, Any]]:
    """The rows that have both values, each with its kind."""
    rows = _records(frame, (x, y, name), f"{chart} needs", "Name columns of the table.")
    for row in rows:
        row["kind"] = row.get("kind") or "measured"
        if row["kind"] not in _KINDS:
            kinds = ", ".join(_KINDS)
            raise fail(f"{chart} knows rows of kind {kinds}", row["kind"], "Rename the kind, or leave it out.")
        for key in (x, y):
            if row["kind"] == "paper" and row[key] is None:
                row[key] = row.get(f"paper_{key}")
            if key in numbers and row[key] is not None and not isinstance(row[key], (int, float)):
                raise fail(f"{chart} needs numbers in the column {key!r}", row[key], "Name another column.")
    rows = [row for row in rows if row[x] is not None and row[y] is not None]
    if not rows:
        raise fail(f"{chart} needs a row with a value", "none", f"Pass a table with numbers in {x!r} and {y!r}.")
    return rows


def _records(frame: Any, needed: Sequence[str], wrong: str, remedy: str) -> list[dict[str, Any]]:
    """The table's rows, with None for what is missing or not finite."""
    columns = list(getattr(frame, "columns", []))
    if missing := [name for name in needed if name not in columns]:
        raise fail(f"{wrong} the column {missing[0]!r}", columns, remedy)
    cleaned = frame.astype(object).where(frame.notna(), None)
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in cleaned.to_dict("records")
    ]


def _hover(row: dict[str, Any], name: str, x: str, y: str, group: str) -> str:
    """All values of a point's row: both values with their intervals, then its settings."""
    ends = {f"{key}_{end}" for key in (x, y) for end in ("low", "high")}
    shown = {x, y, group, "kind", f"paper_{x}", f"paper_{y}"} | ends
    lines = [f"<b>{name}</b>"]
    for key in (x, y):
        low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
        interval = f" ({_written(low)}–{_written(high)})" if low is not None and high is not None else ""
        lines.append(f"{_title(key)}: {_written(row[key])}{interval}")
    lines += [f"{_title(key)}: {_written(row[key])}" for key in row if key not in shown and row[key] is not None]
    return "<br>".join(lines)


def _written(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else esc(value)


def _title(column: str, title: str | None = None) -> str:
    return esc(title or _SPELLED.get(column, str(column).replace("_", " ")))


def _bars(rows: list[dict[str, Any]], key: str, color: str) -> dict[str, Any] | None:
    if all(row.get(f"{key}_low") is None for row in rows):
        return None
    above = [_difference(row.get(f"{key}_high"), row[key]) for row in rows]
    below = [_difference(row[key], row.get(f"{key}_low")) for row in rows]
    return {"type": "data", "array": above, "arrayminus": below, "color": color, "thickness": 1.2, "width": 3}


def _log_axis(figure: go.Figure, values: list[Any], x: str) -> None:
    """A logarithmic axis with a tick at each value of the table, or at 1, 2 and 5 if those are too many to read."""
    if wrong := [value for value in values if isinstance(value, str) or value <= 0]:
        raise fail(f"A logarithmic axis needs numbers above 0 in {x!r}", wrong[0], "Leave log_x out.")
    if len(values) > _MOST_TICKS or any(b / a < _NEAREST_TICKS for a, b in pairwise(values)):
        values = _round_ticks(values[0], values[-1])
    figure.update_xaxes(type="log", tickvals=values, ticktext=[f"{value:,.10g}" for value in values])


def _round_ticks(low: float, high: float) -> list[float]:
    """Ticks from `low` to `high` for a logarithmic axis: 1, 2 and 5 of every power of ten, or fewer."""
    tens = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1,)):
        ticks = [value for ten in tens for digit in digits if low <= (value := float(f"{digit}e{ten}")) <= high]
        if 2 <= len(ticks) <= _MOST_TICKS:
            return ticks
    return ticks[:: -(-len(ticks) // _MOST_TICKS)] if len(ticks) > 1 else [low, high]


def _whole_steps(values: Iterable[float]) -> dict[str, Any]:
    """Settings for ticks at whole numbers, if all values are whole and few enough for a tick at each."""
    numbers = list(values)
    integers = all(float(value).is_integer() for value in numbers)
    return {"dtick": 1} if integers and max(numbers) - min(numbers) <= _MOST_TICKS else {}


def save_chart(figure: go.Figure, stem: str | Path) -> list[Path]:
    """Write a chart as standalone HTML, SVG, PDF and PNG, named after `stem`; all but HTML need Chromium.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    ValueError
        If no Chromium is found; the HTML is written before.
    """
    stem = Path(stem)
    page = stem.with_name(f"{stem.name}.html")
    write(page, figure.to_html(include_plotlyjs=True, full_html=True).encode())
    find_browser()
    pictures = [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "pdf", "png")]
    for picture in pictures:
        write(picture, figure.to_image(format=picture.suffix[1:], width=860, scale=2))
    return [page, *pictures]


def _theme(name: str) -> Theme:
    return EITHER if name == "auto" else theme_named(name)


def _rows(frame: Any) -> list[dict[str, Any]]:
    rows = _records(frame, _NEEDED, "A comparison needs", _REMEDY)
    if not rows:
        raise fail("A chart needs a decoder to show", "an empty table", _REMEDY)
    return rows


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
    figure: go.Figure, rows: list[dict[str, Any]], names: list[str], label: str, symbol: str, colors: Theme
) -> None:
    color = colors.settled if symbol == "circle" else colors.accent
    above = [_difference(row["speedup_high"], row["speedup"]) for row in rows]
    below = [_difference(row["speedup"], row["speedup_low"]) for row in rows]
    figure.add_scatter(
        x=[row["speedup"] for row in rows],
        y=names,
        mode="markers",
        name=label,
        marker={"symbol": symbol, "size": 12, "color": color, "line": {"width": 2, "color": color}},
        error_x={"type": "data", "array": above, "arrayminus": below, "color": color, "thickness": 1.6, "width": 5},
        customdata=[[_quality(row)] for row in rows],
        hovertemplate="%{y}<br>%{x:.2f}x<br>%{customdata[0]}<extra></extra>",
    )


def _difference(high: float | None, low: float | None) -> float:
    return 0.0 if high is None or low is None else max(0.0, high - low)


def _quality(row: dict[str, Any]) -> str:
    parts = [f"{row['agreement']:.1%} of outputs as greedy's"] if row["agreement"] is not None else []
    for key, name in _SPELLED.items():
        if row.get(key) is not None:
            parts.append(f"{name} {row[key]:.1f}")
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
    figure.update_xaxes(**_axis(colors, x_title), automargin=True, showgrid=False)
    figure.update_yaxes(**_axis(colors, y_title), automargin=True, gridcolor=colors.line)


def _layout(colors: Theme) -> dict[str, Any]:
    return {
        "template": "none",
        "font": {"family": FONT, "size": 12, "color": colors.ink},
        "paper_bgcolor": colors.paper,
        "plot_bgcolor": colors.paper,
        "margin": {"l": 20, "r": 30, "t": 48, "b": 52},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"color": colors.muted}},
        "modebar": {"bgcolor": "rgba(0, 0, 0, 0)", "color": colors.muted, "activecolor": colors.ink},
        "hoverlabel": {"bgcolor": LIGHT.ink, "font": {"color": LIGHT.paper, "family": FONT}, "align": "left"},
    }


def _axis(colors: Theme, title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"color": colors.muted, "size": 12}, "standoff": 14},
        "showline": False,
        "zeroline": False,
        "tickfont": {"color": colors.muted},
    }
