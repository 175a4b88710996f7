"""What projections take against goals, as a table and as build/bench/projections.json: `make bench-projections`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode_lib.experiments import Scale, geometry_runs, paper_001
from fastdecode_lib.experiments.bench_cpu import show
from fastdecode_lib.experiments.engine_runs import FOLDER
from fastdecode_lib.experiments.projection_runs import BASELINE, EXACT, fastest
from fastdecode_lib.experiments.screening_tables import front, frontiers
from fastdecode_lib.measure import provenance
from fastdecode_lib.store import write_table

if TYPE_CHECKING:
    import pandas as pd

GOALS = {"small": 21.0, "large": 90.0, "translation": 40.0}
"""Speedup over numpy at precisions not below the paper's, of clusters or learned screens in any precision."""
OVER_NUMPY, OVER_EXACT, ZCODE = 3.0, 1.8, 50.0
"""The lossless projection's over numpy and over our float32 kernel; that of clusters at paper 000's geometry."""
LOSSLESS_ON = "translation"
"""The model whose output the lossless projection's goals are about: 24,725 x 500."""
OURS = ("screened", "kmeans", "clustered")


def rows_of(timed: "pd.DataFrame", exactness: "pd.DataFrame", zcode: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows of the bench: what has a goal, then what stands beside it; a model that is not trained leaves nulls."""
    rows = [
        *_screened(timed),
        *_quantised(timed),
        *_exactness(exactness),
        *_zcode(zcode),
        *_baselines(timed),
        *_fronts(timed),
    ]
    return sorted(rows, key=lambda row: row["goal"] is None)


def _screened(timed: "pd.DataFrame") -> Iterator[dict[str, Any]]:
    """For each model the fastest screen that is precise enough, in any precision, and in float32."""
    for name, goal in GOALS.items():
        own = timed[timed["set"] == name]
        _, at_1, at_5 = paper_001.TABLE_2[name]["screened"]
        what = f"{name}, screen over numpy"
        if "gap" in own and own["gap"].notna().any():
            yield _row(what, None, "times", goal, note=own["gap"].iloc[0])
            continue
        best, in_float32 = (_best(own, at_1, at_5, **fixed) for fixed in ({}, {"precision": "float32"}))
        yield _timed(what, best, goal, enough=bool(best["p_at_1"] >= at_1 and best["p_at_5"] >= at_5))
        yield _row(f"{name}, screen over our float32", best["over_exact"], "times", note=best["name"])
        yield _timed(f"{name}, float32 screen over numpy", in_float32)
        yield _row(f"{name}, float32 screen over our float32", in_float32["over_exact"], "times")


def _best(own: "pd.DataFrame", at_1: float, at_5: float, **fixed: Any) -> "pd.Series":
    """The fastest of the methods of `OURS` that are precise enough on dev; the most precise where none is."""
    found = [row for method in OURS if (row := fastest(own, method, at_1, at_5, **fixed)) is not None]
    good = [row for row in found if row["dev_p_at_1"] >= at_1 and row["dev_p_at_5"] >= at_5]
    if good:
        return min(good, key=lambda row: float(row["microseconds"]))
    return max(found, key=lambda row: float(row["dev_p_at_1"] + row["dev_p_at_5"]))


def _quantised(timed: "pd.DataFrame") -> Iterator[dict[str, Any]]:
    for name in GOALS:
        own = timed[(timed["set"] == name) & (timed["method"] == "quantised")] if "method" in timed else timed[:0]
        over_numpy, over_exact = (OVER_NUMPY, OVER_EXACT) if name == LOSSLESS_ON else (None, None)
        if not len(own):
            if over_numpy is not None:
                yield _row(
                    f"{name}, lossless over numpy", None, "times", over_numpy, note="the model is not trained here"
                )
                yield _row(f"{name}, lossless over our float32", None, "times", over_exact)
            continue
        found = own.iloc[0]
        yield _timed(f"{name}, lossless over numpy", found, over_numpy)
        value = float(found["over_exact"])
        met = None if over_exact is None else value >= over_exact
        yield _row(f"{name}, lossless over our float32", value, "times", over_exact, met)


def _exactness(exactness: "pd.DataFrame") -> Iterator[dict[str, Any]]:
    for row in exactness.to_dict("records"):
        if row["kind"] == "gap":
            yield _row(f"{row['name']}, lossless, answers that differ", None, "vectors", 0, note=row["gap"])
            continue
        told = f"of {row['queries']:,} at {row['vocabulary']:,} x {row['width']:,}"
        yield _row(
            f"{row['name']}, lossless, answers that differ",
            row["mismatches"],
            "vectors",
            0,
            row["mismatches"] == 0,
            note=told,
        )
        yield _row(f"{row['name']}, lossless, rows scored again", row["scored_again"], "rows a vector")


def _zcode(zcode: "pd.DataFrame") -> Iterator[dict[str, Any]]:
    for model, own in zcode.groupby("model", sort=False):
        clustered = own[own["method"].str.startswith("clustered 2.0%")]
        best = clustered.loc[clustered["microseconds"].idxmin()]
        yield _timed(f"{model} geometry, clusters over numpy", best, ZCODE)
        for _, row in own.iterrows():
            if row["name"] != best["name"]:
                yield _timed(str(row["name"]), row)


def _baselines(timed: "pd.DataFrame") -> Iterator[dict[str, Any]]:
    """How fast memory is read by what the speedups are over."""
    if "method" not in timed:
        return
    for _, row in timed[timed["method"].isin((BASELINE, EXACT))].iterrows():
        told = f"{row['microseconds']:.1f} us"
        yield _row(f"{row['set']}, {row['name']}", row["gigabytes_per_second"], "GB/s", note=told)


def _fronts(timed: "pd.DataFrame") -> Iterator[dict[str, Any]]:
    """Of every method the settings that none other of it beats in both speed and precision."""
    if "method" not in timed:
        return
    approximate = timed[timed["method"].notna() & ~timed["method"].isin((BASELINE, EXACT, "quantised"))]
    for (name, _), own in approximate.groupby(["set", "method"], sort=False):
        for _, row in front(own).iterrows():
            yield _timed(f"{name}, {row['name']}", row)


def _timed(name: str, row: Any, goal: float | None = None, enough: bool = True) -> dict[str, Any]:
    """A speedup with its interval; a goal is not met by what is not precise enough on the test split."""
    value = float(row["speedup"])
    found = _row(name, value, "times", goal, None if goal is None else enough and value >= goal)
    found |= {"low": row["speedup_low"], "high": row["speedup_high"], "microseconds": row["microseconds"]}
    told = [] if str(row["name"]) in name else [str(row["name"])]
    if "p_at_1" in row:
        told.append(f"P@1 {row['p_at_1']:.4f}, P@5 {row['p_at_5']:.4f}")
    told.append(f"{row['microseconds']:.1f} us")
    if not enough:
        told.append("less precise than the paper's on test")
    return found | {"note": ", ".join(told), "seconds_each": row["seconds"]}


def _row(
    name: str, value: Any, unit: str, goal: float | None = None, met: bool | None = None, note: str = ""
) -> dict[str, Any]:
    value = None if value is None else float(value)
    return {
        "name": name, "value": value, "unit": unit, "goal": goal, "met": met, "origin": "measured", "note": note,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(prog="make bench-projections", description=__doc__)
    parser.add_argument("--scale", choices=("tiny", "laptop", "paper"), default="laptop")
    parser.add_argument("--quick", action="store_true", help="leave out the baselines of paper 001")
    parser.add_argument("--data", metavar="DIR", help="the corpus folder (default: FASTDECODE_DATA)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", metavar="DIR", default=str(FOLDER), help=f"default: {FOLDER}")
    options = parser.parse_args(arguments)
    scale = Scale.of(options.scale)
    shared: dict[str, Any] = {"data": options.data, "seed": options.seed, "progress": sys.stderr.isatty()}
    print("screens ...", flush=True)
    timed = frontiers(scale, rivals=not options.quick, **shared)
    print("lossless, vector by vector ...", flush=True)
    exactness = geometry_runs.lossless(scale, **shared)
    print("geometry of paper 000 ...", flush=True)
    rows = rows_of(timed, exactness, geometry_runs.zcode(scale, **shared))
    given = " ".join(sys.argv[1:] if arguments is None else arguments)
    about = provenance(threads=1, seed=options.seed) | {
        "command": f"make bench-projections BENCH_ARGS='{given}'" if given else "make bench-projections",
        "scale": str(scale),
    }
    print(
        f"\n{about['cpu']}, {about['cores']} cores, {' '.join(about['cpu_flags'])}; one thread, one vector at a time\n"
    )
    show(rows)
    path = Path(options.out) / "projections.json"
    write_table(path, rows, about)
    print(f"\n{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
