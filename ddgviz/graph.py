"""The decoding dependency graph: which token settled with which, and after which."""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddgviz.trace import TraceModel, read

if TYPE_CHECKING:
    import networkx

MEASURED = "changing the left token would change the right one"
ORDER = "the right token had to wait for the left one"


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
    for slot, (row, _) in sorted(model.settled.items()):
        if slot < model.columns and (upto is None or row < upto):
            found.setdefault(row, []).append(slot)
    return sorted(found.items())


def pills(model: TraceModel, columns: list[int]) -> list[list[int]]:
    """A layer's positions in runs of neighbours; one each in beam search, which settles no token before all."""
    runs: list[list[int]] = []
    for column in columns:
        if runs and runs[-1][-1] == column - 1 and not model.beam:
            runs[-1].append(column)
        else:
            runs.append([column])
    return runs


def edges(model: TraceModel, upto: int | None = None) -> list[Edge]:
    """Measured dependencies if the trace has any, else those that the settling order shows.

    In the settling order, each token of a layer hangs on the last token of the layer before; longer ways are left out.
    """
    order = layers(model, upto)
    if model.edges:
        drawn = {column for _, columns in order for column in columns}
        return [
            Edge(edge["from"], edge["to"], min(1.0, float(edge["strength"])))
            for edge in model.edges
            if edge["from"] in drawn and edge["to"] in drawn and edge["strength"] > 0
        ]
    if model.beam:
        return []
    pairs = itertools.pairwise(order)
    return [Edge(before[-1], column, 1.0) for (_, before), (_, after) in pairs for column in after]


def meaning(model: TraceModel) -> str:
    """What an edge of this trace says, for the legend."""
    return MEASURED if model.edges else ORDER


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
    import networkx

    model = read(trace)
    graph = networkx.DiGraph(edges="measured" if model.edges else "settling order")
    for row, columns in layers(model):
        cells = model.cells(row)
        for column in columns:
            cell = cells[column]
            known = {} if cell.probability is None else {"probability": cell.probability}
            number = model.iterations[row].call + 1
            graph.add_node(column, position=column, token=cell.label.text, **{"pass": number}, **known)
    for edge in edges(model):
        graph.add_edge(edge.source, edge.target, strength=edge.strength)
    return graph
