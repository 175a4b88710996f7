"""Text as text: what a panel says, and the code that it shows."""

from pathlib import Path

import anywidget
import traitlets

_HERE = Path(__file__).parent


class Plain(anywidget.AnyWidget):
    """Text that never becomes markup, nor mathematics.

    Attributes
    ----------
    value : str
        The text; a line that is empty takes no room.
    kind : str
        What it is: ``result``, ``verdict``, ``name``; or ``code``, which is folded and has a button that copies it.
    """

    _esm = (_HERE / "plain.js").read_text(encoding="utf-8")
    _css = (_HERE / "panel.css").read_text(encoding="utf-8")
    value = traitlets.Unicode("").tag(sync=True)
    kind = traitlets.Unicode("").tag(sync=True)

    def __init__(self, kind: str, value: str = "") -> None:
        super().__init__(kind=kind, value=value)
