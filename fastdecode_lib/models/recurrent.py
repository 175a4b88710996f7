"""Attentional recurrent models in torch, to decode and to train; one file because both run the same network.

Equations of sec. 4, with h the bottom layer's last state, x the embedding of the previous word, s the source's vectors::

    d_j = tanh(Wa h + Va x) . tanh(Ua s_j)            alpha = softmax(d)            c = sum_j alpha_j s_j
    u = sigma(Wu h + Vu x + Uu c + bu)                r = sigma(Wr h + Vr x + Ur c + br)
    k = tanh(r * (Wh h) + Vh x + Uh c + bh)           h' = u h + (1 - u) k

The reset gate applies after the product with Wh, so that one matrix makes all three gates. The paper prints sigma for the
candidate k; its sec. 5 says that GRUs use tanh, which is meant. The paper does not give the first state: it is zero.

Sec. 5 stacks fully-connected layers on it: ``h1 = relu(W1 h)``, ``h2 = relu(W2 h1)``, ``h3 = relu(W3 h2 + h1)``, and so on,
every other layer adding the result of the one two below before its relu. What a relu gives is clipped to [0, 10], and
training clips every weight to [-1, 1] after each update (sec. 4.1), so that 16-bit integers hold both.

The names and shapes of the matrices are listed in `checkpoints.recurrent`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fastdecode_lib.checkpoints.language import LanguageShape
from fastdecode_lib.checkpoints.recurrent import RELU_LIMIT, WEIGHT_LIMIT, RecurrentShape
from fastdecode_lib.core import Kind, Output, Source
from fastdecode_lib.models.lstm_layer import lstm_layer, torch_layer
from fastdecode_lib.models.states import SlotsInOrder, check_length, check_prefix


def gru(state: Tensor, from_state: Tensor, from_input: Tensor) -> Tensor:
    """One step of a GRU.

    Parameters
    ----------
    state : (..., D)
    from_state : (..., 3 D)
        W times the state.
    from_input : (..., 3 D)
        V x + U c + b; gates in the order update, reset, candidate.

    Returns
    -------
    (..., D)
    """
    width = state.shape[-1]
    state_gates, state_candidate = from_state.split((2 * width, width), -1)
    input_gates, input_candidate = from_input.split((2 * width, width), -1)
    update, reset = torch.sigmoid(state_gates + input_gates).split(width, -1)
    candidate = torch.tanh(torch.addcmul(input_candidate, reset, state_candidate))
    return torch.lerp(candidate, state, update)


def lstm(state: Tensor, from_state: Tensor, from_input: Tensor) -> Tensor:
    """One step of an LSTM: state (..., 2 D), hidden vector then memory cell; gates input, forget, output, candidate."""
    width = state.shape[-1] // 2
    gates, candidate = (from_state + from_input).split((3 * width, width), -1)
    enter, forget, out = torch.sigmoid(gates).split(width, -1)
    memory = torch.addcmul(enter * torch.tanh(candidate), forget, state[..., width:])
    return torch.cat([out * torch.tanh(memory), memory], -1)


CELLS = {"gru": gru, "lstm": lstm}


def trained_on_gpu(x: Tensor) -> bool:
    """Whether a network is trained on a GPU, where torch's own layers are faster than a loop over words."""
    return x.is_cuda and torch.is_grad_enabled()


@dataclass(frozen=True)
class Memory:
    """Memory of the attention: source vectors s (B, S, 2 H), keys tanh(Ua s) (B, S, A), and a mask (B, S) that is added to d.

    The mask is 0 at real words and minus infinity at padding; None without padding.
    """

    vectors: Tensor
    keys: Tensor
    mask: Tensor | None

    @property
    def rows(self) -> int:
        """B, the number of sentences."""
        return int(self.vectors.shape[0])

    def gather(self, rows: np.ndarray) -> "Memory":
        """The same for these rows."""
        at = torch.from_numpy(rows).to(self.vectors.device)
        return Memory(self.vectors[at], self.keys[at], None if self.mask is None else self.mask[at])


@dataclass(frozen=True)
class Network:
    """The equations, on tensors by name: training and decoding run the same ones.

    Attributes
    ----------
    shape : RecurrentShape, or a subclass's own shape
    tensors : mapping of name to tensor
    dropout : float
        Share of the entries of embeddings and of the output's hidden vectors that training sets to zero.
    """

    shape: Any
    tensors: Mapping[str, Tensor]
    dropout: float = 0.0

    def _dropped(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout) if self.dropout else x

    # -- source

    def encode(self, ids: Tensor, lengths: Tensor) -> Memory:
        """Encode source ids (B, S); the first ``lengths[b]`` of a row count."""
        shape = self.shape
        places = torch.arange(ids.shape[1], device=ids.device)
        real = places < lengths[:, None]
        backwards = torch.where(real, lengths[:, None] - 1 - places, places)
        """Order of a row's words from the last to the first; padding stays in place."""
        x = self._dropped(self.tensors["source.embedding"][ids])
        for layer in range(shape.source_layers):
            if layer < shape.bidirectional_layers:
                x = self._both_directions(f"source.{layer}", x, backwards)
            else:
                name, state = f"source.{layer}.forward", x.new_zeros(len(x), shape.states * shape.memory)
                output = self._by_torch(name, x, state) if trained_on_gpu(x) else self._layer(name, x, state)[0]
                x = x + output if shape.residual else output
        mask = None if bool(real.all()) else torch.zeros_like(real, dtype=x.dtype).masked_fill(~real, -torch.inf)
        return Memory(x, torch.tanh(functional.linear(x, self.tensors["target.attention.Ua"])), mask)

    def _both_directions(self, name: str, x: Tensor, backwards: Tensor) -> Tensor:
        """A bidirectional layer over (B, S, inputs): both directions in one loop, concatenated (B, S, 2 H)."""
        tensors, shape = self.tensors, self.shape
        sides = [f"{name}.{side}" for side in ("forward", "backward")]
        rows = torch.arange(len(x), device=x.device)[:, None]
        if trained_on_gpu(x):
            state = x.new_zeros(len(x), shape.states * shape.source_width)
            forward, backward = (
                self._by_torch(side, given, state) for side, given in zip(sides, (x, x[rows, backwards]), strict=True)
            )
            return torch.cat([forward, backward[rows, backwards]], -1)
        forward, backward = (functional.linear(x, tensors[f"{side}.V"], tensors[f"{side}.b"]) for side in sides)
        inputs = torch.stack([forward, backward[rows, backwards]])
        matrix = torch.stack([tensors[f"{side}.W"] for side in sides]).transpose(1, 2)
        state = x.new_zeros(2, len(x), shape.states * shape.source_width)
        hidden = []
        for from_input in inputs.unbind(2):
            state = CELLS[shape.cell](state, torch.bmm(self._hidden(state), matrix), from_input)
            hidden.append(self._hidden(state))
        forward, backward = torch.stack(hidden, 2).unbind(0)
        return torch.cat([forward, backward[rows, backwards]], -1)

    def _hidden(self, state: Tensor) -> Tensor:
        """The hidden vectors (..., D) of states (..., states x D)."""
        return state if self.shape.states == 1 else state[..., : state.shape[-1] // 2]

    def _by_torch(self, name: str, x: Tensor, state: Tensor) -> Tensor:
        """The hidden vectors (B, W, D) of `_layer`."""
        v, w, b = (self.tensors[f"{name}.{matrix}"] for matrix in "VWb")
        return torch_layer(self.shape.cell, x, (v, w, b), state)

    def _layer(self, name: str, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """A recurrent layer over (B, W, inputs) from a state (B, states x D): hidden (B, W, D), states (B, W, states x D)."""
        if self.shape.cell == "gru" and trained_on_gpu(x):
            hidden = self._by_torch(name, x, state)
            return hidden, hidden
        inputs = functional.linear(x, self.tensors[f"{name}.V"], self.tensors[f"{name}.b"])
        if self.shape.cell == "lstm" and torch.is_grad_enabled():
            states_after = lstm_layer(inputs, self.tensors[f"{name}.W"], state)
            return self._hidden(states_after), states_after
        states = []
        for from_input in inputs.unbind(1):
            from_state = functional.linear(self._hidden(state), self.tensors[f"{name}.W"])
            state = CELLS[self.shape.cell](state, from_state, from_input)
            states.append(state)
        states_after = torch.stack(states, 1)
        return self._hidden(states_after), states_after

    # -- target

    @cached_property
    def _state_matrix(self) -> Tensor:
        """W and Wa of the bottom layer, one above the other (G D + A, D): one product a step."""
        return torch.cat([self.tensors["target.bottom.W"], self.tensors["target.attention.Wa"]])

    def attend(self, memory: Memory, query: Tensor) -> tuple[Tensor, Tensor]:
        """Context c (B, 2 H) and weights alpha (B, S) of queries tanh(Wa h + Va x) (B, A)."""
        scores = torch.bmm(memory.keys, query.unsqueeze(2)).squeeze(2)
        weights = torch.softmax(scores if memory.mask is None else scores + memory.mask, 1)
        return torch.bmm(weights.unsqueeze(1), memory.vectors).squeeze(1), weights

    def _bottom(self, memory: Memory, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The attentional layer over (B, W, E): hidden, states, and attention weights (B, W, S)."""
        tensors, shape = self.tensors, self.shape
        inputs = functional.linear(x, tensors["target.bottom.V"], tensors["target.bottom.b"])
        queries = functional.linear(x, tensors["target.attention.Va"])
        states, alignment = [], []
        for from_input, from_word in zip(inputs.unbind(1), queries.unbind(1), strict=True):
            products = functional.linear(self._hidden(state), self._state_matrix)
            from_state, query = products.split((shape.gates * shape.width, shape.attention), -1)
            context, weights = self.attend(memory, torch.tanh(query + from_word))
            from_context = functional.linear(context, tensors["target.bottom.U"])
            state = CELLS[shape.cell](state, from_state, from_input + from_context)
            states.append(state)
            alignment.append(weights)
        states_after = torch.stack(states, 1)
        return self._hidden(states_after), states_after, torch.stack(alignment, 1)

    def _fully_connected(self, hidden: Tensor) -> Tensor:
        """The fully-connected layers over (B, W, D) -> (B, W, F)."""
        skipped: Tensor | None = None
        for layer in range(1, self.shape.fc_layers + 1):
            product = functional.linear(hidden, self.tensors[f"target.fc.{layer}"])
            if layer % 2 and skipped is not None:
                product = product + skipped
            hidden = product.clamp(0.0, RELU_LIMIT)
            if layer % 2:
                skipped = hidden
        return hidden

    def decode(self, memory: Memory, ids: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor], Tensor]:
        """Feed previous words (B, W) to the target, one after another.

        Parameters
        ----------
        memory : Memory of B rows
        ids : (B, W)
        states : list of (B, states x D)
            One for each of `RecurrentShape.recurrent_layers`.

        Returns
        -------
        tuple
            The output's hidden vectors (B, W, D), the states after every word, each (B, W, states x D), and the attention
            (B, W, S).
        """
        shape = self.shape
        remaining = iter(states)
        x = self._dropped(self.tensors["target.embedding"][ids])
        hidden, layer_states, alignment = self._bottom(memory, x, next(remaining))
        states_after = [layer_states]
        for layer in range(shape.extra_layers):
            output, layer_states = self._layer(f"target.extra.{layer}", hidden, next(remaining))
            hidden = hidden + output if shape.residual else output
            states_after.append(layer_states)
        hidden = self._fully_connected(hidden)
        if shape.top == "tanh":
            hidden = torch.tanh(functional.linear(hidden, self.tensors["target.top"]))
        elif shape.top == "recurrent":
            hidden, layer_states = self._layer("target.top", hidden, next(remaining))
            states_after.append(layer_states)
        return self._dropped(hidden), states_after, alignment

    def first_states(self, rows: int) -> list[Tensor]:
        """Zeros for every recurrent layer, each (B, states x D)."""
        like = self.tensors["target.bottom.b"]
        return [like.new_zeros(rows, self.shape.states * self.shape.width) for _ in self.shape.recurrent_layers]


_GAINS = {".fc.": 2**0.5, ".attention.": 0.3, "embedding": 3.0}


def first_weights(shape: Any, seed: int) -> dict[str, Tensor]:
    """Random float32 weights to train from: uniform, of a size that preserves activations; an LSTM's forget bias is 1."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, size in shape.tensors.items():
        if len(size) == 1:
            weights[name] = torch.zeros(size)
            if shape.cell == "lstm" and name.endswith(".b"):
                width = size[0] // 4
                weights[name][width : 2 * width] = 1.0
            continue
        gain = next((gain for key, gain in _GAINS.items() if key in name), 1.0)
        limit = min(WEIGHT_LIMIT, gain * (3 / size[1]) ** 0.5)
        weights[name] = (torch.rand(size, generator=generator) * 2 - 1) * limit
    return weights


@dataclass
class RecurrentState(SlotsInOrder):
    """States of the recurrent layers after every slot, each (B, C + 1, states x D), entry 0 being the first; see `core.State`."""

    layers: list[Tensor]
    memory: Memory
    inverse: np.ndarray
    """Row of the memory that each row of the state reads, (B,)."""
    filled: np.ndarray
    before_step: np.ndarray
    gathered: Memory | None = None

    @property
    def capacity(self) -> int:
        """Most slots of a row; one entry more is allocated for the first state, one for slots that feed nothing."""
        return int(self.layers[0].shape[1]) - 2

    @torch.inference_mode()
    def select(self, rows: np.ndarray) -> "RecurrentState":
        """Independent copies of these rows; the memory of the source is shared."""
        rows = np.asarray(rows, dtype=np.int64)
        used = int(self.filled[rows].max(initial=0)) + 1
        index = torch.from_numpy(rows).to(self.layers[0].device)
        layers = []
        for layer in self.layers:
            copied = layer.new_zeros((len(rows), *layer.shape[1:]))
            copied[:, :used] = layer[:, :used].index_select(0, index)
            layers.append(copied)
        return RecurrentState(
            layers, self.memory, self.inverse[rows], self.filled[rows].copy(), self.before_step[rows].copy()
        )

    def readable_memory(self) -> Memory:
        """The memory with a row for each row of the state."""
        if self.gathered is None:
            one_to_one = len(self.inverse) == self.memory.rows and (self.inverse == np.arange(self.memory.rows)).all()
            self.gathered = self.memory if one_to_one else self.memory.gather(self.inverse)
        return self.gathered


class Recurrent:
    """A recurrent translation model in torch; satisfies `core.Model`.

    Parameters
    ----------
    architecture : RecurrentShape, or the LanguageShape of `models.language`
    tensors : mapping of name to tensor
        As `Checkpoint.tensors` returns them.
    device : torch device or str
    dtype : torch.dtype
        Precision of weights, states and hidden vectors.
    """

    equations: type[Network] = Network
    kind: Kind = "causal"
    tokens_per_step = 1
    both_ends = False
    supports = frozenset({"ragged"})
    engine = "torch"

    def __init__(
        self,
        architecture: RecurrentShape | LanguageShape,
        tensors: Mapping[str, Tensor],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        placed = {name: tensor.detach().to(device, dtype) for name, tensor in tensors.items()}
        self.network, self.architecture = self.equations(architecture, placed), architecture
        self.device, self.dtype = torch.device(device), dtype
        self.max_source = self.max_target = architecture.max_positions
        self.outputs: tuple[Output, ...] = (Output(placed["output.V"], placed.get("output.bias")),)

    @torch.inference_mode()
    def encode(self, source: Source) -> Memory:
        """Run the source's layers over a batch (B, S)."""
        longest = check_length(source.lengths, self.max_source)
        ids = np.where(np.arange(longest) < source.lengths[:, None], source.ids[:, :longest], 0)
        return self.network.encode(
            torch.from_numpy(ids).to(self.device), torch.from_numpy(source.lengths).to(self.device)
        )

    def source_vectors(self, encoded: Memory) -> list[np.ndarray]:
        """See `core.Vectors`: the keys of the attention."""
        keys = encoded.keys.float().cpu().numpy()
        real = None if encoded.mask is None else (encoded.mask == 0).cpu().numpy()
        return [row if real is None else row[real[i]] for i, row in enumerate(keys)]

    def start(self, encoded: Memory, prefix: np.ndarray, capacity: int | None = None) -> RecurrentState:
        """A state with room for `capacity` slots, fed with all but the last of the prefix ids (B, P)."""
        check_prefix(prefix, encoded.rows)
        slots = min(capacity or self.max_target, self.max_target)
        layers = [
            initial.new_zeros((len(prefix), slots + 2, initial.shape[1]))
            for initial in self.network.first_states(len(prefix))
        ]
        lengths = np.zeros(len(prefix), dtype=np.int64)
        state = RecurrentState(layers, encoded, np.arange(len(prefix)), lengths, lengths.copy())
        if prefix.shape[1] > 1:
            self.step(state, prefix[:, :-1])
        return state

    @torch.inference_mode()
    def step(self, state: RecurrentState, tokens: np.ndarray, visible: np.ndarray | None = None) -> Tensor:
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
        tokens, counts, _ = state.checked_step(tokens, self.outputs[0].vocabulary)
        feeding = tokens >= 0
        rows = torch.arange(len(tokens), device=self.device)
        last_entries = torch.from_numpy(state.filled).to(self.device)
        ids = torch.from_numpy(np.where(feeding, tokens, 0)).to(self.device)
        last_states = [layer[rows, last_entries] for layer in state.layers]
        hidden, states_after, _ = self.network.decode(state.readable_memory(), ids, last_states)
        entries = np.where(feeding, state.filled[:, None] + 1 + np.arange(tokens.shape[1]), state.capacity + 1)
        entry_index = torch.from_numpy(entries).to(self.device)
        for layer, layer_states in zip(state.layers, states_after, strict=True):
            layer[rows[:, None], entry_index] = layer_states
        state.advance(counts)
        return hidden

    @torch.inference_mode()
    def align(self, source: Source, tokens: np.ndarray, prefix: np.ndarray) -> np.ndarray:
        """The attention from which each token of these targets was chosen; feeds them again.

        Parameters
        ----------
        source : Source of B sentences
        tokens : int array (B, T)
            Targets, padded on the right with -1.
        prefix : int array (P,)
            What was fed before the first token.

        Returns
        -------
        float64 array (B, T, S)
            Rows sum to 1 over the real source words; they have no meaning where there is no token.
        """
        inputs = np.concatenate([np.tile(prefix, (len(tokens), 1)), np.maximum(tokens[:, :-1], 0)], 1)
        _, _, weights = self.network.decode(
            self.encode(source), torch.from_numpy(inputs).to(self.device), self.network.first_states(len(tokens))
        )
        return weights[:, len(prefix) - 1 :].double().cpu().numpy()
