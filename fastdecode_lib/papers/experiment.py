"""The papers' tables and figures as functions: one file per notebook, one function per table or figure.

A file's stem is its notebook's name without the number; each returns a DataFrame with a ``name`` column.
"""

import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import resources
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.trace import Trace
from fastdecode_lib.training.presets import place_of

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler


class Scale(StrEnum):
    """How much a run does: ``tiny`` for tests (seconds), ``laptop`` (minutes to hours), ``paper`` (as the paper did)."""

    TINY = "tiny"
    LAPTOP = "laptop"
    PAPER = "paper"

    @classmethod
    def of(cls, name: str) -> "Scale":
        """A scale by name."""
        try:
            return cls(name)
        except ValueError:
            raise ValueError(f"Unknown scale: got {name!r}. Use one of {', '.join(cls)}.") from None

    @classmethod
    def from_environment(cls) -> "Scale":
        """The scale named by ``FASTDECODE_SCALE``; laptop if it is not set."""
        return cls.of(os.environ.get("FASTDECODE_SCALE", cls.LAPTOP))


@dataclass(frozen=True)
class Chart:
    """How a table is drawn, as data: ``fastdecode figures`` hands it to ``ddgviz.curves``.

    Attributes
    ----------
    x, y, group : str
        Columns on the axes, and the one that tells curves apart. Columns ``{y}_low`` and ``{y}_high`` are error bars,
        ``paper_{y}`` the height of points of kind *paper*.
    where : mapping of column to value
        The rows that are drawn; all if empty.
    reference : float or None
        Height of a horizontal line.
    log_x, from_zero : bool
        Whether x is on a logarithmic scale, and whether heights begin at zero.
    x_title, y_title : str or None
        Instead of the columns' names.
    """

    x: str
    y: str
    group: str = "name"
    where: Mapping[str, str] = field(default_factory=dict)
    reference: float | None = None
    log_x: bool = False
    from_zero: bool = True
    x_title: str | None = None
    y_title: str | None = None


@dataclass(frozen=True)
class Experiment:
    """A table or figure that can be made here.

    Attributes
    ----------
    stem, table : str
        ``start_here`` and ``comparison`` for ``fastdecode experiment start_here.comparison``.
    title : str
    run : callable
        Takes a `Scale` and keyword settings, returns a DataFrame.
    chart : Chart or None
        How it is drawn, if as curves.
    traced : bool
        Whether it is drawn as passes: ``frame.attrs["traces"]`` holds traces by name.
    compares : bool
        Whether it is a table of ``compare``, and drawn as such.
    live : bool
        Whether its notebook makes it, in seconds, so that no outcome of it comes with fastdecode.
    """

    stem: str
    table: str
    title: str
    run: Callable[..., "pd.DataFrame"]
    chart: Chart | None = None
    traced: bool = False
    compares: bool = False
    live: bool = False

    @property
    def name(self) -> str:
        """``STEM.TABLE``, as the command line takes it."""
        return f"{self.stem}.{self.table}"

    @property
    def counted(self) -> bool:
        """Whether it counts and scores and measures no time, so that it can be made beside others."""
        return self.table in COUNTED.get(self.stem, ())

    def accepted(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Those of some settings that this experiment has."""
        known = inspect.signature(self.run).parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
        return {name: value for name, value in settings.items() if takes_all or name in known}


COUNTED = {
    "vocabulary_clusters": {
        "figure1", "figure2", "figure4", "table1", "table5", "table6", "sharing", "rating_power", "lossless"
    },
    "learning_to_screen": {"figure1", "table1", "table7", "table8"},
    "double_token_decoding": {"figure1", "figure2", "mask_predict", "table1", "table3"},
    "parallel_decoding": {
        "figure1", "figure2", "figure4", "figure6", "table4", "examples", "vocabulary", "drafts", "dependencies"
    },
    "sharp_models": {"quality", "unique_states", "coverage", "engines", "precisions"},
    "combinations": {"drafts", "tuned"},
}  # fmt: skip
"""The tables without times."""


class NoResult(ValueError):
    """A long run whose outcome does not come with fastdecode."""


def trained(preset: str) -> str:
    """A preset's model as `load` takes it, trained here or bundled; see `training.presets.place_of`.

    Raises
    ------
    NoResult
        If there is neither.
    """
    place = place_of(preset)
    if place is None:
        raise untrained(preset)
    return place


def untrained(preset: str) -> NoResult:
    """What a row says whose model there is not."""
    return NoResult(f"The model {preset} is not trained here. Train it: fastdecode train {preset} --data DIR")


def result_name(name: str, scale: str, threads: int = 1) -> str:
    """The file of an experiment's outcome."""
    return f"{name}.{scale}{f'.{threads}threads' if threads > 1 else ''}.json"


def committed(name: str, scale: str = "laptop", threads: int = 1) -> "pd.DataFrame":
    """The outcome of a long run that comes with fastdecode; ``frame.attrs["provenance"]`` tells how it was made.

    ``frame.attrs["traces"]`` holds the passes it was read from, by name.

    Raises
    ------
    NoResult
        If there is none.
    ValueError
        If it is damaged.
    """
    import pandas as pd

    path = resources.files("fastdecode_lib") / "results" / result_name(name, scale, threads)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        frame = pd.DataFrame(content["rows"])
        frame.attrs["provenance"] = content["provenance"]
        frame.attrs["traces"] = {label: Trace.from_dict(trace) for label, trace in content.get("traces", {}).items()}
    except FileNotFoundError as error:
        raise NoResult(
            f"There is no result of {name!r} at scale {scale!r} here. Make it, from the folder of the repository and with the "
            f"corpus: fastdecode experiment {name} --scale {scale} --data DIR --results fastdecode_lib/results"
        ) from error
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"The result is damaged: {path}: {error!r}. Install fastdecode again, or make it again."
        ) from error
    return frame


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


def experiments() -> dict[str, Experiment]:
    """Every experiment by ``STEM.TABLE``."""
    from fastdecode_lib.papers import (
        combinations,
        double_token_decoding,
        learning_to_screen,
        parallel_decoding,
        sharp_models,
        start_here,
        vocabulary_clusters,
    )

    modules = (
        start_here,
        vocabulary_clusters,
        learning_to_screen,
        double_token_decoding,
        parallel_decoding,
        sharp_models,
        combinations,
    )
    return {e.name: e for module in modules for e in module.EXPERIMENTS}
