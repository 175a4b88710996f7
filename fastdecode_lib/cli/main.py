"""The command line: one clear message and exit status 2 for anything that cannot be done, never a traceback."""

import argparse
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastdecode_lib import __version__
from fastdecode_lib.cli import (
    check,
    compare,
    contexts,
    drafts,
    evaluate,
    experiment,
    figures,
    listing,
    train,
    translate,
)
from fastdecode_lib.cli.common import PICTURES, Parser, UsageError, check_file, one_line
from fastdecode_lib.cli.examples import epilog

INPUTS, OUTPUTS = ("file", "source", "reference"), ("json", "trace", "vmap", *PICTURES)
"""Options that name a file to read, and to write."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0 done, 1 a law is broken, 2 it could not be done, 130 interrupted."""
    formatted = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"fastdecode: {' '.join(str(message).split())}\n"
    try:
        _prepare_output()
        options = _parser().parse_args(arguments)
        _check_options(options)
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except KeyboardInterrupt:
        print("fastdecode: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except (ValueError, OSError, RuntimeError) as error:
        print(f"fastdecode: {one_line(error)}", file=sys.stderr)
        return 2
    except Exception as error:
        if os.environ.get("FASTDECODE_TRACEBACK"):
            raise
        print(
            f"fastdecode: unexpected {type(error).__name__}: {one_line(error)}. This is a fault of fastdecode; "
            "FASTDECODE_TRACEBACK=1 shows where.",
            file=sys.stderr,
        )
        return 2
    finally:
        warnings.formatwarning = formatted


def _prepare_output() -> None:
    """Write UTF-8, as files are read, unless told otherwise; what an encoding lacks is written as an escape, not refused."""
    if sys.stdout is None:
        raise UsageError(
            "Standard output is closed, so that results would be lost. Redirect it, to /dev/null if need be."
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            chosen = stream.isatty() or "PYTHONIOENCODING" in os.environ
            stream.reconfigure(encoding=None if chosen else "utf-8", errors="backslashreplace")


def _check_options(options: argparse.Namespace) -> None:
    """Refuse bad options before any work, even those that are used only at its end."""
    values = {name: value for name, value in vars(options).items() if value is not None}
    cores = os.cpu_count() or 1
    if not 1 <= values.get("threads", 1) <= cores:
        raise UsageError(
            f"--threads must be from 1 to {cores}, the cores here: got {values['threads']}. Use --threads 1."
        )
    for name, least, remedy in (
        ("seed", 0, "Use --seed 0"),
        ("runs", 1, "Use --runs 9"),
        ("batch", 1, "Leave it out"),
        ("cases", 1, "Use --cases 50"),
    ):
        if values.get(name, least) < least:
            raise UsageError(f"--{name} must be at least {least}, got {values[name]}. {remedy}.")
    for kind in PICTURES:
        path = values.get(kind)
        if path and Path(path).suffix.lower() != f".{kind}":
            raise UsageError(f"--{kind} writes a file ending in .{kind}, got {path!r}. Change the one or the other.")
    results = values.get("results")
    place = Path(results).absolute() if results else Path.cwd()
    place = next(p for p in (place, *place.parents) if p.exists())
    if results and not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        raise UsageError(f"--results cannot write there: got {results!r}. Name a folder that can be written to.")
    for kind in OUTPUTS:
        check_file(f"--{kind}", values.get(kind))
    _check_apart(values)


def _check_apart(values: dict[str, Any]) -> None:
    """Refuse an output that would replace an input or another output."""
    options: dict[str, str] = {}
    for name in (*INPUTS, *OUTPUTS, "out"):
        path = values.get(name)
        if not isinstance(path, str) or path.startswith("/dev/"):
            continue
        place = os.path.realpath(path)
        if name not in INPUTS and place in options:
            raise UsageError(
                f"--{name} would replace the file of --{options[place]}: got {path!r} for both. Name another file."
            )
        options[place] = name


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(
        prog="fastdecode",
        description="Faster decoding for neural machine translation, exact and measured.",
        epilog='example: fastdecode translate "Where is the station?" --from en --to de; fastdecode COMMAND --help has more',
    )
    parser.add_argument("--version", action="version", version=f"fastdecode {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    model = Parser(add_help=False)
    model.add_argument(
        "--model", default="tatoeba-small", help="bundled name, folder or hub id (default: tatoeba-small)"
    )
    model.add_argument(
        "--from",
        dest="source_language",
        metavar="LANG",
        help="source language, e.g. en (default: the model's first direction that fits)",
    )
    model.add_argument("--to", dest="target_language", metavar="LANG", help="target language, e.g. de")
    model.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    numbers = Parser(add_help=False)
    numbers.add_argument("--engine", default="auto", help="compiled (CPU kernels), torch or auto (default: auto)")
    numbers.add_argument(
        "--dtype",
        default="float32",
        help="number format on torch: float64, float32, float16 or bfloat16 (default: float32)",
    )
    numbers.add_argument(
        "--precision",
        default="float32",
        help="precision of the compiled engine: float32, int16 or int8 (default: float32)",
    )
    model.add_argument(
        "--threads",
        type=int,
        help="threads (default: 1; all for draft-head and for many sentences on the compiled engine)",
    )
    model.add_argument("--max-length", type=int, help="most output tokens (default: the checkpoint's)")

    table = Parser(add_help=False)
    table.add_argument("--json", metavar="FILE", help="also write the table to FILE, machine-readable")
    seed = Parser(add_help=False)
    seed.add_argument("--seed", type=int, default=0, help="seed of everything random (default: 0)")

    workers = Parser(add_help=False)
    workers.add_argument("--workers", type=int, help="processes to share untimed work, by dask (default: this one)")
    workers.add_argument("--scheduler", metavar="ADDRESS", help="address of a dask scheduler whose workers share it")

    translate.add_commands(commands, [model, numbers, table])
    compare.add_commands(commands, [model, numbers, table, seed])
    evaluate.add_commands(commands, [model, numbers, table, workers])
    drafts.add_commands(commands, [model, numbers, table], seed)
    contexts.add_commands(commands, [model, numbers, table, seed, workers])
    listing.add_commands(commands)
    train.add_commands(commands)
    experiment.add_commands(commands, [numbers, table, seed, workers])
    check.add_commands(commands, [table, seed])
    figures.add_commands(commands)
    for name, command in commands.choices.items():
        command.epilog, command.formatter_class = epilog(name), argparse.RawDescriptionHelpFormatter
    return parser
