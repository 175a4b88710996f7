"""Arguments of projections checked, and scored candidates banned and ranked on the host: best first, of equals the lowest id."""

from typing import Any

import numpy as np

from fastdecode_lib.core import Model
from fastdecode_lib.kernels.ids import checked

NONE = np.zeros((1, 0), dtype=np.int64)
"""No ids for all rows."""


def only_output(model: Model) -> Any:
    """The output layer of a model that has one.

    Raises
    ------
    ValueError
        If it has several.
    """
    if len(model.outputs) != 1:
        raise ValueError(
            f"This projection scores one output matrix, the model has {len(model.outputs)}. Use `Average` over one for "
            "each network."
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


def host(values: Any) -> np.ndarray:
    """A float32 array of a torch tensor on the CPU, or of anything numpy takes.

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
    """Refuse hidden vectors that are not (N, width).

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


def checked_query(k: int, banned: np.ndarray | None, rows: int, vocabulary: int, most: int | None = None) -> np.ndarray:
    """Banned ids as kernels read them, int64 (1, M) or (N, M), once k and they are checked.

    Parameters
    ----------
    k : int
        Candidates asked for, at most `most` of them; any number where it is None.
    banned : int array (M,) or (N, M) padded with -1, or None
    rows : int
        N.

    Raises
    ------
    ValueError
        If k is out of range, or the ids are unknown or of another number of rows.
    """
    if most is None and k < 1:
        raise ValueError(f"top_k needs k from 1, got {k}. Ask for one candidate at least.")
    if most is not None and not 1 <= k <= most:
        raise ValueError(
            f"top_k needs k from 1 to the vocabulary's size {most}, got {k}. Ask for as many as there are, at most."
        )
    if banned is None:
        return NONE
    refused = known_ids("banned tokens", np.atleast_2d(banned), -1, vocabulary)
    if len(refused) not in (1, rows):
        raise ValueError(
            f"banned ids are (M,) for all or (N, M): got {refused.shape} for {rows} hidden vectors. Give a row for each."
        )
    return refused


def check_found(ids: np.ndarray, hidden: np.ndarray) -> None:
    """Refuse hidden vectors (N, D) that are no numbers, where nothing (-1) was found among ids (N, k).

    Raises
    ------
    ValueError
        If there is one.
    """
    if len(ids) and ids[:, 0].min() < 0 and (none := ~np.isfinite(hidden).all(1)).any():
        raise ValueError(
            f"The scores are no numbers: got hidden vectors with NaN or infinity at {none.sum()} of {len(none)} positions. The "
            "model's numbers grow too large for float32: load another checkpoint."
        )


def checked_wanted(ids: np.ndarray, rows: int, vocabulary: int) -> np.ndarray:
    """Ids (N, M) whose log-probabilities are asked for, as kernels read them.

    Raises
    ------
    ValueError
        If they are unknown, or of another number of rows.
    """
    wanted = known_ids("tokens to score", ids, 0, vocabulary)
    if wanted.ndim != 2 or len(wanted) != rows:
        raise ValueError(
            f"log_probs needs ids (N, M): got {wanted.shape} for {rows} hidden vectors. Give a row for each."
        )
    return wanted


def known_ids(what: str, ids: np.ndarray, least: int, vocabulary: int) -> np.ndarray:
    """Checked queries in the one form that kernels are compiled for."""
    return plain(checked(what, ids, least, vocabulary), np.int64)


def plain(values: Any, kind: Any) -> np.ndarray:
    """An array in rows that can be written to, a copy if need be.

    For arrays that cannot, kernels would be compiled again, and not to the same last bits.
    """
    return np.require(values, kind, ["C", "A", "W"])


def layer(weight: Any, bias: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """An output layer as float32 arrays, weight (V, D) and bias (V,), zero where there is none.

    Raises
    ------
    ValueError
        If a shape is wrong or an entry is no finite number.
    """
    weight = host(weight)
    if weight.ndim != 2 or weight.size == 0:
        raise ValueError(f"An output weight is (V, D): got shape {weight.shape}. Give one row for each token.")
    bias = np.zeros(len(weight), dtype=np.float32) if bias is None else host(bias).reshape(-1)
    if bias.shape != weight.shape[:1]:
        raise ValueError(f"An output bias is (V,): got {len(bias)} for {len(weight)} tokens. Give one number for each.")
    for what, values in (("weight", weight), ("bias", bias)):
        if not np.isfinite(values).all():
            raise ValueError(f"The output {what} must be finite: got NaN or infinity. Load or train the model again.")
    return weight, bias


def within(name: str, knob: str, value: int, least: int, most: int) -> None:
    """Check a knob.

    Raises
    ------
    ValueError
        If it is out of range.
    """
    if not least <= value <= most:
        raise ValueError(f"{name} needs {knob} from {least} to {most}, got {value}. Choose a number in this range.")


def offsets_checked(what: str, offsets: np.ndarray, members: int) -> np.ndarray:
    """Offsets (..., C + 1) as int64, each row rising from 0 to the number of members.

    Raises
    ------
    ValueError
        If they do not.
    """
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if (offsets[..., 0] != 0).any() or (offsets[..., -1] != members).any() or (np.diff(offsets) < 0).any():
        raise ValueError(f"The {what} are damaged: got offsets that do not rise from 0 to {members}. Fit again.")
    return offsets
