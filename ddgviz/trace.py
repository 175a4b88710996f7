"""Reads a trace, whole or event by event, into a grid of passes and positions."""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddgviz.consistency import check_ends, check_output, check_row
from ddgviz.schema import (
    AGAIN,
    Iteration,
    check_clusters,
    check_edges,
    check_header,
    check_hypotheses,
    check_iteration,
    check_pieces,
    fail,
    plain,
    short,
)
from ddgviz.text import Label, label

NOTHING = Label("", False)
LIVE_COLUMNS = 40
LIVE_AHEAD = 12
PLAIN = frozenset({"", "pad", "recycled", "mask"})
"""Origins of drafts that have no mark in the picture."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the grid: one pass at one position.

    Attributes
    ----------
    row, column : int
        Pass and position, both from 0.
    kind : str
        ``settled`` in an earlier pass, ``new``: settled in this one, ``draft``, ``masked`` or ``empty``.
    token : int
        Id of the token, -1 where there is none.
    label : Label
        Text of the token as drawn.
    probability, margin : float or None
        Probability of the token and margin over the second best, in the pass that computed it.
    draft : int
        Token before the pass, -1 for none.
    origin : str
        Source of that draft.
    moved : bool
        Whether the pass replaced a draft that was more than padding.
    guess : str
        ``right`` or ``wrong`` for a draft that this pass verified and that has a mark, else empty.
    source : int
        Place of the source's piece that the draft came from, -1 for none.
    """

    row: int
    column: int
    kind: str
    token: int = -1
    label: Label = NOTHING
    probability: float | None = None
    margin: float | None = None
    draft: int = -1
    origin: str = ""
    moved: bool = False
    guess: str = ""
    source: int = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A token that a beam search appended to a hypothesis.

    Attributes
    ----------
    token : int
    label : Label
    score : float or None
        Score of the hypothesis that ends here.
    parent : int
        Index among the nodes one column to the left; -1 for none.
    finished, best : bool
        Whether the hypothesis ends here for good, and whether the best one runs through here.
    """

    token: int
    label: Label
    score: float | None
    parent: int
    finished: bool
    best: bool


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring cells that one pass computed together, or several passes until all were settled; ends are exclusive."""

    row: int
    end_row: int
    column: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Pick:
    """The cluster that a pass picked at a position, and how many tokens it scored there."""

    column: int
    cluster: int
    active: int | None
    settled: bool


class TraceModel:
    """A trace as a grid; grows by `append`.

    Attributes
    ----------
    header : dict
        ``source``, ``target``, ``settings``, ``end`` and the format's name and version; empty before the first event.
    iterations : list of Iteration
        The passes so far: the grid's rows.
    settled : dict of int to (int, int)
        Row and entry within it that settled each settled slot. Slots below 0 count from the end.
    finished : bool
        Whether the ``end`` event was appended.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.header: dict[str, Any] = {}
        self.pieces: dict[int, str] = {}
        self.iterations: list[Iteration] = []
        self.settled: dict[int, tuple[int, int]] = {}
        self.hypotheses: list[dict[str, Any]] = []
        self.greedy: dict[str, Any] | None = None
        self.edges: list[dict[str, Any]] = []
        self.clusters: dict[int, dict[str, Any]] = {}
        self.finished = self.beam = self.masks = self.grouped = self.sourced = False
        self.origins: set[str] = set()
        self.right = 0
        self._labels: dict[int, Label] = {}
        self._rows: list[dict[str, Any]] = []
        self._reach = 0
        self._end: frozenset[int] = frozenset()

    def append(self, event: dict[str, Any]) -> None:
        """Take one event of docs/trace.md: ``start`` (which clears), ``iteration`` or ``end``.

        Raises
        ------
        ValueError
            If the event is damaged, unknown, or out of order.
        """
        self.take(plain(event))

    def take(self, event: dict[str, Any]) -> None:
        """`append` for an event that is already plain, as `schema.plain` makes it."""
        kind = event.get("event") if isinstance(event, dict) else None
        if kind not in ("start", "iteration", "end"):
            raise fail('An event is "start", "iteration" or "end"', kind, "Events are described in docs/trace.md.")
        body = {key: value for key, value in event.items() if key != "event"}
        if kind == "start":
            check_header(body)
            self._clear()
            self.header = body
            self._end = frozenset(body["end"])
            return
        if not self.header or self.finished:
            state = "after the end" if self.finished else "before the start"
            raise fail("A run is a start, its passes, and one end", f'"{kind}" {state}', "Send the start event first.")
        pieces = self.pieces | check_pieces(body.pop("pieces", {}))
        if kind == "iteration":
            self._append_row(body, pieces)
        else:
            self._finish(body, pieces)
        self.pieces = pieces

    def _append_row(self, body: dict[str, Any], pieces: Collection[int]) -> None:
        row = len(self.iterations)
        iteration = check_iteration(body, row)
        if self.iterations and iteration.call <= self.iterations[-1].call:
            raise fail(f"Passes come in order, after {self.iterations[-1].call}", f'"call": {iteration.call}')
        lanes, source = self.iterations[-1].lanes if self.iterations else (), self.header["source"].get("pieces")
        check_row(iteration, row, lanes, pieces, source)
        settled: dict[int, tuple[int, int]] = {}
        for index, (slot, token) in enumerate(zip(iteration.slots, iteration.tokens, strict=True)):
            entry = self.settled.get(slot)
            if entry is None:
                if iteration.status[index] == "settled":
                    settled[slot] = (row, index)
            elif self.iterations[entry[0]].tokens[entry[1]] != token:
                earlier = self.iterations[entry[0]].tokens[entry[1]]
                raise fail(f"Slot {slot} was settled as token {earlier} and must stay", f"{token} in pass {row + 1}")
        self.settled |= settled
        self.iterations.append(iteration)
        self._rows.append(body)
        self._reach = max(self._reach, *(slot + 1 for slot in iteration.slots), 0)
        self.right = max(self.right, *(-slot for slot in iteration.slots), 0)
        self.beam = self.beam or bool(iteration.lanes)
        self.masks = self.masks or "masked" in iteration.status
        self.grouped = self.grouped or any(cluster is not None for cluster in iteration.cluster)
        self.origins.update(iteration.origins)
        self.sourced = self.sourced or any(place is not None and place >= 0 for place in iteration.sources)

    def _finish(self, body: dict[str, Any], pieces: Collection[int]) -> None:
        hypotheses = check_hypotheses(body.get("hypotheses"))
        edges, clusters = check_edges(body.get("edges")), check_clusters(body.get("clusters"))
        greedy = body.get("greedy")
        kinds = [type(greedy.get(key)) for key in ("calls", "identical")] if isinstance(greedy, dict) else []
        if greedy is not None and kinds != [int, bool]:
            raise fail('"greedy" is null, or has "calls", a number, and "identical", true or false', greedy)
        if hypotheses and hypotheses[0].get("stop") != "interrupted":
            self._check_ends(len(hypotheses[0]["tokens"]))
            check_ends(edges, len(hypotheses[0]["tokens"]))
        settled = ((slot, self.iterations[row].tokens[index]) for slot, (row, index) in self.settled.items())
        check_output(hypotheses, settled, pieces)
        self.hypotheses, self.edges, self.clusters, self.greedy = hypotheses, edges, clusters, greedy
        target = body.get("target")
        if isinstance(target, dict):
            self.header = self.header | {"target": target}
        self.finished = True

    def _check_ends(self, length: int) -> None:
        """Refuse slots counted from the end that name no token of the output, or one that is counted from the start too."""
        for iteration in self.iterations:
            for slot in iteration.slots:
                if slot < 0 and not self._reach <= slot + length:
                    slot_name = f"slot {slot} of {length} tokens, the first {self._reach} counted from the start"
                    raise fail("A slot counted from the end names a token that no other slot names", slot_name)

    @property
    def rows(self) -> int:
        """Passes so far."""
        return len(self.iterations)

    @property
    def complete(self) -> bool:
        """Whether the run came to its own end, so that the output's length is known."""
        return bool(self.hypotheses) and self.hypotheses[0].get("stop") != "interrupted"

    @property
    def seconds(self) -> float | None:
        """Total time of the passes; None if the time of a pass is unknown."""
        times = [row.get("seconds") for row in self._rows]
        known_times = [time for time in times if isinstance(time, (int, float)) and time > 0]
        return sum(known_times) if known_times and len(known_times) == len(times) else None

    @property
    def late(self) -> bool:
        """Whether no token is settled before all are, as in a search or with masks."""
        searched = self.right > 0 and next(iter(self.settled.values()), (self.rows, 0))[0] > 0
        return self.beam or self.masks or searched

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens of the output, the end included; empty while decoding runs."""
        return tuple(self.hypotheses[0]["tokens"]) if self.hypotheses else ()

    @property
    def columns(self) -> int:
        """Positions to draw: the output's length, at least as far as a beam searched; during a run, those computed so far."""
        if self.complete:
            return max(len(self.tokens), self.rows if self.beam else 0)
        if self.right:
            return self._reach + 1 + self.right
        if self.beam:
            return self._reach
        return min(self._reach, max(LIVE_COLUMNS, len(self.settled) + LIVE_AHEAD))

    def slot(self, column: int) -> int:
        """Slot drawn in a column: a position, or one counted from the end where decoding grows from both ends."""
        return column if not self.right or column < self._reach else column - self.columns

    def column(self, slot: int) -> int:
        """Column in which a slot is drawn; slots counted from the end move until the output's length is known."""
        return slot if slot >= 0 else slot + self.columns

    @property
    def beyond(self) -> int:
        """Positions that passes computed and that are not drawn."""
        return max(0, self._reach + self.right - self.columns) if self.complete or not self.right else 0

    def label(self, token: int) -> Label:
        """Label of `token`."""
        if token < 0:
            return NOTHING
        if token not in self._labels:
            label_of = label(self.pieces.get(token, f"#{token}"), token in self._end)
            if token not in self.pieces:
                return label_of
            self._labels[token] = label_of
        return self._labels[token]

    def cells(self, row: int, columns: Collection[int] | None = None) -> list[Cell]:
        """One pass of the grid, a cell for each of `columns`, or for all."""
        places = {slot: index for index, slot in enumerate(self.iterations[row].slots)}
        shown = range(self.columns) if columns is None else columns
        slots = map(self.slot, shown) if self.right else shown
        return [self._cell(row, column, slot, places.get(slot)) for column, slot in zip(shown, slots, strict=True)]

    def _cell(self, row: int, column: int, slot: int, index: int | None) -> Cell:
        entry = self.settled.get(slot)
        if entry is not None and entry[0] <= row:
            origin_row, index = entry
            kind = "new" if origin_row == row else "settled"
        elif index is None:
            return Cell(row, column, "empty")
        else:
            origin_row = row
            kind = "masked" if self.iterations[row].status[index] == "masked" else "draft"
        computed = self.iterations[origin_row]
        draft, origin = computed.drafts[index], computed.origins[index]
        token = computed.tokens[index]
        guessed = kind != "settled" and draft >= 0 and origin not in PLAIN
        return Cell(
            row=row,
            column=column,
            kind=kind,
            token=token,
            label=self.label(token),
            probability=computed.probabilities[index],
            margin=computed.margins[index],
            draft=draft,
            origin=origin,
            moved=kind == "draft" and draft >= 0 and origin != "pad" and draft != token,
            guess=("right" if draft == token else "wrong") if guessed else "",
            source=-1 if (place := computed.sources[index]) is None else place,
        )

    def new_columns(self, row: int) -> list[int]:
        """Positions within the picture that the pass settled, ascending."""
        columns = (self.column(slot) for slot, (origin, _) in self.settled.items() if origin == row)
        return sorted(column for column in columns if column < self.columns)

    def blocks(self) -> list[Block]:
        """Cells that passes computed as one: a window pass by pass, a block of the output until it is settled."""
        outlines: list[Block] = []
        reach: int | None = None
        for row, iteration in enumerate(self.iterations):
            slots = iteration.slots
            if len(slots) < 2 or slots[-1] < 0 or self.late or slots[0] >= self.columns:
                reach = None if len(slots) > 1 else reach
                if len(slots) == 1 and slots[0] == reach:
                    outlines[-1] = replace(outlines[-1], end_row=row + 1)
                continue
            if slots[-1] == reach:
                outlines[-1] = replace(outlines[-1], end_row=row + 1)
            else:
                outlines.append(Block(row, row + 1, slots[0], min(slots[-1] + 1, self.columns)))
            reach = slots[-1]
        return outlines

    def lattice(self) -> list[list[Node]]:
        """A beam's hypotheses: for each pass the tokens it appended, open hypotheses before finished ones."""
        best = self.tokens if self.complete else self.iterations[-1].tokens if self.iterations else ()
        columns: list[list[Node]] = []
        parents: dict[tuple[int, ...], int] = {(): -1}
        for row, iteration in enumerate(self.iterations):
            lanes = {lane.tokens: lane for lane in iteration.lanes if len(lane.tokens) == row + 1}
            grown = sorted(lanes.values(), key=lambda lane: lane.finished)
            columns.append(
                [
                    Node(
                        token=lane.tokens[-1],
                        label=self.label(lane.tokens[-1]),
                        score=lane.score,
                        parent=parents.get(lane.tokens[:-1], -1),
                        finished=lane.finished,
                        best=lane.tokens == best[: row + 1],
                    )
                    for lane in grown
                ]
            )
            parents = {lane.tokens: index for index, lane in enumerate(grown)}
        return columns

    def picks(self, upto: int | None = None) -> list[Pick]:
        """Clusters picked in the first `upto` passes: those that drafts picked, then those of settled tokens."""
        limit = self.rows if upto is None else upto
        latest: dict[tuple[int, int], Pick] = {}
        for row, iteration in enumerate(self.iterations[:limit]):
            for index, slot in enumerate(iteration.slots):
                cluster, column = iteration.cluster[index], self.column(slot)
                if cluster is None or column >= self.columns:
                    continue
                settled = self.settled.get(slot) == (row, index)
                if settled or (column, cluster) not in latest:
                    latest[column, cluster] = Pick(column, cluster, iteration.num_active[index], settled)
        return sorted(latest.values(), key=lambda pick: (pick.settled, pick.column, pick.cluster))

    @property
    def vocabulary(self) -> int | None:
        """Size of the vocabulary; None if the trace does not have it."""
        value = self.header.get("settings", {}).get("vocabulary")
        return value if isinstance(value, int) and value > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """The trace as docs/trace.md describes it."""
        footer = {
            "pieces": {str(token): self.pieces[token] for token in sorted(self.pieces)},
            "hypotheses": self.hypotheses,
            "greedy": self.greedy,
            "edges": self.edges,
        }
        if self.clusters:
            footer["clusters"] = {str(number): self.clusters[number] for number in sorted(self.clusters)}
        return self.header | footer | {"iterations": self._rows}

    def to_json(self) -> str:
        """`to_dict` as compact JSON in ASCII; equal traces give equal text."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)


def read(source: Any) -> TraceModel:
    """Read a trace.

    Parameters
    ----------
    source : TraceModel, dict, str, Path, or object with ``to_dict()`` or with a ``trace``
        A string is JSON if it starts with a brace, else a path.

    Raises
    ------
    ValueError
        If it is no trace, of a version unknown, cut short, or damaged.
    """
    if isinstance(source, TraceModel):
        return source
    data = plain(_load(source))
    check_header(data)
    if not isinstance(data.get("iterations"), list):
        raise fail('The trace needs a list "iterations"', data.get("iterations"))
    for key in ("pieces", "hypotheses"):
        if key not in data:
            raise fail(f'The trace needs "{key}"', "none")
    model = TraceModel()
    model.append(
        {key: data[key] for key in ("format", "version", "source", "target", "settings", "end")} | {"event": "start"}
    )
    model.pieces = check_pieces(data["pieces"])
    for iteration in data["iterations"]:
        if not isinstance(iteration, dict):
            raise fail("A pass is an object", iteration)
        model.append(iteration | {"event": "iteration"})
    footer = {key: data.get(key) for key in ("target", "hypotheses", "greedy", "edges", "clusters")}
    model.append(footer | {"event": "end"})
    return model


def _load(source: Any) -> Any:
    if hasattr(source, "a") and hasattr(source, "b"):
        raise fail("One trace is drawn", "a comparison of two", "Pass its a or its b, or the trace of either.")
    if (
        isinstance(source, list)
        and source
        and all(hasattr(item, "trace") or hasattr(item, "to_dict") for item in source)
    ):
        raise fail("One trace is drawn", f"a list of {len(source)}", "Pass one of them, such as the first, [0].")
    source = getattr(source, "trace", source)
    if hasattr(source, "to_dict"):
        source = source.to_dict()
    if isinstance(source, dict):
        return source
    if isinstance(source, str) and source.lstrip().startswith("{"):
        return _parse(source)
    if isinstance(source, (str, Path)):
        return _parse(_content(Path(source)))
    raise fail("Not a decoding trace: expected a dict, JSON, a path or an object with to_dict()", type(source).__name__)


def _content(path: Path) -> str:
    """Content of a file."""
    expected, remedy = "A trace is read from JSON text or from a file", "Check the path, or pass the trace itself."
    try:
        if not path.is_file():
            raise fail(expected, str(path), remedy)
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise fail(f"A trace is UTF-8 text, and {path.name} is not", f"byte {error.start}", AGAIN) from error
    except OSError as error:
        raise fail(expected, f"{short(str(path))} ({error.strerror})", remedy) from error


def _parse(text: str) -> Any:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise fail(
            "The trace is not whole JSON", f"{len(text)} characters with an error at {error.pos}", _CUT
        ) from error
    except RecursionError as error:
        raise fail("The trace is not whole JSON", f"{len(text)} characters of brackets in brackets", _CUT) from error
    except ValueError as error:  # a number of thousands of digits
        raise fail("The trace is not JSON that can be read", str(error), _CUT) from error
    if not isinstance(data, dict):
        raise fail("A trace is a JSON object", data)
    return data


_CUT = f"It may be cut short. {AGAIN}"
