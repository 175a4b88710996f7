"""A small trained model at the cost of a large one: each feature several times, layers that add nothing, tokens that never win.

Random weights can show the cost of a large shape, but not how often drafts are accepted. A grown model gives the small one's
outputs (to rounding), so that as many drafts are accepted, and computes as much as a model of the large shape.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from fastdecode_lib.checkpoints.transformer import Architecture
from fastdecode_lib.drafts.head import DraftHead, Shape
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.lexicon import Lexicon
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.models.compiled_transformer import CompiledTransformer
from fastdecode_lib.models.positions import sinusoids
from fastdecode_lib.papers.shared.random_models import torch_network

NEVER = -1e4
"""Bias of the tokens that are added."""
_CACHE: dict[tuple[Any, ...], TranslationModel] = {}
"""The last model grown on torch, by its settings: experiments of one process share it."""


def grown(
    model: TranslationModel, layers: tuple[int, int], vocabulary: int, precision: Any, seed: int = 0
) -> TranslationModel:
    """A Marian model on the compiled engine, grown to twice its width; see `grown_weights`."""
    large, tensors = grown_weights(model, 2, layers, vocabulary, seed)
    network: Any = CompiledTransformer(large, tensors, precision)
    network.encoder.positions = network.decoder.positions = _positions(model, 2)
    return _named(model, network, "compiled", precision, "cpu")


def grown_on_torch(
    model: TranslationModel,
    times: int,
    layers: tuple[int, int],
    vocabulary: int,
    device: str,
    dtype: str,
    seed: int = 0,
) -> TranslationModel:
    """A Marian model on the torch engine, grown to several times its width; see `grown_weights`."""
    import torch

    key = model.checkpoint.fingerprint, times, layers, vocabulary, device, dtype, seed
    if key in _CACHE:
        return _CACHE[key]
    large, arrays = grown_weights(model, times, layers, vocabulary, seed)
    network = torch_network(large, arrays, device, dtype)
    positions = torch.from_numpy(_positions(model, times)).to(network.encoder.positions)
    network.encoder, network.decoder = (replace(x, positions=positions) for x in (network.encoder, network.decoder))
    _CACHE.clear()
    _CACHE[key] = _named(model, network, "torch", dtype, device)
    return _CACHE[key]


def _named(model: TranslationModel, network: Any, engine: Any, dtype: str, device: str) -> TranslationModel:
    return TranslationModel(f"{model.name}, grown", network, model.tokenizer, model.checkpoint, engine, dtype, device)


def grown_weights(
    model: TranslationModel, times: int, layers: tuple[int, int], vocabulary: int, seed: int = 0
) -> tuple[Architecture, dict[str, np.ndarray]]:
    """Shape and weights of a Marian model that is several times as wide and has more layers and tokens.

    The model has Marian's shape: norms behind the blocks, one embedding for everything. There are `times` copies of each feature,
    head and feed-forward entry.

    Raises
    ------
    ValueError
        If the model is of another family, or larger than the shape asked for.
    """
    small: Architecture = model.checkpoint.architecture
    if (
        small.family != "marian"
        or min(layers[0] - small.encoder_layers, layers[1] - small.decoder_layers, vocabulary - small.vocabulary) < 0
    ):
        raise ValueError(
            f"Only a Marian model grows, to no fewer layers and tokens: got {small.family} with {small.encoder_layers} and "
            f"{small.decoder_layers} layers and {small.vocabulary} tokens for {layers} and {vocabulary}. Use tatoeba-small."
        )
    large = replace(
        small,
        width=times * small.width,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        encoder_heads=times * small.encoder_heads,
        decoder_heads=times * small.decoder_heads,
        encoder_feed_forward=times * small.encoder_feed_forward,
        decoder_feed_forward=times * small.decoder_feed_forward,
        vocabulary=vocabulary,
        source_vocabulary=vocabulary,
    )
    random = np.random.default_rng(seed)
    old = model.checkpoint.arrays()
    new = _embeddings(old, small, times, vocabulary, random)
    for side, old_layers, new_layers in (
        ("encoder", small.encoder_layers, layers[0]),
        ("decoder", small.decoder_layers, layers[1]),
    ):
        for number in range(new_layers):
            for name in (n for n in large.tensors if n.startswith(f"model.{side}.layers.{number}.")):
                old_name = name.replace(f".layers.{number}.", f".layers.{min(number, old_layers - 1)}.")
                new[name] = _repeated(old[old_name], times)
                if number >= old_layers and name.split(".")[-2] in ("out_proj", "fc2"):
                    new[name] = np.zeros_like(new[name])
        _move_last_norm(new, f"model.{side}.layers", old_layers - 1, new_layers - 1)
    return large, new


def _positions(model: TranslationModel, times: int) -> np.ndarray:
    """The table of positions, each feature several times."""
    return np.tile(sinusoids(model.checkpoint.architecture), (1, times))


def grown_head(head: DraftHead, vocabulary: int) -> DraftHead:
    """A model's draft head for the model grown to twice its width: its draft tokens are the same."""
    tensors = dict(head.tensors)
    tensors["embedding"] = _extended(tensors["embedding"], vocabulary, 0)
    for name in ("enter", "key", "value"):
        weight = tensors[f"{name}.weight"] / np.float32(2)
        tensors[f"{name}.weight"] = np.concatenate([weight, weight], 1)
    for part in ("weight", "bias"):  # the output rows are the small ones', twice, over the root of 2
        half = tensors[f"outer.{part}"] / np.float32(np.sqrt(2))
        tensors[f"outer.{part}"] = np.concatenate([half, half])
    sizes = {"hidden": 2 * head.shape.hidden, "source": 2 * head.shape.source, "tokens": vocabulary}
    shape = Shape(**(vars(head.shape) | sizes))
    return DraftHead(shape, tensors, head.vocabularies, head.about)


def grown_table(table: DraftTable, vocabulary: int) -> DraftTable:
    """A model's draft table for the grown model, without entries for the added tokens."""
    old, lexicon = table.ngrams, table.lexicon
    ngrams = replace(
        old,
        unigrams=_extended(old.unigrams, vocabulary, 0),
        bigram_totals=_extended(old.bigram_totals, vocabulary, 0),
        bigram_offsets=_extended(old.bigram_offsets, vocabulary + 1, old.bigram_offsets[-1]),
        context_offsets=_extended(old.context_offsets, vocabulary + 1, old.context_offsets[-1]),
    )
    offsets = _extended(lexicon.offsets, vocabulary + 1, lexicon.offsets[-1])
    lexicon = Lexicon(offsets, lexicon.ids, lexicon.probabilities, vocabulary)
    return DraftTable(ngrams, lexicon, table.about)


def _extended(array: np.ndarray, length: int, value: Any) -> np.ndarray:
    """A matrix with rows added up to a length, filled with a value."""
    filler = np.full((length - len(array), *array.shape[1:]), value, dtype=array.dtype)
    return np.concatenate([array, filler])


def _repeated(tensor: np.ndarray, times: int) -> np.ndarray:
    """A matrix from repeated features to repeated features; a vector is repeated."""
    return np.tile(tensor, times) if tensor.ndim == 1 else np.tile(tensor / np.float32(times), (times, times))


def _embeddings(
    old: dict[str, np.ndarray], small: Architecture, times: int, vocabulary: int, random: np.random.Generator
) -> dict[str, np.ndarray]:
    """The embedding over the root of `times`, as the model scales it by its width's, and biases with which new tokens never win."""
    root = np.sqrt(times, dtype=np.float32)
    rows = old["lm_head.weight"] / root
    new_rows = random.standard_normal((vocabulary - small.vocabulary, times * small.width), dtype=np.float32)
    new_rows *= rows.std()
    table = np.concatenate([np.tile(rows, (1, times)), new_rows])
    bias = np.full(vocabulary, NEVER, dtype=np.float32)
    bias[: small.vocabulary] = root * old["final_logits_bias"].reshape(-1) if "final_logits_bias" in old else 0.0
    shared = {f"model.{side}.embed_tokens.weight": table for side in ("encoder", "decoder")}
    return shared | {"lm_head.weight": table, "final_logits_bias": bias[None]}


def _move_last_norm(tensors: dict[str, np.ndarray], layers: str, old_last: int, new_last: int) -> None:
    """Give the new last layer the gains and biases of the old one's norm; norms before it are plain, and so change nothing."""
    if old_last == new_last:
        return
    norm = {part: tensors[f"{layers}.{old_last}.final_layer_norm.{part}"] for part in ("weight", "bias")}
    names = [n for n in tensors if n.startswith(f"{layers}.") and "_layer_norm." in n]
    for name in names:
        number = int(name.removeprefix(f"{layers}.").split(".")[0])
        if number > old_last or (number == old_last and "final_layer_norm" in name):
            tensors[name] = np.ones_like(tensors[name]) if name.endswith("weight") else np.zeros_like(tensors[name])
    for part, values in norm.items():
        tensors[f"{layers}.{new_last}.final_layer_norm.{part}"] = values
