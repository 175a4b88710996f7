"""What the engines take on this processor, against goals, as a table and as build/bench/cpu.json: `make bench-cpu`."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.papers.experiment import Scale
from fastdecode_lib.papers.outcomes import NoResult, committed
from fastdecode_lib.papers.sharp_models.engines import (
    FOLDER,
    FULL,
    LARGE,
    QUICK,
    SIZES,
    SMALL,
    Size,
    pass_costs,
    start_up,
    steps,
    throughput,
)
from fastdecode_lib.store import write_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Goal:
    """A ratio of times, of a system and the compiled engine, in one run: for a step, or for many sentences.

    Attributes
    ----------
    table : str
        ``"steps"`` or ``"throughput"``.
    geometry : str
        Of the table's rows; empty for throughput.
    system : str
    precision : str
        Of the compiled engine.
    least : float or None
        The goal, if there is one.
    """

    table: str
    geometry: str
    system: str
    precision: str
    least: float | None = None


GOALS = (
    Goal("steps", SMALL, "ctranslate2 float32", "float32", 1.0),
    Goal("steps", SMALL, "ctranslate2 int16", "int16"),
    Goal("steps", SMALL, "ctranslate2 int8", "int8", 1.5),
    Goal("steps", SMALL, "hf float32", "float32", 5.0),
    Goal("steps", SMALL, "torch float32", "float32"),
    Goal("steps", LARGE, "ctranslate2 float32", "float32", 1.4),
    Goal("steps", LARGE, "ctranslate2 int16", "int16"),
    Goal("steps", LARGE, "ctranslate2 int8", "int8", 2.2),
    Goal("steps", LARGE, "hf float32", "float32", 2.5),
    Goal("steps", LARGE, "hf float32", "int8", 6.0),
    Goal("steps", LARGE, "torch float32", "float32"),
    Goal("throughput", "", "ctranslate2 float32", "float32", 1.0),
    Goal("throughput", "", "ctranslate2 int16", "int16"),
    Goal("throughput", "", "ctranslate2 int8", "int8", 1.0),
)
START_UP = 1.0
"""Seconds a fresh process may take until its first translation."""
MET = {True: "met", False: "NOT met", None: "not measured"}

TABLES: Mapping[str, Callable[..., "pd.DataFrame"]] = {
    "steps": steps,
    "pass_costs": pass_costs,
    "throughput": throughput,
    "start_up": start_up,
}


def rows_of(frames: Mapping[str, "pd.DataFrame"]) -> list[dict[str, Any]]:
    """The rows of the bench, from the tables of a run; what one of them lacks comes from the committed one, or is null."""
    rows: list[dict[str, Any]] = []
    made = {name: _with_origin(frames[name], "measured") for name in frames}
    kept = {name: _committed(name) for name in frames}

    def told(table: str, key: str) -> tuple[dict[str, Any] | None, str]:
        for source in (made, kept):
            if key in source[table]:
                return source[table][key], str(source[table][key]["origin"])
        return None, "measured"

    for goal in GOALS:
        where = f"{goal.geometry}, " if goal.geometry else ""
        theirs, origin = told(goal.table, f"{where}{goal.system}")
        ours = (kept if origin == "committed" else made)[goal.table].get(f"{where}compiled {goal.precision}")
        row: dict[str, Any] = {
            "name": f"{where or 'many sentences, '}{goal.system} / compiled {goal.precision}",
            "value": None,
            "unit": "times",
            "goal": goal.least,
            "met": None,
            "origin": origin,
        }
        if theirs and ours:
            row |= _ratio(goal, theirs, ours)
        else:
            row["note"] = (
                f"{goal.system} is not installed, lacks the precision, or is hopelessly slow at it on this processor"
            )
        rows.append(row)
    for key in dict.fromkeys((*made["start_up"], *kept["start_up"])):
        found, origin = told("start_up", key)
        least = START_UP if "translation" in key else None
        value = found["seconds"] if found else None
        rows.append(
            _row(key, value, "s", origin, least, value is not None and least is not None and value < least, found)
        )
    for key, found in made["steps"].items():
        for column, unit in (("ms_per_step", "ms a step"), ("ms_per_sentence", "ms a sentence")):
            rows.append(_row(f"{key}, {unit}", found[column], unit, found["origin"], raw=found))
    for key, found in made["throughput"].items():
        name = f"many sentences, {key}, batches of {found['batch']}"
        rows.append(_row(name, found["sentences_per_second"], "sentences a second", found["origin"], raw=found))
    for found in made["pass_costs"].values():
        rows.append(
            _row(f"{found['name']}, pass of {found['width']}", found["cost"], "passes of 1", found["origin"], raw=found)
        )
    return rows


def _row(
    name: str,
    value: float | None,
    unit: str,
    origin: str,
    goal: float | None = None,
    met: bool | None = None,
    raw: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    row = {"name": name, "value": value, "unit": unit, "goal": goal, "met": met if goal is not None else None}
    kept = {k: v for k, v in (raw or {}).items() if k in ("seconds_each", "backend", "agreement", "note") and v != ""}
    return row | {"origin": origin} | kept


def _ratio(goal: Goal, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """The ratio with its interval: of medians, from the raw seconds where they are there."""
    import numpy as np

    from fastdecode_lib.measuring.referee import bootstrap_ratio

    if "seconds_each" in theirs and "seconds_each" in ours:
        times = [np.array(row["seconds_each"]) / row.get("steps", 1) for row in (theirs, ours)]
        value = float(np.median(times[0]) / np.median(times[1]))
        low, high = bootstrap_ratio(times[0], times[1])
    else:
        value, low, high = theirs["ratio"], theirs["ratio_low"], theirs["ratio_high"]
    found: dict[str, Any] = {"value": value, "low": low, "high": high}
    if goal.least is not None:
        found["met"] = bool(value >= goal.least)
    return found | {key: theirs[key] for key in ("backend", "note") if theirs.get(key)}


def _with_origin(frame: "pd.DataFrame", origin: str) -> dict[str, dict[str, Any]]:
    """Rows by name, with the raw seconds of each."""
    raw = frame.attrs.get("provenance", {}).get("seconds", {})
    found: dict[str, dict[str, Any]] = {}
    for row in frame.to_dict("records"):
        row = {str(key): value for key, value in row.items()}
        seconds = raw.get(row.get("geometry"), raw).get(row.get("system", row["name"]))
        if "width" in row:
            index = sum(1 for other in found.values() if other["name"] == row["name"])
            seconds = raw.get(row["name"], [None] * (index + 1))[index]
        key = f"{row['name']} {row['width']}" if "width" in row else row["name"]
        found[key] = row | {"origin": origin} | ({"seconds_each": seconds} if seconds else {})
    return found


def _committed(table: str) -> dict[str, dict[str, Any]]:
    try:
        return _with_origin(committed(f"sharp_models.{table}"), "committed")
    except NoResult:
        return {}


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows, those with a goal first."""

    def line(row: Mapping[str, Any]) -> str:
        value = "-" if row["value"] is None else f"{row['value']:.3g}"
        interval = f"[{row['low']:.2f}, {row['high']:.2f}]" if row.get("low") is not None else ""
        goal = "" if row["goal"] is None else f"goal {row['goal']:g} {MET[row['met']]}"
        told = "; ".join(str(row[k]) for k in ("backend", "note") if row.get(k))
        origin = "" if row["origin"] == "measured" else f"({row['origin']})"
        return f"  {row['name']:<62} {value:>8} {row['unit']:<18} {interval:<14} {goal:<18} {told} {origin}".rstrip()

    print(*map(line, rows), sep="\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(prog="make bench-cpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under five minutes")
    parser.add_argument("--model", default=SMALL, help=f"instead of {SMALL}: a Marian model on a disk, for tests")
    parser.add_argument("--scale", choices=("tiny", "laptop", "paper"), help="instead of --quick")
    parser.add_argument("--data", metavar="DIR", help="the corpus folder (default: FASTDECODE_DATA)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", metavar="DIR", default=str(FOLDER), help=f"default: {FOLDER}")
    parser.add_argument("--results", metavar="DIR", help="also write each table there, as `fastdecode experiment` does")
    options = parser.parse_args(arguments)
    size: Size = SIZES[Scale.of(options.scale)] if options.scale else QUICK if options.quick else FULL
    scale = Scale.of(options.scale) if options.scale else Scale.LAPTOP
    if options.quick and options.results:
        parser.error("a quick run is not for --results: got both. Leave out --quick.")
    given = " ".join(sys.argv[1:] if arguments is None else arguments)
    about: dict[str, Any] = provenance(threads=1, seed=options.seed) | {
        "command": f"make bench-cpu BENCH_ARGS='{given}'" if given else "make bench-cpu",
        "scale": str(scale),
    }
    frames: dict[str, Any] = {}
    shared = {"size": size, "progress": sys.stderr.isatty()}
    for table, run in TABLES.items():
        print(f"{table} ...", flush=True)
        options_of: dict[str, Any] = dict(shared)
        if table != "start_up":
            from fastdecode_lib.loading import load

            options_of |= {"model": load(options.model, device="cpu"), "seed": options.seed}
        if table in ("steps", "pass_costs"):
            options_of["folder"] = Path(options.out)
        if table == "throughput":
            options_of["data"] = options.data
        frames[table] = run(scale, **options_of)
        told = frames[table].attrs["provenance"]
        about[table] = {key: value for key, value in told.items() if key not in about and key != "seconds"}
        if options.results:
            path = Path(options.results) / f"sharp_models.{table}.{scale}.json"
            command = {"command": about["command"], "scale": str(scale)}
            write_table(path, frames[table].to_dict("records"), told | command)
    rows = rows_of(frames)
    print(
        f"\n{about['cpu']}, {about['cores']} cores, {' '.join(about['cpu_flags'])}; one thread but for many sentences\n"
    )
    show(rows)
    path = Path(options.out) / "cpu.json"
    write_table(path, rows, about)
    print(f"\n{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
