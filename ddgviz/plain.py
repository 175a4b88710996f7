"""Plain text widgets: a panel's messages, and the code that it shows."""

import anywidget
import traitlets

from ddgviz.assets import script, styles


class Plain(anywidget.AnyWidget):
    """Text that never becomes markup, nor mathematics.

    Attributes
    ----------
    value : str
        The text; an empty one takes no room.
    kind : str
        Kind of text: ``result``, ``verdict``, ``name``; or ``code``, which is folded and has a button that copies it.
    """

    _esm = script("plain")
    _css = styles("panel")
    value = traitlets.Unicode("").tag(sync=True)
    kind = traitlets.Unicode("").tag(sync=True)

    def __init__(self, kind: str, value: str = "") -> None:
        super().__init__(kind=kind, value=value)
