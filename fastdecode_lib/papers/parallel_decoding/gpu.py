"""Passes and decoders on a GPU in float16, called kernel by kernel and replayed as CUDA graphs (Santilli et al., 2023).

The cost of a pass by its width is measured at the shapes of the paper's models with random weights. How many draft tokens are
accepted needs trained weights: those of the bundled model, and of the bundled model grown to mBART's shape (`shared.grown`),
which has the same outputs and passes.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from fastdecode_lib.loading import TranslationModel, graphed, load
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.pass_costs import pass_systems
from fastdecode_lib.measuring.provenance import device_name
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import NO_SOURCE, System
from fastdecode_lib.papers.parallel_decoding.costs import GEOMETRIES
from fastdecode_lib.papers.parallel_decoding.printed import GREEDY, HGJ3, PGJ3, PJ
from fastdecode_lib.papers.run import DeviceRun, Scale, experiment, table_of
from fastdecode_lib.papers.shared.grown import grown_on_torch
from fastdecode_lib.papers.shared.random_models import TOY, random_network
from fastdecode_lib.papers.shared.rows import keyed, median, ratio_of
from fastdecode_lib.text.corpus import spread_over
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.translation import Session

DIRECTION = ("en", "de")
WINDOW = "window:width=5,draft=recycled/pad"
DECODERS = (GREEDY, PJ, PGJ3, HGJ3, WINDOW)
KINDS = ("plain", "graphs")


@dataclass(frozen=True)
class Size:
    """The shape that the bundled model is grown to, None for its own; sentences and rounds."""

    shape: tuple[int, tuple[int, int], int] | None
    """Copies of each feature, layers, tokens."""
    sentences: int
    rounds: int


MODELS = {
    Scale.TINY: {"bundled": Size(None, 1, 2), "grown": Size((1, (4, 3), 16_500), 1, 2)},
    Scale.LAPTOP: {"bundled": Size(None, 8, 9), "mBART's shape": Size((4, (12, 12), 250_000), 4, 6)},
}


@experiment
def gpu_passes(run: DeviceRun) -> pd.DataFrame:
    """Time of a pass over w positions, network and projection, without and with CUDA graphs, at the shapes of the paper's models.

    ``cost`` is in passes over one position of the same kind, ``gain`` the speedup over plain passes of the same width.
    """
    from fastdecode_lib.models.graphs import GraphTransformer

    widths, steps, rounds = ((1, 4), 2, 3) if run.tiny else ((1, 2, 4, 8, 16, 32), 10, 7)
    rows: list[dict[str, Any]] = []
    for name, shape in ({"toy": TOY} if run.tiny else GEOMETRIES).items():
        network = random_network(shape, run.seed, run.device, run.dtype)
        systems = {}
        for kind, model in zip(KINDS, (network, GraphTransformer.of(network)), strict=True):
            for width, system in zip(widths, pass_systems(model, widths, seed=run.seed), strict=True):
                systems[kind, width] = System(f"{kind} {width}", system.decode)
        timings = run.measure(list(systems.values()), [NO_SOURCE] * steps, runs=rounds, warm_up=2)
        timings_by_key = dict(zip(systems, timings, strict=True))
        for (kind, width), m in timings_by_key.items():
            one_position, plain = timings_by_key[kind, 1], timings_by_key[KINDS[0], width]
            rows.append(
                {
                    "name": f"{name}, {kind}, {width} positions",
                    "group": f"{name}, {kind}",
                    "shape": name,
                    "kernels": kind,
                    "width": width,
                    "milliseconds": 1000 * median(m) / steps,
                    **ratio_of("cost", m.seconds, one_position.seconds),
                    **ratio_of("gain", plain.seconds, m.seconds),
                    "seconds": m.seconds.tolist(),
                }
            )
        del network, model, systems, timings_by_key
    facts = {"engine": "torch", "dtype": run.dtype, "device": device_name(run.device)}
    return table_of(rows, run, **facts, rounds=rounds, steps=steps)


@experiment
def gpu(run: DeviceRun) -> pd.DataFrame:
    """Whole decoding on a GPU, one sentence at a time: greedy, PJ, PGJ, HGJ and the window, without and with CUDA graphs.

    ``speedup`` is over greedy decoding of the same kind, ``over_plain`` over greedy decoding without graphs; all in one run and in
    turns.
    """
    bundled = load("tatoeba-small", device=run.device, engine="torch", dtype=run.dtype)
    rows: list[dict[str, Any]] = []
    sizes = MODELS.get(run.scale, MODELS[Scale.LAPTOP])
    for name, size in sizes.items():
        model = bundled if size.shape is None else grown_on_torch(bundled, *size.shape, run.device, run.dtype, run.seed)
        rows += _decoded(name, model, size, run)
    return table_of(rows, run, bundled, models={name: vars(size) for name, size in sizes.items()})


def _decoded(name: str, model: TranslationModel, size: Size, run: DeviceRun) -> list[dict[str, Any]]:
    """A row for each decoder, without and with graphs."""
    texts = spread_over(sorted((text for text, _ in own_pairs(*DIRECTION)), key=len), size.sentences)
    sources = [model.encode([text], *DIRECTION) for text in texts]
    systems, passes = {}, {}
    for kind, model_of_kind in zip(KINDS, (model, graphed(model)), strict=True):
        for decoder in DECODERS:
            system = decoder_system(Session.of(model_of_kind, *DIRECTION, decoder), decoder)
            systems[kind, decoder] = System(f"{kind} {decoder}", system.decode)
            if kind == KINDS[0] and system.count is not None:
                passes[decoder] = sum(system.count(source).passes for source in sources) / len(sources)
    timings = run.measure(list(systems.values()), sources, runs=size.rounds, warm_up=1)
    timings_by_key = dict(zip(systems, timings, strict=True))
    rows = []
    for (kind, decoder), m in timings_by_key.items():
        greedy, plain_greedy = timings_by_key[kind, GREEDY], timings_by_key[KINDS[0], GREEDY]
        rows.append(
            {
                **keyed(shape=name, kernels=kind, decoder=decoder),
                "sentences": len(sources),
                "passes": passes[decoder],
                "milliseconds": 1000 * median(m) / len(sources),
                "identical": same_share(m.outputs, plain_greedy.outputs),
                **ratio_of("speedup", greedy.seconds, m.seconds),
                **ratio_of("over_plain", plain_greedy.seconds, m.seconds),
                "seconds": m.seconds.tolist(),
            }
        )
    return rows
