"""Ids from outside, checked before a kernel goes by them: kernels look up what they are told to, wherever that is."""

import numpy as np


def checked(what: str, ids: np.ndarray, least: int, vocabulary: int) -> np.ndarray:
    """Ids as contiguous int64, all from `least` to below `vocabulary`.

    Raises
    ------
    ValueError
        If one is not; `what` they are is for the message.
    """
    ids = np.ascontiguousarray(ids, dtype=np.int64)
    if ids.size and not (least <= ids.min() and ids.max() < vocabulary):
        wrong = ids[(ids < least) | (ids >= vocabulary)][0]
        raise ValueError(
            f"Unknown id among the {what}: got {wrong}, this vocabulary has ids from 0 to {vocabulary - 1}. "
            "Use the tokenizer of the same model."
        )
    return ids
