"""Several tables at once: tables that only count are made by workers, tables of times in this process, one by one."""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.provenance import provenance, versions
from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.experiment import Experiment
from fastdecode_lib.papers.outcomes import result_name
from fastdecode_lib.papers.run import Scale
from fastdecode_lib.store import plain_row, write_table
from fastdecode_lib.text.corpus import CorpusNotFound, corpus_fingerprint
from fastdecode_lib.workers import check_workers, over


@dataclass(frozen=True)
class ResultTable:
    """A table: its rows, its provenance, its traces by name, and a warning if there is one."""

    rows: list[dict[str, Any]]
    provenance: dict[str, Any]
    traces: dict[str, dict[str, Any]] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Maker:
    """Makes tables by name, in any process.

    `model` is for experiments that take one, loaded with the options `loading`; of `settings`, such as ``seed``, ``threads`` and
    ``data``, each experiment takes those that it has.
    """

    scale: Scale
    model: str
    loading: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()

    def __call__(self, name: str, **options: Any) -> ResultTable:
        """Make one; `options` are settings that change no number, such as ``progress``."""
        import torch
        from threadpoolctl import threadpool_limits

        e = experiments()[name]
        settings = dict(self.settings) | options
        threads = settings.get("threads", 1)
        torch.set_num_threads(threads)
        with threadpool_limits(threads):
            if e.accepted({"model": None}):
                settings["model"] = _loaded(self.model, self.loading)
            frame = e.run(self.scale, **e.accepted(settings))
        facts = frame.attrs.get("provenance") or provenance(seed=settings.get("seed"))
        traces = {name: trace.to_dict() for name, trace in frame.attrs.get("traces", {}).items()} if e.traced else {}
        return ResultTable([plain_row(row) for row in frame.to_dict("records")], facts | self.identity(e), traces)

    def identity(self, e: Experiment) -> dict[str, Any]:
        """The part of the provenance that identifies a table: another identity means another table."""
        settings = e.accepted(dict(self.settings))
        data = settings.pop("data", None)
        identity: dict[str, Any] = {"threads": 1, **settings}
        if e.accepted({"model": None}):
            identity |= {**dict(self.loading), "fingerprint": find_checkpoint(self.model).fingerprint}
        if "data" in e.accepted({"data": None}) and self.scale != Scale.TINY:
            with suppress(CorpusNotFound):  # not every experiment needs the corpus
                identity["corpus"] = corpus_fingerprint(data)
        if not e.counted:
            identity["cpu"] = provenance()["cpu"]
        return {"scale": str(self.scale), "versions": versions(), "asked": identity}

    def path(self, e: Experiment, folder: str | Path) -> Path:
        """The file of a table."""
        return Path(folder) / result_name(e.name, self.scale, e.accepted(dict(self.settings)).get("threads", 1))


def make(
    chosen: Sequence[Experiment],
    maker: Maker,
    *,
    results: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: bool = False,
) -> Generator[tuple[Experiment, ResultTable], None, None]:
    """Make tables, and write each to `results` once it is made.

    A table that has a gap where the file in `results` has a measured row does not replace the file, but is written to
    ``STEM.TABLE.SCALE.partial.json``.

    With `workers` or a `scheduler`, tables that only count and score are made side by side, one on each worker; then tables of
    times are made in this process, with nothing beside them on the processor. Rows but for times are the same for any number of
    workers.

    Parameters
    ----------
    results : path, optional
        The folder for ``STEM.TABLE.SCALE.json``.
    resume : bool
        Keep the tables in `results` that have no gaps and were made by these versions for the same model, corpus, scale, seed
        and threads, and if they have times, on the same processor. The code that made them is not compared.
    workers, scheduler
        Arguments of `workers.over`.

    Yields
    ------
    (Experiment, ResultTable)
        In the order in which they are made.

    Raises
    ------
    ValueError
        If `resume` is true without `results`; and any error of an experiment.
    """
    if resume and results is None:
        raise ValueError("Resuming needs the folder with what was made: got resume without results. Name the folder.")
    check_workers(workers, scheduler)
    finished = {e.name: table for e in chosen if resume and results and (table := _finished(maker, e, results))}
    yield from ((e, finished[e.name]) for e in chosen if e.name in finished)
    missing = [e for e in chosen if e.name not in finished]
    counted = [e for e in missing if e.counted] if (workers, scheduler) != (None, None) else []
    timed = [e for e in missing if e not in counted]
    command = {"command": provenance()["command"]}
    with closing(over(maker, [e.name for e in counted], workers=workers, scheduler=scheduler)) as counted_tables:
        timed_tables = (maker(e.name, progress=progress) for e in timed)
        for e, table in zip([*counted, *timed], chain(counted_tables if counted else (), timed_tables), strict=True):
            table = replace(table, provenance=table.provenance | command)  # in place of a worker's command
            if results is not None:
                path = maker.path(e, results)
                table = replace(table, note=_warning(table, path))
                path = path.with_suffix(".partial.json") if table.note else path
                write_table(path, table.rows, table.provenance, table.traces)
            yield e, table


def _warning(table: ResultTable, path: Path) -> str:
    """A warning that the existing file stays, as the new table lacks rows that the file has measured; empty if it lacks none."""
    before = _read(path)
    if before is None:
        return ""
    measured = {row.get("name") for row in before.rows if not row.get("gap")}
    gaps = [row for row in table.rows if row.get("gap")]
    lost = gaps if len(gaps) == len(table.rows) else [row for row in gaps if row.get("name") in measured]
    if not lost or not measured:
        return ""
    return (
        f"{path} stays as it is: it has rows measured that are gaps here ({lost[0]['gap']}). This table is in "
        f"{path.with_suffix('.partial.json').name} beside it."
    )


def _finished(maker: Maker, e: Experiment, results: str | Path) -> ResultTable | None:
    """The complete table of an earlier run with the same settings; None if there is none."""
    table = _read(maker.path(e, results))
    if table is None:
        return None
    complete = not any(row.get("gap") for row in table.rows) and (table.traces or not e.traced)
    return table if complete and maker.identity(e).items() <= table.provenance.items() else None


def _read(path: Path) -> ResultTable | None:
    """A table from its file; None if it is missing or cannot be read."""
    try:
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return ResultTable(list(content["rows"]), dict(content["provenance"]), dict(content.get("traces", {})))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@lru_cache(maxsize=1)
def _loaded(model: str, loading: tuple[tuple[str, str], ...]) -> TranslationModel:
    return load(model, **dict(loading))
