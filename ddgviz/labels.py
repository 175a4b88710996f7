"""Placement of names beside the points of a chart, so that none covers another, a mark or an error bar."""

import math
from itertools import pairwise, product
from typing import Any

from ddgviz.text import visible, width

SIZE = 11
"""Size of the type."""

LINE = 15.0
"""Height of a line of it."""

WIDE, HIGH = 640.0, 340.0
"""Size in pixels of the smallest plot; in a larger one, names are only further apart."""

_MARK = 8.0
_NEAR, _FAR = 10.0, 40.0
_LARGER = 1.3
"""A plot of the site beside the smallest."""

Box = tuple[float, float, float, float]
"""Left, right, bottom, top."""


def place(
    rows: list[dict[str, Any]],
    x: str,
    y: str,
    name: str,
    sides: list[list[float]],
    lines: list[list[tuple[float, float]]],
) -> list[dict[str, Any]]:
    """A plotly annotation without its text for each point, placed beside it.

    Parameters
    ----------
    rows : list of dict
        The points; intervals are in ``{x}_low`` and so on.
    x, y, name : str
        Keys of the values and of the text.
    sides : list of [low, high]
        Ranges of both axes.
    lines : list of list of (x, y)
        Corners of lines that names must not cover.
    """
    points = [(_pixel(row[x], sides[0], WIDE), _pixel(row[y], sides[1], HIGH)) for row in rows]
    taken = [box for row, point in zip(rows, points, strict=True) for box in _marks(row, point, x, y, sides)]
    for line in lines:
        corners = [(_pixel(across, sides[0], WIDE), _pixel(up, sides[1], HIGH)) for across, up in line]
        taken += [box for a, b in pairwise(corners) for box in _along(a, b)]
    placed = []
    for row, (across, up) in zip(rows, points, strict=True):
        wide = width(visible(str(row[name])), SIZE)
        ways = list(product((_NEAR, 18.0, 28.0, _FAR), (1, -1), (1, 0, -1)))
        shifts = [(side * (wide / 2 + _MARK * bool(side)), above * distance) for distance, above, side in ways]
        shifts += [(side * (wide / 2 + 1.5 * _MARK), 0.0) for side in (1, -1)]
        dx, dy = min(shifts, key=lambda shift: _cost(_box(across + shift[0], up + shift[1], wide), taken, shift))
        taken.append(_box(across + dx, up + dy, wide))
        placed.append({"x": row[x], "y": row[y], "xshift": dx, "yshift": dy, "showarrow": False})
    return placed


def _pixel(value: float, side: list[float], length: float) -> float:
    return (value - side[0]) / (side[1] - side[0]) * length


def _box(across: float, up: float, wide: float) -> Box:
    return across - wide / 2, across + wide / 2, up - LINE / 2, up + LINE / 2


def _along(a: tuple[float, float], b: tuple[float, float]) -> list[Box]:
    """Boxes that cover a line between two points; one box if it is level or upright."""
    wide, high = b[0] - a[0], b[1] - a[1]
    parts = max(1, math.ceil(min(abs(wide), abs(high)) / LINE))
    steps = [(a[0] + wide * n / parts, a[1] + high * n / parts) for n in range(parts + 1)]
    ends = pairwise(steps)
    return [(min(x, to_x) - 1, max(x, to_x) + 1, min(y, to_y) - 1, max(y, to_y) + 1) for (x, y), (to_x, to_y) in ends]


def apart(heights: list[float], distance: float, room: float) -> list[float]:
    """Heights in rising order, moved so that neighbours have a distance and none is above `room`."""
    moved = list(heights)
    for place in range(1, len(moved)):
        moved[place] = max(moved[place], moved[place - 1] + distance)
    for place in reversed(range(len(moved))):
        moved[place] = min(moved[place], moved[place + 1] - distance if place + 1 < len(moved) else room)
    return moved


def _marks(row: dict[str, Any], point: tuple[float, float], x: str, y: str, sides: list[list[float]]) -> list[Box]:
    """Boxes that a point covers: its mark and its bars, which are longer in a plot that is larger."""
    across, up = point
    boxes = [(across - _MARK, across + _MARK, up - _MARK, up + _MARK)]
    if row.get(f"{x}_low") is not None and row.get(f"{x}_high") is not None:
        left, right = (
            across + _LARGER * (_pixel(row[f"{x}_{end}"], sides[0], WIDE) - across) for end in ("low", "high")
        )
        boxes.append((left, right, up - 2, up + 2))
    if row.get(f"{y}_low") is not None and row.get(f"{y}_high") is not None:
        bottom, top = (up + _LARGER * (_pixel(row[f"{y}_{end}"], sides[1], HIGH) - up) for end in ("low", "high"))
        boxes.append((across - 2, across + 2, bottom, top))
    return boxes


def _cost(box: Box, taken: list[Box], shift: tuple[float, float]) -> float:
    """Cost of a place: overlap with other boxes and area outside the plot, then distance from its point."""
    left, right, bottom, top = box
    inside = _common(box, (0, WIDE, 0, HIGH))
    outside = (right - left) * (top - bottom) - inside
    return 100 * (sum(_common(box, box_taken) for box_taken in taken) + outside) + abs(shift[1]) + abs(shift[0]) / 10


def _common(a: Box, b: Box) -> float:
    wide, high = min(a[1], b[1]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[2], b[2])
    return wide * high if wide > 0 and high > 0 else 0.0
