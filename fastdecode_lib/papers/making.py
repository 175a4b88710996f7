"""Several tables in one go: those that count over as many workers as there are, those that time here, one by one."""

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
from fastdecode_lib.papers.experiment import Experiment, Scale
from fastdecode_lib.papers.outcomes import result_name
from fastdecode_lib.store import plain_row, write_table
from fastdecode_lib.text.corpus import CorpusNotFound, corpus_fingerprint
from fastdecode_lib.workers import check_workers, over


@dataclass(frozen=True)
class Made:
    """A table: its rows, how they were made, and of one that is drawn as passes these, by name; a note where there is cause."""

    rows: list[dict[str, Any]]
    provenance: dict[str, Any]
    traces: dict[str, dict[str, Any]] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Maker:
    """Makes tables by their names, in whatever process.

    Attributes
    ----------
    scale : Scale
    model : str
        Model, for experiments that take one.
    loading : tuple of (name, value)
        Options of `fastdecode_lib.load`.
    settings : tuple of (name, value)
        Settings of the experiments, each of which takes those that it knows: ``seed``, ``threads``, ``data``.
    """

    scale: Scale
    model: str
    loading: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()

    def __call__(self, name: str, **more: Any) -> Made:
        """Make one; `more` are settings that change no number, such as ``progress``."""
        import torch
        from threadpoolctl import threadpool_limits

        e = experiments()[name]
        given = dict(self.settings) | more
        threads = given.get("threads", 1)
        torch.set_num_threads(threads)
        with threadpool_limits(threads):
            if e.accepted({"model": None}):
                given["model"] = _loaded(self.model, self.loading)
            frame = e.run(self.scale, **e.accepted(given))
        about = frame.attrs.get("provenance") or provenance(seed=given.get("seed"))
        traces = {name: trace.to_dict() for name, trace in frame.attrs.get("traces", {}).items()} if e.traced else {}
        return Made([plain_row(row) for row in frame.to_dict("records")], about | self.asked(e), traces)

    def asked(self, e: Experiment) -> dict[str, Any]:
        """Settings that identify a table: other settings make another table."""
        given = e.accepted(dict(self.settings))
        data = given.pop("data", None)
        asked: dict[str, Any] = {"threads": 1, **given}
        if e.accepted({"model": None}):
            asked |= {**dict(self.loading), "fingerprint": find_checkpoint(self.model).fingerprint}
        if "data" in e.accepted({"data": None}) and self.scale != Scale.TINY:
            with suppress(CorpusNotFound):  # some need none
                asked["corpus"] = corpus_fingerprint(data)
        if not e.counted:
            asked["cpu"] = provenance()["cpu"]
        return {"scale": str(self.scale), "versions": versions(), "asked": asked}

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
) -> Generator[tuple[Experiment, Made], None, None]:
    """Make tables, and write each to `results` when its turn has come.

    A table with gaps where the file in `results` has rows measured is written beside it, as ``STEM.TABLE.SCALE.partial.json``.

    With `workers` or a `scheduler`, tables that only count and score are made side by side, as many as there are workers; then
    those that measure time, in this process and alone, since what shares a processor is not measured. Rows are the same for any
    number of workers, but for times.

    Parameters
    ----------
    results : path, optional
        The folder for ``STEM.TABLE.SCALE.json``.
    resume : bool
        Leave what is in `results` as it is, where it has no gaps and was made by these versions for the same model, corpus,
        scale, seed and threads, and if it has times, on such a processor. What the code tried then is not compared.
    workers, scheduler
        Arguments of `workers.over`.

    Yields
    ------
    (Experiment, Made)
        In the order of their making.

    Raises
    ------
    ValueError
        If there is nowhere to resume from, or what an experiment raises.
    """
    if resume and results is None:
        raise ValueError("Resuming needs the folder with what was made: got resume without results. Name the folder.")
    check_workers(workers, scheduler)
    there = {e.name: made for e in chosen if resume and results and (made := _kept(maker, e, results)) is not None}
    yield from ((e, there[e.name]) for e in chosen if e.name in there)
    missing = [e for e in chosen if e.name not in there]
    shared = [e for e in missing if e.counted] if (workers, scheduler) != (None, None) else []
    alone = [e for e in missing if e not in shared]
    command = {"command": provenance()["command"]}
    with closing(over(maker, [e.name for e in shared], workers=workers, scheduler=scheduler)) as theirs:
        ours = (maker(e.name, progress=progress) for e in alone)
        for e, made in zip([*shared, *alone], chain(theirs if shared else (), ours), strict=True):
            made = replace(made, provenance=made.provenance | command)  # a worker's own says nothing
            if results is not None:
                path = maker.path(e, results)
                made = replace(made, note=_lost(made, path))
                path = path.with_suffix(".partial.json") if made.note else path
                write_table(path, made.rows, made.provenance, made.traces)
            yield e, made


def _lost(made: Made, path: Path) -> str:
    """A warning that the existing file stays, as the new table lacks rows that it has measured; empty if it lacks none."""
    before = _read(path)
    if before is None:
        return ""
    measured = {row.get("name") for row in before.rows if not row.get("gap")}
    gaps = [row for row in made.rows if row.get("gap")]
    lost = gaps if len(gaps) == len(made.rows) else [row for row in gaps if row.get("name") in measured]
    if not lost or not measured:
        return ""
    return (
        f"{path} stays as it is: it has rows measured that are gaps here ({lost[0]['gap']}). This table is in "
        f"{path.with_suffix('.partial.json').name} beside it."
    )


def _kept(maker: Maker, e: Experiment, results: str | Path) -> Made | None:
    """The table of an earlier run with the same settings."""
    made = _read(maker.path(e, results))
    if made is None:
        return None
    whole = not any(row.get("gap") for row in made.rows) and (made.traces or not e.traced)
    return made if whole and maker.asked(e).items() <= made.provenance.items() else None


def _read(path: Path) -> Made | None:
    """A table from its file; None if it is missing or cannot be read."""
    try:
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Made(list(content["rows"]), dict(content["provenance"]), dict(content.get("traces", {})))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@lru_cache(maxsize=1)
def _loaded(model: str, loading: tuple[tuple[str, str], ...]) -> TranslationModel:
    return load(model, **dict(loading))
