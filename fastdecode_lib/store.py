"""Files, written whole or not at all and read within limits; one file because everything else reads and writes through it.

A process locks what it is writing. The system releases the lock when the process dies: the next writer to the same path
sees an unlocked leftover and deletes it.
"""

import errno
import fcntl
import glob
import json
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST_JSON = 256_000_000
"""Bytes of a JSON file, at most."""
DEEPEST_JSON = 40
"""Lists and objects within each other, at most."""
NUMBERS = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")
"""Types of tensors that are read as numpy arrays, bfloat16 as float32."""


@dataclass(frozen=True)
class ModelFiles:
    """Files of a model and a direction, for projections and drafts that need more than the network.

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
        From the name of another model with the same vocabulary, its outputs for a batch.
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
        """Fingerprint of the model; read from its weights when it is first asked for."""
        return None if self.checkpoint is None else self.checkpoint.fingerprint


def times(places: Iterable[Path]) -> tuple[tuple[str, int], ...]:
    """The files at these paths and in these folders, each with the time when it was last written."""
    paths = [str(place) for place in places]
    for place in paths[:]:
        paths += [os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names]
    return tuple(sorted((path, os.stat(path).st_mtime_ns) for path in paths if os.path.isfile(path)))


def user_cache() -> Path:
    """The folder of files that can be made again: ``fastdecode`` in the user's cache, a temporary one for a user without a home."""
    with suppress(RuntimeError):
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastdecode"
    return Path(tempfile.gettempdir()) / f"fastdecode-{os.getuid()}"


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """A temporary file, in a folder beside `path`, that replaces `path` when the block ends well and is deleted otherwise.

    Through a symbolic link, the file it points to is replaced. Content for a pipe or a device is written to it at the end.

    Raises
    ------
    ValueError
        If `path` is a folder, a socket or a disk.

    Examples
    --------
    >>> with atomic_file("table.json") as temporary:
    ...     temporary.write_text("{}")
    """
    is_stream = _is_stream(Path(path))
    path = Path(path) if is_stream else Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not is_stream:
        _clear(path.parent, path.name)
    folder, handle = _temporary(path.name, None if is_stream else path.parent)
    temporary = folder / path.name  # the folder is locked, not the file, which some writers replace
    try:
        temporary.touch()
        with _system_errors(path):
            yield temporary
        if is_stream:
            number = _descriptor(path)
            with (
                temporary.open("rb") as content,
                path.open("wb") if number is None else os.fdopen(os.dup(number), "wb") as stream,
            ):
                shutil.copyfileobj(content, stream)
            return
        _flush_to_disk(temporary)
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def write_text(path: str | Path, text: str) -> None:
    """Write a text as UTF-8, whole or not at all; see `atomic_file`."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _is_stream(path: Path) -> bool:
    """Whether a path is a pipe or a device such as a terminal, which are written to and never replaced."""
    if _descriptor(path) is not None:
        return True
    if not path.exists() or path.is_file():
        return False
    if path.is_fifo() or path.is_char_device():
        return True
    kind = "a folder" if path.is_dir() else "a socket" if path.is_socket() else "a disk"
    raise ValueError(f"A file cannot be written there: got {str(path)!r}, which is {kind}. Name a file.")


def _descriptor(path: Path) -> int | None:
    """The number of the open file that a path such as /dev/stdout stands for; it may be a file, which is not replaced either."""
    folder, name = str(path.parent), path.name
    if folder == "/dev/fd" and name.isdecimal():
        return int(name)
    return {"/dev/stdout": 1, "/dev/stderr": 2}.get(str(path))


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """A temporary folder that replaces `path`, or the target of a link there, when the block ends well.

    Readers never see a mixture of the old and the new folder. A process killed between the two renames leaves the old folder
    under another name; the next writer to `path`, or `recover`, puts it back.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path.parent, path.name)
    temporary, handle = _temporary(path.name, path.parent)
    replaced = temporary.with_suffix(".old")
    try:
        with _system_errors(path):
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
        os.close(handle)


def check_replaceable(folder: str | Path, marker: str) -> Path:
    """A folder that may be replaced as a whole: it is missing, empty, or holds `marker`, a file that only such folders have.

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
    """Clear up after killed processes: put back the folders they were replacing, delete what they left half written."""
    _clear(Path(folder), "*")


def _clear(folder: Path, name: str) -> None:
    """Clear up what killed processes left of files and folders of this name, or of any name for ``"*"``."""
    names = name if name == "*" else glob.escape(name)
    for leftover in sorted(folder.glob(f".{names}.*.old")):
        original = leftover.with_name(leftover.name.rsplit(".", 2)[0].removeprefix("."))
        with _abandoned(leftover.with_suffix(".part")) as abandoned:
            if not abandoned:
                continue
            if original.exists():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                os.replace(leftover, original)
    for leftover in folder.glob(f".{names}.*.part"):  # a file, if an older version left it
        with _abandoned(leftover) as abandoned:
            if abandoned:
                shutil.rmtree(leftover, ignore_errors=True) if leftover.is_dir() else leftover.unlink(missing_ok=True)


@contextmanager
def _system_errors(path: Path) -> Iterator[None]:
    """Turn the errors of safetensors and numpy on a full disk into an OSError."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ == "SafetensorError" or (isinstance(error, OSError) and error.errno is None):
            raise OSError(errno.EIO, str(error), str(path)) from error
        raise


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Hold a lock for a file or folder that is read and then replaced, so that no other process replaces it in between."""
    parent = Path(os.path.realpath(path)).parent
    parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _temporary(name: str, folder: Path | None) -> tuple[Path, int]:
    """A new temporary folder, and the open handle that holds the lock on it."""
    while True:
        temporary = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".part", dir=folder))
        with suppress(FileNotFoundError):  # another writer deleted it as abandoned before it was locked
            handle = os.open(temporary, os.O_RDONLY)
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            if temporary.exists():
                return temporary, handle
            os.close(handle)


@contextmanager
def _abandoned(path: Path) -> Iterator[bool]:
    """Whether no living process writes to a folder, which is locked during the block; False where there are no locks."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:  # deleted, or another user's
        yield isinstance(error, FileNotFoundError)
        return
    locked = False
    try:
        with suppress(OSError):  # a living process holds the lock, or there are no locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        yield locked
    finally:
        os.close(handle)


def _flush_to_disk(file: Path) -> None:
    with file.open("rb") as content:
        os.fsync(content.fileno())


COPY = "Copy it again."


def read_json(path: str | Path, kind: type = dict, error: type[ValueError] = ValueError, again: str = COPY) -> Any:
    """The content of a JSON file, an object or what `kind` says; see `parse_json`.

    `again` ends the message of an error: how to get an undamaged file.

    Raises
    ------
    error
        If there is no such file, or it is damaged.
    """
    path = Path(path)
    try:
        if (size := path.stat().st_size) > LARGEST_JSON:
            raise ValueError(f"{size:,} bytes, and at most {LARGEST_JSON:,} are read")
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as reason:
        cause = reason.strerror if isinstance(reason, OSError) else reason
        raise error(f"{path} is not readable JSON: {cause}. It may be cut short. {again}") from reason
    if not isinstance(content, kind):
        expected = "a JSON object" if kind is dict else "a JSON list"
        raise error(f"{path} should hold {expected}, got {type(content).__name__}. {again}")
    return content


def parse_json(text: str) -> Any:
    """JSON with every key once, finite numbers and at most `DEEPEST_JSON` levels.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    try:
        content = json.loads(text, object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite)
    except RecursionError as reason:
        raise ValueError("nested too deep") from reason
    level = _nested([content])
    for _ in range(DEEPEST_JSON):
        level = _nested(inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer))
    if level:
        raise ValueError(f"nested deeper than {DEEPEST_JSON} levels")
    return content


def _nested(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r} stands twice")
    return content


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"a number that is not finite: {number}")
    return value


def read_tensors(
    path: str | Path, error: type[ValueError] = ValueError, again: str = COPY, framework: str = "np"
) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors of a safetensors file, and its metadata.

    Parameters
    ----------
    framework : str
        ``"np"`` for numpy arrays, bfloat16 as float32; ``"pt"`` for torch tensors.

    Raises
    ------
    error
        If there is no such file, it is damaged, or it holds numbers of a type that is not read.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework) as file:
            kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
            unsupported = {kind: name for name, kind in kinds.items() if kind not in NUMBERS and framework == "np"}
            if unsupported:
                kind, name = unsupported.popitem()
                raise error(
                    f"The tensor {name!r} of {path} has type {kind}, which numpy does not have. Save it as float32."
                )
            bfloat16_names = [name for name, kind in kinds.items() if framework == "np" and kind == "BF16"]
            tensors = {name: file.get_tensor(name) for name in kinds if name not in bfloat16_names}
            metadata = file.metadata() or {}
        if bfloat16_names:
            with safe_open(path, "pt") as file:
                tensors |= {name: file.get_tensor(name).float().numpy() for name in bfloat16_names}
    except (SafetensorError, OSError) as reason:
        cause = (reason.strerror if isinstance(reason, OSError) else None) or str(reason)
        remedy = "It may be cut short."
        if not Path(path).is_file():
            cause, remedy = "It is a folder" if Path(path).is_dir() else "No such file", "Check the path."
        raise error(f"{path} is not a readable safetensors file: {cause}. {remedy} {again}") from reason
    return tensors, metadata


def tensor_names(path: str | Path) -> set[str]:
    """The names of the tensors of a readable safetensors file."""
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        return set(file.keys())


def read_note(path: str | Path, key: str) -> dict[str, Any]:
    """The JSON object under a key of a safetensors file's metadata; empty where there is none, or no such file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            return note_of(file.metadata(), key)
    except (SafetensorError, OSError):
        return {}


def note_of(metadata: Mapping[str, str] | None, key: str) -> dict[str, Any]:
    """The JSON object under a key of a safetensors file's metadata, already read; empty where there is none."""
    try:
        note = parse_json((metadata or {}).get(key, "{}"))
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def write_table(
    path: str | Path,
    rows: list[dict[str, Any]],
    provenance: dict[str, Any],
    traces: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """A machine-readable table: ``{"schema": 1, "provenance": {...}, "rows": [...]}``, numbers not finite as null.

    Traces, if any, are written beside the rows as ``"traces": {NAME: {...}}``.
    """
    content = {"schema": 1, "provenance": provenance, "rows": [plain_row(row) for row in rows]}
    content |= {"traces": dict(traces)} if traces else {}
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row with Python's own numbers, None for those that are not finite, as it is after writing and reading."""

    def plain(value: Any) -> Any:
        value = value.item() if hasattr(value, "item") else value
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {name: plain(value) for name, value in row.items()}
