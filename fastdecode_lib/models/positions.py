"""Positions that are computed: sinusoids of Marian, M2M-100 and our own transformers, and the relative ones of T5."""

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


def relative_rows(architecture: Architecture, side: str) -> np.ndarray:
    """The row of a side's table of relative positions for each distance from one token to another.

    int64 (2 D + 1,) for distances from -D to D, where D is `Architecture.relative_distance`; distances beyond have the last row
    of their direction. Near distances have a row each, farther ones share rows on a logarithmic scale, computed in float32.
    The encoder uses half of the rows for tokens behind; the decoder, which does not see those, uses all rows for tokens in front.
    """
    distances = np.arange(-architecture.relative_distance, architecture.relative_distance + 1)
    if side == "encoder":
        half = architecture.relative_buckets // 2
        return _scale(np.abs(distances), half, architecture.relative_distance) + half * (distances > 0)
    return _scale(np.maximum(-distances, 0), architecture.relative_buckets, architecture.relative_distance)


def _scale(distances: np.ndarray, rows: int, farthest: int) -> np.ndarray:
    """Rows of distances from 0 on: half of the rows one by one, the others on a logarithmic scale."""
    linear_rows = rows // 2
    times = np.maximum(distances, 1).astype(np.float32) / np.float32(linear_rows)
    share = np.log(times.astype(np.float64)).astype(np.float32) / np.float32(math.log(farthest / linear_rows))
    log_rows = linear_rows + (share * np.float32(rows - linear_rows)).astype(np.int64)
    return np.where(distances < linear_rows, distances, np.minimum(log_rows, rows - 1))
