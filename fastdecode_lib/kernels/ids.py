"""Checks of ids before kernels use them: kernels read any address without a check."""

import numpy as np


def checked(what: str, ids: np.ndarray, least: int, vocabulary: int) -> np.ndarray:
    """Ids as contiguous int64 that may be written to, all from `least` to below `vocabulary`.

    A kernel is compiled separately for read-only arrays, and its sums can then differ in the last bit.

    Raises
    ------
    ValueError
        If an id is outside; `what` names the ids in the message.
    """
    if not (isinstance(ids, np.ndarray) and ids.dtype == np.int64 and ids.flags.carray):
        ids = np.require(ids, np.int64, ["C", "A", "W"])
    if ids.size and not (least <= ids.min() and ids.max() < vocabulary):
        unknown = ids[(ids < least) | (ids >= vocabulary)][0]
        raise ValueError(
            f"Unknown id among the {what}: got {unknown}, this vocabulary has ids from 0 to {vocabulary - 1}. "
            "Use the tokenizer of the same model."
        )
    return ids
