"""Passes of the torch engine as CUDA graphs: recorded once for each shape, and replayed without a call for each kernel.

A small decoder on a GPU spends its passes on starting some hundreds of kernels. A graph starts them all at once, but only on the
same tensors. So rows that start together share caches of a fixed capacity, tokens are padded to one of a few widths, and masks
mark what is real. The encoder, the projection, and passes of rows that were selected from others (beams, batches from which a
sentence has left) run without graphs.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastdecode_lib.models.transformer import (
    SLOTS,
    Memory,
    Placing,
    RelativePositions,
    Transformer,
    TransformerState,
    scattered,
)

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
"""Slots of a pass that is recorded; wider ones are not."""
ENDS, SOURCES = 64, 16
"""Cache entries, and source tokens, are read in multiples of these."""
ROOMS, SHAPES = 3, 8
"""States of one shape that can have graphs at a time (others run without); shapes whose graphs are kept."""


@dataclass
class Pass:
    """A pass of one shape: the tensors it reads, and what runs it and returns its hidden vectors (B, W, D)."""

    numbers: Tensor
    """Tokens, positions and cache entries, int64 (3, B, W)."""
    reads: Tensor
    """(B, 1, W, end)."""
    place: Placing
    """Kept because a recorded graph reads its tensors."""
    run: Callable[[], Tensor]


@dataclass
class Room:
    """Tensors that the passes of some rows share: caches, memory, and the passes recorded on them."""

    keys: list[Tensor]
    values: list[Tensor]
    memory: Memory
    passes: dict[tuple[int, int], Pass] = field(default_factory=dict)
    owner: Any = None
    """Weak reference to the state that uses the room."""

    def lend(self, state: "GraphState", encoded: Memory) -> None:
        """Lend the room to a state, whose memory is copied into it."""
        length = encoded.keys[0].shape[2]
        for buffers, source in ((self.memory.keys, encoded.keys), (self.memory.values, encoded.values)):
            for buffer, tensor in zip(buffers, source, strict=True):
                buffer[:, :, :length] = tensor
        for cache in (*self.keys, *self.values):
            cache.zero_()
        assert self.memory.mask is not None
        self.memory.mask.zero_()
        self.memory.mask[..., :length] = True if encoded.mask is None else encoded.mask
        self.owner = weakref.ref(state)

    @property
    def free(self) -> bool:
        """Whether no state uses the room."""
        return self.owner is None or self.owner() is None


@dataclass
class GraphState(TransformerState):
    """A state whose passes run in a `Room`."""

    room: Room | None = None


class GraphTransformer(Transformer):
    """A `Transformer` whose passes are replayed as CUDA graphs; made by `of`. On a CPU they run without being recorded."""

    @classmethod
    def of(cls, network: Transformer) -> "GraphTransformer":
        """The same network, on the same tensors.

        Raises
        ------
        ValueError
            If it is not a transformer of the torch engine, or has relative positions.
        """
        if not isinstance(network, Transformer) or isinstance(network.decoder.positions, RelativePositions):
            raise ValueError(
                f"Graphs are for transformers with absolute positions on the torch engine: got a {type(network).__name__}. Load a "
                "Marian, mBART or M2M-100 model with engine='torch', or do without graphs."
            )
        graphed = cls.__new__(cls)
        vars(graphed).update(vars(network))
        graphed.rooms = {}
        graphed.memory_pool = torch.cuda.graph_pool_handle() if graphed.device.type == "cuda" else None
        return graphed

    rooms: dict[tuple[int, int], list[Room]]
    """Rooms by their rows and source tokens."""
    memory_pool: Any
    """Device memory that all graphs share: they run one after another, and their results are copied."""

    @torch.inference_mode()
    def _empty(self, encoded: Memory, rows: int, max_slots: int) -> TransformerState:
        longest = -(-encoded.keys[0].shape[2] // SOURCES) * SOURCES
        rooms = self.rooms.pop((rows, longest), [])
        for shape in list(self.rooms)[: max(0, len(self.rooms) + 1 - SHAPES)]:
            if all(room.free for room in self.rooms[shape]):
                del self.rooms[shape]
        self.rooms[rows, longest] = rooms
        room = next((room for room in rooms if room.free), None)
        if room is None:
            if len(rooms) == ROOMS:
                return super()._empty(encoded, rows, max_slots)
            rooms.append(room := self._room(encoded, rows, longest))
        lengths = np.zeros(rows, dtype=np.int64)
        state = GraphState(
            list(room.keys), list(room.values), max_slots, encoded, np.arange(rows), lengths, lengths.copy(), room=room
        )
        room.lend(state, encoded)
        return state

    def _room(self, encoded: Memory, rows: int, longest: int) -> Room:
        """A new room for the longest outputs, up to `SLOTS` slots."""
        keys, values = (self._caches(rows, min(self.max_target, SLOTS)) for _ in range(2))

        def empty(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(t.new_zeros((*t.shape[:2], longest, t.shape[3])) for t in tensors)

        mask = torch.zeros((rows, 1, 1, longest), dtype=torch.bool, device=self.device)
        return Room(keys, values, Memory(empty(encoded.keys), empty(encoded.values), mask))

    @torch.inference_mode()
    def step(self, state: TransformerState, tokens: np.ndarray, visible: np.ndarray | None = None) -> Tensor:
        """See `core.Model.step`."""
        room = state.room if isinstance(state, GraphState) else None
        if room is None or state.keys[0] is not room.keys[0] or tokens.ndim != 2 or tokens.shape[1] > WIDTHS[-1]:
            return super().step(state, tokens, visible)
        tokens, counts, longest = state.checked_step(tokens, len(self.decoder.embedding), self.tokens_per_step)
        rows, slots = tokens.shape
        width = next(w for w in WIDTHS if w >= slots)
        padded = np.full((rows, width), -1, dtype=np.int64)
        padded[:, :slots] = tokens
        padded_visible = visible
        if visible is not None and slots < width:
            padded_visible = np.zeros((rows, width, width), dtype=bool)
            padded_visible[:, :slots, :slots] = visible
        feeding = padded >= 0
        if longest > state.spare:
            return super().step(state, tokens, visible)
        end = min(-(-longest // ENDS) * ENDS, state.spare)
        entries, positions, reads = scattered(state, feeding, padded_visible, end, self.sight)
        recorded = room.passes.get((width, end)) or self._recorded(room, rows, width, end)
        recorded.numbers.copy_(torch.from_numpy(np.stack([np.maximum(padded, 0), positions, entries])))
        recorded.reads.copy_(torch.from_numpy(reads[:, None]))
        hidden = recorded.run()[:, :slots]
        state.advance(counts)
        return hidden

    def _recorded(self, room: Room, rows: int, width: int, end: int) -> Pass:
        """A pass of `width` slots that reads `end` cache entries, recorded if on a GPU."""
        numbers = torch.zeros((3, rows, width), dtype=torch.int64, device=self.device)
        numbers[2] = room.keys[0].shape[2] - 1
        reads = torch.ones((rows, 1, width, end), dtype=torch.bool, device=self.device)
        ids, positions, entries = numbers.unbind(0)
        row_index = torch.arange(rows, device=self.device)[:, None]
        place = Placing(positions, end, np.zeros(rows, dtype=np.int64), False, reads, rows=row_index, entries=entries)

        def run() -> Tensor:
            return self._decoded(ids, place, room.keys, room.values, room.memory, 1)

        recorded = Pass(numbers, reads, place, run)
        if self.device.type == "cuda":
            recorded.run = self._replayed(run)
        room.passes[width, end] = recorded
        return recorded

    def _replayed(self, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """A call recorded as a graph, after two warm-up calls, since some preparations cannot be recorded; results are copies."""
        stream, graph = torch.cuda.Stream(self.device), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(2):
                run()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        with torch.cuda.graph(graph, pool=self.memory_pool):
            hidden = run()

        def replay() -> Tensor:
            graph.replay()
            return hidden.clone()

        return replay
