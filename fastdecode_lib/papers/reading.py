"""Tables for reading: a committed outcome with how it was made, and the paper's values beside ours."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.outcomes import NoResult, committed

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler


def shown(name: str, draw: Callable[["pd.DataFrame"], Any], scale: str = "laptop") -> Any:
    """What `draw` makes of a long run's outcome, under lines that say how to make it again and on what it was made.

    Where there is no outcome the command alone, and None.
    """
    try:
        frame = committed(name, scale)
    except NoResult as missing:
        print(missing)
        return None
    print(frame.attrs["provenance"]["command"], _made_on(frame), *_gaps(frame), sep="\n")
    return draw(frame)


def processors(about: Mapping[str, Any]) -> str:
    """The processor of a result, and those of the rows that were made apart: in ``also``, by what they are about."""
    told = [f"{about['cpu']} ({', '.join(about['cpu_flags'])})"]
    told += [
        f"rows of {name}: {own['cpu']} ({', '.join(own['cpu_flags'])})" for name, own in about.get("also", {}).items()
    ]
    return "; ".join(told)


def _made_on(frame: "pd.DataFrame") -> str:
    """The processor, the engine unless the rows name theirs, and the threads."""
    about = frame.attrs["provenance"]
    engine, threads = about.get("engine"), about.get("threads")
    told = [processors(about)]
    if engine and not frame["name"].str.contains(engine).any():
        told.append(f"{engine} engine")
    if threads:
        told.append(f"{threads} thread{'s' * (threads > 1)}")
    return "; ".join(told)


def _gaps(frame: "pd.DataFrame") -> list[str]:
    """Why rows of a table are empty, each reason once."""
    return list(frame["gap"].dropna().drop_duplicates()) if "gap" in frame else []


def waiting(stem: str) -> str:
    """The tables and figures of a stem that no long run has an outcome of yet, or one in part, and the models that are missing."""
    missing: list[str] = []
    partly: list[str] = []
    reasons: list[str] = []
    for experiment in experiments().values():
        if experiment.stem != stem or experiment.live:
            continue
        title = experiment.title.partition(":")[0]
        try:
            gaps = _gaps(committed(experiment.name))
        except NoResult:
            missing.append(title)
            continue
        if gaps:
            partly.append(title)
            reasons += gaps
    told = [("Not measured yet", missing), ("Measured in part", partly)]
    lines = [f"{state}: {'; '.join(titles)}." for state, titles in told if titles]
    return "\n".join([*lines, *dict.fromkeys(reasons)]) or "All tables and figures are measured."


def neat(frame: "pd.DataFrame", *columns: str) -> "Styler":
    """A table for reading: four digits, text to the left, and nothing that is empty.

    Parameters
    ----------
    frame : DataFrame
        Its index is shown if it has a name. Rows of kind *gap* stay where one of the columns shown holds a number.
    columns : str
        Those to show, in this order; all but ``kind`` and ``gap`` by default. The ones that the table lacks, or that hold
        nothing, are left out.
    """
    from pandas.api.types import is_numeric_dtype

    if not (named := any(frame.index.names)) or not frame.index.is_unique:
        frame = frame.reset_index(drop=not named)
    wanted = columns or [name for name in frame if name not in ("kind", "gap")]
    table = frame[[name for name in wanted if name in frame]]
    if "kind" in frame:
        numbers = table.select_dtypes("number").notna().any(axis=1)
        table = table[(frame["kind"] != "gap") | numbers]
    table = table.dropna(axis=1, how="all")
    style = table.style.format(_figure, na_rep="", escape="html").format_index(_heading, axis=1, escape="html")
    for name in (name for name in table if not is_numeric_dtype(table[name])):
        short = table[name].astype(str).str.len().max() <= SHORT
        cells = {"white-space": "nowrap"} if short else {"max-width": "26em", "overflow-wrap": "anywhere"}
        style.set_properties(subset=[name], **{"text-align": "left"} | cells)
        style.set_table_styles({name: [{"selector": "th", "props": "text-align: left"}]}, overwrite=False)
    return style if any(table.index.names) else style.hide(axis="index")


SHORT = 26
"""Characters of a text that stays on one line of a table."""


def _figure(value: Any) -> Any:
    if isinstance(value, (bool, np.bool)) or not isinstance(value, Real):
        return value
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 999.95 else f"{number:.4g}"


_SPELLED = {"bleu": "BLEU", "chrf": "chrF", "p_at_1": "P@1", "p_at_5": "P@5"}


def _heading(column: Any) -> Any:
    """A column's name in words; before what is the paper's stands that it is."""
    if not isinstance(column, str):
        return column
    own = column.removeprefix("paper_")
    return ("paper: " if own != column else "") + _SPELLED.get(own, own.replace("_", " "))


def with_paper(frame: "pd.DataFrame", column: str, group: str, said: str = "paper") -> "pd.DataFrame":
    """Measured rows, and behind them the paper's values of one column as rows of kind *paper*, for a chart of `column`.

    Parameters
    ----------
    column : str
        The paper's values are in ``paper_{column}``, repeated in each group.
    group : str
        Column that tells curves apart; the paper's are called `said` in it.
    """
    import pandas as pd

    printed = frame[frame[group] == frame[group].iloc[0]].dropna(subset=[f"paper_{column}"])
    own = [name for name in (column, f"{column}_low", f"{column}_high") if name in frame]
    paper = printed.drop(columns=own).assign(kind="paper", **{group: said, column: printed[f"paper_{column}"]})
    return pd.concat([frame[frame["kind"] == "measured"], paper], ignore_index=True)


def beside(frame: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """One column of a paper's table as a small table: our rows by direction with their mean, then the paper's.

    The paper's values are taken from the columns ``paper_{column}`` and ``paper_MODEL_{column}``.
    """
    import pandas as pd

    keys = ["name", *(key for key in ("set", "protocol") if key in frame)]
    ours = frame[frame["kind"] == "measured"]
    table = ours.pivot_table(index=keys, columns="direction", values=column, sort=False)
    table["mean"] = table.mean(axis=1)
    table.columns = pd.MultiIndex.from_product([["ours"], table.columns])
    for printed in (name for name in frame if name.startswith("paper_") and name.endswith(column)):
        model = printed.removeprefix("paper_").removesuffix(column).strip("_")
        values = frame.drop_duplicates(["name", "direction"]).pivot_table(
            index="name", columns="direction", values=printed
        )
        for direction in values:
            table[f"paper {model}".strip(), direction] = table.index.get_level_values("name").map(values[direction])
    return table
