"""Costs of passes by width, number of cores and size of the batch, and when saving passes pays."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.checkpoints.transformer import Architecture
from fastdecode_lib.core import Source, Usage, drain
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.counting import Counted
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.referee import System, noisy
from fastdecode_lib.measuring.widths import pass_cost
from fastdecode_lib.papers.experiment import Scale
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
from fastdecode_lib.papers.shared.rows import ratio_of, with_provenance
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd

GEOMETRIES = {
    "opus-mt": Architecture(
        family="marian", source_vocabulary=58_101, vocabulary=58_101, width=512, encoder_layers=0, decoder_layers=6,
        encoder_heads=8, decoder_heads=8, encoder_feed_forward=2048, decoder_feed_forward=2048, max_positions=512,
        activation="swish", scaled_embeddings=True, padding=58_100, shared_embeddings=True, tied_output=True,
    ),
    "mbart-50": Architecture(
        family="mbart", source_vocabulary=250_054, vocabulary=250_054, width=1024, encoder_layers=0, decoder_layers=12,
        encoder_heads=16, decoder_heads=16, encoder_feed_forward=4096, decoder_feed_forward=4096, max_positions=1024,
        activation="relu", scaled_embeddings=True, padding=1, shared_embeddings=True, tied_output=True,
    ),
}  # fmt: skip
"""Decoders of the models the paper used; the encoder takes no part in a pass, and is left out."""


def random_network(architecture: Architecture, seed: int, device: str = "cpu") -> Any:
    """A network of a given shape with random weights in float32, which cost what trained ones cost."""
    import torch

    from fastdecode_lib.models.transformer import Transformer

    generator = torch.Generator().manual_seed(seed)
    shared = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    tensors: dict[str, Any] = {}
    for name, shape in architecture.tensors.items():
        if name in shared[1:]:
            tensors[name] = tensors[shared[0]]
        elif name.endswith("norm.weight") or name.endswith("embedding.weight"):
            tensors[name] = torch.ones(shape)
        else:
            tensors[name] = torch.empty(shape).uniform_(-0.05, 0.05, generator=generator)
    return Transformer(architecture, tensors, device)


def cost(
    scale: Scale = Scale.LAPTOP,
    *,
    model: TranslationModel | None = None,
    seed: int = 0,
    threads: int = 1,
    progress: bool = False,
) -> "pd.DataFrame":
    """Cost of a pass over w positions, in passes over one: of the model, and from laptop scale on of larger shapes."""
    model = model or load()
    widths = (1, 2, 4, 8, 16) if scale is Scale.TINY else tuple(range(1, 17))
    rounds = {Scale.TINY: 3, Scale.LAPTOP: 7, Scale.PAPER: 15}[scale]
    made: dict[str, tuple[Callable[[], Any], int]] = {model.name: (lambda: model.network, 40)}
    if scale is not Scale.TINY:
        for name, shape in GEOMETRIES.items():
            steps = 10 if shape.width < 1000 else 2
            made[f"{name}, random weights"] = (partial(random_network, shape, seed, model.device), steps)
    rows = []
    for name, (make, steps) in made.items():
        timings = pass_cost(make(), widths, steps=steps, rounds=rounds, threads=threads, seed=seed, progress=progress)
        for width, m in zip(widths, timings, strict=True):
            rows.append(
                {
                    "name": name,
                    "width": width,
                    **ratio_of("cost", m.seconds, timings[0].seconds, seed),
                    "milliseconds": 1000 * float(np.median(m.seconds)) / steps,
                    "note": "noisy" if noisy(m, timings[0]) else "",
                }
            )
    return with_provenance(rows, provenance(model, threads=threads, seed=seed) | {"rounds": rounds})


# ------------------------------------------------------------------------------------------------------ figure 3: cores

CORES = (1, 2, 4, 8, 16, 32, 64, 122)


def figure3(
    scale: Scale = Scale.LAPTOP,
    *,
    model: TranslationModel | None = None,
    seed: int = 0,
    data: str | None = None,
    progress: bool = False,
) -> "pd.DataFrame":
    """Figure 3: speedup against cores, measured as far as there are any, calculated beyond, and as the paper read it.

    The model: on one core a pass over w positions costs ``a + b w``, fitted to the measured cost of a pass; c cores share the
    positions, ``a + b ceil(w / c)``, and greedy decoding, which has but one, gains nothing. More cores than positions bring
    the cost of every pass down to greedy's, and the speedup up to the ratio of passes, never further.
    """
    model = model or load()
    size = SIZES[scale]
    direction = directions_of(model, scale)[0]
    texts = [a for a, _ in sentence_pairs(scale, data, *direction, "joined", size.timed[1])]
    sources = [model.encode([text], *direction) for text in texts]
    sessions = {name: Session.of(model, *direction, name) for name in (GREEDY, PJ, PGJ3, HGJ3, WINDOW)}
    systems = [decoder_system(session, name) for name, session in sessions.items()]
    rows: list[dict[str, Any]] = []
    available = 1 if scale is Scale.TINY else os.cpu_count() or 1
    for cores in (n for n in CORES if n <= available):
        times = take_turns(model, systems, sources, size.rounds, cores, progress)
        for name, m in times.items():
            rows.append({"name": name, "cores": cores, "kind": "measured"} | speedup_row(times[GREEDY], m, seed))
    widths = (1, 2, 4, 8, 16)
    timings = pass_cost(
        model.network, widths, steps=20, rounds=size.rounds + 2, threads=1, seed=seed, progress=progress
    )
    slope, start = np.polyfit(widths, [np.median(m.seconds) for m in timings], 1)
    passes = {name: _widths(session, sources) for name, session in sessions.items()}
    for cores, name in product(CORES, sessions):
        taken = [float((start + slope * np.ceil(w / cores)).sum()) for w in (passes[GREEDY], passes[name])]
        rows.append({"name": name, "cores": cores, "kind": "model", "speedup": taken[0] / taken[1], "note": ""})
    for name, values in printed.FIGURE_3.items():
        rows += [{"name": name, "cores": n, "kind": "paper", "paper_speedup": value} for n, value in values.items()]
    return with_provenance(
        rows,
        provenance(model, seed=seed)
        | {
            "model": "a + b ceil(w / cores), in greedy passes",
            "a": float(start / (start + slope)),
            "b": float(slope / (start + slope)),
            "direction": "-".join(direction),
            "sentences": len(texts),
            "rounds": size.rounds,
        },
    )


def _widths(session: Session, sources: Sequence[Source]) -> np.ndarray:
    """Positions of every pass over some sentences."""
    network, projection = session.model.network, session.projection
    return np.array(
        [
            iteration.positions
            for source in sources
            for iteration in session.decoder.iterate(network, projection, source, session.constraints)
        ]
    )


def batch(
    scale: Scale = Scale.LAPTOP,
    *,
    model: TranslationModel | None = None,
    seed: int = 0,
    threads: int = 1,
    data: str | None = None,
    decoders: Sequence[str] = (GREEDY, PGJ3, WINDOW),
    progress: bool = False,
) -> "pd.DataFrame":
    """Speedup against batch size: each decoder and greedy decoding in batches of the same size, on joined sentences.

    ``frame.attrs["break_even"]`` holds the largest batch size at which each decoder still is no slower than greedy
    decoding, None where it never is.
    """
    import pandas as pd

    model = model or load()
    direction = directions_of(model, scale)[0]
    sizes, sentences = ((1, 2), 2) if scale is Scale.TINY else ((1, 2, 4, 8, 16, 32), 32)
    rounds = SIZES[scale].rounds
    texts = [a for a, _ in sentence_pairs(scale, data, *direction, "joined", sentences)]
    everything = model.encode(texts, *direction)
    order = np.argsort(everything.lengths, kind="stable")
    systems = [_batch_system(Session.of(model, *direction, name), name) for name in dict.fromkeys((GREEDY, *decoders))]
    rows: list[dict[str, Any]] = []
    for size in sizes:
        batches = [everything.rows(order[start : start + size]) for start in range(0, len(order), size)]
        times = take_turns(model, systems, batches, rounds, threads, progress)
        for system in systems:
            m, base = times[system.name], times[GREEDY]
            usage = sum((system.count(part) for part in batches if system.count), Usage())
            rows.append(
                {"name": system.name, "batch": size, "sentences": len(texts)}
                | speedup_row(base, m, seed)
                | {
                    "seconds_per_sentence": float(np.median(m.seconds)) / len(texts),
                    "calls": usage.passes,
                    "positions": usage.positions,
                    "agreement": float(m.outputs == base.outputs),
                }
            )
    frame = pd.DataFrame(rows)
    paying = frame[frame["speedup"] >= 1].groupby("name")["batch"].max()
    frame.attrs["break_even"] = {name: int(paying[name]) if name in paying else None for name in decoders}
    frame.attrs["provenance"] = provenance(model, threads=threads, seed=seed) | {
        "break_even": frame.attrs["break_even"], "direction": "-".join(direction), "rounds": rounds,
    }  # fmt: skip
    return frame


def _batch_system(session: Session, name: str) -> System:
    """A decoder on whole batches; its output is all tokens in turn."""

    def run(network: Any, source: Source) -> tuple[int, ...]:
        hypotheses = drain(session.decoder.iterate(network, session.projection, source, session.constraints))
        return tuple(token for hypothesis in hypotheses for token in hypothesis.tokens)

    def usage(source: Source) -> Usage:
        counted = Counted(session.model.network)
        run(counted, source)
        return counted.usage

    return System(name, lambda source: run(session.model.network, source), usage)
