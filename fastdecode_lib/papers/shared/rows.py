"""Times in many tables' rows: a median, and a speedup with its interval."""

from typing import Any

import numpy as np

from fastdecode_lib.core import Measurement
from fastdecode_lib.measuring.referee import noisy
from fastdecode_lib.measuring.referee import ratio_of as ratio_of


def speedup_of(base: Measurement, m: Measurement, seed: int = 0) -> dict[str, Any]:
    """Speedup of a measurement over its baseline, with the interval, and whether the times of either were noisy."""
    return {**ratio_of("speedup", base.seconds, m.seconds, seed), "noisy": noisy(base, m)}


def median(m: Measurement) -> float:
    """Median seconds of a run."""
    return float(np.median(m.seconds))
