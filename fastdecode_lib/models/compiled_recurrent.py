"""The recurrent models of Devlin (2017) on a CPU; one file because every speed-up is a switch of the same step.

Every state is a node, and a row of the decoder's state is a path of nodes. Hypotheses share the states of their common nodes, so
that no numbers are compared to find shared states (sec. 4.5).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fastdecode_lib.checkpoints.recurrent import RELU_LIMIT, RecurrentShape
from fastdecode_lib.core import Kind, Output, Source
from fastdecode_lib.kernels import recurrent as kernels
from fastdecode_lib.kernels.ids import checked
from fastdecode_lib.kernels.matrices import FIELDS, Matrix, scratch
from fastdecode_lib.models.states import SlotsInOrder, check_length, check_prefix

Products = Literal["blas", "float32", "int16", "fixed16", "int8"]
FUNCTIONS = {"library": kernels.LIBRARY, "table": kernels.TABLE, "polynomial": kernels.POLYNOMIAL}
MULTIPLIER = 1024
"""Scale of the paper's fixed-point numbers (its reference implementation)."""


@dataclass(frozen=True)
class Speedups:
    """Options of a recurrent model's decoding; the defaults are the paper's baseline.

    Attributes
    ----------
    products : str
        Matrix products (sec. 4.1): ``"blas"`` (torch's library, MKL on x86; numpy's for the candidates), ``"float32"`` (ours,
        packed), ``"int16"`` (a scale for each output and each row), ``"fixed16"`` (everything times 1,024, the paper's),
        ``"int8"``. Without ``"blas"``, the loop over the source's words and the ranking of candidates are compiled too.
    embeddings : int
        Number of most frequent words whose products with the embeddings are computed in advance (sec. 4.2).
    attention : bool
        U s is computed once for each source word instead of U c at every step (sec. 4.3).
    functions : str
        Sigmoid and tanh (sec. 4.4): ``"library"`` (one after another), ``"table"`` or ``"polynomial"``.
    merged : bool
        A state that several hypotheses share goes through its products once (sec. 4.5).
    """

    products: Products = "blas"
    embeddings: int = 0
    attention: bool = False
    functions: str = "library"
    merged: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("products", ("blas", "float32", "int16", "fixed16", "int8")), ("functions", FUNCTIONS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"Unknown {name}: got {getattr(self, name)!r}. Use one of {', '.join(allowed)}.")
        if type(self.embeddings) is not int or self.embeddings < 0:
            raise ValueError(f"embeddings must be a number of words from 0 on: got {self.embeddings!r}. Example: 8000.")


def ladder(products: Products = "int16", embeddings: int = 8_000) -> dict[str, Speedups]:
    """The stages of the paper's table 1, each with all before it."""
    stages = {"baseline": Speedups()}
    changes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("16-bit products", {"products": products}),
        ("precomputed embeddings", {"embeddings": embeddings}),
        ("precomputed attention", {"attention": True}),
        ("lookup tables", {"functions": "table"}),
        ("merged states", {"merged": True}),
    )
    current = Speedups()
    for name, change in changes:
        current = stages[name] = replace(current, **change)
    return stages


FASTEST = Speedups("float32", 8_000, True, "polynomial", True)
"""Options that `load` chooses, with the products in the precision that the caller chose."""

Product = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class BlasProduct:
    """``x @ weight.T + bias`` by torch's library, with the weight (N, K) in its original layout."""

    weight: Any
    bias: Any

    @classmethod
    def of(cls, weight: np.ndarray, bias: np.ndarray | None) -> "BlasProduct":
        """Wrap numpy arrays, which are shared."""
        import torch

        return cls(torch.from_numpy(weight), None if bias is None else torch.from_numpy(bias))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Rows (n, K) to (n, N)."""
        import torch

        return torch.nn.functional.linear(torch.from_numpy(x), self.weight, self.bias).numpy()


@dataclass(frozen=True)
class RecurrentMemory:
    """Memory of the attention: keys tanh(Ua s) (B, S, A), values (B, S, 2 H) or, precomputed, (B, S, G D), lengths (B,)."""

    keys: np.ndarray
    values: np.ndarray
    lengths: np.ndarray

    @property
    def rows(self) -> int:
        """B, the number of sentences."""
        return len(self.lengths)


@dataclass
class _Nodes:
    """States of the recurrent layers, one row for each node; node 0 is the first state, zero."""

    layers: list[np.ndarray]
    used: int = 1
    shared: bool = False
    """Whether several decoder states have paths of these nodes."""

    def add(self, number: int) -> int:
        """Add nodes, and return the index of the first."""
        if self.used + number > len(self.layers[0]):
            growth = max(number, len(self.layers[0]))
            self.layers = [
                np.concatenate([layer, np.zeros((growth, layer.shape[1]), np.float32)]) for layer in self.layers
            ]
        self.used += number
        return self.used - number


@dataclass
class CompiledRecurrentState(SlotsInOrder):
    """The nodes of each row, (B, C + 1) with the first state at entry 0, and the row's length; see `core.State`.

    States selected from one another share their nodes: step them in one thread.
    """

    nodes: _Nodes
    path: np.ndarray
    memory: RecurrentMemory
    inverse: np.ndarray
    """Row of the memory that each row of the state reads, (B,)."""
    filled: np.ndarray
    before_step: np.ndarray

    @property
    def capacity(self) -> int:
        """Most slots of a row."""
        return self.path.shape[1] - 1

    def truncate(self, lengths: np.ndarray) -> None:
        """Forget everything after the first `lengths` slots of each row."""
        super().truncate(lengths)
        if not self.nodes.shared:
            remaining = np.arange(self.path.shape[1]) <= self.filled[:, None]
            self.nodes.used = int(self.path.max(where=remaining, initial=0)) + 1

    def select(self, rows: np.ndarray) -> "CompiledRecurrentState":
        """A state of these rows by their nodes; states are neither copied nor ever changed."""
        rows = np.asarray(rows, dtype=np.int64)
        self.nodes.shared = True
        return CompiledRecurrentState(
            self.nodes, self.path[rows], self.memory, self.inverse[rows], self.filled[rows], self.before_step[rows]
        )


class CompiledRecurrent:
    """A recurrent translation model on compiled kernels; satisfies `core.Model`.

    Parameters
    ----------
    shape : RecurrentShape
    tensors : mapping of name to float32 array
        See `checkpoints.recurrent`.
    speedups : Speedups
    """

    kind: Kind = "causal"
    tokens_per_step = 1
    both_ends = False
    supports = frozenset({"ragged"})
    engine = "compiled"

    def __init__(self, shape: RecurrentShape, tensors: Mapping[str, np.ndarray], speedups: Speedups = FASTEST):
        self.architecture, self.speedups = shape, speedups
        self.max_source = self.max_target = shape.max_positions
        self.way = FUNCTIONS[speedups.functions]
        self.cell = kernels.GRU if shape.cell == "gru" else kernels.LSTM
        self.gates = shape.gates * shape.width
        t = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in tensors.items()}
        self.source_embedding, self.target_embedding = t["source.embedding"], t["target.embedding"]

        def product(name: str, weight: np.ndarray, bias: np.ndarray | None = None, largest: float = 1.0) -> Any:
            return _product(name, weight, bias, largest, speedups.products)

        self.source_layers: list[list[tuple[Any, Any]]] = []
        """The products with V and W, by layer and direction."""
        for layer in range(shape.source_layers):
            directions = ["forward", "backward"] if layer < shape.bidirectional_layers else ["forward"]
            names = [f"source.{layer}.{direction}" for direction in directions]
            limit = 1.0 + (shape.residual and max(0, layer - shape.bidirectional_layers))
            self.source_layers.append(
                [(product(f"{n}.V", t[f"{n}.V"], t[f"{n}.b"], limit), product(f"{n}.W", t[f"{n}.W"])) for n in names]
            )
        self.keys = product("target.attention.Ua", t["target.attention.Ua"], None, self._source_top)
        self.context = product("target.bottom.U", t["target.bottom.U"], None, self._source_top)
        stack = [np.concatenate([t[f"target.bottom.{m}"], t[f"target.attention.{m}a"]]) for m in ("W", "V")]
        bias = np.concatenate([t["target.bottom.b"], np.zeros(shape.attention, np.float32)])
        self.from_state = product("target.bottom.W", stack[0])
        self.from_word = product("target.bottom.V", stack[1], bias)
        words = min(speedups.embeddings, shape.vocabulary)
        self.word_table = t["target.embedding"][:words] @ stack[1].T + bias
        """Outputs of `from_word` for the most frequent words, (k, G D + A)."""
        words = min(speedups.embeddings, shape.source_vocabulary)
        self.source_tables = [
            t["source.embedding"][:words] @ t[f"source.0.{direction}.V"].T + t[f"source.0.{direction}.b"]
            for direction in ("forward", "backward")
        ]
        self.extra = [
            self._recurrent(t, product, f"target.extra.{layer}", 1.0 + shape.residual * layer)
            for layer in range(shape.extra_layers)
        ]
        limit = 1.0 + shape.residual * shape.extra_layers
        self.fully_connected = [
            product(f"target.fc.{layer}", t[f"target.fc.{layer}"], None, limit if layer == 1 else RELU_LIMIT)
            for layer in range(1, shape.fc_layers + 1)
        ]
        limit = RELU_LIMIT if shape.fc_layers else limit
        self.tops: list[Any] = []
        """The layer with tanh above the fully-connected ones, if there is one."""
        if shape.top == "tanh":
            self.tops = [product("target.top", t["target.top"], None, limit)]
            limit = 1.0
        elif shape.top == "recurrent":
            self.recurrent_top = self._recurrent(t, product, "target.top", limit)
            limit = 1.0
        self._point()
        output = t["output.V"]
        packed = None if speedups.products == "blas" else product("output.V", output, None, limit)
        self.outputs: tuple[Output, ...] = (Output(output if packed is None else packed),)

    def _point(self) -> None:
        """Write the addresses of the layers that one kernel takes together; there are none for BLAS."""
        self.records = None
        if self.speedups.products != "blas":
            groups = self.fully_connected, self.tops
            self.records = tuple(np.array([m.record for m in group], np.int64).reshape(-1, FIELDS) for group in groups)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Write the addresses anew: a copy has its own arrays."""
        self.__dict__.update(state)
        self._point()

    @property
    def _source_top(self) -> float:
        """The largest entry that a source vector can have."""
        shape = self.architecture
        return 1.0 + (shape.source_layers - shape.bidirectional_layers if shape.residual else 0)

    @staticmethod
    def _recurrent(
        t: Mapping[str, np.ndarray], product: Callable[..., Any], name: str, largest: float
    ) -> tuple[Any, Any]:
        """The products with V and W of a layer of the target."""
        return product(f"{name}.V", t[f"{name}.V"], t[f"{name}.b"], largest), product(f"{name}.W", t[f"{name}.W"])

    # -- source

    def encode(self, source: Source) -> RecurrentMemory:
        """Run the source's layers over each sentence of a batch."""
        lengths = source.lengths.astype(np.int64)
        longest = check_length(lengths, self.max_source)
        shape = self.architecture
        keys = np.zeros((len(lengths), longest, shape.attention), np.float32)
        values = np.zeros((len(lengths), longest, self.gates if self.speedups.attention else shape.memory), np.float32)
        for row, length in enumerate(lengths):
            ids = checked("source tokens", source.ids[row, :length], 0, shape.source_vocabulary)
            vectors = self._encode_sentence(ids)
            projected = np.ascontiguousarray(self.keys(vectors))
            kernels.tangent(projected.reshape(-1), self.way)
            keys[row, :length] = projected
            values[row, :length] = self.context(vectors) if self.speedups.attention else vectors
        return RecurrentMemory(keys, values, lengths)

    def _encode_sentence(self, ids: np.ndarray) -> np.ndarray:
        """The source's hidden vectors (S, 2 H) of one sentence."""
        shape = self.architecture
        x = self.source_embedding[ids]
        for number, directions in enumerate(self.source_layers):
            width = shape.source_width if len(directions) == 2 else shape.memory
            hidden = np.empty((len(ids), shape.memory), np.float32)
            for side, (from_input, from_state) in enumerate(directions):
                table = self.source_tables[side] if number == 0 else self.source_tables[0][:0]
                inputs = _table_or_product(table, ids, x, from_input)
                self._run(np.ascontiguousarray(inputs), from_state, width, side == 1, hidden, side * width)
            x = hidden + x if shape.residual and number >= shape.bidirectional_layers else hidden
        return x

    def _run(
        self, inputs: np.ndarray, from_state: Any, width: int, backwards: bool, hidden: np.ndarray, column: int
    ) -> None:
        """One direction of a source layer, from its inputs (S, G H) into columns of `hidden`."""
        if isinstance(from_state, Matrix):
            rounded = scratch(1, width)
            kernels.direction(self.cell, inputs, from_state.record, rounded, width, backwards, hidden, column, self.way)
            return
        states = np.zeros((len(inputs) + 1, width * self.architecture.states), np.float32)
        order = range(len(inputs) - 1, -1, -1) if backwards else range(len(inputs))
        zero = np.zeros(1, np.int64)
        for step, place in enumerate(order):
            product = from_state(states[step : step + 1, :width])
            node = np.array([step])
            kernels.cells(self.cell, states, node, product, zero, inputs[place : place + 1], step + 1, self.way)
            hidden[place, column : column + width] = states[step + 1, :width]

    # -- target

    def source_vectors(self, encoded: RecurrentMemory) -> list[np.ndarray]:
        """See `core.Vectors`: the keys of the attention."""
        return [row[:length] for row, length in zip(encoded.keys, encoded.lengths, strict=True)]

    def start(
        self, encoded: RecurrentMemory, prefix: np.ndarray, capacity: int | None = None
    ) -> CompiledRecurrentState:
        """A state with room for `capacity` slots, fed with all but the last of the prefix ids (B, P)."""
        check_prefix(prefix, encoded.rows)
        slots = min(capacity or self.max_target, self.max_target)
        shape, rows = self.architecture, len(prefix)
        nodes = _Nodes(
            [np.zeros((1 + 64 * rows, shape.states * shape.width), np.float32) for _ in shape.recurrent_layers]
        )
        lengths = np.zeros(rows, dtype=np.int64)
        state = CompiledRecurrentState(
            nodes, np.zeros((rows, slots + 1), np.int64), encoded, np.arange(rows), lengths, lengths.copy()
        )
        if prefix.shape[1] > 1:
            self.step(state, prefix[:, :-1])
        return state

    def step(self, state: CompiledRecurrentState, tokens: np.ndarray, visible: np.ndarray | None = None) -> np.ndarray:
        """Feed tokens (B, W) one after another, -1 feeding nothing, and return hidden vectors (B, W, D).

        Raises
        ------
        ValueError
            If `visible` is given, or the slots do not fit or have gaps within a row.
        """
        if visible is not None:
            raise ValueError(
                "A recurrent model feeds one slot after another: got `visible`, which lets slots stand side by side. "
                "Use a draft source with one candidate."
            )
        tokens, counts, _ = state.checked_step(tokens, self.architecture.vocabulary)
        hidden = np.zeros((*tokens.shape, self.architecture.width), np.float32)
        for slot in range(tokens.shape[1]):
            rows = np.flatnonzero(counts > slot)
            if len(rows):
                hidden[rows, slot], _ = self._advance(state, rows, tokens[rows, slot], slot)
        state.advance(counts)
        return hidden

    def _advance(
        self, state: CompiledRecurrentState, rows: np.ndarray, words: np.ndarray, slot: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Feed one word to each of these rows; return the output's hidden vectors (n, D) and the attention (n, S)."""
        shape, memory = self.architecture, state.memory
        width = shape.width
        place = state.filled[rows] + slot
        parents = state.path[rows, place]
        first = state.nodes.add(len(rows))
        state.path[rows, place + 1] = np.arange(first, first + len(rows))
        bottom, *upper_layers = state.nodes.layers
        from_word = _table_or_product(self.word_table, words, self.target_embedding[words], self.from_word)
        weights = np.zeros((len(rows), memory.keys.shape[1]), np.float32)
        self._bottom_layer(bottom, parents, from_word, state.inverse[rows], memory, first, weights)
        hidden = bottom[first : first + len(rows), :width]
        for (from_input, from_last), layer in zip(self.extra, upper_layers, strict=False):
            output = self._layer(from_input, from_last, layer, parents, first, hidden)
            hidden = hidden + output if shape.residual else output
        if self.fully_connected or shape.top == "tanh":
            hidden = self._connected(np.ascontiguousarray(hidden))
        if shape.top == "recurrent":
            from_input, from_last = self.recurrent_top
            hidden = self._layer(from_input, from_last, upper_layers[-1], parents, first, hidden)
        return hidden, weights

    def _bottom_layer(
        self,
        states: np.ndarray,
        parents: np.ndarray,
        from_word: np.ndarray,
        sources: np.ndarray,
        memory: RecurrentMemory,
        first: int,
        weights: np.ndarray,
    ) -> None:
        """The layer with attention: states after n rows, written from node `first` on, and the attention's weights (n, S)."""
        merged, width, attended = (
            self.speedups.merged,
            self.architecture.width,
            (memory.lengths, memory.keys, memory.values),
        )
        if isinstance(self.from_state, Matrix) and self.speedups.attention:
            kernels.bottom_layer(
                self.cell, states, parents, merged, self.from_state.record, from_word, self.gates, sources, *attended,
                scratch(len(parents), width), first, self.way, weights,
            )  # fmt: skip
            return
        distinct, shared = parents, np.arange(len(parents))
        if merged:
            different = np.empty_like(parents)
            distinct = different[: kernels.distinct(parents, different, shared)]
        from_state = self.from_state(states[distinct, :width])
        contexts = np.empty((len(parents), memory.values.shape[2]), np.float32)
        kernels.look(from_state, shared, from_word, self.gates, sources, *attended, weights, contexts, self.way)
        inputs = from_word[:, : self.gates] + (contexts if self.speedups.attention else self.context(contexts))
        kernels.cells(self.cell, states, parents, from_state, shared, inputs, first, self.way)

    def _connected(self, hidden: np.ndarray) -> np.ndarray:
        """The fully-connected layers and the one with tanh above them, for n rows of hidden (n, ...)."""
        width = self.architecture.fc_width
        if self.records is not None:
            layers, top = self.records
            rounded = scratch(len(hidden), max(hidden.shape[1], width))
            outputs = max(matrix.outputs for matrix in (*self.fully_connected, *self.tops))
            results = np.empty((3, len(hidden), outputs), np.float32)
            width = self.tops[0].shape[0] if self.tops else width
            together: np.ndarray = kernels.connected(hidden, layers, top, width, rounded, results, RELU_LIMIT, self.way)
            return together[:, :width]
        skipped = np.zeros((0, width), np.float32)
        for number, product in enumerate(self.fully_connected, 1):
            hidden = np.ascontiguousarray(product(hidden))
            kernels.clipped(hidden, skipped if number % 2 else skipped[:0], RELU_LIMIT)
            skipped = hidden if number % 2 else skipped
        for product in self.tops:
            hidden = np.ascontiguousarray(product(hidden))
            kernels.tangent(hidden.reshape(-1), self.way)
        return hidden

    def _layer(
        self, from_input: Any, from_last: Any, states: np.ndarray, parents: np.ndarray, first: int, hidden: np.ndarray
    ) -> np.ndarray:
        """A recurrent layer above the bottom one, for n rows of hidden (n, ...)."""
        width = self.architecture.width
        inputs = np.ascontiguousarray(from_input(hidden))
        product = from_last(states[parents, :width])
        kernels.cells(self.cell, states, parents, product, np.arange(len(parents)), inputs, first, self.way)
        return states[first : first + len(parents), :width]

    def align(self, source: Source, tokens: np.ndarray, prefix: np.ndarray) -> np.ndarray:
        """The attention (B, T, S) from which each token of these targets (B, T) was chosen; feeds them again."""
        inputs = np.concatenate([np.tile(prefix, (len(tokens), 1)), np.maximum(tokens[:, :-1], 0)], 1)
        state = self.start(self.encode(source), inputs[:, :1], inputs.shape[1])
        rows, alignments = np.arange(len(inputs)), []
        for slot in range(inputs.shape[1]):
            alignments.append(self._advance(state, rows, inputs[:, slot], slot)[1])
        return np.stack(alignments[len(prefix) - 1 :], 1).astype(np.float64)


def _product(name: str, weight: np.ndarray, bias: np.ndarray | None, largest: float, products: Products) -> Any:
    """The product in the chosen numbers, for rows with entries up to `largest`."""
    if products == "blas":
        return BlasProduct.of(weight, bias)
    if products == "fixed16":
        return Matrix.of(weight, bias, "int16", multiplier=MULTIPLIER, largest=largest, name=name)
    return Matrix.of(weight, bias, products, name=name)


def _table_or_product(table: np.ndarray, words: np.ndarray, x: np.ndarray, product: Product) -> np.ndarray:
    """Products of x (n, ...), taken from the table for words that are in it."""
    in_table = words < len(table)
    if in_table.all():
        return table[words]
    if not in_table.any():
        return product(x)
    products = np.empty((len(words), table.shape[1]), np.float32)
    products[in_table] = table[words[in_table]]
    products[~in_table] = product(x[~in_table])
    return products
