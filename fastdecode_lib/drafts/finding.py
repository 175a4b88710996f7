"""Finding the draft tables and draft heads of a model: beside its weights, or in the cache."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from fastdecode_lib.drafts.head import FILE, FORMAT
from fastdecode_lib.drafts.table import read_header


def cache_folder(fingerprint: str) -> Path:
    """Where the draft tables of a model that cannot carry them are kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return cache / "fastdecode" / "draft-tables" / fingerprint


def find_table(folders: Iterable[Path], fingerprint: str, source: str | None, target: str | None) -> Path | None:
    """The table of a model and direction in the first of the folders that has one."""
    for folder in folders:
        path = folder / table_name(source, target)
        if path.is_file() and _table_fingerprint(path) == fingerprint:
            return path
    return None


def table_name(source: str | None, target: str | None) -> str:
    """The file of a direction."""
    return f"{source or 'any'}-{target or 'any'}.safetensors"


def _table_fingerprint(path: Path) -> str:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as opened:
            about = read_header(opened).get("about")
            return str(about.get("fingerprint")) if isinstance(about, dict) else ""
    except (OSError, SafetensorError):
        return ""


def find_head(folder: Path, fingerprint: str) -> Path | None:
    """The head of a model: beside it, or where `fastdecode draft-head` writes unless told otherwise."""
    for path in (folder / FILE, default_path(fingerprint)):
        if path.is_file() and _head_fingerprint(path) == fingerprint:
            return path
    return None


def default_path(fingerprint: str) -> Path:
    """Where the head of a model that cannot carry it is kept."""
    return cache_folder(fingerprint) / FILE


def _head_fingerprint(path: Path) -> str:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as opened:
            return str(json.loads((opened.metadata() or {}).get(FORMAT, "{}"))["about"]["fingerprint"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return ""
