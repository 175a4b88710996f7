"""Whole decoding with every projection under every decoder, and the projection's share of a step."""

import importlib.util
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib import registry
from fastdecode_lib.core import Decoder, Projection, Source
from fastdecode_lib.measuring.counting import Watched
from fastdecode_lib.measuring.quality import quality, same_share
from fastdecode_lib.measuring.referee import System, measure, noisy
from fastdecode_lib.papers.run import CorpusRun, Scale, experiment
from fastdecode_lib.papers.shared.contexts_of import Situation, situation
from fastdecode_lib.papers.shared.projection_runs import FIRST_ROUND, GRIDS, extra_bytes, reaching, rival_settings
from fastdecode_lib.papers.shared.rows import speedup_of
from fastdecode_lib.papers.vocabulary_clusters.tables import (
    NAME,
    PROTOCOLS,
    batches,
    decoding_system,
    limited,
    pairs_of,
    screen_of,
    table_on,
)
from fastdecode_lib.projections.learning_to_screen import Learning, fit_screened
from fastdecode_lib.projections.quantised import Quantised
from fastdecode_lib.projections.screen_compiled import ScreenScorer
from fastdecode_lib.text.corpus import spread_over
from fastdecode_lib.text.words import split_words
from fastdecode_lib.translation import Session

DIRECTION = "en-de"
RARE = 20
"""A word of the references is rare if the training split's side has it at most so often."""
DECODERS = {
    "greedy": ("batch 1, beam 1", "greedy"),
    "beam": ("batch 20, beam 2", "beam:size=2"),
    "PJ": ("batch 1, beam 1", "jacobi"),
    "PGJ": ("batch 1, beam 1", "gauss_seidel:block=3"),
    "HGJ": ("batch 1, beam 1", "hybrid:block=3"),
    "Window": ("batch 1, beam 1", "window:width=5,draft=recycled/pad"),
}
"""Protocol of Amer et al. (2022), and the decoder as the registry names it."""
LEXICAL = "top=20,frequent=500"
"""Candidate lists of the model's draft table: about 500 tokens, as many as the learned screen scores."""
AT_1, AT_5 = 0.98, 0.97
"""Precision on dev that a baseline's cheapest setting must have; its most precise where none has."""


@dataclass(frozen=True)
class Amount:
    """Sentences decoded for quality, and for time; rounds; baselines; budget of the learned screen, clusters and labels."""

    sentences: int
    timed: int
    rounds: int
    rivals: tuple[str, ...]
    budget: int
    clusters: int
    top: int


_RIVALS = ("svd", "adaptive", "fgd", "greedy_mips", "pca_mips", "lsh_mips", "row_clusters", "scann")
AMOUNTS = {
    Scale.TINY: Amount(3, 2, 2, ("svd",), 60, 8, 1),
    Scale.LAPTOP: Amount(400, 60, 5, _RIVALS, 400, 50, 5),
    Scale.PAPER: Amount(2_000, 100, 11, _RIVALS, 400, 400, 5),
}


@cache
def projections(run: CorpusRun) -> Mapping[str, tuple[str, Projection]]:
    """Setting and projection by method, the exact one first, all for one direction of the multilingual model."""
    recorded, amount = situation(NAME, run), AMOUNTS[run.scale]
    end = recorded.loaded.constraints().end
    contexts = recorded.fit.where(direction=DIRECTION)
    clusters = screen_of(run, DIRECTION, amount.clusters, amount.top)
    learning = _learning(run.scale)
    learned, first = (
        fit_screened(contexts, budget=amount.budget, learning=some, seed=run.seed, always=end)
        for some in (learning, replace(learning, rounds=1))
    )
    source, target = DIRECTION.split("-")
    lexical = Session.of(recorded.loaded, source, target, projection=f"lexical:{LEXICAL}").projection
    made: dict[str, tuple[str, Projection]] = {
        "exact": ("", recorded.loaded.exact),
        "quantised": ("", Quantised(recorded.matrix)),
        "clustered": (f"clusters={amount.clusters},top={amount.top}", ScreenScorer(clusters, recorded.matrix)),
        "clustered, shared": (
            f"clusters={amount.clusters},top={amount.top}",
            ScreenScorer(clusters, recorded.matrix, shared=True),
        ),
        "screened": (f"budget={amount.budget}", ScreenScorer(learned, recorded.matrix)),
        "kmeans": (f"budget={amount.budget}", ScreenScorer(first, recorded.matrix)),
        "lexical": (LEXICAL, lexical),
    }
    own = replace(recorded, dev=recorded.dev.where(direction=DIRECTION), fit=contexts)
    settings = rival_settings(own, GRIDS[run.scale], run.seed)
    rivals = [method for method in amount.rivals if method != "scann" or importlib.util.find_spec("scann")]
    for method in rivals:
        setting, projection = reaching((s for s in settings if s.method == method), own, AT_1, AT_5)
        made[method] = setting.label.partition(":")[2], projection
    return made


def _learning(scale: Scale) -> Learning:
    return Learning(**{"clusters": AMOUNTS[scale].clusters, **GRIDS[scale].learning})


@experiment
def end_to_end(run: CorpusRun) -> pd.DataFrame:
    """Quality, speed and memory of every projection under every decoder.

    ``identical`` is the share of outputs that are the exact projection's under the same decoder, ``as_greedy`` that of outputs
    that are greedy decoding's under the same projection (of a beam, its own outputs decoded alone), ``rare_recall`` the
    share of the references' rare words that an output has. ``megabytes`` stand beside the model's own output matrix. ``speedup``
    is over the exact projection under the same decoder, ``over_greedy`` over it under greedy decoding; all run in turns.
    """
    recorded, amount = situation(NAME, run), AMOUNTS[run.scale]
    pairs = spread_over(pairs_of(DIRECTION, "single", run), amount.sentences)
    texts, references = [a for a, _ in pairs], [b for _, b in pairs]
    rare = _rare(references, run)
    rules = limited(recorded, DIRECTION, run.scale).constraints
    kinds = projections(run)
    rows: list[dict[str, Any]] = []
    first: dict[str, list[Any]] = {}
    for label, (protocol, spec) in DECODERS.items():
        batch, decoder = PROTOCOLS[protocol][0], registry.decoder(spec)
        parts = list(batches(recorded, texts, DIRECTION, batch))
        systems = [
            decoding_system(name, recorded, decoder, projection, rules) for name, (_, projection) in kinds.items()
        ]
        if label != "greedy":  # the reference of `over_greedy`, in the same run
            greedy = registry.decoder("greedy")
            systems.append(decoding_system("greedy", recorded, greedy, kinds["exact"][1], rules))
        timed = measure(
            systems, spread_over(parts, -(-amount.timed // batch)), runs=amount.rounds, progress=run.progress
        )
        exact: list[Any] = []
        for m, one in zip(timed, systems, strict=True):
            if m.name not in kinds:
                continue
            outputs = [tokens for part in parts for tokens in one.decode(part)]
            exact = exact or outputs
            reference = first.setdefault(m.name, outputs)
            if label == "beam":
                alone = list(batches(recorded, texts, DIRECTION, 1))
                reference = [tokens for part in alone for tokens in one.decode(part)]
            translations = recorded.loaded.texts(texts, outputs)
            bleu, chrf = quality(translations, references)
            setting, projection = kinds[m.name]
            rows.append(
                {
                    "name": f"{label}, {m.name}",
                    "decoder": label,
                    "protocol": protocol,
                    "method": m.name,
                    "setting": setting,
                    "sentences": len(texts),
                    "bleu": bleu,
                    "chrf": chrf,
                    "identical": same_share(outputs, exact),
                    "as_greedy": same_share(outputs, reference),
                    "rare_recall": _recall(translations, references, rare),
                    "rare_words": sum(rare.values()),
                    **speedup_of(timed[0], m, run.seed),
                    "over_greedy": float(
                        np.median(timed[-1 if label != "greedy" else 0].seconds) / np.median(m.seconds)
                    ),
                    "megabytes": extra_bytes(projection, recorded.matrix) / 1e6,
                }
            )
    return _learned_table(rows, recorded, run)


@experiment
def step_share(run: CorpusRun) -> pd.DataFrame:
    """Share of the projection in decoding: the time of its calls within decoding, over that of all decoding.

    The gain of a free projection (``most``) is one over the rest: no projection can make decoding faster than that.
    """
    recorded, amount = situation(NAME, run), AMOUNTS[run.scale]
    rules = limited(recorded, DIRECTION, run.scale).constraints
    pairs = pairs_of(DIRECTION, "single", run)
    rows: list[dict[str, Any]] = []
    for label in ("greedy", "beam"):
        protocol, spec = DECODERS[label]
        batch = PROTOCOLS[protocol][0]
        texts = [a for a, _ in spread_over(pairs, max(amount.timed, batch))]
        decoder, parts = registry.decoder(spec), list(batches(recorded, texts, DIRECTION, batch))
        for name in ("exact", "quantised", "clustered", "clustered, shared", "screened"):
            _, projection = projections(run)[name]
            whole = decoding_system("whole", recorded, decoder, projection, rules)
            alone = _watched(recorded, decoder, projection, rules)
            one, everything = measure([alone, whole], parts, runs=amount.rounds, progress=run.progress)
            share = float(np.median(one.seconds) / np.median(everything.seconds))
            rows.append(
                {
                    "name": f"{protocol}, {name}",
                    "protocol": protocol,
                    "method": name,
                    "share": share,
                    "most": 1 / (1 - share) if share < 1 else None,
                    "noisy": noisy(one, everything),
                }
            )
    return _learned_table(rows, recorded, run)


def _learned_table(rows: list[dict[str, Any]], recorded: Situation, run: CorpusRun) -> pd.DataFrame:
    return table_on(rows, run, [recorded], learning=repr(_learning(run.scale)), kmeans=FIRST_ROUND)


def _watched(recorded: Situation, decoder: Decoder, projection: Projection, rules: Any) -> System:
    """Decoding of which only the projection's calls are timed."""

    def run(parts: Sequence[Source]) -> tuple[float, tuple[Any, ...]]:
        watched: Any = Watched(projection)
        decode = decoding_system("projection", recorded, decoder, watched, rules).decode
        outputs = tuple(decode(part) for part in parts)
        return watched.seconds, outputs

    return System("projection", lambda part: (), timed=run)


def _rare(references: Sequence[str], run: CorpusRun) -> Counter[str]:
    """The rare words of some references, with how often they are there."""
    source, target = DIRECTION.split("-")
    tiny = run.tiny
    known = run.pairs(source, target, "train")
    counts = Counter(word for _, text in known for word in split_words(text, target))
    most = 1 if tiny else RARE
    words = Counter(word for text in references for word in split_words(text, target))
    return Counter({word: count for word, count in words.items() if counts[word] <= most and word.isalpha()})


def _recall(said: Sequence[str], references: Sequence[str], rare: Counter[str]) -> float:
    target, hits = DIRECTION.split("-")[1], 0
    for output, reference in zip(said, references, strict=True):
        wanted = Counter(word for word in split_words(reference, target) if word in rare)
        hits += sum((wanted & Counter(split_words(output, target))).values())
    return hits / max(1, sum(rare.values()))
