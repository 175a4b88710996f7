"""Times of our engines, CTranslate2 and Hugging Face on this processor: a step, a pass, many sentences, a start.

And the speed of Hugging Face's `generate` with `hf.window()`, without arguments, by batch size.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.report import Row, command_of, options_of, report
from fastdecode_lib.measuring import comparing
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import measure, ratio_of
from fastdecode_lib.papers.combinations.in_generate import generate_system
from fastdecode_lib.papers.run import CorpusRun, Scale
from fastdecode_lib.papers.sharp_models.engines import (
    FULL,
    QUICK,
    SIZES,
    SMALL,
    direction_of,
    pass_costs,
    start_up,
    steps,
    throughput,
    throughput_sentences,
)
from fastdecode_lib.store import write_table

if TYPE_CHECKING:
    import pandas as pd

    from fastdecode_lib.loading import TranslationModel

GENERATE_BATCHES, GENERATED = (1, 8, 32), 64
"""Batch sizes within `generate`, and the number of sentences."""


def rows_of(frames: Mapping[str, "pd.DataFrame"]) -> Iterator[Row]:
    """Times of every system, and their ratio to the compiled engine's in the same precision."""
    for row in frames["steps"].to_dict("records"):
        seconds = frames["steps"].attrs["provenance"]["seconds"][row["geometry"]][row["system"]]
        yield Row.of_samples(row["name"], 1000 * np.array(seconds) / row["steps"], "ms a step")
        yield _ratio(row | {"name": f"{row['name']} / compiled"})
    for row in frames["throughput"].to_dict("records"):
        provenance = frames["throughput"].attrs["provenance"]
        name = f"many sentences, {row['name']}"
        rates = provenance["sentences"] / np.array(provenance["seconds"][row["name"]])
        yield Row.of_samples(name, rates, "sentences a second", f"batches of {row['batch']}, two threads")
        yield _ratio(row | {"name": f"{name} / compiled"})
    for row in frames["pass_costs"].to_dict("records"):
        name = f"{row['name']}, pass of {row['width']}"
        yield Row(name, row["cost"], "passes of 1", row["cost_low"], row["cost_high"])
    for name, seconds in frames["start_up"].attrs["provenance"]["seconds"].items():
        yield Row.of_samples(name, seconds, "seconds")


def _ratio(row: Mapping[Any, Any], unit: str = "times as long", note: str = "") -> Row:
    return Row(row["name"], row["ratio"], unit, row["ratio_low"], row["ratio_high"], note)


def over_generate(model: "TranslationModel", texts: Sequence[str], runs: int, seed: int) -> Iterator[Row]:
    """Speed of `generate` with ``custom_generate=hf.window()`` over `generate` alone, in turn, on the same inputs."""
    from transformers import AutoModelForSeq2SeqLM

    from fastdecode_lib import hf

    module = AutoModelForSeq2SeqLM.from_pretrained(model.checkpoint.folder, use_safetensors=True).eval()
    source, target = direction_of(model)
    customs = {"generate": None, "hf.window()": hf.window()}
    systems = [generate_system(name, module, model, custom, target) for name, custom in customs.items()]
    for batch in GENERATE_BATCHES:
        parts = comparing.parts_of(model.encode(texts, source, target), batch=batch)
        plain, window = measure(systems, parts, runs=runs, seed=seed)
        ratio = ratio_of("ratio", plain.seconds, window.seconds)
        note = f"{same_share(*(comparing.rows_of(m.outputs) for m in (window, plain))):.0%} same outputs"
        yield _ratio(ratio | {"name": f"hf.window(), batches of {batch}"}, "times generate", note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    from fastdecode_lib.loading import load

    parser = options_of("cpu", __doc__)
    parser.add_argument("--model", default=SMALL, help=f"instead of {SMALL}: a Marian model on a disk")
    parser.add_argument("--folder", metavar="DIR", default="build/bench", help="where the random model is kept")
    parser.add_argument("--results", metavar="DIR", help="also write each table there, as `fastdecode experiment` does")
    options = parser.parse_args(arguments)
    if options.quick and options.results:
        parser.error("a quick run is not for --results: got both. Leave out --quick.")
    scale = Scale.TINY if options.tiny else Scale.LAPTOP
    size = SIZES[scale] if options.tiny else QUICK if options.quick else FULL
    settings: dict[str, Any] = {"size": size, "progress": sys.stderr.isatty()}
    model_settings = settings | {"model": load(options.model, device="cpu"), "seed": options.seed}
    folder = Path(options.folder)
    frames = {
        "steps": steps(scale, folder=folder, **model_settings),
        "pass_costs": pass_costs(scale, folder=folder, **model_settings),
        "throughput": throughput(scale, **model_settings, data=options.data, threads=2),
        "start_up": start_up(scale, **settings),
    }
    command = command_of("cpu", arguments)
    number, rounds = (8, 1) if options.tiny else (32, 6) if options.quick else (GENERATED, 9)
    texts, _ = throughput_sentences(CorpusRun(scale, data=options.data), number)
    generate_rows = over_generate(model_settings["model"], texts, rounds, options.seed)
    report([*rows_of(frames), *generate_rows], command, options, scale=str(scale))
    for table, frame in frames.items() if options.results else ():
        provenance = frame.attrs["provenance"] | {"command": command, "scale": str(scale)}
        write_table(Path(options.results) / f"sharp_models.{table}.{scale}.json", frame.to_dict("records"), provenance)
    return 0


if __name__ == "__main__":
    sys.exit(main())
