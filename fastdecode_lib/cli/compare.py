"""The commands that measure: `compare` decoders on the same sentences, `speedup` a model."""

import argparse
import sys
from typing import Any

from fastdecode_lib.cli.common import SOURCE, UsageError, add_compared, load, print_table, read_lines, write_json


def add_commands(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Add ``compare`` and ``speedup``."""
    compare = commands.add_parser("compare", parents=parents, help="compare decoders on the same sentences")
    add_compared(compare, "greedy, auto, a window of 3, and the decoders of Santilli et al. (2023)")
    compare.add_argument("--baseline", action="append", default=[], choices=("hf", "ctranslate2"), help="repeatable")
    compare.add_argument(
        "--runs", type=int, default=9, help="timed rounds; fewer than six have no interval (default: 9)"
    )
    compare.set_defaults(run=_compare)

    speedup = commands.add_parser(
        "speedup",
        parents=[*parents[:1], *parents[2:]],
        help="make a model faster on this machine: drafts from your text, every choice measured, output checked",
    )
    speedup.add_argument(*SOURCE, metavar="FILE", required=True, help="text like yours, one sentence a line")
    speedup.add_argument("--minutes", type=float, default=5.0, help="time to spend, approximately (default: 5)")
    speedup.add_argument("--batch", type=int, default=1, help="sentences decoded together (default: 1)")
    speedup.add_argument(
        "--near",
        type=float,
        default=0.95,
        help="share of outputs that must stay identical, with 95%% confidence, where some may change (default: 0.95)",
    )
    speedup.set_defaults(run=_speedup)


def _compare(options: argparse.Namespace) -> int:
    from fastdecode_lib import registry
    from fastdecode_lib.measuring.comparing import compare

    sentences = read_lines(options.source)
    references = read_lines(options.reference) if options.reference else None
    model = load(options)
    frame = compare(
        model,
        sentences,
        decoders=options.decoder,
        projections=options.projection or ("exact",),
        baselines=options.baseline,
        references=references,
        runs=options.runs,
        **_measuring(options),
    )
    rows = frame.to_dict("records")
    print_table(rows)
    record = frame.attrs["provenance"]
    interval = " with a 95% interval" if frame["speedup_low"].notna().any() else ""
    baseline_dtype = ", hf in float32" if "hf" in options.baseline and record["dtype"] in ("int16", "int8") else ""
    plainest = registry.usual(model.network)
    print(
        f"\n{record['sentences']} sentences, {record['runs']} rounds, {record['device']}, {record['threads']} thread(s), "
        f"{record['dtype']}{baseline_dtype}; speedup over our {'greedy loop' if plainest == 'greedy' else plainest} with the exact "
        f"projection{interval}: the median of the rounds' ratios, not the ratio of the seconds shown"
    )
    if record["threads"] > 1 and model.engine == "compiled":
        print("The compiled engine takes one thread for one sentence at a time; only baselines have the others.")
    write_json(options, rows, record | {"raw_seconds": frame.attrs["seconds"]})
    return 0


def _speedup(options: argparse.Namespace) -> int:
    from fastdecode_lib.measuring.speedups import SCREENING_ROUNDS
    from fastdecode_lib.training.speedup import speedup

    if options.device not in ("auto", "cpu"):
        raise UsageError(f"speedup measures on the CPU: got --device {options.device}. Leave it out.")
    result = speedup(
        options.model,
        read_lines(options.source),
        minutes=options.minutes,
        batch=options.batch,
        near=options.near,
        **_measuring(options) | {"progress": True},
    )
    table = result.table  # in it, int8 is compared with greedy decoding in int8; printed, with float32, as elsewhere
    shown = table.assign(lossless=table["lossless"] & (table["precision"] == result.lossless["precision"]))
    printed = shown.assign(unchanged_low=shown["unchanged_low"].where(~shown["lossless"]))
    print_table(printed.drop(columns=["decoder", "projection", "precision"]).to_dict("records"))
    print(
        "\nThe rows with an interval were timed to the end, and the choice is among them. Those below were timed in "
        f"{SCREENING_ROUNDS} rounds, to find out which to time to the end."
        + " unchanged_low is the share that is unchanged with 95% confidence."
        * bool(printed["unchanged_low"].notna().any())
    )
    print(f"\n{result}")
    choice = {"lossless": result.lossless, "near": result.near}
    write_json(options, shown.to_dict("records"), result.provenance | choice)
    return 0


def _measuring(options: argparse.Namespace) -> dict[str, Any]:
    """Direction and limits as arguments of the functions that measure."""
    return {
        "source": options.source_language,
        "target": options.target_language,
        "threads": options.threads or 1,
        "seed": options.seed,
        "progress": sys.stderr.isatty(),
        "max_length": options.max_length,
    }
