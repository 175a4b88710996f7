"""The command that shows this machine and runs the laws on random cases."""

import argparse
import sys
from itertools import chain
from typing import Any

from fastdecode_lib.cli.common import write_json


def add_commands(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Add ``check``."""
    check = commands.add_parser("check", parents=parents, help="show this machine and run the laws on random cases")
    check.add_argument("--cases", type=int, default=50, help="random cases per law (default: 50)")
    check.add_argument(
        "--beam", action="store_true", help="also compare beam search with Hugging Face's on the test split"
    )
    check.add_argument("--data", metavar="DIR", help="the corpus folder for --beam (default: FASTDECODE_DATA)")
    check.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from tqdm.auto import tqdm

    from fastdecode_lib import registry
    from fastdecode_lib.laws import generate
    from fastdecode_lib.laws.cases import NUMBERS
    from fastdecode_lib.laws.decoders import DECODER_LAWS
    from fastdecode_lib.laws.models import GROUP_LAWS, MODEL_LAWS
    from fastdecode_lib.laws.projections import PROJECTION_LAWS
    from fastdecode_lib.laws.running import run_laws
    from fastdecode_lib.measuring.provenance import provenance

    for line in _machine():
        print(line)
    random_laws = len(NUMBERS) * (len(MODEL_LAWS) + len(GROUP_LAWS) + len(DECODER_LAWS) * len(registry.DECODERS))
    total = random_laws + len(PROJECTION_LAWS) * len(registry.PROJECTIONS) + 1
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
    held = f"{len(rows) - len(broken)} of {len(rows)} laws hold"
    print(f"{held}, {options.cases} random cases each; projections on the bundled model")
    write_json(options, rows, provenance(seed=options.seed))
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

    record = provenance()
    try:
        browser = find_browser()
    except ValueError:
        browser = "none: PDF and PNG need Chromium (install it, or set BROWSER_PATH)"
    fonts = "unknown (fc-list is not installed)"
    if shutil.which("fc-list"):
        listed = subprocess.run(["fc-list", ":", "family"], capture_output=True, text=True, check=False).stdout
        installed = [name for name in ("Noto Sans", "Noto Sans CJK", "Noto Color Emoji") if name in listed]
        fonts = ", ".join(installed) or "no Noto fonts (install fonts-noto-core and fonts-noto-cjk)"
    cuda = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    return [
        f"device    {record['cpu']}, {record['cores']} cores; CUDA: {cuda}",
        f"features  {', '.join(cpu_features()) or 'none known'}",
        f"versions  {', '.join(f'{name} {v}' for name, v in record['versions'].items())}, Python {record['python']}",
        f"browser   {browser}",
        f"fonts     {fonts}",
    ]
