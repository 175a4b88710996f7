"""Tables for reading: the columns an experiment declares, how its result was made, and the paper's values beside ours."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.experiment import Column, columns
from fastdecode_lib.papers.outcomes import NoResult, committed

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

SHORT = 26
"""Characters of a text that stays on one line of a table."""
NOISY = "≈"
"""Stands before a time where the middle half of its runs spreads over more than a tenth of their median."""
TRAIN = re.compile(r"fastdecode train (\S+) --data DIR")
"""Text of a gap whose model is not trained."""


def committed_result(
    name: str, draw: Callable[[pd.DataFrame], Any] | None = None, *more: str | Column, scale: str = "laptop"
) -> Any:
    """A long run's result, as its experiment declares it or as `draw` shows it, below the command that made it and the machine.

    Shows the command alone and returns None if there is no result.

    Parameters
    ----------
    name : str
        ``STEM.TABLE``.
    draw : callable, optional
        Takes the DataFrame of all rows.
    more : str or Column
        Columns to show instead of the declared ones.
    """
    try:
        frame = committed(name, scale)
    except NoResult as missing:
        print(missing)
        return None
    print(frame.attrs["provenance"]["command"], _made_on(frame), *gaps(frame), sep="\n")
    if draw is not None:
        return draw(frame)
    experiment = experiments()[name]
    return table(experiment.arrange(frame) if experiment.arrange else frame, *(more or experiment.columns))


def chart_data(name: str, **where: object) -> dict[str, Any]:
    """Arguments of ``ddgviz.curves`` for a committed result's chart.

    Parameters
    ----------
    name : str
        ``STEM.TABLE``.
    where : column=value
        Rows to draw, besides those that the chart itself chooses.

    Raises
    ------
    NoResult
        If the result does not come with fastdecode.
    ValueError
        If the experiment is not drawn as curves.
    """
    chart = experiments()[name].chart
    if chart is None:
        raise ValueError(f"Only a result that declares a chart can be drawn: got {name}. Draw its table's columns.")
    rows = chart.rows(committed(name))
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return {"frame": rows, **chart.settings}


def processors(provenance: Mapping[str, Any]) -> str:
    """The processor of a result, and those of rows that were made apart."""
    names = [f"{provenance['cpu']} ({', '.join(provenance['cpu_flags'])})"]
    names += [
        f"rows of {rows}: {part['cpu']} ({', '.join(part['cpu_flags'])})"
        for rows, part in provenance.get("also", {}).items()
    ]
    return "; ".join(names)


def _made_on(frame: pd.DataFrame) -> str:
    """The processor, the engine unless the rows name theirs, and the threads."""
    provenance = frame.attrs["provenance"]
    engine, threads = provenance.get("engine"), provenance.get("threads")
    parts = [processors(provenance)]
    if engine and not frame["name"].str.contains(engine).any():
        parts.append(f"{engine} engine")
    if threads:
        parts.append(f"{threads} thread{'s' * (threads > 1)}")
    return "; ".join(parts)


def gaps(frame: pd.DataFrame) -> list[str]:
    """Reasons why rows of a table are empty, each once; untrained models in one sentence."""
    reasons = frame["gap"].dropna().unique().tolist() if "gap" in frame else []
    untrained = [found[1] for reason in reasons if (found := TRAIN.search(reason))]
    others = [reason for reason in reasons if not TRAIN.search(reason)]
    if untrained:
        others.append(f"Not trained: {', '.join(dict.fromkeys(untrained))}. Each by: fastdecode train NAME --data DIR")
    return others


def absent(frame: pd.DataFrame, *named: str | Column) -> list[str]:
    """Headings of declared columns that hold nothing here. Parameters as for `selected`."""
    present = {column.name for column in selected(frame, *named)[1]}
    return [column.title for column in columns(*named) if column.name not in present]


def is_noisy(frame: pd.DataFrame) -> pd.Series:
    """Whether the interquartile range of any of a row's times exceeds a tenth of their median."""
    names = [name for name in frame if str(name).startswith("noisy")]
    return frame["note"].eq("noisy") if "note" in frame and not names else frame[names].eq(True).any(axis=1)


def selected(frame: pd.DataFrame, *named: str | Column) -> tuple[pd.DataFrame, tuple[Column, ...]]:
    """The rows and columns that are read, with intervals, and a column ``noisy`` where a row is.

    Left out are rows of kind *gap* without a number, and columns that the table lacks or that hold nothing.

    Parameters
    ----------
    frame : DataFrame
        An index with a name becomes a column; headings of several levels become one.
    named : str or Column
        Columns as for `columns`; by default all but ``kind``, ``gap`` and what belongs to an interval.
    """
    frame = frame.reset_index(drop=not any(frame.index.names))
    frame.columns = [
        ", ".join(str(part) for part in name if part != "") if isinstance(name, tuple) else str(name) for name in frame
    ]
    bounds = {f"{name}{end}" for name in frame for end in ("_low", "_high")}
    hidden = {"kind", "gap", *bounds}
    declared = columns(*named) or tuple(Column(name) for name in frame if name not in hidden)
    if "kind" in frame and "gap" in set(frame["kind"]):
        numbers = frame[[c.name for c in declared if c.name in frame]].select_dtypes("number").notna().any(axis=1)
        frame = frame[(frame["kind"] != "gap") | numbers]
    present = tuple(c for c in declared if c.name in frame and frame[c.name].notna().any())
    names = [name for c in present for name in (c.name, f"{c.name}_low", f"{c.name}_high") if name in frame]
    noisy = is_noisy(frame)
    return frame[names].assign(**({"noisy": noisy} if noisy.any() else {})), present


def texts(frame: pd.DataFrame, *named: str | Column) -> pd.DataFrame:
    """A table as it is read: headings and cells of text, noisy times marked. Parameters as for `selected`."""
    rows, present = selected(frame, *named)
    timed = [column for column in present if f"{column.name}_low" in rows] or list(present[:1])
    marks = rows["noisy"].map({True: f"{NOISY} ", False: ""}) if "noisy" in rows else [""] * len(rows)
    cells = {}
    for column in present:
        low, high = (rows.get(f"{column.name}{end}", [None] * len(rows)) for end in ("_low", "_high"))
        said = [column.text(*values) for values in zip(rows[column.name], low, high, strict=True)]
        said = (
            [mark + text if text else "" for mark, text in zip(marks, said, strict=True)] if column in timed else said
        )
        cells[column.title] = said
    return pd.DataFrame(cells, index=rows.index)


def numbers(frame: pd.DataFrame, *named: str | Column) -> pd.DataFrame:
    """A table for further use: the columns that are read, under their headings, with all digits."""
    rows, present = selected(frame, *named)
    return rows.rename(
        columns={
            f"{c.name}{end}": f"{c.title}{end.replace('_', ', ')}" for c in present for end in ("", "_low", "_high")
        }
    )


def table(frame: pd.DataFrame, *named: str | Column) -> "Styler":
    """A table in a notebook, text to the left. Parameters as for `selected`."""
    from pandas.api.types import is_numeric_dtype

    rows, present = selected(frame, *named)
    style = texts(frame, *named).style.format(escape="html").format_index(escape="html", axis=1).hide(axis="index")
    for column in (column for column in present if not is_numeric_dtype(rows[column.name])):
        short = rows[column.name].astype(str).str.len().max() <= SHORT
        cells = {"white-space": "nowrap"} if short else {"min-width": "12em", "overflow-wrap": "break-word"}
        style.set_properties(subset=[column.title], **{"text-align": "left"} | cells)
        style.set_table_styles({column.title: [{"selector": "th", "props": "text-align: left"}]}, overwrite=False)
    return style


def pivoted(
    index: str | list[str], across: str | list[str], value: str, prefix: str = ""
) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """An arrangement of rows: a column for each value of `across`, of which the heading begins with `prefix`."""

    def arrange(frame: pd.DataFrame) -> pd.DataFrame:
        turned = frame.pivot_table(index=index, columns=across, values=value, sort=False)
        turned.columns = [f"{prefix}{', '.join(map(str, np.atleast_1d(name)))}" for name in turned]
        return turned.reset_index()

    return arrange


def with_paper_curve(frame: pd.DataFrame, column: str, group: str, label: str = "paper") -> pd.DataFrame:
    """Measured rows, and behind them the paper's values of one column as rows of kind *paper*, for a chart of `column`.

    Parameters
    ----------
    column : str
        The paper's values are in ``paper_{column}``, repeated in each group.
    group : str
        Column that tells curves apart; the paper's are called `label` in it.
    """
    printed = frame[frame[group] == frame[group].iloc[0]].dropna(subset=[f"paper_{column}"])
    ours = [name for name in (column, f"{column}_low", f"{column}_high") if name in frame]
    paper = printed.drop(columns=ours).assign(kind="paper", **{group: label, column: printed[f"paper_{column}"]})
    return pd.concat([frame[frame["kind"] == "measured"], paper], ignore_index=True)


def beside_paper(frame: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """The paper's values in our rows of the same keys, in place of rows of kind *paper*; those without one of ours behind.

    Parameters
    ----------
    keys : str
        Columns that tell which of our rows a row of the paper belongs to. The paper's columns begin with ``paper_``.
    """
    names = list(keys)
    is_paper = frame["kind"] == "paper"
    values = [name for name in frame if str(name).startswith("paper_")]
    printed = frame[is_paper].groupby(names, sort=False)[values].first()
    ours = frame[~is_paper].drop(columns=values).join(printed, on=names)
    known = pd.MultiIndex.from_frame(ours[names]) if len(names) > 1 else pd.Index(ours[names[0]])
    others = printed[~printed.index.isin(known)].reset_index().assign(kind="paper")
    return pd.concat([ours, others], ignore_index=True)


def measured_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Our rows alone, without the paper's."""
    return frame[frame["kind"] != "paper"]
