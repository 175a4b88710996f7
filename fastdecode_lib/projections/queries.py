"""Checks of the arguments of projections; banning and ranking of scored candidates on the host, of equal scores the lowest id."""

from typing import Any

import numpy as np

from fastdecode_lib.core import Model
from fastdecode_lib.kernels.ids import checked, plain

NONE = np.zeros((1, 0), dtype=np.int64)
"""No ids, the same for all rows."""


def only_output(model: Model) -> Any:
    """The output layer of a model that has one.

    Raises
    ------
    ValueError
        If it has several.
    """
    if len(model.outputs) != 1:
        raise ValueError(
            f"This projection scores one output matrix, the model has {len(model.outputs)}. Use `Average` over one projection "
            "for each network."
        )
    return model.outputs[0]


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
    for row, row_banned in enumerate(banned):
        scores[row, np.isin(ids[row], row_banned[row_banned >= 0])] = -np.inf


def best_first(scores: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best scores and their ids, each (N, k), padded with -inf and -1 if there are fewer candidates.

    Parameters
    ----------
    scores : float array (N, M)
        -inf for ids that must not be chosen.
    ids : int array (N, M)
        Ascending within a row, padded with -1.

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


def host(values: Any) -> np.ndarray:
    """A float32 array of a torch tensor on the CPU, or of anything that numpy takes.

    Raises
    ------
    ValueError
        If a tensor is on another device.
    """
    device = getattr(values, "device", "cpu")
    if str(device) != "cpu":
        raise ValueError(f"This projection computes on the CPU: got a tensor on {device}. Move it with .cpu().")
    if hasattr(values, "detach"):
        values = values.detach().float().numpy()
    return plain(values, np.float32)


def check_width(hidden: Any, width: int) -> None:
    """Check that hidden vectors are (N, width).

    Raises
    ------
    ValueError
        If they have another shape.
    """
    if len(hidden.shape) != 2 or hidden.shape[1] != width:
        raise ValueError(
            f"The projection takes hidden vectors of width {width}, got {tuple(hidden.shape)}. Use the projection of the same "
            "model."
        )


def float_rows(hidden: Any, width: int) -> np.ndarray:
    """Hidden vectors (N, width) as contiguous float32 rows, checked for their width."""
    check_width(hidden, width)
    if hasattr(hidden, "detach"):
        hidden = hidden.detach().float()  # numpy has no bfloat16
    return np.ascontiguousarray(hidden, dtype=np.float32)


def checked_query(k: int, banned: np.ndarray | None, rows: int, vocabulary: int, most: int | None = None) -> np.ndarray:
    """Banned ids as kernels read them, int64 (1, M) or (N, M); k and the ids are checked.

    Parameters
    ----------
    k : int
        Number of candidates, at most `most`; any number if that is None.
    banned : int array (M,) or (N, M) padded with -1, or None
    rows : int
        N.

    Raises
    ------
    ValueError
        If k is out of range, or the ids are outside the vocabulary or not as many rows as the hidden vectors.
    """
    if most is None and k < 1:
        raise ValueError(f"top_k needs k from 1, got {k}. Ask for one candidate at least.")
    if most is not None and not 1 <= k <= most:
        raise ValueError(
            f"top_k needs k from 1 to the vocabulary's size {most}, got {k}. Ask for {most} candidates at most."
        )
    if banned is None:
        return NONE
    banned_ids = checked("banned tokens", np.atleast_2d(banned), -1, vocabulary)
    if len(banned_ids) not in (1, rows):
        raise ValueError(
            f"banned ids are (M,) for all or (N, M): got {banned_ids.shape} for {rows} hidden vectors. Give a row for each."
        )
    return banned_ids


def check_finite(hidden: np.ndarray) -> None:
    """Check that hidden vectors (N, D), for one of which no token was found, are finite.

    Raises
    ------
    ValueError
        If one of them is not.
    """
    if (not_finite := ~np.isfinite(hidden).all(1)).any():
        raise ValueError(
            f"Scores must be numbers: got hidden vectors with NaN or infinity at {not_finite.sum()} of {len(not_finite)} "
            "positions. The model's values overflow float32: load another checkpoint."
        )


def checked_ids(ids: np.ndarray, rows: int, vocabulary: int) -> np.ndarray:
    """The ids (N, M) of a call of ``log_probs`` as kernels read them, checked.

    Raises
    ------
    ValueError
        If they are outside the vocabulary, or not as many rows as the hidden vectors.
    """
    ids = checked("tokens to score", ids, 0, vocabulary)
    if ids.ndim != 2 or len(ids) != rows:
        raise ValueError(f"log_probs needs ids (N, M): got {ids.shape} for {rows} hidden vectors. Give a row for each.")
    return ids


def layer(weight: Any, bias: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """An output layer as float32 arrays, weight (V, D) and bias (V,), zeros if there is no bias.

    Raises
    ------
    ValueError
        If a shape is wrong or an entry is not finite.
    """
    weight = host(weight)
    if weight.ndim != 2 or weight.size == 0:
        raise ValueError(f"An output weight is (V, D): got shape {weight.shape}. Give one row for each token.")
    bias = np.zeros(len(weight), dtype=np.float32) if bias is None else host(bias).reshape(-1)
    if bias.shape != weight.shape[:1]:
        raise ValueError(f"An output bias is (V,): got {len(bias)} for {len(weight)} tokens. Give one number for each.")
    for name, values in (("weight", weight), ("bias", bias)):
        if not np.isfinite(values).all():
            raise ValueError(f"The output {name} must be finite: got NaN or infinity. Load or train the model again.")
    return weight, bias


def within(name: str, knob: str, value: int, least: int, most: int) -> None:
    """Check that the value of a knob is in its range.

    Raises
    ------
    ValueError
        If it is out of range.
    """
    if not least <= value <= most:
        raise ValueError(f"{name} needs {knob} from {least} to {most}, got {value}. Choose a number in this range.")
