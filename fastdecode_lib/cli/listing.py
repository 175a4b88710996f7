"""The command that lists decoders, projections and models by the names that other commands take."""

import argparse
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fastdecode_lib.cli.common import UsageError

UNTUNED = (
    "The knobs of Chen et al.'s baselines, svd and those below it, want tuning for each model. As they are, svd, fgd, greedy_mips, "
    "pca_mips, lsh_mips and row_clusters keep most outputs of tatoeba-small, fewer of some other models, and none is clearly "
    "faster than exact. `fastdecode experiment vocabulary_clusters.end_to_end` tunes and measures them."
)


def add_commands(commands: Any) -> None:
    """Add ``list`` to the commands."""
    listing = commands.add_parser("list", help="decoders, projections and models, by name")
    listing.add_argument("what", nargs="?", metavar="WHAT", help="decoders, projections or models (default: all three)")
    listing.set_defaults(run=_list)


def _list(options: argparse.Namespace) -> int:
    from fastdecode_lib.registry import DECODERS, PROJECTIONS, projection_class

    tables: dict[str, Callable[[], Iterable[tuple[str, str]]]] = {
        "decoders": lambda: ((name, _described(cls)) for name, cls in DECODERS.items()),
        "projections": lambda: ((name, _described(projection_class(name))) for name in PROJECTIONS),
        "models": _models,
    }
    if options.what not in (None, *tables):
        raise UsageError(f"There are {', '.join(tables)}: got {options.what!r}. Leave it out for all of them.")
    width = shutil.get_terminal_size((120, 24)).columns
    for title, rows in tables.items():
        if options.what in (None, title):
            print(f"{title}:")
            for name, description in rows():
                print(textwrap.fill(description, width, initial_indent=f"  {name:<14}", subsequent_indent=" " * 16))
        if title == "projections" and options.what in (None, title):
            print(textwrap.fill(UNTUNED, width, initial_indent=" " * 4, subsequent_indent=" " * 4))
    return 0


def _models() -> Iterator[tuple[str, str]]:
    from fastdecode_lib.checkpoints.hub import bundled
    from fastdecode_lib.checkpoints.transformer import FAMILIES

    for name, folder in bundled().items():
        card = (folder / "README.md").read_text(encoding="utf-8").split("\n# ", 1)[-1]
        yield name, card.split("\n\n")[1].partition(". It ")[0] + "."
    families = ", ".join(FAMILIES)
    yield "a folder", f"in Hugging Face's layout, or a hub id: {families} on our engines, others through transformers"


def _described(cls: type) -> str:
    """The first line of a class's docstring, and its options, those that are not computed with their defaults."""
    from fastdecode_lib.registry import options

    defaults = ", ".join(
        option.name if option.default is None else f"{option.name}={option.default}" for option in options(cls).values()
    )
    return str(cls.__doc__).splitlines()[0].replace("``", "") + (f" [{defaults}]" if defaults else "")
