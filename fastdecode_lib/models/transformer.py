"""The reference engine of all transformers in torch; one file because the families differ by a few properties only.

It runs on every device and in every precision. Matrices are laid out so that one position costs one pass over the
weights, and a few positions little more (`kernels.products`); keys and values are written into a cache that is allocated once.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fastdecode_lib.checkpoints.transformer import Architecture, tensors_of_module
from fastdecode_lib.core import Kind, Output, Source
from fastdecode_lib.kernels.ids import plain
from fastdecode_lib.kernels.products import Product
from fastdecode_lib.models.positions import relative_rows, sinusoids
from fastdecode_lib.models.states import Slots, check_length, check_prefix, fed_before

SLOTS = 1024
"""Slots of a row in a new cache, at most."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "swish": functional.silu,
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
}


@dataclass(frozen=True)
class Separate:
    """Several products side by side, whose matrices are not copied from a user's module."""

    parts: tuple[Product, ...]

    def __call__(self, x: Tensor) -> Tensor:
        """(..., columns) -> (..., rows of all parts)."""
        return torch.cat([part(x) for part in self.parts], -1)


@dataclass(frozen=True)
class Norm:
    """Layer normalisation over the last dimension; without a bias, division by the root mean square alone."""

    weight: Tensor
    bias: Tensor | None
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise (..., D); mean squares are float32 in every precision, as in transformers' T5."""
        if self.bias is not None:
            return functional.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.epsilon)
        inverse_rms = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.epsilon)
        return self.weight * (x * inverse_rms).to(self.weight.dtype)


@dataclass(frozen=True)
class Attention:
    """Projections of one attention; one product computes keys and values, in self-attention the queries too."""

    queries: Product | None
    inputs: Product | Separate
    out: Product
    norm: Norm
    heads: int

    def split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        """(B, W, parts * heads * size) -> `parts` tensors (B, heads, W, size)."""
        rows, slots, _ = x.shape
        return x.view(rows, slots, parts, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)


@dataclass(frozen=True)
class Layer:
    """One encoder or decoder layer."""

    self_attention: Attention
    cross_attention: Attention | None
    inner: Product | Separate
    outer: Product
    norm: Norm


@dataclass(frozen=True)
class RelativePositions:
    """Biases of attention scores for the distance of two tokens."""

    table: Tensor
    """(rows, heads)."""
    rows: Tensor
    """The row of each distance, int64 (2 D + 1,); see `positions.relative_rows`."""

    def mask(self, queries: Tensor, keys: Tensor, seen: Tensor | None) -> Tensor:
        """Biases (..., heads, W, C) for the positions of queries (..., W) and keys (..., C), -inf where not `seen`."""
        farthest = len(self.rows) // 2
        distances = (keys[..., None, :] - queries[..., None]).clamp(-farthest, farthest)
        biases = self.table[self.rows[distances + farthest]].movedim(-1, -3)
        return biases if seen is None else torch.where(seen, biases, -torch.inf)


@dataclass(frozen=True)
class Side:
    """Encoder or decoder: embeddings, layers and norms."""

    embedding: Tensor
    positions: Tensor | RelativePositions
    embedding_norm: Norm | None
    layers: tuple[Layer, ...]
    norm: Norm | None


@dataclass(frozen=True)
class Memory:
    """Memory of cross-attention: per layer keys and values (B, heads, S, size), and which source positions are real."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    mask: Tensor | None
    """(B, 1, 1, S) bool, None without padding."""
    mean: Tensor | None = None
    """Mean of the encoder's hidden vectors (B, D), from which a masked model predicts the target's length."""

    @property
    def rows(self) -> int:
        """B, the number of sentences."""
        return int(self.keys[0].shape[0])

    def gather(self, rows: Tensor) -> "Memory":
        """The same for these rows."""
        return Memory(
            tuple(k[rows] for k in self.keys),
            tuple(v[rows] for v in self.values),
            None if self.mask is None else self.mask[rows],
        )


@dataclass
class TransformerState(Slots):
    """Self-attention caches (layers x (B, heads, C, size)) and the length of each row; see `core.State`.

    C is one more than the number of slots, which grows up to `max_slots`; slots that feed nothing are written to the last entry.
    """

    keys: list[Tensor]
    values: list[Tensor]
    max_slots: int
    memory: Memory
    inverse: np.ndarray
    """Row of the memory that each row of the state reads, (B,)."""
    filled: np.ndarray
    before_step: np.ndarray
    regrouped: tuple[Memory, int] | None = None

    @property
    def spare(self) -> int:
        """The cache entry to which slots that feed nothing are written."""
        return int(self.keys[0].shape[2]) - 1

    def reach(self, slots: int) -> None:
        """Grow the caches to at least this many slots of a row."""
        if slots > self.spare:
            extra = min(max(slots, 2 * self.spare), self.max_slots) - self.spare
            self.keys, self.values = (
                [functional.pad(cache, (0, 0, 0, extra)) for cache in caches] for caches in (self.keys, self.values)
            )

    @torch.inference_mode()
    def keep(self, slots: np.ndarray) -> None:
        """Keep these of the last step's slots (B, n), in this order; -1 pads a row."""
        slots, counts, moved = self.kept(slots)
        if moved:
            device = self.keys[0].device
            rows = torch.arange(len(slots), device=device)[:, None]
            source = np.where(slots >= 0, self.before_step[:, None] + slots, self.spare)
            target = np.where(slots >= 0, self.before_step[:, None] + np.arange(slots.shape[1]), self.spare)
            source_index, target_index = torch.from_numpy(source).to(device), torch.from_numpy(target).to(device)
            for cache in (*self.keys, *self.values):
                cache[rows, :, target_index] = cache[rows, :, source_index]
        self.filled = self.before_step + counts

    @torch.inference_mode()
    def select(self, rows: np.ndarray) -> "TransformerState":
        """Independent copies of these rows; the memory of the source is shared."""
        rows = np.asarray(rows, dtype=np.int64)
        used = int(self.filled[rows].max(initial=0))
        at = torch.from_numpy(rows).to(self.keys[0].device)

        def copies(caches: list[Tensor]) -> list[Tensor]:
            selected = []
            for cache in caches:
                copied = cache.new_zeros((len(rows), *cache.shape[1:]))
                copied[:, :, :used] = cache[:, :, :used].index_select(0, at)
                selected.append(copied)
            return selected

        return TransformerState(
            copies(self.keys),
            copies(self.values),
            self.max_slots,
            self.memory,
            self.inverse[rows],
            self.filled[rows].copy(),
            self.before_step[rows].copy(),
        )

    def readable_memory(self) -> tuple[Memory, int]:
        """The memory, and how many neighbouring rows of the state read each of its rows.

        Neighbouring rows of a beam read one row of the memory as additional queries; in any other order, the memory is
        gathered once into a row for each row of the state.
        """
        if self.regrouped is None:
            rows_per_sentence, remainder = divmod(len(self.inverse), self.memory.rows)
            if remainder == 0 and (self.inverse == np.repeat(np.arange(self.memory.rows), rows_per_sentence)).all():
                self.regrouped = (self.memory, rows_per_sentence)
            else:
                rows = torch.from_numpy(self.inverse).to(self.memory.keys[0].device)
                self.regrouped = (self.memory.gather(rows), 1)
        return self.regrouped


class Transformer:
    """A Marian, mBART, M2M-100 / NLLB, T5 or own model in torch; satisfies `core.Model`, masked `core.MaskedModel`.

    Parameters
    ----------
    architecture : Architecture
    tensors : mapping of name to tensor
        As `Checkpoint.tensors` returns them.
    device : torch device or str
    dtype : torch.dtype
        Precision of weights, caches and hidden vectors.
    copy : bool
        Copy the matrices, transposed and joined where they are applied together, which is faster. Otherwise the model shares
        the tensors, and a change in place changes the model.
    """

    engine = "torch"

    def __init__(
        self,
        architecture: Architecture,
        tensors: Mapping[str, Tensor],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        *,
        copy: bool = True,
    ):
        self.architecture = architecture
        self.device, self.dtype, self.copy = torch.device(device), dtype, copy
        tensors = {name: tensor.to(self.device, dtype) for name, tensor in tensors.items()}
        self.scale = math.sqrt(architecture.width) if architecture.scaled_embeddings else 1.0
        self.activation = ACTIVATIONS[architecture.activation]
        self.encoder = self._side("encoder", tensors, architecture.encoder_layers)
        self.decoder = self._side("decoder", tensors, architecture.decoder_layers)
        self.max_source = self.max_target = architecture.max_positions
        self.kind: Kind = "masked" if architecture.masked else "causal"
        self.tokens_per_step, self.both_ends = architecture.tokens_per_step, architecture.both_ends
        self.supports = frozenset(
            {"ragged", "tree"} if self.kind == "causal" and self.tokens_per_step == 1 else {"ragged"}
        )
        self.sight = self.max_target if architecture.masked else self.tokens_per_step
        """Number of slots that see each other: a group, or all slots."""
        self._causal = self._causal_mask(min(self.max_target, SLOTS))
        self.lengths = tensors.get("length.weight")
        self.outputs: tuple[Output, ...] = (Output(tensors["lm_head.weight"], tensors.get("final_logits_bias")),)

    @classmethod
    def of_module(cls, module: Any) -> "Transformer | None":
        """The functional form of a loaded transformers module, on the module's own tensors.

        Parameters
        ----------
        module : MarianMTModel, or MBart, M2M100, T5 or MT5ForConditionalGeneration

        Returns
        -------
        Transformer or None
            None if the module's own forward computes anything else: another class, adapters, hooks, quantised weights,
            several devices.
        """
        parts = tensors_of_module(module)
        if parts is None:
            return None
        architecture, tensors = parts
        sample = next(iter(tensors.values()))
        return cls(architecture, tensors, sample.device, sample.dtype, copy=False)

    # -- reading the weights

    def _side(self, side: str, tensors: Mapping[str, Tensor], layers: int) -> Side:
        prefix, (heads, _) = f"model.{side}", self.architecture.heads(side)

        def norm(name: str) -> Norm:
            return Norm(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"), self.architecture.epsilon)

        def linear(name: str) -> Product:
            return Product.of(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"), copy=self.copy)

        def together(*names: str) -> Product | Separate:
            if not self.copy:
                return Separate(tuple(map(linear, names)))
            weight = torch.cat([tensors[f"{name}.weight"] for name in names])
            biases = [tensors[f"{name}.bias"] for name in names] if self.architecture.biases else []
            return Product.of(weight, torch.cat(biases) if biases else None)

        def attention(name: str, cross: bool) -> Attention:
            parts = [f"{name}.{part}" for part in ("q_proj", "k_proj", "v_proj")]
            inputs = together(*(parts[1:] if cross else parts))
            queries = linear(parts[0]) if cross else None
            return Attention(queries, inputs, linear(f"{name}.out_proj"), norm(f"{name}_layer_norm"), heads)

        def inner(name: str) -> Product | Separate:
            parts = [f"{name}.{part}" for part in self.architecture.inner_parts]
            return together(*parts) if self.architecture.gated else linear(*parts)

        def layer(name: str) -> Layer:
            return Layer(
                attention(f"{name}.self_attn", cross=False),
                attention(f"{name}.encoder_attn", cross=True) if side == "decoder" else None,
                inner(name),
                linear(f"{name}.fc2"),
                norm(f"{name}.final_layer_norm"),
            )

        architecture = self.architecture
        return Side(
            embedding=tensors[f"{prefix}.embed_tokens.weight"],
            positions=self._positions(tensors, side),
            embedding_norm=norm(f"{prefix}.layernorm_embedding") if architecture.normed_embeddings else None,
            layers=tuple(layer(f"{prefix}.layers.{i}") for i in range(layers)),
            norm=norm(f"{prefix}.layer_norm") if architecture.pre_norm else None,
        )

    def _positions(self, tensors: Mapping[str, Tensor], side: str) -> Tensor | RelativePositions:
        """Position table (max_positions, D), row 0 for the first token; or the relative ones."""
        architecture = self.architecture
        if architecture.relative_positions:
            rows = torch.from_numpy(relative_rows(architecture, side)).to(self.device)
            return RelativePositions(tensors[f"model.{side}.relative_positions.weight"], rows)
        if f"model.{side}.embed_positions.rows" in tensors:
            return tensors[f"model.{side}.embed_positions.rows"]
        first = architecture.first_position(side)
        stored = tensors.get(f"model.{side}.embed_positions.weight")
        if stored is not None:
            return stored[first or 0 :]
        if not architecture.positions_from_padding:
            return torch.from_numpy(sinusoids(architecture)).to(self.device, self.dtype)
        # In torch's own float32, so that the table is transformers' to the last bit.
        half, first = architecture.width // 2, architecture.position_offset
        rates = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
        angles = torch.arange(first, first + architecture.max_positions).float()[:, None] * rates
        table = functional.pad(torch.cat([angles.sin(), angles.cos()], 1), (0, architecture.width % 2))
        return table.to(self.device, self.dtype)

    # -- the network

    def causal_mask(self, first: int, end: int) -> Tensor:
        """Which slots up to `end` the slots from `first` on may attend to, bool (end - first, end)."""
        if end > len(self._causal):
            self._causal = self._causal_mask(min(2 * end, self.max_target))
        return self._causal[first:end, :end]

    def _causal_mask(self, slots: int) -> Tensor:
        groups = torch.arange(slots, device=self.device) // self.sight
        return groups[:, None] >= groups

    def _embed(self, side: Side, ids: Tensor, places: Tensor) -> Tensor:
        if isinstance(side.positions, RelativePositions):
            return side.embedding[ids]
        positions = side.positions[places]
        if self.architecture.positions_from_padding:
            positions = positions * (ids != self.architecture.padding).unsqueeze(-1)
        x = side.embedding[ids] * self.scale + positions
        return side.embedding_norm(x) if side.embedding_norm else x

    def _before(self, x: Tensor, norm: Norm) -> Tensor:
        """The input of a block: x, normalised in pre-norm models (mBART, M2M, T5)."""
        return norm(x) if self.architecture.pre_norm else x

    def _after(self, x: Tensor, block: Tensor, norm: Norm) -> Tensor:
        """The sum of x and a block's result, normalised in post-norm models (Marian)."""
        return x + block if self.architecture.pre_norm else norm(x + block)

    def _feed_forward(self, layer: Layer, x: Tensor) -> Tensor:
        inner = layer.inner(self._before(x, layer.norm))
        if self.architecture.gated:
            gate, linear = inner.chunk(2, -1)
            inner = self.activation(gate) * linear
        else:
            inner = self.activation(inner)
        return self._after(x, layer.outer(inner), layer.norm)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        scale = self.architecture.score_scale
        return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)

    @torch.inference_mode()
    def encode(self, source: Source) -> Memory:
        """Run the encoder over a batch (B, S)."""
        longest = check_length(source.lengths, self.max_source)
        ids = torch.from_numpy(np.ascontiguousarray(source.ids[:, :longest])).to(self.device)
        places = torch.arange(longest, device=self.device)
        mask = None
        if (source.lengths < longest).any():
            mask = (places < torch.from_numpy(source.lengths).to(self.device)[:, None])[:, None, None]
        x, positions = self._embed(self.encoder, ids, places), self.encoder.positions
        biased = positions.mask(places, places, mask) if isinstance(positions, RelativePositions) else mask
        for layer in self.encoder.layers:
            attention = layer.self_attention
            q, k, v = attention.split(attention.inputs(self._before(x, attention.norm)), 3)
            x = self._after(x, attention.out(_merge(self._attend(q, k, v, biased))), attention.norm)
            x = self._feed_forward(layer, x)
        memory = self.remember(self.encoder.norm(x) if self.encoder.norm else x, mask)
        if self.kind == "causal":
            return memory
        real = torch.ones_like(ids, dtype=x.dtype) if mask is None else mask[:, 0, 0].to(x.dtype)
        return replace(memory, mean=(x * real[..., None]).sum(1) / real.sum(1, keepdim=True))

    @torch.inference_mode()
    def remember(self, hidden: Tensor, mask: Tensor | None = None) -> Memory:
        """Memory of cross-attention for the encoder's hidden vectors (B, S, D); `mask` (B, 1, 1, S) is False at padding."""
        crosses = [layer.cross_attention for layer in self.decoder.layers]
        pairs = [cross.split(cross.inputs(hidden), 2) for cross in crosses if cross]
        return Memory(tuple(k.contiguous() for k, _ in pairs), tuple(v.contiguous() for _, v in pairs), mask)

    def start(self, encoded: Memory, prefix: np.ndarray, capacity: int | None = None) -> TransformerState:
        """A state with room for `capacity` slots, fed with all but the last of the prefix ids (B, P)."""
        check_prefix(prefix, encoded.rows)
        state = self._empty(encoded, len(prefix), min(capacity or self.max_target, self.max_target))
        fed = fed_before(prefix, self.tokens_per_step)
        if fed.shape[1]:
            self.step(state, fed)
        return state

    def _empty(self, encoded: Memory, rows: int, max_slots: int) -> TransformerState:
        """A state of `rows` rows, one for each sentence, that has been fed nothing."""
        keys, values = (self._caches(rows, min(max_slots, SLOTS)) for _ in range(2))
        lengths = np.zeros(rows, dtype=np.int64)
        return TransformerState(keys, values, max_slots, encoded, np.arange(rows), lengths, lengths.copy())

    def _caches(self, rows: int, slots: int) -> list[Tensor]:
        """A cache for each layer, with `slots` entries and one for slots that feed nothing."""
        heads, size = self.architecture.heads("decoder")
        shape = (rows, heads, slots + 1, size)
        return [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in self.decoder.layers]

    def source_vectors(self, encoded: Memory) -> list[np.ndarray]:
        """See `core.Vectors`: the values of the last decoder layer's cross-attention."""
        values = _merge(encoded.values[-1]).float().cpu().numpy()
        real = None if encoded.mask is None else encoded.mask[:, 0, 0].cpu().numpy()
        return [row if real is None else row[real[i]] for i, row in enumerate(values)]

    @torch.inference_mode()
    def length_log_probs(self, encoded: Memory) -> np.ndarray:
        """See `core.MaskedModel`."""
        assert self.lengths is not None and encoded.mean is not None
        return (encoded.mean @ self.lengths.T).double().log_softmax(-1).cpu().numpy()

    def refine(self, encoded: Memory, tokens: np.ndarray, rows: np.ndarray) -> Tensor:
        """See `core.MaskedModel`."""
        empty = self.start(encoded, np.zeros((encoded.rows, 0), dtype=np.int64), tokens.shape[1])
        return self.step(empty.select(rows), tokens)

    @torch.inference_mode()
    def step(self, state: TransformerState, tokens: np.ndarray, visible: np.ndarray | None = None) -> Tensor:
        """Feed tokens (B, W), -1 feeding nothing, and return hidden vectors (B, W, D); see `core.Model.step`."""
        tokens = plain(tokens, np.int64)
        place = _place(self, state, tokens, visible)
        ids = torch.from_numpy(tokens).to(self.device)
        hidden = self._decoded(ids, place, state.keys, state.values, *state.readable_memory())
        state.advance(place.counts)
        return hidden

    def _decoded(
        self,
        ids: Tensor,
        place: "Placing",
        own_keys: list[Tensor],
        own_values: list[Tensor],
        memory: Memory,
        group: int,
    ) -> Tensor:
        """Hidden vectors (B, W, D) of tokens (B, W) at their places, whose keys and values are written into the caches."""
        x = self._embed(self.decoder, ids.clamp_min(0) if place.ragged else ids, place.positions)
        for layer, keys, values, source_keys, source_values in zip(
            self.decoder.layers, own_keys, own_values, memory.keys, memory.values, strict=True
        ):
            attention, cross = layer.self_attention, layer.cross_attention
            assert cross is not None and cross.queries is not None
            q, k, v = attention.split(attention.inputs(self._before(x, attention.norm)), 3)
            place.write(keys, k)
            place.write(values, v)
            attended = self._attend(q, keys[:, :, : place.end], values[:, :, : place.end], place.mask)
            x = self._after(x, attention.out(_merge(attended)), attention.norm)
            queries = cross.queries(self._before(x, cross.norm))
            (q,) = cross.split(queries.view(len(x) // group, group * x.shape[1], -1), 1)
            attended = _merge(self._attend(q, source_keys, source_values, memory.mask))
            x = self._after(x, cross.out(attended.view(*x.shape[:2], -1)), cross.norm)
            x = self._feed_forward(layer, x)
        x = self.decoder.norm(x) if self.decoder.norm else x
        return x * self.architecture.output_scale if self.architecture.scaled_output else x


def _merge(heads: Tensor) -> Tensor:
    """(B, heads, W, size) -> (B, W, heads * size)."""
    return heads.transpose(1, 2).flatten(2)


@dataclass(frozen=True)
class Placing:
    """Positions and cache entries of the slots of one step, and what they may attend to."""

    positions: Tensor
    end: int
    """Cache entries to read."""
    counts: np.ndarray
    ragged: bool
    mask: Tensor | None
    start: int = 0
    rows: Tensor | None = None
    entries: Tensor | None = None

    def write(self, cache: Tensor, vectors: Tensor) -> None:
        """Put keys or values (B, heads, W, size) into their cache entries."""
        if self.rows is None:
            cache[:, :, self.start : self.end] = vectors
        else:
            cache[self.rows, :, self.entries] = vectors.transpose(1, 2)


def _place(model: Transformer, state: TransformerState, tokens: np.ndarray, visible: np.ndarray | None) -> Placing:
    tokens, counts, longest = state.checked_step(tokens, len(model.decoder.embedding), model.tokens_per_step)
    (rows, width), feeding = tokens.shape, tokens >= 0
    first = int(state.filled[0])
    all_feed, device, relative = bool(feeding.all()), model.device, model.decoder.positions
    state.reach(longest)
    if visible is None and all_feed and bool((state.filled == first).all()):
        end = first + width
        mask, places = model.causal_mask(first, end) if width > model.sight else None, torch.arange(end, device=device)
        if isinstance(relative, RelativePositions):
            mask = relative.mask(places[first:], places, mask)
        return Placing(places[first:], end, counts, False, mask, start=first)
    entries, positions, reads = scattered(state, feeding, visible, longest, model.sight)
    mask, places = (torch.from_numpy(array).to(device) for array in (reads[:, None], positions))
    if isinstance(relative, RelativePositions):
        keys = np.tile(np.arange(max(longest, state.spare + 1)), (rows, 1))
        np.put_along_axis(keys, entries, positions, 1)
        mask = relative.mask(places, torch.from_numpy(keys[:, :longest]).to(device), mask)
    return Placing(
        places,
        longest,
        counts,
        not all_feed,
        mask,
        rows=torch.arange(rows, device=device)[:, None],
        entries=torch.from_numpy(entries).to(device),
    )


def scattered(
    state: TransformerState, feeding: np.ndarray, visible: np.ndarray | None, end: int, sight: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cache entries and positions (B, W) of a step's slots, and which of the first `end` entries each reads, bool (B, W, end)."""
    counts, width = feeding.sum(1), feeding.shape[1]
    entries = np.where(feeding, state.filled[:, None] + np.arange(width), state.spare)
    # Slots that feed nothing are computed too and thrown away; they read entry 0 so that their results are finite.
    reads = np.arange(end) < np.where(feeding, state.filled[:, None], 1)[:, :, None]
    if visible is None:
        limits = np.minimum((np.arange(width) // sight + 1) * sight, counts[:, None]) + state.filled[:, None]
        reads |= (np.arange(end) < limits[:, :, None]) & feeding[:, :, None]
        positions = np.where(feeding, entries, 0)
    else:
        row, query, slot = np.nonzero(visible & feeding[:, :, None] & feeding[:, None, :])
        reads[row, query, entries[row, slot]] = True
        positions = np.where(feeding, reads.sum(2) - 1, 0)
    return entries, positions, reads
