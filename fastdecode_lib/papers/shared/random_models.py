"""Checkpoints with random weights, of any shape: every system that is timed reads them, and they cost what trained ones cost."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib.checkpoints.transformer import Architecture
from fastdecode_lib.store import atomic_folder


def marian_shape(
    width: int, feed_forward: int, heads: int, layers: tuple[int, int], vocabulary: int, positions: int = 512
) -> Architecture:
    """A Marian model of opus-mt's kind: one embedding for source, target and output; the last id pads."""
    return Architecture.of_marian(
        width, feed_forward, heads, layers, vocabulary, max_positions=positions, padding=vocabulary - 1
    )


OPUS = marian_shape(width=512, feed_forward=2048, heads=8, layers=(6, 6), vocabulary=58_101)
"""Helsinki-NLP's opus-mt-en-de."""
TOY = marian_shape(width=32, feed_forward=64, heads=2, layers=(1, 1), vocabulary=500, positions=64)
"""For tests."""


def random_checkpoint(folder: Path, shape: Architecture, seed: int, *, halves: bool = False) -> Path:
    """Write a Marian checkpoint in Hugging Face's layout with random weights, unless the folder has one already.

    Every matrix has unit gain, so that outputs depend on the source and on the prefix, but not on rounding. Tokens are
    called ``w2``, ``w3``, ...: such a model takes ids. Loaders insist on SentencePiece files: these are the bundled model's.
    With `halves`, weights are numbers of float16, as in checkpoints that were saved in it.
    """
    from safetensors.numpy import save_file

    if (folder / "model.safetensors").is_file():
        return folder
    tensors = random_weights(shape, seed)
    tensors["model.shared.weight"][shape.padding] = 0  # CTranslate2 starts from a vector of zeros
    for name in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"):
        del tensors[name]  # all are the shared one
    tensors["final_logits_bias"] = np.zeros((1, shape.vocabulary), dtype=np.float32)
    if halves:
        tensors = {name: values.astype(np.float16).astype(np.float32) for name, values in tensors.items()}
    names = ["</s>", "<unk>", *(f"w{i}" for i in range(2, shape.vocabulary - 1)), "<pad>"]
    settings = {"decoder_start_token_id": shape.padding, "eos_token_id": 0, "pad_token_id": shape.padding}
    files = {
        "config.json": shape.config | {"architectures": ["MarianMTModel"], "dtype": "float32"} | settings,
        "generation_config.json": settings
        | {"bad_words_ids": [[shape.padding]], "max_length": shape.max_positions, "num_beams": 1},
        "tokenizer_config.json": {
            "tokenizer_class": "MarianTokenizer",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
        },
        "vocab.json": {name: i for i, name in enumerate(names)},
    }
    with atomic_folder(folder) as temporary:
        for name, content in files.items():
            (temporary / name).write_text(json.dumps(content), encoding="utf-8")
        pieces = resources.files("fastdecode_lib") / "assets" / "tatoeba-small" / "source.spm"
        for name in ("source.spm", "target.spm"):
            (temporary / name).write_bytes(pieces.read_bytes())
        save_file(tensors, temporary / "model.safetensors", metadata={"format": "pt"})
    return folder


def random_weights(shape: Architecture, seed: int) -> dict[str, np.ndarray]:
    """Weights of unit gain for every tensor of a shape, float32: outputs depend on the source and on the prefix."""
    random = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}
    for name, size in shape.tensors.items():
        values = random.standard_normal(size, dtype=np.float32)
        if name.endswith(("norm.weight", "norm_embedding.weight")):
            values = 1 + values * np.float32(0.1)
        else:
            values *= np.float32(0.1 if name.endswith("bias") else size[-1] ** -0.5)
        tensors[name] = values
    shared = tensors["lm_head.weight"]
    tied = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "model.shared.weight")
    return tensors | dict.fromkeys(tied, shared)


def random_network(shape: Architecture, seed: int, device: str = "cpu", dtype: str = "float32") -> Any:
    """A network on torch with `random_weights`."""
    return torch_network(shape, random_weights(shape, seed), device, dtype)


def torch_network(shape: Architecture, weights: dict[str, np.ndarray], device: str, dtype: str) -> Any:
    """A network on torch; names with the same array share a tensor."""
    import torch

    from fastdecode_lib.models.transformer import Transformer

    unique, torch_dtype = {id(array): array for array in weights.values()}, getattr(torch, dtype)
    tensors = {key: torch.from_numpy(array).to(device, torch_dtype) for key, array in unique.items()}
    return Transformer(shape, {name: tensors[id(array)] for name, array in weights.items()}, device, torch_dtype)
