"""The papers' tables and figures as functions: one file per notebook, one function per table or figure.

A file's stem is its notebook's name without the number; each returns a DataFrame with a ``name`` column.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

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
class Experiment:
    """A table or figure that can be made here.

    Attributes
    ----------
    stem, table : str
        ``start_here`` and ``comparison`` for ``fastdecode experiment start_here.comparison``.
    title : str
    run : callable
        Takes a `Scale` and keyword settings, returns a DataFrame.
    """

    stem: str
    table: str
    title: str
    run: Callable[..., "pd.DataFrame"]

    @property
    def name(self) -> str:
        """``STEM.TABLE``, as the command line takes it."""
        return f"{self.stem}.{self.table}"


def experiments() -> dict[str, Experiment]:
    """Every experiment by ``STEM.TABLE``."""
    from fastdecode_lib.experiments import start_here

    return {e.name: e for e in start_here.EXPERIMENTS}
