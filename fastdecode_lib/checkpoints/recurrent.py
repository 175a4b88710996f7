"""The shape of a recurrent translation model: its settings, its tensors by name, and the seven systems of Devlin (2017).

Every matrix is stored as (outputs, inputs) and applied as ``x @ matrix.T``. G is the number of gates (3 of a GRU, 4 of an LSTM),
E the width of embeddings, H of one direction of the source, D of the target's recurrent layers, A of the attention, F of the
fully-connected layers and S = 2 H of the source's hidden vectors:

======================================= ==================== =========================================================
name                                    shape                what it is (Devlin, 2017, sec. 4 and 5)
======================================= ==================== =========================================================
``source.embedding``                    (source V, E)        a row per source word
``source.L.forward.W``, ``.V``, ``.b``  (GH, H) (GH, in) GH  layer L from 0, read left to right: W on its last state, V on
                                                             its input, b; a bidirectional layer also has ``.backward.``
``target.embedding``                    (V, E)               x: a row per target word
``target.bottom.W``, ``.V``, ``.U``     (GD, D) (GD, E)      the attentional layer: W on its last state, V on x, U on the
``target.bottom.b``                     (GD, S) GD           context c, and the bias b
``target.attention.Wa``, ``.Va``        (A, D) (A, E)        the query ``tanh(Wa h + Va x)``
``target.attention.Ua``                 (A, S)               the keys ``tanh(Ua s)``
``target.extra.L.W``, ``.V``, ``.b``    (GD, D) (GD, D) GD   further recurrent layers, from 0
``target.fc.K``                         (F, D or F)          fully-connected layers W1, W2 ..., K from 1, no biases
``target.top``                          (D, F)               WT of a tanh layer on top; a recurrent one instead has
                                                             ``target.top.W``, ``.V``, ``.b``: (GD, D) (GD, F) GD
``output.V``                            (V, D)               ``softmax(V h)``, no bias
======================================= ==================== =========================================================

The rows of W, V, U and b are the gates one after another: update u, reset r, candidate of a GRU; input, forget, output,
candidate of an LSTM. A one-directional source layer has width S (GS, S); the two directions of a bidirectional one have width H.
"""

from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

from fastdecode_lib.checkpoints.shape import Shape

RECURRENT = "fastdecode_recurrent"
"""The model type of fastdecode's recurrent checkpoints."""

Cell = Literal["gru", "lstm"]
Top = Literal["none", "tanh", "recurrent"]
GATES = {"gru": 3, "lstm": 4}
STATES = {"gru": 1, "lstm": 2}
"""State vectors of a cell: the hidden vector, and then the memory cell of an LSTM."""
RELU_LIMIT, WEIGHT_LIMIT = 10.0, 1.0
"""Limits to which relu outputs and weights are clipped, so that 16-bit integers hold both (Devlin, 2017, sec. 4.1)."""


@dataclass(frozen=True)
class RecurrentShape(Shape):
    """Sizes of an attentional recurrent encoder-decoder; the defaults are the paper's S1.

    Attributes
    ----------
    source_vocabulary, vocabulary : int
        Words of the source and of the target; 80,000 each in the paper.
    embedding : int
        The paper does not give it; 512 is ours.
    cell : "gru" or "lstm"
    source_layers, bidirectional_layers : int
        Number of source layers, and how many of them, from the lowest, run in both directions.
    source_width : int
        Width of one direction; the two directions are concatenated.
    width : int
        Width of the target's bottom layer, its further recurrent layers and its top.
    attention : int
        Width of queries and keys. The paper does not give it; ours is `width`.
    extra_layers : int
        Recurrent layers above the bottom one.
    fc_layers, fc_width : int
        Number and width of the fully-connected layers above them.
    top : "none", "tanh" or "recurrent"
        The layer between the last layer and the output matrix.
    residual : bool
        One-directional source layers and extra target layers add their input to their output, so that eight of them train.
    max_positions : int
        Most slots of a source and of a target.
    """

    source_vocabulary: int = 80_000
    vocabulary: int = 80_000
    embedding: int = 512
    cell: Cell = "gru"
    source_layers: int = 3
    bidirectional_layers: int = 3
    source_width: int = 512
    width: int = 1024
    attention: int = 1024
    extra_layers: int = 0
    fc_layers: int = 0
    fc_width: int = 768
    top: Top = "none"
    residual: bool = False
    max_positions: int = 256

    model_type: ClassVar[str] = RECURRENT

    def __post_init__(self) -> None:
        for name in ("cell", "top"):
            allowed = get_args({"cell": Cell, "top": Top}[name])
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"Unknown {name} of a recurrent model: got {getattr(self, name)!r}. Use one of {', '.join(allowed)}."
                )
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name in ("extra_layers", "fc_layers") else 1
            if field.type is int and (type(value) is not int or value < least):
                raise ValueError(
                    f"{field.name} of a recurrent model must be a whole number from {least}: got {value!r}. Correct it."
                )
        if not 1 <= self.bidirectional_layers <= self.source_layers:
            raise ValueError(
                f"bidirectional_layers must be from 1 to source_layers = {self.source_layers}: got "
                f"{self.bidirectional_layers}. The lowest layer reads in both directions."
            )
        if self.fc_layers and self.top == "none":
            raise ValueError(
                f"Fully-connected layers need a top: got fc_layers={self.fc_layers} and top='none'. Use top='tanh'."
            )

    @property
    def config(self) -> dict[str, Any]:
        """The settings in ``config.json``."""
        return {"model_type": RECURRENT, "is_encoder_decoder": True, **asdict(self)}

    @property
    def layers(self) -> int:
        """Layers of both sides without the target's bottom and top layers."""
        return self.source_layers + self.extra_layers + self.fc_layers

    @property
    def gates(self) -> int:
        """G, the gates of a cell."""
        return GATES[self.cell]

    @property
    def states(self) -> int:
        """Number of state vectors of a cell."""
        return STATES[self.cell]

    @property
    def memory(self) -> int:
        """S, the width of the source's hidden vectors."""
        return 2 * self.source_width

    @property
    def recurrent_layers(self) -> tuple[str, ...]:
        """Names of the target's recurrent layers, the lowest first."""
        extra = tuple(f"target.extra.{layer}" for layer in range(self.extra_layers))
        return ("target.bottom", *extra, *(("target.top",) if self.top == "recurrent" else ()))

    @cached_property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor."""
        shapes: dict[str, tuple[int, ...]] = {"source.embedding": (self.source_vocabulary, self.embedding)}

        def cell(name: str, width: int, inputs: int) -> None:
            rows = self.gates * width
            shapes.update({f"{name}.W": (rows, width), f"{name}.V": (rows, inputs), f"{name}.b": (rows,)})

        for layer in range(self.source_layers):
            inputs = self.memory if layer else self.embedding
            if layer < self.bidirectional_layers:
                cell(f"source.{layer}.forward", self.source_width, inputs)
                cell(f"source.{layer}.backward", self.source_width, inputs)
            else:
                cell(f"source.{layer}.forward", self.memory, inputs)
        shapes["target.embedding"] = (self.vocabulary, self.embedding)
        cell("target.bottom", self.width, self.embedding)
        shapes["target.bottom.U"] = (self.gates * self.width, self.memory)
        shapes["target.attention.Wa"] = (self.attention, self.width)
        shapes["target.attention.Va"] = (self.attention, self.embedding)
        shapes["target.attention.Ua"] = (self.attention, self.memory)
        for layer in range(self.extra_layers):
            cell(f"target.extra.{layer}", self.width, self.width)
        for layer in range(1, self.fc_layers + 1):
            shapes[f"target.fc.{layer}"] = (self.fc_width, self.width if layer == 1 else self.fc_width)
        top_input = self.fc_width if self.fc_layers else self.width
        if self.top == "tanh":
            shapes["target.top"] = (self.width, top_input)
        elif self.top == "recurrent":
            cell("target.top", self.width, top_input)
        shapes["output.V"] = (self.vocabulary, self.width)
        return shapes


_SYSTEMS: dict[str, dict[str, Any]] = {
    "S1": {},
    "S2": {"extra_layers": 1},
    "S3": {"fc_layers": 3, "top": "tanh"},
    "S4": {"fc_layers": 7, "top": "tanh"},
    "S5": {"fc_layers": 7, "top": "recurrent"},
    "S6": {"fc_layers": 15, "top": "tanh"},
    "S7": {"cell": "lstm", "source_layers": 8, "bidirectional_layers": 1, "extra_layers": 7, "residual": True},
}
"""The systems of table 2 of the paper, with the settings in which they differ from S1."""

SYSTEMS = tuple(_SYSTEMS)
_QUARTER: dict[str, Any] = {"embedding": 128, "source_width": 128, "width": 256, "attention": 256, "fc_width": 192}


def system(
    name: str, size: Literal["paper", "small"] = "paper", *, source_vocabulary: int = 80_000, vocabulary: int = 80_000
) -> RecurrentShape:
    """One of the systems of table 2, at the paper's size or, if ``"small"``, with a quarter of every width.

    S7 is the paper's reproduction of Google's model. Its source has eight LSTM layers with 512 (128) units for each direction,
    of which the lowest is bidirectional, as Google's; its target has eight LSTM layers, of which the lowest attends. The paper
    does not give these, nor the widths of embeddings (ours: 512) and of the attention (ours: that of the target).

    Raises
    ------
    ValueError
        If there is no such system or size.
    """
    if name not in _SYSTEMS or size not in ("paper", "small"):
        raise ValueError(
            f"Unknown system or size: got {name!r}, {size!r}. Use one of {', '.join(_SYSTEMS)}, and 'paper' or 'small'."
        )
    shape = RecurrentShape(source_vocabulary, vocabulary, **_SYSTEMS[name])
    return replace(shape, **_QUARTER) if size == "small" else shape
