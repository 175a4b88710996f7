"""LSTM language models in torch (Chen et al., 2019, table 1): a target without a source.

They are `core.Model`, so that every decoder and every projection runs on them; the source only gives the number of texts.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from fastdecode_lib.core import Source
from fastdecode_lib.models.recurrent import Network, Recurrent


@dataclass(frozen=True)
class NoMemory:
    """Stand-in for the encoder's output of models without an encoder: the number of texts."""

    rows: int

    def gather(self, rows: np.ndarray) -> "NoMemory":
        """The same for these rows."""
        return NoMemory(len(rows))


class LanguageNetwork(Network):
    """The layers, on tensors by name: training and decoding run the same ones."""

    def decode(self, memory: Any, ids: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor], Any]:
        """Feed words (B, W) one after another, from a state (B, 2 D) of each layer.

        Returns
        -------
        tuple
            The output's hidden vectors (B, W, D), the states after every word, each (B, W, 2 D), and None for attention.
        """
        hidden, states_after = self._dropped(self.tensors["embedding"][ids]), []
        for name, state in zip(self.shape.recurrent_layers, states, strict=True):
            hidden, layer_states = self._layer(name, hidden, state)
            hidden = self._dropped(hidden)
            states_after.append(layer_states)
        return hidden, states_after, None

    def first_states(self, rows: int) -> list[Tensor]:
        """Zeros for every layer, each (B, 2 D)."""
        like, size = self.tensors["output.V"], 2 * self.shape.width
        return [like.new_zeros(rows, size) for _ in self.shape.recurrent_layers]


class Language(Recurrent):
    """A language model in torch, of a `LanguageShape`; satisfies `core.Model`, the source being None or a number of empty rows."""

    equations = LanguageNetwork

    def encode(self, source: Source | None) -> Any:
        """The number of texts; one if there is no source."""
        return NoMemory(1 if source is None else len(source))
