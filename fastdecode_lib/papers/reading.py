"""Tables for reading: the columns an experiment declares, how its result was made, and the paper's values beside ours."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.experiment import Column, columns
from fastdecode_lib.papers.outcomes import NoResult, committed

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

SHORT = 26
"""Characters of a text that stays on one line of a table."""


def committed_result(
    name: str, draw: Callable[["pd.DataFrame"], Any] | None = None, *more: str | Column, scale: str = "laptop"
) -> Any:
    """A long run's result, as its experiment declares it or as `draw` shows it, below the command that made it and the machine.

    Where there is no result the command alone, and None.

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


def processors(provenance: Mapping[str, Any]) -> str:
    """The processor of a result, and those of rows that were made apart."""
    names = [f"{provenance['cpu']} ({', '.join(provenance['cpu_flags'])})"]
    names += [
        f"rows of {rows}: {part['cpu']} ({', '.join(part['cpu_flags'])})"
        for rows, part in provenance.get("also", {}).items()
    ]
    return "; ".join(names)


def _made_on(frame: "pd.DataFrame") -> str:
    """The processor, the engine unless the rows name theirs, and the threads."""
    provenance = frame.attrs["provenance"]
    engine, threads = provenance.get("engine"), provenance.get("threads")
    parts = [processors(provenance)]
    if engine and not frame["name"].str.contains(engine).any():
        parts.append(f"{engine} engine")
    if threads:
        parts.append(f"{threads} thread{'s' * (threads > 1)}")
    return "; ".join(parts)


def gaps(frame: "pd.DataFrame") -> list[str]:
    """Why rows of a table are empty, each reason once."""
    return list(frame["gap"].dropna().drop_duplicates()) if "gap" in frame else []


def not_measured(stem: str) -> str:
    """The tables and figures of a stem without a result, or with one in part, and the models that are missing."""
    missing: list[str] = []
    partly: list[str] = []
    reasons: list[str] = []
    for experiment in experiments().values():
        if experiment.stem != stem or experiment.live:
            continue
        title = experiment.title.partition(":")[0]
        try:
            reasons_here = gaps(committed(experiment.name))
        except NoResult:
            missing.append(title)
            continue
        if reasons_here:
            partly.append(title)
            reasons += reasons_here
    states = [("Not measured yet", missing), ("Measured in part", partly)]
    lines = [f"{state}: {'; '.join(titles)}." for state, titles in states if titles]
    return "\n".join([*lines, *dict.fromkeys(reasons)]) or "All tables and figures are measured."


def is_noisy(frame: "pd.DataFrame") -> "pd.Series":
    """Whether the middle half of a row's times, of any of them, spreads over more than a tenth of their median."""
    names = [name for name in frame if str(name).startswith("noisy")]
    return frame["note"].eq("noisy") if "note" in frame and not names else frame[names].eq(True).any(axis=1)


def selected(frame: "pd.DataFrame", *named: str | Column) -> tuple["pd.DataFrame", tuple[Column, ...]]:
    """The rows and columns that are read, with intervals.

    Left out are rows of kind *gap* without a number, and columns that the table lacks or that hold nothing.

    Parameters
    ----------
    frame : DataFrame
        An index with a name becomes a column; headings of several levels become one.
    named : str or Column
        As for `columns`; by default all but ``kind``, ``gap`` and what belongs to an interval.
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
    if is_noisy(frame).any() and not {"noisy", "note"} & {c.name for c in present}:
        frame, present = frame.assign(noise=is_noisy(frame).map({True: "noisy"})), (*present, Column("noise", " "))
    names = [name for c in present for name in (c.name, f"{c.name}_low", f"{c.name}_high") if name in frame]
    return frame[names], present


def texts(frame: "pd.DataFrame", *named: str | Column) -> "pd.DataFrame":
    """A table as it is read: headings and cells of text. Parameters as for `selected`."""
    import pandas as pd

    rows, present = selected(frame, *named)
    cells = {}
    for column in present:
        low, high = (rows.get(f"{column.name}{end}", [None] * len(rows)) for end in ("_low", "_high"))
        cells[column.title] = [column.text(*values) for values in zip(rows[column.name], low, high, strict=True)]
    return pd.DataFrame(cells, index=rows.index)


def numbers(frame: "pd.DataFrame", *named: str | Column) -> "pd.DataFrame":
    """A table for further use: the columns that are read, under their headings, with all digits."""
    rows, present = selected(frame, *named)
    return rows.rename(
        columns={
            f"{c.name}{end}": f"{c.title}{end.replace('_', ', ')}" for c in present for end in ("", "_low", "_high")
        }
    )


def table(frame: "pd.DataFrame", *named: str | Column) -> "Styler":
    """A table in a notebook, text to the left. Parameters as for `selected`."""
    from pandas.api.types import is_numeric_dtype

    rows, present = selected(frame, *named)
    style = texts(frame, *named).style.format(escape="html").format_index(escape="html", axis=1).hide(axis="index")
    for column in (column for column in present if not is_numeric_dtype(rows[column.name])):
        short = rows[column.name].astype(str).str.len().max() <= SHORT
        cells = {"white-space": "nowrap"} if short else {"max-width": "26em", "overflow-wrap": "anywhere"}
        style.set_properties(subset=[column.title], **{"text-align": "left"} | cells)
        style.set_table_styles({column.title: [{"selector": "th", "props": "text-align: left"}]}, overwrite=False)
    return style


def pivoted(
    index: str | list[str], across: str | list[str], value: str, prefix: str = ""
) -> Callable[["pd.DataFrame"], "pd.DataFrame"]:
    """An arrangement of rows: a column for each value of `across`, of which the heading begins with `prefix`."""

    def arrange(frame: "pd.DataFrame") -> "pd.DataFrame":
        turned = frame.pivot_table(index=index, columns=across, values=value, sort=False)
        turned.columns = [f"{prefix}{', '.join(map(str, np.atleast_1d(name)))}" for name in turned]
        return turned.reset_index()

    return arrange


def with_paper_curve(frame: "pd.DataFrame", column: str, group: str, label: str = "paper") -> "pd.DataFrame":
    """Measured rows, and behind them the paper's values of one column as rows of kind *paper*, for a chart of `column`.

    Parameters
    ----------
    column : str
        The paper's values are in ``paper_{column}``, repeated in each group.
    group : str
        Column that tells curves apart; the paper's are called `label` in it.
    """
    import pandas as pd

    printed = frame[frame[group] == frame[group].iloc[0]].dropna(subset=[f"paper_{column}"])
    ours = [name for name in (column, f"{column}_low", f"{column}_high") if name in frame]
    paper = printed.drop(columns=ours).assign(kind="paper", **{group: label, column: printed[f"paper_{column}"]})
    return pd.concat([frame[frame["kind"] == "measured"], paper], ignore_index=True)


def with_paper_values(frame: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """One column as a small table: our rows by direction with their mean, then the paper's.

    The paper's values are taken from the columns ``paper_{column}`` and ``paper_MODEL_{column}``.
    """
    keys = ["name", *(key for key in ("set", "protocol") if key in frame)]
    ours = frame[frame["kind"] == "measured"]
    wide = ours.pivot_table(index=keys, columns="direction", values=column, sort=False).rename_axis(columns=None)
    wide["mean"] = wide.mean(axis=1)
    for printed in (name for name in frame if name.startswith("paper_") and name.endswith(column)):
        model = printed.removeprefix("paper_").removesuffix(column).strip("_")
        values = frame.drop_duplicates(["name", "direction"]).pivot_table(
            index="name", columns="direction", values=printed
        )
        for direction in values:
            label = f"paper {model}".strip()
            wide[f"{label}, {direction}"] = wide.index.get_level_values("name").map(values[direction])
    return wide.reset_index()
