"""Passes packed for a view: a small record for each, and its columns of numbers as bytes.

Only a widget and its page exchange this form; files hold the JSON of docs/trace.md.
"""

import struct
from typing import Any

from ddgviz.schema import STATUSES

SHORT = 65_534
LARGEST = 3e38
MANY = 63
_OPTIONAL = (
    ("p", "probabilities", "f"),
    ("m", "margins", "f"),
    ("a", "num_active", "i"),
    ("c", "cluster", "i"),
    ("s", "sources", "i"),
)


def pack(data: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Pack a pass.

    Parameters
    ----------
    data : dict
        Pass of docs/trace.md, checked.

    Returns
    -------
    dict
        ``call``, ``n`` (slots), ``first`` (the first slot if the others follow it, else None), ``origins`` (names),
        ``wide`` (whether ids take four bytes), ``has`` (which optional columns follow) and a beam's ``lanes``.
    bytes
        Columns one after the other, little-endian: slots (int32, unless they follow the first), drafts and tokens (one
        more than the id, uint16 or int32), status and origin (uint8: two bits and six), probabilities and margins
        (float32, nan for none), num_active, cluster and sources (one more than the number, int32).
    """
    slots, count = data["slots"], len(data["slots"])
    first = slots[0] if slots else 0
    follow = slots == list(range(first, first + count))
    ids = [[token + 1 for token in data[name]] for name in ("drafts", "tokens")]
    wide = any(token > SHORT for column in ids for token in column)
    origins = sorted(set(data["origins"]))[:MANY]
    place = {origin: 4 * index for index, origin in enumerate(origins)}
    codes = [_STATUS[s] + place.get(o, 4 * MANY) for s, o in zip(data["status"], data["origins"], strict=True)]
    columns = [] if follow else [("i", slots)]
    columns += [("i" if wide else "H", column) for column in ids] + [("B", codes)]
    has = ""
    for letter, name, kind in _OPTIONAL:
        values = data.get(name)
        if values is not None:
            has += letter
            columns.append((kind, [_number(value, kind) for value in values]))
    record = {"call": data["call"], "n": count, "first": first if follow else None, "origins": origins, "wide": wide}
    record |= {"has": has} | ({"lanes": data["lanes"]} if data.get("lanes") else {})
    return record, b"".join(struct.pack(f"<{count}{kind}", *values) for kind, values in columns)


_STATUS = {status: index for index, status in enumerate(STATUSES)}


def _number(value: float | None, kind: str) -> float:
    if kind == "i":
        return 0 if value is None else int(value) + 1
    return float("nan") if value is None else max(-LARGEST, min(LARGEST, value))
