"""What `hf.window` gains inside Hugging Face's `generate`, by batch size: with the drafts that come with the model, and without."""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.core import Source
from fastdecode_lib.drafts.finding import measured_choice
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.baselines import until_end
from fastdecode_lib.measuring.comparing import outputs_of
from fastdecode_lib.measuring.referee import System, measure, noisy, ratio_of
from fastdecode_lib.papers.combinations.drafts import BASE, DIRECTION, texts_of
from fastdecode_lib.papers.run import CorpusRun, Scale, experiment
from fastdecode_lib.papers.shared.rows import table_of

BATCHES = {Scale.TINY: (1, 2), Scale.LAPTOP: (1, 8), Scale.PAPER: (1, 2, 4, 8, 16, 32)}
SETS = ("single", "joined")
"""Kinds of text; a tiny run has the first."""
SENTENCES = {Scale.TINY: 3, Scale.LAPTOP: 40, Scale.PAPER: 200}
ROUNDS = {Scale.TINY: 2, Scale.LAPTOP: 11, Scale.PAPER: 11}


@experiment
def in_generate(run: CorpusRun) -> pd.DataFrame:
    """Speed of ``custom_generate`` over `generate` of transformers alone, in float32, by kind of text and batch size.

    ``without`` is greedy decoding on our kernels, ``speedup`` is ``hf.window()`` as it chooses by itself, ``head`` a window of 3
    with the draft head as well. ``identical`` is the share of all their outputs that are `generate`'s own.
    """
    from tqdm.auto import tqdm

    from fastdecode_lib import hf

    model = load(BASE, device="cpu", engine="compiled")
    ways: dict[str, Any] = {
        "without": hf.window(1, "pad"),
        "speedup": hf.window(),
        "head": hf.window(3, "ngram+lexicon+head"),
    }
    module, texts = _module(model), texts_of(run, SENTENCES[run.scale], *SETS[:1] if run.tiny else SETS)
    cells = [(which, batch) for which in texts for batch in BATCHES[run.scale]]
    rows: list[dict[str, Any]] = []
    for which, batch in tqdm(cells, unit="cell", disable=not run.progress):
        systems = [_system(name, module, model, batch, way) for name, way in [("generate", None), *ways.items()]]
        plain, *others = measure(systems, [model.encode(texts[which], *DIRECTION)], runs=ROUNDS[run.scale])
        same = [
            a == b for m in others for a, b in zip(outputs_of(plain.outputs[0]), outputs_of(m.outputs[0]), strict=True)
        ]
        ratios = [ratio_of(name, plain.seconds, m.seconds, run.seed) for name, m in zip(ways, others, strict=True)]
        rows.append(
            {
                "name": f"{which}, batch {batch}",
                "set": which,
                "batch": batch,
                "sentences": len(texts[which]),
                **{key: value for ratio in ratios for key, value in ratio.items()},
                "identical": float(np.mean(same)),
                "noisy": noisy(plain, *others),
            }
        )
    fingerprint = model.checkpoint.fingerprint
    choices = {str(batch): measured_choice(fingerprint, DIRECTION, batch) for batch in BATCHES[run.scale]}
    return table_of(rows, run, direction="-".join(DIRECTION), fingerprints={BASE: fingerprint}, choices=choices)


def _module(model: TranslationModel) -> Any:
    from transformers import AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM.from_pretrained(model.checkpoint.folder).eval()


def _system(name: str, module: Any, model: TranslationModel, batch: int, way: Any) -> System:
    """Decodes all rows of one source in batches, the longest first; its one output has -1 after each row's tokens."""
    import torch

    constraints = model.constraints(DIRECTION[1])
    prefix = len(constraints.prefix)

    def decode(source: Source) -> tuple[int, ...]:
        order = np.argsort(-source.lengths, kind="stable")
        outputs: dict[int, tuple[int, ...]] = {}
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            lengths = source.lengths[chosen]
            ids = torch.from_numpy(source.ids[chosen, : lengths.max()])
            mask = torch.from_numpy((np.arange(lengths.max()) < lengths[:, None]).astype(np.int64))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of scores within rounding: outputs are compared
                found = module.generate(input_ids=ids, attention_mask=mask, num_beams=1, custom_generate=way)
            for row, tokens in zip(chosen.tolist(), found[:, prefix:].tolist(), strict=True):
                outputs[row] = until_end(tokens, constraints)
        return tuple(token for row in sorted(outputs) for token in (*outputs[row], -1))

    return System(name, decode)
