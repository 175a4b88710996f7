"""The text that models are trained and measured on: reading its splits and joining its sentences.

The corpus is a folder named by ``--data`` or ``FASTDECODE_DATA``; using the library never needs it. Its layout is
``tatoeba/{train,dev,test}.en-{de,fr,es}.tsv.gz``, one pair a line, English first, and ``novels/{train,valid,test}.txt.gz``,
one sentence a line.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

SPLITS = ("train", "dev", "test")
FOREIGN = ("de", "fr", "es")
DIRECTIONS = tuple(pair for other in FOREIGN for pair in (("en", other), (other, "en")))

T = TypeVar("T")
Pair = tuple[str, str]


class CorpusNotFound(ValueError):
    """The corpus folder is not named, or lacks a file."""


def corpus_folder(data: str | Path | None = None) -> Path:
    """The corpus folder: the argument, or else the environment variable ``FASTDECODE_DATA``.

    Raises
    ------
    CorpusNotFound
        If neither names an existing folder.
    """
    name = data or os.environ.get("FASTDECODE_DATA")
    if not name:
        raise CorpusNotFound(
            "This needs the corpus, and no folder was named. Pass --data DIR or set FASTDECODE_DATA=DIR; DIR holds "
            "tatoeba/train.en-de.tsv.gz and its siblings. Commands with --source FILE read your own sentences instead."
        )
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise CorpusNotFound(f"The corpus folder does not exist: got {str(folder)!r}. Pass an existing --data DIR.")
    return folder


def corpus_fingerprint(data: str | Path | None = None) -> str:
    """Fingerprint of a corpus: 16 hex digits that depend on the names and contents of its files, not on the folder.

    Raises
    ------
    CorpusNotFound
        As `corpus_folder`.
    """
    return _fingerprint(corpus_folder(data))


@cache
def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("tatoeba/*.tsv.gz"), *folder.glob("novels/*.txt.gz")]):
        digest.update(f"{path.parent.name}/{path.name} {path.stat().st_size} ".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Tatoeba:
    """Short everyday sentences in English and German, French or Spanish (tatoeba.org, CC BY 2.0 FR).

    Parameters
    ----------
    folder : Path
        The corpus folder, as found by `corpus_folder`.
    """

    folder: Path

    def pairs(self, split: str, source: str, target: str) -> list[Pair]:
        """All (source, target) sentence pairs of one split in one direction, in file order.

        Raises
        ------
        CorpusNotFound
            If the file is missing.
        ValueError
            If the split or the direction is unknown, or a line is not a pair.
        """
        if split not in SPLITS:
            raise ValueError(f"Unknown split: got {split!r}. Use one of {', '.join(SPLITS)}.")
        if (source, target) not in DIRECTIONS:
            directions = ", ".join(f"{a}-{b}" for a, b in DIRECTIONS)
            raise ValueError(f"The corpus has no direction {source}-{target}. Use one of {directions}.")
        foreign = target if source == "en" else source
        path = self.folder / "tatoeba" / f"{split}.en-{foreign}.tsv.gz"
        english_first = _read_pairs(path)
        return english_first if source == "en" else [(b, a) for a, b in english_first]


@dataclass(frozen=True)
class Novels:
    """English sentences of novels published from 1832 to 1928, one a line (public domain).

    Parameters
    ----------
    folder : Path
        The corpus folder, as found by `corpus_folder`.
    """

    folder: Path

    def sentences(self, split: str) -> list[str]:
        """All sentences of one split (``"train"``, ``"dev"`` or ``"test"``), in file order.

        Raises
        ------
        CorpusNotFound
            If the file is missing.
        ValueError
            If the split is unknown.
        """
        if split not in SPLITS:
            raise ValueError(f"Unknown split: got {split!r}. Use one of {', '.join(SPLITS)}.")
        path = self.folder / "novels" / f"{'valid' if split == 'dev' else split}.txt.gz"
        return [line.lstrip("\ufeff") for line in _read_lines(path)]


def _read_lines(path: Path) -> list[str]:
    if not path.is_file():
        raise CorpusNotFound(f"A corpus file is missing: {path}. Check --data or FASTDECODE_DATA.")
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = file.read().split("\n")
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not readable: {error}. It may be cut short; copy it again.") from error
    return lines[:-1] if lines[-1] == "" else lines


def _read_pairs(path: Path) -> list[Pair]:
    pairs = []
    for number, line in enumerate(_read_lines(path), 1):
        fields = line.split("\t")
        if len(fields) != 2:
            raise ValueError(
                f"{path}, line {number}: expected source<TAB>target, got {len(fields)} fields. Correct the line."
            )
        pairs.append((fields[0], fields[1]))
    return pairs


def join_pairs(
    pairs: Sequence[Pair], *, seed: int, count: int | None = None, sizes: tuple[int, int] = (2, 4)
) -> list[Pair]:
    """Longer examples: two to four pairs joined by a space on both sides, in the same order.

    Parameters
    ----------
    pairs : sequence of (source, target)
    seed : int
        Determines the order of the pairs and the sizes of the groups.
    count : int, optional
        Number of joined pairs; the pairs are repeated in new orders as often as needed. By default every pair is used once, so
        that a joined test set has the same sentences as the single one.
    sizes : (int, int)
        Fewest and most pairs that are joined; the last group has the remaining pairs.
    """
    joined: list[Pair] = []
    for group in _groups(len(pairs), np.random.default_rng(seed), sizes, endless=count is not None):
        if count is not None and len(joined) == count:
            break
        joined.append((" ".join(pairs[i][0] for i in group), " ".join(pairs[i][1] for i in group)))
    return joined


def spread_over(items: Sequence[T], most: int) -> list[T]:
    """At most `most` of the items, evenly from first to last, since splits are sorted by length; the middle one if `most` is 1."""
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[(len(items) - 1) // 2]]
    return [items[i] for i in np.linspace(0, len(items) - 1, most).round().astype(int)]


def shuffled(items: Sequence[T], seed: int) -> list[T]:
    """The items in random order, since splits are sorted by length."""
    return [items[i] for i in np.random.default_rng(seed).permutation(len(items))]


def _groups(number: int, random: np.random.Generator, sizes: tuple[int, int], *, endless: bool) -> Iterator[np.ndarray]:
    fewest, most = sizes
    while number:
        order = random.permutation(number)
        start = 0
        while start < number:
            size = int(random.integers(fewest, most + 1))
            if number - start - size == 1:
                size += 1 if size < most else -1
            yield order[start : start + size]
            start += size
        if not endless:
            return
