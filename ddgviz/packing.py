"""Passes on their way to a view: a small record for each, and their columns of numbers as bytes.

Only the wire between a widget and its page speaks this; files hold the JSON of docs/trace.md.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ddgviz.schema import STATUSES

SHORT = 65_534
_OPTIONAL = (
    ("p", "probabilities", "<f4"),
    ("m", "margins", "<f4"),
    ("a", "num_active", "<i4"),
    ("c", "cluster", "<i4"),
)


def pack(iterations: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], bytes]:
    """Pack passes.

    Parameters
    ----------
    iterations : iterable of dict
        As docs/trace.md describes them, checked.

    Returns
    -------
    list of dict
        For each pass ``call``, ``n`` (slots), ``first`` (the first slot, where all follow it, else None), ``origins``
        (names), ``wide`` (whether ids take four bytes), ``has`` (which optional columns follow) and a beam's ``lanes``.
    bytes
        Columns one after the other, little-endian: slots (int32, unless they follow the first), drafts and tokens (one
        more than the id, uint16 or int32), status and origin (uint8: two bits and six), probabilities and margins
        (float32, nan for none), num_active and cluster (one more than the number, int32).
    """
    records, parts = [], []
    for data in iterations:
        record, columns = _pack(data)
        records.append(record)
        parts += columns
    return records, b"".join(part.tobytes() for part in parts)


def _pack(data: dict[str, Any]) -> tuple[dict[str, Any], list[np.ndarray]]:
    slots, count = data["slots"], len(data["slots"])
    follow = slots == list(range(slots[0], slots[0] + count)) if slots else True
    ids = np.array([data["drafts"], data["tokens"]], dtype=np.int64) + 1
    wide = bool(ids.size and ids.max() > SHORT)
    origins = sorted(set(data["origins"]))[:63]
    codes = [
        STATUSES.index(status) + 4 * (origins.index(origin) if origin in origins else 63)
        for status, origin in zip(data["status"], data["origins"], strict=True)
    ]
    columns = [] if follow else [np.array(slots, dtype="<i4")]
    columns += [*ids.astype("<i4" if wide else "<u2"), np.array(codes, dtype="u1")]
    has = ""
    for letter, name, kind in _OPTIONAL:
        values = data.get(name)
        if values is not None:
            has += letter
            columns.append(_numbers(values, kind))
    first = (slots[0] if slots else 0) if follow else None
    record = {"call": data["call"], "n": count, "first": first, "origins": origins, "wide": wide, "has": has}
    return record | ({"lanes": data["lanes"]} if data.get("lanes") else {}), columns


def _numbers(values: list[Any], kind: str) -> np.ndarray:
    if kind == "<f4":
        return np.array([np.nan if value is None else value for value in values], dtype=kind)
    return np.array([0 if value is None else value + 1 for value in values], dtype=kind)
