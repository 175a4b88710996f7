"""Checks of ids before kernels use them: kernels read any address without a check."""

from typing import Any

import numpy as np

from fastdecode_lib.kernels.compiling import kernel


def plain(values: Any, kind: Any) -> np.ndarray:
    """A contiguous, writable array, a copy if necessary.

    For other arrays, kernels would be compiled again, and the last bits of their results could differ.
    """
    if isinstance(values, np.ndarray) and values.dtype == kind and values.flags.carray:
        return values
    return np.require(values, kind, ["C", "A", "W"])


@kernel
def _first_outside(ids, least, vocabulary):  # type: ignore[no-untyped-def]
    for place in range(len(ids)):
        if ids[place] < least or ids[place] >= vocabulary:
            return place
    return -1


def checked(what: str, ids: Any, least: int, vocabulary: int) -> np.ndarray:
    """Ids as `plain` int64, all from `least` to below `vocabulary`.

    Raises
    ------
    ValueError
        If an id is outside; `what` names the ids in the message.
    """
    ids = plain(ids, np.int64)
    place = _first_outside(ids.reshape(-1), least, vocabulary)
    if place >= 0:
        raise ValueError(
            f"Unknown id among the {what}: got {ids.flat[place]}, this vocabulary has ids from 0 to {vocabulary - 1}. "
            "Use the tokenizer of the same model."
        )
    return ids
