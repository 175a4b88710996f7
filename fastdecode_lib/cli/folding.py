"""The command that folds text for training with another toolkit, and unfolds what such a model puts out."""

import argparse
from typing import Any

from fastdecode_lib.cli.common import UsageError, read_lines
from fastdecode_lib.decoding.folding import folded, whole


def add_commands(commands: Any) -> None:
    """Add ``fold`` to the commands."""
    fold = commands.add_parser(
        "fold", help="put tokens in the order of a model of several tokens a step (paper 002), or back"
    )
    fold.add_argument("file", metavar="FILE", help="tokens between spaces, one sentence a line; - reads standard input")
    fold.add_argument("--tokens", type=int, default=2, help="tokens a step (default: 2)")
    fold.add_argument("--one-end", action="store_true", help="from the left alone, not from both ends by turns")
    fold.add_argument("--end", default="</s>", metavar="TOKEN", help="what closes a sentence (default: </s>)")
    fold.add_argument("--undo", action="store_true", help="from folded lines back to sentences")
    fold.set_defaults(run=_fold)


def _fold(options: argparse.Namespace) -> int:
    if options.tokens < 1:
        raise UsageError(f"--tokens must be at least 1, got {options.tokens}. Paper 002 has 2.")
    if options.end.split() != [options.end]:
        raise UsageError(f"--end must be one token without spaces: got {options.end!r}. Usual is '</s>'.")
    fold = whole if options.undo else folded
    lines = [[token for token in line.split(" ") if token] for line in read_lines(options.file)]
    made = []
    for number, tokens in enumerate(lines, 1):
        if not options.undo and options.end in tokens:
            raise UsageError(
                f"Line {number} has the token that closes sentences: got {options.end!r}. Take it out, or name another: --end."
            )
        try:
            made.append(fold(tokens, options.end, options.tokens, not options.one_end))
        except ValueError as error:
            raise UsageError(f"Line {number}: {error}") from None
    for tokens in made:
        print(" ".join(tokens))
    return 0
