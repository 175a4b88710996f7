"""Schema of traces; every error says what is wrong, what was received, and what to do."""

import itertools
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeGuard

FORMAT = "fastdecode-trace"
VERSION = 1
MAX_SLOT = 99_999
LARGEST = 2**31 - 2
EXTRA = ("anywidget", "ipywidgets", "networkx", "pandas", "plotly")
"""Packages of the extra ``viz``: without them, traces are read and saved as pictures and pages."""
STATUSES = ("settled", "changed", "draft", "masked")
AGAIN = "Record the trace again; its form is in docs/trace.md."


@dataclass(frozen=True, slots=True)
class Lane:
    """A hypothesis of a beam after a pass."""

    tokens: tuple[int, ...]
    score: float | None
    finished: bool


@dataclass(frozen=True, slots=True)
class Iteration:
    """One pass of the decoder network; lists have one entry per slot computed."""

    call: int
    slots: tuple[int, ...]
    drafts: tuple[int, ...]
    origins: tuple[str, ...]
    tokens: tuple[int, ...]
    status: tuple[str, ...]
    probabilities: tuple[float | None, ...]
    margins: tuple[float | None, ...]
    num_active: tuple[int | None, ...]
    cluster: tuple[int | None, ...]
    sources: tuple[int | None, ...]
    lanes: tuple[Lane, ...]


def fail(wrong: str, received: object, remedy: str = AGAIN) -> ValueError:
    """An error in three parts."""
    return ValueError(f"{wrong}, got {short(received)}. {remedy}")


def optional(module: str, what: str) -> Any:
    """Import a module that needs the extra ``viz``, or raise an error that names the missing package."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        raise ImportError(
            f"{what} needs the package {error.name}, which is not installed. Install it with: pip install 'fastdecode[viz]'"
        ) from error


def check_boxes(what: str) -> None:
    """Refuse boxes of several widgets in a marimo notebook, which draws single ones.

    Raises
    ------
    ValueError
    """
    marimo = sys.modules.get("marimo")
    if marimo is not None and marimo.running_in_notebook():
        remedy = "Show single pictures: mo.ui.anywidget(ddgviz.show(trace)); or save a page with ddgviz.save."
        raise fail(f"{what} is made of ipywidgets' boxes, which marimo does not draw", "a marimo notebook", remedy)


def short(value: object) -> str:
    """`value` for a message: its type and length if it is large, else itself."""
    if isinstance(value, (list, tuple, dict)) and len(value) > 6:
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_EXACT = {str, bool, type(None)}
_NUMBERS = {int, float, type(None)}


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: arrays as lists, numbers that are not finite as None."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return (int if isinstance(value, int) else float)(value) if _is_finite(value) else None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value))
        if kinds <= _EXACT:
            return list(value)
        if kinds <= _NUMBERS:
            return [None if item is None or not _is_finite(item) else item for item in value]
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise fail("A trace holds numbers, strings, lists and objects", type(value).__name__)


def _is_finite(value: float) -> bool:
    """Whether a float can hold it."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_header(data: Mapping[str, Any]) -> None:
    """Refuse data that is no trace, or a trace that this version cannot read."""
    if data.get("format") != FORMAT:
        raise fail(f'Not a decoding trace: expected "format": "{FORMAT}"', data.get("format"), _HOW_TO_GET_ONE)
    version = data.get("version")
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        remedy = "Update ddgviz." if newer else AGAIN
        raise fail(f"ddgviz reads version {VERSION} of the trace", f"version {version!r}", remedy)
    for key in ("source", "target", "settings"):
        if not isinstance(data.get(key), dict):
            raise fail(f'The trace needs an object "{key}"', data.get(key))
    integers(data.get("end"), '"end"')


_HOW_TO_GET_ONE = "Pass the JSON that Trace.to_json() writes, its path, or an object with to_dict()."


def check_pieces(pieces: Any) -> dict[int, str]:
    """Texts by token id."""
    if not isinstance(pieces, dict):
        raise fail('The trace needs an object "pieces"', pieces)
    for key, text in pieces.items():
        if not re.fullmatch(r"-?[0-9]{1,18}", key) or not isinstance(text, str):
            raise fail('"pieces" gives a text for each token id', {key: text})
    return {int(key): text for key, text in pieces.items()}


def check_hypotheses(value: Any) -> list[dict[str, Any]]:
    """Outputs, best first."""
    if not isinstance(value, list):
        raise fail('The trace needs a list "hypotheses"', value)
    for item in value:
        if not isinstance(item, dict):
            raise fail("A hypothesis is an object", item)
        integers(item.get("tokens"), '"tokens" of a hypothesis')
    return value


def check_edges(value: Any) -> list[dict[str, Any]]:
    """Measured dependencies between slots."""
    edges = value or []
    if not isinstance(edges, list):
        raise fail('"edges" is a list', value)
    for edge in edges:
        ends: list[Any] = [edge.get("from"), edge.get("to")] if isinstance(edge, dict) else [None]
        strength = edge.get("strength") if isinstance(edge, dict) else None
        if not all(_is_integer(end) and 0 <= end <= MAX_SLOT for end in ends) or not isinstance(strength, (int, float)):
            raise fail('An edge has "from", "to" and a "strength" from 0 to 1', edge)
        if ends[0] >= ends[1]:
            raise fail("An edge leads from a position to a later one", edge)
    return edges


def check_iteration(data: Any, number: int) -> Iteration:
    """One pass, its lists of equal length.

    Parameters
    ----------
    data : object
        Pass as in docs/trace.md, numbers finite or None.
    number : int
        Its place among the passes, from 0, for messages.
    """
    where = f"pass {number + 1}"
    if not isinstance(data, dict):
        raise fail(f"The trace needs an object for {where}", data)
    call = data.get("call")
    if not _is_integer(call) or call < 0:
        raise fail(f'{where} needs its number "call"', call)
    slots = integers(data.get("slots"), f'"slots" of {where}')
    if any(abs(slot) > MAX_SLOT for slot in slots) or any(_place(a) >= _place(b) for a, b in itertools.pairwise(slots)):
        wrong = f'"slots" of {where} must be ascending positions from 0 to {MAX_SLOT}, then those counted from the end'
        raise fail(wrong, list(slots))
    status = _strings(data, "status", where)
    if unknown := [item for item in status if item not in STATUSES]:
        raise fail(f'"status" of {where} knows {", ".join(STATUSES)}', unknown[0])
    lists: dict[str, Any] = {
        "drafts": integers(data.get("drafts"), f'"drafts" of {where}'),
        "origins": _strings(data, "origins", where),
        "tokens": integers(data.get("tokens"), f'"tokens" of {where}'),
        "status": status,
        "probabilities": _numbers(data, "probabilities", where, len(slots)),
        "margins": _numbers(data, "margins", where, len(slots)),
        "num_active": _numbers(data, "num_active", where, len(slots)),
        "cluster": _numbers(data, "cluster", where, len(slots)),
        "sources": _numbers(data, "sources", where, len(slots)),
    }
    for key, values in lists.items():
        if len(values) != len(slots):
            wrong = f'"{key}" of {where} needs one entry for each of its {len(slots)} slots'
            raise fail(wrong, f"{len(values)} entries")
    for key, values in (("drafts", lists["drafts"]), ("tokens", lists["tokens"])):
        if values and not (min(values) >= -1 and max(values) <= LARGEST):
            raise fail(f'"{key}" of {where} are ids from -1 (none) to {LARGEST}', [min(values), max(values)])
    for key in ("num_active", "cluster"):
        if any(value is not None and not (_is_integer(value) and 0 <= value <= LARGEST) for value in lists[key]):
            raise fail(f'"{key}" of {where} are whole numbers from 0 to {LARGEST}, or null', lists[key])
    if any(value is not None and not (_is_integer(value) and -1 <= value <= MAX_SLOT) for value in lists["sources"]):
        wrong = f'"sources" of {where} are places in the source from 0 to {MAX_SLOT}, or -1 for none'
        raise fail(wrong, list(lists["sources"]))
    lanes = tuple(_lane(lane, where) for lane in _list(data.get("lanes"), f'"lanes" of {where}'))
    return Iteration(call=call, slots=slots, lanes=lanes, **lists)


def _place(slot: int) -> tuple[bool, int]:
    """Sort key of a slot: those counted from the end come last."""
    return slot < 0, slot


def _list(value: Any, what: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise fail(f"{what} is a list or null", value)
    return value or []


def _lane(value: Any, where: str) -> Lane:
    if not isinstance(value, dict):
        raise fail(f'A lane of {where} has "tokens", "score" and "finished"', value)
    score = value.get("score")
    if score is not None and not isinstance(score, (int, float)):
        raise fail(f'"score" of a lane of {where} is a number or null', score)
    return Lane(integers(value.get("tokens"), f'"tokens" of a lane of {where}'), score, bool(value.get("finished")))


def check_clusters(value: Any) -> dict[int, dict[str, Any]]:
    """Active sets by number of their cluster, each with ``size`` and ``tokens``."""
    clusters = value or {}
    if not isinstance(clusters, dict):
        raise fail('"clusters" is an object', value)
    for key, item in clusters.items():
        valid = isinstance(item, dict) and _is_integer(item.get("size")) and item["size"] >= 0
        if not valid or not re.fullmatch(r"[0-9]{1,9}", key):
            raise fail('"clusters" gives "size" and "tokens" for each number of a cluster', {key: item})
        integers(item.get("tokens"), f'"tokens" of cluster {key}')
    return {int(key): item for key, item in clusters.items()}


def integers(value: Any, what: str) -> tuple[int, ...]:
    """A list of integers."""
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise fail(f"The trace needs a list of integers as {what}", value)
    return tuple(value)


def _strings(data: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = data.get(key)
    if not isinstance(value, list) or not set(map(type, value)) <= {str}:
        raise fail(f'The trace needs a list of strings as "{key}" of {where}', value)
    return tuple(value)


def _numbers(data: Mapping[str, Any], key: str, where: str, count: int) -> tuple[float | None, ...]:
    value = data.get(key)
    if value is None:
        return (None,) * count
    if not isinstance(value, list) or not set(map(type, value)) <= _NUMBERS | {bool}:
        raise fail(f'The trace needs a list of numbers as "{key}" of {where}', value)
    return tuple(value)


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
