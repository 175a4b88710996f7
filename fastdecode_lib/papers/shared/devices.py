"""Experiments that are about a GPU: which numbers they take, and the one row they have where there is no GPU."""

import pandas as pd

from fastdecode_lib.papers.run import Run
from fastdecode_lib.papers.shared.rows import gap, table_of


def without(device: str, run: Run) -> pd.DataFrame | None:
    """A table whose single row says that the device is not here; None if it is."""
    import torch

    if not device.startswith("cuda") or torch.cuda.is_available():
        return None
    missing = (
        f"A time on a GPU needs a CUDA device: got device={device!r}, and none is here. Run it on a machine with one."
    )
    return table_of([{"name": "all", **gap(missing)}], run)


def short(device: str) -> str:
    """The dtype in which a device is measured: float16 on a GPU, float32 elsewhere."""
    return "float16" if device.startswith("cuda") else "float32"
