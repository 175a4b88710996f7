"""The network that decodes for a module of transformers: one of our engines if it supports the module, else its own forward."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.core import Source

if TYPE_CHECKING:
    from torch import Tensor


class Start(NamedTuple):
    """The encoder output that decoding starts from, and the logits of hidden vectors.

    Attributes
    ----------
    memory : callable
        From the number of a batch's first row, the encoder output of the batch for `Model.start`.
    single : callable
        The same for that row alone.
    score : callable
        Hidden vectors (N, D) to logits (N, V), a new float32 tensor.
    """

    memory: Callable[[int], Any]
    single: Callable[[int], Any]
    score: Callable[[Any], "Tensor"]


def network_of(
    model: Any, notes: dict[str, Any], inputs: dict[str, Any], ids: "Tensor", packed: bool
) -> tuple[Any, Callable[[int], Any], Callable[[Any], "Tensor"]]:
    """The network for a module, with `Start`'s `memory` and `score`; compared once with the module's own steps."""
    from fastdecode_lib.models.huggingface import LogitsModel, check_passes
    from fastdecode_lib.models.transformer import Transformer

    arguments = private.prepared(inputs)
    network: Any = (_compiled(model, notes) if packed else None) or Transformer.of_module(model)
    reference: Any = None
    if network is None or network.engine not in notes:
        positions = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None) or sys.maxsize
        reference = LogitsModel(model, positions)
    if network is None:
        network, start = reference, _on_module(arguments, ids)
    elif network.engine == "compiled":
        start = _on_kernels(network, arguments)
    else:
        start = _on_tensors(network, arguments, ids)
    if network.engine not in notes:
        encoded = {name: _row_of(value, 0, len(ids)) for name, value in arguments.items()}
        if check_passes(network, start.single(0), start.score, reference, encoded, ids[:1].cpu().numpy()):
            notes[network.engine] = True
    return network, start.memory, start.score


def _on_module(arguments: dict[str, Any], ids: "Tensor") -> Start:
    """The module's own forward, one row at a time."""
    import torch

    def memory(row: int) -> Any:
        return {name: _row_of(value, row, len(ids)) for name, value in arguments.items()}

    return Start(memory, memory, lambda vectors: vectors.to(ids.device, torch.float32, copy=True))


def _on_kernels(network: Any, arguments: dict[str, Any]) -> Start:
    """The compiled engine, on all rows together."""
    import torch

    hidden, mask = arguments["encoder_outputs"][0], arguments.get("attention_mask")
    real = np.ones(hidden.shape[:2], dtype=bool) if mask is None else mask.numpy().astype(bool)
    memory, weight = network.remember(hidden.detach().numpy(), real), network.outputs[0].weight
    return Start(
        lambda _: memory,
        lambda _: network.remember(hidden[:1].detach().numpy(), real[:1]),
        lambda vectors: torch.from_numpy(weight(vectors)),
    )


def _on_tensors(network: Any, arguments: dict[str, Any], ids: "Tensor") -> Start:
    """The functional transformer on the module's tensors, on all rows together."""
    import torch

    from fastdecode_lib.kernels.products import Product

    hidden, mask = arguments["encoder_outputs"][0], arguments.get("attention_mask")
    real = None if mask is None or bool(mask.all()) else mask.to(network.device, torch.bool)[:, None, None]
    memory = network.remember(hidden, real)
    weight, bias = network.outputs[0].weight, network.outputs[0].bias
    bias = weight.new_zeros(len(weight)) if bias is None else bias.reshape(-1)
    product = Product.of(weight, bias, copy=False)
    return Start(
        lambda _: memory,
        lambda _: memory.gather(torch.zeros(1, dtype=torch.long, device=network.device)),
        lambda vectors: product(vectors).to(ids.device, torch.float32),
    )


def _compiled(model: Any, notes: dict[str, Any]) -> Any:
    """The module on the compiled kernels, None if they do not support it; made again when its weights have changed.

    `private.notes` detects most changes, but not those of a tensor's ``.data``; products with a fixed vector detect these if
    they are larger than rounding.
    """
    network, fingerprints = notes.get("packed", (None, []))
    current = [] if network is None else _products(model)
    if "packed" not in notes or any((a != b).any() for a, b in zip(fingerprints, current, strict=True)):
        from fastdecode_lib.models.compiled_transformer import CompiledTransformer

        notes.clear()
        network = CompiledTransformer.of_module(model)
        notes["packed"] = network, [] if network is None else _products(model)
    return network


def _products(model: Any) -> "list[Tensor]":
    """Fingerprint of each tensor that a module decodes with: a vector itself, a matrix as a product."""
    import torch

    head, bias = private.head_of(model, called=False)
    tensors_of_module = [t for module in (model.get_decoder(), head) for t in (*module.parameters(), *module.buffers())]
    tensors_of_module += [] if bias is None else [bias]
    tensors = [tensor.detach().float() for tensor in {id(tensor): tensor for tensor in tensors_of_module}.values()]
    widest = max(tensor.shape[-1] for tensor in tensors if tensor.ndim)
    probe = torch.linspace(1, 2, widest)
    return [t.flatten(0, -2) @ probe[: t.shape[-1]] if t.ndim > 1 else t.clone() for t in tensors]


def _row_of(value: Any, row: int, batch: int) -> Any:
    """One row of every tensor that has rows."""
    if hasattr(value, "shape"):
        return value[row : row + 1] if value.ndim and len(value) == batch else value
    if isinstance(value, dict):
        return type(value)(**{name: _row_of(entry, row, batch) for name, entry in value.items()})
    return tuple(_row_of(entry, row, batch) for entry in value) if isinstance(value, tuple) else value


def source_of(ids: "Tensor | None", inputs: dict[str, Any], padding: int) -> Source:
    """The source for lengths and drafts, real tokens first; all padding if `generate` got no ids."""
    hidden, mask = inputs["encoder_outputs"][0], inputs.get("attention_mask")
    real = np.ones(hidden.shape[:2], dtype=bool)
    if mask is not None and mask.shape == real.shape:
        real = mask.bool().cpu().numpy()
    tokens = np.full(real.shape, padding, dtype=np.int64)
    if ids is not None and ids.shape == real.shape and not ids.is_floating_point() and bool((ids >= 0).all()):
        tokens = ids.cpu().numpy()
    return Source(np.take_along_axis(tokens, np.argsort(~real, axis=1, kind="stable"), 1), real.sum(1))
