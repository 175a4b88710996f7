"""An experiment: a table or figure of a paper as a function, how much it does, and how it is drawn."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


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
