"""Settings of a run, and the table that it gives: each table's function takes the settings that the class of its argument has."""

import atexit
import inspect
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache, cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from fastdecode_lib.core import Measurement
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.referee import System, measure
from fastdecode_lib.papers.outcomes import NoResult
from fastdecode_lib.text.corpus import CorpusNotFound, Pair, Tatoeba, corpus_folder
from fastdecode_lib.text.sentences import own_pairs

T = TypeVar("T")


class Scale(StrEnum):
    """Size of a run: ``tiny`` for tests (seconds), ``laptop`` (minutes to hours), ``paper`` (as the paper did)."""

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
class Run:
    """Settings of every run; with `progress`, a bar on the screen shows how far it is."""

    scale: Scale = Scale.LAPTOP
    seed: int = 0
    progress: bool = False

    @property
    def tiny(self) -> bool:
        """Whether the run only shows that the table can be made."""
        return self.scale is Scale.TINY

    def measure(
        self, systems: Sequence[System], sources: Sequence[Any], *, runs: int, **options: Any
    ) -> list[Measurement]:
        """`referee.measure` with the run's seed and bar."""
        return measure(systems, sources, runs=runs, seed=self.seed, progress=self.progress, **options)

    def bar(self, items: Iterable[T], unit: str = "row", desc: str | None = None) -> Iterable[T]:
        """The items; with `progress`, a bar shows how many are done."""
        from tqdm.auto import tqdm

        bar: Iterable[T] = tqdm(items, desc=desc, unit=unit, disable=not self.progress)
        return bar


@dataclass(frozen=True)
class CorpusRun(Run):
    """A run that reads the corpus: ``data`` is its folder, by default the one that ``FASTDECODE_DATA`` names."""

    data: str | None = None

    def pairs(self, source: str, target: str, split: str = "test") -> list[Pair]:
        """Sentence pairs of a split of the corpus; in a tiny run our own pairs."""
        if self.tiny:
            return own_pairs(source, target)
        return Tatoeba(corpus_folder(self.data)).pairs(split, source, target)

    def pairs_or_own(self, source: str, target: str, split: str = "test") -> tuple[list[Pair], str]:
        """Pairs as of `pairs`, and the split's name; our own pairs, named ``own``, if the corpus is missing."""
        if not self.tiny:
            with suppress(CorpusNotFound):
                return self.pairs(source, target, split), split
        return own_pairs(source, target), "own"


@dataclass(frozen=True)
class ModelRun(CorpusRun):
    """A run of one model: ``model``, by default the bundled one."""

    model: TranslationModel | None = None

    @cached_property
    def loaded(self) -> TranslationModel:
        """The model, loaded at first use."""
        return self.model or load()


@dataclass(frozen=True)
class ThreadedRun(ModelRun):
    """A run of one model whose steps may take several ``threads``."""

    threads: int = 1


@dataclass(frozen=True)
class DeviceRun(Run):
    """A run on a ``device``, by default a GPU.

    Raises
    ------
    NoResult
        If this machine lacks the CUDA device.
    """

    device: str = "cuda"

    def __post_init__(self) -> None:
        import torch

        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise NoResult(
                f"A time on a GPU needs a CUDA device: got device={self.device!r}, and none is here. Run it on a machine with one."
            )

    @property
    def dtype(self) -> str:
        """The dtype of measurements: float16 on a GPU, float32 elsewhere."""
        return "float16" if self.device.startswith("cuda") else "float32"

    def measure(
        self, systems: Sequence[System], sources: Sequence[Any], *, runs: int, **options: Any
    ) -> list[Measurement]:
        """`referee.measure` on the device."""
        return super().measure(systems, sources, runs=runs, device=self.device, **options)


@cache
def temporary_folder() -> Path:
    """A folder that is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="fastdecode-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def gap(missing: object) -> dict[str, str]:
    """The part of a row that says why it is empty."""
    return {"kind": "gap", "gap": str(missing)}


def table_of(
    rows: pd.DataFrame | Iterable[Mapping[str, Any]],
    run: Run | None = None,
    model: TranslationModel | None = None,
    /,
    *,
    traces: Any = None,
    **facts: Any,
) -> pd.DataFrame:
    """Rows as a table with its provenance: the run, the model, and further `facts`; and with traces by name if there are any.

    Rows that have no ``kind`` are measured.
    """
    frame = pd.DataFrame(rows if isinstance(rows, pd.DataFrame) else list(rows))
    frame = frame.assign(kind=frame["kind"].fillna("measured") if "kind" in frame else "measured")
    threads = run.threads if isinstance(run, ThreadedRun) else 1
    frame.attrs["provenance"] = provenance(model, threads=threads, seed=run.seed if run else None) | facts
    if traces:
        frame.attrs["traces"] = traces
    return frame


Table = Callable[..., pd.DataFrame]


def experiment(make: Table) -> Table:
    """A function of a `Run` that can also be called with a scale and settings by name: ``table2(Scale.TINY, seed=1)``.

    If a `NoResult` is raised, the table is a single row that says why.
    """
    run_class: type[Run] = next(iter(inspect.signature(make).parameters.values())).annotation
    names = {field.name for field in fields(run_class)}

    @wraps(make)
    def wrapper(run: Run | Scale = Scale.LAPTOP, **settings: Any) -> pd.DataFrame:
        run_settings = {} if isinstance(run, Run) else {name: settings.pop(name) for name in names & settings.keys()}
        try:
            return make(run if isinstance(run, Run) else run_class(run, **run_settings), **settings)
        except NoResult as missing:
            seed = run.seed if isinstance(run, Run) else run_settings.get("seed", 0)
            return table_of([{"name": "all", **gap(missing)}], seed=seed)

    return wrapper


def accepted(make: Table, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a function of a `Run` takes."""
    run, *parameters = inspect.signature(make).parameters.values()
    names = {field.name for field in fields(run.annotation)} | {parameter.name for parameter in parameters}
    return {name: value for name, value in settings.items() if name in names}
