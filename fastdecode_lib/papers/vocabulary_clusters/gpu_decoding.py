"""Whole decoding with screens on a GPU, at the vocabulary and width of Amer et al.'s Dense model (their table 3).

The model is the bundled one grown (`shared.grown`): it says what the bundled one says, at the cost of 12 + 12 layers that are
1,024 wide. Its screen is the bundled one's, whose sets are filled up with tokens that never win, for the paper's active shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib import registry
from fastdecode_lib.core import Candidates, Projection, Source, drain
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.counting import Proxy
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import System, measure, synchroniser
from fastdecode_lib.papers.run import Run, Scale, experiment
from fastdecode_lib.papers.shared.devices import short, without
from fastdecode_lib.papers.shared.grown import grown_on_torch
from fastdecode_lib.papers.shared.rows import median, speedup_of, table_of
from fastdecode_lib.papers.vocabulary_clusters import printed
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.screens import Screen, load_screens
from fastdecode_lib.text.corpus import spread_over
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.translation import Session

DIRECTION = ("en", "de")
OWN, POOL = 0.02, 0.1
"""Active shares of the vocabulary: of a set, as in the largest clusters of figure 4 with one label, and of all tokens that sets are
filled up with, which is about the union of a batch (table 2 has 6.36 to 16.50%)."""
PROTOCOLS = {"batch 1, beam 1": (1, "greedy"), "batch 20, beam 2": (20, "beam:size=2")}


@dataclass(frozen=True)
class Size:
    """A grown model: copies of each feature, layers, tokens; sentences decoded one at a time and in batches; rounds."""

    times: int
    layers: tuple[int, int]
    vocabulary: int
    sentences: tuple[int, int]
    rounds: int


_LARGE = Size(4, (12, 12), printed.GEOMETRY["dense"][0], (6, 40), 5)
SIZES = {Scale.TINY: Size(1, (4, 2), 20_000, (2, 3), 2), Scale.LAPTOP: _LARGE, Scale.PAPER: _LARGE}


@experiment
def gpu_decoding(run: Run, *, device: str = "cuda") -> pd.DataFrame:
    """Table 3 on a GPU: speed of whole decoding with the exact projection and with screens, and the outputs they leave unchanged.

    ``active`` is the mean share of the vocabulary that a call scores for a vector. A machine without a CUDA device gives a single
    row that says so.
    """
    from fastdecode_lib.projections.screen_torch import TorchScreenScorer

    if (nothing := without(device, run)) is not None:
        return nothing
    size, small = SIZES[run.scale], load("tatoeba-small", device="cpu", engine="torch")
    model = grown_on_torch(small, size.times, size.layers, size.vocabulary, device, short(device), run.seed)
    screen = filled_up(_screen(small), size.times, small.network.outputs[0].vocabulary, size.vocabulary, run.seed)
    output: Any = model.network.outputs[0]
    projections: dict[str, Projection] = {
        "exact": model.exact,
        "clustered": TorchScreenScorer(screen, output.weight, output.bias),
        "clustered, shared": TorchScreenScorer(screen, output.weight, output.bias, shared=True),
    }
    texts = [text for text, _ in own_pairs(*DIRECTION)]
    rules = Session.of(model, *DIRECTION).constraints
    rows: list[dict[str, Any]] = []
    for number, (protocol, (batch, named)) in enumerate(PROTOCOLS.items()):
        decoder = registry.decoder(named)

        def decode(part: Source, projection: Projection, decoder: Any = decoder) -> tuple[Any, ...]:
            return tuple(h.tokens for h in drain(decoder.iterate(model.network, projection, part, rules)))

        parts = _batches(model, spread_over(texts, size.sentences[number]), batch)
        systems = [
            System(name, lambda part, p=projection: decode(part, p))  # type: ignore[misc]
            for name, projection in projections.items()
        ]
        timings = measure(
            systems, parts, runs=size.rounds, synchronise=synchroniser(device), progress=run.progress, warm_up=1
        )
        exact = _rows_of(timings[0].outputs)
        for m, projection in zip(timings, projections.values(), strict=True):
            watched = _Active(projection)
            decode(parts[0], watched)
            rows.append(
                {
                    "name": f"{protocol}, {m.name}",
                    "protocol": protocol,
                    "method": m.name,
                    "sentences": len(exact),
                    "active": watched.share(size.vocabulary),
                    "milliseconds": 1000 * median(m) / len(exact),
                    "identical": same_share(_rows_of(m.outputs), exact),
                    **speedup_of(timings[0], m, run.seed),
                    "seconds": m.seconds.tolist(),
                }
            )
    kernels = projections["clustered"].kernels  # type: ignore[attr-defined]
    about = {
        "layers": " + ".join(map(str, size.layers)),
        "vocabulary": size.vocabulary,
        "width": output.weight.shape[1],
    }
    return table_of(rows, run, model, kernels=kernels, rounds=size.rounds, **about)


def filled_up(screen: Screen, times: int, tokens: int, vocabulary: int, seed: int) -> Screen:
    """A model's screen for the model grown from it: points of repeated features, and sets with added tokens.

    Parameters
    ----------
    screen : Screen
        Of a model of so many `tokens`.
    times : int
        Copies of each feature.
    vocabulary : int
        Tokens of the grown model. Sets have at least `OWN` of them, of a part of `POOL`.
    """
    random = np.random.default_rng(seed)
    pool = tokens + random.permutation(vocabulary - tokens)[: round(POOL * vocabulary)]
    least, sets = round(OWN * vocabulary), []
    for number in range(len(screen.sets)):
        own = screen.sets[number]
        sets.append(np.concatenate([own, random.choice(pool, min(max(0, least - len(own)), len(pool)), replace=False)]))
    return Screen(screen.method, np.tile(screen.points, (1, times)), ActiveSets.of(sets, vocabulary))


def _screen(model: TranslationModel) -> Screen:
    """The bundled model's clusters."""
    return load_screens(Path(model.checkpoint.folder) / "projections" / "clustered")["-".join(DIRECTION)]


def _batches(model: TranslationModel, texts: Sequence[str], size: int) -> list[Source]:
    """Sources of so many texts, sorted by length."""
    everything = model.encode(texts, *DIRECTION)
    order = np.argsort(everything.lengths, kind="stable")
    return [everything.rows(order[first : first + size]) for first in range(0, len(order), size)]


def _rows_of(outputs: Sequence[Sequence[Any]]) -> list[Any]:
    return [tokens for part in outputs for tokens in part]


class _Active(Proxy):
    """A projection that notes how many tokens its calls score."""

    def __init__(self, inner: Projection, seen: list[np.ndarray] | None = None):
        super().__init__(inner)
        self.seen = [] if seen is None else seen

    def bind(self, source: Source | None) -> "_Active":
        return _Active(self.inner.bind(source), self.seen)

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        candidates: Candidates = self.inner.top_k(hidden, k, banned, normalise)
        self.seen.append(candidates.num_active)
        return candidates

    def share(self, vocabulary: int) -> float:
        """Mean of a vector."""
        return float(np.concatenate(self.seen).mean()) / vocabulary
