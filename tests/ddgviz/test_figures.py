"""Charts from comparison tables."""

from typing import Any

import pandas as pd
import pytest
from hostile import TOKENS

import ddgviz
from ddgviz.figures import esc


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


def test_many_curves_stay_apart() -> None:
    names = [f"draft {number}" for number in range(14)]
    figure = ddgviz.curves(pd.DataFrame({"name": names, "x": 1, "y": 2.0}), "x", "y")
    assert len({(trace.line.color, trace.line.dash) for trace in figure.data}) == 14


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (curve_table().drop(columns="cores"), r"need the column 'cores', got .*\. Name columns"),
        (curve_table().iloc[:0], r"need a row with a value, got 'none'\. Pass a table with numbers in 'cores'"),
        (curve_table(speedup=float("nan"), paper_speedup=float("nan")), r"need a row with a value"),
        ([1], r"need the column 'cores', got \[\]"),
    ],
)
def test_bad_curves(table: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ddgviz.curves(table, "cores", "speedup")


def test_curves_know_two_themes() -> None:
    with pytest.raises(ValueError, match="light or dark"):
        ddgviz.curves(curve_table(), "cores", "speedup", theme="blue")


def test_curves_refuse_kinds_they_do_not_know():
    with pytest.raises(ValueError, match="Curves know rows of kind measured"):
        ddgviz.curves(pd.DataFrame({"name": ["a"], "x": [1], "y": [2], "kind": ["guessed"]}), "x", "y")
