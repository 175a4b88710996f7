"""Parts of many tables' rows: a ratio of times with its interval, and the provenance."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.measuring.referee import bootstrap_ratio

if TYPE_CHECKING:
    import pandas as pd


def ratio_of(column: str, times: np.ndarray, others: np.ndarray, seed: int = 0) -> dict[str, float]:
    """The ratio of the medians of two arrays of times, as `column`, with its 95% interval."""
    low, high = bootstrap_ratio(times, others, seed)
    return {column: float(np.median(times) / np.median(others)), f"{column}_low": low, f"{column}_high": high}


def with_provenance(
    rows: "pd.DataFrame | Iterable[Mapping[str, Any]]", provenance: Mapping[str, Any]
) -> "pd.DataFrame":
    """A table of rows that says how it was made."""
    import pandas as pd

    frame = pd.DataFrame(rows if isinstance(rows, pd.DataFrame) else list(rows))
    frame.attrs["provenance"] = dict(provenance)
    return frame
