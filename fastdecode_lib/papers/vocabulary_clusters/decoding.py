"""Whole decoding with every projection under every decoder, and the projection's share of a step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib import registry
from fastdecode_lib.core import Constraints, Decoder, Projection, Source
from fastdecode_lib.measuring.counting import Watched
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import System, stopwatch
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, experiment
from fastdecode_lib.papers.shared.batches import batch_system, batches, decoded
from fastdecode_lib.papers.shared.contexts_of import Situation, situation
from fastdecode_lib.papers.shared.projection_runs import FIRST_ROUND, GRIDS, extra_bytes, precision_judge, reaching
from fastdecode_lib.papers.shared.rivals import JUDGED_ON, rival_settings, with_end
from fastdecode_lib.papers.shared.rows import keyed, quality_of, ratio_of, speedup_of, times_as_fast
from fastdecode_lib.papers.vocabulary_clusters.tables import (
    NAME,
    PROTOCOLS,
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
"""A word of the references is rare if the training split has it at most this often."""
DECODERS = {
    "greedy": ("batch 1, beam 1", "greedy"),
    "beam": ("batch 20, beam 2", "beam:size=2"),
    "PJ": ("batch 1, beam 1", "jacobi"),
    "PGJ": ("batch 1, beam 1", "gauss_seidel:block=3"),
    "HGJ": ("batch 1, beam 1", "hybrid:block=3"),
    "Window": ("batch 1, beam 1", "window:width=5,draft=recycled/pad"),
}
"""Protocol of Amer et al. (2022), and the decoder's name in the registry."""
LEXICAL = "top=20,frequent=500"
"""Shortlists of the model's draft table: about 500 tokens, as many as the learned screen scores."""
AT_1, AT_5 = 0.98, 0.97
"""Precision on dev that a baseline's cheapest setting must have; its most precise where none has."""


@dataclass(frozen=True)
class Amount:
    """Sentences for quality, and for time; rounds; rivals; budget of the learned screen, clusters and labels."""

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
    Scale.LAPTOP: Amount(400, 60, 9, _RIVALS, 400, 50, 5),
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
    learned_screen, first_round = (
        fit_screened(contexts, budget=amount.budget, learning=options, seed=run.seed, always=end)
        for options in (learning, replace(learning, rounds=1))
    )
    source, target = DIRECTION.split("-")
    lexical = Session.of(recorded.loaded, source, target, projection=f"lexical:{LEXICAL}").projection
    setting = f"clusters={amount.clusters},top={amount.top}"
    by_method: dict[str, tuple[str, Projection]] = {
        "exact": ("", recorded.loaded.exact),
        "quantised": ("", Quantised(recorded.matrix)),
        "clustered": (setting, ScreenScorer(clusters, recorded.matrix)),
        "clustered, shared": (setting, ScreenScorer(clusters, recorded.matrix, shared=True)),
        "screened": (f"budget={amount.budget}", ScreenScorer(learned_screen, recorded.matrix)),
        "kmeans": (f"budget={amount.budget}", ScreenScorer(first_round, recorded.matrix)),
        "lexical": (LEXICAL, lexical),
    }
    single_direction = replace(recorded, dev=recorded.dev.where(direction=DIRECTION), fit=contexts)
    judge = precision_judge(single_direction, AT_1, AT_5, JUDGED_ON)
    settings = rival_settings(single_direction, GRIDS[run.scale], lambda _: judge, run.seed, methods=amount.rivals)
    for method in dict.fromkeys(s.method for s in settings):
        chosen, projection = reaching((s for s in settings if s.method == method), single_direction, AT_1, AT_5)
        by_method[method] = chosen.label.partition(":")[2], with_end(projection, end)
    return by_method


def _learning(scale: Scale) -> Learning:
    return Learning(**{"clusters": AMOUNTS[scale].clusters, **GRIDS[scale].learning})


@experiment
def end_to_end(run: CorpusRun) -> pd.DataFrame:
    """Quality, speed and memory of every projection under every decoder.

    ``identical`` is the share of outputs that are the exact projection's under the same decoder; ``as_greedy`` the share that are
    greedy decoding's under the same projection (for a beam: those of the same beam at batch 1); ``rare_recall`` the share of
    the references' rare words that the outputs have. ``megabytes`` are those added to the model's output matrix. ``speedup`` is
    over the exact projection under the same decoder, ``over_greedy`` over exact greedy decoding; all run in turns.
    """
    recorded, amount = situation(NAME, run), AMOUNTS[run.scale]
    network = recorded.loaded.network
    pairs = spread_over(pairs_of(DIRECTION, "single", run), amount.sentences)
    texts, references = [a for a, _ in pairs], [b for _, b in pairs]
    rare = _rare(references, run)
    constraints = limited(recorded, DIRECTION, run.scale).constraints
    by_method = projections(run)
    rows: list[dict[str, Any]] = []
    greedy_outputs: dict[str, list[Any]] = {}
    for label, (protocol, spec) in DECODERS.items():
        batch, decoder = PROTOCOLS[protocol][0], registry.decoder(spec)
        parts = batches(recorded.loaded, texts, DIRECTION.split("-"), batch)
        systems = [batch_system(name, network, decoder, p, constraints) for name, (_, p) in by_method.items()]
        if label != "greedy":  # the reference of `over_greedy`, in the same run
            greedy = registry.decoder("greedy")
            systems.append(batch_system("greedy", network, greedy, by_method["exact"][1], constraints))
        timings = run.measure(systems, spread_over(parts, -(-amount.timed // batch)), runs=amount.rounds)
        exact: list[Any] = []
        for m, system in zip(timings, systems, strict=True):
            if m.name not in by_method:
                continue
            outputs = decoded(system, parts)
            exact = exact or outputs
            reference = greedy_outputs.setdefault(m.name, outputs)
            if label == "beam":
                reference = decoded(system, batches(recorded.loaded, texts, DIRECTION.split("-"), 1))
            translations = recorded.loaded.texts(texts, outputs)
            setting, projection = by_method[m.name]
            rows.append(
                {
                    "name": f"{label}, {m.name}",
                    "decoder": label,
                    "protocol": protocol,
                    "method": m.name,
                    "setting": setting,
                    "sentences": len(texts),
                    **quality_of(translations, references),
                    "identical": same_share(outputs, exact),
                    "as_greedy": same_share(outputs, reference),
                    "rare_recall": _recall(translations, references, rare),
                    "rare_words": sum(rare.values()),
                    **speedup_of(timings[0], m),
                    "over_greedy": times_as_fast(timings[-1 if label != "greedy" else 0], m),
                    "megabytes": extra_bytes(projection, recorded.matrix) / 1e6,
                }
            )
    return _learned_table(rows, recorded, run)


@experiment
def step_share(run: CorpusRun) -> pd.DataFrame:
    """Share of the projection in decoding: the time of its calls within decoding, over that of all decoding.

    ``most`` is the speedup of a projection that takes no time, which no projection can exceed.
    """
    recorded, amount = situation(NAME, run), AMOUNTS[run.scale]
    network = recorded.loaded.network
    constraints = limited(recorded, DIRECTION, run.scale).constraints
    pairs = pairs_of(DIRECTION, "single", run)
    rows: list[dict[str, Any]] = []
    for label in ("greedy", "beam"):
        protocol, spec = DECODERS[label]
        batch = PROTOCOLS[protocol][0]
        texts = [a for a, _ in spread_over(pairs, max(amount.timed, batch))]
        decoder, parts = registry.decoder(spec), batches(recorded.loaded, texts, DIRECTION.split("-"), batch)
        for name in ("exact", "quantised", "clustered", "clustered, shared", "screened"):
            _, projection = projections(run)[name]
            decode = (network, decoder, projection, constraints)
            in_projection, whole = _times_of_projection(run, *decode, parts, amount.rounds)
            share = ratio_of("share", in_projection, whole)
            rows.append({**keyed(protocol=protocol, method=name), **share, "most": 1 / (1 - share["share"])})
    return _learned_table(rows, recorded, run)


def _times_of_projection(
    run: Run,
    network: Any,
    decoder: Decoder,
    projection: Projection,
    constraints: Constraints,
    parts: Sequence[Source],
    rounds: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds within the projection's calls, and those of all decoding, in each round."""
    times = []

    def decode(part: Source) -> tuple[Any, ...]:
        watched: Any = Watched(projection)
        system = batch_system("whole", network, decoder, watched, constraints)
        seconds, (outputs,) = stopwatch(system.decode, [part])
        times.append((watched.seconds, seconds))
        return tuple(outputs)

    run.measure([System("whole", decode)], parts, runs=rounds)
    in_projection, whole = np.array(times).reshape(-1, len(parts), 2).sum(1)[1:].T  # the first round warms up
    return in_projection, whole


def _learned_table(rows: list[dict[str, Any]], recorded: Situation, run: CorpusRun) -> pd.DataFrame:
    return table_on(rows, run, [recorded], learning=repr(_learning(run.scale)), kmeans=FIRST_ROUND)


def _rare(references: Sequence[str], run: CorpusRun) -> Counter[str]:
    """The rare words of the references, with their numbers."""
    source, target = DIRECTION.split("-")
    training_counts = Counter(
        word for _, text in run.pairs(source, target, "train") for word in split_words(text, target)
    )
    limit = 1 if run.tiny else RARE
    words = Counter(word for text in references for word in split_words(text, target))
    return Counter({word: n for word, n in words.items() if training_counts[word] <= limit and word.isalpha()})


def _recall(translations: Sequence[str], references: Sequence[str], rare: Counter[str]) -> float:
    target, hits = DIRECTION.split("-")[1], 0
    for translation, reference in zip(translations, references, strict=True):
        rare_words = Counter(word for word in split_words(reference, target) if word in rare)
        hits += sum((rare_words & Counter(split_words(translation, target))).values())
    return hits / max(1, sum(rare.values()))
