"""Times of the engines on this processor, beside CTranslate2 and Hugging Face: a step, a pass, many sentences, a start.

And what `hf.window()`, without arguments, makes of Hugging Face's own `generate`, by the size of the batch.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.report import Row, command_of, options_of, report
from fastdecode_lib.measuring.referee import System, bootstrap_ratio, measure
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
"""Batches within `generate`, and sentences that are decoded in them."""


def rows_of(frames: Mapping[str, "pd.DataFrame"]) -> Iterator[Row]:
    """Times of every system, and their ratio to the compiled engine's in the same precision."""
    for row in frames["steps"].to_dict("records"):
        seconds = frames["steps"].attrs["provenance"]["seconds"][row["geometry"]][row["system"]]
        yield Row.of_samples(row["name"], 1000 * np.array(seconds) / row["steps"], "ms a step", row["note"])
        yield _ratio(row)
    for row in frames["throughput"].to_dict("records"):
        about = frames["throughput"].attrs["provenance"]
        name = f"many sentences, {row['name']}"
        rates = about["sentences"] / np.array(about["seconds"][row["name"]])
        yield Row.of_samples(name, rates, "sentences a second", f"batches of {row['batch']}")
        yield _ratio(row | {"name": name})
    for row in frames["pass_costs"].to_dict("records"):
        name = f"{row['name']}, pass of {row['width']}"
        yield Row(name, row["cost"], "passes of 1", row["cost_low"], row["cost_high"], row["note"])
    for name, seconds in frames["start_up"].attrs["provenance"]["seconds"].items():
        yield Row.of_samples(name, seconds, "seconds")


def _ratio(row: Mapping[str, Any]) -> Row:
    name = f"{row['name']} / compiled"
    return Row(name, row["ratio"], "times as long", row["ratio_low"], row["ratio_high"], row["note"])


def over_generate(model: "TranslationModel", texts: Sequence[str], runs: int, seed: int) -> Iterator[Row]:
    """`generate` with ``custom_generate=hf.window()`` over `generate` alone, in turn, on the same inputs and the same tokens."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    from fastdecode_lib import hf

    module = AutoModelForSeq2SeqLM.from_pretrained(model.checkpoint.folder, use_safetensors=True).eval()
    source, target = direction_of(model)
    for batch in GENERATE_BATCHES:
        inputs: list[Any] = []
        for start in range(0, len(texts), batch):
            encoded = model.encode(texts[start : start + batch], source, target)
            real = np.arange(encoded.ids.shape[1]) < encoded.lengths[:, None]
            ids = np.where(real, encoded.ids, module.config.pad_token_id)
            inputs.append(
                {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(real.astype(np.int64))}
            )

        def decode(one: Any, **custom: Any) -> tuple[int, ...]:
            return tuple(module.generate(**one, num_beams=1, do_sample=False, **custom).flatten().tolist())

        alone = System("generate", decode)
        ours = System("hf.window()", lambda one: decode(one, custom_generate=hf.window()))
        base, own = measure([alone, ours], inputs, runs=runs)
        low, high = bootstrap_ratio(base.seconds, own.seconds, seed)
        ratio = float(np.median(base.seconds) / np.median(own.seconds))
        note = f"{own.agreement(base):.0%} same outputs"
        yield Row(f"hf.window(), batches of {batch}", ratio, "times generate", low, high, note)


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
    shared: dict[str, Any] = {"size": SIZES[scale] if options.tiny else QUICK if options.quick else FULL}
    shared["progress"] = sys.stderr.isatty()
    measured = shared | {"model": load(options.model, device="cpu"), "seed": options.seed}
    folder = Path(options.folder)
    frames = {
        "steps": steps(scale, folder=folder, **measured),
        "pass_costs": pass_costs(scale, folder=folder, **measured),
        "throughput": throughput(scale, **measured, data=options.data, threads=2),
        "start_up": start_up(scale, **shared),
    }
    command = command_of("cpu", arguments)
    texts, _ = throughput_sentences(CorpusRun(scale, data=options.data), GENERATED if not options.tiny else 8)
    within = over_generate(measured["model"], texts, 1 if options.tiny else 9, options.seed)
    report([*rows_of(frames), *within], command, options, scale=str(scale))
    for table, frame in frames.items() if options.results else ():
        about = frame.attrs["provenance"] | {"command": command, "scale": str(scale)}
        write_table(Path(options.results) / f"sharp_models.{table}.{scale}.json", frame.to_dict("records"), about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
