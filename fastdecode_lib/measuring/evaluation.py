"""Resumable evaluation of many decoders on many sentences with any number of workers: passes and quality, no times."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode_lib import __version__, registry
from fastdecode_lib.batching import several
from fastdecode_lib.checkpoints.hub import bundled, find_checkpoint
from fastdecode_lib.drafts.finding import places_of
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.measuring.provenance import commit, provenance, versions
from fastdecode_lib.measuring.quality import quality, same_share, signatures
from fastdecode_lib.store import read_json, write_text
from fastdecode_lib.translation import Session
from fastdecode_lib.workers import check_workers, over

if TYPE_CHECKING:
    import pandas as pd

CHUNK = 64
"""Sentences of a task by default; finished tasks are saved."""
FOLDER = Path("build") / "evaluate"
COLUMNS = ("source_tokens", "tokens", "passes", "positions", "text", "ids")
Method = tuple[str | None, str]
"""A decoder (None: the model's simplest) and a projection."""


@dataclass(frozen=True)
class Job:
    """Settings for a worker; they contain only names, so that each process loads the model itself.

    `settings` are options of `loading.load`; `fitted` are hashes of the weights and of the files fitted on them, so that a model in
    memory is not used after its files change.
    """

    model: str
    settings: tuple[tuple[str, str], ...]
    direction: tuple[str | None, str | None]
    limits: tuple[tuple[str, Any], ...] = ()
    fitted: tuple[str, str] = ("", "")

    def __call__(self, task: "Task") -> list[dict[str, Any]]:
        """Counts and output of each sentence of a task."""
        return count(_session(self, task.method), task.texts)[list(COLUMNS)].to_dict("records")


@dataclass(frozen=True)
class Task:
    """Sentences to decode with one decoder and projection, and the file for their rows."""

    method: Method
    texts: tuple[str, ...]
    path: Path

    def finished_rows(self) -> list[dict[str, Any]] | None:
        """Rows of the file; None if it is missing or damaged."""
        try:
            rows: list[dict[str, Any]] = read_json(self.path)["rows"]
        except (ValueError, KeyError, TypeError):
            return None
        return rows if len(rows) == len(self.texts) and all(set(row) == set(COLUMNS) for row in rows) else None


def evaluate(
    model: str,
    texts: str | Sequence[str],
    *,
    references: str | Sequence[str] | None = None,
    source: str | None = None,
    target: str | None = None,
    decoders: str | Sequence[str | None] = (None,),
    projections: str | Sequence[str] = ("exact",),
    settings: Mapping[str, str] | None = None,
    folder: str | Path = FOLDER,
    workers: int | None = None,
    scheduler: str | None = None,
    chunk: int = CHUNK,
    progress: bool = False,
    **limits: Any,
) -> "pd.DataFrame":
    """Decode sentences by every decoder with every projection; count passes and score outputs. One stands for a list of one.

    Finished chunks are saved in `folder` under names that depend on model, settings and sentences: a run that was stopped or
    killed continues after them, and the rows are the same for any number of workers.

    Parameters
    ----------
    model : str
        Name, folder or hub id for `fastdecode_lib.load`; each worker loads its own copy.
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
        ``agreement`` (share of outputs identical to the first row's), and ``bleu`` and ``chrf``. ``attrs["sentences"]`` has, by
        name, a table with a row for each sentence; ``attrs["provenance"]`` says how it was made.

    Raises
    ------
    ValueError
        If there is nothing to decode, references do not fit, or a decoder or projection does not fit the model.
    """
    import pandas as pd
    from tqdm.auto import tqdm

    texts, decoders, projections = several(texts), several(decoders) or [None], several(projections) or ["exact"]
    references = None if references is None else several(references)
    if not texts or (references is not None and len(references) != len(texts)):
        given = "none" if references is None else len(references)
        raise ValueError(
            f"Evaluation needs sentences, and a reference for each or none: got {len(texts)} and {given}. Correct the files."
        )
    if unnamed := [spec for spec in (*decoders, *projections) if not isinstance(spec, str | None)]:
        raise TypeError(
            f"Workers load decoders and projections by name: got {unnamed[0]!r}. Write window:width=3, for example."
        )
    if chunk < 1:
        raise ValueError(f"A chunk needs at least one sentence: got chunk={chunk}. Leave it out.")
    check_workers(workers, scheduler)
    checkpoint = find_checkpoint(model)
    fitted_hash = _files_hash(checkpoint.folder, checkpoint.fingerprint, (*decoders, *projections))
    job = Job(
        model,
        tuple(sorted((settings or {}).items())),
        (source, target),
        tuple(sorted((name, limit) for name, limit in limits.items() if limit is not None)),
        (checkpoint.fingerprint, f"{checkpoint.text_fingerprint} {fitted_hash}"),
    )
    sessions = _sessions(job, product(decoders, projections))
    first = next(iter(sessions.values()))
    first.model.encode(texts, first.source, first.target)  # names the sentence that is too long
    chunks = [tuple(texts[start : start + chunk]) for start in range(0, len(texts), chunk)]
    model_folder = Path(folder) / checkpoint.fingerprint
    tasks = {
        method: [Task(method, part, model_folder / f"{_key(job, method, part, session.model)}.json") for part in chunks]
        for method, session in sessions.items()
    }
    all_tasks = [task for method_tasks in tasks.values() for task in method_tasks]
    missing = [task for task in all_tasks if task.finished_rows() is None]
    with (
        closing(over(job, missing, workers=workers, scheduler=scheduler)) as results,
        tqdm(total=len(all_tasks), initial=len(all_tasks) - len(missing), unit="chunk", disable=not progress) as bar,
    ):
        for task in missing:
            write_text(task.path, json.dumps({"rows": next(results)}, ensure_ascii=False))
            bar.update()
    frames = {
        _name(sessions[method]): pd.DataFrame([row for task in method_tasks for row in task.finished_rows() or ()])
        for method, method_tasks in tasks.items()
    }
    return _table(frames, sessions, references, provenance(first.model, threads=1))


def _sessions(job: Job, methods: Iterable[Method]) -> dict[Method, Session]:
    """A session for each decoder and projection; methods with the same name count once."""
    sessions: dict[str, tuple[Method, Session]] = {}
    for method in methods:
        session = _session(job, method)
        sessions.setdefault(_name(session), (method, session))
    return dict(sessions.values())


def _table(
    frames: Mapping[str, "pd.DataFrame"],
    sessions: Mapping[Method, Session],
    references: Sequence[str] | None,
    origin: dict[str, Any],
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
    table.attrs["provenance"] = origin | signatures(references is not None, language)
    table.attrs["sentences"] = frames
    return table


def _name(session: Session) -> str:
    return f"{session.decoder_name} + {session.projection_name}"


def _files_hash(folder: Path, fingerprint: str, specs: Sequence[str | None]) -> str:
    """A hash of this version and its libraries, of all files fitted on the weights, and of those in the specs."""
    values = [value.partition("=")[2] for spec in specs for value in (spec or "").partition(":")[2].split(",")]
    named_files = [bundled().get(name, Path(name).expanduser()) for name in filter(None, values)]
    digest = hashlib.sha256(json.dumps([__version__, commit(), versions()]).encode())
    recursive_files = [(path, True) for path in places_of(folder, fingerprint)]
    for path, recursive in recursive_files + [(path, False) for path in named_files]:
        files = sorted(path.rglob("*") if recursive else path.glob("*")) if path.is_dir() else [path]
        for file in (file for file in files if file.is_file()):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def _key(job: Job, method: Method, texts: Sequence[str], model: TranslationModel) -> str:
    """The file name of a task: a hash of everything that determines its rows."""
    settings = model.engine, model.dtype, model.device.partition(":")[0]  # what "auto" has become
    inputs = [job.fitted, settings, job.direction, job.limits, method, *map(_defaults, method), list(texts)]
    return hashlib.sha256(json.dumps(inputs, ensure_ascii=False).encode()).hexdigest()[:24]


def _defaults(spec: str | None) -> dict[str, str]:
    """The options of a spec's decoder or projection, and their defaults in this version."""
    name = (spec or "").partition(":")[0]
    kind = registry.projection_class(name) if name in registry.PROJECTIONS else registry.DECODERS.get(name)
    return {} if kind is None else {option: repr(p.default) for option, p in registry.options(kind).items()}


@lru_cache(maxsize=2)
def _loaded(model: str, settings: tuple[tuple[str, str], ...], fitted: tuple[str, str]) -> TranslationModel:
    """Load a model by name, once for each state of its files."""
    translation_model = load(model, **dict(settings))
    if translation_model.engine == "torch":
        import torch

        torch.set_num_threads(1)
    return translation_model


@lru_cache(maxsize=8)
def _session(job: Job, method: Method) -> Session:
    """The session that runs a decoder and projection."""
    decoder, projection = method
    model = _loaded(job.model, job.settings, job.fitted)
    return Session.of(model, *job.direction, decoder, projection, **dict(job.limits))
