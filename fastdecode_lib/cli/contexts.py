"""The commands that record contexts and fit screens on them."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastdecode_lib.cli.common import SOURCE, UsageError, load, print_table, read_lines, write_json

KNOBS: dict[str, dict[str, Any]] = {
    "clusters": {"type": int, "help": "clustered: default 50; screened: 100"},
    "top": {"type": int, "help": "best tokens of a context that become active (clustered, screened: default 5)"},
    "budget": {"type": float, "help": "screened: tokens scored on average (default: 300)"},
    "rounds": {"type": int, "help": "screened: rounds of algorithm 1"},
    "reading": {
        "choices": ("literal", "linear"),
        "help": "screened: where samples stand in the loss (default: literal)",
    },
    "skip": {
        "action": "store_true",
        "default": None,
        "help": "screened: the knapsack goes on after the first token that does not fit (default: it stops)",
    },
    "least_count": {
        "type": int,
        "help": "clustered: smallest count among a cluster's best tokens to be active in it (default: 1)",
    },
}
"""Options of ``fit`` that not every projection has; those without a line here are given with ``--set``."""


def add_commands(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Add ``record`` and ``fit`` to the commands; `parents` have the options of every command that loads a model."""
    _add_record(commands, parents)
    _add_fit(commands)


def _add_record(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    record = commands.add_parser(
        "record",
        parents=parents,
        help="record contexts (hidden vectors with their best tokens) to fit vocabulary projections on",
    )
    record.add_argument(*SOURCE, metavar="FILE", help="text in the source language, one sentence a line")
    record.add_argument(
        "--reference", metavar="FILE", help="feed these outputs, one a line, instead of the model's own"
    )
    record.add_argument(
        "--data", metavar="DIR", help="the corpus folder: its training sources (default: FASTDECODE_DATA)"
    )
    record.add_argument(
        "--directions", metavar="PAIR,PAIR", help="with --data, such as en-de,de-en, or all (default: --from and --to)"
    )
    record.add_argument(
        "--decoder", metavar="NAME:key=value,...", help="default: greedy, or the plainest that fits the model"
    )
    record.add_argument("--top", type=int, default=5, help="best tokens of each context (default: 5)")
    record.add_argument("--most", type=int, help="stop at this number of contexts")
    record.add_argument("--float16", action="store_true", help="store hidden vectors in half the space")
    record.add_argument("--verify", action="store_true", help="also check the checksums of what --out has")
    record.add_argument("--out", default="build/contexts", metavar="DIR", help="default: build/contexts")
    record.set_defaults(run=_record)


def _add_fit(commands: Any) -> None:
    fit = commands.add_parser(
        "fit", help="fit clusters and active sets on recorded contexts (Amer et al., Chen et al.)"
    )
    fit.add_argument(
        "method", help="clustered: by k-means (Amer et al.); screened: learned (Chen et al.); or a projection of yours"
    )
    fit.add_argument("--contexts", metavar="DIR", required=True, help="made by fastdecode record")
    fit.add_argument(
        "--out",
        metavar="DIR",
        help="default: beside the weights of your own model, where the projection finds them",
    )
    fit.add_argument(
        "--per",
        choices=("direction", "target", "all"),
        default="direction",
        help="default: a screen for each direction",
    )
    fit.add_argument("--model", default="tatoeba-small", help="model of the contexts (default: tatoeba-small)")
    for name, described in KNOBS.items():
        fit.add_argument(f"--{name.replace('_', '-')}", **described)
    fit.add_argument(
        "--set",
        metavar="key=value,...",
        help="keywords of the projection's fit that have no option here, such as iterations=10",
    )
    fit.add_argument("--always", default="end", help="tokens in every set: end, none, or ids as in 0,5 (default: end)")
    fit.add_argument(
        "--at-least", type=int, default=0, help="smallest size of a set; smaller ones are filled up (default: 0)"
    )
    fit.add_argument(
        "--hold-out", type=float, default=0.05, metavar="SHARE",
        help="sentences to measure precision on, not to fit on; 0 for none (default: 0.05)",
    )  # fmt: skip
    fit.add_argument("--seed", type=int, default=0, help="default: 0")
    fit.set_defaults(run=_fit)


def _record(options: argparse.Namespace) -> int:
    from fastdecode_lib.checkpoints.hub import find_checkpoint
    from fastdecode_lib.checkpoints.language import LANGUAGE
    from fastdecode_lib.contexts.feeding import References, Translations
    from fastdecode_lib.contexts.shards import NOTE
    from fastdecode_lib.measuring.provenance import provenance
    from fastdecode_lib.text.corpus import Tatoeba, corpus_folder

    if options.source and (options.data or options.directions):
        raise UsageError("--source is text of one direction: got --data or --directions with it. Use --from and --to.")
    if options.verify and not Path(options.out, NOTE).is_file():
        raise UsageError(f"--verify checks a recording: got --out {options.out}, which has none. Leave --verify out.")
    if options.reference and not options.source:
        raise UsageError("--reference belongs to the lines of a file: got no --source FILE. Add it.")
    if find_checkpoint(options.model).family == LANGUAGE:
        return _record_language(options)
    model = load(options)
    if model.engine == "compiled" and (options.threads or 1) > 1:
        raise UsageError(
            f"record decodes on one thread: got --threads {options.threads}. Use --workers {options.threads}."
        )
    pairs: Sequence[Any] = model.directions
    if options.directions is None:
        languages = (options.source_language, options.target_language)
        pairs = [model.direction(*languages) if pairs else ("any", "any")]
    elif options.directions != "all":
        named = [name.strip().split("-") for name in options.directions.split(",")]
        if wrong := ["-".join(parts) for parts in named if len(parts) != 2]:
            raise UsageError(f"--directions are pairs as in en-de,de-en: got {wrong[0]!r} in {options.directions!r}.")
        pairs = [model.direction(source, target) for source, target in named]
    inputs: dict[str, Sequence[Any]] = {"-".join(pair): [] for pair in pairs}
    feeder: Any = Translations(model, options.decoder, options.max_length)
    if options.source:
        (direction,) = inputs
        inputs[direction] = read_lines(options.source)
        if options.reference:
            _without_decoding(options, "--reference feeds the model what it should say")
            references = read_lines(options.reference)
            if len(references) != len(inputs[direction]):
                raise UsageError(
                    f"--reference needs a line for each of --source: got {len(references)} for {len(inputs[direction])}. "
                    "Correct the one or the other."
                )
            feeder, inputs[direction] = References(model), list(zip(inputs[direction], references, strict=True))
    else:
        corpus = Tatoeba(corpus_folder(options.data))
        for pair in pairs:
            inputs["-".join(pair)] = list(dict.fromkeys(text for text, _ in corpus.pairs("train", *pair)))
    return _recorded(options, feeder, inputs, provenance(model, threads=options.threads or 1, seed=options.seed))


def _without_decoding(options: argparse.Namespace, reason: str) -> None:
    if options.decoder is not None or options.max_length is not None:
        raise UsageError(f"{reason}, so that nothing is decoded: got --decoder or --max-length. Leave them out.")


def _record_language(options: argparse.Namespace) -> int:
    """Record a language model on a text; each word is predicted from the true words before it."""
    import torch

    from fastdecode_lib.contexts.feeding import language_rows
    from fastdecode_lib.language_model import RECORDED, load_language
    from fastdecode_lib.measuring.provenance import provenance

    if not options.source or options.reference:
        raise UsageError(f"{options.model} is a language model, which reads one text: give --source FILE alone.")
    if options.source_language or options.target_language:
        raise UsageError(f"{options.model} has no languages to choose: got --from or --to. Leave them out.")
    _without_decoding(options, f"{options.model} is fed its text")
    if options.engine not in ("auto", "torch") or options.precision != "float32":
        raise UsageError(
            f"{options.model} runs on torch alone, in float32: got --engine {options.engine} --precision "
            f"{options.precision}. Leave them out."
        )
    torch.set_num_threads(options.threads or 1)
    model = load_language(options.model, device=options.device, dtype=options.dtype)
    rows = model.text.encode(read_lines(options.source))
    record = provenance(threads=options.threads or 1, seed=options.seed)
    return _recorded(options, language_rows(model), {RECORDED: rows}, record)


def _recorded(options: argparse.Namespace, feeder: Any, inputs: dict[str, Sequence[Any]], provenance: Any) -> int:
    from fastdecode_lib.contexts.recording import record

    contexts = record(
        feeder,
        inputs,
        options.out,
        top=options.top,
        most=options.most,
        float16=options.float16,
        seed=options.seed,
        workers=options.workers,
        scheduler=options.scheduler,
        verify=options.verify,
        progress=sys.stderr.isatty(),
    )
    rows = [
        {"name": direction, "sentences": len(sentences), "contexts": len(contexts.where(direction=direction))}
        for direction, sentences in inputs.items()
    ]
    print_table(rows)
    print(
        f"{len(contexts)} contexts in {contexts.folder}; {contexts.left_out} sentence(s) left out: without content, or too long"
    )
    write_json(options, rows, provenance)
    return 0


def _fit(options: argparse.Namespace) -> int:
    from fastdecode_lib import loading
    from fastdecode_lib.checkpoints.hub import find_checkpoint
    from fastdecode_lib.checkpoints.language import LANGUAGE
    from fastdecode_lib.contexts import fitting
    from fastdecode_lib.contexts.shards import Contexts
    from fastdecode_lib.language_model import load_language
    from fastdecode_lib.projections.screens import save_screens
    from fastdecode_lib.store import locked

    if not 0 <= options.hold_out < 1:
        raise UsageError(f"--hold-out is a share from 0 to below 1: got {options.hold_out}. Example: --hold-out 0.05.")
    given = _knobs(options)
    fitting.options_of_fit(options.method, given)  # raises before any work
    model: Any
    if find_checkpoint(options.model).family == LANGUAGE:
        model = load_language(options.model)
        end = model.constraints.end
    else:
        model = loading.load(options.model, device="cpu")
        end = model.constraints().end
    contexts = Contexts.open(options.contexts, verify=True)
    output = model.network.outputs[0]
    contexts.check_model(model.checkpoint.fingerprint, contexts.width, output.vocabulary)
    common = {"at_least": options.at_least, "seed": options.seed, "progress": sys.stderr.isatty()}
    knobs = fitting.options_of_fit(options.method, given, common | {"always": _always(options.always, end)})
    folder = _screens_folder(options, model.checkpoint)
    names = fitting.groups(contexts.directions, options.per)
    fitting.screens_to_keep(folder, options.method, model.checkpoint.fingerprint, names)  # raises before any work
    fitted, held_out = contexts, None
    if options.hold_out and len(contexts) >= fitting.MEASURABLE:
        fitted, held_out = contexts.split(options.hold_out, options.seed)
    screens = fitting.fit_screens(fitted, options.method, per=options.per, bar=sys.stderr.isatty(), **knobs)
    with locked(folder):
        unchanged = fitting.screens_to_keep(folder, options.method, model.checkpoint.fingerprint, names)
        save_screens(unchanged | screens, folder)
    for name, screen in screens.items():
        print(f"{name}: {fitting.summary(screen)}")
        if held_out is not None and len(sample := held_out.where(direction=names[name])):
            print(f"  {fitting.Precision.of(screen, sample).summary(screen)}")
    if options.hold_out and held_out is None:
        print(f"fewer than {fitting.MEASURABLE:,} contexts: none were held out to measure precision on")
    if unchanged:
        print(f"kept as they were: {', '.join(unchanged)}")
    print(f"{folder}; use it: --projection {options.method}" + (f":file={folder}" if options.out else ""))
    return 0


def _knobs(options: argparse.Namespace) -> dict[str, Any]:
    """What was typed of the projection's own options, those of --set too."""
    from fastdecode_lib import registry
    from fastdecode_lib.contexts.fitting import OF_ALL

    given = {name: value for name in KNOBS if (value := getattr(options, name)) is not None}
    typed = registry.parse(f"{options.method}:{options.set}")[1] if options.set else {}
    if own := [name for name in typed if name in (*given, *OF_ALL)]:
        raise UsageError(
            f"--set is for keywords without an option of their own: got {own[0]}={typed[own[0]]}. Use --{own[0].replace('_', '-')}."
        )
    return given | typed


def _screens_folder(options: argparse.Namespace, checkpoint: Any) -> Path:
    """Folder for the screens: --out, or beside the weights of the user's own model."""
    from fastdecode_lib.checkpoints.hub import bundled
    from fastdecode_lib.projections.screens import screens_path
    from fastdecode_lib.store import check_replaceable

    if options.out:
        return check_replaceable(options.out, "screens.json")
    if Path(checkpoint.folder).resolve() in (path.resolve() for path in bundled().values()):
        raise UsageError(
            f"{options.model} comes with fastdecode, and what is beside it stays: got no --out. Name a folder: --out DIR, then "
            f"--projection {options.method}:file=DIR."
        )
    return check_replaceable(screens_path(checkpoint.folder, options.method), "screens.json")


def _always(text: str, end: tuple[int, ...]) -> tuple[int, ...]:
    """The tokens that ``--always`` names."""
    if text in ("end", "none"):
        return end if text == "end" else ()
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise ValueError(f"--always takes end, none or ids: got {text!r}. Example: 0,5.") from None
