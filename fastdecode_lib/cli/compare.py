"""The commands that compare decoders on the same sentences, and find the width of the window that pays."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from fastdecode_lib.cli.common import UsageError, limits, load, print_table, read_lines


def add_commands(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Add ``compare`` and ``tune``."""
    compare = commands.add_parser("compare", parents=parents, help="compare decoders on the same sentences")
    compare.add_argument("--source", metavar="FILE", required=True, help="one sentence a line")
    compare.add_argument("--reference", metavar="FILE", help="one reference a line, for BLEU and chrF")
    compare.add_argument("--decoder", action="append", metavar="NAME:key=value,...", help="repeatable")
    compare.add_argument("--projection", action="append", metavar="NAME:key=value", help="repeatable (default: exact)")
    compare.add_argument("--baseline", action="append", default=[], choices=("hf", "ctranslate2"), help="repeatable")
    compare.add_argument("--runs", type=int, default=5, help="timed rounds (default: 5)")
    compare.set_defaults(run=_compare)

    tune = commands.add_parser("tune", parents=parents, help="find the width of the window that pays on this machine")
    tune.add_argument(
        "--source", metavar="FILE", help="text like yours, one sentence a line (default: some of our own)"
    )
    tune.add_argument(
        "--draft",
        default="auto",
        help="such as ngram+lexicon+head (default: auto, without a head; --combinations tries both)",
    )
    tune.add_argument("--runs", type=int, default=5, help="timed rounds (default: 5)")
    tune.add_argument(
        "--combinations",
        action="store_true",
        help="choose among windows, projections and precisions: the fastest without loss, and with next to none",
    )
    tune.add_argument("--near", type=float, help="with it: share of outputs that must stay the same (default: 0.95)")
    tune.set_defaults(run=_tune)


def _compare(options: argparse.Namespace) -> int:
    from fastdecode_lib import registry
    from fastdecode_lib.measuring.comparing import compare
    from fastdecode_lib.store import write_table

    sentences = read_lines(options.source)
    references = read_lines(options.reference) if options.reference else None
    rounds = f"{options.runs} rounds after one to warm up"
    print(f"fastdecode: measuring {len(sentences)} sentences, {rounds}; the table follows", file=sys.stderr, flush=True)
    model = load(options)
    frame = compare(
        model,
        sentences,
        decoders=options.decoder,
        projections=options.projection or ("exact",),
        baselines=options.baseline,
        references=references,
        **_measuring(options),
    )
    rows = frame.to_dict("records")
    print_table(rows)
    about = frame.attrs["provenance"]
    interval = " with a 95% bootstrap interval" if frame["speedup_low"].notna().any() else ""
    theirs = ", hf in float32" if "hf" in options.baseline and about["dtype"] in ("int16", "int8") else ""
    plainest = registry.usual(model.network)
    print(
        f"\n{about['sentences']} sentences, {about['runs']} rounds, {about['device']}, {about['threads']} thread(s), "
        f"{about['dtype']}{theirs}; speedup over our {'greedy loop' if plainest == 'greedy' else plainest} with the exact "
        f"projection{interval}"
    )
    if options.json:
        write_table(options.json, rows, about | {"raw_seconds": frame.attrs["seconds"]})
    return 0


def _tune(options: argparse.Namespace) -> int:
    from fastdecode_lib.measuring.widths import tune
    from fastdecode_lib.text.corpus import spread_over
    from fastdecode_lib.text.sentences import SENTENCES, own_pairs

    if options.source is None and options.source_language not in (None, "en"):
        raise UsageError(
            f"Our own sentences are English: got --from {options.source_language}. Give yours with --source FILE."
        )
    given = read_lines(options.source) if options.source else None
    if options.combinations:
        own = [english for english, _ in own_pairs("en", "de")]
        return _choose(options, given if given is not None else spread_over(own, OWN))
    if options.near is not None:
        raise UsageError("--near belongs to --combinations: got it alone. Leave it out, or add --combinations.")
    sentences = given if given is not None else [english for english, _ in SENTENCES]
    found = tune(load(options), sentences, draft=options.draft, **_measuring(options))
    return _tell(options, found, {"decoder": found.decoder})


OWN = 40
"""Sentences of our own that combinations are chosen by where none are given."""


def _choose(options: argparse.Namespace, sentences: Sequence[str]) -> int:
    from fastdecode_lib.loading import PRECISIONS
    from fastdecode_lib.measuring.combinations import choose

    if (options.engine, options.precision, options.dtype, options.draft) != ("auto", "float32", "float32", "auto"):
        raise UsageError(
            "--combinations tries every precision of the compiled engine: got another engine, number or draft."
        )
    models = {}
    for precision in PRECISIONS:
        models[precision] = load(argparse.Namespace(**vars(options) | {"precision": precision, "engine": "compiled"}))
    found = choose(models, sentences, near=0.95 if options.near is None else options.near, **_measuring(options))
    return _tell(options, found, {"lossless": found.lossless, "near": found.near})


def _measuring(options: argparse.Namespace) -> dict[str, Any]:
    """Direction, limits and rounds, as what measures takes them."""
    return {
        "source": options.source_language,
        "target": options.target_language,
        "threads": options.threads or 1,
        "runs": options.runs,
        "seed": options.seed,
        "progress": sys.stderr.isatty(),
        **limits(options),
    }


def _tell(options: argparse.Namespace, found: Any, chosen: dict[str, Any]) -> int:
    """Print what was tried and what came of it; write it where that was asked for."""
    from fastdecode_lib.store import write_table

    rows = found.table.to_dict("records")
    print_table(rows)
    print(f"\n{found}")
    if options.json:
        write_table(options.json, rows, found.provenance | chosen)
    return 0
