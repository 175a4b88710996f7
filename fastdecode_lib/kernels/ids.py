"""Ids from outside, checked before a kernel goes by them: kernels look up what they are told to, wherever that is."""

import numpy as np


def checked(what: str, ids: np.ndarray, least: int, vocabulary: int) -> np.ndarray:
    """Ids as contiguous int64 that may be written to, all from `least` to below `vocabulary`.

    A kernel is compiled anew for an array that may not, and its sums can come out different in the last bit.

    Raises
    ------
    ValueError
        If one is not; `what` they are is for the message.
    """
    if not (isinstance(ids, np.ndarray) and ids.dtype == np.int64 and ids.flags.carray):
        ids = np.require(ids, np.int64, ["C", "A", "W"])
    if ids.size and not (least <= ids.min() and ids.max() < vocabulary):
        wrong = ids[(ids < least) | (ids >= vocabulary)][0]
        raise ValueError(
            f"Unknown id among the {what}: got {wrong}, this vocabulary has ids from 0 to {vocabulary - 1}. "
            "Use the tokenizer of the same model."
        )
    return ids
