"""The picture's JavaScript and styles: modules beside this file, joined into one without imports."""

import json
import re
from functools import cache
from pathlib import Path

from ddgviz.cells import SHAPES
from ddgviz.theme import stylesheet

_WEB = Path(__file__).parent / "web"
_ORDER = ("model", "layout", "paint", "scene", "frame", "theme", "link", "widget", "packing", "kernel")


@cache
def script() -> str:
    """One module with everything, comments and indents left out; its default export is what anywidget asks for.

    `mount` is in scope, and so are the `SHAPES` of marks, which Python draws too.
    """
    parts = [(_WEB / f"{name}.js").read_text(encoding="utf-8") for name in _ORDER]
    joined = "\n".join(re.sub(r'^import [^;]*? from "\./\w+\.js";\n', "", part, flags=re.MULTILINE) for part in parts)
    plain = re.sub(r"^export (?!default)", "", joined, flags=re.MULTILINE)
    return f"const SHAPES={json.dumps(SHAPES, separators=(',', ':'))};{_tight(plain)}"


def _tight(code: str) -> str:
    """The same program in fewer bytes: no comments, and no spaces, semicolons and parentheses but where they matter."""
    parts = _LITERAL.split(re.sub(r"^ *//.*\n", "", code, flags=re.MULTILINE))
    for pattern, short in _SHORTER:
        parts[::2] = [re.sub(pattern, short, part) for part in parts[::2]]
    return "".join(parts).strip()


_SHORTER = (
    (r"\s+", " "),
    (r" ?([^\w$ -]) ?", r"\1"),
    (r"(?<=[\w)\]]) - (?=[\w(])", "-"),
    (r"[;,](?=[}\])])", ""),
    (r"(?<=[^\w$])\((\w+)\)=>", r"\1=>"),
)
_LITERAL = re.compile(
    r"""("(?:\\.|[^"\\])*"|`(?:\\.|\$\{(?:[^`{}]|`[^`]*`|\{[^{}]*\})*\}|[^`\\])*`|(?<=[(=]) ?/[^/\n ]+/[a-z]*)"""
)


@cache
def styles() -> str:
    """All styles, the themes' colours included."""
    return stylesheet() + (_WEB / "widget.css").read_text(encoding="utf-8")
