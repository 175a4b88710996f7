"""The functional transformer against the Hugging Face classes: tiny random models of each family, float64, offline."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.checkpoints.transformers_private import TESTED
from fastdecode_lib.core import Constraints, Source, drain
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.models.transformer import Transformer
from fastdecode_lib.projections.exact_torch import Exact

SIZES = {
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 3, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20, "decoder_ffn_dim": 24, "max_position_embeddings": 48, "init_std": 0.6,
}  # fmt: skip
T5 = {  # sources and targets are longer than the farthest distance
    "d_kv": 5, "d_ff": 20, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 2, "layer_norm_epsilon": 1e-3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 7,
}  # fmt: skip
UNTIED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
CLASSES = {
    "marian": (MarianConfig, MarianMTModel, {"scale_embedding": True, "activation_function": "swish"}),
    "marian-untied": (
        MarianConfig,
        MarianMTModel,
        {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31, "activation_function": "gelu"},
    ),
    "mbart": (MBartConfig, MBartForConditionalGeneration, {"scale_embedding": True}),
    "m2m_100": (M2M100Config, M2M100ForConditionalGeneration, {"scale_embedding": True}),
    "t5": (T5Config, T5ForConditionalGeneration, T5),
    "t5-untied": (T5Config, T5ForConditionalGeneration, T5 | UNTIED),
    "mt5-untied": (MT5Config, MT5ForConditionalGeneration, T5 | UNTIED),
    "mt5": (MT5Config, MT5ForConditionalGeneration, T5 | {"feed_forward_proj": "gated-silu"}),
}
PADDING, END, FORCED = 1, 2, 5
OLDEST = transformers.__version__ == TESTED[0]
"""There T5's softmax is float32 in every precision, and the head stands for embeddings that are missing."""


def pair(name: str, seed: int, folder: Path):
    """A Hugging Face module and our transformer, made from its saved directory."""
    config_class, model_class, extra = CLASSES[name]
    torch.manual_seed(seed)
    config = config_class(
        vocab_size=29,
        d_model=12,
        pad_token_id=PADDING,
        eos_token_id=END,
        decoder_start_token_id=END,
        forced_eos_token_id=END,
        **({} if "d_kv" in extra else SIZES),
        **extra,
    )
    module = model_class(config).double().eval()
    if name.endswith("5-untied"):  # transformers ties them in a new module, whatever the settings say
        module.lm_head.weight = torch.nn.Parameter(torch.empty(29, 12).double())
    with torch.no_grad():  # weights large enough that a token depends on its whole prefix and on the source
        for tensor_name, parameter in [*module.named_parameters(), *module.named_buffers()]:
            if "embed_positions" not in tensor_name or parameter.requires_grad:
                parameter.normal_(std=0.7).add_(1.0 if tensor_name.endswith("norm.weight") else 0.0)
    module.save_pretrained(folder)
    checkpoint = find_checkpoint(folder)
    return module, Transformer(checkpoint.architecture, checkpoint.tensors(), dtype=torch.float64)


def batch(rows: int, seed: int) -> tuple[Source, torch.Tensor]:
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 12, rows)
    ids = random.integers(6, 29, (rows, lengths.max()))
    mask = np.arange(lengths.max()) < lengths[:, None]
    return Source(np.where(mask, ids, PADDING), lengths), torch.from_numpy(mask).long()


def logits(model: Transformer, hidden: torch.Tensor) -> torch.Tensor:
    (output,) = model.outputs
    return hidden @ output.weight.T + (0 if output.bias is None else output.bias)


@pytest.mark.parametrize("name", CLASSES)
def test_logits(name, tmp_path):
    module, model = pair(name, 0, tmp_path)
    source, mask = batch(4, 0)
    tokens = np.random.default_rng(1).integers(6, model.outputs[0].vocabulary, (4, 9))
    with torch.no_grad():
        expected = module(
            input_ids=torch.from_numpy(source.ids), attention_mask=mask, decoder_input_ids=torch.from_numpy(tokens)
        ).logits
    state = model.start(model.encode(source), tokens[:, :1])
    found = logits(model, model.step(state, tokens))
    assert (found - expected).abs().max() < (1e-3 if OLDEST and "t5" in name else 1e-9)


@pytest.mark.parametrize("forced_language", [False, True])
@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("name", CLASSES)
def test_generate(name, beams, forced_language, tmp_path):
    """Token for token over batches, for several models, with banned padding and the end forced at the limit."""
    outputs = set()
    for seed in range(10):
        module, model = pair(name, seed, tmp_path / str(seed))
        outputs |= check_generate(module, model, beams, forced_language, seed)
    assert len(outputs) >= 10


def check_generate(module, model, beams: int, forced_language: bool, seed: int) -> set[tuple[int, ...]]:
    source, mask = batch(8, seed)
    limit = 14
    prefix = (END, FORCED) if forced_language else (END,)
    # Some versions count the beams' tokens by this, whose right value is the source's.
    module.config.vocab_size = model.outputs[0].vocabulary
    with torch.no_grad():
        expected = module.generate(
            input_ids=torch.from_numpy(source.ids),
            attention_mask=mask,
            num_beams=beams,
            do_sample=False,
            length_penalty=1.0,
            early_stopping=False,
            max_length=limit + len(prefix),
            bad_words_ids=[[PADDING]],
            forced_eos_token_id=END,
            forced_bos_token_id=FORCED if forced_language else None,
        )[:, len(prefix) :]
    constraints = Constraints(prefix, (END,), limit, padding=PADDING, banned=(PADDING,), forced_end=True)
    decoder = Greedy() if beams == 1 else Beam(beams)
    found = drain(decoder.iterate(model, Exact.of(model), source, constraints))
    for row, hypothesis in enumerate(found):
        length = len(hypothesis.tokens)
        assert list(hypothesis.tokens) == expected[row, :length].tolist(), (seed, row)
        assert (expected[row, length:] == PADDING).all()
    return {h.tokens for h in found}
