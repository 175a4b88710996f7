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
        ``widget`` is the picture with a default export for anywidget, ``page`` a page of its own, ``plain`` the text in a
        panel, ``race`` two decoders against the clock, ``tour`` a guided walk.
    """
    codes = [(_WEB / f"{code}.js").read_text(encoding="utf-8") for code in _PARTS[name]]
    joined = "\n".join(re.sub(r'^import [^;]*? from "\./\w+\.js";\n', "", code, flags=re.MULTILINE) for code in codes)
    plain = _tight(re.sub(r"^export (?!default)", "", joined, flags=re.MULTILINE))
    return plain if name == "plain" else f"const SHAPES={json.dumps(SHAPES, separators=(',', ':'))};{plain}"


def _tight(code: str) -> str:
    """The program minified: no comments, and only the spaces, semicolons and parentheses that it needs."""
    pieces = _LITERAL.split(re.sub(r"^ *//.*\n", "", code, flags=re.MULTILINE))
    for pattern, replacement in _SHORTER:
        pieces[::2] = [re.sub(pattern, replacement, piece) for piece in pieces[::2]]
    return "".join(pieces).strip()


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
    own = re.sub(r"\s+", " ", (_WEB / f"{name}.css").read_text(encoding="utf-8"))
    return (stylesheet() if name == "widget" else "") + re.sub(r" ?([{};,>]) ?|(?<=:) ", r"\1", own).replace(";}", "}")
