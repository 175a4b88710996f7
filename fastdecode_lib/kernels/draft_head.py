"""A step of a draft head."""

import numpy as np

from fastdecode_lib.kernels.attention import attend
from fastdecode_lib.kernels.compiling import kernel
from fastdecode_lib.kernels.elementwise import copy, log_sum
from fastdecode_lib.kernels.matrices import multiply
from fastdecode_lib.kernels.recurrent import POLYNOMIAL, gru, tangent

ENTER, STATE, TOKEN, QUERY, INNER, OUTER, ROWS = range(7)
"""Indices of a draft head's matrices in the array that its kernels take."""

_NONE = np.zeros(0, dtype=np.bool_)


@kernel
def head_enter(hidden, matrices, rounded, state):  # type: ignore[no-untyped-def]
    """A draft head's first state (1, ...) from the model's hidden vector (1, D)."""
    multiply(hidden, 1, matrices[ENTER], rounded, state)
    tangent(state[0], POLYNOMIAL)


@kernel
def head_step(token, state, width, words, embedding, matrices, keys, values, rounded, work, offsets, logits):  # type: ignore[no-untyped-def]
    """Feed a token to a draft head and score its vocabulary.

    Parameters
    ----------
    state : float32 array (1, ...)
        The first `width` entries are the state; replaced by the next one.
    words : int
        Size of the draft vocabulary.
    embedding : float32 array (V, E)
    matrices : int64 array (7, FIELDS)
        `matrices.Matrix.record` of each.
    keys, values : float32 arrays (heads, S, width / heads)
    rounded : int16 array (1, ...)
        From `matrices.scratch`, for the widest input.
    work : float32 array (4, ...)
        Room as wide as the widest result, or as the source is long, rounded up to a multiple of 16.
    offsets : int64 array (at least S, rounded up to a multiple of 16,)
        Room.
    logits : float32 array (1, ...)
        Logits of the draft vocabulary.

    Returns
    -------
    float
        The logarithm of the sum of the logits' exponentials.
    """
    multiply(embedding[token : token + 1], 1, matrices[TOKEN], rounded, work[0:1])
    multiply(state, 1, matrices[STATE], rounded, work[1:2])
    gates = 3 * width
    gru(state[0, :width], work[1, :gates], work[0, :gates], work[2, :width], work[3, :gates], POLYNOMIAL)
    copy(work[2], width, state[0])
    multiply(state, 1, matrices[QUERY], rounded, work[0:1])
    attend(work[0], keys, values, keys.shape[1], _NONE, work[1], offsets, work[2, width:])
    multiply(work[2:3], 1, matrices[INNER], rounded, work[0:1])
    for i in range(work.shape[1]):
        work[0, i] = max(work[0, i], np.float32(0.0))
    multiply(work[0:1], 1, matrices[OUTER], rounded, work[1:2])
    multiply(work[1:2], 1, matrices[ROWS], rounded, logits)
    return log_sum(logits, 0, words)
