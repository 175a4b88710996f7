"""Layout of a picture: widths of columns, heights of arcs, tops of rows."""

from dataclasses import dataclass

from ddgviz.graph import Edge
from ddgviz.text import fit, width
from ddgviz.trace import TraceModel

TOKEN_SIZE = 12.5
GAP = 4.0
LINK = 22.0
NARROWEST = 36.0
WIDEST = 150.0
WIDEST_DRAFT = 64.0
WIDEST_LANE = 96.0
COMFORTABLE = 80.0
PADDING = 16.0
ROOM = 840.0


@dataclass(frozen=True, slots=True)
class Column:
    """A column's left edge and width."""

    x: float
    width: float

    @property
    def middle(self) -> float:
        """Its centre line."""
        return self.x + self.width / 2

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width


def columns(model: TraceModel, shown: range, left: float, room: float = ROOM) -> dict[int, Column]:
    """A column for each shown position: as wide as its tokens need, and wider while there is room.

    Parameters
    ----------
    model : TraceModel
    shown : range
        Positions to place.
    left : float
        Left edge of the first.
    room : float
        Width that narrow pictures fill.
    """
    natural = dict.fromkeys(shown, NARROWEST)
    for row in range(model.rows):
        computed = [column for column in map(model.column, model.iterations[row].slots) if column in shown]
        for cell in model.cells(row, computed):
            if cell.kind != "settled":
                is_new = cell.kind == "new"
                need = min(WIDEST if is_new else WIDEST_DRAFT, width(cell.label.text, TOKEN_SIZE, is_new) + PADDING)
                natural[cell.column] = max(natural[cell.column], need)
    for column, nodes in enumerate(model.lattice() if model.beam else []):
        if column in natural:
            widths = [min(WIDEST_LANE, width(node.label.text, TOKEN_SIZE, node.best) + PADDING) for node in nodes]
            natural[column] = max([natural[column], *widths])
    gap = LINK if model.beam else GAP
    floor = _floor(list(natural.values()), room - gap * len(natural))
    placed = {}
    for column, need in natural.items():
        placed[column] = Column(round(left, 2), round(max(need, floor), 2))
        left += max(need, floor) + gap
    return placed


def _floor(widths: list[float], room: float) -> float:
    """The least width that raises narrow columns until they fill the room, up to a comfortable one."""
    floor = NARROWEST
    while floor < COMFORTABLE and sum(max(item, floor + 1) for item in widths) <= room:
        floor += 1
    return floor


def arc_height(source: Column, target: Column) -> float:
    """Height of an arc: more for wide arcs, within limits."""
    return round(min(18 + 0.15 * abs(target.middle - source.middle), 84.0), 2)


def graph_height(edges: list[Edge], placed: dict[int, Column]) -> float:
    """Room above the pills."""
    return max((arc_height(placed[edge.source], placed[edge.target]) for edge in edges), default=0.0)


def row_height(model: TraceModel) -> float:
    """Height of a row, its gap included; lower if no probability is known."""
    has_probabilities = any(p is not None for iteration in model.iterations for p in iteration.probabilities)
    return 44.0 if has_probabilities or model.beam else 32.0


def lines(text: str, size: float, room: float, most: int) -> list[str]:
    """`text` in at most `most` lines no wider than `room`, broken between words if possible."""
    broken: list[str] = []
    words = text.split(" ")
    while words and len(broken) < most:
        if len(broken) == most - 1:
            return [*broken, fit(" ".join(words), room, size, bold=True)]
        count = 1
        while count < len(words) and width(" ".join(words[: count + 1]), size, bold=True) <= room:
            count += 1
        line = " ".join(words[:count])
        if width(line, size, bold=True) > room:
            return [*broken, fit(" ".join(words), room, size, bold=True)]
        broken.append(line)
        words = words[count:]
    return broken or [""]
