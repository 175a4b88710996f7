"""The shape of a transformer, read from its settings; one file because both engines know families only by these properties."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastdecode_lib.checkpoints import t5
from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.checkpoints.shape import CheckpointError, check_whole, damaged

FAMILIES = ("marian", "mbart", "m2m_100", *t5.T5)
"""Model types of Hugging Face that the functional engines run."""
OWN = "fastdecode_transformer"
"""The model type of fastdecode's transformers with several tokens a step or masks: Marian's shape, learned decoder positions."""
TRANSFORMERS = (*FAMILIES, OWN)
ORDERS = ("left_to_right", "right_to_left", "both_ends")
"""Orders in which a model of `OWN` generates a sentence; see `decoding.folding`."""
ACTIVATIONS = ("relu", "silu", "swish", "gelu", "gelu_new")

SIZES = {
    "width": "d_model",
    "source_vocabulary": "vocab_size",
    "max_positions": "max_position_embeddings",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "encoder_heads": "encoder_attention_heads",
    "decoder_heads": "decoder_attention_heads",
    "encoder_feed_forward": "encoder_ffn_dim",
    "decoder_feed_forward": "decoder_ffn_dim",
}
"""The setting of each size of an `Architecture` in ``config.json``."""


@dataclass(frozen=True)
class Architecture:
    """The shape of a Marian, mBART, M2M-100 / NLLB, T5 or mT5 transformer, or of fastdecode's own.

    Attributes
    ----------
    family : str
        ``"marian"`` (post-norm, sinusoidal positions), ``"mbart"`` (pre-norm, learned positions, normalised embeddings),
        ``"m2m_100"`` (pre-norm, sinusoidal positions counted from the padding id), ``"t5"`` or ``"mt5"`` (pre-norm, relative
        positions, no biases, unscaled scores) or `OWN` (as Marian, but with learned decoder positions).
    source_vocabulary, vocabulary : int
        Rows of the encoder's embedding and of the decoder's; the latter is V.
    tokens_per_step : int
        More than 1 only for `OWN`.
    order : str
        One of `ORDERS`.
    masked : bool
        Every slot sees all others (Mask-Predict), and a matrix ``length.weight`` scores lengths.
    head_size : int or None
        Size of an attention head; None if the heads divide the width.
    gated : bool
        Feed-forward layers multiply the activation by a second product.
    relative_buckets, relative_distance : int
        Rows of the table of relative positions, and the distance from which on all share the last row.
    epsilon : float
        Constant that norms add to the variance.
    scaled_output : bool
        The decoder's hidden vectors are multiplied by ``width ** -0.5``.
    """

    family: str
    source_vocabulary: int
    vocabulary: int
    width: int
    encoder_layers: int
    decoder_layers: int
    encoder_heads: int
    decoder_heads: int
    encoder_feed_forward: int
    decoder_feed_forward: int
    max_positions: int
    activation: str
    scaled_embeddings: bool
    padding: int
    shared_embeddings: bool
    tied_output: bool
    tokens_per_step: int = 1
    order: str = "left_to_right"
    masked: bool = False
    head_size: int | None = None
    gated: bool = False
    relative_buckets: int = 0
    relative_distance: int = 0
    epsilon: float = 1e-5
    scaled_output: bool = False

    @classmethod
    def of_marian(
        cls, width: int, feed_forward: int, heads: int, layers: tuple[int, int], vocabulary: int, **others: Any
    ) -> "Architecture":
        """Marian's shape: sides that differ only in their `layers`, one embedding for source, target and output."""
        sides = {
            f"{side}_{name}": value
            for side, number in zip(("encoder", "decoder"), layers, strict=True)
            for name, value in (("layers", number), ("heads", heads), ("feed_forward", feed_forward))
        }
        marian = {"activation": "swish", "scaled_embeddings": True, "shared_embeddings": True, "tied_output": True}
        sizes = {"source_vocabulary": vocabulary, "vocabulary": vocabulary, "width": width}
        settings: dict[str, Any] = {"family": "marian", **sizes, **sides, **marian, **others}
        return cls(**settings)

    @property
    def layers(self) -> int:
        """Layers of both sides."""
        return self.encoder_layers + self.decoder_layers

    @property
    def pre_norm(self) -> bool:
        """Whether layers normalise their input (mBART, M2M, T5) rather than their output (Marian)."""
        return self.family in ("mbart", "m2m_100", *t5.T5)

    @property
    def normed_embeddings(self) -> bool:
        """Whether embeddings are normalised (mBART)."""
        return self.family == "mbart"

    @property
    def positions_from_padding(self) -> bool:
        """Whether positions are sinusoids counted from the padding id, where padding has no position (M2M-100)."""
        return self.family == "m2m_100"

    @property
    def learned_positions(self) -> bool:
        """Whether both sides learn positions, in tables whose first two rows are never read (mBART)."""
        return self.family == "mbart"

    @property
    def relative_positions(self) -> bool:
        """Whether attention scores have a bias for the distance of two tokens, and embeddings have no positions (T5)."""
        return self.family in t5.T5

    @property
    def biases(self) -> bool:
        """Whether products and norms have biases; norms without one divide by the root mean square and keep the mean (T5)."""
        return self.family not in t5.T5

    @property
    def output_bias(self) -> bool:
        """Whether logits may have a bias."""
        return self.biases and not self.positions_from_padding

    @property
    def score_scale(self) -> float | None:
        """Factor of attention scores; None for the usual inverse root of the head's size."""
        return 1.0 if self.family in t5.T5 else None

    @property
    def output_scale(self) -> float:
        """Factor of the decoder's last hidden vectors."""
        return float(self.width**-0.5) if self.scaled_output else 1.0

    @property
    def position_offset(self) -> int:
        """The row of the first token in the position table of a transformers module."""
        if self.positions_from_padding:
            return self.padding + 1
        return 2 if self.learned_positions else 0

    @property
    def both_ends(self) -> bool:
        """Whether slots alternate between the left and the right end."""
        return self.order == "both_ends"

    def heads(self, side: str) -> tuple[int, int]:
        """Number and size of a side's attention heads."""
        heads = self.encoder_heads if side == "encoder" else self.decoder_heads
        return heads, self.head_size or self.width // heads

    def first_position(self, side: str) -> int | None:
        """The row of the first token in a side's learned table of positions; None if positions are sinusoids."""
        learned = self.learned_positions or (self.family == OWN and side == "decoder")
        return self.position_offset if learned else None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Architecture":
        """Read a ``config.json``.

        Raises
        ------
        CheckpointError
            If a setting is missing or invalid.
        """
        try:
            return cls._read(config)
        except KeyError as error:
            raise CheckpointError(
                f"config.json lacks the setting {error.args[0]!r} that a {config.get('model_type')} model needs. "
                "Save the model again with transformers' save_pretrained."
            ) from error

    @classmethod
    def _read(cls, config: Mapping[str, Any]) -> "Architecture":
        if config["model_type"] in t5.T5:
            settings = t5.settings(config)
            _check_activation(settings["activation"])
            return cls(family=config["model_type"], **settings)
        activation = config.get("activation_function", "gelu")
        _check_activation(activation)
        for name in SIZES.values():
            check_whole(name, config[name])
        check_whole("pad_token_id", config["pad_token_id"], 0)
        check_whole("decoder_vocab_size", config.get("decoder_vocab_size") or 1)
        width = config["d_model"]
        for side in ("encoder", "decoder"):
            if width % config[f"{side}_attention_heads"]:
                raise CheckpointError(
                    f"config.json is inconsistent: d_model={width} is not a multiple of {side}_attention_heads="
                    f"{config[f'{side}_attention_heads']}. Check that config.json belongs to these weights."
                )
        shared = bool(config.get("share_encoder_decoder_embeddings", True))
        multi_token = _multi_token_settings(config) if config["model_type"] == OWN else {}
        return cls(
            family=config["model_type"],
            **{size: config[setting] for size, setting in SIZES.items()},
            vocabulary=config["vocab_size"] if shared else config.get("decoder_vocab_size") or config["vocab_size"],
            activation=activation,
            scaled_embeddings=bool(config.get("scale_embedding", False)),
            padding=config["pad_token_id"],
            shared_embeddings=shared,
            tied_output=bool(config.get("tie_word_embeddings", True)),
            **multi_token,
        )

    @property
    def config(self) -> dict[str, Any]:
        """Settings of its ``config.json``; `from_config` reads them back."""
        if self.family in t5.T5:
            return t5.config(self)
        return {
            "model_type": self.family,
            "is_encoder_decoder": True,
            **{setting: getattr(self, size) for size, setting in SIZES.items()},
            "decoder_vocab_size": self.vocabulary,
            "activation_function": self.activation,
            "scale_embedding": self.scaled_embeddings,
            "pad_token_id": self.padding,
            "share_encoder_decoder_embeddings": self.shared_embeddings,
            "tie_word_embeddings": self.tied_output,
            **(
                {"tokens_per_step": self.tokens_per_step, "order": self.order, "masked": self.masked}
                if self.family == OWN
                else {}
            ),
        }

    @cached_property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor that the forward pass reads; each embedding has its own name."""
        width = self.width
        shapes: dict[str, tuple[int, ...]] = {
            "model.encoder.embed_tokens.weight": (self.source_vocabulary, width),
            "model.decoder.embed_tokens.weight": (self.vocabulary, width),
            "lm_head.weight": (self.vocabulary, width),
        }

        def tensor(name: str, *shape: int) -> None:
            shapes[f"{name}.weight"] = shape
            if self.biases:
                shapes[f"{name}.bias"] = shape[:1]

        for side, layers, attentions, inner in (
            ("encoder", self.encoder_layers, ("self_attn",), self.encoder_feed_forward),
            ("decoder", self.decoder_layers, ("self_attn", "encoder_attn"), self.decoder_feed_forward),
        ):
            heads, size = self.heads(side)
            first = self.first_position(side)
            if self.relative_positions:
                shapes[f"model.{side}.relative_positions.weight"] = (self.relative_buckets, heads)
            if first is not None:
                shapes[f"model.{side}.embed_positions.weight"] = (self.max_positions + first, width)
            if self.normed_embeddings:
                tensor(f"model.{side}.layernorm_embedding", width)
            if self.pre_norm:
                tensor(f"model.{side}.layer_norm", width)
            for layer in range(layers):
                name = f"model.{side}.layers.{layer}"
                for attention in attentions:
                    for part in ("q_proj", "k_proj", "v_proj"):
                        tensor(f"{name}.{attention}.{part}", heads * size, width)
                    tensor(f"{name}.{attention}.out_proj", width, heads * size)
                    tensor(f"{name}.{attention}_layer_norm", width)
                for part in self.inner_parts:
                    tensor(f"{name}.{part}", inner, width)
                tensor(f"{name}.fc2", width, inner)
                tensor(f"{name}.final_layer_norm", width)
        if self.masked:
            shapes["length.weight"] = (self.max_positions, width)
        return shapes

    @property
    def inner_parts(self) -> tuple[str, ...]:
        """The first products of a feed-forward layer: the activated one, and the factor of a gated layer."""
        return ("gate", "linear") if self.gated else ("fc1",)

    @property
    def optional_tensors(self) -> dict[str, tuple[int, ...]]:
        """Tensors that a checkpoint may lack: the output bias, and position tables, which are computed if they are missing."""
        optional: dict[str, tuple[int, ...]] = {}
        if self.output_bias:
            optional["final_logits_bias"] = (1, self.vocabulary)
        if self.family in t5.T5:
            optional[t5.UNUSED] = (self.relative_buckets, self.decoder_heads)
        if self.family == "marian":
            for side in ("encoder", "decoder"):
                optional[f"model.{side}.embed_positions.weight"] = (self.max_positions, self.width)
        return optional

    def stored_as(self, name: str) -> tuple[str, ...]:
        """The names under which a checkpoint may store a tensor, its own first; tied embeddings are stored once."""
        if self.family in t5.T5:
            return t5.stored_as(name, self.tied_output)
        shared = "model.shared.weight"
        encoder, decoder = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
        tied = (encoder,) if self.shared_embeddings else ()
        if name == encoder:
            return (encoder, shared, decoder, "lm_head.weight") if self.shared_embeddings else (encoder,)
        if name == decoder:
            return (decoder, shared, *tied, "lm_head.weight") if self.tied_output else (decoder, shared, *tied)
        if name == "lm_head.weight" and self.tied_output:
            return ("lm_head.weight", decoder, shared, *tied)
        return (name,)


def tensors_of_module(module: Any) -> tuple[Architecture, dict[str, Any]] | None:
    """The architecture of a loaded module of `FAMILIES`, and its tensors by their names in checkpoints.

    None if the module's forward differs from its family's: another class, adapters, hooks, quantised weights, several devices.
    """
    if module.config.model_type not in FAMILIES or not private.is_as_made(module):
        return None
    try:
        architecture = Architecture.from_config(module.config.to_dict())
    except CheckpointError:
        return None
    tensors = private.tensors_of(module, architecture.position_offset, architecture.max_positions)
    first_names = {name: architecture.stored_as(name)[0] for name in architecture.tensors}
    tensors |= {name: tensors[stored] for name, stored in first_names.items() if stored in tensors}
    if any(name not in tensors or tensors[name].shape != shape for name, shape in architecture.tensors.items()):
        return None
    (device, dtype), *other_kinds = {(tensors[name].device, tensors[name].dtype) for name in architecture.tensors}
    if other_kinds or device.type == "meta" or not dtype.is_floating_point:
        return None
    if architecture.family in t5.T5 and dtype.itemsize > 4 and private.t5_rounds_scores():
        return None
    return architecture, {name: tensor.to(dtype) for name, tensor in tensors.items()}


def _check_activation(activation: Any) -> None:
    if activation not in ACTIVATIONS:
        raise CheckpointError(
            f"Unknown activation in config.json: got {activation!r}. Supported are {', '.join(ACTIVATIONS)}."
        )


def _multi_token_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a model of `OWN`: tokens a step, their order, and whether targets are masked."""
    tokens, order, masked = (config.get(name) for name in ("tokens_per_step", "order", "masked"))
    start = config.get("decoder_start_token_id")
    check_whole("tokens_per_step", tokens)
    checks = (
        (order in ORDERS, f"order must be one of {', '.join(ORDERS)}", order),
        (type(masked) is bool, "masked must be true or false", masked),
        (not masked or tokens == 1, "a masked model has tokens_per_step 1", tokens),
        (isinstance(start, list) and len(start) == tokens, "decoder_start_token_id must list a start for each token a step", start),
    )  # fmt: skip
    for fits, requirement, value in checks:
        if not fits:
            raise damaged(requirement, value)
    return {"tokens_per_step": tokens, "order": order, "masked": masked}
