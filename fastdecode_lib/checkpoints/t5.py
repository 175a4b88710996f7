"""T5, mT5 and MADLAD-400: their settings as fields of an `Architecture`, and their names of tensors."""

import re
from collections.abc import Mapping
from typing import Any

from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.checkpoints.shape import CheckpointError

T5 = ("t5", "mt5")
"""Model types with the same shape: T5 (also flan-T5 and MADLAD-400) and mT5."""
SHARED, HEAD = "shared.weight", "lm_head.weight"
EMBEDDINGS = tuple(f"{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
"""A table of distances between source and target in old checkpoints; transformers ignores it, too."""

_SIZES = ("d_model", "vocab_size", "d_kv", "d_ff", "num_layers", "num_heads")
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
    sizes = {name: config[name] for name in _SIZES}
    layers = config.get("num_decoder_layers")
    sizes["num_decoder_layers"] = layers = config["num_layers"] if layers is None else layers
    buckets = sizes["relative_attention_num_buckets"] = config.get("relative_attention_num_buckets", 32)
    distance = sizes["relative_attention_max_distance"] = config.get("relative_attention_max_distance", 128)
    sizes["pad_token_id"] = config.get("pad_token_id", 0)
    least = {"pad_token_id": 0, "relative_attention_num_buckets": 4}
    for name, value in sizes.items():
        if type(value) is not int or value < least.get(name, 1):
            raise _damaged(f"{name} must be a whole number from {least.get(name, 1)} on", value)
    if distance <= buckets // 2:
        raise _damaged(f"relative_attention_max_distance must be more than half of {buckets} buckets", distance)
    epsilon = config.get("layer_norm_epsilon", 1e-6)
    if type(epsilon) is not float or not 0 < epsilon < 1:
        raise _damaged("layer_norm_epsilon must be a number between 0 and 1", epsilon)
    tied = config.get("tie_word_embeddings") is not False
    scaled = original and config.get("scale_decoder_outputs", tied)
    return {
        "source_vocabulary": sizes["vocab_size"],
        "vocabulary": sizes["vocab_size"],
        "width": sizes["d_model"],
        "encoder_layers": sizes["num_layers"],
        "decoder_layers": layers,
        "encoder_heads": sizes["num_heads"],
        "decoder_heads": sizes["num_heads"],
        "encoder_feed_forward": sizes["d_ff"],
        "decoder_feed_forward": sizes["d_ff"],
        "max_positions": private.WITHOUT_LIMIT,
        "activation": activation,
        "scaled_embeddings": False,
        "padding": sizes["pad_token_id"],
        "shared_embeddings": True,
        "tied_output": tied,
        "head_size": sizes["d_kv"],
        "gated": gated,
        "relative_buckets": buckets,
        "relative_distance": distance,
        "epsilon": epsilon,
        "scaled_output": bool(scaled),
    }


def _feed_forward(setting: Any) -> tuple[bool, str]:
    """Whether a feed-forward layer is gated, and its activation; ``"gated-gelu"`` means the tanh form of GELU."""
    gate, _, activation = str(setting).rpartition("-")
    if gate not in ("", "gated"):
        raise _damaged("feed_forward_proj must be ACTIVATION or gated-ACTIVATION", setting)
    return bool(gate), "gelu_new" if setting == "gated-gelu" else activation


def _damaged(requirement: str, got: Any) -> CheckpointError:
    return CheckpointError(f"config.json is damaged: {requirement}, got {got!r}. Copy it again.")


def config(architecture: Any) -> dict[str, Any]:
    """An `Architecture` as settings of a ``config.json``; `settings` reads them back."""
    a, gated = architecture, "gated-" if architecture.gated else ""
    return {
        "model_type": a.family,
        "is_encoder_decoder": True,
        "vocab_size": a.vocabulary,
        "d_model": a.width,
        "d_kv": a.head_size,
        "d_ff": a.decoder_feed_forward,
        "num_layers": a.encoder_layers,
        "num_decoder_layers": a.decoder_layers,
        "num_heads": a.decoder_heads,
        "feed_forward_proj": gated + ("gelu" if gated and a.activation == "gelu_new" else a.activation),
        "relative_attention_num_buckets": a.relative_buckets,
        "relative_attention_max_distance": a.relative_distance,
        "layer_norm_epsilon": a.epsilon,
        "pad_token_id": a.padding,
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
