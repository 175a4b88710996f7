"""The shape of a word-based LSTM language model: its settings and its tensors by name.

With V words and D the width of embeddings and layers; every matrix is stored as (outputs, inputs):

============================== ================= ==============================================================
name                           shape             what it is
============================== ================= ==============================================================
``embedding``                  (V, D)            a row per word
``layers.L.W``, ``.V``, ``.b`` (4D, D) (4D, D)   layer L from 0: W on its last state, V on its input, and the bias
                               (4D,)             (gates input, forget, output, candidate)
``output.V``, ``output.bias``  (V, D) (V,)       ``softmax(V h + bias)``
============================== ================= ==============================================================
"""

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

from fastdecode_lib.checkpoints.shape import Shape

LANGUAGE = "fastdecode_language"
"""The model type of fastdecode's language models."""


@dataclass(frozen=True)
class LanguageShape(Shape):
    """Sizes of a language model; the defaults are those of PTB-Small in table 1 of Chen et al. (2019).

    Attributes
    ----------
    vocabulary : int
    width : int
        Width of embeddings and of every layer.
    layers : int
    max_positions : int
        Most slots of a text, with the start symbol.
    """

    vocabulary: int = 10_000
    width: int = 200
    layers: int = 2
    max_positions: int = 256

    model_type: ClassVar[str] = LANGUAGE
    cell: ClassVar[str] = "lstm"
    states: ClassVar[int] = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise ValueError(
                    f"{field.name} of a language model must be a whole number from 1: got {value!r}. Correct it."
                )

    @property
    def config(self) -> dict[str, Any]:
        """The settings in ``config.json``."""
        return {"model_type": LANGUAGE, "is_encoder_decoder": False, **asdict(self)}

    @property
    def recurrent_layers(self) -> tuple[str, ...]:
        """Names of the layers, the lowest first."""
        return tuple(f"layers.{layer}" for layer in range(self.layers))

    @cached_property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor."""
        width, gates = self.width, 4 * self.width
        shapes: dict[str, tuple[int, ...]] = {"embedding": (self.vocabulary, width)}
        for name in self.recurrent_layers:
            shapes |= {f"{name}.W": (gates, width), f"{name}.V": (gates, width), f"{name}.b": (gates,)}
        return shapes | {"output.V": (self.vocabulary, width), "output.bias": (self.vocabulary,)}
