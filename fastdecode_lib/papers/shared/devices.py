"""Experiments on a GPU: the dtype they are measured in, and the single row of their table where there is no GPU."""

import pandas as pd

from fastdecode_lib.papers.run import Run
from fastdecode_lib.papers.shared.rows import gap, table_of


def cuda_gap(device: str, run: Run) -> pd.DataFrame | None:
    """A table whose single row says that this machine lacks the CUDA device; None if it has it."""
    import torch

    if not device.startswith("cuda") or torch.cuda.is_available():
        return None
    message = (
        f"A time on a GPU needs a CUDA device: got device={device!r}, and none is here. Run it on a machine with one."
    )
    return table_of([{"name": "all", **gap(message)}], run)


def dtype_for(device: str) -> str:
    """The dtype of measurements on a device: float16 on a GPU, float32 elsewhere."""
    return "float16" if device.startswith("cuda") else "float32"
