"""Matrices stored in files as int8 with a scale for each row: a quarter of float32's size; they are used in float32."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastdecode_lib.checkpoints.shape import CheckpointError

SCALE = ".scale"
"""Suffix of an int8 matrix's name in the name of the tensor with the scales of its rows."""


def quantised(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Matrices rounded to int8 with a float32 scale for each row; vectors unchanged.

    The largest value of a row becomes 127; the error of a value is at most half the scale of its row.
    """
    stored: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        if tensor.ndim != 2:
            stored[name] = tensor
            continue
        scales = np.maximum(np.abs(tensor).max(1), 1e-12).astype(np.float32) / np.float32(127)
        stored[name] = np.rint(tensor / scales[:, None]).astype(np.int8)
        stored[name + SCALE] = scales
    return stored


def dequantised(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `quantised`, on numpy arrays or torch tensors; tensors without scales are unchanged.

    Raises
    ------
    CheckpointError
        If there are not as many scales as rows.
    """
    scale_names = {name + SCALE for name in stored}
    tensors = {name: tensor for name, tensor in stored.items() if name not in scale_names}
    for name in tensors:
        scales = stored.get(name + SCALE)
        if scales is None:
            continue
        if tuple(scales.shape) != tuple(stored[name].shape[:1]):
            raise CheckpointError(
                f"The tensor {name!r} of shape {tuple(stored[name].shape)} has scales of shape {tuple(scales.shape)}. It needs "
                "one for each row; copy the file again."
            )
        tensors[name] = stored[name] * scales[:, None]
    return tensors
