"""Options, printed table and JSON of all benchmarks."""

import argparse
import math
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.referee import median_interval, noisy
from fastdecode_lib.store import write_table


@dataclass(frozen=True)
class Row:
    """One measurement, with its 95% interval if it has one."""

    name: str
    value: float
    unit: str
    low: float = math.nan
    high: float = math.nan
    note: str = ""

    @classmethod
    def of_samples(cls, name: str, samples: Sequence[float], unit: str, note: str = "") -> "Row":
        """The median of the samples, with its interval."""
        values = np.asarray(samples, dtype=np.float64)
        return cls(name, float(np.median(values)), unit, *median_interval(values), note)


def options_of(name: str, description: str | None, corpus: bool = True) -> argparse.ArgumentParser:
    """The options of ``make bench-NAME``."""
    parser = argparse.ArgumentParser(prog=f"make bench-{name}", description=description)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="measure less: under five minutes, and without the corpus")
    size.add_argument("--tiny", action="store_true", help="only show that it runs: its numbers mean nothing")
    parser.add_argument("--json", metavar="FILE", help="also write the table there, with how it was made")
    parser.add_argument("--seed", type=int, default=0)
    if corpus:
        parser.add_argument("--data", metavar="DIR", help="the corpus folder (default: FASTDECODE_DATA)")
    return parser


def command_of(name: str, arguments: Sequence[str] | None) -> str:
    """The command that repeats a benchmark."""
    text = shlex.join(sys.argv[1:] if arguments is None else arguments)
    return f"make bench-{name}" + (f" BENCH_ARGS={shlex.quote(text)}" if text else "")


def report(rows: Iterable[Row], command: str, options: argparse.Namespace, **facts: Any) -> None:
    """Print the table, and write it to the file of ``--json``; `facts` are added to the provenance."""
    rows = list(rows)
    facts = provenance(threads=1, seed=options.seed) | {"command": command, **facts}
    print(f"\n{facts['cpu']}, {facts['cores']} cores, {' '.join(facts['cpu_flags'])}\n")
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        interval = f"[{row.low:.4g}, {row.high:.4g}]" if row.low == row.low else ""
        note = "noisy " * noisy(row.value, row.low, row.high) + row.note
        print(f"  {row.name:<{width}} {row.value:>10.4g} {row.unit:<20} {interval:<22} {note}".rstrip())
    if options.json:
        write_table(options.json, [asdict(row) for row in rows], facts)
        print(f"\n{options.json}")
