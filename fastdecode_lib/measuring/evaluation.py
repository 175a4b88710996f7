"""Evaluation of many sentences under many decoders on any number of workers: counted and scored, not timed; resumable."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode_lib import __version__
from fastdecode_lib.checkpoints.hub import bundled, find_checkpoint
from fastdecode_lib.drafts.finding import places_of
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.quality import quality, same_share, signatures
from fastdecode_lib.store import atomic_file, read_json
from fastdecode_lib.translation import Session
from fastdecode_lib.workers import check_workers, over

if TYPE_CHECKING:
    import pandas as pd

CHUNK = 64
"""Sentences of a task, which is the unit that is kept, unless told otherwise."""
FOLDER = Path("build") / "evaluate"
COLUMNS = ("source_tokens", "tokens", "passes", "positions", "text", "ids")
Way = tuple[str | None, str]
"""A decoder (None: the model's plainest) and a projection."""


@dataclass(frozen=True)
class Job:
    """Settings that a worker gets with the sentences: names only, so that each process loads the model itself.

    Attributes
    ----------
    model : str
    settings : tuple of (name, value)
        Options of `loading.load`.
    direction : (source, target)
    limits : tuple of (name, value)
    fitted : (fingerprint, parts)
        Hashes of the weights and of the files fitted on them, so that a model kept in memory never outlives its files.
    """

    model: str
    settings: tuple[tuple[str, str], ...]
    direction: tuple[str | None, str | None]
    limits: tuple[tuple[str, Any], ...] = ()
    fitted: tuple[str, str] = ("", "")

    def session(self, way: Way) -> Session:
        """The session that runs a decoder and projection."""
        decoder, projection = way
        model = _loaded(self.model, self.settings, self.fitted)
        return Session.of(model, *self.direction, decoder, projection, **dict(self.limits))

    def __call__(self, task: "Task") -> list[dict[str, Any]]:
        """Counts and output of each sentence of a task."""
        frame = count(_session(self, task.way), task.texts)[list(COLUMNS)]
        return [{name: _plain(value) for name, value in row.items()} for row in frame.to_dict("records")]


@dataclass(frozen=True)
class Task:
    """Some sentences under one decoder and projection, and the file of their rows."""

    way: Way
    texts: tuple[str, ...]
    path: Path

    def kept(self) -> list[dict[str, Any]] | None:
        """Rows of the file; None if it is missing or damaged."""
        try:
            rows: list[dict[str, Any]] = read_json(self.path)["rows"]
        except (ValueError, KeyError, TypeError):
            return None
        return rows if len(rows) == len(self.texts) and all(set(row) == set(COLUMNS) for row in rows) else None

    def keep(self, rows: list[dict[str, Any]]) -> None:
        """Write the file."""
        with atomic_file(self.path) as temporary:
            temporary.write_text(json.dumps({"rows": rows}, ensure_ascii=False), encoding="utf-8")


def evaluate(
    model: str,
    texts: Sequence[str],
    *,
    references: Sequence[str] | None = None,
    source: str | None = None,
    target: str | None = None,
    decoders: Sequence[str | None] = (None,),
    projections: Sequence[str] = ("exact",),
    settings: Mapping[str, str] | None = None,
    folder: str | Path = FOLDER,
    workers: int | None = None,
    scheduler: str | None = None,
    chunk: int = CHUNK,
    progress: bool = False,
    **limits: Any,
) -> "pd.DataFrame":
    """Decode sentences by every decoder with every projection; count passes and score outputs.

    Finished chunks are kept in `folder` under a name that follows from model, settings and sentences: a run that was stopped
    or killed continues where it was, and the rows are the same for any number of workers.

    Parameters
    ----------
    model : str
        Name, folder or hub id for `fastdecode_lib.load`; each worker loads it for itself.
    references : sequence of str, optional
        References for BLEU and chrF.
    settings : mapping, optional
        ``device``, ``engine``, ``dtype`` and ``precision`` of `load`.
    workers, scheduler
        Arguments of `workers.over`.
    chunk : int
        Sentences of a task.

    Returns
    -------
    DataFrame
        A row for each decoder and projection: ``sentences``, ``tokens``, ``passes``, ``positions``, ``tokens_per_pass``,
        ``agreement`` (share of outputs that are the first row's), and ``bleu`` and ``chrf``. ``attrs["sentences"]`` has a
        table with a row for each sentence by name, ``attrs["provenance"]`` how it was made.

    Raises
    ------
    ValueError
        If there is nothing to decode, references do not fit, or a decoder or projection does not fit the model.
    """
    import pandas as pd
    from tqdm.auto import tqdm

    if not texts or (references is not None and len(references) != len(texts)):
        given = "none" if references is None else len(references)
        raise ValueError(
            f"Evaluation needs sentences, and a reference for each or none: got {len(texts)} and {given}. Mend the files."
        )
    if chunk < 1:
        raise ValueError(f"A chunk needs at least one sentence: got chunk={chunk}. Leave it out.")
    check_workers(workers, scheduler)
    checkpoint = find_checkpoint(model)
    parts = _parts(checkpoint.folder, checkpoint.fingerprint, (*decoders, *projections))
    job = Job(
        model,
        tuple(sorted((settings or {}).items())),
        (source, target),
        tuple(sorted(limits.items())),
        (checkpoint.fingerprint, parts),
    )
    sessions = _sessions(job, product(decoders, projections))
    chunks = [tuple(texts[start : start + chunk]) for start in range(0, len(texts), chunk)]
    place = Path(folder) / checkpoint.fingerprint
    tasks = {way: [Task(way, part, place / f"{_key(job, way, part)}.json") for part in chunks] for way in sessions}
    everything = [task for way_tasks in tasks.values() for task in way_tasks]
    missing = [task for task in everything if task.kept() is None]
    with (
        closing(over(job, missing, workers=workers, scheduler=scheduler)) as finished,
        tqdm(total=len(everything), initial=len(everything) - len(missing), unit="chunk", disable=not progress) as bar,
    ):
        for task in missing:
            task.keep(next(finished))
            bar.update()
    frames = {
        _name(sessions[way]): pd.DataFrame([row for task in way_tasks for row in task.kept() or ()])
        for way, way_tasks in tasks.items()
    }
    first = next(iter(sessions.values()))
    return _table(frames, sessions, references, provenance(first.model, threads=1))


def _sessions(job: Job, ways: Iterable[Way]) -> dict[Way, Session]:
    """A session for each decoder and projection; those of one name once."""
    sessions: dict[str, tuple[Way, Session]] = {}
    for way in ways:
        session = job.session(way)
        sessions.setdefault(_name(session), (way, session))
    return dict(sessions.values())


def _table(
    frames: Mapping[str, "pd.DataFrame"],
    sessions: Mapping[Way, Session],
    references: Sequence[str] | None,
    about: dict[str, Any],
) -> "pd.DataFrame":
    import pandas as pd

    rows: list[dict[str, Any]] = []
    first, language = next(iter(frames.values())), next(iter(sessions.values())).target
    for session, (name, frame) in zip(sessions.values(), frames.items(), strict=True):
        row: dict[str, Any] = {
            "name": name,
            "decoder": session.decoder_name,
            "projection": session.projection_name,
            "sentences": len(frame),
            **{column: int(frame[column].sum()) for column in ("tokens", "passes", "positions")},
            "tokens_per_pass": float(frame["tokens"].sum() / max(frame["passes"].sum(), 1)),
            "agreement": same_share(frame["ids"], first["ids"]),
        }
        if references is not None:
            row["bleu"], row["chrf"] = quality(list(frame["text"]), references, language)
        rows.append(row)
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = about | signatures(references is not None, language)
    table.attrs["sentences"] = frames
    return table


def _name(session: Session) -> str:
    return f"{session.decoder_name} + {session.projection_name}"


def _parts(folder: Path, fingerprint: str, specs: Sequence[str | None]) -> str:
    """A hash of this version and of all files fitted on the weights: screens, draft tables and heads, files and models named."""
    named = [value.partition("=")[2] for spec in specs for value in (spec or "").partition(":")[2].split(",")]
    others = [bundled().get(name, Path(name).expanduser()) for name in filter(None, named)]
    digest = hashlib.sha256(__version__.encode())
    for place, whole in (
        *((place, True) for place in places_of(folder, fingerprint)),
        *((place, False) for place in others),
    ):
        files = sorted(place.rglob("*") if whole else place.glob("*")) if place.is_dir() else [place]
        for file in (file for file in files if file.is_file()):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def _key(job: Job, way: Way, texts: Sequence[str]) -> str:
    """A name for a task: a hash of everything that determines its rows."""
    determining = [job.fitted, job.settings, job.direction, job.limits, way, list(texts)]
    return hashlib.sha256(json.dumps(determining, ensure_ascii=False).encode()).hexdigest()[:24]


def _plain(value: Any) -> Any:
    return list(map(int, value)) if isinstance(value, tuple) else value.item() if hasattr(value, "item") else value


@lru_cache(maxsize=2)
def _loaded(model: str, settings: tuple[tuple[str, str], ...], fitted: tuple[str, str]) -> TranslationModel:
    """The model of a name, once for each state of its files."""
    loaded = load(model, **dict(settings))
    if loaded.engine == "torch":
        import torch

        torch.set_num_threads(1)
    return loaded


@lru_cache(maxsize=8)
def _session(job: Job, way: Way) -> Session:
    return job.session(way)
