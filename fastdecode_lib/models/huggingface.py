"""Any encoder-decoder of transformers (T5, BART, Pegasus, ...) through its own forward, one row at a time."""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastdecode_lib.core import Kind, Output, Source
from fastdecode_lib.models.states import SlotsInOrder, check_length


@dataclass
class HuggingFaceState(SlotsInOrder):
    """The module's own key-value cache for one row; see `core.State`."""

    memory: dict[str, Any]
    """What the module's forward takes in every pass: the encoder's output, the source's mask."""
    cache: Any
    most: int
    filled: np.ndarray
    before_step: np.ndarray

    @property
    def capacity(self) -> int:
        """Most slots of the row."""
        return self.most

    def truncate(self, lengths: np.ndarray) -> None:
        """Forget everything after the first `lengths` slots."""
        super().truncate(lengths)
        for layer in self.cache.self_attention_cache.layers:
            if layer.keys is not None:
                layer.keys = layer.keys[:, :, : int(self.filled[0])]
                layer.values = layer.values[:, :, : int(self.filled[0])]

    def select(self, rows: np.ndarray) -> "HuggingFaceState":
        """Copies of the one row cannot stand in one state; several hypotheses need several rows."""
        import copy

        if list(rows) != [0]:
            raise ValueError(
                f"This model runs row by row: got a choice of {len(rows)} rows. Beam search with size > 1 needs a Marian, mBART "
                "or M2M-100 model."
            )
        return HuggingFaceState(self.memory, copy.deepcopy(self.cache), self.most, self.filled, self.before_step)


class HuggingFaceModel:
    """Adapter for `transformers` sequence-to-sequence models; satisfies `core.Model` for batches of one row.

    The hidden vector is what the module's output matrix multiplies, caught on its way there.
    """

    kind: Kind = "causal"
    tokens_per_step = 1
    both_ends = False
    supports: frozenset[str] = frozenset()
    engine = "huggingface"

    def __init__(self, module: Any, max_length: int):
        self.module = module
        self.device, self.dtype = module.device, module.dtype
        self.max_source = self.max_target = max_length
        head = module.get_output_embeddings()
        bias = getattr(module, "final_logits_bias", None)
        if bias is None:
            bias = getattr(head, "bias", None)
        self.outputs: tuple[Output, ...] = (Output(head.weight.detach(), None if bias is None else bias.detach()),)
        self._prepare()

    def _prepare(self) -> None:
        self.module.eval()
        self._caught = threading.local()
        self.module.get_output_embeddings().register_forward_pre_hook(self._catch)

    def _catch(self, _head: Any, inputs: tuple[Tensor, ...]) -> None:
        self._caught.hidden = inputs[0]

    @torch.inference_mode()
    def encode(self, source: Source) -> Any:
        """Run the module's encoder on one sentence."""
        if len(source) != 1:
            raise ValueError(f"This model runs row by row: got a batch of {len(source)}. Give one sentence at a time.")
        check_length(source.lengths, self.max_source)
        ids = torch.from_numpy(source.row(0).ids).to(self.device)
        mask = torch.ones_like(ids)
        encoded = self.module.get_encoder()(input_ids=ids, attention_mask=mask, return_dict=True)
        return {"encoder_outputs": encoded, "attention_mask": mask}

    def source_vectors(self, encoded: Any) -> list[np.ndarray]:
        """See `core.Vectors`: the encoder's output."""
        return [encoded["encoder_outputs"].last_hidden_state[0].float().cpu().numpy()]

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> HuggingFaceState:
        """A state fed with all but the last of the prefix ids (1, P)."""
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache

        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        nothing = np.zeros(1, dtype=np.int64)
        state = HuggingFaceState(encoded, cache, min(capacity or self.max_target, self.max_target), nothing, nothing)
        if prefix.shape[1] > 1:
            self.step(state, prefix[:, :-1])
        return state

    @torch.inference_mode()
    def step(self, state: HuggingFaceState, tokens: np.ndarray, visible: np.ndarray | None = None) -> Tensor:
        """Feed tokens (1, W) and return hidden vectors (1, W, D)."""
        if visible is not None or (tokens < 0).any():
            raise ValueError(
                "This model runs without candidate trees and ragged rows. Use a Marian, mBART or M2M-100 model."
            )
        counts = state.feeding(tokens).sum(1)
        output = self.module(
            **state.memory,
            decoder_input_ids=torch.from_numpy(np.ascontiguousarray(tokens)).to(self.device),
            past_key_values=state.cache,
            use_cache=True,
            return_dict=True,
        )
        state.advance(counts)
        return self._hidden(output)

    def _hidden(self, output: Any) -> Tensor:
        caught: Tensor = self._caught.hidden
        del self._caught.hidden
        return caught


class LogitsModel(HuggingFaceModel):
    """The same for a module that belongs to somebody else, which it neither sets nor hooks.

    Instead of hidden vectors it returns the logits that the module makes of them, (1, W, V). What it starts from are the
    arguments, ``encoder_outputs`` among them, that the module's forward takes in every pass.
    """

    def _prepare(self) -> None:
        pass

    def _hidden(self, output: Any) -> Tensor:
        logits: Tensor = output.logits
        return logits
