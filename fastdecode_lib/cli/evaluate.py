"""The command that counts and scores decoders on many sentences, over dask's workers if there are any."""

import argparse
import sys
from typing import Any

from fastdecode_lib.cli.common import UsageError, add_compared, print_table, read_lines, write_json


def add_commands(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Add ``evaluate`` to the commands; `parents` have the options of every command that loads a model."""
    evaluate = commands.add_parser(
        "evaluate",
        parents=parents,
        help="count passes, agreement and quality of decoders on many sentences; resumable, on any number of workers",
    )
    add_compared(evaluate, "the plainest for the model, greedy for most")
    evaluate.add_argument(
        "--folder", default="build/evaluate", metavar="DIR", help="folder of finished chunks (default: build/evaluate)"
    )
    evaluate.set_defaults(run=_evaluate)


def _evaluate(options: argparse.Namespace) -> int:
    from fastdecode_lib.measuring.evaluation import evaluate

    if options.threads is not None:
        raise UsageError(f"Evaluation runs on one thread a worker: got --threads {options.threads}. Use --workers.")
    frame = evaluate(
        options.model,
        read_lines(options.source),
        references=read_lines(options.reference) if options.reference else None,
        source=options.source_language,
        target=options.target_language,
        decoders=options.decoder or (None,),
        projections=options.projection or ("exact",),
        settings={name: getattr(options, name) for name in ("device", "engine", "dtype", "precision")},
        folder=options.folder,
        workers=options.workers,
        scheduler=options.scheduler,
        progress=sys.stderr.isatty(),
        max_length=options.max_length,
    )
    rows = frame.to_dict("records")
    print_table(rows)
    write_json(options, rows, frame.attrs["provenance"])
    return 0
