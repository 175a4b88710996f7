"""The network that decodes for a module of transformers: our engines where they run it, else its own forward."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.core import Source

if TYPE_CHECKING:
    from torch import Tensor


class Start(NamedTuple):
    """What decoding with a network starts from, and the logits of its hidden vectors.

    Attributes
    ----------
    memory : callable
        Number of a batch's first row to what the network starts the batch from.
    single : callable
        The same for the one row.
    score : callable
        Hidden vectors (N, D) to logits (N, V), a new float32 tensor.
    """

    memory: Callable[[int], Any]
    single: Callable[[int], Any]
    score: Callable[[Any], "Tensor"]


def network_of(
    model: Any, known: dict[str, Any], inputs: dict[str, Any], ids: "Tensor", packed: bool
) -> tuple[Any, Callable[[int], Any], Callable[[Any], "Tensor"]]:
    """The network for a module, with `Start`'s `memory` and `score`; compared with the module's own steps if not `known`."""
    from fastdecode_lib.models.huggingface import LogitsModel, check_passes
    from fastdecode_lib.models.transformer import Transformer

    given = private.prepared(inputs)
    network: Any = (_compiled(model, known) if packed else None) or Transformer.of_module(model)
    own: Any = None
    if network is None or network.engine not in known:
        places = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None) or sys.maxsize
        own = LogitsModel(model, places)
    if network is None:
        network, start = own, _on_module(given, ids)
    elif network.engine == "compiled":
        start = _on_kernels(network, given)
    else:
        start = _on_tensors(network, given, ids)
    if network.engine not in known:
        encoded = {name: _row_of(value, 0, len(ids)) for name, value in given.items()}
        if check_passes(network, start.single(0), start.score, own, encoded, ids[:1].cpu().numpy()):
            known[network.engine] = True
    return network, start.memory, start.score


def _on_module(given: dict[str, Any], ids: "Tensor") -> Start:
    """The module's own forward, one row at a time."""
    import torch

    def memory(row: int) -> Any:
        return {name: _row_of(value, row, len(ids)) for name, value in given.items()}

    return Start(memory, memory, lambda vectors: vectors.to(ids.device, torch.float32, copy=True))


def _on_kernels(network: Any, given: dict[str, Any]) -> Start:
    """The compiled engine, on all rows together."""
    import torch

    hidden, mask = given["encoder_outputs"][0], given.get("attention_mask")
    real = np.ones(hidden.shape[:2], dtype=bool) if mask is None else mask.numpy().astype(bool)
    whole, weight = network.remember(hidden.detach().numpy(), real), network.outputs[0].weight
    return Start(
        lambda _: whole,
        lambda _: network.remember(hidden[:1].detach().numpy(), real[:1]),
        lambda vectors: torch.from_numpy(weight(vectors)),
    )


def _on_tensors(network: Any, given: dict[str, Any], ids: "Tensor") -> Start:
    """The functional transformer on the module's tensors, on all rows together."""
    import torch

    from fastdecode_lib.kernels.products import Product

    hidden, mask = given["encoder_outputs"][0], given.get("attention_mask")
    real = None if mask is None or bool(mask.all()) else mask.to(network.device, torch.bool)[:, None, None]
    whole = network.remember(hidden, real)
    weight, bias = network.outputs[0].weight, network.outputs[0].bias
    bias = weight.new_zeros(len(weight)) if bias is None else bias.reshape(-1)
    product = Product.of(weight, bias, copy=False)
    return Start(
        lambda _: whole,
        lambda _: whole.gather(torch.zeros(1, dtype=torch.long, device=network.device)),
        lambda vectors: product(vectors).to(ids.device, torch.float32),
    )


def _compiled(model: Any, known: dict[str, Any]) -> Any:
    """The module on the compiled kernels, None where they do not run it; made again when its weights have changed.

    `private.notes` sees most changes, but not those of a tensor's ``.data``: these show in products with a fixed vector, if they
    are larger than rounding.
    """
    network, before = known.get("packed", (None, []))
    now = [] if network is None else _products(model)
    if "packed" not in known or any((a != b).any() for a, b in zip(before, now, strict=True)):
        from fastdecode_lib.models.compiled_transformer import CompiledTransformer

        known.clear()
        network = CompiledTransformer.of_module(model)
        known["packed"] = network, [] if network is None else _products(model)
    return network


def _products(model: Any) -> "list[Tensor]":
    """Fingerprint of each tensor that a module decodes with: vectors as they are, matrices as a product."""
    import torch

    head, bias = private.head_of(model, called=False)
    found = [t for part in (model.get_decoder(), head) for t in (*part.parameters(), *part.buffers())]
    found += [] if bias is None else [bias]
    tensors = [tensor.detach().float() for tensor in {id(tensor): tensor for tensor in found}.values()]
    widest = max(tensor.shape[-1] for tensor in tensors if tensor.ndim)
    probe = torch.linspace(1, 2, widest)
    return [t.flatten(0, -2) @ probe[: t.shape[-1]] if t.ndim > 1 else t.clone() for t in tensors]


def _row_of(value: Any, row: int, batch: int) -> Any:
    """One row of everything that has rows."""
    if hasattr(value, "shape"):
        return value[row : row + 1] if value.ndim and len(value) == batch else value
    if isinstance(value, dict):
        return type(value)(**{name: _row_of(part, row, batch) for name, part in value.items()})
    return tuple(_row_of(part, row, batch) for part in value) if isinstance(value, tuple) else value


def source_of(ids: "Tensor | None", inputs: dict[str, Any], padding: int) -> Source:
    """The source for lengths and drafts: real tokens first; padding where `generate` was given no ids."""
    hidden, mask = inputs["encoder_outputs"][0], inputs.get("attention_mask")
    real = np.ones(hidden.shape[:2], dtype=bool)
    if mask is not None and mask.shape == real.shape:
        real = mask.bool().cpu().numpy()
    tokens = np.full(real.shape, padding, dtype=np.int64)
    if ids is not None and ids.shape == real.shape and not ids.is_floating_point() and bool((ids >= 0).all()):
        tokens = ids.cpu().numpy()
    return Source(np.take_along_axis(tokens, np.argsort(~real, axis=1, kind="stable"), 1), real.sum(1))
