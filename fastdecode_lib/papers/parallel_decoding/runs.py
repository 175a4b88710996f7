"""The runs behind the tables of Santilli et al. (2023): every table is a view of them.

``honest``: decoders as a user runs them, which do not know the target. ``paper``: PJ and PGJ get the true length of the target,
and HGJ's blocks reach up to the limit of output lengths, as in the paper's experiments. There greedy decoding also ran first on
every sentence, once and without a warm-up; here all systems take turns after a warm-up.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pandas as pd

from fastdecode_lib.checkpoints.transformer import FAMILIES, Architecture
from fastdecode_lib.core import Measurement, Source
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.baselines import baseline
from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.counting import count
from fastdecode_lib.measuring.quality import same_share, signatures
from fastdecode_lib.measuring.referee import System
from fastdecode_lib.papers.parallel_decoding.printed import BEAM, GREEDY, HGJ3, PGJ3, PGJ5, PJ
from fastdecode_lib.papers.run import CorpusRun, ModelRun, Scale, ThreadedRun, experiment, table_of
from fastdecode_lib.papers.shared.rows import median, quality_of, ratio_of
from fastdecode_lib.text.corpus import DIRECTIONS, Pair, join_pairs, shuffled
from fastdecode_lib.training.bundling import JOINED_SEED
from fastdecode_lib.translation import Session

WINDOW = "window:width=5"
SETS = ("single", "joined")
PROTOCOLS = ("honest", "paper")
BATCH = 16
BASELINES: dict[Scale, tuple[str, ...]] = {Scale.TINY: (), Scale.LAPTOP: ("hf",), Scale.PAPER: ("hf",)}


@dataclass(frozen=True)
class Method:
    """A decoder of the tables.

    Attributes
    ----------
    name : str
        Spec of the decoder as a user runs it, without knowledge of the target.
    ideal : str or None
        Spec as in the paper: ``{length}`` is the true length of the target, ``{limit}`` that of the longest output.
    uncounted : int
        Passes that the paper's code leaves out of its count, for each sentence.
    """

    name: str
    ideal: str | None = None
    uncounted: int = 0

    def under(self, protocol: str) -> str | None:
        """The decoder's spec under a protocol."""
        return self.name if protocol == "honest" else self.ideal


METHODS = (
    Method(GREEDY, GREEDY),
    Method(BEAM, BEAM),
    Method(PJ, "jacobi:oracle_length={length}", uncounted=1),
    Method(PGJ5, "hybrid:block=5,length={length}", uncounted=1),
    Method(PGJ3, "hybrid:block=3,length={length}", uncounted=1),
    Method(HGJ3, "hybrid:block=3,length={limit}"),
    Method(WINDOW),
)


@dataclass(frozen=True)
class Size:
    """Amount of work at a scale: sentences counted under each protocol, timed (single, joined), and rounds of timing."""

    honest: int
    paper: int
    timed: tuple[int, int]
    rounds: int
    extra: int
    """Sentences of a direction in the tables that the paper does not have."""


SIZES = {
    Scale.TINY: Size(honest=1, paper=1, timed=(1, 1), rounds=3, extra=2),
    Scale.LAPTOP: Size(honest=500, paper=100, timed=(40, 10), rounds=9, extra=20),
    Scale.PAPER: Size(honest=1200, paper=1200, timed=(200, 200), rounds=9, extra=500),
}


# ----------------------------------------------------------------------------------------------------------- sentences


def directions_of(model: TranslationModel, scale: Scale) -> tuple[tuple[str, str], ...]:
    """The directions that both the model and the corpus have; at tiny scale those of the project's own sentences."""
    corpus_directions = DIRECTIONS[:2] if scale is Scale.TINY else DIRECTIONS
    common = tuple(direction for direction in corpus_directions if direction in model.directions)
    if not common:
        names = ", ".join(f"{a}-{b}" for a, b in model.directions[:9]) or "none that it names"
        raise ValueError(
            f"The model has none of the corpus's directions: {model.name} translates {names}. Use tatoeba-small, or "
            f"another model for one of {', '.join(f'{a}-{b}' for a, b in corpus_directions)}."
        )
    return common


def sentence_pairs(run: CorpusRun, source: str, target: str, set_name: str, number: int) -> list[Pair]:
    """Sentences to translate and their references: drawn from the test split, or the project's own at tiny scale."""
    pairs = run.pairs(source, target)
    if set_name == "joined":
        return join_pairs(pairs, seed=JOINED_SEED, count=number)
    return shuffled(pairs, JOINED_SEED)[:number]


# ---------------------------------------------------------------------------------- the runs behind tables 1, 2, 3, 5 - 7

_RUNS: dict[tuple[Any, ...], pd.DataFrame] = {}
"""The runs of this process by their settings; several tables are views of one."""


@experiment
def runs(run: ThreadedRun) -> pd.DataFrame:
    """Every decoder in every direction, on single and joined test sentences, under both protocols.

    Passes, positions and quality are of all sentences of the row; times are of the first few, one sentence at a time, in
    one process and in turn. Hugging Face's ``generate`` is only timed, and not at tiny scale.
    """
    model = run.loaded
    key = (
        model.checkpoint.fingerprint,
        model.engine,
        model.dtype,
        model.device,
        replace(run, model=None, progress=False),
    )
    if key not in _RUNS:
        _RUNS[key] = _run(run, model)
    return _RUNS[key].copy()


def _run(run: ThreadedRun, model: TranslationModel) -> pd.DataFrame:
    size = SIZES[run.scale]
    rows: list[dict[str, Any]] = []
    for direction, set_name in product(directions_of(model, run.scale), SETS):
        pairs = sentence_pairs(run, *direction, set_name, size.honest)
        texts, references = [a for a, _ in pairs], [b for _, b in pairs]
        timed_texts = texts[: size.timed[SETS.index(set_name)]]
        greedy = Session.of(model, *direction)
        counts = {GREEDY: count(greedy, texts, batch=BATCH, progress=run.progress)}
        lengths = counts[GREEDY].tokens.tolist()
        for spec in dict.fromkeys(spec for p in PROTOCOLS for m in METHODS if (spec := m.under(p)) and spec != GREEDY):
            number = size.paper if "{" in spec else len(texts)
            counts[spec] = count_by_length(model, direction, spec, texts[:number], lengths, run.progress)
        systems = [_system(model, direction, spec, timed_texts, lengths) for spec in counts]
        systems += [
            System(name, baseline(name, model, greedy.constraints, run.threads)) for name in BASELINES[run.scale]
        ]
        sources = [model.encode([text], *direction) for text in timed_texts]
        times = take_turns(run, systems, sources, size.rounds, run.threads)
        keys = {"direction": "-".join(direction), "set": set_name}
        for protocol, method in product(PROTOCOLS, METHODS):
            if spec := method.under(protocol):
                number = size.paper if protocol == "paper" else len(texts)
                counted, greedy_counted = counts[spec].head(number), counts[GREEDY].head(number)
                rows.append(
                    {"name": method.name, **keys, "protocol": protocol}
                    | _counts(model, counted, greedy_counted, method.uncounted)
                    | _quality(counted.ids, greedy_counted.ids, counted.text, references)
                    | speedup_row(times[GREEDY], times[spec])
                )
        for m in (times[name] for name in BASELINES[run.scale]):
            rows.append(
                {"name": m.name, **keys, "protocol": "honest", "sentences": len(timed_texts)}
                | _quality(m.outputs, times[GREEDY].outputs, model.texts(timed_texts, m.outputs), references)
                | speedup_row(times[GREEDY], m)
            )
    timed = dict(zip(SETS, size.timed, strict=True))
    return table_of(rows, run, model, **signatures(), timed=timed, rounds=size.rounds, joined_seed=JOINED_SEED)


def count_by_length(
    model: TranslationModel,
    direction: tuple[str, str],
    spec: str,
    texts: Sequence[str],
    lengths: Sequence[int],
    progress: bool = False,
) -> pd.DataFrame:
    """`counting.count` with a decoder that gets the true length of each target if its spec has a place for it."""
    if "{" not in spec:
        return count(Session.of(model, *direction, spec), texts, batch=BATCH, progress=progress)
    parts = []
    for length in sorted(set(lengths[: len(texts)])):
        rows = [i for i in range(len(texts)) if lengths[i] == length]
        session = Session.of(model, *direction, _with_length(spec, model, direction, length))
        parts.append(count(session, [texts[i] for i in rows], batch=BATCH, progress=progress).set_index(pd.Index(rows)))
    return pd.concat(parts).sort_index()


def _with_length(spec: str, model: TranslationModel, direction: tuple[str, str], length: int) -> str:
    """A spec with the true length and the limit of outputs filled in."""
    return spec.format(length=max(length, 1), limit=model.constraints(direction[1]).limit)


def _system(
    model: TranslationModel, direction: tuple[str, str], spec: str, texts: Sequence[str], lengths: Sequence[int]
) -> System:
    """A decoder to be timed, which gets each target's true length if its spec has a place for it."""
    if "{" not in spec:
        return decoder_system(Session.of(model, *direction, spec), spec)
    sessions = {
        model.encode([text], *direction).ids.tobytes(): decoder_system(
            Session.of(model, *direction, _with_length(spec, model, direction, length))
        )
        for text, length in zip(texts, lengths, strict=False)
    }
    return System(spec, lambda source: sessions[source.ids.tobytes()].decode(source))


def take_turns(
    run: ModelRun, systems: Sequence[System], sources: Sequence[Source], rounds: int, threads: int
) -> dict[str, Measurement]:
    """Measurements by name, without passes: counting them would take time."""
    uncounted = [System(system.name, system.decode) for system in systems]
    timings = run.measure(uncounted, sources, runs=rounds, threads=threads, device=run.loaded.device)
    return {m.name: m for m in timings}


def _counts(model: TranslationModel, counted: pd.DataFrame, greedy: pd.DataFrame, uncounted: int) -> dict[str, Any]:
    passes, greedy_passes = int(counted.passes.sum()), int(greedy.passes.sum())
    counts = {
        "sentences": len(counted),
        "calls": passes,
        "positions": int(counted.positions.sum()),
        "calls_ratio": greedy_passes / passes,
        "calls_ratio_as_paper_counts": greedy_passes / max(passes - uncounted * len(counted), 1),
    }
    if model.checkpoint.family in FAMILIES:
        cost = multiply_adds(model.checkpoint.architecture, counted.source_tokens, counted.positions, counted.attended)
        counts["flops_per_sentence"] = 2.0 * float(cost.mean())
    return counts


def _quality(
    outputs: Iterable[tuple[int, ...]],
    greedy_outputs: Iterable[tuple[int, ...]],
    texts: Sequence[str],
    references: Sequence[str],
) -> dict[str, float]:
    agreement = same_share(list(outputs), list(greedy_outputs))
    return {"agreement": agreement, **quality_of(texts, references[: len(texts)])}


def speedup_row(base: Measurement, m: Measurement) -> dict[str, Any]:
    """Speedup of a measurement over its baseline, with the interval, and its median seconds."""
    return {**ratio_of("speedup", base.seconds, m.seconds), "seconds": median(m)}


def multiply_adds(architecture: Architecture, source_length: Any, positions: Any, attended: Any) -> Any:
    """Multiply-adds of translating a sentence: products of matrices and attention; one is two FLOPs.

    With S source tokens, P target positions computed and A cache entries read by them in sum, width d, all heads together h
    wide, feed-forward f in g products (3 where it is gated, else 2), vocabulary V, and L layers of encoder (e) and decoder (d)::

        encoder    Le S (4 d he + g d fe) + 2 Le S^2 he    queries, keys, values, output; feed-forward; attention
        memory     2 Ld S d hd                             keys and values of cross-attention
        decoder    Ld P (6 d hd + g d fd)                  the four of self-attention, two of cross-attention; feed-forward
        attention  2 Ld hd (A + P S)
        output     P d V

    Numbers or arrays, one entry a sentence.
    """
    a = architecture
    d, layers, s, p = a.width, a.decoder_layers, source_length, positions
    products, source_heads, heads = 1 + len(a.inner_parts), math.prod(a.heads("encoder")), math.prod(a.heads("decoder"))
    encoder = (
        a.encoder_layers * s * (4 * d * source_heads + products * d * a.encoder_feed_forward + 2 * source_heads * s)
    )
    memory = 2 * layers * s * d * heads
    decoder = layers * p * (6 * d * heads + products * d * a.decoder_feed_forward)
    return encoder + memory + decoder + 2 * layers * heads * (attended + p * s) + p * d * a.vocabulary
