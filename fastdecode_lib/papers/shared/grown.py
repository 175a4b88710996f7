"""A small trained model at the cost of a large one: each feature several times, layers that add nothing, tokens that never win.

What a large shape costs can be timed with random weights, but whether drafts hold cannot. A grown model says what the small
one says (to rounding), so that its drafts hold as often, and computes what a model of the large shape computes.
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

NEVER = -1e4
"""Bias of the tokens that are added."""
_LAST: dict[tuple[Any, ...], TranslationModel] = {}
"""The last model grown on torch, by what it was made from: experiments of one process share it."""


def grown(
    model: TranslationModel, layers: tuple[int, int], vocabulary: int, precision: Any, seed: int = 0
) -> TranslationModel:
    """A Marian model on the compiled engine, twice as wide; see `grown_weights`."""
    large, tensors = grown_weights(model, 2, layers, vocabulary, seed)
    network: Any = CompiledTransformer(large, tensors, precision)
    for part, table in zip((network.encoder, network.decoder), _positions(model, 2), strict=True):
        part.positions = table
    return TranslationModel(_name(model), network, model.tokenizer, model.checkpoint, "compiled", precision, "cpu")


def grown_on_torch(
    model: TranslationModel,
    times: int,
    layers: tuple[int, int],
    vocabulary: int,
    device: str,
    dtype: str,
    seed: int = 0,
) -> TranslationModel:
    """A Marian model on the torch engine, several times as wide; see `grown_weights`."""
    import torch

    from fastdecode_lib.models.transformer import Transformer

    key = model.checkpoint.fingerprint, times, layers, vocabulary, device, dtype, seed
    if key in _LAST:
        return _LAST[key]
    large, arrays = grown_weights(model, times, layers, vocabulary, seed)
    own, numbers = {id(array): array for array in arrays.values()}, getattr(torch, dtype)
    tensors = {key: torch.from_numpy(array).to(device, numbers) for key, array in own.items()}
    network: Any = Transformer(large, {name: tensors[id(a)] for name, a in arrays.items()}, device, numbers)
    network.encoder, network.decoder = (
        replace(side, positions=torch.from_numpy(table).to(side.positions))
        for side, table in zip((network.encoder, network.decoder), _positions(model, times), strict=True)
    )
    _LAST.clear()
    _LAST[key] = TranslationModel(_name(model), network, model.tokenizer, model.checkpoint, "torch", dtype, device)
    return _LAST[key]


def grown_weights(
    model: TranslationModel, times: int, layers: tuple[int, int], vocabulary: int, seed: int = 0
) -> tuple[Architecture, dict[str, np.ndarray]]:
    """Shape and weights of a Marian model with features, heads and feed-forward entries several times, more layers and tokens.

    Parameters
    ----------
    model : TranslationModel
        Marian's shape: norms behind the blocks, one embedding for everything.
    times : int
        Copies of each feature.
    layers : (int, int)
        Layers of the encoder and of the decoder; no fewer than the model has.
    vocabulary : int
        No fewer tokens than the model has.

    Raises
    ------
    ValueError
        If the model is of another family, or larger than it is to become.
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
    for side, (had, has) in {
        "encoder": (small.encoder_layers, layers[0]),
        "decoder": (small.decoder_layers, layers[1]),
    }.items():
        for number in range(has):
            for name in (n for n in large.tensors if n.startswith(f"model.{side}.layers.{number}.")):
                own = name.replace(f".layers.{number}.", f".layers.{min(number, had - 1)}.")
                new[name] = _repeated(old[own], times)
                if number >= had and name.split(".")[-2] in ("out_proj", "fc2"):
                    new[name] = np.zeros_like(new[name])
        _move_last_norm(new, f"model.{side}.layers", had - 1, has - 1)
    return large, new


def _name(model: TranslationModel) -> str:
    return f"{model.name}, grown"


def _positions(model: TranslationModel, times: int) -> list[np.ndarray]:
    """Position tables of the encoder and of the decoder, each feature several times."""
    table = np.tile(sinusoids(model.checkpoint.architecture), (1, times))
    return [table, table]


def grown_head(head: DraftHead, vocabulary: int) -> DraftHead:
    """A model's draft head for the model grown to twice its width: it drafts the same."""
    tensors = dict(head.tensors)
    tensors["embedding"] = _longer(tensors["embedding"], vocabulary, 0)
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
    n, x = table.ngrams, table.lexicon
    ngrams = replace(
        n,
        unigrams=_longer(n.unigrams, vocabulary, 0),
        bigram_totals=_longer(n.bigram_totals, vocabulary, 0),
        bigram_offsets=_longer(n.bigram_offsets, vocabulary + 1, n.bigram_offsets[-1]),
        context_offsets=_longer(n.context_offsets, vocabulary + 1, n.context_offsets[-1]),
    )
    lexicon = Lexicon(_longer(x.offsets, vocabulary + 1, x.offsets[-1]), x.ids, x.probabilities, vocabulary)
    return DraftTable(ngrams, lexicon, table.about)


def _longer(array: np.ndarray, length: int, value: Any) -> np.ndarray:
    """A matrix extended to a number of rows, the new ones filled with a value."""
    rest = np.full((length - len(array), *array.shape[1:]), value, dtype=array.dtype)
    return np.concatenate([array, rest])


def _repeated(tensor: np.ndarray, times: int) -> np.ndarray:
    """A matrix from repeated features to repeated features; a vector is repeated."""
    return np.tile(tensor, times) if tensor.ndim == 1 else np.tile(tensor / np.float32(times), (times, times))


def _embeddings(
    old: dict[str, np.ndarray], small: Architecture, times: int, vocabulary: int, random: np.random.Generator
) -> dict[str, np.ndarray]:
    """The embedding, which the larger width scales by the root of `times` more, and biases with which new tokens never win."""
    root = np.sqrt(times, dtype=np.float32)
    rows = old["lm_head.weight"] / root
    more = random.standard_normal((vocabulary - small.vocabulary, times * small.width), dtype=np.float32)
    more *= rows.std()
    table = np.concatenate([np.tile(rows, (1, times)), more])
    bias = np.full(vocabulary, NEVER, dtype=np.float32)
    bias[: small.vocabulary] = root * old["final_logits_bias"].reshape(-1) if "final_logits_bias" in old else 0.0
    shared = {f"model.{side}.embed_tokens.weight": table for side in ("encoder", "decoder")}
    return shared | {"lm_head.weight": table, "final_logits_bias": bias[None]}


def _move_last_norm(tensors: dict[str, np.ndarray], layers: str, had: int, has: int) -> None:
    """Norms of a norm change nothing, if only the last has gains and biases: those of the last layer there was."""
    if had == has:
        return
    last = {part: tensors[f"{layers}.{had}.final_layer_norm.{part}"] for part in ("weight", "bias")}
    names = [n for n in tensors if n.startswith(f"{layers}.") and "_layer_norm." in n]
    for name in names:
        number = int(name.removeprefix(f"{layers}.").split(".")[0])
        if number > had or (number == had and "final_layer_norm" in name):
            tensors[name] = np.ones_like(tensors[name]) if name.endswith("weight") else np.zeros_like(tensors[name])
    for part, values in last.items():
        tensors[f"{layers}.{has}.final_layer_norm.{part}"] = values
