"""Gain of `hf.window` inside Hugging Face's `generate`, by batch size: with the model's drafts, and without drafts."""

import warnings
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.core import Source
from fastdecode_lib.drafts.finding import measured_choice
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.baselines import until_end
from fastdecode_lib.measuring.comparing import parts_of, rows_of
from fastdecode_lib.measuring.referee import System, ratio_of
from fastdecode_lib.papers.combinations.drafts import BASE, DIRECTION, texts_of
from fastdecode_lib.papers.run import CorpusRun, Scale, experiment, table_of

BATCHES = {Scale.TINY: (1, 2), Scale.LAPTOP: (1, 8), Scale.PAPER: (1, 2, 4, 8, 16, 32)}
SETS = ("single", "joined")
"""Kinds of text; a tiny run has the first."""
SENTENCES = {Scale.TINY: 3, Scale.LAPTOP: 40, Scale.PAPER: 200}
ROUNDS = {Scale.TINY: 2, Scale.LAPTOP: 11, Scale.PAPER: 11}


@experiment
def in_generate(run: CorpusRun) -> pd.DataFrame:
    """Speed of ``custom_generate`` over `generate` of transformers alone, in float32, by kind of text and batch size.

    ``without`` is greedy decoding on our kernels, ``speedup`` is ``hf.window()`` with its automatic choice, ``head`` a window of 3
    with the draft table and head. ``identical`` is the share of all their outputs that are `generate`'s own.
    """
    from transformers import AutoModelForSeq2SeqLM

    from fastdecode_lib import hf

    model = load(BASE, device="cpu", engine="compiled")
    generators: dict[str, Any] = {
        "generate": None,
        "without": hf.window(1, "pad"),
        "speedup": hf.window(),
        "head": hf.window(3, "ngram+lexicon+head"),
    }
    module = AutoModelForSeq2SeqLM.from_pretrained(model.checkpoint.folder).eval()
    texts = texts_of(run, SENTENCES[run.scale], *SETS[:1] if run.tiny else SETS)
    rows: list[dict[str, Any]] = []
    for set_name, batch in run.bar([*product(texts, BATCHES[run.scale])], unit="cell"):
        systems = [generate_system(name, module, model, custom, DIRECTION[1]) for name, custom in generators.items()]
        parts = parts_of(model.encode(texts[set_name], *DIRECTION), batch=batch)
        plain, *timings = run.measure(systems, parts, runs=ROUNDS[run.scale])
        identical = [a == b for m in timings for a, b in zip(rows_of(plain.outputs), rows_of(m.outputs), strict=True)]
        ratios = [ratio_of(m.name, plain.seconds, m.seconds) for m in timings]
        rows.append(
            {
                "name": f"{set_name}, batch {batch}",
                "set": set_name,
                "batch": batch,
                "sentences": len(texts[set_name]),
                **{key: value for ratio in ratios for key, value in ratio.items()},
                "identical": float(np.mean(identical)),
            }
        )
    fingerprint = model.checkpoint.fingerprint
    choices = {str(batch): measured_choice(fingerprint, DIRECTION, batch) for batch in BATCHES[run.scale]}
    return table_of(rows, run, direction="-".join(DIRECTION), fingerprints={BASE: fingerprint}, choices=choices)


def generate_system(
    name: str, module: Any, model: TranslationModel, custom_generate: Any, target: str | None
) -> System:
    """A transformers module's greedy `generate` on sources as batches; its output is the tokens of each row."""
    import torch

    constraints = model.constraints(target)
    prefix = len(constraints.prefix)

    def decode(source: Source) -> tuple[tuple[int, ...], ...]:
        longest = source.lengths.max()
        mask = torch.from_numpy((np.arange(longest) < source.lengths[:, None]).astype(np.int64))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of scores within rounding: outputs are compared
            generated = module.generate(
                input_ids=torch.from_numpy(source.ids[:, :longest]),
                attention_mask=mask,
                num_beams=1,
                do_sample=False,
                custom_generate=custom_generate,
            )
        return tuple(until_end(tokens, constraints) for tokens in generated[:, prefix:].tolist())

    return System(name, decode)
