"""Charts from comparison tables."""

import html
import itertools
import math
from typing import Any

import pandas as pd
import pytest
from hostile import TOKENS

import ddgviz
from ddgviz import figures, labels
from ddgviz.figures import esc
from ddgviz.text import width
from ddgviz.theme import EITHER, THEMES


def frame(**changes: Any) -> pd.DataFrame:
    """A comparison of three decoders."""
    columns: dict[str, Any] = {
        "name": ["greedy", "gauss_seidel:block=3", "exact+<s>clustered:top=$1$"],
        "agreement": [1.0, 1.0, 0.83],
        "calls": [1000, 700, 1000],
        "positions": [1000, 2100, 1000],
        "speedup": [1.0, 1.31, 1.9],
        "speedup_low": [0.98, 1.22, 1.7],
        "speedup_high": [1.02, 1.4, 2.05],
        "seconds": [9.0, 6.9, 4.7],
        "bleu": [31.2, 31.2, float("nan")],
    }
    return pd.DataFrame(columns | changes)


def test_lossless_decoders_differ_by_shape() -> None:
    figure = ddgviz.speed_accuracy(frame())
    marks = {trace.name: trace for trace in figure.data}
    assert marks["same output as greedy"].marker.symbol == "circle"
    assert list(marks["same output as greedy"].x) == [1.0, 1.31]
    assert marks["output may differ"].marker.symbol == "diamond-open"
    assert list(marks["output may differ"].error_x.array) == pytest.approx([0.15])
    assert list(marks["if only passes counted"].x) == pytest.approx([1, 1 / 0.7, 1])


def test_names_are_text() -> None:
    figure = ddgviz.speed_accuracy(frame())
    assert "exact+&lt;s&gt;clustered:top=&#36;1&#36;" in figure.layout.yaxis.categoryarray


@pytest.mark.parametrize("token", TOKENS)
def test_nothing_hostile_is_left(token: str) -> None:
    assert not any(mark in esc(token) for mark in ("<", "$", "%{", "\u202e", "\x00"))


def test_quality_is_said_where_known() -> None:
    figure = ddgviz.speed_accuracy(frame(), theme="dark")
    said = {trace.name: [row[0] for row in trace.customdata] for trace in figure.data if trace.customdata is not None}
    assert said["same output as greedy"][0] == "100.0% of outputs as greedy's · BLEU 31.2"
    assert said["output may differ"] == ["83.0% of outputs as greedy's"]


def test_without_greedy_no_pass_ratio_is_claimed() -> None:
    names = ["hf", "a", "b"]
    figure = ddgviz.speed_accuracy(frame(name=names, calls=[None, 3, 4]))
    assert "if only passes counted" not in [trace.name for trace in figure.data]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (frame().drop(columns="speedup"), r"needs the column 'speedup', got .*\. Pass the table"),
        (frame().iloc[:0], r"needs a decoder to show, got 'an empty table'\. Pass the table"),
        ([1], r"needs the column 'name', got \[\]\. Pass the table"),
    ],
)
def test_bad_tables(table: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ddgviz.speed_accuracy(table)


# ------------------------------------------------------------------------------------------------------------- curves


def curve_table(**changes: Any) -> pd.DataFrame:
    """Two decoders over cores: measured, calculated, and one value of a paper."""
    nothing = float("nan")
    columns: dict[str, Any] = {
        "name": ["a<b>", "a<b>", "c", "a<b>", "a<b>", "c"],
        "cores": [2, 1, 1, 1, 8, 8],
        "kind": ["measured", "measured", "measured", "model", "model", "paper"],
        "speedup": [1.2, 1.0, 0.9, 1.0, 1.6, nothing],
        "speedup_low": [1.1, 1.0, nothing, nothing, nothing, nothing],
        "speedup_high": [1.5, 1.0, nothing, nothing, nothing, nothing],
        "paper_speedup": [nothing, nothing, nothing, nothing, nothing, 1.98],
    }
    return pd.DataFrame(columns | changes)


def test_a_group_has_one_colour_and_each_kind_its_own_line() -> None:
    figure = ddgviz.curves(curve_table(), "cores", "speedup", reference=1.0)
    lines = {trace.name: trace for trace in figure.data}
    assert list(lines) == ["a&lt;b&gt;", "c", "a&lt;b&gt;, model", "c, paper"]
    measured, modelled, quoted = lines["a&lt;b&gt;"], lines["a&lt;b&gt;, model"], lines["c, paper"]
    assert (measured.line.dash, modelled.line.dash, quoted.line.dash) == ("solid", "dash", "dot")
    assert (measured.marker.symbol, modelled.marker.symbol, quoted.marker.symbol) == (
        "circle", "circle-open", "diamond-open",
    )  # fmt: skip
    assert measured.line.color == modelled.line.color != quoted.line.color == lines["c"].line.color
    assert list(measured.x) == [1, 2] and list(measured.y) == [1.0, 1.2], "sorted"
    assert list(measured.error_y.array) == pytest.approx([0, 0.3])
    assert list(measured.error_y.arrayminus) == pytest.approx([0, 0.1])
    assert lines["c"].error_y.array is None and list(quoted.y) == [1.98]
    assert figure.layout.shapes[0].y0 == 1.0


def test_curves_without_kinds_or_reference() -> None:
    table = curve_table().drop(columns=["kind", "speedup_low", "speedup_high"])
    figure = ddgviz.curves(table, "cores", "speedup", log_x=True, y_title="<b>times</b>", theme="dark")
    assert [trace.name for trace in figure.data] == ["a&lt;b&gt;", "c"] and not figure.layout.shapes
    assert figure.layout.xaxis.type == "log" and list(figure.layout.xaxis.ticktext) == ["1", "2", "8"]
    assert figure.layout.yaxis.title.text == "&lt;b&gt;times&lt;/b&gt;" and figure.layout.xaxis.title.text == "cores"


def test_a_note_stands_below_the_axis_as_text() -> None:
    table = pd.DataFrame({"name": ["a", "a"], "n": [1, 2], "y": [0.5, 0.7]})
    plain, noted = ddgviz.curves(table, "n", "y"), ddgviz.curves(table, "n", "y", note="one <b>core</b>")
    before, after = plain.layout.xaxis.title.text, noted.layout.xaxis.title.text
    assert after.startswith(f"{before}<br>") and "one &lt;b&gt;core" in after
    assert noted.layout.height > plain.layout.height


def test_many_curves_stay_apart() -> None:
    names = [f"draft {number}" for number in range(14)]
    figure = ddgviz.curves(pd.DataFrame({"name": names, "x": 1, "y": 2.0}), "x", "y")
    assert len({(trace.line.color, trace.line.dash) for trace in figure.data}) == 14


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (curve_table().drop(columns="cores"), r"needs the column 'cores', got .*\. Name columns"),
        (curve_table().iloc[:0], r"needs a row with a value, got 'none'\. Pass a table with numbers in 'cores'"),
        (curve_table(speedup=float("nan"), paper_speedup=float("nan")), r"needs a row with a value"),
        ([1], r"needs the column 'cores', got \[\]"),
    ],
)
def test_bad_curves(table: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ddgviz.curves(table, "cores", "speedup")


def test_a_theme_must_be_known() -> None:
    with pytest.raises(ValueError, match="colorblind-dark, got .blue"):
        ddgviz.curves(curve_table(), "cores", "speedup", theme="blue")


def test_curves_refuse_kinds_they_do_not_know():
    with pytest.raises(ValueError, match="A chart of curves knows rows of kind measured, model, paper, got .guessed"):
        ddgviz.curves(pd.DataFrame({"name": ["a"], "x": [1], "y": [2], "kind": ["guessed"]}), "x", "y")


NOTHING = float("nan")


def settings_table(x: str, values: list[int], y: str) -> pd.DataFrame:
    """Two decoders over a setting, with all that was set beside it."""
    rows = [
        {"name": name, x: value, y: 10 + value, "draft": "a<b>", "price": "$1$", "note": "%{x}", "empty": None}
        for name in ("jacobi", "window")
        for value in values
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("x", "values", "y", "log_x"),
    [
        ("block", [5, 1, 3], "calls", False),
        ("threads", [1, 2, 4], "speedup", True),
        ("batch", [8, 1, 32], "speedup", True),
        ("clusters", [50, 400, 100], "speedup", True),
    ],
)
def test_the_four_uses_of_curves(x: str, values: list[int], y: str, log_x: bool) -> None:
    figure = ddgviz.curves(settings_table(x, values, y), x, y, log_x=log_x)
    assert [list(trace.x) for trace in figure.data] == [sorted(values)] * 2
    axis = figure.layout.xaxis
    if log_x:
        assert axis.type == "log" and list(axis.tickvals) == sorted(values)
        assert list(axis.ticktext) == [str(value) for value in sorted(values)]
    else:
        assert axis.dtick == 1, "no tick between two blocks"
    hover = figure.data[0].customdata[0][0]
    expected = ["<b>jacobi</b>", f"{x}: {min(values)}", f"{y}: {10 + min(values)}"]
    assert hover.split("<br>") == [*expected, "draft: a&lt;b&gt;", "price: &#36;1&#36;", "note: &#37;{x}"]
    assert figure.data[0].hovertemplate == "%{customdata[0]}<extra></extra>"


def test_counts_have_whole_ticks_and_shares_have_not() -> None:
    table = pd.DataFrame({"name": "a", "width": [1, 2, 40], "calls": [3, 4, 6], "share": [0.1, 0.2, 0.3]})
    assert ddgviz.curves(table, "width", "calls").layout.yaxis.dtick == 1
    assert ddgviz.curves(table, "width", "share").layout.yaxis.dtick is None
    assert ddgviz.curves(table, "width", "calls").layout.xaxis.dtick is None, "too many for one at each"


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.5 * 1.06**i for i in range(60)], [0.5, 1, 2, 5, 10]),
        ([110 + 6 * i for i in range(14)], [110, 188]),
        ([2.0**i for i in range(20)], [1, 10, 100, 1_000, 10_000, 100_000]),
    ],
)
def test_a_logarithmic_axis_of_many_values_has_round_ticks(values: list[float], ticks: list[float]) -> None:
    axis = ddgviz.curves(settings_table("x", values, "y"), "x", "y", log_x=True).layout.xaxis
    assert list(axis.tickvals) == ticks


def test_heights_begin_at_zero_unless_asked_not_to() -> None:
    table = settings_table("block", [1, 2], "calls")
    assert ddgviz.curves(table, "block", "calls").layout.yaxis.rangemode == "tozero"
    assert ddgviz.curves(table, "block", "calls", from_zero=False).layout.yaxis.rangemode == "normal"


def test_groups_differ_in_more_than_colour() -> None:
    figure = ddgviz.curves(settings_table("block", [1, 2], "calls"), "block", "calls", theme="print")
    assert len({trace.marker.symbol for trace in figure.data}) == 2


@pytest.mark.parametrize("theme", ["auto", *THEMES])
@pytest.mark.parametrize("draw", ["speed_accuracy", "curves", "frontier"])
def test_every_chart_in_every_theme(draw: str, theme: str) -> None:
    arguments = {"curves": ("calls", "speedup")}.get(draw, ())
    figure = getattr(figures, draw)(frame(), *arguments, theme=theme)
    colors = EITHER if theme == "auto" else THEMES[theme]
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == colors.paper
    assert figure.layout.font.color == colors.ink


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"cores": [0, 1, 1, 1, 8, 8]}, {"log_x": True}, r"numbers above 0 in 'cores', got 0\. Leave log_x out"),
        ({"cores": ["two"] * 6}, {"log_x": True}, r"numbers above 0 in 'cores', got 'two'\. Leave log_x out"),
        ({"speedup": ["two"] * 6}, {}, r"needs numbers in the column 'speedup', got 'two'\. Name another"),
    ],
)
def test_axes_that_cannot_be(changes: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ddgviz.curves(curve_table(**changes), "cores", "speedup", **options)


def test_names_stand_in_the_tables_order() -> None:
    table = pd.DataFrame({"name": "a", "distance": ["1", "5-8", "<9+>"], "share": [0.3, 0.2, 0.1]})
    figure = ddgviz.curves(table, "distance", "share")
    assert figure.layout.xaxis.type == "category"
    assert list(figure.data[0].x) == list(figure.layout.xaxis.categoryarray) == ["1", "5-8", "&lt;9+&gt;"]


def test_missing_integers_are_missing_rows() -> None:
    table = pd.DataFrame({"name": ["a", "a"], "x": pd.array([1, None], dtype="Int64"), "y": [1.0, 2.0]})
    assert list(ddgviz.curves(table, "x", "y").data[0].x) == [1]


# ----------------------------------------------------------------------------------------------------------- frontier


def systems() -> pd.DataFrame:
    """Ten systems, some crowded, one of the paper."""
    names = ["greedy", "jacobi", "block=3", "hybrid", "window:width=5,draft=auto", "beam:size=5", "<s>$1$", "screened"]
    return pd.DataFrame(
        {
            "name": [*names, "window:width=8", "Table 3, %{x}"],
            "kind": ["measured"] * 9 + ["paper"],
            "speedup": [1.0, 0.62, 1.12, 1.05, 1.71, 0.41, 1.31, 1.9, 1.78, NOTHING],
            "paper_speedup": [NOTHING] * 9 + [1.66],
            "speedup_low": [0.98, 0.6, 1.08, 1.0, 1.6, 0.38, 1.22, 1.75, 1.7, NOTHING],
            "speedup_high": [1.02, 0.65, 1.15, 1.1, 1.8, 0.44, 1.4, 2.05, 1.9, NOTHING],
            "bleu": [31.2, 31.2, 31.2, 31.2, 31.2, 32.0, 31.0, 29.4, 31.1, 30.4],
            "threads": 1,
            "device": "cpu $5",
        }
    )


def test_the_front_is_what_no_other_beats() -> None:
    figure = figures.frontier(systems())
    marks = {trace.name: trace for trace in figure.data if trace.name}
    assert list(marks["on the front"].x) == [0.41, 1.71, 1.78, 1.9]
    assert list(marks["behind the front"].x) == [1.0, 0.62, 1.12, 1.05, 1.31]
    assert marks["behind the front"].marker.size < marks["on the front"].marker.size
    assert list(marks["the paper's"].x) == [1.66] and marks["the paper's"].marker.symbol == "diamond-open"
    assert list(marks["on the front"].error_x.array) == pytest.approx([0.03, 0.09, 0.12, 0.15])
    assert marks["on the front"].error_y.array is None
    (edge,) = (trace for trace in figure.data if trace.mode == "lines")
    assert list(zip(edge.x, edge.y, strict=True))[1:4] == [(0.41, 32.0), (0.41, 31.2), (1.71, 31.2)]


def test_of_many_systems_the_front_alone_is_named() -> None:
    many = pd.concat(
        [systems().assign(name=lambda t, i=i: t["name"] + f" {i}", bleu=lambda t, i=i: t["bleu"] - i) for i in range(3)]
    )
    figure = figures.frontier(many)
    named = [annotation.text for annotation in figure.layout.annotations]
    front = {"beam:size=5 0", "window:width=5,draft=auto 0", "window:width=8 0", "screened 0"}
    assert set(named) == front | {f"Table 3, &#37;{{x}} {i}" for i in range(3)}
    marks = {trace.name: trace for trace in figure.data if trace.name}
    assert marks["behind the front"].error_x.array is None and marks["on the front"].error_x.array is not None
    assert len(marks["behind the front"].customdata) == 23 and "jacobi 2" in str(marks["behind the front"].customdata)


def dominated(rows: list[dict[str, Any]], row: dict[str, Any]) -> bool:
    return any(
        other["x"] >= row["x"] and other["y"] >= row["y"] and (other["x"], other["y"]) != (row["x"], row["y"])
        for other in rows
    )


def test_pareto_agrees_with_its_definition() -> None:
    import random

    for seed in range(50):
        draw = random.Random(seed)
        rows = [{"x": draw.randrange(6), "y": draw.randrange(6)} for _ in range(draw.randrange(1, 12))]
        front = figures._pareto(rows, "x", "y")
        assert [id(row) for row in sorted(front, key=id)] == sorted(id(row) for row in rows if not dominated(rows, row))
        assert [row["x"] for row in front] == sorted(row["x"] for row in front)


def test_hover_says_all_that_was_set() -> None:
    figure = figures.frontier(systems())
    said = {row[0].split("<br>")[0]: row[0] for trace in figure.data for row in trace.customdata or ()}
    assert said["<b>&lt;s&gt;&#36;1&#36;</b>"].split("<br>")[1:] == [
        "speedup: 1.31 (1.22–1.4)", "BLEU: 31", "threads: 1", "device: cpu &#36;5",
    ]  # fmt: skip
    assert "<b>Table 3, &#37;{x}, paper</b>" in said


def label_boxes(figure: Any) -> list[labels.Box]:
    """Where the names stand, in pixels of the narrowest plot."""
    boxes = []
    for note in figure.layout.annotations:
        across = labels._pixel(note.x, figure.layout.xaxis.range, labels.WIDE) + note.xshift
        up = labels._pixel(note.y, figure.layout.yaxis.range, labels.HIGH) + note.yshift
        boxes.append(labels._box(across, up, width(html.unescape(note.text), labels.SIZE)))
    return boxes


def test_no_name_covers_another_or_leaves_the_plot() -> None:
    boxes = label_boxes(figures.frontier(systems()))
    assert len(boxes) == 10
    assert not any(labels._common(a, b) for a, b in itertools.combinations(boxes, 2))
    assert all(
        left >= 0 and right <= labels.WIDE and low >= 0 and top <= labels.HIGH for left, right, low, top in boxes
    )


def test_names_that_cover_each_other_are_caught() -> None:
    figure = figures.frontier(systems())
    figure.update_annotations(xshift=0, yshift=12)
    assert any(labels._common(a, b) for a, b in itertools.combinations(label_boxes(figure), 2))


def test_one_system_is_a_front() -> None:
    figure = figures.frontier(systems().iloc[:1])
    assert [trace.name for trace in figure.data if trace.name] == ["on the front"]
    assert figures.frontier(systems().iloc[9:]).data[0].name == "the paper's", "and none where nothing was measured"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (systems().drop(columns="bleu"), r"A frontier needs the column 'bleu', got .*\. Name columns"),
        (systems().iloc[:0], r"A frontier needs a row with a value, got 'none'\. Pass a table"),
        (systems().assign(bleu=NOTHING), r"A frontier needs a row with a value"),
        (systems().assign(kind="guessed"), r"knows rows of kind measured, model, paper, got 'guessed'\. Rename"),
        (None, r"A frontier needs the column 'speedup', got \[\]"),
    ],
)
def test_bad_frontiers(table: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figures.frontier(table)


def many_curves() -> list[dict[str, Any]]:
    return [{"name": f"way {n}", "threads": t, "speed": 1 + 0.01 * n * t} for n in range(14) for t in (1, 2, 4)]


def test_many_curves_are_named_where_they_end() -> None:
    rows = many_curves()
    figure = ddgviz.curves(pd.DataFrame(rows), "threads", "speed")
    assert figure.layout.showlegend is False
    named = figure.layout.annotations
    assert [(note.text, note.x, note.y) for note in named] == [(f"way {n}", 4, 1 + 0.04 * n) for n in range(14)]
    low, high = figure.layout.yaxis.range
    room = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
    heights = [room * (note.y - low) / (high - low) - note.ay for note in named]
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 14.9 and all(0 <= height <= room for height in heights)
    assert {note.font.color for note in named} == {trace.line.color for trace in figure.data}
    few = ddgviz.curves(pd.DataFrame(rows[: 6 * 3]), "threads", "speed")
    assert few.layout.showlegend is not False and not few.layout.annotations


@pytest.mark.parametrize("log_x", [False, True])
def test_names_of_curves_that_end_early_stand_in_the_plot(log_x: bool) -> None:
    ends = {f"way {n}": (1, 2, 4)[: 2 if n % 3 else 3] for n in range(9)}
    rows = [{"name": name, "threads": t, "speed": 1 + t * int(name[-1])} for name, end in ends.items() for t in end]
    figure = ddgviz.curves(pd.DataFrame(rows), "threads", "speed", log_x=log_x)
    last = {name: math.log10(end[-1]) if log_x else end[-1] for name, end in ends.items()}
    assert {note.text: note.x for note in figure.layout.annotations} == last
    assert {note.text for note in figure.layout.annotations if note.xanchor == "left"} == {"way 0", "way 3", "way 6"}
    sides = figure.layout.xaxis.range, figure.layout.yaxis.range
    boxes = []
    for note in figure.layout.annotations:
        if note.xanchor == "center":
            across, up = labels._pixel(note.x, sides[0], labels.WIDE), labels._pixel(note.y, sides[1], labels.HIGH)
            boxes.append(labels._box(across + note.ax, up - note.ay, width(note.text, labels.SIZE)))
    assert len(boxes) == 6 and not any(labels._common(a, b) for a, b in itertools.combinations(boxes, 2))


def test_names_of_curves_that_end_near_the_right_are_in_the_margin_with_the_others() -> None:
    rows = [{"name": f"way {n}", "speed": x, "share": 1 - x / (90 + n)} for n in range(8) for x in (1, 90 + n)]
    figure = ddgviz.curves(pd.DataFrame(rows), "speed", "share")
    named, (low, high) = figure.layout.annotations, figure.layout.yaxis.range
    assert {(note.xanchor, note.axref, note.ax) for note in named} == {("left", "x", figure.layout.xaxis.range[1])}
    heights = sorted(labels.HIGH * (note.y - low) / (high - low) - note.ay for note in named)
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 14.9, "they all end at 0, and none covers another"


def test_many_curves_of_several_kinds_are_named_once() -> None:
    paper = [row | {"kind": "paper", "speed": 2 * row["speed"]} for row in many_curves()[:9]]
    figure = ddgviz.curves(pd.DataFrame([*many_curves(), *paper]), "threads", "speed")
    assert sorted(note.text for note in figure.layout.annotations) == sorted(f"way {n}" for n in range(14))
    assert [trace.name for trace in figure.data if trace.showlegend] == ["measured", "the paper's"]


def test_many_curves_over_names_are_named() -> None:
    rows = [{"name": f"way {n}", "set": f"<{s}>\u202e", "speed": n} for n in range(8) for s in "abc"[: 3 if n else 2]]
    figure = ddgviz.curves(pd.DataFrame(rows), "set", "speed")
    assert {note.text: note.x for note in figure.layout.annotations} == {f"way {n}": 2 if n else 1 for n in range(8)}
