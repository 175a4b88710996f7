"""Banning and ranking scored candidates on the host: best first, of equals the lowest id."""

import numpy as np


def ban(scores: np.ndarray, ids: np.ndarray, banned: np.ndarray) -> None:
    """Set the scores (N, M) of banned ids to minus infinity, in place.

    Parameters
    ----------
    scores, ids : (N, M)
    banned : int array (X,) for every row, or (N, X) padded with -1
    """
    if banned.ndim == 1:
        scores[np.isin(ids, banned)] = -np.inf
        return
    for row, own in enumerate(banned):
        scores[row, np.isin(ids[row], own[own >= 0])] = -np.inf


def best_first(scores: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best scores and their ids, each (N, k); -inf and -1 where fewer candidates are left.

    Parameters
    ----------
    scores : float array (N, M)
        -inf for what must not be chosen.
    ids : int array (N, M)
        Ascending within a row, -1 at its end.

    Raises
    ------
    ValueError
        If k is below 1.
    """
    if k < 1:
        raise ValueError(f"top_k needs k from 1, got {k}. Ask for one candidate at least.")
    rows, size = scores.shape
    best = np.full((rows, k), -np.inf, dtype=scores.dtype)
    chosen = np.full((rows, k), -1, dtype=np.int64)
    for row in range(rows):
        places = np.arange(size)
        if size > 4 * k:
            places = np.flatnonzero(scores[row] >= np.partition(scores[row], size - k)[size - k])
        order = places[np.argsort(-scores[row, places], kind="stable")][:k]
        order = order[np.isfinite(scores[row, order])]
        best[row, : len(order)], chosen[row, : len(order)] = scores[row, order], ids[row, order]
    return best, chosen
