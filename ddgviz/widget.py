"""The live picture for notebooks: grows with a run, plays, and answers to mouse and keys."""

import base64
import copy
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from ddgviz import words
from ddgviz.address import representation
from ddgviz.assets import script, styles
from ddgviz.browser import convert
from ddgviz.later import LATER
from ddgviz.packing import pack
from ddgviz.schema import fail, plain
from ddgviz.svg import svg
from ddgviz.text import visible
from ddgviz.theme import theme_named
from ddgviz.trace import TraceModel, read

SEND_EVERY = 0.05
SEAL_EVERY = 2.0
STILL = 340
STILL_COLUMNS = 40


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_VIEW: dict[str, Callable[[Any], bool]] = {
    "pass": _whole,
    "row": _whole,
    "column": _whole,
    "graph": lambda value: value in ("auto", "measured", "order", "none"),
    "zoom": lambda value: isinstance(value, (int, float)) and (value == 0 or 0.05 <= value <= 4),
    "brush": lambda value: (
        value is None
        or (isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_whole, value)) and value[0] <= value[1])
    ),
    "find": lambda value: isinstance(value, str),
    "cluster": lambda value: value is None or _whole(value),
    "speed": lambda value: value in (0.5, 1, 2, 4),
    "loop": lambda value: isinstance(value, bool),
}


class Picture(anywidget.AnyWidget):
    """A trace, drawn; append events to make it grow.

    A saved notebook also holds the picture as SVG, for pages without widgets, the data from which a page plays it, and, if the
    environment variable DDGVIZ_PNG is set, a PNG, which takes Chromium and a second or two each time.

    Attributes
    ----------
    view : dict
        Current view of the reader: ``pass`` (how many are shown); with a token pinned, ``row`` and ``column``; and, if not
        the default, ``graph`` (measured, order, none), ``zoom`` (1 is full size), ``brush`` (first and last
        position in view), ``find``, ``cluster``, ``speed`` (0.5, 1, 2, 4) and ``loop``. Setting it moves the picture;
        keys left out take their defaults.
    notice : str
        A message shown above the picture, as text; empty for none.
    earlier : bool
        Whether the picture is of a run before the one that was asked for; it is drawn faded until that one begins.
    group : str
        Pictures of one group on a page share the token under the cursor and the pass shown; empty for none.
    match : list of int
        For each position, the position of the same token in the compared picture; -1 for none; empty without a compared
        picture.
    palette : str
        ``auto`` follows the page, light or dark; else a theme's name.
    """

    _esm = script()
    _css = styles()
    trace_json = traitlets.Unicode("").tag(sync=True)
    rows = traitlets.Bytes(b"").tag(sync=True)
    words = traitlets.Dict(words.spoken(TraceModel(), range(0))).tag(sync=True)
    running = traitlets.Bool(False).tag(sync=True)
    seq = traitlets.Int(0).tag(sync=True)
    view = traitlets.Dict().tag(sync=True)
    notice = traitlets.Unicode("").tag(sync=True)
    earlier = traitlets.Bool(False).tag(sync=True)
    group = traitlets.Unicode("").tag(sync=True)
    match = traitlets.List(traitlets.Int()).tag(sync=True)
    palette = traitlets.Unicode("auto").tag(sync=True)
    name = traitlets.Unicode().tag(sync=True)

    def __init__(self, trace: Any = None) -> None:
        super().__init__(name=uuid.uuid4().hex)
        self._lock = threading.RLock()
        self._flushing = False
        self._pending: list[dict[str, Any]] = []
        self._sent = self._sealed = 0.0
        self._number = 0
        self._spoken: dict[str, Any] = {}
        self._packed: list[tuple[dict[str, Any], bytes]] = []
        self.model = TraceModel()
        if trace is not None:
            self.show(trace)

    @traitlets.validate("view")
    def _sane(self, proposal: dict[str, Any]) -> dict[str, Any]:
        view: dict[str, Any] = proposal["value"]
        for key, value in view.items():
            if key not in _VIEW or not _VIEW[key](value):
                known = ", ".join(_VIEW)
                raise fail(f"A view has {known}, as the docstring of Picture says", {key: value}, "Mend this entry.")
        return view

    @traitlets.validate("palette")
    def _known(self, proposal: dict[str, Any]) -> str:
        name: str = proposal["value"]
        if name != "auto":
            theme_named(name)
        return name

    @traitlets.validate("notice")
    def _spell(self, proposal: dict[str, Any]) -> str:
        return visible(proposal["value"], keep="\n")

    def show(self, trace: Any) -> None:
        """Replace what is drawn by a whole trace."""
        self._show(read(copy.deepcopy(trace) if isinstance(trace, TraceModel) else trace))

    def clear(self) -> None:
        """Draw nothing."""
        self._show(TraceModel())

    def _show(self, model: TraceModel) -> None:
        with self._lock:
            self.model, self._spoken = model, {}
            self._packed = [pack(row) for row in model.to_dict()["iterations"]]
            self._pending.clear()
            self._number += 1
            self.view, self.earlier = {}, False
            self._seal()

    def append(self, event: dict[str, Any]) -> None:
        """Take one event of docs/trace.md; the first pass is sent to views at once, later ones at most twenty times a second.

        Raises
        ------
        ValueError
            If the event is damaged or out of order; the picture stays as it was.
        """
        with self._lock:
            event = plain(event)
            kind = event.get("event") if isinstance(event, dict) else None
            if kind == "start":
                self.flush()
            self.model.take(event)
            if kind == "start":
                self.view, self.earlier, self._spoken, self._packed = {}, False, {}, []
            if kind == "iteration":
                self._packed.append(pack(event))
            self._number += 1
            self._pending.append(event)
            wait = self._sent + SEND_EVERY - time.monotonic()
            if self.model.finished or wait <= 0 or (kind == "iteration" and self.model.rows == 1):
                self.flush()
            elif not self._flushing:
                self._wait(wait, self.flush)

    def flush(self) -> None:
        """Send the waiting events now."""
        with self._lock:
            pending, self._pending = self._pending, []
            if not pending:
                return
            self._wait(None)
            self._sent = time.monotonic()
            first = self._number - len(pending) + 1
            rows = sum(event["event"] == "iteration" for event in pending)
            spelled = {int(token) for event in pending for token in event.get("pieces", {})}
            if self.model.finished:
                news = whole = words.spoken(self.model, range(self.model.rows))
            else:
                news, whole = words.spoken(self.model, range(self.model.rows - rows, self.model.rows), spelled), None
            packed = self._packed[len(self._packed) - rows :]
            buffer, records = b"".join(columns for _, columns in packed), iter(record for record, _ in packed)
            events = [
                {"event": "iteration"} | next(records) if event["event"] == "iteration" else _bare(event)
                for event in pending
            ]
            news = {key: value for key, value in news.items() if self._is_news(key, value)}
            self._spoken |= {key: value for key, value in news.items() if isinstance(value, str)}
            self.send({"k": "rows", "seq": first, "words": news, "events": events}, buffers=[buffer])
            remaining = self._sealed + SEAL_EVERY - self._sent
            if self.model.finished or remaining <= 0:
                self._seal(whole)
            else:
                self._wait(remaining, self._seal)

    def _is_news(self, key: str, value: Any) -> bool:
        """Whether these words were not yet sent to views."""
        return value != self._spoken.get(key) if isinstance(value, str) else bool(value)

    def _wait(self, seconds: float | None, act: Callable[[], None] | None = None) -> None:
        """Schedule a call in place of the waiting one; without a time, only cancel that."""
        self._flushing = act == self.flush
        if seconds is None or act is None:
            LATER.cancel(self.name)
        else:
            LATER.call(self.name, seconds, act)

    def _seal(self, texts: dict[str, Any] | None = None) -> None:
        """Set the whole trace, with which views begin that are opened later."""
        with self._lock, self.hold_sync():
            self._sealed = time.monotonic()
            self.trace_json = _sealed(self.model, [record for record, _ in self._packed])
            self.rows = b"".join(columns for _, columns in self._packed)
            self.words = texts or words.spoken(self.model, range(self.model.rows))
            self.running = bool(self.model.header) and not self.model.finished
            self.seq = self._number

    def to_dict(self) -> dict[str, Any]:
        """The trace drawn, as docs/trace.md describes it."""
        with self._lock:
            return copy.deepcopy(self.model.to_dict())

    def __repr__(self) -> str:
        if not self.model.header:
            return "Picture(empty)"
        count = len(self.model.tokens) if self.model.complete else len(self.model.settled)
        decoder = visible(str(self.model.header["settings"].get("decoder", "")))
        return f"Picture({self.model.rows} passes, {count} tokens, {decoder!r})"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        data["text/plain"] = repr(self)
        with self._lock:
            if self.model.rows and self.model.columns:
                data |= still(self.model) | representation(self.model)
        return data, metadata


def _bare(event: dict[str, Any]) -> dict[str, Any]:
    """An event without the texts of tokens and of active sets, which are in the words."""
    return {key: value for key, value in event.items() if key not in ("pieces", "clusters")}


def _sealed(model: TraceModel, records: list[dict[str, Any]]) -> str:
    """The whole trace for a view as JSON, packed passes in place of the passes."""
    if not model.header:
        return ""
    trace = _bare(model.to_dict()) | {"iterations": records}
    return json.dumps(trace, sort_keys=True, separators=(",", ":"), allow_nan=False)


def still(model: TraceModel) -> dict[str, str]:
    """The picture for pages without widgets, by MIME type; a part of it if it is large."""
    columns = min(model.columns, STILL_COLUMNS)
    drawing = svg(model, window=((0, max(1, STILL // columns)), (0, columns)))
    pictures = {
        "text/html": f'<img alt="Decoding, pass by pass" src="data:image/svg+xml;base64,{_base64(drawing.encode())}">'
    }
    return pictures | {"image/png": _base64(convert(drawing, "png"))} if os.environ.get("DDGVIZ_PNG") else pictures


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def show(trace: Any, palette: str = "auto") -> Picture:
    """Draw a trace.

    Parameters
    ----------
    trace : TraceModel, dict, JSON text, path, or object with ``to_dict()``
    palette : str
        ``auto`` follows the page, light or dark; else a theme's name, such as ``print`` or ``colorblind``.

    Returns
    -------
    Picture
        Shown where it is the last value of a notebook cell.
    """
    picture = Picture(trace)
    picture.palette = palette
    return picture
