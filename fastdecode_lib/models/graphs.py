"""Passes of the torch engine as CUDA graphs: recorded once for each shape, and replayed without a call for each kernel.

A small decoder on a GPU spends its passes on starting kernels, some hundreds of them. A graph starts them all at once, but only
on the same tensors: so here rows that start together share caches of a fixed capacity, tokens are padded to one of a few widths,
and masks say what is real. Encoder and projection are called as before, and so is every pass of rows that were selected from
others (a beam that moves, a batch from which a sentence has left).
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastdecode_lib.models.states import check_groups
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
"""States of one shape that have graphs at a time, those beyond doing without; and shapes whose graphs are kept."""


@dataclass
class Pass:
    """A pass of one shape: the tensors it reads, and what runs it and returns its hidden vectors (B, W, D)."""

    numbers: Tensor
    """Tokens, positions and cache entries, int64 (3, B, W)."""
    reads: Tensor
    """(B, 1, W, end)."""
    place: Placing
    """Its tensors are held here: a graph reads them wherever they were recorded."""
    run: Callable[[], Tensor]


@dataclass
class Room:
    """Tensors that the passes of some rows share: caches, memory, and the passes recorded on them."""

    keys: list[Tensor]
    values: list[Tensor]
    memory: Memory
    passes: dict[tuple[int, int], Pass] = field(default_factory=dict)
    owner: Any = None
    """Weak reference to the state that it is lent to."""

    def lend(self, state: "GraphState", encoded: Memory) -> None:
        """Give the room to a state, whose memory is copied into it."""
        length = encoded.keys[0].shape[2]
        for room, given in ((self.memory.keys, encoded.keys), (self.memory.values, encoded.values)):
            for mine, theirs in zip(room, given, strict=True):
                mine[:, :, :length] = theirs
        for cache in (*self.keys, *self.values):
            cache.zero_()
        assert self.memory.mask is not None
        self.memory.mask.zero_()
        self.memory.mask[..., :length] = True if encoded.mask is None else encoded.mask
        self.owner = weakref.ref(state)

    @property
    def free(self) -> bool:
        """Whether no state has it."""
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
            If it is none of the torch engine, or has relative positions.
        """
        if not isinstance(network, Transformer) or isinstance(network.decoder.positions, RelativePositions):
            raise ValueError(
                f"Graphs are for transformers with absolute positions on the torch engine: got a {type(network).__name__}. Load a "
                "Marian, mBART or M2M-100 model with engine='torch', or do without graphs."
            )
        made = cls.__new__(cls)
        vars(made).update(vars(network))
        made.rooms = {}
        made.memory_pool = torch.cuda.graph_pool_handle() if made.device.type == "cuda" else None
        return made

    rooms: dict[tuple[int, int], list[Room]]
    """Rooms by their rows and source tokens."""
    memory_pool: Any
    """Device memory that all graphs share: they run one after another, and their results are held."""

    @torch.inference_mode()
    def _empty(self, encoded: Memory, rows: int, most: int) -> TransformerState:
        longest = -(-encoded.keys[0].shape[2] // SOURCES) * SOURCES
        known = self.rooms.pop((rows, longest), [])
        for shape in list(self.rooms)[: max(0, len(self.rooms) + 1 - SHAPES)]:
            if all(room.free for room in self.rooms[shape]):
                del self.rooms[shape]
        self.rooms[rows, longest] = known
        room = next((room for room in known if room.free), None)
        if room is None:
            if len(known) == ROOMS:
                return super()._empty(encoded, rows, most)
            known.append(room := self._room(encoded, rows, longest))
        lengths = np.zeros(rows, dtype=np.int64)
        state = GraphState(
            list(room.keys), list(room.values), most, encoded, np.arange(rows), lengths, lengths.copy(), room=room
        )
        room.lend(state, encoded)
        return state

    def _room(self, encoded: Memory, rows: int, longest: int) -> Room:
        """A new room for the longest outputs there can be, up to `SLOTS`."""
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
        state.feeding(tokens)
        rows, fed = tokens.shape
        width = next(w for w in WIDTHS if w >= fed)
        padded = np.full((rows, width), -1, dtype=np.int64)
        padded[:, :fed] = tokens
        seen = visible
        if visible is not None and fed < width:
            seen = np.zeros((rows, width, width), dtype=bool)
            seen[:, :fed, :fed] = visible
        feeding = padded >= 0
        counts = feeding.sum(1)
        check_groups(state.filled, feeding, self.tokens_per_step)
        longest = int((state.filled + counts).max())
        if longest > state.spare:
            return super().step(state, tokens, visible)
        end = min(-(-longest // ENDS) * ENDS, state.spare)
        entries, positions, reads = scattered(state, feeding, seen, end, self.sight)
        one = room.passes.get((width, end)) or self._recorded(room, rows, width, end)
        one.numbers.copy_(torch.from_numpy(np.stack([np.maximum(padded, 0), positions, entries])))
        one.reads.copy_(torch.from_numpy(reads[:, None]))
        hidden = one.run()[:, :fed]
        state.advance(counts)
        return hidden

    def _recorded(self, room: Room, rows: int, width: int, end: int) -> Pass:
        """A pass of so many slots that reads so many cache entries, recorded on a GPU."""
        numbers = torch.zeros((3, rows, width), dtype=torch.int64, device=self.device)
        numbers[2] = room.keys[0].shape[2] - 1
        reads = torch.ones((rows, 1, width, end), dtype=torch.bool, device=self.device)
        ids, positions, entries = numbers.unbind(0)
        at = torch.arange(rows, device=self.device)[:, None]
        place = Placing(positions, end, np.zeros(rows, dtype=np.int64), False, reads, rows=at, entries=entries)

        def run() -> Tensor:
            return self._decoded(ids, place, room.keys, room.values, room.memory, 1)

        one = Pass(numbers, reads, place, run)
        if self.device.type == "cuda":
            one.run = self._replayed(run)
        room.passes[width, end] = one
        return one

    def _replayed(self, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """A call as a graph, after two calls in which libraries prepare what cannot be recorded; its result is a copy."""
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
