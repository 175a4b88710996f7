"""Transformers on compiled kernels, in any precision; one file because its parts mirror those of `transformer`.

The result of a row does not depend on the other rows of a pass, nor that of a slot on the other slots: passes over several
slots equal single steps bit for bit, in every precision (`kernels.tiles`).
"""

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from fastdecode_lib.checkpoints.transformer import Architecture, tensors_of_module
from fastdecode_lib.core import Kind, Output, Source
from fastdecode_lib.kernels import transformer as kernels
from fastdecode_lib.kernels.elementwise import ACTIVATIONS
from fastdecode_lib.kernels.ids import checked
from fastdecode_lib.kernels.matrices import FIELDS, Matrix, Precision, padded, scratch
from fastdecode_lib.kernels.slots import PAGE, own_pages
from fastdecode_lib.models.positions import relative_rows, sinusoids
from fastdecode_lib.models.states import Slots, check_length, check_prefix, fed_before


@dataclass(frozen=True)
class CompiledMemory:
    """Memory of cross-attention.

    Attributes
    ----------
    keys, values : float32 arrays (decoder layers, B, heads, S, size)
    lengths : int64 array (B,)
    mean : float32 array (B, D) or None
        Mean of the encoder's hidden vectors, from which a masked model predicts the target's length.
    """

    keys: np.ndarray
    values: np.ndarray
    lengths: np.ndarray
    mean: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """B, the number of sentences."""
        return len(self.lengths)


MEMORY_PRECISIONS: Mapping[Precision, Precision] = {"float32": "float32", "int16": "int16", "int8": "int16"}
"""Precisions of the product that computes the memory's keys and values, once a source: an encoder's hidden vectors have a few
large entries, beside which int8 rounds the others to almost nothing."""

_Arrays = tuple[np.ndarray, ...]


class _Room:
    """Working arrays of a pass, replaced by larger ones when a pass needs more."""

    def __init__(self, width: int, widest: int, slots: int):
        self.width, self.widest, self.slots, self.positions = width, widest, slots, -1

    def arrays(self, positions: int, slots: int) -> _Arrays:
        """Buffers of `kernels.transformer` for at least this many positions, and slots to attend to."""
        if positions > self.positions or slots > self.slots:
            self.positions, self.slots = max(positions, 2 * self.positions), max(slots, self.slots)
            narrow, wide = padded(self.width), padded(self.widest)
            self.buffers = (
                np.zeros((self.positions, narrow), dtype=np.float32),
                np.zeros((self.positions, narrow), dtype=np.float32),
                np.zeros((self.positions, wide), dtype=np.float32),
                scratch(self.positions, self.widest),
                np.zeros(padded(self.slots), dtype=np.float32),
                np.zeros(padded(self.slots), dtype=np.int64),
                np.zeros((5, self.positions), dtype=np.int64),
                np.zeros(0, dtype=bool),
            )
        return self.buffers


class _Pages:
    """Self-attention caches (layers, P, heads, PAGE, size) in pages of slots, which the rows of several states share.

    Whoever reads or writes them, or the pages of a state, holds `lock`: these states may be used by several threads.
    """

    def __init__(self, layers: int, heads: int, size: int):
        self.lock = threading.Lock()
        self.keys, self.values = (np.empty((layers, 0, heads, PAGE, size), dtype=np.float32) for _ in range(2))
        self.states: weakref.WeakSet[CompiledState] = weakref.WeakSet()
        """The states that use them."""

    def own(self, table: np.ndarray, starts: np.ndarray, written: np.ndarray, slots: int) -> None:
        """Give the rows of a state's table (B, C) pages of their own, see `own_pages`."""
        uses = np.zeros(self.keys.shape[1], dtype=np.int64)
        for state in self.states:
            uses += np.bincount(state.pages[state.pages >= 0], minlength=len(uses))
        while missing := own_pages(starts, written, slots, table, uses, self.keys, self.values):
            more = max(missing, len(uses))
            uses = np.concatenate([uses, np.zeros(more, dtype=np.int64)])
            self.keys, self.values = (_with_pages(cache, more) for cache in (self.keys, self.values))


def _with_pages(cache: np.ndarray, more: int) -> np.ndarray:
    """A copy of a cache (layers, P, heads, PAGE, size) that has so many more pages."""
    pages = cache.shape[1]
    grown = np.empty((len(cache), pages + more, *cache.shape[2:]), dtype=cache.dtype)
    grown[:, :pages] = cache
    return grown


@dataclass(eq=False)
class CompiledState(Slots):
    """The pages of each row's keys and values, and its length; see `core.State`.

    Rows that are selected share their pages with the originals; one that is about to write gets a copy of its last page, as in
    vLLM (Kwon et al., 2023, section 4.4). A beam's rows thus move without their caches.
    """

    cache: _Pages
    pages: np.ndarray
    """Page of each row and stretch of `PAGE` slots, int64 (B, C); -1: none."""
    max_slots: int
    memory: CompiledMemory
    inverse: np.ndarray
    """Row of the memory that each row of the state reads, (B,)."""
    filled: np.ndarray
    before_step: np.ndarray
    room: _Room
    owned: int = 0
    """No other row has the pages of the unfilled slots before this one."""

    def __post_init__(self) -> None:
        self.cache.states.add(self)

    def own(self, starts: np.ndarray, slots: int) -> None:
        """Have pages from slots `starts` (B,) to before `slots` that no other row has."""
        (rows, columns), needed = self.pages.shape, -(-slots // PAGE)
        if needed > columns:
            self.pages = np.concatenate([self.pages, np.full((rows, needed - columns), -1)], 1)
        self.cache.own(self.pages, starts, self.filled, slots)
        self.owned = needed * PAGE

    def truncate(self, lengths: np.ndarray) -> None:
        """Forget everything after the first `lengths` slots of each row."""
        with self.cache.lock:
            before_step = self.before_step
            super().truncate(lengths)
            if (self.filled < before_step).any():
                self.owned = 0

    def keep(self, slots: np.ndarray) -> None:
        """Keep these of the last step's slots (B, n), in this order; -1 pads a row."""
        slots, counts, moved = self.kept(slots)
        with self.cache.lock:
            if moved and not self.owned:
                self.own(self.before_step, int(self.filled.max()))
            for row in range(len(slots)) if moved else ():
                order, first = slots[row, : counts[row]], np.arange(counts[row])
                if (order == first).all():
                    continue
                (sources, source_slots), (targets, target_slots) = (
                    np.divmod(self.before_step[row] + fed, PAGE) for fed in (order, first)
                )
                pages = self.pages[row]
                for cache in (self.cache.keys, self.cache.values):
                    cache[:, pages[targets], :, target_slots] = cache[:, pages[sources], :, source_slots]
            self.filled = self.before_step + counts

    def select(self, rows: np.ndarray) -> "CompiledState":
        """Independent copies of these rows; the memory of the source is shared."""
        rows = np.asarray(rows, dtype=np.int64)
        with self.cache.lock:
            self.owned = 0
            return CompiledState(
                self.cache,
                self.pages[rows],
                self.max_slots,
                self.memory,
                self.inverse[rows],
                self.filled[rows],
                self.before_step[rows],
                self.room,
            )


class _Side:
    """Encoder or decoder in the form that the kernels read."""

    def __init__(self, architecture: Architecture, side: str, tensors: Mapping[str, np.ndarray], precision: Precision):
        prefix, width = f"model.{side}", architecture.width
        decoder = side == "decoder"
        layers = architecture.decoder_layers if decoder else architecture.encoder_layers
        inner = architecture.decoder_feed_forward if decoder else architecture.encoder_feed_forward
        self.heads, self.head_size = architecture.heads(side)
        attention = self.heads * self.head_size
        self.packed: dict[tuple[int, int], Matrix] = {}
        """Matrices by layer and place."""
        self.normed: dict[tuple[int, int], tuple[np.ndarray, np.ndarray | None]] = {}
        """Weight and bias of each norm, by row and place."""
        self.epsilon = np.float32(architecture.epsilon)

        def matrix(layer: int, place: int, *names: str, precision: Precision = precision) -> None:
            weight = np.concatenate([tensors[f"{name}.weight"] for name in names])
            bias = np.concatenate([tensors[f"{name}.bias"] for name in names]) if architecture.biases else None
            self.packed[layer, place] = Matrix.of(weight, bias, precision, name=names[0])

        def norm(row: int, place: int, name: str, scale: float = 1.0) -> None:
            weight = np.array(tensors[f"{name}.weight"] * scale, dtype=np.float32)
            bias = np.array(tensors[f"{name}.bias"], dtype=np.float32) if architecture.biases else None
            self.normed[row, place] = weight, bias

        for layer in range(layers):
            name = f"{prefix}.layers.{layer}"
            self_attention, cross_attention = f"{name}.self_attn", f"{name}.encoder_attn"
            matrix(layer, kernels.SELF_INPUTS, *(f"{self_attention}.{projection}_proj" for projection in "qkv"))
            matrix(layer, kernels.SELF_OUT, f"{self_attention}.out_proj")
            matrix(layer, kernels.INNER, *(f"{name}.{projection}" for projection in architecture.inner_parts))
            matrix(layer, kernels.OUTER, f"{name}.fc2")
            norm(layer, kernels.SELF_NORM, f"{self_attention}_layer_norm")
            norm(layer, kernels.FINAL_NORM, f"{name}.final_layer_norm")
            if decoder:
                matrix(layer, kernels.CROSS_QUERIES, f"{cross_attention}.q_proj")
                matrix(layer, kernels.CROSS_OUT, f"{cross_attention}.out_proj")
                keys_values = f"{cross_attention}.k_proj", f"{cross_attention}.v_proj"
                matrix(layer, kernels.CROSS_MEMORY, *keys_values, precision=MEMORY_PRECISIONS[precision])
                norm(layer, kernels.CROSS_NORM, f"{cross_attention}_layer_norm")
        if architecture.normed_embeddings:
            norm(layers, 0, f"{prefix}.layernorm_embedding")
        if architecture.pre_norm:
            norm(layers + 1, 0, f"{prefix}.layer_norm", architecture.output_scale if decoder else 1.0)
        self.matrices = np.zeros((layers, kernels.MATRICES, FIELDS), dtype=np.int64)
        self.norms = np.zeros((layers + 2, kernels.NORMS, kernels.NORM_FIELDS), dtype=np.int64)
        self._point()
        self.embedding = np.ascontiguousarray(tensors[f"{prefix}.embed_tokens.weight"], dtype=np.float32)
        self.positions, self.biases = _positions(architecture, side, tensors)
        self.narrow = max(width, attention)
        self.widest = max(3 * attention, width, inner * len(architecture.inner_parts))
        self.settings = np.zeros(kernels.SETTINGS, dtype=np.int64)
        self.settings[kernels.WIDTH], self.settings[kernels.ATTENTION] = width, attention
        self.settings[kernels.FEED_FORWARD], self.settings[kernels.GATED] = inner, architecture.gated
        self.settings[kernels.ACTIVATION] = ACTIVATIONS[architecture.activation]
        self.settings[kernels.UNSCALED] = architecture.score_scale is not None
        self.settings[kernels.PRE_NORM] = architecture.pre_norm
        self.settings[kernels.PADDING] = architecture.padding if architecture.positions_from_padding else -1
        self.settings[kernels.SIGHT] = (
            architecture.max_positions if architecture.masked else architecture.tokens_per_step
        )

    def _point(self) -> None:
        """Write the addresses of the arrays."""
        for place, matrix in self.packed.items():
            self.matrices[place] = matrix.record
        for place, (weight, bias) in self.normed.items():
            addresses = weight.ctypes.data, 0 if bias is None else bias.ctypes.data
            self.norms[place] = [*addresses, int(self.epsilon.view(np.int32))]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Write the addresses anew: a copy has its own arrays."""
        self.__dict__.update(state)
        self._point()


def _positions(
    architecture: Architecture, side: str, tensors: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """A side's table of positions (P, D), and its biases of distances (heads, 2 * farthest + 1); one of them is empty."""
    prefix, first = f"model.{side}", architecture.first_position(side)
    if architecture.relative_positions:
        biases = tensors[f"{prefix}.relative_positions.weight"][relative_rows(architecture, side)].T
        return np.zeros((0, architecture.width), dtype=np.float32), np.ascontiguousarray(biases, dtype=np.float32)
    table = tensors.get(f"{prefix}.embed_positions.rows")
    if table is None:
        stored = tensors.get(f"{prefix}.embed_positions.weight")
        table = sinusoids(architecture) if stored is None else stored[first or 0 :]
    return np.ascontiguousarray(table, dtype=np.float32), np.zeros((0, 0), dtype=np.float32)


class CompiledTransformer:
    """A Marian, mBART, M2M-100 / NLLB, T5 or own model on compiled kernels.

    Parameters
    ----------
    architecture : Architecture
    tensors : dict of str to numpy array
        As `checkpoints.Checkpoint.tensors("np")` gives them.
    precision : str
        ``"float32"``, ``"int16"`` or ``"int8"``, for every product, the output's included; with int8, the memory of
        cross-attention is computed in int16 (`MEMORY_PRECISIONS`). Embeddings, attention and norms are float32.
    """

    engine = "compiled"

    def __init__(self, architecture: Architecture, tensors: Mapping[str, np.ndarray], precision: Precision = "float32"):
        self.architecture, self.precision = architecture, precision
        self.scale = np.float32(np.sqrt(architecture.width) if architecture.scaled_embeddings else 1.0)
        self.encoder = _Side(architecture, "encoder", tensors, precision)
        self.decoder = _Side(architecture, "decoder", tensors, precision)
        self.max_source = self.max_target = architecture.max_positions
        self.kind: Kind = "masked" if architecture.masked else "causal"
        self.tokens_per_step, self.both_ends = architecture.tokens_per_step, architecture.both_ends
        self.supports = frozenset(
            {"ragged", "tree"} if self.kind == "causal" and self.tokens_per_step == 1 else {"ragged"}
        )
        self.lengths = Matrix.of(tensors["length.weight"], None, "float32") if architecture.masked else None
        output = Matrix.of(tensors["lm_head.weight"], tensors.get("final_logits_bias"), precision, name="lm_head")
        self.outputs: tuple[Output, ...] = (Output(output),)

    @classmethod
    def of_module(cls, module: Any) -> "CompiledTransformer | None":
        """The compiled form, with copies of the weights, of a transformers module in float32 on the CPU.

        None for other modules, and where `tensors_of_module` returns None.
        """
        parts = tensors_of_module(module)
        if parts is None:
            return None
        architecture, tensors = parts
        if any((tensor.device.type, str(tensor.dtype)) != ("cpu", "torch.float32") for tensor in tensors.values()):
            return None
        return cls(architecture, {name: tensor.numpy() for name, tensor in tensors.items()})

    def remember(self, hidden: np.ndarray, real: np.ndarray) -> CompiledMemory:
        """Memory of cross-attention for an encoder's hidden vectors (B, S, D); `real` (B, S) says which are no padding."""
        heads, layers, lengths = self.decoder.heads, len(self.decoder.matrices), real.sum(1)
        rows, places = np.nonzero(np.arange(int(lengths.max())) < lengths[:, None])
        shape = (2, layers, len(hidden), heads, int(lengths.max()), self.decoder.head_size)
        memory = np.zeros(shape, dtype=np.float32)
        for layer in range(layers):
            keys_values = self.decoder.packed[layer, kernels.CROSS_MEMORY](hidden[real])
            memory[:, layer, rows, :, places] = keys_values.reshape(len(rows), 2, heads, -1)
        return CompiledMemory(memory[0], memory[1], lengths)

    def encode(self, source: Source) -> CompiledMemory:
        """Run the encoder over a batch (B, S)."""
        lengths = source.lengths.astype(np.int64)
        longest = check_length(lengths, self.max_source)
        ids = source.ids[:, :longest][np.arange(longest) < lengths[:, None]]
        ids = checked("source tokens", ids, 0, len(self.encoder.embedding))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        encoder, decoder = self.encoder, self.decoder
        self_keys_values = np.empty((2, 1, encoder.heads, len(ids), encoder.head_size), dtype=np.float32)
        shape = (2, len(decoder.matrices), len(lengths), decoder.heads, longest, decoder.head_size)
        memory = np.zeros(shape, dtype=np.float32)
        widest = max(encoder.widest, 2 * decoder.heads * decoder.head_size)
        arrays = _Room(encoder.narrow, widest, longest).arrays(len(ids), longest)
        kernels.encode(
            ids, starts, encoder.settings, encoder.matrices, encoder.norms, decoder.matrices, encoder.embedding,
            encoder.positions, encoder.biases, self.scale, *arrays, self_keys_values[0], self_keys_values[1], memory[0], memory[1],
        )  # fmt: skip
        mean = None
        if self.kind == "masked":  # row by row, so that no row depends on the others
            hidden = arrays[0][:, : self.architecture.width]
            mean = np.stack([hidden[a:b].mean(0) for a, b in pairwise(starts)])
        return CompiledMemory(memory[0], memory[1], lengths, mean)

    def start(self, encoded: CompiledMemory, prefix: np.ndarray, capacity: int | None = None) -> CompiledState:
        """A state with room for `capacity` slots, fed with all but the last of the prefix ids (B, P)."""
        check_prefix(prefix, encoded.rows)
        slots = min(capacity or self.max_target, self.max_target)
        decoder = self.decoder
        lengths = np.zeros(len(prefix), dtype=np.int64)
        longest = max(slots, int(encoded.lengths.max(initial=0)))
        state = CompiledState(
            _Pages(len(decoder.matrices), decoder.heads, decoder.head_size),
            np.zeros((len(prefix), 0), dtype=np.int64),
            slots,
            encoded,
            np.arange(len(prefix)),
            lengths,
            lengths.copy(),
            _Room(decoder.narrow, decoder.widest, longest),
        )
        fed = fed_before(prefix, self.tokens_per_step)
        if fed.shape[1]:
            self.step(state, fed)
        return state

    def source_vectors(self, encoded: CompiledMemory) -> list[np.ndarray]:
        """See `core.Vectors`: the values of the last decoder layer's cross-attention."""
        width = self.decoder.heads * self.decoder.head_size
        values = encoded.values[-1].transpose(0, 2, 1, 3).reshape(encoded.rows, -1, width)
        return [row[:length] for row, length in zip(values, encoded.lengths, strict=True)]

    def length_log_probs(self, encoded: CompiledMemory) -> np.ndarray:
        """See `core.MaskedModel`."""
        assert self.lengths is not None and encoded.mean is not None
        scores = self.lengths(encoded.mean).astype(np.float64)
        scores -= scores.max(1, keepdims=True)
        return scores - np.log(np.exp(scores).sum(1, keepdims=True))

    def refine(self, encoded: CompiledMemory, tokens: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """See `core.MaskedModel`."""
        empty = self.start(encoded, np.zeros((encoded.rows, 0), dtype=np.int64), tokens.shape[1])
        return self.step(empty.select(rows), tokens)

    def step(self, state: CompiledState, tokens: np.ndarray, visible: np.ndarray | None = None) -> np.ndarray:
        """Feed tokens (B, W), -1 feeding nothing, and return hidden vectors (B, W, D); see `core.Model.step`."""
        tokens, counts, longest = state.checked_step(tokens, len(self.decoder.embedding), self.tokens_per_step)
        rows, width = tokens.shape
        visible_slots = _EVERYTHING if visible is None else self._visible(visible, tokens >= 0)
        hidden = np.zeros((rows, width, self.architecture.width), dtype=np.float32)
        side, memory = self.decoder, state.memory
        with state.cache.lock:
            if longest > state.owned:
                state.own(state.filled, longest)
            kernels.decode(
                tokens, visible_slots, state.filled, state.inverse, side.settings, side.matrices, side.norms, side.embedding,
                side.positions, side.biases, self.scale, *state.room.arrays(rows * width, longest), state.cache.keys,
                state.cache.values, state.pages, memory.keys, memory.values, memory.lengths, hidden,
            )  # fmt: skip
            state.advance(counts)
        return hidden

    def _visible(self, visible: np.ndarray, feeding: np.ndarray) -> np.ndarray:
        """`visible` for the slots that feed something, checked and contiguous."""
        if visible.shape != (*feeding.shape, feeding.shape[1]):
            raise ValueError(f"visible must be (B, W, W) for tokens {feeding.shape}: got {visible.shape}.")
        return np.ascontiguousarray(visible & feeding[:, :, None] & feeding[:, None, :], dtype=bool)


_EVERYTHING = np.zeros((0, 0, 0), dtype=bool)
