"""The cost of a pass by its width: how long a network and its exact projection take for several positions at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Measurement, Source
from fastdecode_lib.measuring.referee import NO_SOURCE, System, measure
from fastdecode_lib.projections.lexical import source_vocabulary

HELD_SLOTS, HELD_SOURCE = 20, 20
"""Target tokens and source tokens before the passes whose cost is measured."""


def pass_systems(network: Any, widths: Sequence[int], seed: int = 0) -> list[System]:
    """Systems that run one pass of a given width for each source: network, projection, and a reset of the cache.

    Passes follow `HELD_SLOTS` random target tokens for a random source; only the number of the sources given matters.
    """
    random = np.random.default_rng(seed)
    projection = registry.projection("exact", network)
    vocabulary = network.outputs[0].vocabulary
    source = Source(random.integers(0, source_vocabulary(network), (1, HELD_SOURCE)), np.array([HELD_SOURCE]))
    tokens = random.integers(0, vocabulary, (1, HELD_SLOTS + max(widths)))
    state = network.start(network.encode(source), np.zeros((1, 1), dtype=np.int64), HELD_SLOTS + max(widths) + 1)
    network.step(state, tokens[:, :HELD_SLOTS])
    lengths = state.lengths

    def system(width: int) -> System:
        def decode(_: Source) -> tuple[int, ...]:
            hidden = network.step(state, tokens[:, HELD_SLOTS : HELD_SLOTS + width])
            best = projection.bind(source).top_k(hidden[0], 1)
            state.truncate(lengths)
            return tuple(best.ids[:, 0].tolist())

        return System(f"pass of {width}", decode)

    return [system(width) for width in widths]


def pass_cost(
    network: Any,
    widths: Sequence[int],
    *,
    steps: int,
    rounds: int,
    threads: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> list[Measurement]:
    """Time passes of given widths; each measured time is that of `steps` passes."""
    return measure(
        pass_systems(network, widths, seed=seed),
        [NO_SOURCE] * steps,
        runs=rounds,
        threads=threads,
        device=str(getattr(network, "device", "cpu")),
        seed=seed,
        progress=progress,
    )
