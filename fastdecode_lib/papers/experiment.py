"""An experiment: a table or figure of a paper, and how it is shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.papers.run import Scale as Scale
from fastdecode_lib.papers.run import Table, accepted


def rows_where(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """The rows in which each column named has the value given, or one of a tuple of values."""
    for column, value in where.items():
        frame = frame[frame[column].isin(value if isinstance(value, tuple) else (value,))]
    return frame


@dataclass(frozen=True)
class Chart:
    """A chart of a table, as data: ``fastdecode figures`` passes it to ``ddgviz.curves``.

    Attributes
    ----------
    x, y, group : str
        Columns of the axes, and the column whose values name the curves. Columns ``{y}_low`` and ``{y}_high`` are error bars,
        ``paper_{y}`` the height of points of kind *paper*.
    where : mapping of column to value
        Selector of the rows drawn; all if empty.
    reference : float or None
        Height of a horizontal line.
    log_x, from_zero : bool
        Whether x is on a logarithmic scale, and whether heights begin at zero.
    x_title, y_title : str or None
        Instead of the columns' names.
    names : mapping of value to name
        Names of curves instead of the group's values.
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
    names: Mapping[str, str] = field(default_factory=dict)

    def rows(self, frame: pd.DataFrame, where: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """The rows of a table that are drawn, of those with these values in its columns."""
        if "kind" in frame:
            frame = frame[frame["kind"] != "gap"]
        rows = rows_where(frame, {**self.where, **(where or {})})
        return rows.replace({self.group: dict(self.names)}) if self.names else rows

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of ``ddgviz.curves``."""
        return {name: value for name, value in vars(self).items() if name not in ("where", "names")}


@dataclass(frozen=True)
class Column:
    """A column of a table as it is shown: in a notebook, on the results page, in LaTeX and in CSV.

    An interval, ``{name}_low`` and ``{name}_high``, follows the value.

    Attributes
    ----------
    name : str
        Key in the rows.
    heading : str
        Heading, with the unit if there is one; by default the name in words, with "paper:" before it for the paper's values.
    digits : int or None
        Digits after the point; by default none of whole numbers and from 100 on, else two (a ratio of 1.0 is 1.00), and below 1
        three significant digits.
    share : bool
        Whether the value is shown in percent.
    """

    name: str
    heading: str = ""
    digits: int | None = None
    share: bool = False

    @property
    def title(self) -> str:
        """Heading of the column."""
        name = self.name.removeprefix("paper_")
        return self.heading or ("paper: " if name != self.name else "") + SPELLED.get(name, name.replace("_", " "))

    def text(self, value: Any, low: Any = None, high: Any = None) -> str:
        """A value as text, with its interval if it has one; empty if there is no value."""
        if value is None or value != value:
            return ""
        if isinstance(value, (bool, np.bool_)):
            return "yes" if value else "no"
        if not isinstance(value, int | float | np.number):
            return str(value)
        if low is None or low != low:
            return self._number(value, self.digits)
        digits = (2 if abs(float(value)) < 100 else 0) if self.digits is None and not self.share else self.digits
        dash = "–" if low >= 0 else " to "
        return f"{self._number(value, digits)} ({self._number(low, digits)}{dash}{self._number(high, digits)})"

    def _number(self, value: Any, digits: int | None) -> str:
        if self.share or self.name.removeprefix("paper_") in SHARES:
            return f"{value:.{1 if digits is None else digits}%}"
        if digits is not None:
            return f"{round(value, digits) + 0.0:,.{digits}f}"
        if abs(value) >= 1e9 or abs(value) < 1:
            return f"{value:.3g}"
        if isinstance(value, int | np.integer) or abs(value) >= 100 or (value.is_integer() and abs(value) != 1):
            return f"{value:,.0f}"
        return f"{value:.2f}"


SPELLED = {
    "bleu": "BLEU", "chrf": "chrF", "p_at_1": "P@1", "p_at_5": "P@5", "identical": "same outputs", "agreement": "same outputs",
    "microseconds": "µs", "milliseconds": "ms", "megabytes": "MB", "calls": "passes", "calls_ratio": "times fewer passes",
    "tokens_per_pass": "tokens a pass", "tokens_per_second": "tokens/s", "sentences_per_second": "sentences/s",
    "words_per_second": "words/s", "gigabytes_per_second": "GB/s", "over_exact": "over our exact kernel", "set": "sentences",
}  # fmt: skip
"""Headings of columns that several tables have."""
SHARES = {
    "identical", "agreement", "active_share", "p_at_1", "p_at_5", "share", "largest_share", "mean_share",
    "same_as_exact", "as_greedy", "source_coverage", "target_coverage", "coverage", "unique",
}  # fmt: skip
"""Columns shown in percent in every table."""


def columns(*parts: str | Column) -> tuple[Column, ...]:
    """Columns in order; a string has those that need no heading: ``bleu``, ``bleu:1`` with one digit, ``active:%`` in percent."""
    return tuple(
        column for part in parts for column in (map(_column, part.split()) if isinstance(part, str) else [part])
    )


def _column(text: str) -> Column:
    name, colon, form = text.rpartition(":")
    if not colon or not (form.isdigit() or form == "%"):
        return Column(text)
    return Column(name, share=True) if form == "%" else Column(name, digits=int(form))


@dataclass(frozen=True)
class Experiment:
    """A table or figure that can be made here, and how it is shown.

    Attributes
    ----------
    run : callable
        Makes the table: a function decorated with `run.experiment` in the paper's folder; the table has its name.
    title : str
        Title that begins with the name in the paper, as ``Table 2: ...``.
    columns : tuple of Column
        Columns shown; all if empty.
    arrange : callable or None
        Selects, averages or pivots the rows to show.
    note : str
        Explanation below the table, in Markdown.
    chart : Chart or None
        Chart of curves; None for other drawings.
    traced : bool
        Whether it is drawn as passes: ``frame.attrs["traces"]`` has traces by name.
    compares : bool
        Whether it is a table of ``compare``, and drawn as such.
    live : bool
        Whether its notebook makes it, in seconds, so that no result of it is committed.
    counted : bool
        Whether it only counts and scores, without times, so that it can be made beside others.
    """

    run: Table
    title: str
    columns: tuple[Column, ...] = ()
    arrange: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    note: str = ""
    chart: Chart | None = None
    traced: bool = False
    compares: bool = False
    live: bool = False
    counted: bool = False

    @property
    def stem(self) -> str:
        """Name of the paper's folder: ``start_here`` for ``fastdecode experiment start_here.comparison``."""
        return self.run.__module__.removeprefix("fastdecode_lib.papers.").partition(".")[0]

    @property
    def table(self) -> str:
        """The function's name: ``comparison``."""
        return self.run.__name__

    @property
    def name(self) -> str:
        """``STEM.TABLE``, the name on the command line."""
        return f"{self.stem}.{self.table}"

    @property
    def label(self) -> str:
        """Name in the paper, such as ``Table 2``; empty for experiments beyond the paper."""
        label = self.title.partition(":")[0]
        return label if label.startswith(("Table ", "Figure ")) else ""

    @property
    def on_page(self) -> bool:
        """Whether the results page shows it as a table: it declares columns or an arrangement of rows."""
        return bool(self.columns or self.arrange)

    def accepted(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that this experiment takes."""
        return accepted(self.run, settings)


@dataclass(frozen=True)
class Citation:
    """Reference of a paper: authors as cited in text (``Amer et al.``), and as link its DOI or its page at arXiv."""

    authors: str
    year: int
    title: str
    link: str

    @property
    def name(self) -> str:
        """Authors and year, as ``Amer et al. (2022)``."""
        return f"{self.authors} ({self.year})"


@dataclass(frozen=True)
class Paper:
    """A paper, or another group of experiments, with its notebook.

    Attributes
    ----------
    stem : str
        Stem of its experiments' names and of its results page.
    notebook : str
        The notebook's name, without its suffix.
    citation : Citation or None
        None for a group that is no paper.
    chart : str
        The experiment whose chart is the first on its page of results; empty if it has no page.
    """

    stem: str
    notebook: str
    title: str
    experiments: tuple[Experiment, ...]
    citation: Citation | None = None
    chart: str = ""

    @property
    def name(self) -> str:
        """Authors and year of the paper; the title of a group that is no paper."""
        return self.citation.name if self.citation else self.title
