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
