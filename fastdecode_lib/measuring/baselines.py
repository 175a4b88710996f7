"""The systems that speedups are measured against: Hugging Face `generate` and CTranslate2.

Both decode one sentence at a time with explicit settings, because `generate` would otherwise take the beam size and penalties
from the checkpoint.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import numpy as np

from fastdecode_lib.checkpoints.recurrent import RECURRENT
from fastdecode_lib.checkpoints.transformer import OWN
from fastdecode_lib.core import Constraints, Source, optional
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.store import atomic_folder, user_cache

CTRANSLATE2_FAMILIES = ("marian", "mbart", "m2m_100")
"""Families whose tokens are compared with CTranslate2's in tests."""

Decode = Callable[[Source], tuple[int, ...]]
"""Maps the ids of one sentence to the ids of its translation, without the end."""


def baseline(name: str, model: TranslationModel, constraints: Constraints, threads: int) -> Decode:
    """A baseline with the same weights that decodes one sentence at a time.

    It computes in the model's precision; Hugging Face uses float32 for models in int16 or int8.

    Raises
    ------
    ValueError
        If the name is unknown, the package is missing, or the baseline cannot run this model.
    """
    makers = {"hf": _huggingface, "ctranslate2": _ctranslate2}
    if name not in makers:
        raise ValueError(f"Unknown baseline: got {name!r}. Use one of {', '.join(makers)}.")
    if constraints.exact_length is not None:
        raise ValueError(
            f"Baselines cannot decode to an exact length: got exact_length={constraints.exact_length}. Leave out one of the two."
        )
    return makers[name](model, constraints, threads)


def _huggingface(model: TranslationModel, constraints: Constraints, threads: int) -> Decode:
    import torch
    from transformers import AutoModelForSeq2SeqLM

    if model.checkpoint.family in (RECURRENT, OWN):
        raise ValueError(
            f"Hugging Face does not run {model.name}: got a {model.checkpoint.family} model, fastdecode's own. Leave out the "
            "baseline hf."
        )
    dtype = "float32" if model.engine == "compiled" else model.dtype
    with _quiet():
        module = AutoModelForSeq2SeqLM.from_pretrained(
            model.checkpoint.folder, dtype=getattr(torch, dtype), use_safetensors=True, trust_remote_code=False
        )
    module = module.to(model.device).eval()
    prefix = len(constraints.prefix)
    settings = {
        "num_beams": 1,
        "do_sample": False,
        "max_length": constraints.max_length + prefix,
        "min_length": constraints.min_length + prefix if constraints.min_length else 0,
        "bad_words_ids": [[i] for i in constraints.banned] or None,
        "decoder_start_token_id": constraints.prefix[0],
        "forced_bos_token_id": constraints.prefix[1] if prefix > 1 else None,
        "eos_token_id": list(constraints.end),
        "forced_eos_token_id": constraints.end[0] if constraints.forced_end else None,
        "pad_token_id": constraints.padding,
    }

    @torch.inference_mode()
    def decode(source: Source) -> tuple[int, ...]:
        ids = torch.from_numpy(source.ids).to(model.device)
        output = module.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **settings)[0, prefix:].tolist()
        return until_end(output, constraints)

    return decode


def _ctranslate2(model: TranslationModel, constraints: Constraints, threads: int) -> Decode:
    if model.checkpoint.family not in CTRANSLATE2_FAMILIES:
        raise ValueError(
            f"The CTranslate2 baseline is for {', '.join(CTRANSLATE2_FAMILIES)} models, got a {model.checkpoint.family} model. "
            "Leave it out."
        )
    ctranslate2 = optional("ctranslate2", "bench")
    device, _, index = model.device.partition(":")
    if model.dtype not in ctranslate2.get_supported_compute_types(device):
        raise ValueError(
            f"CTranslate2 does not compute in {model.dtype} on this {device}. Use --dtype float32, or leave the baseline out."
        )
    translator = ctranslate2.Translator(
        str(converted(model)),
        device=device,
        device_index=int(index or 0),
        compute_type=model.dtype,
        inter_threads=1,
        intra_threads=threads,
    )
    names = model.tokenizer.source_tokens(range(model.checkpoint.architecture.source_vocabulary))
    ids = {piece: i for i, piece in enumerate(model.tokenizer.pieces(range(model.network.outputs[0].vocabulary)))}
    prefix = model.tokenizer.pieces(constraints.prefix[1:])

    def decode(source: Source) -> tuple[int, ...]:
        tokens = [[names[i] for i in source.ids[0]]]
        result = translator.translate_batch(
            tokens, target_prefix=[prefix] if prefix else None, beam_size=1, **ctranslate2_limits(constraints)
        )[0]
        output = [ids[token] for token in result.hypotheses[0][len(prefix) :]]
        return until_end(output, constraints)

    return decode


def ctranslate2_limits(constraints: Constraints) -> dict[str, int]:
    """Length limits in CTranslate2's counting, which includes a forced language and excludes a forced end."""
    language = len(constraints.prefix) - 1
    return {
        "max_decoding_length": constraints.max_length - constraints.forced_end + language,
        "min_decoding_length": constraints.min_length + language,
    }


def converted(model: TranslationModel, cache: Path | None = None) -> Path:
    """The model in CTranslate2's format, converted once into a cache folder (by default the user's).

    Raises
    ------
    ValueError
        If CTranslate2's converter does not support the model's settings or vocabulary.
    """
    import ctranslate2

    cache = cache or user_cache() / "ctranslate2"
    checkpoint = model.checkpoint
    folder = cache / f"{checkpoint.fingerprint}-{checkpoint.text_fingerprint}-{ctranslate2.__version__}"
    if not (folder / "model.bin").is_file():
        converter = ctranslate2.converters.TransformersConverter(str(checkpoint.folder))
        with atomic_folder(folder) as temporary, _quiet():
            try:
                converter.convert(str(temporary), force=True)
            except OSError:
                raise
            except Exception as error:  # the converter does not check what it reads
                raise ValueError(
                    f"CTranslate2 {ctranslate2.__version__} cannot convert {model.name}: {error!r}. Leave the baseline out."
                ) from error
    return folder


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' progress bars and warnings, which concern no choice of the user."""
    from transformers.utils import logging

    progress_bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if progress_bars:
            logging.enable_progress_bar()


def until_end(tokens: list[int] | np.ndarray, constraints: Constraints) -> tuple[int, ...]:
    """The tokens before the first end of sentence."""
    return tuple(int(token) for token in takewhile(lambda token: token not in constraints.end, tokens))
