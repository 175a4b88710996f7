"""The picture's JavaScript and styles: modules beside this file, joined into one without imports."""

import json
import re
from functools import cache
from pathlib import Path

from ddgviz.cells import SHAPES
from ddgviz.theme import stylesheet

_WEB = Path(__file__).parent / "web"
_PICTURE = ("model", "layout", "paint", "scene", "frame", "theme", "link", "widget")
_PARTS = {
    "widget": (*_PICTURE, "packing", "kernel"),
    "page": (*_PICTURE, "copy", "page"),
    "plain": ("copy", "plain"),
    "race": (*_PICTURE, "race"),
    "tour": (*_PICTURE, "tour"),
}


@cache
def script(name: str = "widget") -> str:
    """One module of several joined, comments and indents left out.

    Parameters
    ----------
    name : {"widget", "page", "plain", "race", "tour"}
        The picture as anywidget asks for it, as its default export; the page that stands alone; text in a panel; two decoders
        against the clock; a guided walk.
    """
    parts = [(_WEB / f"{part}.js").read_text(encoding="utf-8") for part in _PARTS[name]]
    joined = "\n".join(re.sub(r'^import [^;]*? from "\./\w+\.js";\n', "", part, flags=re.MULTILINE) for part in parts)
    plain = _tight(re.sub(r"^export (?!default)", "", joined, flags=re.MULTILINE))
    return plain if name == "plain" else f"const SHAPES={json.dumps(SHAPES, separators=(',', ':'))};{plain}"


def _tight(code: str) -> str:
    """The program minified: no comments, and only the spaces, semicolons and parentheses that it needs."""
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
def styles(name: str = "widget") -> str:
    """All styles of a ``widget``, the themes' colours included, or of a ``panel`` around it, or of a ``race`` or ``tour``."""
    return (stylesheet() if name == "widget" else "") + (_WEB / f"{name}.css").read_text(encoding="utf-8")
