"""The command line: one clear message and exit status 2 for anything that cannot be done, never a traceback."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from fastdecode_lib import __version__
from fastdecode_lib.cli import contexts, drafts, evaluate, experiment, folding, listing, train
from fastdecode_lib.cli.common import UsageError, check_file, limits, load, print_table, read_lines

PICTURES = ("svg", "pdf", "png", "gif", "tex", "html", "graphml", "gexf")
"""What ddgviz.save writes of one sentence, besides the trace itself."""
PARTS = 5
"""So many of them, the first, can show a part of a trace."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}. See {self.prog} --help.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0 done, 1 a law is broken, 2 it could not be done, 130 interrupted."""
    try:
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
        print(f"fastdecode: {_one_line(error)}", file=sys.stderr)
        return 2
    except Exception as error:
        if os.environ.get("FASTDECODE_TRACEBACK"):
            raise
        print(
            f"fastdecode: unexpected {type(error).__name__}: {_one_line(error)}. This is a fault of fastdecode; "
            "FASTDECODE_TRACEBACK=1 shows where.",
            file=sys.stderr,
        )
        return 2


def _check_options(options: argparse.Namespace) -> None:
    """Refuse at the door what would fail only after the work is done."""
    given = vars(options)
    cores = os.cpu_count() or 1
    if not 1 <= (1 if given.get("threads") is None else given["threads"]) <= cores:
        raise UsageError(
            f"--threads must be from 1 to {cores}, the cores here: got {given['threads']}. Use --threads 1."
        )
    if (given.get("seed") or 0) < 0:
        raise UsageError(f"--seed must be at least 0, got {given['seed']}. Use --seed 0.")
    if given.get("runs", 1) < 1:
        raise UsageError(f"--runs must be at least 1, got {given['runs']}. Use --runs 5.")
    for kind in PICTURES:
        path = given.get(kind)
        if path and Path(path).suffix.lower() != f".{kind}":
            raise UsageError(f"--{kind} writes a file ending in .{kind}, got {path!r}. Change the one or the other.")
    results = given.get("results")
    if results and not (Path(results).is_dir() and os.access(results, os.W_OK | os.X_OK)) and Path(results).exists():
        raise UsageError(f"--results cannot write there: got {results!r}. Name a folder that can be written to.")
    for kind in ("json", "trace", "vmap", *PICTURES):
        check_file(f"--{kind}", given.get(kind))


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        name = error.filename2 or error.filename
        where = f": {name}" if name else ""
        return f"{error.strerror}{where}. Check the path, the space left and the permissions."
    return " ".join(str(error).split())


# ------------------------------------------------------------------------------------------------------------ parsing


def _parser() -> argparse.ArgumentParser:
    from ddgviz.theme import THEMES

    parser: argparse.ArgumentParser = _Parser(
        prog="fastdecode", description="Faster decoding for neural machine translation, exact and measured."
    )
    parser.add_argument("--version", action="version", version=f"fastdecode {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    model = argparse.ArgumentParser(add_help=False)
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
    numbers = argparse.ArgumentParser(add_help=False)
    numbers.add_argument("--engine", default="auto", help="compiled (CPU kernels), torch or auto (default: auto)")
    numbers.add_argument(
        "--dtype", default="float32", help="of torch: float64, float32, float16 or bfloat16 (default: float32)"
    )
    numbers.add_argument(
        "--precision", default="float32", help="of the compiled engine: float32, int16 or int8 (default: float32)"
    )
    model.add_argument(
        "--threads",
        type=int,
        help="processors (default: 1; of draft-head, and of many sentences on the compiled engine, all)",
    )
    model.add_argument("--max-length", type=int, help="most output tokens (default: the checkpoint's)")

    table = argparse.ArgumentParser(add_help=False)
    table.add_argument("--json", metavar="FILE", help="also write the table to FILE, machine-readable")
    seed = argparse.ArgumentParser(add_help=False)
    seed.add_argument("--seed", type=int, default=0, help="seed of everything random (default: 0)")

    translate = commands.add_parser("translate", parents=[model, numbers, table], help="translate a sentence or a file")
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

    compare = commands.add_parser(
        "compare", parents=[model, numbers, table, seed], help="compare decoders on the same sentences"
    )
    compare.add_argument("--source", metavar="FILE", required=True, help="one sentence a line")
    compare.add_argument("--reference", metavar="FILE", help="one reference a line, for BLEU and chrF")
    compare.add_argument("--decoder", action="append", metavar="NAME:key=value,...", help="repeatable")
    compare.add_argument("--projection", action="append", metavar="NAME:key=value", help="repeatable (default: exact)")
    compare.add_argument("--baseline", action="append", default=[], choices=("hf", "ctranslate2"), help="repeatable")
    compare.add_argument("--runs", type=int, default=5, help="timed rounds (default: 5)")
    compare.set_defaults(run=_compare)

    tune = commands.add_parser(
        "tune", parents=[model, numbers, table, seed], help="find the width of the window that pays on this machine"
    )
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

    evaluate.add_commands(commands, [model, numbers, table])
    drafts.add_commands(commands, [model, numbers, table], seed)
    contexts.add_commands(commands, [model, numbers, table, seed])
    folding.add_commands(commands)

    listing.add_commands(commands)
    train.add_commands(commands)
    experiment.add_commands(commands, [numbers, table, seed])

    check = commands.add_parser(
        "check", parents=[table, seed], help="show this machine and run the laws on random cases"
    )
    check.add_argument("--cases", type=int, default=50, help="random cases per law (default: 50)")
    check.add_argument(
        "--beam", action="store_true", help="also compare beam search with Hugging Face's on the test split"
    )
    check.add_argument("--data", metavar="DIR", help="the corpus folder for --beam (default: FASTDECODE_DATA)")
    check.set_defaults(run=_check)

    figures = commands.add_parser(
        "figures", help="write every figure in every form, and every table, of the results that come with fastdecode"
    )
    figures.add_argument("--out", default="build/figures", metavar="DIR", help="default: build/figures")
    figures.add_argument("--scale", default="laptop", help="tiny, laptop or paper (default: laptop)")
    figures.add_argument("--make", action="store_true", help="make what has no result yet, too: long runs")
    figures.set_defaults(run=_figures)
    return parser


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


# ----------------------------------------------------------------------------------------------------------- commands


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
        model,
        options.source_language,
        options.target_language,
        options.decoder,
        options.projection,
        **limits(options),
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
        found = session.decode(texts, threads=batches, progress=progress, keep_done=True)
        tokens = [h.tokens for h in found]
        left = sum(h.stop == "interrupted" for h in found)
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


def _compare(options: argparse.Namespace) -> int:
    from fastdecode_lib import registry
    from fastdecode_lib.measuring.comparing import compare
    from fastdecode_lib.store import write_table

    sentences = read_lines(options.source)
    references = read_lines(options.reference) if options.reference else None
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
    from fastdecode_lib.papers import start_here
    from fastdecode_lib.text.corpus import spread_over
    from fastdecode_lib.text.sentences import own_pairs

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
    sentences = given if given is not None else [english for english, _ in start_here.SENTENCES]
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


def _check(options: argparse.Namespace) -> int:
    from tqdm.auto import tqdm

    from fastdecode_lib import registry
    from fastdecode_lib.laws import generate
    from fastdecode_lib.laws.cases import NUMBERS
    from fastdecode_lib.laws.decoders import DECODER_LAWS
    from fastdecode_lib.laws.models import GROUP_LAWS, MODEL_LAWS
    from fastdecode_lib.laws.running import run_laws
    from fastdecode_lib.measuring.provenance import provenance
    from fastdecode_lib.store import write_table

    if options.cases < 1:
        raise UsageError(f"--cases must be at least 1, got {options.cases}. Use --cases 50.")
    for line in _machine():
        print(line)
    total = len(NUMBERS) * (len(MODEL_LAWS) + len(GROUP_LAWS) + len(DECODER_LAWS) * len(registry.DECODERS)) + 1
    rows = []
    inside_generate = map(generate.run_law, [options.cases], [options.seed])
    laws = chain(run_laws(options.cases, options.seed), inside_generate)
    for row in tqdm(laws, total=total, desc="laws", disable=not sys.stderr.isatty()):
        rows.append(row)
        if row["broken"]:
            print(f"BROKEN {row['name']}: {row['broken']} of {row['cases']} cases. {row['first']}")
    if options.beam:
        rows += _check_beam(options)
    broken = [row for row in rows if row["broken"]]
    print(f"{len(rows) - len(broken)} of {len(rows)} laws hold, {options.cases} random cases each")
    if options.json:
        write_table(options.json, rows, provenance(seed=options.seed))
    return 1 if broken else 0


def _check_beam(options: argparse.Namespace) -> list[dict[str, Any]]:
    from fastdecode_lib.laws.decoders import beam_equals_huggingface
    from fastdecode_lib.loading import load
    from fastdecode_lib.text.corpus import Tatoeba, corpus_folder

    corpus = Tatoeba(corpus_folder(options.data))
    model = load("tatoeba-small", dtype="float64")
    rows = []
    for source, target in model.directions:
        sentences = [a for a, _ in corpus.pairs("test", source, target)]
        different = beam_equals_huggingface(model, sentences, source, target)
        first = f"sentence {different[0] + 1}" if different else ""
        rows.append(
            {
                "name": f"beam_equals_huggingface/{source}-{target}",
                "cases": len(sentences),
                "broken": len(different),
                "first": first,
            }
        )
        print(
            f"beam 5 against Hugging Face, {source}-{target}: {len(sentences) - len(different)} of {len(sentences)} equal"
        )
    return rows


def _machine() -> list[str]:
    import shutil
    import subprocess

    import torch

    from ddgviz.browser import find_browser
    from fastdecode_lib.measuring.provenance import cpu_features, provenance

    about = provenance()
    try:
        browser = find_browser()
    except ValueError:
        browser = "none: PDF and PNG need Chromium (install it, or set BROWSER_PATH)"
    fonts = "unknown (fc-list is not installed)"
    if shutil.which("fc-list"):
        listed = subprocess.run(["fc-list", ":", "family"], capture_output=True, text=True, check=False).stdout
        found = [name for name in ("Noto Sans", "Noto Sans CJK", "Noto Color Emoji") if name in listed]
        fonts = ", ".join(found) or "no Noto fonts (install fonts-noto-core and fonts-noto-cjk)"
    cuda = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    return [
        f"device    {about['cpu']}, {about['cores']} cores; CUDA: {cuda}",
        f"features  {', '.join(cpu_features()) or 'none known'}",
        f"versions  {', '.join(f'{name} {v}' for name, v in about['versions'].items())}, Python {about['python']}",
        f"browser   {browser}",
        f"fonts     {fonts}",
    ]


def _figures(options: argparse.Namespace) -> int:
    import ddgviz
    from ddgviz.figures import frontier
    from fastdecode_lib.loading import load
    from fastdecode_lib.papers import start_here
    from fastdecode_lib.papers.catalogue import experiments
    from fastdecode_lib.papers.experiment import Scale
    from fastdecode_lib.papers.outcomes import NoResult
    from fastdecode_lib.runners import DECODERS
    from fastdecode_lib.store import write_table
    from fastdecode_lib.text.corpus import CorpusNotFound
    from fastdecode_lib.translation import translate

    scale = Scale.of(options.scale)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    traces: dict[str, Any] = {}
    browser, known = _has_browser(), experiments()
    for number, (name, e) in enumerate(known.items(), 1):
        print(f"fastdecode: {number} of {len(known)}, {name}", file=sys.stderr, flush=True)
        figures: dict[Path, Any] = {}
        try:
            frame = _result(e, scale, make=options.make or scale is Scale.TINY)
        except (CorpusNotFound, NoResult) as error:
            print(f"fastdecode: {name} is left out. {_one_line(error)}", file=sys.stderr)
            continue
        stem = folder / f"{name}.{scale}"
        _write_tables(frame, stem)
        write_table(f"{stem}.json", frame.to_dict("records"), frame.attrs.get("provenance", {}) | {"scale": str(scale)})
        print(f"{stem}.csv .tex .json")
        traces |= {f"{name}.{label}": trace for label, trace in frame.attrs.get("traces", {}).items()}
        if e.chart and (drawn := _curves(frame, e.chart)) is not None:
            figures[stem] = drawn
        if e.compares:
            figures[stem] = ddgviz.speed_accuracy(frame)
            if frame.get("bleu") is not None and frame["bleu"].notna().any():
                figures[stem.with_name(f"{stem.name}.frontier")] = frontier(frame)
        for path, figure in figures.items():
            try:
                paths = ddgviz.save_chart(figure, path)
            except ValueError:
                if browser:
                    raise
                paths = [Path(f"{path}.html")]
            print(*paths, sep="\n")
    model = load()
    sentence = start_here.SENTENCES[-1][0]
    for decoder in DECODERS:
        found = translate(model, sentence, source="en", target="de", decoder=decoder, verify=True)
        traces[f"passes.{decoder.partition(':')[0]}"] = found.trace
    for label, trace in traces.items():
        for suffix in ("svg", "html", "tex", "json", *(("pdf", "png") if browser else ())):
            print(ddgviz.save(trace, folder / f"{label}.{suffix}"))
    return 0


def _has_browser() -> bool:
    from ddgviz.browser import find_browser

    try:
        find_browser()
    except ValueError as error:
        print(f"fastdecode: PDF and PNG are left out. {_one_line(error)}", file=sys.stderr)
        return False
    return True


def _result(e: Any, scale: Any, *, make: bool) -> Any:
    """The table of an experiment: the one that comes with fastdecode, or else, if it is short or so wished, made now."""
    from fastdecode_lib.papers.outcomes import NoResult, committed

    try:
        return committed(e.name, scale)
    except NoResult:
        if not (make or e.live):
            raise
    if not e.live:
        print(f"fastdecode: making {e.name} at scale {scale}, which has not been made before", file=sys.stderr)
    return e.run(scale, **e.accepted({"progress": sys.stderr.isatty()}))


def _curves(frame: Any, chart: Any) -> Any:
    """The curves of a table, as the experiment says; None where there is nothing but gaps to draw."""
    from dataclasses import asdict

    import ddgviz

    settings = asdict(chart)
    if "kind" in frame:
        frame = frame[frame["kind"] != "gap"]
    for column, value in settings.pop("where").items():
        frame = frame[frame[column] == value]
    return ddgviz.curves(frame, **settings) if len(frame) else None


def _write_tables(frame: Any, stem: Path) -> None:
    """A table as CSV and as LaTeX."""
    from fastdecode_lib.store import atomic_file

    with atomic_file(f"{stem}.csv") as temporary:
        frame.to_csv(temporary, index=False)
    with atomic_file(f"{stem}.tex") as temporary:
        frame.to_latex(temporary, index=False, float_format="%.3f", escape=True)
