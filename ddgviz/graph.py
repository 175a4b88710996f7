"""The decoding dependency graph: which token settled with which, and after which."""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddgviz.schema import fail, optional
from ddgviz.trace import TraceModel, read

if TYPE_CHECKING:
    import networkx

KINDS = ("auto", "measured", "order", "none")
MEASURED = "changing the left token would change the right one"
ORDER = "the right token had to wait for the left one"
ORDER_INWARD = "the inner token had to wait for the outer one"


@dataclass(frozen=True, slots=True)
class Edge:
    """A dependency of position `target` on position `source`, its strength from 0 to 1."""

    source: int
    target: int
    strength: float


def layers(model: TraceModel, upto: int | None = None) -> list[tuple[int, list[int]]]:
    """Rows that settled something, with the positions they settled, in order.

    Parameters
    ----------
    model : TraceModel
    upto : int, optional
        Only the first `upto` passes.
    """
    found: dict[int, list[int]] = {}
    for slot, (row, _) in model.settled.items():
        if model.column(slot) < model.columns and (upto is None or row < upto):
            found.setdefault(row, []).append(model.column(slot))
    return sorted((row, sorted(columns)) for row, columns in found.items())


def pills(model: TraceModel, columns: list[int]) -> list[list[int]]:
    """A layer's positions in runs of neighbours; one each where no token is settled before all are."""
    runs: list[list[int]] = []
    for column in columns:
        if runs and runs[-1][-1] == column - 1 and not model.late:
            runs[-1].append(column)
        else:
            runs.append([column])
    return runs


def kind(model: TraceModel, wanted: str = "auto") -> str:
    """Kind of edges to draw: ``measured``, ``order`` or ``none``; ``auto`` takes measured ones where there are any.

    Raises
    ------
    ValueError
        If `wanted` is none of these.
    """
    if wanted not in KINDS:
        raise fail(f"The graph shows {', '.join(KINDS)}", wanted, 'Use graph="auto".')
    if wanted != "auto":
        return wanted
    return "measured" if model.edges else "order"


def edges(model: TraceModel, upto: int | None = None, wanted: str = "auto", redundant: bool = False) -> list[Edge]:
    """Measured dependencies if the trace has any, else those that the settling order shows.

    In the settling order, each token of a layer hangs on the nearest token of the layer before; longer ways are left out, and
    so is the end where decoding grew from both. Of the measured ones, those are left out (but for `redundant`) for which a way
    over other tokens exists whose every step is at least as strong.

    Parameters
    ----------
    model : TraceModel
    upto : int, optional
        Only among tokens settled in the first `upto` passes.
    wanted : {"auto", "measured", "order", "none"}
    redundant : bool
    """
    shown, order = kind(model, wanted), layers(model, upto)
    if shown == "measured":
        drawn = {column for _, columns in order for column in columns}
        return [edge for edge in measured(model, redundant) if edge.source in drawn and edge.target in drawn]
    if shown == "none" or model.late:
        return []
    # The tokens that close a sentence grown from both ends waited for its middle, not for their neighbours.
    last = model.columns - 1 if model.right else model.columns
    return [
        Edge(min(before, key=lambda other: (abs(other - column), -other)), column, 1.0)
        for (_, before), (_, after) in itertools.pairwise(order)
        for column in after
        if column < last
    ]


def measured(model: TraceModel, redundant: bool = False) -> list[Edge]:
    """Measured dependencies, without those implied by a path of edges at least as strong, unless `redundant` is true."""
    strong = [edge for edge in model.edges if edge["strength"] > 0]
    found = [Edge(edge["from"], edge["to"], min(1.0, float(edge["strength"]))) for edge in strong]
    return found if redundant else _needed(found)


def _needed(found: list[Edge]) -> list[Edge]:
    """Edges without those implied by a path of edges at least as strong; edges lead from left to right."""
    into: dict[int, list[Edge]] = {}
    for edge in found:
        into.setdefault(edge.target, []).append(edge)

    def replaced(edge: Edge) -> bool:
        waiting = [other.source for other in into[edge.target] if _between(other, edge)]
        seen = set(waiting)
        while waiting:
            for other in into.get(waiting.pop(), []):
                if other.strength >= edge.strength and other.source >= edge.source and other.source not in seen:
                    seen.add(other.source)
                    waiting.append(other.source)
        return edge.source in seen

    return [edge for edge in found if not replaced(edge)]


def _between(other: Edge, edge: Edge) -> bool:
    return other.source > edge.source and other.strength >= edge.strength


def meaning(model: TraceModel, wanted: str = "auto") -> str:
    """Meaning of this trace's edges, for the legend."""
    if kind(model, wanted) == "measured":
        return MEASURED
    return ORDER_INWARD if model.right else ORDER


def to_networkx(trace: Any) -> "networkx.DiGraph":
    """The graph as networkx knows it.

    Parameters
    ----------
    trace : anything that `read` takes

    Returns
    -------
    networkx.DiGraph
        Nodes are positions with ``position``, ``token`` (as drawn), ``pass`` (from 1) and ``probability`` (left out
        where unknown); edges have ``strength``. The graph's ``edges`` says ``measured`` or ``settling order``.
    """
    networkx = optional("networkx", "A graph")
    model = read(trace)
    graph = networkx.DiGraph(edges="measured" if model.edges else "settling order")
    for row, columns in layers(model):
        cells = model.cells(row)
        for column in columns:
            cell = cells[column]
            known = {} if cell.probability is None else {"probability": cell.probability}
            number = model.iterations[row].call + 1
            graph.add_node(column, position=column, token=cell.label.text, **{"pass": number}, **known)
    for edge in edges(model, redundant=True):
        graph.add_edge(edge.source, edge.target, strength=edge.strength)
    return graph
