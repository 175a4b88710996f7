"""The picture's JavaScript and styles: modules beside this file, joined into one without imports."""

import re
from functools import cache
from pathlib import Path

from ddgviz.theme import stylesheet

_WEB = Path(__file__).parent / "web"
_ORDER = ("model", "layout", "paint", "scene", "frame", "theme", "widget", "kernel")


@cache
def script() -> str:
    """One module with everything; its default export is what anywidget asks for, and `mount` is in scope."""
    parts = [(_WEB / f"{name}.js").read_text(encoding="utf-8") for name in _ORDER]
    joined = "\n".join(re.sub(r'^import [^;]*? from "\./\w+\.js";\n', "", part, flags=re.MULTILINE) for part in parts)
    return re.sub(r"^export (?!default)", "", joined, flags=re.MULTILINE)


@cache
def styles() -> str:
    """All styles, the themes' colours included."""
    return stylesheet() + (_WEB / "widget.css").read_text(encoding="utf-8")
