"""What a draft names, found and checked once: tables, heads and models, beside the model's weights or in the cache."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fastdecode_lib.core import Model
from fastdecode_lib.drafts.head import FILE, DraftHead, DraftHeadError
from fastdecode_lib.drafts.head import FORMAT as HEAD
from fastdecode_lib.drafts.scores import BoundHead
from fastdecode_lib.drafts.sources import Draft
from fastdecode_lib.drafts.table import FORMAT as TABLE
from fastdecode_lib.drafts.table import DraftTable, DraftTableError
from fastdecode_lib.store import ModelFiles, read_note, user_cache


def resolve(draft: Draft, model: Model, files: ModelFiles) -> Draft:
    """The draft made ready for a model and direction: what it names is loaded, what it leaves open is looked for.

    Raises
    ------
    DraftTableError
        If a table or head cannot be used, or was made for another model or direction.
    ValueError
        If the draft draws on something that is neither named nor found.
    """
    table, head, outputs = draft.table, draft.head, draft.model
    if draft.wants_table:
        if table is None:
            table = files.table()
        else:
            table = DraftTable.load(table) if isinstance(table, str) else table
            _check_table(table, model, files)
    if draft.needs_head:
        path = find_head(files.folder, str(files.fingerprint)) if head is None and files.folder else head
        if path is not None:
            head = _bound(path if isinstance(path, BoundHead) else DraftHead.load(path), model, files)
    if isinstance(outputs, str):
        outputs = files.outputs(outputs)
    resolved = replace(draft, table=table, head=head, model=outputs, resolved=True)
    resolved.check(model)
    return resolved


def _check_table(table: DraftTable, model: Model, files: ModelFiles) -> None:
    """Refuse the table of another model or direction."""
    table.check_vocabulary(model.outputs[0].vocabulary)
    source, target = files.direction
    asked = {"source": source, "target": target, "fingerprint": files.fingerprint}
    counted_for = {name: table.about.get(name) for name in asked}
    if any(counted_for[name] not in (None, value) for name, value in asked.items()):
        raise DraftTableError(
            f"The draft table was made for {counted_for['source']}-{counted_for['target']} by the model "
            f"{counted_for['fingerprint']}: got {source}-{target} of {files.fingerprint}. Name that direction's table, or leave "
            "it out to have it found."
        )


def _bound(head: DraftHead | BoundHead, model: Model, files: ModelFiles) -> BoundHead:
    """A head bound to the model's output rows for the direction's target language."""
    target = files.direction[1]
    trained, bound = (head.head, head) if isinstance(head, BoundHead) else (head, None)
    known = (files.fingerprint,) if bound is None else (None, files.fingerprint)
    if trained.about.get("fingerprint") not in known:
        raise DraftHeadError(
            f"The draft head was trained on the model {trained.about.get('fingerprint')}: got {files.fingerprint}. Name that "
            "model's head, or leave it out to have it found."
        )
    return bound if bound is not None and bound.target == target else BoundHead(trained, model.outputs[0], target)


def table_beside(folder: Path, fingerprint: str, direction: tuple[str | None, str | None]) -> DraftTable | None:
    """The draft table of a model and direction: beside its weights, or in the cache."""
    path = find_table((folder / "draft-tables", cache_folder(fingerprint)), fingerprint, *direction)
    return None if path is None else DraftTable.load(path)


def places_of(folder: Path, fingerprint: str) -> tuple[Path, ...]:
    """The places of everything fitted on a model: screens, draft tables and heads."""
    return folder / "projections", folder / "draft-tables", folder / FILE, cache_folder(fingerprint)


def cache_folder(fingerprint: str) -> Path:
    """Where the draft tables of a model that cannot carry them are kept."""
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
    """The model that a table or head was made for."""
    about = read_note(path, kind).get("about")
    return about.get("fingerprint") if isinstance(about, dict) else None


def find_head(folder: Path, fingerprint: str) -> Path | None:
    """The head of a model: beside it, or where `fastdecode draft-head` writes unless told otherwise."""
    for path in (folder / FILE, default_path(fingerprint)):
        if _fingerprint(path, HEAD) == fingerprint:
            return path
    return None


def default_path(fingerprint: str) -> Path:
    """Where the head of a model that cannot carry it is kept."""
    return cache_folder(fingerprint) / FILE
