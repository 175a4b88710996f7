"""The command that makes the tables and figures of the papers, over dask's workers if there are any."""

import argparse
import difflib
import sys
from contextlib import closing
from typing import Any

from fastdecode_lib.cli.common import UsageError, print_table, write_json


def add_commands(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Add ``experiment`` to the commands."""
    experiment = commands.add_parser("experiment", parents=parents, help="make a table or figure of a paper")
    experiment.add_argument("name", nargs="?", metavar="STEM[.TABLE]", help="e.g. start_here.comparison")
    experiment.add_argument("--list", dest="listing", nargs="?", const="", metavar="STEM", help="list the experiments")
    experiment.add_argument(
        "--scale", default="laptop", help="tiny (shows that it runs), laptop or paper (default: laptop)"
    )
    experiment.add_argument(
        "--model", default="tatoeba-small", help="bundled name, folder or hub id (default: tatoeba-small)"
    )
    experiment.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    experiment.add_argument("--threads", type=int, default=1, help="threads of one step (default: 1)")
    experiment.add_argument("--data", metavar="DIR", help="the corpus folder (default: FASTDECODE_DATA)")
    experiment.add_argument("--results", metavar="DIR", help="also write each table as DIR/STEM.TABLE.SCALE.json")
    experiment.add_argument(
        "--resume", action="store_true", help="keep tables of the same run that --results already has"
    )
    experiment.set_defaults(run=_experiment)


OPTIONS = ("model", "device", "dtype", "engine", "precision", "threads", "seed")
"""Options of `experiment` that a table takes or not."""


def _loads(e: Any, name: str) -> bool:
    """Whether an option changes how the model is loaded that a table takes."""
    return name in ("device", "dtype", "engine", "precision") and bool(e.accepted({"model": None}))


def _experiment(options: argparse.Namespace) -> int:
    from fastdecode_lib.papers.catalogue import experiments
    from fastdecode_lib.papers.making import Maker, make
    from fastdecode_lib.papers.run import Scale

    if options.listing is not None:
        return _list_experiments(options)
    if not options.name:
        raise UsageError("experiment needs a name. See what there is: fastdecode experiment --list")
    if options.resume and not options.results:
        raise UsageError("--resume goes on with what a folder has: got no --results DIR. Add it.")
    catalogue = experiments()
    selected = [e for e in catalogue.values() if options.name in (e.name, e.stem)]
    if not selected:
        stems = dict.fromkeys(e.stem for e in catalogue.values())
        matches = difflib.get_close_matches(options.name, [*catalogue, *stems], n=1)
        hint = f"Did you mean {matches[0]!r}?" if matches else f"Papers: {', '.join(stems)}."
        raise UsageError(
            f"Unknown experiment: got {options.name!r}. {hint} List them with fastdecode experiment --list."
        )
    taken = {name for name in OPTIONS for e in selected if e.accepted({name: None}) or _loads(e, name)}
    if unused := [name for name in OPTIONS if name in getattr(options, "given", {}) and name not in taken]:
        raise UsageError(
            f"No table of {options.name} takes {', '.join(f'--{name}' for name in unused)}: its rows say what they are made with. "
            "Leave it out."
        )
    scale = Scale.of(options.scale)
    if scale is Scale.TINY:
        print(
            "fastdecode: at scale tiny a table only shows that it can be made: a few sentences, untrained models or others in "
            "the place of those it is about. Its numbers mean nothing.",
            file=sys.stderr,
        )
    loading = tuple((name, getattr(options, name)) for name in ("device", "dtype", "engine", "precision"))
    settings: dict[str, Any] = {"seed": options.seed, "threads": options.threads}
    if options.device != "auto":
        settings["device"] = options.device
    if options.data:
        settings["data"] = options.data
    rows: dict[str, list[dict[str, Any]]] = {}
    provenances: dict[str, Any] = {}
    tables = make(
        selected,
        Maker(scale, options.model, loading, tuple(settings.items())),
        results=options.results,
        resume=options.resume,
        workers=options.workers,
        scheduler=options.scheduler,
        progress=sys.stderr.isatty(),
    )
    with closing(tables):
        for e, table in tables:
            print(f"{e.title} ({e.name}, scale {scale})")
            print_table(table.rows)
            if table.note:
                print(f"fastdecode: {table.note}", file=sys.stderr)
            rows[e.name] = [row | {"table": e.table} for row in table.rows]
            provenances[e.name] = table.provenance
    provenance = provenances[selected[0].name] if len(selected) == 1 else {"tables": provenances}
    write_json(options, [row for e in selected for row in rows[e.name]], provenance)
    return 0


def _list_experiments(options: argparse.Namespace) -> int:
    from fastdecode_lib.measuring.provenance import provenance
    from fastdecode_lib.papers.catalogue import papers

    stem = options.listing
    rows: list[dict[str, Any]] = [
        {
            "name": e.name,
            "paper": paper.name,
            "label": e.label,
            "title": e.title.removeprefix(f"{e.label}: "),
            "state": _state(e),
        }
        for paper in papers()
        for e in paper.experiments
    ]
    rows = [row for row in rows if stem in ("", row["name"].partition(".")[0])]
    if stem and not rows:
        raise UsageError(f"Unknown stem: got {stem!r}. List everything with fastdecode experiment --list.")
    print_table(rows)
    print(
        "\nmeasured: its outcome comes with fastdecode. In part: some rows lack a trained model, or text. Live: made in the "
        "notebook, in seconds. Not run: it can be made, by fastdecode experiment NAME, and a model that it lacks is named then. "
        "Without a label: beyond the paper."
    )
    write_json(options, rows, provenance())
    return 0


def _state(e: Any) -> str:
    """Whether the result of an experiment at scale laptop comes with fastdecode."""
    from fastdecode_lib.papers.outcomes import NoResult, committed

    try:
        frame = committed(e.name)
    except NoResult:
        return "live" if e.live else "not run"
    return "measured in part" if "gap" in frame and frame["gap"].notna().any() else "measured"
