"""Costs of passes by width, number of cores and size of the batch, and when saving passes pays."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.core import Source, Usage
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.pass_costs import pass_cost
from fastdecode_lib.papers.parallel_decoding import printed
from fastdecode_lib.papers.parallel_decoding.printed import GREEDY, HGJ3, PGJ3, PJ
from fastdecode_lib.papers.parallel_decoding.runs import (
    SIZES,
    WINDOW,
    directions_of,
    sentence_pairs,
    speedup_row,
    take_turns,
)
from fastdecode_lib.papers.run import ModelRun, Scale, ThreadedRun, experiment, table_of
from fastdecode_lib.papers.shared.batches import batches, session_system
from fastdecode_lib.papers.shared.random_models import OPUS, marian_shape, random_network
from fastdecode_lib.papers.shared.rows import median, times_as_fast, width_rows
from fastdecode_lib.translation import Session

_MBART = marian_shape(width=1024, feed_forward=4096, heads=16, layers=(0, 12), vocabulary=250_054, positions=1024)
GEOMETRIES = {
    "opus-mt": replace(OPUS, encoder_layers=0),
    "mbart-50": replace(_MBART, family="mbart", activation="relu", padding=1),
}
"""Decoders of the paper's models, without encoders, which take no part in a pass."""


@experiment
def cost(run: ThreadedRun) -> pd.DataFrame:
    """Cost of a pass over w positions, in passes over one position: of the model, and except at tiny scale of larger shapes."""
    model = run.loaded
    widths = (1, 2, 4, 8, 16) if run.tiny else tuple(range(1, 17))
    rounds = {Scale.TINY: 3, Scale.LAPTOP: 9, Scale.PAPER: 15}[run.scale]
    networks: dict[str, tuple[Callable[[], Any], int]] = {model.name: (lambda: model.network, 40)}
    if not run.tiny:
        for name, shape in GEOMETRIES.items():
            steps = 10 if shape.width < 1000 else 2
            networks[f"{name}, random weights"] = (partial(random_network, shape, run.seed, model.device), steps)
    rows: list[dict[str, Any]] = []
    for name, (make, steps) in networks.items():
        timings = pass_cost(
            make(), widths, steps=steps, rounds=rounds, threads=run.threads, seed=run.seed, progress=run.progress
        )
        rows += width_rows(name, widths, timings, steps)
    return table_of(rows, run, model, rounds=rounds)


# ------------------------------------------------------------------------------------------------------ figure 3: cores

CORES = (1, 2, 4, 8, 16, 32, 64, 122)


@experiment
def figure3(run: ModelRun) -> pd.DataFrame:
    """Figure 3: speedup against cores, measured on this machine's cores, calculated for any number, and as the paper has it.

    The calculation: on one core a pass over w positions costs ``a + b w``, fitted to the measured cost of a pass; c cores share
    the positions, ``a + b ceil(w / c)``. All else that decoding takes (drafts, encoder), its measured time less that of its
    passes, stays on one core. The calculated speedup on one core is therefore the measured one, and on many cores it is at most
    the ratio of passes. It is that of an engine whose cores share a pass; ours gives one sentence to one core, so that the
    measured speedups are the same on all.
    """
    model = run.loaded
    size = SIZES[run.scale]
    direction = directions_of(model, run.scale)[0]
    texts = [a for a, _ in sentence_pairs(run, *direction, "joined", size.timed[1])]
    sources = [model.encode([text], *direction) for text in texts]
    sessions = {name: Session.of(model, *direction, name) for name in (GREEDY, PJ, PGJ3, HGJ3, WINDOW)}
    systems = [decoder_system(session, name) for name, session in sessions.items()]
    rows: list[dict[str, Any]] = []
    one_core: dict[str, float] = {}
    available = 1 if run.tiny else os.cpu_count() or 1
    for cores in (n for n in CORES if n <= available):
        times = take_turns(run, systems, sources, size.rounds, cores)
        greedy = times[GREEDY]
        one_core = one_core or {name: median(greedy) / times_as_fast(greedy, m) for name, m in times.items()}
        for name, m in times.items():
            rows.append({"name": name, "cores": cores} | speedup_row(greedy, m))
    widths = (1, 2, 4, 8, 16)
    timings = pass_cost(
        model.network, widths, steps=20, rounds=size.rounds + 2, threads=1, seed=run.seed, progress=run.progress
    )
    slope, intercept = np.maximum(np.polyfit(widths, [np.median(m.seconds) for m in timings], 1), 0.0)
    widths_of = {name: _widths(session, sources) for name, session in sessions.items()}

    def calculated(name: str, cores: int) -> float:
        positions = widths_of[name]
        in_passes = (intercept + slope * positions).sum()
        saved = slope * (positions - np.ceil(positions / cores)).sum()
        return one_core[name] - float(saved * min(1.0, one_core[name] / in_passes))

    for cores, name in product(CORES, sessions):
        speedup = min(one_core[GREEDY] / calculated(name, cores), len(widths_of[GREEDY]) / len(widths_of[name]))
        rows.append({"name": name, "cores": cores, "kind": "model", "speedup": speedup})
    for name, values in printed.FIGURE_3.items():
        rows += [{"name": name, "cores": n, "kind": "paper", "paper_speedup": value} for n, value in values.items()]
    return table_of(
        rows,
        run,
        model,
        model="a + b ceil(w / cores) a pass, in greedy passes, and all else as measured on one core",
        a=float(intercept / (intercept + slope)),
        b=float(slope / (intercept + slope)),
        direction="-".join(direction),
        sentences=len(texts),
        rounds=size.rounds,
    )


def _widths(session: Session, sources: Sequence[Source]) -> np.ndarray:
    """Positions of every pass over the sources."""
    network, projection = session.model.network, session.projection
    return np.array(
        [
            iteration.positions
            for source in sources
            for iteration in session.decoder.iterate(network, projection, source, session.constraints)
        ]
    )


@experiment
def batch(run: ThreadedRun) -> pd.DataFrame:
    """Speedup against batch size: each decoder and greedy decoding in batches of the same size, on joined sentences.

    ``break_even`` in the provenance is the largest batch size at which each decoder is no slower than greedy decoding, None where
    there is none.
    """
    model = run.loaded
    direction = directions_of(model, run.scale)[0]
    sizes, sentences = ((1, 2), 2) if run.tiny else ((1, 2, 4, 8, 16, 32), 32)
    rounds = SIZES[run.scale].rounds
    texts = [a for a, _ in sentence_pairs(run, *direction, "joined", sentences)]
    decoders = (GREEDY, PGJ3, WINDOW)
    systems = [session_system(name, Session.of(model, *direction, name), counted=True) for name in decoders]
    rows: list[dict[str, Any]] = []
    for size in sizes:
        parts = batches(model, texts, direction, size, by_length=True)
        times = take_turns(run, systems, parts, rounds, run.threads)
        for system in systems:
            m, base = times[system.name], times[GREEDY]
            usage = sum((system.count(part) for part in parts if system.count), Usage())
            rows.append(
                {"name": system.name, "batch": size, "sentences": len(texts)}
                | speedup_row(base, m)
                | {
                    "seconds_per_sentence": median(m) / len(texts),
                    "calls": usage.passes,
                    "positions": usage.positions,
                    "agreement": float(m.outputs == base.outputs),
                }
            )
    break_even = {
        name: max((row["batch"] for row in rows if row["name"] == name and row["speedup"] >= 1), default=None)
        for name in decoders
    }
    return table_of(rows, run, model, direction="-".join(direction), rounds=rounds, break_even=break_even)
