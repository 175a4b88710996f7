"""Saves a picture or its trace to a file, the format being the suffix."""

import os
import tempfile
from pathlib import Path
from typing import Any

from ddgviz.page import html
from ddgviz.schema import fail
from ddgviz.svg import svg
from ddgviz.theme import theme_named
from ddgviz.trace import read

SUFFIXES = (".svg", ".html", ".pdf", ".png", ".json")


def save(trace: Any, path: str | Path, theme: str = "light") -> Path:
    """Write a trace as a picture, a page that plays it, or JSON.

    Parameters
    ----------
    trace : anything that `ddgviz.read` takes
    path : str or Path
        Its suffix chooses: ``.svg``, ``.html``, ``.pdf``, ``.png`` or ``.json``. PDF and PNG need Chromium.
    theme : {"light", "dark"}
        For still pictures; a page follows its reader.

    Returns
    -------
    Path
        The file written. It appears whole or not at all.

    Raises
    ------
    ValueError
        If the suffix is unknown, the trace damaged, or Chromium needed and not found.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise fail(f"A picture is saved as {', '.join(SUFFIXES)}", path.name, "Give the file one of these suffixes.")
    theme_named(theme)
    write(path, _content(trace, suffix, theme))
    return path


def _content(trace: Any, suffix: str, theme: str) -> bytes:
    if suffix == ".json":
        return (read(trace).to_json() + "\n").encode()
    if suffix == ".html":
        return html(trace).encode()
    drawn = svg(trace, theme=theme)
    if suffix == ".svg":
        return drawn.encode()
    from ddgviz.browser import convert

    kind = suffix.removeprefix(".")
    return convert(drawn, (kind,))[kind]


def write(path: Path, content: bytes) -> None:
    """Write a file so that no reader ever sees part of it."""
    if not path.parent.is_dir():
        raise fail("A picture needs an existing folder", str(path.parent), "Create it first.")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
