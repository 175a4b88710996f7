"""Parts of many tables' rows: a speedup with its interval, a gap, the paper's values, and the table's provenance."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.core import Measurement
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.referee import noisy
from fastdecode_lib.measuring.referee import ratio_of as ratio_of
from fastdecode_lib.papers.run import Run, ThreadedRun


def speedup_of(base: Measurement, m: Measurement, seed: int = 0) -> dict[str, Any]:
    """Speedup of a measurement over its baseline, with the interval, and whether the times of either were noisy."""
    return {**ratio_of("speedup", base.seconds, m.seconds, seed), "noisy": noisy(base, m)}


def median(m: Measurement) -> float:
    """Median seconds of a run."""
    return float(np.median(m.seconds))


def gap(missing: object) -> dict[str, str]:
    """The part of a row that says why it is empty."""
    return {"kind": "gap", "gap": str(missing)}


def table_of(
    rows: pd.DataFrame | Iterable[Mapping[str, Any]],
    run: Run | None = None,
    model: TranslationModel | None = None,
    /,
    **facts: Any,
) -> pd.DataFrame:
    """Rows as a table with its provenance: the run, the model, and further `facts`.

    Rows that have no ``kind`` are measured.
    """
    frame = pd.DataFrame(rows if isinstance(rows, pd.DataFrame) else list(rows))
    frame = frame.assign(kind=frame["kind"].fillna("measured") if "kind" in frame else "measured")
    threads = run.threads if isinstance(run, ThreadedRun) else 1
    frame.attrs["provenance"] = provenance(model, threads=threads, seed=run.seed if run else None) | facts
    return frame
