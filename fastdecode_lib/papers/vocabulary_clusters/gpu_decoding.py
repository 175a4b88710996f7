"""Whole decoding with screens on a GPU, at the vocabulary and width of Amer et al.'s Dense model (their table 3).

The model is the bundled one grown (`shared.grown`): its outputs are the bundled one's, at the cost of 12 + 12 layers that are
1,024 wide. Its screen is the bundled one's, whose sets are padded with tokens that never win, to the paper's active shares.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib import registry
from fastdecode_lib.core import Projection
from fastdecode_lib.loading import load
from fastdecode_lib.measuring.comparing import rows_of
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.papers.run import DeviceRun, Scale, experiment, table_of
from fastdecode_lib.papers.shared.batches import batch_system, batches
from fastdecode_lib.papers.shared.grown import grown_on_torch
from fastdecode_lib.papers.shared.projection_runs import Captured
from fastdecode_lib.papers.shared.rows import keyed, median, speedup_of
from fastdecode_lib.papers.vocabulary_clusters import printed
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.screens import Screen, load_screens
from fastdecode_lib.text.corpus import spread_over
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.translation import Session

DIRECTION = ("en", "de")
SET_SHARE, POOL = 0.02, 0.1
"""Shares of the vocabulary: at least of a set, as in the largest clusters of figure 4 with one label, and of the pool that sets are
padded from, which is about the union of a batch (table 2 has 6.36 to 16.50%)."""
PROTOCOLS = {"batch 1, beam 1": (1, "greedy"), "batch 20, beam 2": (20, "beam:size=2")}


@dataclass(frozen=True)
class Size:
    """A grown model: copies of each feature, layers, tokens; sentences decoded one at a time and in batches; rounds."""

    times: int
    layers: tuple[int, int]
    vocabulary: int
    sentences: tuple[int, int]
    rounds: int


_LARGE = Size(4, (12, 12), printed.GEOMETRY["dense"][0], (6, 40), 9)
SIZES = {Scale.TINY: Size(1, (4, 2), 20_000, (2, 3), 2), Scale.LAPTOP: _LARGE, Scale.PAPER: _LARGE}


@experiment
def gpu_decoding(run: DeviceRun) -> pd.DataFrame:
    """Table 3 on a GPU: speed of whole decoding with the exact projection and with screens, and the share of identical outputs.

    ``active`` is the mean share of the vocabulary that a call scores for a vector.
    """
    from fastdecode_lib.projections.screen_torch import TorchScreenScorer

    size, bundled = SIZES[run.scale], load("tatoeba-small", device="cpu", engine="torch")
    model = grown_on_torch(bundled, size.times, size.layers, size.vocabulary, run.device, run.dtype, run.seed)
    screens = load_screens(Path(bundled.checkpoint.folder) / "projections" / "clustered")
    tokens = bundled.network.outputs[0].vocabulary
    screen = padded_screen(screens["-".join(DIRECTION)], size.times, tokens, size.vocabulary, run.seed)
    output: Any = model.network.outputs[0]
    projections: dict[str, Projection] = {
        "exact": model.exact,
        "clustered": TorchScreenScorer(screen, output.weight, output.bias),
        "clustered, shared": TorchScreenScorer(screen, output.weight, output.bias, shared=True),
    }
    texts = [text for text, _ in own_pairs(*DIRECTION)]
    constraints = Session.of(model, *DIRECTION).constraints
    rows: list[dict[str, Any]] = []
    for number, (protocol, (batch, decoder_name)) in enumerate(PROTOCOLS.items()):
        decoder = registry.decoder(decoder_name)
        parts = batches(model, spread_over(texts, size.sentences[number]), DIRECTION, batch, by_length=True)
        systems = [batch_system(name, model.network, decoder, p, constraints) for name, p in projections.items()]
        timings = run.measure(systems, parts, runs=size.rounds, warm_up=1)
        exact = rows_of(timings[0].outputs)
        for m, projection in zip(timings, projections.values(), strict=True):
            active: Any = Captured(projection, lambda _, candidates: candidates.num_active)
            batch_system(m.name, model.network, decoder, active, constraints).decode(parts[0])
            rows.append(
                {
                    **keyed(protocol=protocol, method=m.name),
                    "sentences": len(exact),
                    "active": float(np.concatenate(active.captured).mean()) / size.vocabulary,
                    "milliseconds": 1000 * median(m) / len(exact),
                    "identical": same_share(rows_of(m.outputs), exact),
                    **speedup_of(timings[0], m),
                    "seconds": m.seconds.tolist(),
                }
            )
    kernels = projections["clustered"].kernels  # type: ignore[attr-defined]
    facts = {
        "layers": " + ".join(map(str, size.layers)),
        "vocabulary": size.vocabulary,
        "width": output.weight.shape[1],
    }
    return table_of(rows, run, model, kernels=kernels, rounds=size.rounds, **facts)


def padded_screen(screen: Screen, times: int, tokens: int, vocabulary: int, seed: int) -> Screen:
    """A model's screen for the model grown from it: centroids with repeated features, and sets padded with new tokens.

    `tokens` and `vocabulary` are the numbers of tokens of the model and of the grown one. Sets have at least `SET_SHARE` of the
    latter, padded from a pool of `POOL`.
    """
    random = np.random.default_rng(seed)
    pool = tokens + random.permutation(vocabulary - tokens)[: round(POOL * vocabulary)]
    least, sets = round(SET_SHARE * vocabulary), []
    for number in range(len(screen.sets)):
        tokens_of_set = screen.sets[number]
        padding = min(max(0, least - len(tokens_of_set)), len(pool))
        sets.append(np.concatenate([tokens_of_set, random.choice(pool, padding, replace=False)]))
    return Screen(screen.method, np.tile(screen.points, (1, times)), ActiveSets.of(sets, vocabulary))
