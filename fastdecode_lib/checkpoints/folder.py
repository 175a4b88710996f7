"""From a Hugging Face directory or hub id to validated settings and weights. Only safetensors files are read."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib.checkpoints.int8 import dequantised
from fastdecode_lib.checkpoints.language import LANGUAGE, LanguageShape
from fastdecode_lib.checkpoints.recurrent import RECURRENT, RecurrentShape

FAMILIES = ("marian", "mbart", "m2m_100")
"""Hugging Face's model types that the functional engines run."""
OWN = "fastdecode_transformer"
"""The model type of our own transformers: several tokens a step, or masked. Marian's shape, learned decoder positions."""
TRANSFORMERS = (*FAMILIES, OWN)
ORDERS = ("left_to_right", "right_to_left", "both_ends")
"""In which order a model of `OWN` puts out a sentence; see `decoding.folding`."""
ACTIVATIONS = ("relu", "silu", "swish", "gelu", "gelu_new")

SIZES = (
    "d_model", "vocab_size", "max_position_embeddings", "encoder_layers", "decoder_layers", "encoder_attention_heads",
    "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim",
)  # fmt: skip


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: missing, damaged, unsafe, or not what its settings say."""


@dataclass(frozen=True)
class Architecture:
    """The shape of a Marian, mBART, M2M-100 / NLLB transformer, or of our own.

    Attributes
    ----------
    family : str
        ``"marian"`` (post-norm, sinusoidal positions), ``"mbart"`` (pre-norm, learned positions, normalised embeddings),
        ``"m2m_100"`` (pre-norm, sinusoidal positions counted from the padding id) or `OWN` (as Marian, but learned positions
        of the decoder).
    source_vocabulary, vocabulary : int
        Rows of the encoder's embedding and of the decoder's; V is the latter.
    group : int
        Tokens a step; only `OWN` has more than 1.
    order : str
        Of `ORDERS`.
    masked : bool
        Every slot sees every other (Mask-Predict), and a matrix ``length.weight`` scores lengths.
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
    group: int = 1
    order: str = "left_to_right"
    masked: bool = False

    @property
    def pre_norm(self) -> bool:
        """Whether layers normalise their input (mBART, M2M) rather than their output (Marian)."""
        return self.family in ("mbart", "m2m_100")

    @property
    def normed_embeddings(self) -> bool:
        """Whether embeddings are normalised (mBART)."""
        return self.family == "mbart"

    @property
    def both_ends(self) -> bool:
        """Whether slots are by turns from the left and the right end."""
        return self.order == "both_ends"

    def first_position(self, side: str) -> int | None:
        """The row of the first token in a side's trained table of positions; None where positions are sinusoids."""
        if self.family == "mbart":
            return 2
        return 0 if self.family == OWN and side == "decoder" else None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Architecture":
        """Read a ``config.json``.

        Raises
        ------
        CheckpointError
            If a setting is missing, or names something these models do not have.
        """
        try:
            return cls._from_config(config)
        except KeyError as error:
            raise CheckpointError(
                f"config.json lacks the setting {error.args[0]!r} that a {config.get('model_type')} model needs. "
                "Save the model again with transformers' save_pretrained."
            ) from error

    @classmethod
    def _from_config(cls, config: Mapping[str, Any]) -> "Architecture":
        activation = config.get("activation_function", "gelu")
        if activation not in ACTIVATIONS:
            raise CheckpointError(
                f"Unknown activation in config.json: got {activation!r}. Supported are {', '.join(ACTIVATIONS)}."
            )
        for name in SIZES:
            if type(config[name]) is not int or config[name] < 1:
                raise CheckpointError(
                    f"config.json is damaged: {name} must be a whole number above 0, got {config[name]!r}. Copy it again."
                )
        for name, least in (("pad_token_id", 0), ("decoder_vocab_size", 1)):
            value = config[name] if name == "pad_token_id" else config.get(name) or 1
            if type(value) is not int or value < least:
                raise CheckpointError(
                    f"config.json is damaged: {name} must be a whole number from {least} on, got {value!r}. Copy it again."
                )
        width = config["d_model"]
        for side in ("encoder", "decoder"):
            if width % config[f"{side}_attention_heads"]:
                raise CheckpointError(
                    f"config.json is inconsistent: d_model={width} is not a multiple of {side}_attention_heads="
                    f"{config[f'{side}_attention_heads']}. Check that config.json belongs to these weights."
                )
        shared = bool(config.get("share_encoder_decoder_embeddings", True))
        own = _own_settings(config) if config["model_type"] == OWN else {}
        return cls(
            family=config["model_type"],
            source_vocabulary=config["vocab_size"],
            vocabulary=config["vocab_size"] if shared else config.get("decoder_vocab_size") or config["vocab_size"],
            width=width,
            encoder_layers=config["encoder_layers"],
            decoder_layers=config["decoder_layers"],
            encoder_heads=config["encoder_attention_heads"],
            decoder_heads=config["decoder_attention_heads"],
            encoder_feed_forward=config["encoder_ffn_dim"],
            decoder_feed_forward=config["decoder_ffn_dim"],
            max_positions=config["max_position_embeddings"],
            activation=activation,
            scaled_embeddings=bool(config.get("scale_embedding", False)),
            padding=config["pad_token_id"],
            shared_embeddings=shared,
            tied_output=bool(config.get("tie_word_embeddings", True)),
            **own,
        )

    @property
    def config(self) -> dict[str, Any]:
        """What a ``config.json`` says of it; `from_config` reads it back."""
        return {
            "model_type": self.family,
            "is_encoder_decoder": True,
            "vocab_size": self.source_vocabulary,
            "decoder_vocab_size": self.vocabulary,
            "d_model": self.width,
            "encoder_layers": self.encoder_layers,
            "decoder_layers": self.decoder_layers,
            "encoder_attention_heads": self.encoder_heads,
            "decoder_attention_heads": self.decoder_heads,
            "encoder_ffn_dim": self.encoder_feed_forward,
            "decoder_ffn_dim": self.decoder_feed_forward,
            "max_position_embeddings": self.max_positions,
            "activation_function": self.activation,
            "scale_embedding": self.scaled_embeddings,
            "pad_token_id": self.padding,
            "share_encoder_decoder_embeddings": self.shared_embeddings,
            "tie_word_embeddings": self.tied_output,
            **(
                {"tokens_per_step": self.group, "order": self.order, "masked": self.masked}
                if self.family == OWN
                else {}
            ),
        }

    @cached_property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor the forward pass reads, embeddings under their separate names."""
        width = self.width
        shapes: dict[str, tuple[int, ...]] = {
            "model.encoder.embed_tokens.weight": (self.source_vocabulary, width),
            "model.decoder.embed_tokens.weight": (self.vocabulary, width),
            "lm_head.weight": (self.vocabulary, width),
        }

        def norm(name: str) -> None:
            shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)

        def linear(name: str, rows: int, columns: int) -> None:
            shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (rows, columns), (rows,)

        for side, layers, attentions, inner in (
            ("encoder", self.encoder_layers, ("self_attn",), self.encoder_feed_forward),
            ("decoder", self.decoder_layers, ("self_attn", "encoder_attn"), self.decoder_feed_forward),
        ):
            first = self.first_position(side)
            if first is not None:
                shapes[f"model.{side}.embed_positions.weight"] = (self.max_positions + first, width)
            if self.normed_embeddings:
                norm(f"model.{side}.layernorm_embedding")
            if self.pre_norm:
                norm(f"model.{side}.layer_norm")
            for layer in range(layers):
                name = f"model.{side}.layers.{layer}"
                for attention in attentions:
                    for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                        linear(f"{name}.{attention}.{part}", width, width)
                    norm(f"{name}.{attention}_layer_norm")
                linear(f"{name}.fc1", inner, width)
                linear(f"{name}.fc2", width, inner)
                norm(f"{name}.final_layer_norm")
        if self.masked:
            shapes["length.weight"] = (self.max_positions, width)
        return shapes

    @property
    def optional_tensors(self) -> dict[str, tuple[int, ...]]:
        """Tensors a checkpoint may hold besides: the output bias, and position tables that are computed anyway."""
        optional: dict[str, tuple[int, ...]] = {}
        if self.family != "m2m_100":
            optional["final_logits_bias"] = (1, self.vocabulary)
        if self.family == "marian":
            for side in ("encoder", "decoder"):
                optional[f"model.{side}.embed_positions.weight"] = (self.max_positions, self.width)
        return optional

    def stored_as(self, name: str) -> tuple[str, ...]:
        """The names under which a checkpoint may store a tensor, tied embeddings being stored once."""
        shared = "model.shared.weight"
        encoder, decoder = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
        if name == encoder:
            return (encoder, shared, decoder, "lm_head.weight") if self.shared_embeddings else (encoder,)
        if name == decoder:
            tied = (encoder,) if self.shared_embeddings else ()
            return (decoder, shared, *tied, "lm_head.weight") if self.tied_output else (decoder, shared, *tied)
        if name == "lm_head.weight" and self.tied_output:
            tied = (encoder,) if self.shared_embeddings else ()
            return ("lm_head.weight", decoder, shared, *tied)
        return (name,)


def _own_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What only a model of `OWN` has: tokens a step, their order, and whether targets are masked."""
    group, order, masked = (config.get(name) for name in ("tokens_per_step", "order", "masked"))
    start = config.get("decoder_start_token_id")
    sound = (
        (type(group) is int and group >= 1, "tokens_per_step must be a whole number above 0", group),
        (order in ORDERS, f"order must be one of {', '.join(ORDERS)}", order),
        (type(masked) is bool, "masked must be true or false", masked),
        (not masked or group == 1, "a masked model has tokens_per_step 1", group),
        (isinstance(start, list) and len(start) == group, "decoder_start_token_id must list a start for each token a step", start),
    )  # fmt: skip
    for good, wanted, got in sound:
        if not good:
            raise CheckpointError(f"config.json is damaged: {wanted}, got {got!r}. Copy it again.")
    return {"group": group, "order": order, "masked": masked}


@dataclass(frozen=True)
class Checkpoint:
    """A folder with ``config.json``, safetensors and tokenizer files.

    Attributes
    ----------
    name : str
        As the user gave it.
    folder : Path
    config, generation : dict
        ``config.json`` and ``generation_config.json`` (empty if absent).
    """

    name: str
    folder: Path
    config: dict[str, Any]
    generation: dict[str, Any]

    @property
    def family(self) -> str:
        """The Hugging Face model type."""
        return str(self.config.get("model_type"))

    @cached_property
    def architecture(self) -> Architecture:
        """Shape of a functional model; only for the families of `TRANSFORMERS`."""
        return Architecture.from_config(self.config)

    @cached_property
    def recurrent(self) -> RecurrentShape:
        """Shape of a recurrent model; only for the family `RECURRENT`."""
        return self._shape(RecurrentShape)

    @cached_property
    def language(self) -> LanguageShape:
        """Shape of a language model; only for the family `LANGUAGE`."""
        return self._shape(LanguageShape)

    @staticmethod
    def _dequantised(stored: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return dequantised(stored)
        except ValueError as error:
            raise CheckpointError(str(error)) from error

    def _shape(self, kind: Any) -> Any:
        try:
            return kind.from_config(self.config)
        except ValueError as error:
            raise CheckpointError(str(error)) from error

    @cached_property
    def fingerprint(self) -> str:
        """A hash of settings and weights: what is fitted on a model is kept under this name."""
        import hashlib

        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for file in self._weight_files():
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]

    def tensors(self, framework: str = "pt") -> dict[str, Any]:
        """All tensors of the architecture, validated, in the stored precision; float32 of those stored as int8.

        Parameters
        ----------
        framework : str
            ``"pt"`` for torch tensors, ``"np"`` for numpy arrays.

        Raises
        ------
        CheckpointError
            If a tensor is missing, unknown, of another shape or type, or holds values that are not finite.
        """
        stored = self._stored(framework)
        architecture: Architecture | RecurrentShape | LanguageShape
        if self.family in (RECURRENT, LANGUAGE):
            architecture = self.recurrent if self.family == RECURRENT else self.language
            stored = self._dequantised(stored)
        else:
            architecture = self.architecture
            stored = self._dequantised(stored) if self.family == OWN else stored
        chosen: dict[str, Any] = {}
        used: set[str] = set()
        for name, shape in architecture.tensors.items():
            source = next((alias for alias in architecture.stored_as(name) if alias in stored), None)
            if source is None:
                raise CheckpointError(
                    f"The checkpoint {self.name!r} lacks the tensor {name!r} {shape}. It holds {len(stored)} tensors; "
                    "save the whole model again."
                )
            chosen[name] = stored[source]
            used.add(source)
            _check_shape(source, stored[source], shape)
        for name, shape in architecture.optional_tensors.items():
            if name in stored:
                chosen[name] = stored[name]
                _check_shape(name, stored[name], shape)
        known = {alias for name in architecture.tensors for alias in architecture.stored_as(name)} | set(chosen)
        extra = sorted(set(stored) - known)
        if extra:
            raise CheckpointError(
                f"The checkpoint {self.name!r} holds tensors that a {self.family} model of its config.json does not have: "
                f"{', '.join(extra[:5])}{' ...' if len(extra) > 5 else ''}. Check that config.json belongs to these weights."
            )
        for name in used | (set(architecture.optional_tensors) & set(stored)):
            check_finite(name, stored[name])
        return chosen

    def arrays(self) -> dict[str, Any]:
        """All tensors of the architecture, validated, as float32 numpy arrays; tied ones are one array."""
        try:
            tensors = self.tensors("np")
        except (TypeError, AttributeError):  # numpy has no bfloat16
            tensors = {name: tensor.float().numpy() for name, tensor in self.tensors("pt").items()}
        single: dict[int, Any] = {}
        return {name: single.setdefault(id(array), array.astype(np.float32)) for name, array in tensors.items()}

    def _weight_files(self) -> list[Path]:
        index = self.folder / "model.safetensors.index.json"
        if index.is_file():
            listed = read_json(index).get("weight_map")
            if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
                raise CheckpointError(f"{index} does not say which file holds which tensor. Copy it again.")
            names = sorted(set(listed.values()))
            if any(Path(name).name != name for name in names):
                raise CheckpointError(f"{index} names files outside its folder: got {names}. Save the model again.")
            files = [self.folder / name for name in names]
        else:
            files = [self.folder / "model.safetensors"]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            pickled = sorted(p.name for p in (*self.folder.glob("*.bin"), *self.folder.glob("*.pt")))
            if pickled:
                raise CheckpointError(
                    f"The checkpoint {self.name!r} has only pickled weights: got {', '.join(pickled)}. Pickle files can run "
                    "code and are never read; convert with transformers: "
                    "AutoModelForSeq2SeqLM.from_pretrained(...).save_pretrained(...)."
                )
            raise CheckpointError(
                f"The checkpoint {self.name!r} lacks its weights: {', '.join(missing)} not found in {self.folder}. "
                "Give a complete Hugging Face directory. A hub model that has only pickled weights is not read; convert it "
                "once with transformers: AutoModelForSeq2SeqLM.from_pretrained(NAME).save_pretrained(FOLDER)."
            )
        return files

    def _stored(self, framework: str) -> dict[str, Any]:
        from safetensors import SafetensorError, safe_open

        stored: dict[str, Any] = {}
        for file in self._weight_files():
            try:
                with safe_open(file, framework) as opened:
                    stored |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            except SafetensorError as error:
                raise CheckpointError(
                    f"{file} is not a readable safetensors file: {error}. It may be cut short; copy it again."
                ) from error
        return stored


def find_checkpoint(name: str | Path) -> Checkpoint:
    """A bundled model, a Hugging Face directory, or a hub id, with its settings read and checked.

    Raises
    ------
    CheckpointError
        If there is no such checkpoint, or its settings are unusable.
    """
    folder = _find_folder(str(name))
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise CheckpointError(f"{folder} is no checkpoint: it has no config.json. Give a Hugging Face model directory.")
    config = read_json(config_file)
    generation_file = folder / "generation_config.json"
    generation = read_json(generation_file) if generation_file.is_file() else {}
    checkpoint = Checkpoint(str(name), folder, config, generation)
    if not config.get("is_encoder_decoder", False) and checkpoint.family != LANGUAGE:
        raise CheckpointError(
            f"{name!r} is a {checkpoint.family} model, which is no encoder-decoder. Give a translation model "
            "such as tatoeba-small or Helsinki-NLP/opus-mt-en-de."
        )
    return checkpoint


def bundled() -> dict[str, Path]:
    """Names and folders of the models that come with the library."""
    assets = Path(str(resources.files("fastdecode_lib"))) / "assets"
    return {p.name: p for p in sorted(assets.glob("*")) if (p / "config.json").is_file()}


def _find_folder(name: str) -> Path:
    assets = bundled()
    if name in assets:
        return assets[name]
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise CheckpointError(f"A checkpoint is a folder, got the file {name!r}. Give the folder that holds it.")
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return _from_hub(name)
    import difflib

    from fastdecode_lib.training.presets import PRESETS

    if name in PRESETS:
        raise CheckpointError(
            f"The model {name!r} does not come with the library: it has to be trained, which takes an hour or more. Run "
            f"`fastdecode train {name} --data DIR`, then give the folder build/train/{name}/best."
        )
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise CheckpointError(
            f"There is no folder {name!r}. Give the folder of a checkpoint, a bundled name or a hub id."
        )
    near = difflib.get_close_matches(name, assets, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Bundled: {', '.join(assets) or 'none'}."
    raise CheckpointError(
        f"Unknown model: got {name!r}. {hint} A folder or a hub id such as Helsinki-NLP/opus-mt-en-de works too."
    )


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.spm", "*.model", "*.txt"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"The model {name!r} could not be fetched from the Hugging Face hub: {type(error).__name__}. Check the name and "
            "the network, or give a local folder."
        ) from error


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in one of a checkpoint's files.

    Raises
    ------
    CheckpointError
        If it is not JSON, or no object.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} is not readable JSON: {error}. It may be cut short; copy it again.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} should hold a JSON object, got {type(content).__name__}. Copy it again.")
    return content


def _check_shape(name: str, tensor: Any, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise CheckpointError(
            f"The tensor {name!r} has shape {tuple(tensor.shape)}, but config.json asks for {shape}. "
            "Check that config.json belongs to these weights."
        )
    if str(tensor.dtype).removeprefix("torch.") not in ("float64", "float32", "float16", "bfloat16"):
        raise CheckpointError(
            f"The tensor {name!r} has type {tensor.dtype}, but weights must be floating point. "
            "Quantised checkpoints are not read; give the original."
        )


def check_finite(name: str, tensor: Any) -> None:
    """Refuse a tensor with values that are not finite."""
    if not math.isfinite(float(abs(tensor).max())):
        raise CheckpointError(
            f"The tensor {name!r} holds values that are not finite (NaN or infinity). "
            "The checkpoint is damaged or training diverged; use an earlier one."
        )
