"""The command that translates a sentence or a file, and draws the passes of a sentence."""

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from fastdecode_lib.cli.common import PARTIAL, PICTURES, UsageError, load, read_lines, write_json


def _part(typed: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Parse ``1:10,5:20`` into ranges that count from 0 and exclude their ends, as in ddgviz."""
    match = re.fullmatch(r"(\d+):(\d+),(\d+):(\d+)", typed)
    if match is None or min(numbers := [int(number) for number in match.groups()]) < 1:
        raise argparse.ArgumentTypeError(f"expected passes and positions from 1, as in 1:10,5:20, got {typed!r}")
    first, last, left, right = numbers
    if first > last or left > right:
        raise argparse.ArgumentTypeError(f"expected the first pass and position before the last, got {typed!r}")
    return (first - 1, last), (left - 1, right)


def _check_part(part: tuple[tuple[int, int], tuple[int, int]] | None, trace: Any) -> None:
    """Refuse a part that is outside the picture."""
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
    translate.add_argument("text", nargs="*", help="the sentence, in quotes")
    translate.add_argument(
        "--file", metavar="FILE", help="translate each line of FILE, empty lines too; - reads standard input"
    )
    translate.add_argument(
        "--decoder",
        metavar="NAME:key=value,...",
        help="default: the choice of speedup, else auto on the compiled engine, or the plainest for the model",
    )
    translate.add_argument(
        "--projection",
        metavar="NAME:key=value",
        help="default: exact where --decoder is given, else the fastest known with the same tokens",
    )
    translate.add_argument("--batch", type=int, help="lines of FILE decoded together (default: up to 64)")
    translate.add_argument(
        "--verify", action="store_true", help="also decode greedily and print how many outputs are identical"
    )
    for picture in PICTURES:
        translate.add_argument(f"--{picture}", metavar="FILE", help="draw the passes in a file of this format")
    translate.add_argument("--trace", metavar="FILE", help="write the trace as JSON")
    translate.add_argument("--theme", choices=tuple(THEMES), help="theme of a picture (default: light)")
    translate.add_argument(
        "--part", metavar="A:B,C:D", type=_part, help="draw a part: passes A to B, positions C to D, from 1"
    )
    translate.set_defaults(run=_translate)


def _translate(options: argparse.Namespace) -> int:
    from fastdecode_lib.batching import cores
    from fastdecode_lib.core import Hypothesis
    from fastdecode_lib.registry import EXACT
    from fastdecode_lib.translation import Session, typed_target

    _check_options(options)
    texts = read_lines(options.file) if options.file is not None else options.text
    if options.batch is not None and options.file is None:
        raise UsageError(f"--batch is for --file: got {options.batch}. Leave it out.")
    model = load(options)
    target = options.target_language or typed_target(model, texts)
    choices = options.source_language, target, options.decoder, options.projection
    single = options.file is None or options.batch == 1
    observe = options.file is None  # what makes many sentences faster costs one sentence more than it saves
    session = Session.usual(model, *choices, single=single, observe=observe, max_length=options.max_length)
    if _pictures(options) or options.trace:
        trace = session.translate(texts[0], verify=True).trace
        _check_part(options.part, trace)
        hypotheses, batches = list(trace.hypotheses) or [Hypothesis((), None, "end")], 1
        _draw(options, trace)
    else:
        progress = len(texts) > 1 and sys.stderr.isatty()
        batches = options.threads or cores() if model.engine == "compiled" else 1  # torch's threads work on one batch
        hypotheses = session.decode(texts, batch=options.batch, threads=batches, progress=progress, keep_done=True)
    tokens = [h.tokens for h in hypotheses]
    interrupted = sum(h.stop == "interrupted" for h in hypotheses)
    outputs = model.texts(texts, tokens)
    different = _different(session, texts, tokens) if options.verify and not interrupted else None
    if options.json:
        _write_json(options, session, texts, outputs, tokens, different, max(batches, options.threads or 1))
    for output in outputs:
        print(output if options.file is None else re.sub(r"[\r\n]+", " ", output))  # a line for each line
    if note := session.cut_short(tokens):
        print(f"fastdecode: {note}", file=sys.stderr)
    if different is not None:
        examples = f"; different: {', '.join(map(str, different[:10]))}{' ...' * (len(different) > 10)}"
        print(
            f"fastdecode: {len(texts) - len(different)} of {len(texts)} outputs are greedy decoding's{examples * bool(different)}",
            file=sys.stderr,
        )
    if interrupted:
        print(f"fastdecode: interrupted, {interrupted} of {len(texts)} lines not translated", file=sys.stderr)
    if different and session.decoder.lossless and session.projection_name in EXACT:
        return 1
    return 130 if interrupted else 0


def _pictures(options: argparse.Namespace) -> list[str]:
    """The files that picture options name."""
    return [path for kind in PICTURES if (path := getattr(options, kind))]


def _check_options(options: argparse.Namespace) -> None:
    """Refuse options that do not fit each other."""
    if len(options.text) > 1:
        raise UsageError(
            f"translate takes one sentence: got {len(options.text)} parts, the first {options.text[0]!r}. Put it in "
            "quotes, or name a file of sentences with --file."
        )
    if (not options.text) == (options.file is None):
        raise UsageError(
            "translate needs a sentence or --file FILE, one of the two. Example: fastdecode translate 'Good morning.'"
        )
    if options.text and os.path.isfile(options.text[0]):
        name = options.text[0]
        raise UsageError(
            f"{name} is a file: to translate its lines, use --file {shlex.quote(name)}. To translate the name, put a space "
            "after it."
        )
    pictures = _pictures(options)
    if options.file is not None and (pictures or options.trace):
        raise UsageError("Pictures and --trace are for one sentence: give the sentence instead of --file.")
    if options.part and not any(getattr(options, kind) for kind in PARTIAL):
        raise UsageError("--part draws a part of a picture: got it without one. Add --svg FILE.")
    if options.theme and not pictures:
        raise UsageError("--theme is a picture's: got it without one. Add --svg FILE.")


def _draw(options: argparse.Namespace, trace: Any) -> None:
    """Write the pictures of a trace, and the trace itself if --trace names a file."""
    from fastdecode_lib.store import write_text

    for kind in PICTURES:
        if path := getattr(options, kind):
            from ddgviz.export import save

            save(trace, path, options.theme or "light", window=options.part if kind in PARTIAL else None)
    if options.trace:
        write_text(options.trace, trace.to_json() + "\n")


def _write_json(
    options: argparse.Namespace,
    session: Any,
    texts: Sequence[str],
    outputs: Sequence[str],
    tokens: Sequence[Sequence[int]],
    different: Sequence[int] | None,
    threads: int,
) -> None:
    """Write a row for each sentence; `different` as `_different` gives it, None where outputs were not compared."""
    from fastdecode_lib.measuring.provenance import provenance

    rows = [
        {
            "name": str(i),
            "source": text,
            "text": output,
            "tokens": list(ids),
            "cut_short": bool(session.cut_short([ids])),
        }
        | ({} if different is None else {"verified": i not in different})
        for i, (text, output, ids) in enumerate(zip(texts, outputs, tokens, strict=True), 1)
    ]
    write_json(options, rows, provenance(session.model, threads=threads))


def _different(session: Any, texts: Sequence[str], tokens: Sequence[Sequence[int]]) -> list[int]:
    """The lines whose output is not greedy decoding's with the exact projection, from 1."""
    from fastdecode_lib.translation import Session

    if not session.has_greedy:
        raise UsageError(
            f"--verify compares with greedy decoding, which cannot drive this model: got {session.model.name}. Leave it out."
        )
    limit = session.constraints.max_length
    greedy = Session.of(session.model, session.source, session.target, "greedy", max_length=limit)
    expected = greedy.decode(texts, threads=1)
    return [i for i, (a, b) in enumerate(zip(tokens, expected, strict=True), 1) if tuple(a) != b.tokens]
