"""A drawing being written: its measures, and elements escaped for XML."""

from dataclasses import dataclass

from ddgviz.layout import Column
from ddgviz.text import visible
from ddgviz.theme import Theme
from ddgviz.trace import TraceModel

LEFT = 86.0
MARGIN = 24.0
BARS = 132.0
NARROWEST_PICTURE = 760.0


def escape(text: str) -> str:
    """`text` for XML, its hidden characters made visible."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(character, entity)
    return visible(text)


def number(value: float) -> str:
    """A coordinate with at most two decimals."""
    return f"{round(value, 2):g}" if abs(value) < 1e5 else f"{round(value)}"


def _value(value: object) -> str:
    return number(value) if isinstance(value, (int, float)) else escape(str(value))


@dataclass(frozen=True)
class Page:
    """A picture being written: its content, its colours, and the elements so far."""

    model: TraceModel
    theme: Theme
    upto: int
    rows: range
    placed: dict[int, Column]
    pitch: float
    graph: str
    held: int
    out: list[str]

    @property
    def right(self) -> float:
        """Right edge of the grid."""
        return max((column.right for column in self.placed.values()), default=LEFT)

    @property
    def total(self) -> float:
        """Width of the picture."""
        return max(self.right + BARS, NARROWEST_PICTURE)

    def element(self, tag: str, content: str | None = None, /, **attributes: object) -> None:
        """Write an element; underscores in names stand for hyphens, numbers are rounded."""
        written = "".join(f' {key.replace("_", "-")}="{_value(value)}"' for key, value in attributes.items())
        self.out.append(f"<{tag}{written}/>" if content is None else f"<{tag}{written}>{content}</{tag}>")

    def text(self, x: float, y: float, text: str, size: float, fill: str, **attributes: object) -> None:
        """Write a line of text."""
        self.element("text", escape(text), x=x, y=y, font_size=size, fill=fill, **attributes)
