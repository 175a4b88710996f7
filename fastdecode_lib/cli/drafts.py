"""The commands that make draft tables (n-grams and a lexicon) and draft heads, from which windows draft."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastdecode_lib.cli.common import (
    SOURCE,
    Parser,
    UsageError,
    at_low_priority,
    check_file,
    load,
    read_lines,
    write_json,
)


def add_commands(commands: Any, parents: list[argparse.ArgumentParser], seed: argparse.ArgumentParser) -> None:
    """Add ``draft-table`` and ``draft-head`` to the commands; `seed` has the option that ``draft-table`` does not need."""
    text = Parser(add_help=False)
    origin = text.add_mutually_exclusive_group()
    origin.add_argument(*SOURCE, metavar="FILE", help="unlabelled text in the source language, one sentence a line")
    origin.add_argument(
        "--data", metavar="DIR", help="the corpus folder: its training sources, joined (default: FASTDECODE_DATA)"
    )
    draft_table = commands.add_parser(
        "draft-table",
        parents=[*parents, text],
        help="count n-grams and word translations of a model's outputs, from which a window drafts",
    )
    draft_table.add_argument("--sentences", type=int, help="number to use, evenly spread from the first to the last")
    draft_table.add_argument("--least", type=int, default=3, help="leave out n-grams seen less often (default: 3)")
    draft_table.add_argument("--out", metavar="DIR", help="folder of the tables (default: where `window` finds them)")
    draft_table.add_argument("--vmap", metavar="FILE", help="also write the lexicon as a CTranslate2 vmap file")
    draft_table.add_argument("--folder", default="build/draft-table", help="translations (default: build/draft-table)")
    draft_table.set_defaults(run=_draft_table)

    head = commands.add_parser(
        "draft-head",
        parents=[*parents, seed, text],
        help="train a draft head: a small network on the frozen model that guesses its next tokens",
    )
    head.add_argument(
        "--sentences",
        type=int,
        default=6_000,
        help="number for each direction, evenly spread from the first to the last (default: 6000)",
    )
    head.add_argument("--updates", type=int, default=1_200, help="most training updates (default: 1200)")
    head.add_argument(
        "--vocabulary", type=int, default=2_000, help="tokens drafts are taken from, the most frequent (default: 2000)"
    )
    head.add_argument("--begin-with", metavar="FILE", help="another head of the same shape, to train on")
    head.add_argument("--out", metavar="FILE", help="the head (default: where `window` finds it)")
    head.add_argument(
        "--folder", default="build/draft-head", help="translations and checkpoints (default: build/draft-head)"
    )
    head.set_defaults(run=_draft_head)


def _draft_table(options: argparse.Namespace) -> int:
    from fastdecode_lib.batching import cores
    from fastdecode_lib.measuring.provenance import provenance
    from fastdecode_lib.text.corpus import spread_over
    from fastdecode_lib.training.draft_tables import default_path, make_table, unlabelled
    from fastdecode_lib.translation import Session

    if options.least < 1 or (options.sentences is not None and options.sentences < 1):
        raise UsageError(
            f"--least and --sentences must be at least 1: got {options.least} and {options.sentences}. Leave them out."
        )
    if options.out and Path(options.out).exists() and not Path(options.out).is_dir():
        raise UsageError(f"--out is the folder of the tables: got {options.out!r}, which is a file. Name a folder.")
    lines = read_lines(options.source) if options.source else None
    model = load(options)
    directions = _directions(options, model)
    if options.vmap and len(directions) > 1:
        raise UsageError(f"--vmap writes one direction: got {len(directions)}. Add --from and --to.")
    rows = []
    for source, target in directions:
        session = Session.of(model, source, target, "greedy", "exact", max_length=options.max_length)
        texts = unlabelled(options.data, session.source, session.target) if lines is None else lines
        texts = texts if options.sentences is None else spread_over(texts, options.sentences)
        _announce(f"translations of {len(texts)} sentences", options.folder)
        table = make_table(
            session,
            texts,
            least=options.least,
            threads=options.threads,
            folder=options.folder,
            progress=sys.stderr.isatty(),
        )
        path = Path(options.out) / default_path(session).name if options.out else default_path(session)
        table.save(path)
        if options.vmap:
            tokenizer, vocabulary = model.tokenizer, table.vocabulary
            sources = tokenizer.source_tokens(range(table.lexicon.source_vocabulary))
            table.lexicon.to_vmap(options.vmap, sources, tokenizer.pieces(range(vocabulary)), session.constraints.end)
        size = path.stat().st_size
        rows.append({"name": f"{session.source}-{session.target}", **table.about, "bytes": size, "file": str(path)})
        print(
            f"{rows[-1]['name']}: {table.about['tokens']} tokens of {table.about['sentences']} translations, {size} bytes, {path}"
        )
        if not options.out:
            _print_use(path)
    write_json(options, rows, provenance(model, threads=options.threads or cores()))
    return 0


def _announce(work: str, folder: str) -> None:
    """Say what a long command begins with, also where no progress bar is shown."""
    print(f"fastdecode: {work}; a stopped run goes on from {folder}", file=sys.stderr)


def _print_use(path: Path) -> None:
    """Say what a table or head at the place where windows look for it changes."""
    print(
        f"fastdecode: windows of this model draft from {path} from now on, in place of what comes with it. Delete the file to go "
        "back; fastdecode speedup measures what it gains, on text that it was not made from.",
        file=sys.stderr,
    )


def _directions(options: argparse.Namespace, model: Any) -> Sequence[tuple[str | None, str | None]]:
    """The direction of --from and --to; without them, and with the corpus's text, all directions of the model."""
    direction = (options.source_language, options.target_language)
    if options.source is None and direction == (None, None) and model.directions:
        return list(model.directions)
    return [direction]


def _draft_head(options: argparse.Namespace) -> int:
    from dataclasses import replace

    import torch

    from fastdecode_lib.drafts.finding import default_path
    from fastdecode_lib.drafts.head import DraftHead
    from fastdecode_lib.measuring.provenance import provenance
    from fastdecode_lib.text.corpus import spread_over
    from fastdecode_lib.training.draft_heads import RECIPE, make_head
    from fastdecode_lib.training.draft_tables import unlabelled
    from fastdecode_lib.translation import Session

    numbers = {name: getattr(options, name) for name in ("sentences", "updates", "vocabulary")}
    if min(numbers.values()) < 1:
        values = ", ".join(f"--{name} {value}" for name, value in numbers.items())
        raise UsageError(f"Sentences, updates and vocabulary must be at least 1: got {values}. Leave them out.")
    check_file("--out", options.out)
    lines = read_lines(options.source) if options.source else None
    model = load(options)
    torch.set_num_threads(options.threads or os.cpu_count() or 1)
    at_low_priority()
    sessions = [
        Session.of(model, a, b, "greedy", max_length=options.max_length) for a, b in _directions(options, model)
    ]
    texts = [
        spread_over(unlabelled(options.data, s.source, s.target) if lines is None else lines, options.sentences)
        for s in sessions
    ]
    sentences = sum(map(len, texts))
    _announce(
        f"translations of {sentences} sentences, then training, {options.updates:,} updates at most", options.folder
    )
    head = make_head(
        sessions,
        texts,
        replace(RECIPE, updates=options.updates, vocabulary=options.vocabulary),
        threads=options.threads,
        seed=options.seed,
        begin_with=None if options.begin_with is None else DraftHead.load(options.begin_with),
        folder=options.folder,
        progress=sys.stderr.isatty(),
    )
    path = Path(options.out) if options.out else default_path(model.checkpoint.fingerprint)
    head.save(path)
    scores = head.about["held_out"].items()
    rows = [{"name": name, "tokens_per_pass": value} for name, value in scores if name != RECIPE.measure]
    for row in rows:
        print(f"{row['name']}: {row['tokens_per_pass']:.2f} tokens a pass on held-out sentences, by the head alone")
    print(
        f"{head.about['tokens']} tokens of {head.about['sentences']} translations, {path.stat().st_size} bytes, {path}"
    )
    if not options.out:
        _print_use(path)
    write_json(options, rows, provenance(model, threads=options.threads or 1, seed=options.seed) | head.about)
    return 0
