"""Position tables that are computed: those of Marian, M2M-100 and our own transformers."""

import math

import numpy as np

from fastdecode_lib.checkpoints.transformer import Architecture


def sinusoids(architecture: Architecture) -> np.ndarray:
    """Sinusoidal positions, float32 (max_positions, D), row 0 for the first token.

    Marian and our own compute the angles in float64; M2M-100 in float32, counting positions from behind the padding id.
    """
    width, number = architecture.width, architecture.max_positions
    half = width // 2
    if not architecture.positions_from_padding:
        frequencies = 10000.0 ** (-2.0 * np.arange(half + width % 2) / width)
        angles = np.outer(np.arange(number), frequencies)
        return np.concatenate([np.sin(angles), np.cos(angles[:, :half])], 1).astype(np.float32)
    powers = np.arange(half, dtype=np.float32) * np.float32(-(math.log(10000) / (half - 1)))
    rates = np.exp(powers.astype(np.float64)).astype(np.float32)
    first = architecture.position_offset
    angles = np.arange(first, first + number, dtype=np.float32)[:, None] * rates
    return np.pad(np.concatenate([np.sin(angles), np.cos(angles)], 1), ((0, 0), (0, width % 2)))
