"""Tables as text: the columns that an experiment declares, the provenance of its result, and the paper's values beside ours."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fastdecode_lib.measuring.referee import noisy
from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.experiment import Column, columns, rows_where
from fastdecode_lib.papers.outcomes import NoResult, committed

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

ENDS = ("", "_low", "_high")
"""Ends of the names of the columns of a value and its interval."""
SHORT = 26
"""Most characters of a text that is kept on one line of a table."""
MARK = "≈"
"""Mark of a ratio of times whose interval is wider than a tenth of it."""
NOT_TIMES = ("bleu", "chrf", "difference", "against_left", "tokens_per_pass", "paper_")
"""How columns begin whose intervals are over sentences, or the paper's."""
TRAIN = re.compile(r"fastdecode train (\S+(?: \S+)*) --data DIR")
"""Text in a gap of models that are not trained."""


def committed_result(name: str) -> "Styler | None":
    """A committed result by ``STEM.TABLE``, with the columns of its experiment; command and machine are printed above it.

    If there is no result, the command that makes it is printed, and None returned.
    """
    try:
        frame = committed(name)
    except NoResult as missing:
        print(missing)
        return None
    processor, *how = _made_on(frame)
    print(frame.attrs["provenance"]["command"], processor, "; ".join(how), *gaps(frame), sep="\n")
    experiment = experiments()[name]
    return table(experiment.arrange(frame) if experiment.arrange else frame, *experiment.columns)


def show_results(stem: str, *tables: str) -> None:
    """Committed results of a paper in a notebook, one below the other, each with its title, its table and its note."""
    from IPython.display import Markdown, display

    for name in (f"{stem}.{table}" for table in tables):
        experiment = experiments()[name]
        display(Markdown(f"**{experiment.title}**"))
        display(committed_result(name))
        display(Markdown(experiment.note))


def chart_data(name: str, **where: object) -> dict[str, Any]:
    """Arguments of ``ddgviz.curves`` for a committed result's chart, with the machine and the date below it.

    Parameters
    ----------
    name : str
        ``STEM.TABLE``.
    where : column=value
        Selector of the rows to draw, in addition to the chart's own.

    Raises
    ------
    NoResult
        If the result is not committed.
    ValueError
        If the experiment declares no chart.
    """
    chart = experiments()[name].chart
    if chart is None:
        raise ValueError(f"Only a result that declares a chart can be drawn: got {name}. Draw its table's columns.")
    frame = committed(name)
    note = ", ".join(["; ".join(_made_on(frame)), *filter(None, [frame.attrs["provenance"].get("date")])])
    return {"frame": chart.rows(frame, where), "note": note, **chart.settings}


def processors(provenance: Mapping[str, Any]) -> str:
    """The processor of a result, and the processors of rows that were made on others."""
    names = [f"{provenance['cpu']} ({', '.join(provenance['cpu_flags'])})"]
    names += [
        f"rows of {rows}: {part['cpu']} ({', '.join(part['cpu_flags'])})"
        for rows, part in provenance.get("also", {}).items()
    ]
    return "; ".join(names)


def _made_on(frame: pd.DataFrame) -> list[str]:
    """The processor, the engine unless the rows name it, and the threads."""
    provenance = frame.attrs["provenance"]
    engine, threads = provenance.get("engine"), provenance.get("threads")
    parts = [processors(provenance)]
    if engine and not frame["name"].str.contains(engine).any():
        parts.append(f"{engine} engine")
    if threads:
        parts.append(f"{threads} thread{'s' * (threads > 1)}")
    return parts


def gaps(frame: pd.DataFrame) -> list[str]:
    """Reasons why rows of a table are empty, each once; untrained models in one sentence."""
    reasons = frame["gap"].dropna().unique().tolist() if "gap" in frame else []
    untrained = [name for reason in reasons if (match := TRAIN.search(reason)) for name in match[1].split()]
    others = [reason for reason in reasons if not TRAIN.search(reason)]
    if untrained:
        others.append(f"Not trained: {', '.join(dict.fromkeys(untrained))}. Each by: fastdecode train NAME --data DIR")
    return others


def absent(frame: pd.DataFrame, *parts: str | Column) -> list[str]:
    """Headings of declared columns that are empty in this table. Parameters as for `selected`."""
    present = {column.name for column in selected(frame, *parts)[1]}
    return [column.title for column in columns(*parts) if column.name not in present]


def noisy_rows(frame: pd.DataFrame) -> pd.Series:
    """Whether any of a row's ratios of times has an interval wider than a tenth of it."""
    timed = [str(name) for name in frame if f"{name}_low" in frame and not str(name).startswith(NOT_TIMES)]
    marks = {name: noisy(*(frame[name + end].astype(float) for end in ENDS)) for name in timed}
    return pd.DataFrame(marks, index=frame.index).any(axis=1)


def selected(frame: pd.DataFrame, *parts: str | Column) -> tuple[pd.DataFrame, tuple[Column, ...]]:
    """The rows and columns that are shown, with intervals, and a column ``noisy`` if any row is noisy.

    Rows of kind *gap* without a number, and columns that are missing or empty, are left out.

    Parameters
    ----------
    frame : DataFrame
        A named index becomes a column; headings of several levels are joined.
    parts : str or Column
        Columns as for `columns`; by default all but ``kind``, ``gap`` and the ends of intervals.
    """
    frame = frame.reset_index(drop=not any(frame.index.names))
    frame.columns = [
        ", ".join(str(part) for part in name if part != "") if isinstance(name, tuple) else str(name) for name in frame
    ]
    bounds = {f"{name}{end}" for name in frame for end in ENDS[1:]}
    hidden = {"kind", "gap", *bounds}
    declared = columns(*parts) or tuple(Column(name) for name in frame if name not in hidden)
    if "kind" in frame and "gap" in set(frame["kind"]):
        has_number = frame[[c.name for c in declared if c.name in frame]].select_dtypes("number").notna().any(axis=1)
        frame = frame[(frame["kind"] != "gap") | has_number]
    present = tuple(c for c in declared if c.name in frame and frame[c.name].notna().any())
    names = [name for c in present for name in (c.name + end for end in ENDS) if name in frame]
    marks = noisy_rows(frame[names])
    return frame[names].assign(**({"noisy": marks} if marks.any() else {})), present


def texts(frame: pd.DataFrame, *parts: str | Column) -> pd.DataFrame:
    """A table as text: headings and cells, noisy times marked. Parameters as for `selected`."""
    rows, present = selected(frame, *parts)
    cells = {}
    for column in present:
        own = rows[[name for name in (column.name + end for end in ENDS) if name in rows]]
        cells[column.title] = [
            f"{MARK} " * mark + column.text(*values)
            for mark, values in zip(noisy_rows(own), own.itertuples(index=False), strict=True)
        ]
    return pd.DataFrame(cells, index=rows.index)


def numbers(frame: pd.DataFrame, *parts: str | Column) -> pd.DataFrame:
    """A table for further use: the columns that are shown, under their headings, with all digits."""
    rows, present = selected(frame, *parts)
    return rows.rename(
        columns={f"{c.name}{end}": f"{c.title}{end.replace('_', ', ')}" for c in present for end in ENDS}
    )


def table(frame: pd.DataFrame, *parts: str | Column) -> "Styler":
    """A table in a notebook, text aligned left. Parameters as for `selected`."""
    from pandas.api.types import is_numeric_dtype

    rows, present = selected(frame, *parts)
    style = texts(frame, *parts).style.format(escape="html").format_index(escape="html", axis=1).hide(axis="index")
    for column in (column for column in present if not is_numeric_dtype(rows[column.name])):
        short = rows[column.name].astype(str).str.len().max() <= SHORT
        cells = {"white-space": "nowrap"} if short else {"min-width": "12em", "overflow-wrap": "break-word"}
        style.set_properties(subset=[column.title], **{"text-align": "left"} | cells)
        style.set_table_styles({column.title: [{"selector": "th", "props": "text-align: left"}]}, overwrite=False)
    return style


def pivoted(
    index: str | list[str], across: str | list[str], value: str, prefix: str = "", **where: Any
) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """An arrangement of the rows of `rows_where`: a column for each value of `across`, whose heading begins with `prefix`."""

    def arrange(frame: pd.DataFrame) -> pd.DataFrame:
        pivot = rows_where(frame, where).pivot_table(index=index, columns=across, values=value, sort=False)
        pivot.columns = [f"{prefix}{', '.join(map(str, np.atleast_1d(name)))}" for name in pivot]
        return pivot.reset_index()

    return arrange


def with_paper_curve(frame: pd.DataFrame, column: str, group: str, label: str = "paper") -> pd.DataFrame:
    """Measured rows, then the paper's values, ``paper_{column}``, as rows of kind *paper*, for a chart of `column`.

    The paper's values are repeated in each `group`, a column whose values name the curves; the paper's curve is named `label`.
    """
    printed = frame[frame[group] == frame[group].iloc[0]].dropna(subset=[f"paper_{column}"])
    ours = [name for name in (column, f"{column}_low", f"{column}_high") if name in frame]
    paper = printed.drop(columns=ours).assign(kind="paper", **{group: label, column: printed[f"paper_{column}"]})
    return pd.concat([frame[frame["kind"] == "measured"], paper], ignore_index=True)


def beside_paper(frame: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Our rows with the paper's values of the same keys, then the paper's rows that match none of ours.

    In the columns `keys` a row of the paper equals the row of ours that it belongs to. The paper's columns begin with ``paper_``.
    """
    names = list(keys)
    is_paper = frame["kind"] == "paper"
    values = [name for name in frame if str(name).startswith("paper_")]
    printed = frame[is_paper].groupby(names, sort=False)[values].first()
    ours = frame[~is_paper].drop(columns=values).join(printed, on=names)
    our_keys = pd.MultiIndex.from_frame(ours[names]) if len(names) > 1 else pd.Index(ours[names[0]])
    unmatched = printed[~printed.index.isin(our_keys)].reset_index().assign(kind="paper")
    return pd.concat([ours, unmatched], ignore_index=True)


def measured_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Our rows, without the paper's."""
    return frame[frame["kind"] != "paper"]
