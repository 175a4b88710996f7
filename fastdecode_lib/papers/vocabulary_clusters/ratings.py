"""Outputs rated blind, side by side (Amer et al., 2022, table 6); one file because all of it reads the study's SQLite schema.

`sample_pairs` draws pairs whose outputs differ; a `Study` keeps them and their ratings in one SQLite file and compares the
systems as table 6 does, with the paper's unpaired test and a paired one.
"""

import csv
import hashlib
import json
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.store import atomic_file, write_table

LEVELS = (0.05, 0.01, 0.001)
"""Levels of significance, one star for each (caption of table 6)."""

VERSION = 1
APPLICATION = 0x66647274
"""Application id in SQLite's header that marks a study."""

_SCHEMA = """
CREATE TABLE study (facts TEXT NOT NULL);
CREATE TABLE pairs (pair INTEGER PRIMARY KEY, direction TEXT NOT NULL, segment INTEGER NOT NULL, source TEXT NOT NULL,
    reference TEXT, output_a TEXT NOT NULL, output_b TEXT NOT NULL);
CREATE TABLE ratings (rater TEXT NOT NULL, place INTEGER NOT NULL, pair INTEGER NOT NULL REFERENCES pairs,
    a_is_left INTEGER NOT NULL, score_left REAL, score_right REAL, comment TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (rater, place)) WITHOUT ROWID;
"""
_RATED = """
SELECT rater, pair, direction, segment, source, reference, output_a, output_b,
    CASE a_is_left WHEN 1 THEN score_left ELSE score_right END AS score_a,
    CASE a_is_left WHEN 1 THEN score_right ELSE score_left END AS score_b,
    a_is_left, comment
FROM ratings JOIN pairs USING (pair) WHERE score_left IS NOT NULL ORDER BY rater, place
"""


# ------------------------------------------------------------------------------------------------------------ sampling


@dataclass(frozen=True)
class Pair:
    """A source segment with the outputs of two systems; `segment` is its index among all segments."""

    segment: int
    source: str
    output_a: str
    output_b: str
    reference: str | None = None


@dataclass(frozen=True)
class Sample:
    """Pairs of one direction whose outputs differ.

    Attributes
    ----------
    pairs : tuple of Pair
        Pairs in the order of their segments.
    segments, differing : int
        Number of segments to draw from, and of those whose outputs differ.
    direction : str
        Direction such as ``en-de``; empty where there is only one.
    """

    pairs: tuple[Pair, ...]
    segments: int
    differing: int
    direction: str = ""

    @property
    def identical(self) -> float:
        """Share of segments, from 0 to 1, for which both systems gave the same output; some 0.92 in the paper."""
        return 1 - self.differing / self.segments


def sample_pairs(
    sources: Sequence[str],
    outputs_a: Sequence[str],
    outputs_b: Sequence[str],
    count: int,
    seed: int,
    references: Sequence[str] | None = None,
    *,
    direction: str = "",
) -> Sample:
    """Draw pairs for raters, uniformly from the segments whose outputs differ (section 3.4).

    Parameters
    ----------
    sources, outputs_a, outputs_b, references : sequences of str
        One entry per segment; outputs differ when they are not the same string.
    count : int
        Number of pairs; the paper drew 1,700 a direction from some 16,000.
    direction : str
        Direction such as ``en-de``, for a study of several.

    Raises
    ------
    ValueError
        If lengths differ, all outputs are identical or fewer than `count` differ.
    """
    columns = {"sources": sources, "outputs_a": outputs_a, "outputs_b": outputs_b}
    columns |= {} if references is None else {"references": references}
    lengths = {name: len(texts) for name, texts in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Each segment has one text of each kind, got {lengths}. Pass lists of equal length.")
    for name, texts in columns.items():
        for text in texts:
            _check_text(name, text)
    differing = [index for index, (a, b) in enumerate(zip(outputs_a, outputs_b, strict=True)) if a != b]
    if not differing:
        raise ValueError(
            f"Raters compare outputs that differ, got {len(sources)} segments with identical outputs. "
            "There is nothing to rate: report that share, or take more segments."
        )
    if type(count) is not int or not 1 <= count <= len(differing):
        raise ValueError(
            f"count must be from 1 to the {len(differing)} segments whose outputs differ, got {count!r}. "
            "Lower count or take more segments."
        )
    chosen = np.sort(np.random.default_rng(seed).choice(differing, count, replace=False)).tolist()
    pairs = tuple(
        Pair(index, sources[index], outputs_a[index], outputs_b[index], references[index] if references else None)
        for index in chosen
    )
    return Sample(pairs, len(sources), len(differing), direction)


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise ValueError(f"Texts are strings, got a {type(text).__name__} in {name}. Decode or join it first.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"Texts are Unicode, got half a surrogate pair in {name}: {text!r}. Mend the text.") from None


# --------------------------------------------------------------------------------------------------------------- study


class Study:
    """Pairs and their ratings in one SQLite file; any number of processes may have it open.

    Each rater sees the pairs in another random order, each system on the left in half of them. A rating is on the disk
    before `rate` returns. The file must be on a local disk: its journal (WAL) does not work over a network.

    Attributes
    ----------
    systems : (str, str)
        Names of the systems behind outputs a and b; raters do not see them.
    total : int
        Number of pairs.

    Examples
    --------
    >>> sample = sample_pairs(sources, exact, clustered, count=50, seed=0)
    >>> study = Study.create("ratings.sqlite", sample, systems=("exact", "clustered"))
    >>> study.rate("anna", study.next_place("anna"), left=80, right=65)
    >>> study.table()
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._db = _connect(self.path)
        self._facts = json.loads(self._db.execute("SELECT facts FROM study").fetchone()[0])
        self.systems: tuple[str, str] = tuple(self._facts["systems"])
        self.total: int = self._db.execute("SELECT COUNT(*) FROM pairs").fetchone()[0]

    @classmethod
    def create(
        cls, path: str | Path, samples: Sample | Sequence[Sample], systems: tuple[str, str], seed: int = 0
    ) -> "Study":
        """Make a study of one sample or of one for each direction, or open it if the file holds this study already.

        Parameters
        ----------
        systems : (str, str)
            Names of the systems behind outputs a and b.
        seed : int
            Seed of the raters' orders and sides.

        Raises
        ------
        ValueError
            If the file holds another study, or samples or names are repeated or missing.
        """
        samples = [samples] if isinstance(samples, Sample) else list(samples)
        names = [sample.direction for sample in samples]
        if not samples or len(set(names)) < len(names):
            raise ValueError(f"A study has one sample of each direction, got {names}. Name them in sample_pairs().")
        if len(systems) != 2 or not all(systems) or systems[0] == systems[1]:
            raise ValueError(f"A study compares two systems, got {systems!r}. Give each a name of its own.")
        if type(seed) is not int or seed < 0:
            raise ValueError(f"A seed is a whole number from 0 on, got {seed!r}. Example: 0.")
        path, facts = Path(path), _facts(samples, systems, seed)
        if not path.exists():
            _write(path, samples, facts)
        study = cls(path)
        if study._facts != facts:
            study.close()
            raise ValueError(
                f"{path} must hold the study of these pairs, systems and seed, got another one. "
                "Open it with Study(path), or give this one a new path."
            )
        return study

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> "Study":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Study({str(self.path)!r}, {self.total} pairs, {' and '.join(self.systems)})"

    # ------------------------------------------------------------------------------------------------ what a rater sees

    def progress(self, rater: str) -> tuple[int, int]:
        """Number of pairs that the rater has rated, and of all pairs."""
        self._enrol(rater)
        return self._first_row("SELECT COUNT(score_left), COUNT(*) FROM ratings WHERE rater = ?", rater)

    def next_place(self, rater: str) -> int | None:
        """The first place in the rater's order, from 0, whose pair is not rated; None when all are."""
        self._enrol(rater)
        place: int | None = self._first_row(
            "SELECT MIN(place) FROM ratings WHERE rater = ? AND score_left IS NULL", rater
        )[0]
        return place

    def pair_at(self, rater: str, place: int) -> dict[str, Any]:
        """The pair at a place in the rater's order, without the systems' names.

        Returns
        -------
        dict
            ``source``, ``reference`` (or None), the outputs as ``left`` and ``right``; and the rating so far: ``scores`` (left
            and right, or None) and ``comment``.
        """
        self._check_place(rater, place)
        source, reference, left, right, *scores, comment = self._first_row(
            "SELECT source, reference, CASE a_is_left WHEN 1 THEN output_a ELSE output_b END, "
            "CASE a_is_left WHEN 1 THEN output_b ELSE output_a END, score_left, score_right, comment "
            "FROM ratings JOIN pairs USING (pair) WHERE rater = ? AND place = ?",
            rater,
            int(place),
        )
        rating = {"scores": None if None in scores else scores, "comment": comment}
        return {"source": source, "reference": reference, "left": left, "right": right} | rating

    def rate(self, rater: str, place: int, left: float, right: float, comment: str = "") -> None:
        """Store a rater's scores of the pair at a place in their order, replacing earlier ones.

        Parameters
        ----------
        left, right : float
            Scores from 0, the worst, to 100.
        """
        self._check_place(rater, place)
        for score in (left, right):
            if not isinstance(score, Real) or isinstance(score, bool) or not 0 <= score <= 100:
                raise ValueError(f"A score is a number from 0 to 100, got {score!r}. Rate both outputs.")
        _check_text("comment", comment)
        with self._lock, self._db:
            self._db.execute(
                "UPDATE ratings SET score_left = ?, score_right = ?, comment = ? WHERE rater = ? AND place = ?",
                (float(left), float(right), comment, rater, int(place)),
            )

    def _enrol(self, rater: str) -> None:
        """Give a new rater an order of the pairs, and the sides of each, drawn with a seed from the name."""
        if not isinstance(rater, str) or not rater.strip() or rater != rater.strip() or not rater.isprintable():
            raise ValueError(f"A rater needs a name without spaces at its ends, got {rater!r}. Example: 'anna'.")
        with self._lock, self._db:
            if self._first_row("SELECT EXISTS (SELECT 1 FROM ratings WHERE rater = ?)", rater)[0]:
                return
            digest = np.frombuffer(hashlib.sha256(rater.encode()).digest(), dtype=np.uint32)
            generator = np.random.default_rng([self._facts["seed"], *digest.tolist()])
            order = generator.permutation(self.total).tolist()
            a_is_left = generator.permutation(np.arange(self.total) % 2).tolist()
            self._db.executemany(
                "INSERT OR IGNORE INTO ratings (rater, place, pair, a_is_left) VALUES (?, ?, ?, ?)",
                [(rater, place, *row) for place, row in enumerate(zip(order, a_is_left, strict=True))],
            )

    def _check_place(self, rater: str, place: object) -> None:
        self._enrol(rater)
        if not isinstance(place, int | np.integer) or not 0 <= place < self.total:
            raise ValueError(f"Places are from 0 to {self.total - 1}, got {place!r}. Ask next_place() for one.")

    def _first_row(self, query: str, *values: object) -> tuple[Any, ...]:
        with self._lock:
            row: tuple[Any, ...] = self._db.execute(query, values).fetchone()
        return row

    # ------------------------------------------------------------------------------------------------------------ results

    def ratings(self) -> pd.DataFrame:
        """Every rating, with the systems' names.

        Returns
        -------
        DataFrame
            ``rater``, ``pair``, ``direction``, ``segment``, ``source``,
            ``reference``, ``output_a``, ``output_b``, ``score_a``, ``score_b``, ``comment``, ``system_a``, ``system_b``
            and ``left``, the name of the system on the left.
        """
        with self._lock:
            frame = pd.read_sql_query(_RATED, self._db)
        a, b = self.systems
        left = np.where(frame.pop("a_is_left") == 1, a, b)
        return frame.assign(system_a=a, system_b=b, left=left)

    def export(self, path: str | Path) -> None:
        """Write every rating, with the systems' names, as ``.csv`` or ``.json`` (`fastdecode_lib.store.write_table`)."""
        frame, suffix = self.ratings(), Path(path).suffix
        if suffix == ".json":
            rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
            write_table(path, rows, self._facts)
        elif suffix == ".csv":
            with atomic_file(path) as temporary:
                frame.to_csv(temporary, index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        else:
            raise ValueError(f"Ratings are exported as .csv or .json, got {str(path)!r}. Choose one of these endings.")

    def table(self) -> pd.DataFrame:
        """Table 6: for each direction the mean score of either system and whether the difference is significant.

        A pair's score is the mean over its raters, so that the unit of both tests is the pair: several raters' scores of one
        output are not independent.

        Returns
        -------
        DataFrame
            ``name``, ``direction``, ``system_a``, ``system_b``; the numbers of ``raters``, of ``pairs`` rated and of
            ``ratings``; the columns of `compare_scores`; and ``identical``, the share of segments (0 to 1) whose two outputs are
            the same.
        """
        samples, rated = self._facts["samples"], self.ratings()
        if rated.empty:
            raise ValueError(f"A comparison needs ratings, got none in {self.path}. Rate pairs with ddgviz.rate().")
        directions = [name for name in samples if (rated["direction"] == name).any()]
        rows = []
        for name, members in [(name, [name]) for name in directions] + [("", list(samples))] * (len(directions) > 1):
            part = rated[rated["direction"].isin(members)]
            means = part.groupby("pair")[["score_a", "score_b"]].mean().to_numpy()
            segments, differing = (sum(samples[member][key] for member in members) for key in ("segments", "differing"))
            rows.append(
                {
                    "name": name or "all",
                    "direction": name,
                    "system_a": self.systems[0],
                    "system_b": self.systems[1],
                    "raters": part["rater"].nunique(),
                    "pairs": len(means),
                    "ratings": len(part),
                    **compare_scores(means[:, 0], means[:, 1]),
                    "identical": 1 - differing / segments,
                }
            )
        return pd.DataFrame(rows)


def _facts(samples: Sequence[Sample], systems: tuple[str, str], seed: int) -> dict[str, Any]:
    """Facts about a study; `identity` is a digest of all its texts."""
    content = json.dumps([asdict(sample) for sample in samples], sort_keys=True)
    return {
        "identity": hashlib.sha256(content.encode()).hexdigest(),
        "systems": list(systems),
        "seed": seed,
        "samples": {s.direction: {"segments": s.segments, "differing": s.differing} for s in samples},
    }


def _write(path: Path, samples: Sequence[Sample], facts: dict[str, Any]) -> None:
    """Write a study's file atomically."""
    journal = path.with_name(f"{path.name}-wal")
    if journal.exists():
        raise ValueError(
            f"A new study needs a fresh path, got {path} with a journal left over. Delete {journal} first."
        )
    rows = [(sample.direction, pair) for sample in samples for pair in sample.pairs]
    with atomic_file(path) as temporary, closing(sqlite3.connect(temporary)) as db, db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(f"{_SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};")
        db.execute("INSERT INTO study VALUES (?)", (json.dumps(facts),))
        db.executemany(
            "INSERT INTO pairs VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (number, direction, pair.segment, pair.source, pair.reference, pair.output_a, pair.output_b)
                for number, (direction, pair) in enumerate(rows)
            ],
        )


def _connect(path: Path) -> sqlite3.Connection:
    """Open a file and check that it is a study that this version can read."""
    if not path.is_file():
        raise ValueError(f"A study is a file, got {path}, where there is none. Make one with Study.create().")
    db = sqlite3.connect(path, timeout=30, check_same_thread=False)
    try:
        checks = ("application_id", "user_version", "quick_check(1)", "synchronous = FULL")
        application, version, health, _ = (db.execute(f"PRAGMA {check}").fetchone() for check in checks)
        if application != (APPLICATION,):
            raise sqlite3.DatabaseError("another kind of file")
        if version != (VERSION,):
            raise sqlite3.DatabaseError(f"version {version[0]}")
        if health != ("ok",):
            raise sqlite3.DatabaseError("a damaged one")
    except sqlite3.DatabaseError as error:
        db.close()
        raise ValueError(
            f"{path} must be a study of version {VERSION}, got {error}. "
            "Restore it from a copy, or make another with Study.create()."
        ) from error
    return db


# ---------------------------------------------------------------------------------------------------------- statistics


def compare_scores(scores_a: np.ndarray, scores_b: np.ndarray) -> dict[str, Any]:
    """Table 6 for any scores of two systems on the same pairs.

    Parameters
    ----------
    scores_a, scores_b : float arrays (pairs,)
        The same pairs in the same order; a pair's score is the mean over its raters.

    Returns
    -------
    dict
        ``mean_a``, ``mean_b``, ``difference`` (b minus a); the p-values ``rank_sum`` (Wilcoxon's rank-sum test, unpaired,
        the paper's) and ``signed_rank`` (Wilcoxon's signed-rank test, paired), both two-sided; and for each its
        ``_mark``, as in table 6: ``*`` below .05, ``**`` below .01, ``***`` below .001. Both are normal approximations;
        the signed-rank test is exact for up to 50 pairs without ties.
    """
    a, b = np.asarray(scores_a, dtype=np.float64), np.asarray(scores_b, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or not a.size or not np.isfinite(np.stack([a, b])).all():
        raise ValueError(
            f"Systems are compared on the same pairs, got scores of shape {a.shape} and {b.shape}, or not all finite. "
            "Pass one finite score per pair and system."
        )
    row: dict[str, Any] = {
        "mean_a": float(a.mean()),
        "mean_b": float(b.mean()),
        "difference": float(b.mean() - a.mean()),
    }
    for name, p in _p_values(a, b).items():
        row |= {name: p, f"{name}_mark": "*" * sum(p < level for level in LEVELS)}
    return row


def _p_values(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """Two-sided p-values of both tests."""
    from scipy import stats

    difference = np.round(b - a, 9)  # else the rounding of means breaks ties
    signed_rank = 1.0
    if difference.any():
        ties = len(np.unique(np.abs([0.0, *difference]))) <= len(difference)
        method = "asymptotic" if ties or len(difference) > 50 else "exact"
        signed_rank = float(stats.wilcoxon(difference, method=method).pvalue)
    return {"rank_sum": float(stats.ranksums(a, b).pvalue), "signed_rank": signed_rank}
