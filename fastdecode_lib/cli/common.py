"""Functions that the commands share: load the chosen model, read lines of files, print tables."""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn


class UsageError(ValueError):
    """The options of a command line are wrong or contradict each other."""


class _Once(argparse.Action):
    """An option with one value: a second value is an error, since the first would be lost."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Store the value."""
        given = vars(namespace).setdefault("given", {})
        if option_string and self.dest in given:
            parser.error(f"{option_string} takes one value: got {given[self.dest]} and {values}")
        given[self.dest] = values
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """Parser whose errors are `UsageError`, with what was meant."""

    def __init__(self, *arguments: Any, **settings: Any):
        super().__init__(*arguments, **settings)
        for name in (None, "store"):
            self.register("action", name, _Once)

    def error(self, message: str) -> NoReturn:
        """Raise the message with the choice that was probably meant."""
        hint = ""
        if wrong := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            close = difflib.get_close_matches(wrong[1], re.findall(r"[\w-]+", wrong[2]), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"{message[:1].upper()}{message[1:]}.{hint} See {self.prog} --help.")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Options and no unknown arguments: a command refuses them itself, so that the error names its own help."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown


SOURCE = "--source", "--file"
"""Names of the option for a file of sentences."""


def add_compared(command: argparse.ArgumentParser, decoders: str) -> None:
    """Add the options that name sentences, decoders and projections to compare; `decoders` says what the default ones are."""
    command.add_argument(*SOURCE, metavar="FILE", required=True, help="one sentence a line")
    command.add_argument("--reference", metavar="FILE", help="one reference a line, for BLEU and chrF")
    command.add_argument(
        "--decoder", action="append", metavar="NAME:key=value,...", help=f"repeatable (default: {decoders})"
    )
    command.add_argument("--projection", action="append", metavar="NAME:key=value", help="repeatable (default: exact)")


def load(options: argparse.Namespace) -> Any:
    """The model that the options name; torch gets the number of threads that they name."""
    from fastdecode_lib import loading

    model = loading.load(
        options.model, device=options.device, dtype=options.dtype, engine=options.engine, precision=options.precision
    )
    if model.engine == "torch":
        import torch

        torch.set_num_threads(options.threads or 1)
    return model


def at_low_priority() -> None:
    """Give this process a low priority until it ends, for long work."""
    os.setpriority(os.PRIO_PROCESS, 0, max(10, os.getpriority(os.PRIO_PROCESS, 0)))


def read_lines(path: str) -> list[str]:
    """The lines of a UTF-8 file without their ends; - is standard input."""
    if path == "-" and sys.stdin is None:
        raise UsageError("Standard input is closed: got '-'. Name a file.")
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error}. Save it as UTF-8 text.") from error
    except FileNotFoundError:
        raise UsageError(f"The file does not exist: got {path!r}. Check the path.") from None
    lines = text.split("\n")
    return [line.rstrip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def check_file(option: str, path: str | None) -> None:
    """Refuse an output file that cannot be written."""
    if path == "-":
        raise UsageError(f"{option} names a file: got '-'. For standard output, write /dev/stdout.")
    if path:
        folder = next(p for p in Path(path).absolute().parents if p.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK) or Path(path).is_dir():
            raise UsageError(
                f"{option} cannot write there: got {path!r}. Name a file in a folder that can be written to."
            )


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table, without empty columns and columns of lists (raw times)."""
    import pandas as pd

    frame = pd.DataFrame(list(rows)).dropna(axis=1, how="all")
    frame = frame[[name for name in frame if not frame[name].map(lambda value: isinstance(value, list)).any()]]
    counts = [name for name in ("calls", "positions") if name in frame and (frame[name].dropna() % 1 == 0).all()]
    frame[counts] = frame[counts].astype("Int64")
    texts = [name for name in frame if frame[name].map(lambda value: isinstance(value, str)).all()]
    for name in texts:
        frame[name] = frame[name].str.ljust(frame[name].str.len().max())
    frame = frame.rename(columns={name: name.ljust(frame[name].str.len().max()) for name in texts})
    print(frame.to_string(index=False, float_format=lambda x: f"{x:.3f}" if abs(x) < 1e6 else f"{x:.3g}", na_rep="-"))


def write_json(options: argparse.Namespace, rows: list[dict[str, Any]], provenance: dict[str, Any]) -> None:
    """Write a table to the file that --json names, if it names one."""
    from fastdecode_lib.store import write_table

    if options.json:
        write_table(options.json, rows, provenance)


PARTIAL = ("svg", "pdf", "png", "gif", "tex")
"""Formats of pictures that can show a part of a trace."""
PICTURES = (*PARTIAL, "html", "graphml", "gexf")
"""Formats that ddgviz.save writes for one sentence, besides the trace itself."""


def one_line(error: Exception) -> str:
    """The message of an error in one line; an error about a file says what to check."""
    if isinstance(error, OSError) and error.strerror:
        name = error.filename2 or error.filename
        place = f": {name}" if name else ""
        return f"{error.strerror}{place}. Check the path, the space left and the permissions."
    return " ".join(str(error).split())


def has_browser() -> bool:
    """Whether there is a browser that draws PDF and PNG; prints a note if there is none."""
    from ddgviz.browser import find_browser

    try:
        find_browser()
    except ValueError as error:
        print(f"fastdecode: PDF and PNG are left out. {one_line(error)}", file=sys.stderr)
        return False
    return True
