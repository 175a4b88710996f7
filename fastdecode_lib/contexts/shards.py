"""Recorded contexts, on which projections are fitted; one file because the writing and the reading of shards must match.

Amer et al. and Chen et al. both start from such a table. On disk it is a folder: ``contexts.json`` says how it was made, and each
``shard-NNNNN`` holds the rows of some sentences:

============== ========================== ===================================================================
``hidden.npy`` (n, D) float32 or float16  hidden vectors that the output matrix multiplies, bitwise in float32
``labels.npy`` (n, K) int32               the best tokens of the exact projection, of equals the lowest id first
``gold.npy``   (n,) int32                 the next token, of the decoder or of the reference
``where.npy``  (n, 3) int32               direction, sentence and step
``shard.json``                            number of rows, size and sha256 of each file
============== ========================== ===================================================================

`recording.record` makes such folders.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib.store import atomic_folder, read_json

FORMAT, VERSION = "fastdecode-contexts", 1
NOTE = "contexts.json"
ARRAYS = ("hidden", "labels", "gold", "where")
BLOCK = 65_536
"""Rows read at a time."""


class ContextsError(ValueError):
    """Recorded contexts cannot be used: unfinished, damaged, or made by another model or with other settings."""


@dataclass(frozen=True)
class Block:
    """Rows of the table as plain arrays.

    Attributes
    ----------
    hidden : float32 array (n, D)
    labels : int32 array (n, K)
        Best first.
    gold : int32 array (n,)
    direction : int32 array (n,)
        Index into `Contexts.directions`.
    sentence : int32 array (n,)
        Index in the input of the direction; a repeated text has the index of its first occurrence.
    step : int32 array (n,)
        The slot of the output.
    """

    hidden: np.ndarray
    labels: np.ndarray
    gold: np.ndarray
    direction: np.ndarray
    sentence: np.ndarray
    step: np.ndarray

    def __len__(self) -> int:
        return len(self.gold)


# ------------------------------------------------------------------------------------------------------------- shards


@dataclass(frozen=True)
class Shard:
    """The rows of some sentences, in a folder of its own.

    Sentences `left_out` gave no row, because they are empty or too long; `files` has ``bytes`` and ``sha256`` of each file.
    """

    folder: Path
    rows: int
    left_out: int
    files: dict[str, dict[str, Any]]

    @classmethod
    def open(cls, folder: Path, key: str) -> "Shard":
        """A shard of the recording that `key` names, with its sizes checked.

        Raises
        ------
        ContextsError
            If it is missing, damaged, or of another recording.
        """
        try:
            note = read_json(folder / "shard.json")
            files = {f"{name}.npy": dict(note["files"][f"{name}.npy"]) for name in ARRAYS}
            shard = cls(folder, int(note["rows"]), int(note["left_out"]), files)
            sizes = {name: int(entry["bytes"]) for name, entry in files.items()}
            if unchecked := [name for name, entry in files.items() if not isinstance(entry["sha256"], str)]:
                raise ValueError(f"{unchecked[0]} has no checksum")
            actual = {name: (folder / name).stat().st_size for name in files}
            recording = note["recording"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(folder, f"it cannot be read ({type(error).__name__}: {error})") from error
        if recording != key:
            raise _damaged(folder, f"it belongs to the recording {recording!r}, not to {key!r}")
        for name, size in sizes.items():
            if actual[name] != size:
                raise _damaged(folder, f"{name} holds {actual[name]} bytes instead of {size}")
        return shard

    @property
    def bytes(self) -> int:
        """Size of the arrays on disk."""
        return sum(entry["bytes"] for entry in self.files.values())

    def verify(self) -> None:
        """Compare every file with its checksum.

        Raises
        ------
        ContextsError
        """
        for name, entry in self.files.items():
            if _sha256(self.folder / name) != entry["sha256"]:
                raise _damaged(self.folder, f"{name} has another checksum than when it was written")

    def array(self, name: str) -> np.ndarray:
        """One of `ARRAYS`, memory-mapped."""
        try:
            mapped: np.ndarray = np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise _damaged(self.folder, f"{name}.npy cannot be read ({error})") from error
        if len(mapped) != self.rows:
            raise _damaged(self.folder, f"{name}.npy holds {len(mapped)} rows instead of {self.rows}")
        return mapped


def shard_folder(folder: Path, number: int) -> Path:
    """Folder of a shard of a recording."""
    return folder / f"shard-{number:05}"


def write_shard(folder: Path, key: str, arrays: Mapping[str, np.ndarray], left_out: int) -> None:
    """Write the `ARRAYS` of a shard, whole or not at all; equal arrays give equal files."""
    with atomic_folder(folder) as temporary:
        files = {}
        for name in ARRAYS:
            path = temporary / f"{name}.npy"
            np.save(path, arrays[name], allow_pickle=False)
            files[path.name] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        note = {"recording": key, "rows": len(arrays["gold"]), "left_out": left_out, "files": files}
        (temporary / "shard.json").write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _damaged(path.parent, f"{path.name} cannot be read ({error})") from error


def _damaged(folder: Path, problem: str) -> ContextsError:
    return ContextsError(
        f"The recorded contexts in {folder.parent} are damaged: {folder.name}: {problem}. Record them again with the same "
        "settings and verify=True (`fastdecode record --verify`): only this shard is made again."
    )


# ------------------------------------------------------------------------------------------------------------ settings


def read_note(folder: Path) -> dict[str, Any]:
    """Content of ``contexts.json``: ``model``, ``settings``, ``left_out``, and the rows used of each shard once it is finished.

    Raises
    ------
    ContextsError
        If there is none, or it is not of this version.
    """
    path = folder / NOTE
    if not path.exists():
        raise ContextsError(
            f"There are no recorded contexts in {str(folder)!r}: it has no {NOTE}. Make some with `fastdecode record`."
        )
    try:
        note = read_json(path)
        header = {"format": note["format"], "version": note["version"]}
    except (ValueError, KeyError) as error:
        raise ContextsError(
            f"{path} cannot be read: {error!r}. Copy it again, or delete the folder and record again."
        ) from error
    if header != {"format": FORMAT, "version": VERSION}:
        raise ContextsError(
            f"Not recorded contexts of version {VERSION}: {path} says {header['format']!r} version {header['version']!r}. Record "
            "them again into another folder."
        )
    return dict(note)


def key_of(settings: Mapping[str, Any]) -> str:
    """A name for recordings with the same settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


# --------------------------------------------------------------------------------------------------------------- table


@dataclass(frozen=True, eq=False)
class Contexts:
    """N recorded contexts, or a view of some of them, read from disk on demand.

    Attributes
    ----------
    folder : Path
    model : str
        Name of the model at the time of the recording.
    settings : dict
        All settings that determine the contexts: ``fingerprint``, ``decoder``, ``top``, ``seed``, ...
    left_out : int
        Sentences that gave no row, because they are empty or too long for the model.
    shards : tuple of Shard
    offsets : int64 array
        First row of each shard, and the total number of rows.
    rows : int64 array (N,) or None
        The rows of the whole table that are in a view; None for all.

    Examples
    --------
    >>> contexts = Contexts.open("build/contexts")
    >>> fit, held_out = contexts.where(direction="en-de").split(0.1, seed=0)
    >>> for block in fit.blocks():
    ...     block.hidden, block.labels
    """

    folder: Path
    model: str
    settings: dict[str, Any]
    left_out: int
    shards: tuple[Shard, ...]
    offsets: np.ndarray
    rows: np.ndarray | None = None

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = False) -> "Contexts":
        """Open a finished recording and check the size of every file, with `verify` also its checksum.

        Raises
        ------
        ContextsError
            If there is none, it is unfinished, or a shard is damaged.
        """
        folder = Path(folder)
        note = read_note(folder)
        try:
            settings, row_counts = dict(note["settings"]), note["shards"]
            if row_counts is None:
                shard_count = len(list(folder.glob("shard-*")))
                raise ContextsError(
                    f"The recording in {folder} is not finished: got {shard_count} shards so far. Go on by recording with the same "
                    f"settings into the same folder (`fastdecode record ... --out {folder}`)."
                )
            shards = tuple(Shard.open(shard_folder(folder, i), key_of(settings)) for i in range(len(row_counts)))
            if short := [shard for shard, rows in zip(shards, row_counts, strict=True) if shard.rows < rows]:
                raise _damaged(short[0].folder, f"it holds {short[0].rows} rows, fewer than {NOTE} counts")
            offsets = np.concatenate([[0], np.cumsum(row_counts, dtype=np.int64)])
            contexts = cls(folder, str(note["model"]), settings, int(note["left_out"]), shards, offsets)
            _ = contexts.fingerprint, contexts.directions, contexts.width, contexts.vocabulary, contexts.top
        except (KeyError, TypeError) as error:
            raise ContextsError(
                f"{folder / NOTE} is damaged: {error!r}. Copy it again, or delete the folder and record again."
            ) from error
        if verify:
            contexts.verify()
        return contexts

    def __len__(self) -> int:
        return int(self.offsets[-1]) if self.rows is None else len(self.rows)

    def __repr__(self) -> str:
        return (
            f"Contexts({str(self.folder)!r}, {len(self)} rows of width {self.width}, top {self.top} of {self.vocabulary}, "
            f"{', '.join(self.directions)})"
        )

    @property
    def width(self) -> int:
        """D, the length of a hidden vector."""
        return int(self.settings["width"])

    @property
    def vocabulary(self) -> int:
        """V, the number of tokens."""
        return int(self.settings["vocabulary"])

    @property
    def top(self) -> int:
        """K, the number of labels of a row."""
        return int(self.settings["top"])

    @property
    def directions(self) -> tuple[str, ...]:
        """Names such as ``en-de``."""
        return tuple(self.settings["directions"])

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model that made the contexts."""
        return str(self.settings["fingerprint"])

    def check_model(self, fingerprint: str, width: int, vocabulary: int) -> None:
        """Check that a model is the one that made these contexts.

        Raises
        ------
        ContextsError
        """
        expected = {"fingerprint": fingerprint, "width": width, "vocabulary": vocabulary}
        for name, value in expected.items():
            if value != self.settings[name]:
                raise ContextsError(
                    f"The contexts in {self.folder} are of another model, {self.model}: its {name} is "
                    f"{self.settings[name]!r}, got {value!r}. Record contexts of this model with `fastdecode record`."
                )

    def verify(self) -> None:
        """Compare every file of every shard with its checksum.

        Raises
        ------
        ContextsError
            For the first damaged file.
        """
        for shard in self.shards:
            shard.verify()

    # -- reading

    def take(self, rows: np.ndarray) -> Block:
        """The rows with the given indices (n,), from 0, in the given order.

        Raises
        ------
        ValueError
            If an index is out of range.
        ContextsError
            If a shard is damaged, or holds a hidden vector that is not finite, or tokens outside the vocabulary.
        """
        rows = np.asarray(rows)
        if rows.ndim != 1 or (len(rows) and (rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(self))):
            raise ValueError(f"take needs indices (n,) from 0 to {len(self) - 1}: got {rows}. Give those of this view.")
        arrays = self._read(rows.astype(np.int64), ARRAYS)
        return Block(arrays["hidden"], arrays["labels"], arrays["gold"], *np.ascontiguousarray(arrays["where"].T))

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """All rows in order, `size` rows at a time."""
        if size < 1:
            raise ValueError(f"A block needs at least 1 row, got {size}. Use blocks({BLOCK}).")
        for start in range(0, len(self), size):
            yield self.take(np.arange(start, min(start + size, len(self))))

    def _read(self, rows: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """The named arrays of the given rows of this view."""
        shapes = {"hidden": (self.width,), "labels": (self.top,), "gold": (), "where": (3,)}
        arrays = {
            name: np.empty((len(rows), *shapes[name]), dtype=np.float32 if name == "hidden" else np.int32)
            for name in names
        }
        if not len(rows):
            return arrays
        rows = rows if self.rows is None else self.rows[rows]
        shard_numbers = np.searchsorted(self.offsets, rows, side="right") - 1
        order = np.argsort(shard_numbers, kind="stable")
        for positions in np.split(order, np.flatnonzero(np.diff(shard_numbers[order])) + 1):
            number = shard_numbers[positions[0]]
            shard, local = self.shards[number], rows[positions] - self.offsets[number]
            for name, array in arrays.items():
                values = shard.array(name)[local]
                if values.shape[1:] != shapes[name]:
                    raise _damaged(
                        shard.folder, f"{name}.npy holds rows of shape {values.shape[1:]} instead of {shapes[name]}"
                    )
                if name == "hidden" and not np.isfinite(values).all():
                    row = local[int(np.argmin(np.isfinite(values).all(1)))]
                    raise _damaged(shard.folder, f"the hidden vector in row {row} is not finite")
                if name in ("labels", "gold") and (values.min() < 0 or values.max() >= self.vocabulary):
                    raise _damaged(shard.folder, f"{name}.npy holds tokens outside the vocabulary of {self.vocabulary}")
                if name == "where" and (values[:, 0].min() < 0 or values[:, 0].max() >= len(self.directions)):
                    raise _damaged(shard.folder, f"where.npy holds directions outside the {len(self.directions)}")
                array[positions] = values
        return arrays

    # -- views

    def where(self, *, direction: str | Sequence[str]) -> "Contexts":
        """The rows of one direction, or of several.

        Raises
        ------
        ValueError
            If one of them is not recorded here.
        """
        names = [direction] if isinstance(direction, str) else list(direction)
        if unknown := [name for name in names if name not in self.directions]:
            raise ValueError(f"Unknown direction: got {unknown[0]!r}. Recorded are {', '.join(self.directions)}.")
        return self._view(np.isin(self._column(0), [self.directions.index(name) for name in names]))

    def sample(self, count: int, seed: int) -> "Contexts":
        """`count` different rows, drawn at random, in the order of the table.

        Raises
        ------
        ValueError
            If there are fewer rows.
        """
        if not 1 <= count <= len(self):
            raise ValueError(f"sample draws from 1 to all {len(self)} rows: got {count}. Ask for fewer.")
        drawn = np.random.default_rng(seed).choice(len(self), count, replace=False, shuffle=False)
        return self._view(np.sort(drawn))

    def split(self, share: float, seed: int) -> tuple["Contexts", "Contexts"]:
        """Two views without a common sentence, for fitting and for measuring; the second has about `share` of the sentences.

        Only the seed decides which sentences are held out: with the same seed they are the same in every view.

        Raises
        ------
        ValueError
            If one of the two would be empty.
        """
        sentence = self._column(1)
        drawn = np.random.default_rng(seed).random(int(sentence.max(initial=0)) + 1)
        held_out = drawn[sentence] < share
        if held_out.all() or not held_out.any():
            raise ValueError(
                f"split cannot hold out a share of {share} of {len(np.unique(sentence))} sentences: one side would be empty. "
                "Choose another share between 0 and 1, or record more."
            )
        return self._view(~held_out), self._view(held_out)

    def _column(self, place: int) -> np.ndarray:
        """Direction, sentence or step of all rows."""
        return self._read(np.arange(len(self)), ("where",))["where"][:, place]

    def _view(self, rows: np.ndarray) -> "Contexts":
        """A view of some rows, given as a mask or as ascending indices."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        return replace(self, rows=rows if self.rows is None else self.rows[rows])
