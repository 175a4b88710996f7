"""Files that are either whole or absent: every result and checkpoint is written through here; and those of a model."""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ModelFiles:
    """What belongs to a model and a direction, for the projections and drafts that need more than the network.

    Attributes
    ----------
    checkpoint : Checkpoint or None
        Its folder has screens in ``projections/NAME`` and draft tables in ``draft-tables``.
    direction : (source, target)
        None where the model names no languages.
    tokenizer : Tokenizer or None
    end : tuple of int
        Ids that end a sentence.
    lexicon : Lexicon or None
        Saved with the model.
    table : callable
        Finds and loads the draft table of the model and direction, None if there is none.
    outputs : callable
        From the name of another model of the same vocabulary, what it puts out for a batch.
    """

    checkpoint: Any = None
    direction: tuple[str | None, str | None] = (None, None)
    tokenizer: Any = None
    end: tuple[int, ...] = ()
    lexicon: Any = None
    table: Callable[[], Any] = lambda: None
    outputs: Callable[[str], Any] = lambda name: None

    @property
    def folder(self) -> Path | None:
        """The checkpoint's folder."""
        return None if self.checkpoint is None else Path(self.checkpoint.folder)

    @property
    def fingerprint(self) -> str | None:
        """What identifies the model; read from its weights when it is first asked for."""
        return None if self.checkpoint is None else self.checkpoint.fingerprint


def times(places: Iterable[Path]) -> tuple[tuple[str, int], ...]:
    """The files in some places, each with the time when it was last written."""
    everything = (path for place in places for path in (place.rglob("*") if place.is_dir() else (place,)))
    return tuple(sorted((str(path), path.stat().st_mtime_ns) for path in everything if path.is_file()))


def user_cache() -> Path:
    """The folder of what can be made again: ``fastdecode`` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastdecode"


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well, and vanishes when it does not.

    A symbolic link stays, and the file it points to is replaced. What is written to a pipe or a device goes through it.

    Raises
    ------
    ValueError
        If `path` is a folder, a socket or a disk.

    Examples
    --------
    >>> with atomic_file("table.json") as temporary:
    ...     temporary.write_text("{}")
    """
    through = _is_stream(Path(path))
    path = Path(path) if through else Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    place = None if through else path.parent
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=place)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if through:
            with temporary.open("rb") as content, path.open("wb") as stream:
                shutil.copyfileobj(content, stream)
            return
        _flush_to_disk(temporary)
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _is_stream(path: Path) -> bool:
    """Whether a path is a pipe or a device such as a terminal, which are written to and never replaced."""
    if not path.exists() or path.is_file():
        return False
    if path.is_fifo() or path.is_char_device():
        return True
    kind = "a folder" if path.is_dir() else "a socket" if path.is_socket() else "a disk"
    raise ValueError(f"A file cannot be written there: got {str(path)!r}, which is {kind}. Name a file.")


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """As `atomic_file`, for a whole folder, through links too: readers never see a mixture of the old one and the new one.

    A process killed at the moment of the exchange can leave only the old folder, under another name; `recover` puts it
    back.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    replaced = temporary.with_suffix(".old")
    try:
        yield temporary
        for file in temporary.iterdir():
            _flush_to_disk(file)
        temporary.chmod(0o755)
        try:
            if path.exists():
                os.replace(path, replaced)
            os.replace(temporary, path)
        except BaseException:
            if replaced.exists() and not path.exists():
                os.replace(replaced, path)
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if path.exists():
            shutil.rmtree(replaced, ignore_errors=True)


def check_replaceable(folder: str | Path, marker: str) -> Path:
    """A folder that may be written as a whole: it is not there, is empty, or holds `marker`, a file that says it is of the kind.

    Raises
    ------
    ValueError
        If it holds anything else, which would be lost.
    """
    folder = Path(folder)
    empty = folder.is_dir() and not any(folder.iterdir())
    if folder.exists() and not empty and not (folder / marker).is_file():
        raise ValueError(
            f"{folder} would be replaced as a whole, and holds something else: got no {marker} in it. Name another."
        )
    return folder


def recover(folder: str | Path) -> None:
    """Clear up after a process that was killed: put back folders it was exchanging, delete what it left half written.

    Only for folders that no other process is writing to.
    """
    for left in sorted(Path(folder).glob(".*.old")):
        original = left.with_name(left.name.rsplit(".", 2)[0].removeprefix("."))
        if original.exists():
            shutil.rmtree(left)
        else:
            os.replace(left, original)
    for left in Path(folder).glob(".*.part"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def _flush_to_disk(file: Path) -> None:
    with file.open("rb") as written:
        os.fsync(written.fileno())


def write_table(
    path: str | Path,
    rows: list[dict[str, Any]],
    provenance: dict[str, Any],
    traces: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """A machine-readable table: ``{"schema": 1, "provenance": {...}, "rows": [...]}``, numbers not finite as null.

    The passes that it was read from stand beside the rows as ``"traces": {NAME: {...}}``, where there are any.
    """
    content = {"schema": 1, "provenance": provenance, "rows": [plain_row(row) for row in rows]}
    content |= {"traces": dict(traces)} if traces else {}
    with atomic_file(path) as temporary:
        temporary.write_text(
            json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it is after writing and reading: numbers of Python alone, None for those that are not finite."""

    def plain(value: Any) -> Any:
        value = value.item() if hasattr(value, "item") else value
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {name: plain(value) for name, value in row.items()}
