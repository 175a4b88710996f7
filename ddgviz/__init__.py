"""Decoding dependency graph visualizer: pictures of what a decoder did, pass by pass.

Reads traces as docs/trace.md specifies them, and knows nothing of the library that writes them.
"""

from typing import Any

from ddgviz.address import link
from ddgviz.export import save
from ddgviz.graph import to_networkx
from ddgviz.hf_recording import record
from ddgviz.schema import optional
from ddgviz.svg import svg
from ddgviz.trace import read

_LATER = {
    "Picture": "ddgviz.widget",
    "show": "ddgviz.widget",
    "compare": "ddgviz.comparison",
    "race": "ddgviz.racing",
    "tour": "ddgviz.touring",
    "rate": "ddgviz.rating",
    "Rating": "ddgviz.rating",
    "explore": "ddgviz.panel",
    "together": "ddgviz.linked",
    "speed_accuracy": "ddgviz.figures",
    "curves": "ddgviz.figures",
    "frontier": "ddgviz.figures",
    "tikz": "ddgviz.latex",
    "animated_svg": "ddgviz.animation",
    "gif": "ddgviz.animation",
    "save_chart": "ddgviz.figures",
}

__all__ = [*_LATER, "link", "read", "record", "save", "svg", "to_networkx"]


def __getattr__(name: str) -> Any:
    """Import what needs plotly or anywidget when it is first used."""
    if name not in _LATER:
        raise AttributeError(f"module 'ddgviz' has no attribute {name!r}")
    return getattr(optional(_LATER[name], f"ddgviz.{name}"), name)


def __dir__() -> list[str]:
    """Names that completion offers."""
    return __all__
