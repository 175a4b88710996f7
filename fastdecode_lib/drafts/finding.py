"""Find draft tables, heads and measured choices by the fingerprint of their model, beside it or in the cache."""

import hashlib
import os
import warnings
from collections.abc import Iterable
from pathlib import Path

from fastdecode_lib.drafts.head import FILE
from fastdecode_lib.drafts.head import FORMAT as HEAD
from fastdecode_lib.drafts.table import FORMAT as TABLE
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.kernels.cpu import processor
from fastdecode_lib.store import read_json, read_note, user_cache


def table_beside(folder: Path, fingerprint: str, direction: tuple[str | None, str | None]) -> DraftTable | None:
    """The draft table of a model and direction: the user's own in the cache, or the one beside its weights."""
    path = find_table((cache_folder(fingerprint), folder / "draft-tables"), fingerprint, *direction)
    return None if path is None else DraftTable.load(path)


def directions_with_tables(folder: Path, fingerprint: str) -> list[tuple[str | None, str | None]]:
    """The directions of a model that have a draft table."""
    places = (cache_folder(fingerprint), folder / "draft-tables")
    names = {file.stem for place in places for file in place.glob("*-*.safetensors") if file.name != FILE}
    pairs = [(source, target) for source, _, target in (name.partition("-") for name in sorted(names))]
    return [(None if a == "any" else a, None if b == "any" else b) for a, b in pairs]


def places_of(folder: Path, fingerprint: str) -> tuple[Path, ...]:
    """The paths of everything fitted on a model: screens, draft tables and heads."""
    return folder / "projections", folder / "draft-tables", folder / FILE, cache_folder(fingerprint)


def speedups_folder(fingerprint: str) -> Path:
    """Folder in which `fastdecode speedup` keeps a model's drafts and choices."""
    return user_cache() / "speedups" / fingerprint


def places_in_cache(fingerprint: str) -> tuple[Path, ...]:
    """The folders of the user's cache for a model: draft tables, heads and measured choices."""
    return cache_folder(fingerprint), speedups_folder(fingerprint)


def choice_file(fingerprint: str, direction: tuple[str | None, str | None], batch: int) -> Path:
    """File of the choice measured for a model and direction on this processor, for single sentences or for batches."""
    name = table_name(*direction).removesuffix(".safetensors")
    machine = hashlib.sha256(processor().encode()).hexdigest()[:8]
    return speedups_folder(fingerprint) / f"{name}.{'single' if batch == 1 else 'batches'}.{machine}.json"


def has_choices() -> bool:
    """Whether any choice was ever measured; needs no fingerprint."""
    return os.path.isdir(speedups_folder(""))  # unlike Path's, False where it may not be looked at


def measured_choice(
    fingerprint: str, direction: tuple[str | None, str | None], batch: int, precision: str = "float32"
) -> tuple[str, str] | None:
    """The fastest decoder and projection that change no output, as measured on the compiled engine.

    None if nothing was measured or the file is damaged. The caller checks that they still run and change no output.
    """
    try:
        about = read_json(choice_file(fingerprint, direction, batch))["provenance"]
        decoder, projection = about["lossless"][precision]
        return str(decoder), str(projection)
    except (ValueError, KeyError, TypeError):
        return None


def cache_folder(fingerprint: str) -> Path:
    """Folder of draft tables in the user's cache, for models whose folder has none."""
    return user_cache() / "draft-tables" / fingerprint


def find_table(folders: Iterable[Path], fingerprint: str, source: str | None, target: str | None) -> Path | None:
    """The table of a model and direction in the first of the folders that has one."""
    for folder in folders:
        path = folder / table_name(source, target)
        if _fingerprint(path, TABLE) == fingerprint:
            return path
    return None


def table_name(source: str | None, target: str | None) -> str:
    """The file of a direction."""
    return f"{source or 'any'}-{target or 'any'}.safetensors"


def _fingerprint(path: Path, kind: str) -> str | None:
    """The model that a table or head was made for; warns of a file that is neither."""
    note = read_note(path, kind)
    if not note and os.path.isfile(path):
        name = "draft head" if kind == HEAD else "draft table"
        warnings.warn(
            f"{path} is no {name}, damaged, or cannot be read: decoding goes on without it. Delete it, or make it again with "
            f"`fastdecode {name.replace(' ', '-')}`.",
            stacklevel=2,
        )
    about = note.get("about")
    return about.get("fingerprint") if isinstance(about, dict) else None


def find_head(folder: Path, fingerprint: str) -> Path | None:
    """The head of a model: the one that `fastdecode draft-head` writes by default, or the one beside the model."""
    for path in (default_path(fingerprint), folder / FILE):
        if _fingerprint(path, HEAD) == fingerprint:
            return path
    return None


def default_path(fingerprint: str) -> Path:
    """File of a draft head in the user's cache, for models whose folder has none."""
    return cache_folder(fingerprint) / FILE
