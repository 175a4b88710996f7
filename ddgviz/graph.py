"""The decoding dependency graph: which tokens settled together, and which after which."""

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
    columns_by_row: dict[int, list[int]] = {}
    for slot, (row, _) in model.settled.items():
        if model.column(slot) < model.columns and (upto is None or row < upto):
            columns_by_row.setdefault(row, []).append(model.column(slot))
    return sorted((row, sorted(columns)) for row, columns in columns_by_row.items())


def pills(model: TraceModel, columns: list[int]) -> list[list[int]]:
    """A layer's positions in runs of neighbours; in runs of one if no token is settled before all are."""
    runs: list[list[int]] = []
    for column in columns:
        if runs and runs[-1][-1] == column - 1 and not model.late:
            runs[-1].append(column)
        else:
            runs.append([column])
    return runs


def at_once(model: TraceModel, row: int, run: list[int]) -> int:
    """How many tokens a pass settled in the run of neighbours that `run` is a part of."""
    return next(len(whole) for whole in pills(model, model.new_columns(row)) if run[0] in whole)


def kind(model: TraceModel, requested: str = "auto") -> str:
    """Kind of edges to draw: ``measured``, ``order`` or ``none``; ``auto`` is ``measured`` if the trace has measured edges.

    Raises
    ------
    ValueError
        If `requested` is unknown.
    """
    if requested not in KINDS:
        raise fail(f"The graph shows {', '.join(KINDS)}", requested, 'Use graph="auto".')
    if requested != "auto":
        return requested
    return "measured" if model.edges else "order"


def edges(model: TraceModel, upto: int | None = None, requested: str = "auto", redundant: bool = False) -> list[Edge]:
    """Measured dependencies if the trace has any, else those that the settling order shows.

    In the settling order, an edge leads to each token of a layer from the nearest token of the layer before; decoding from both
    ends has no edge to the end. Measured edges that a path of edges at least as strong implies are left out, unless `redundant`
    is true.

    Parameters
    ----------
    model : TraceModel
    upto : int, optional
        Only among tokens settled in the first `upto` passes.
    requested : {"auto", "measured", "order", "none"}
    redundant : bool
    """
    kind_shown, order = kind(model, requested), layers(model, upto)
    if kind_shown == "measured":
        settled = {column for _, columns in order for column in columns}
        return [edge for edge in measured(model, redundant) if edge.source in settled and edge.target in settled]
    if kind_shown == "none" or model.late:
        return []
    # The end of a sentence that grew from both ends waited for its middle, not for its neighbour.
    last = model.columns - 1 if model.right else model.columns
    return [
        Edge(min(earlier, key=lambda candidate: (abs(candidate - column), -candidate)), column, 1.0)
        for (_, earlier), (_, later) in itertools.pairwise(order)
        for column in later
        if column < last
    ]


def measured(model: TraceModel, redundant: bool = False) -> list[Edge]:
    """Measured dependencies, without those implied by a path of edges at least as strong, unless `redundant` is true."""
    strong = [edge for edge in model.edges if edge["strength"] > 0]
    edges_found = [Edge(edge["from"], edge["to"], min(1.0, float(edge["strength"]))) for edge in strong]
    return edges_found if redundant else _needed(edges_found)


def _needed(candidates: list[Edge]) -> list[Edge]:
    """Edges without those implied by a path of edges at least as strong; edges lead from left to right."""
    into: dict[int, list[Edge]] = {}
    for edge in candidates:
        into.setdefault(edge.target, []).append(edge)

    def replaced(edge: Edge) -> bool:
        waiting = [step.source for step in into[edge.target] if _between(step, edge)]
        reached = set(waiting)
        while waiting:
            for step in into.get(waiting.pop(), []):
                if step.strength >= edge.strength and step.source >= edge.source and step.source not in reached:
                    reached.add(step.source)
                    waiting.append(step.source)
        return edge.source in reached

    return [edge for edge in candidates if not replaced(edge)]


def _between(step: Edge, edge: Edge) -> bool:
    return step.source > edge.source and step.strength >= edge.strength


def meaning(model: TraceModel, requested: str = "auto") -> str:
    """Meaning of this trace's edges, for the legend."""
    if kind(model, requested) == "measured":
        return MEASURED
    return ORDER_INWARD if model.right else ORDER


def to_networkx(trace: Any) -> "networkx.DiGraph":
    """The graph as a networkx graph.

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
        number = model.iterations[row].call + 1
        for cell in model.cells(row, columns):
            probability = {} if cell.probability is None else {"probability": float(cell.probability)}
            graph.add_node(cell.column, position=cell.column, token=cell.label.text, **{"pass": number}, **probability)
    for edge in edges(model, redundant=True):
        graph.add_edge(edge.source, edge.target, strength=edge.strength)
    return graph
