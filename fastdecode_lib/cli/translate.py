"""The command that translates a sentence or a file, and draws the passes of a sentence."""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from fastdecode_lib.cli.common import PICTURES, UsageError, limits, load, read_lines

PARTS = 5
"""So many of them, the first, can show a part of a trace."""


def _part(typed: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """``1:10,5:20`` as ddgviz counts: from 0, ends left out."""
    match = re.fullmatch(r"(\d+):(\d+),(\d+):(\d+)", typed)
    if match is None or min(numbers := [int(number) for number in match.groups()]) < 1:
        raise argparse.ArgumentTypeError(f"expected passes and positions from 1, as in 1:10,5:20, got {typed!r}")
    first, last, left, right = numbers
    if first > last or left > right:
        raise argparse.ArgumentTypeError(f"expected the first pass and position before the last, got {typed!r}")
    return (first - 1, last), (left - 1, right)


def _check_part(part: tuple[tuple[int, int], tuple[int, int]] | None, trace: Any) -> None:
    """Refuse a part that holds nothing of the picture."""
    passes, positions = len(trace.iterations), max(len(trace.tokens), 1)
    if part and (part[0][0] >= passes or part[1][0] >= positions):
        got = f"{part[0][0] + 1}:{part[0][1]},{part[1][0] + 1}:{part[1][1]}"
        raise UsageError(
            f"--part shows a part of {passes} passes and {positions} positions, got {got}. "
            f"All of them are 1:{passes},1:{positions}."
        )


def add_commands(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Add ``translate``."""
    from ddgviz.theme import THEMES

    translate = commands.add_parser("translate", parents=parents, help="translate a sentence or a file")
    translate.add_argument("text", nargs="?", help="the sentence")
    translate.add_argument(
        "--file", metavar="FILE", help="translate each line of FILE, empty lines too; - reads standard input"
    )
    translate.add_argument(
        "--decoder", metavar="NAME:key=value,...", help="default: greedy, or the plainest that fits the model"
    )
    translate.add_argument("--projection", default="exact", metavar="NAME:key=value", help="default: exact")
    for picture in PICTURES:
        translate.add_argument(f"--{picture}", metavar="FILE", help="show the passes in a file of this kind")
    translate.add_argument("--trace", metavar="FILE", help="write the trace as JSON")
    translate.add_argument("--theme", choices=tuple(THEMES), help="of a picture (default: light)")
    translate.add_argument(
        "--part", metavar="A:B,C:D", type=_part, help="draw a part: passes A to B, positions C to D, from 1"
    )
    translate.set_defaults(run=_translate)


def _translate(options: argparse.Namespace) -> int:
    from fastdecode_lib.batching import cores
    from fastdecode_lib.measuring.provenance import provenance
    from fastdecode_lib.store import atomic_file, write_table
    from fastdecode_lib.translation import Session

    if (options.text is None) == (options.file is None):
        raise UsageError(
            "translate needs a sentence or --file FILE, one of the two. Example: fastdecode translate 'Good morning.'"
        )
    pictures = [path for kind in PICTURES if (path := getattr(options, kind))]
    if options.file is not None and (pictures or options.trace):
        raise UsageError(
            "A picture or trace shows one sentence: got --file with one. Give the sentence itself instead."
        )
    if options.part and not any(getattr(options, kind) for kind in PICTURES[:PARTS]):
        raise UsageError("--part draws a part of a picture: got it without one. Add --svg FILE.")
    if options.theme and not pictures:
        raise UsageError("--theme is a picture's: got it without one. Add --svg FILE.")
    texts = read_lines(options.file) if options.file is not None else [options.text]
    left = 0
    model = load(options)
    session = Session.of(
        model, options.source_language, options.target_language, options.decoder, options.projection, **limits(options)
    )
    if pictures or options.trace:
        result = session.translate(texts[0], verify=True)
        _check_part(options.part, result.trace)
        tokens, batches = [result.tokens], 1
        for path in pictures:
            from ddgviz.export import PICTURES as PARTLY
            from ddgviz.export import save

            part = options.part if Path(path).suffix.lower() in PARTLY else None
            save(result.trace, path, options.theme or "light", window=part)
        if options.trace:
            with atomic_file(options.trace) as temporary:
                temporary.write_text(result.trace.to_json() + "\n", encoding="utf-8")
    else:
        progress = len(texts) > 1 and sys.stderr.isatty()
        batches = options.threads or cores() if model.engine == "compiled" else 1  # torch's threads share one batch
        hypotheses = session.decode(texts, threads=batches, progress=progress, keep_done=True)
        tokens = [h.tokens for h in hypotheses]
        left = sum(h.stop == "interrupted" for h in hypotheses)
    outputs = model.texts(texts, tokens)
    if options.json:
        rows = [
            {"name": str(i + 1), "source": text, "text": output, "tokens": list(ids)}
            for i, (text, output, ids) in enumerate(zip(texts, outputs, tokens, strict=True))
        ]
        threads = max(batches, options.threads or 1)
        write_table(options.json, rows, provenance(model, threads=threads))
    for output in outputs:
        print(output)
    cut = sum(len(ids) >= session.constraints.max_length for ids in tokens)
    if cut:
        print(
            f"fastdecode: {cut} output(s) reached the longest length, {session.constraints.max_length}", file=sys.stderr
        )
    if left:
        print(f"fastdecode: interrupted, {left} of {len(texts)} lines not translated", file=sys.stderr)
    return 130 if left else 0
