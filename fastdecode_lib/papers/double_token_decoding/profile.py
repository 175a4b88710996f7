"""Profile of decoding one and two tokens a step, and the effects of a larger vocabulary and of a screen.

A step of two tokens does the arithmetic of two single-token steps, but reads the weights and copies the beam's caches only once, so
that the ratio lies between 1 and 2.
"""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd

from fastdecode_lib import registry
from fastdecode_lib.core import Model, Projection, Source, Usage
from fastdecode_lib.measuring.counting import Watched, WatchedModel
from fastdecode_lib.measuring.referee import System, stopwatch
from fastdecode_lib.papers.double_token_decoding.quality import BATCH
from fastdecode_lib.papers.double_token_decoding.speed import RUNS
from fastdecode_lib.papers.double_token_decoding.systems import (
    BEAM,
    BOTH,
    END,
    L2R,
    START,
    Geometry,
    forced_system,
    geometry_of,
    network_of,
    random_source,
    timing_columns,
)
from fastdecode_lib.papers.run import Run, Scale, experiment, table_of
from fastdecode_lib.papers.shared.random_models import random_network
from fastdecode_lib.papers.shared.rows import median, times_as_fast
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.exact_compiled import output_matrix
from fastdecode_lib.projections.screen_compiled import ScreenScorer
from fastdecode_lib.projections.screens import Screen
from fastdecode_lib.text.tokenizers import padded

CASES = (
    ("base", 1, "compiled", "float32"),
    ("base", 1, "compiled", "int16"),
    ("base", 1, "compiled", "int8"),
    ("base", 1, "torch", "float32"),
    ("base", 1, "torch", "bfloat16"),
    ("ours", 1, "compiled", "float32"),
    ("ours", BATCH, "compiled", "float32"),
)
"""Size, batch size, engine and number format: with fewer bytes a weight and more products a cycle, the rest of a step has a larger
share. The last case is a batch of table 2."""
NAMES = {1: L2R, 2: BOTH}
"""Systems by tokens a step."""
PARTS = ("encoder", "layers", "copies", "choice", "search")
"""``layers``: of the decoder; ``copies``: of its caches when the beam is reordered; ``choice``: output product, normalisation and
top-k; ``search``: the rest."""


@experiment
def profile(run: Run) -> pd.DataFrame:
    """The ratio at a beam of 10 in every number format and in a batch, and the times of the parts of decoding by both systems.

    Parts are milliseconds, medians over separate runs. ``products``: the ratio of encoder, layers and choice alone.
    ``arithmetic``: the ratio of positions computed; ``reading``: of passes, each of which reads all weights once.
    """
    rows = []
    for size, batch, engine, numbers in run.bar(CASES, unit="case"):
        geometry = geometry_of(size, run)
        source = random_source(geometry, min(batch, 3) if run.tiny else batch, run.seed)
        networks = [_network(geometry, engine, numbers, group, run.seed) for group in NAMES]
        systems = [forced_system(str(network.tokens_per_step), network, BEAM, geometry.tokens) for network in networks]
        timings = run.measure(systems, [source], runs=RUNS[run.scale])
        profiled = [_profiled_system(network, geometry.tokens) for network in networks]
        run.measure([system for system, _ in profiled], [source], runs=RUNS[run.scale])
        parts = [dict(zip(PARTS, (1e3 * np.median(runs[1:], axis=0)).tolist(), strict=True)) for _, runs in profiled]
        products = [part["encoder"] + part["layers"] + part["choice"] for part in parts]
        usages = [cast(Usage, m.usage) for m in timings]
        case = {"size": size, "batch": batch, "engine": engine, "numbers": numbers}
        for m, part, usage, group in zip(timings, parts, usages, NAMES, strict=True):
            row = {
                "name": f"{size}, batch {batch}, {engine}, {numbers}, {NAMES[group]}",
                **case,
                "system": NAMES[group],
            }
            row |= timing_columns(timings[0], m) | {"milliseconds": 1e3 * median(m), **part}
            if group == 2:
                row |= {
                    "products": products[0] / products[1],
                    "arithmetic": usages[0].positions / usage.positions,
                    "reading": usages[0].passes / usage.passes,
                }
            rows.append(row)
    return table_of(rows, run, beam=BEAM)


def _network(geometry: Geometry, engine: str, numbers: str, group: int, seed: int) -> Any:
    """A network with random weights, the same in every engine and number format."""
    if engine == "compiled":
        return network_of(geometry, group, seed, numbers)
    return random_network(geometry.shape(group), seed, dtype=numbers)


def _profiled_system(model: Model, tokens: int) -> tuple[System, list[list[float]]]:
    """A system of `forced_system`, and the list to which each run appends its seconds in the order of `PARTS`."""
    runs: list[list[float]] = []

    def decode(source: Source) -> tuple[int, ...]:
        network: Any = WatchedModel(model)
        choice: Any = Watched(registry.projection("exact", model))
        total, (output,) = stopwatch(forced_system("", network, BEAM, tokens, choice).decode, [source])
        parts = [*network.seconds.values(), choice.seconds]
        runs.append([*parts, total - sum(parts)])
        return output

    return System(str(model.tokens_per_step), decode), runs


SIZES = {Scale.TINY: (300,), Scale.LAPTOP: (8_000, 32_000, 64_000), Scale.PAPER: (8_000, 16_000, 32_000, 64_000)}
SHARE = 0.045
"""Share of the vocabulary in an active set: table 2 of `vocabulary_clusters` has 4 to 5% of 8,000."""
SETS = 50


@experiment
def screened_vocabulary(run: Run) -> pd.DataFrame:
    """Gain of two tokens a step with a screen and large vocabularies: base geometry, forced lengths.

    A step of two tokens scores as many rows as two single-token steps, which is said to use up the gain where vocabularies are
    large. Active sets are random tokens, 4.5% of all, and the end; centroids are hidden vectors of the network. ``speedup`` is over
    single-token decoding with the same projection, ``over_exact`` over single-token decoding with the full one.
    """
    rows = []
    sizes = [(v, beam) for v in SIZES[run.scale] for beam in (1, BEAM)]
    for vocabulary, beam in run.bar(sizes, unit="size"):
        geometry = replace(geometry_of("base", run), vocabulary=vocabulary)
        systems: list[System] = []
        for label in ("exact", "screened"):
            for group in NAMES:
                network = network_of(geometry, group, run.seed)
                projection = None if label == "exact" else _screened(network, run.seed)
                systems.append(forced_system(f"{label} {group}", network, beam, geometry.tokens, projection))
        timings = run.measure(systems, [random_source(geometry, 1, run.seed)], runs=RUNS[run.scale])
        for number, m in enumerate(timings):
            label, tokens = m.name.split()
            rows.append(
                {
                    "name": f"{vocabulary:,}, beam {beam}, {label}, {tokens} a step",
                    "system": NAMES[int(tokens)],
                    "vocabulary": vocabulary,
                    "beam": beam,
                    "projection": label,
                    "group": f"{label}, beam {beam}",
                    **timing_columns(timings[number // 2 * 2], m),
                    "over_exact": times_as_fast(timings[0], m),
                }
            )
    return table_of(rows, run, share=SHARE, sets=SETS)


def _screened(network: Any, seed: int) -> Projection:
    """A screen of random active sets, with hidden vectors of random text as centroids."""
    matrix = output_matrix(network)
    vocabulary, width = matrix.shape
    random = np.random.default_rng(seed)
    size = max(4 * BEAM, round(SHARE * vocabulary))
    sets = [[END, *(END + 1 + random.choice(vocabulary - 1, size - 1, replace=False))] for _ in range(SETS)]
    tokens = random.integers(END + 1, vocabulary, (16, 4 * network.tokens_per_step))
    memory = network.encode(padded(tokens.tolist(), START))
    state = network.start(memory, np.zeros((len(tokens), 0), dtype=np.int64))
    hidden = network.step(state, tokens).reshape(-1, width)
    centroids = hidden[random.choice(len(hidden), SETS, replace=False)]
    return ScreenScorer(Screen("clustered", centroids, ActiveSets.of(sets, vocabulary)), matrix)
