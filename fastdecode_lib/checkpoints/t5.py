"""T5, mT5 and MADLAD-400: their settings as fields of an `Architecture`, and their names of tensors."""

import re
from collections.abc import Mapping
from typing import Any

from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.checkpoints.shape import check_whole, damaged

T5 = ("t5", "mt5")
"""Model types with the same shape: T5 (also flan-T5 and MADLAD-400) and mT5."""
SHARED, HEAD = "shared.weight", "lm_head.weight"
EMBEDDINGS = tuple(f"{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
"""A table of distances between source and target in old checkpoints; transformers ignores it, too."""

_SIZES = {
    "width": "d_model",
    "source_vocabulary": "vocab_size",
    "vocabulary": "vocab_size",
    "head_size": "d_kv",
    "encoder_feed_forward": "d_ff",
    "decoder_feed_forward": "d_ff",
    "encoder_layers": "num_layers",
    "decoder_layers": "num_decoder_layers",
    "encoder_heads": "num_heads",
    "decoder_heads": "num_heads",
    "relative_buckets": "relative_attention_num_buckets",
    "relative_distance": "relative_attention_max_distance",
    "padding": "pad_token_id",
}
"""The setting of each size of an `Architecture` in ``config.json``."""
_USUAL = {
    "num_decoder_layers": None,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "pad_token_id": 0,
}
"""Settings that may be missing; without its own number, the decoder has as many layers as the encoder."""
_ATTENTIONS = {"self_attn": "layer.0.SelfAttention", "encoder_attn": "layer.1.EncDecAttention"}
_PRODUCTS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
_NORMS = {"self_attn_layer_norm": "layer.0.layer_norm", "encoder_attn_layer_norm": "layer.1.layer_norm"}


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an `Architecture`, read from a ``config.json``.

    Raises
    ------
    KeyError
        If a setting is missing.
    CheckpointError
        If a setting is invalid.
    """
    original = config["model_type"] == "t5"
    gated, activation = _feed_forward(config.get("feed_forward_proj", "relu" if original else "gated-gelu"))
    layers = config["num_layers"] if config.get("num_decoder_layers") is None else config["num_decoder_layers"]
    sizes = {name: config[name] if name not in _USUAL else config.get(name, _USUAL[name]) for name in _SIZES.values()}
    sizes["num_decoder_layers"] = layers
    buckets, distance = sizes["relative_attention_num_buckets"], sizes["relative_attention_max_distance"]
    least = {"pad_token_id": 0, "relative_attention_num_buckets": 4}
    for name, value in sizes.items():
        check_whole(name, value, least.get(name, 1))
    if distance <= buckets // 2:
        raise damaged(f"relative_attention_max_distance must be more than half of {buckets} buckets", distance)
    epsilon = config.get("layer_norm_epsilon", 1e-6)
    if type(epsilon) is not float or not 0 < epsilon < 1:
        raise damaged("layer_norm_epsilon must be a number between 0 and 1", epsilon)
    tied = config.get("tie_word_embeddings") is not False
    scaled = original and config.get("scale_decoder_outputs", tied)
    return {
        **{size: sizes[setting] for size, setting in _SIZES.items()},
        "max_positions": private.WITHOUT_LIMIT,
        "activation": activation,
        "scaled_embeddings": False,
        "shared_embeddings": True,
        "tied_output": tied,
        "gated": gated,
        "epsilon": epsilon,
        "scaled_output": bool(scaled),
    }


def _feed_forward(setting: Any) -> tuple[bool, str]:
    """Whether a feed-forward layer is gated, and its activation; ``"gated-gelu"`` means the tanh form of GELU."""
    gate, _, activation = str(setting).rpartition("-")
    if gate not in ("", "gated"):
        raise damaged("feed_forward_proj must be ACTIVATION or gated-ACTIVATION", setting)
    return bool(gate), "gelu_new" if setting == "gated-gelu" else activation


def config(architecture: Any) -> dict[str, Any]:
    """An `Architecture` as settings of a ``config.json``; `settings` reads them back."""
    a, gated = architecture, "gated-" if architecture.gated else ""
    return {
        "model_type": a.family,
        "is_encoder_decoder": True,
        **{setting: getattr(a, size) for size, setting in _SIZES.items()},
        "feed_forward_proj": gated + ("gelu" if gated and a.activation == "gelu_new" else a.activation),
        "layer_norm_epsilon": a.epsilon,
        "tie_word_embeddings": a.tied_output,
        **({"scale_decoder_outputs": a.scaled_output} if a.family == "t5" else {}),
    }


def stored_as(name: str, tied: bool) -> tuple[str, ...]:
    """The names under which a checkpoint may store a tensor of `Architecture.tensors`, its own name first.

    Embeddings are tied as in transformers: its own matrix, else the shared one, else any other stored one.
    """
    encoder, decoder = EMBEDDINGS
    if name == HEAD:
        return (HEAD, SHARED, encoder, decoder) if tied else (HEAD,)
    key = name.removeprefix("model.")
    if key in EMBEDDINGS:
        return tuple(dict.fromkeys((key, SHARED, encoder, decoder, HEAD)))
    layer = re.fullmatch(r"(encoder|decoder)\.layers\.(\d+)\.(\w+)\.?(\w*)\.weight", key)
    if layer is None:
        table = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        return (
            key.replace("relative_positions.weight", table).replace("layer_norm.weight", "final_layer_norm.weight"),
        )
    side, number, part, product = layer.groups()
    last = f"layer.{1 if side == 'encoder' else 2}"
    inner = f"{last}.DenseReluDense"
    parts = {
        **_NORMS,
        "final_layer_norm": f"{last}.layer_norm",
        "fc1": f"{inner}.wi",
        "gate": f"{inner}.wi_0",
        "linear": f"{inner}.wi_1",
        "fc2": f"{inner}.wo",
    }
    path = f"{_ATTENTIONS[part]}.{_PRODUCTS[product]}" if part in _ATTENTIONS else parts[part]
    return (f"{side}.block.{number}.{path}.weight",)
