"""The command that lists what there is: decoders, projections and models, by the names that other commands take."""

import argparse
import inspect
import shutil
import textwrap
from collections.abc import Iterator
from typing import Any

from fastdecode_lib.cli.common import UsageError

PLAIN = {
    "exact": ("The full vocabulary.", ""),
    "quantised": ("Every token in bytes, in doubt in float32: lossless.", ""),
    "clustered": ("Active sets of clusters of hidden vectors (paper 000), from fastdecode fit.", "file, shared, precision"),
    "screened": ("Clusters and sets learned together (paper 001, L2S), from fastdecode fit.", "file, shared, precision"),
    "lexical": ("Candidates of the source's words (paper 004).", "top, frequent, file"),
}  # fmt: skip
"""Projections whose options are read elsewhere than from a signature."""
UNTUNED = (
    "The knobs of paper 001's baselines, svd and those below it, want tuning for each model: as they are, most lose much of the "
    "output. `fastdecode experiment vocabulary_clusters.end_to_end` tunes and measures them all."
)


def add_commands(commands: Any) -> None:
    """Add ``list`` to the commands."""
    listing = commands.add_parser("list", help="decoders, projections and models, by name")
    listing.add_argument("what", nargs="?", metavar="WHAT", help="one of them alone (default: all three)")
    listing.set_defaults(run=_list)


def _list(options: argparse.Namespace) -> int:
    tables = {"decoders": _decoders, "projections": _projections, "models": _models}
    if options.what not in (None, *tables):
        raise UsageError(f"There are {', '.join(tables)}: got {options.what!r}. Leave it out for all of them.")
    width = shutil.get_terminal_size((120, 24)).columns
    for title, rows in tables.items():
        if options.what in (None, title):
            print(f"{title}:")
            for name, told in rows():
                print(textwrap.fill(told, width, initial_indent=f"  {name:<14}", subsequent_indent=" " * 16))
        if title == "projections" and options.what in (None, title):
            print(textwrap.fill(UNTUNED, width, initial_indent=" " * 4, subsequent_indent=" " * 4))
    return 0


def _decoders() -> Iterator[tuple[str, str]]:
    from fastdecode_lib.registry import DECODERS, settings

    for name, cls in DECODERS.items():
        options = ", ".join(f"{option}={usual}" for option, usual in settings(cls).items())
        yield name, _told(str(cls.__doc__), options)


def _projections() -> Iterator[tuple[str, str]]:
    from fastdecode_lib.registry import KEPT, OF_WEIGHTS, projection_class

    for name, (said, knobs) in PLAIN.items():
        yield name, _told(said, knobs)
    for name, place in OF_WEIGHTS.items():
        cls = projection_class(place)
        known = [p for p in inspect.signature(cls.fit).parameters.values() if p.kind is p.KEYWORD_ONLY]
        yield name, _told(cls.__doc__, ", ".join(f"{p.name}={p.default}" for p in known if p.name != "fingerprint"))
    for name, place in KEPT.items():
        yield name, _told(projection_class(place).__doc__, "file")


def _models() -> Iterator[tuple[str, str]]:
    from fastdecode_lib.checkpoints.hub import bundled

    for name, folder in bundled().items():
        card = (folder / "README.md").read_text(encoding="utf-8").split("\n# ", 1)[-1]
        yield name, textwrap.shorten(card.split("\n\n")[1], 120, placeholder=" ...")
    yield "a folder", "in Hugging Face's layout, safetensors, or a hub id"


def _told(said: str, knobs: str) -> str:
    return said.splitlines()[0].replace("``", "") + (f" [{knobs}]" if knobs else "")
