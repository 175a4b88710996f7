"""Speed of our engines, torch, Hugging Face and CTranslate2; one file because every table times the same engines in turn.

Two shapes: the bundled model on sentences, up to their natural ends, and opus-mt's with random weights, with outputs of 30 tokens.
All systems read the same weights and take turns, one thread each. CTranslate2 runs in other processes, each with the backend that
was fastest in a trial, and only the translator's call is timed; our times include encoded around the engine.
"""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fastdecode_lib.checkpoints.transformer import Architecture
from fastdecode_lib.core import Constraints, Measurement, Source
from fastdecode_lib.loading import PRECISIONS, TranslationModel, load
from fastdecode_lib.measuring.baselines import baseline, converted
from fastdecode_lib.measuring.comparing import decoder_system, rows_of, text_system
from fastdecode_lib.measuring.pass_costs import pass_cost
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import NO_SOURCE, System, measure
from fastdecode_lib.papers.run import CorpusRun, ModelRun, Run, Scale, ThreadedRun, experiment, table_of
from fastdecode_lib.papers.shared.random_models import OPUS, TOY, random_checkpoint
from fastdecode_lib.papers.shared.rows import keyed, median, ratio_of, width_rows
from fastdecode_lib.papers.sharp_models.ctranslate2_worker import BACKENDS, NotComputed, Worker
from fastdecode_lib.text.corpus import shuffled
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.text.tokenizers import padded
from fastdecode_lib.translation import Session

FOLDER = Path("build") / "bench"
"""Folder of the random model and its conversions."""
DIRECTION = ("en", "de")
FORCED = 30
"""Tokens of every output of the random model."""
WIDTHS = (1, 2, 4, 8, 16, 32)
TOO_SLOW = 2
"""A backend of CTranslate2 that takes this many times as long as torch in float32 is left out."""
SMALL, LARGE = "tatoeba-small", "opus-mt shape"


@dataclass(frozen=True)
class Size:
    """Amount of measurement at a scale; pairs are of the bundled model and of the random one.

    Attributes
    ----------
    sentences, passes : (int, int)
        Sentences decoded in each round; passes timed together for the cost of a pass.
    trials : int
        Rounds in which CTranslate2's backends are compared, 0 to take the first that works.
    throughput, batches : int and tuple of int
        Sentences for throughput, and the batch sizes tried.
    starts : int
        Fresh processes timed.
    shape : Architecture
        Shape of the random model.
    """

    sentences: tuple[int, int]
    rounds: int
    trials: int
    passes: tuple[int, int]
    throughput: int
    batches: tuple[int, ...]
    starts: int
    shape: Architecture = OPUS


QUICK = Size((14, 1), rounds=6, trials=1, passes=(14, 1), throughput=300, batches=(16, 64), starts=3)
FULL = Size((60, 6), rounds=9, trials=3, passes=(40, 5), throughput=1000, batches=(8, 16, 32, 64, 128), starts=7)
SIZES = {
    Scale.TINY: Size((2, 1), rounds=3, trials=0, passes=(1, 1), throughput=6, batches=(4,), starts=1, shape=TOY),
    Scale.LAPTOP: FULL,
    Scale.PAPER: replace(FULL, sentences=(130, 12), rounds=15),
}


@dataclass(frozen=True)
class Geometry:
    """A model in every engine and precision, with the sources and limits it is timed with."""

    name: str
    models: dict[str, TranslationModel]
    sources: Sequence[Source]
    limits: dict[str, Any]
    passes: int
    cache: Path | None
    """Folder of the converted model; the user's cache if None."""

    @property
    def reference(self) -> TranslationModel:
        """The model on torch."""
        return self.models["torch float32"]

    @property
    def constraints(self) -> Constraints:
        """Constraints of outputs."""
        return self.session("torch float32").constraints

    def seconds_of_two_tokens(self) -> float:
        """Seconds that torch takes for two tokens of the first sentence."""
        session = replace(self, limits={"min_length": 0, "max_length": 2}).session("torch float32")
        (measurement,) = measure([decoder_system(session)], self.sources[:1], runs=1)
        return float(measurement.seconds[0])

    def session(self, system: str) -> Session:
        """Greedy decoding on one of the models."""
        source, target = direction_of(self.reference)
        return Session.of(self.models[system], source, target, "greedy", **self.limits)


def direction_of(model: TranslationModel) -> tuple[str | None, str | None]:
    """English to German where a model has directions."""
    return DIRECTION if model.directions else (None, None)


def engines_of(name: str) -> dict[str, TranslationModel]:
    """A model on the compiled engine in every precision, and on torch."""
    models = {f"compiled {p}": load(name, device="cpu", engine="compiled", precision=p) for p in PRECISIONS}
    return models | {"torch float32": load(name, device="cpu", engine="torch")}


def geometries(size: Size, name: str, seed: int, folder: Path = FOLDER) -> Iterator[Geometry]:
    """The bundled model, the random one, and the random one with weights of float16, one after the other."""
    models = engines_of(name)
    sources = natural_ends(models["compiled float32"], [a for a, _ in own_pairs(*DIRECTION)], size.sentences[0])
    yield Geometry(SMALL if name == SMALL else Path(name).name, models, sources, {}, size.passes[0], None)
    random = np.random.default_rng(seed)
    shape = size.shape
    rows = [[*random.integers(2, shape.padding, random.integers(17, 23)), 0] for _ in range(size.sentences[1])]
    limits = {"min_length": FORCED - 1, "max_length": FORCED}
    sources = [padded([row], shape.padding) for row in rows]
    for weights in ("", " in float16"):
        place = f"marian-{shape.width}x{shape.decoder_layers}-{shape.vocabulary}-seed{seed}{weights.replace(' ', '-')}"
        models = engines_of(str(random_checkpoint(folder / place, shape, seed, halves=bool(weights))))
        named = (LARGE if shape == OPUS else "toy shape") + weights
        yield Geometry(named, models, sources, limits, size.passes[1], folder / "ctranslate2")


def natural_ends(model: TranslationModel, texts: Sequence[str], number: int) -> list[Source]:
    """The first sentences whose greedy output ends before the limit; one that repeats itself up to it would dominate the time."""
    session = Session.of(model, *direction_of(model), "greedy")
    texts, limit = texts[: 2 * number], session.constraints.limit
    hypotheses = session.decode(texts)
    ended = [text for text, h in zip(texts, hypotheses, strict=True) if len(h.tokens) < limit] or texts
    return [model.encode([text], *direction_of(model)) for text in ended[:number]]


def _table(rows: Iterable[Mapping[str, Any]], run: ModelRun, size: Size, name: str, **facts: Any) -> pd.DataFrame:
    model = load(name, device="cpu")
    return table_of(rows, run, model, rounds=size.rounds, direction="-".join(DIRECTION), **facts)


# ------------------------------------------------------------------------------------------------------ a step, a sentence


@experiment
def steps(run: ModelRun, *, size: Size | None = None, folder: Path = FOLDER) -> pd.DataFrame:
    """Milliseconds a step and a sentence, one sentence at a time on one thread, encoder included.

    ``ratio``: a system's time a step divided by the compiled engine's in the same precision (float32 for Hugging Face and
    torch), in one run. ``agreement``: outputs equal to the compiled engine's in float32. Raw seconds are in the provenance.
    """
    size = size or SIZES[run.scale]
    name = run.model.name if run.model else SMALL
    rows: list[dict[str, Any]] = []
    seconds: dict[str, dict[str, list[float]]] = {}
    milliseconds: dict[str, dict[str, float]] = {}
    missing: dict[str, str] = {}
    for geometry in geometries(size, name, run.seed, folder):
        workers: dict[str, Worker] = {}
        for precision in PRECISIONS:
            label = f"ctranslate2 {precision}"
            key = f"{geometry.name}, {label}"
            worker, milliseconds[key] = best_worker(geometry, precision, size.trials, run.progress)
            if worker:
                workers[label] = worker
            else:
                missing[key] = "not installed, or this processor has no use for it in this precision"
        systems = [System(label, decoder_system(geometry.session(label)).decode) for label in geometry.models]
        systems.append(System("hf float32", baseline("hf", geometry.reference, geometry.constraints, 1)))
        systems += [worker.system(label) for label, worker in workers.items()]
        try:
            timings = run.measure(systems, geometry.sources, runs=size.rounds)
        finally:
            for worker in workers.values():
                worker.close()
        by_name = {m.name: m for m in timings}
        seconds[geometry.name] = {m.name: m.seconds.tolist() for m in timings}
        for m in timings:
            backend = workers[m.name].backend if m.name in workers else ""
            rows.append(_step_row(geometry, m, by_name) | {"backend": backend})
    facts = {"seconds": seconds, "backends_milliseconds": milliseconds, "missing": missing, "sentences": size.sentences}
    return _table(rows, run, size, name, **facts)


def _step_row(geometry: Geometry, m: Measurement, times: dict[str, Measurement]) -> dict[str, Any]:
    compiled = times[f"compiled {m.name.split()[-1]}"]
    limit = geometry.constraints.limit
    steps, compiled_steps = (sum(min(len(output) + 1, limit) for output in each.outputs) for each in (m, compiled))
    return {
        **keyed(geometry=geometry.name, system=m.name),
        "ms_per_step": 1000 * median(m) / steps,
        "ms_per_sentence": 1000 * median(m) / len(geometry.sources),
        "steps": steps,
        **ratio_of("ratio", m.seconds / steps, compiled.seconds / compiled_steps),
        "agreement": m.agreement(times["compiled float32"]),
    }


def best_worker(
    geometry: Geometry, precision: str, trials: int, progress: bool = False
) -> tuple[Worker | None, dict[str, float]]:
    """CTranslate2 with the backend that is fastest here, None if none computes; and milliseconds a sentence with each."""
    workers, too_slow = workers_of(geometry, precision, 1, first=not trials)
    if not trials or not workers:
        return next(iter(workers), None), too_slow
    sources = geometry.sources[: max(2, len(geometry.sources) // 4)]
    timings = measure([w.system(w.backend) for w in workers], sources, runs=trials, progress=progress)
    times = {m.name: 1000 * median(m) / len(sources) for m in timings}
    best = min(workers, key=lambda worker: times[worker.backend])
    for worker in workers:
        if worker is not best:
            worker.close()
    return best, times | too_slow


def workers_of(
    geometry: Geometry, precision: str, threads: int, first: bool = False
) -> tuple[list[Worker], dict[str, float]]:
    """CTranslate2 with each backend that computes in a precision, or the first of them; none where it is not installed.

    A backend that takes over `TOO_SLOW` times torch's time for two tokens is left out, as MKL is with integers on processors
    that it does not know; these milliseconds are returned, too.
    """
    try:
        folder = converted(geometry.reference, geometry.cache)
    except ImportError:
        return [], {}
    torch_seconds = geometry.seconds_of_two_tokens()
    workers: list[Worker] = []
    too_slow: dict[str, float] = {}
    for backend in BACKENDS:
        try:
            worker = Worker(geometry.reference, geometry.constraints, folder, precision, backend, threads)
        except NotComputed:
            continue
        seconds = worker.seconds_of_two_tokens(geometry.sources[0])
        if seconds > TOO_SLOW * torch_seconds:
            worker.close()
            too_slow[f"{backend}, two tokens"] = 1000 * seconds
            continue
        workers.append(worker)
        if first:
            break
    return workers, too_slow


# ------------------------------------------------------------------------------------------------------------------ a pass


@experiment
def pass_costs(run: ModelRun, *, size: Size | None = None, folder: Path = FOLDER) -> pd.DataFrame:
    """Cost of a pass over w new positions, in passes over one: network and projection, each engine and precision."""
    size = size or SIZES[run.scale]
    name = run.model.name if run.model else SMALL
    rows: list[dict[str, Any]] = []
    seconds: dict[str, list[list[float]]] = {}
    for geometry in geometries(size, name, run.seed, folder):
        for label, loaded in geometry.models.items():
            timings = pass_cost(
                loaded.network, WIDTHS, steps=geometry.passes, rounds=size.rounds, seed=run.seed, progress=run.progress
            )
            seconds[f"{geometry.name}, {label}"] = [m.seconds.tolist() for m in timings]
            costs = width_rows(f"{geometry.name}, {label}", WIDTHS, timings, geometry.passes)
            rows += (row | {"geometry": geometry.name, "system": label} for row in costs)
    return _table(rows, run, size, name, seconds=seconds, passes=size.passes)


# ------------------------------------------------------------------------------------------------------------ many sentences


@experiment
def throughput(run: ThreadedRun, *, size: Size | None = None) -> pd.DataFrame:
    """Sentences a second of greedy decoding in batches, each system at its best batch size, which is searched first.

    Our engine is timed from ids to ids, as CTranslate2 is: neither time includes the tokenizer. ``ratio``: a system's time over
    the compiled engine's in the same precision. ``agreement``: outputs equal to those of the compiled engine in float32, one
    sentence at a time on one thread.
    """
    size = size or SIZES[run.scale]
    name = run.model.name if run.model else SMALL
    geometry = next(geometries(size, name, run.seed))
    texts, set_name = throughput_sentences(run, size.throughput)
    sessions = {label: geometry.session(label) for label in geometry.models if label.startswith("compiled")}
    encoded = geometry.reference.encode(texts, *direction_of(geometry.reference))
    alone = text_system(sessions["compiled float32"]).decode(encoded)
    chosen: dict[str, tuple[str, int, System]] = {}
    search_seconds: dict[str, dict[str, float]] = {}
    all_workers: list[Worker] = []
    try:
        for precision in PRECISIONS:
            ours, ctranslate2 = f"compiled {precision}", f"ctranslate2 {precision}"
            workers, _ = workers_of(geometry, precision, run.threads, first=not size.trials)
            all_workers += workers
            settings = {
                ours: [
                    ("", batch, text_system(sessions[ours], ours, batch=batch, threads=run.threads))
                    for batch in size.batches
                ],
                ctranslate2: [
                    (worker.backend, batch, _batch_system(ctranslate2, worker, batch))
                    for worker in workers
                    for batch in size.batches
                ],
            }
            for label, tried in settings.items():
                if tried:
                    seconds = [median(m) for m in run.measure([system for *_, system in tried], [encoded], runs=1)]
                    names = [f"{backend}, {batch}" if backend else str(batch) for backend, batch, _ in tried]
                    search_seconds[label] = dict(zip(names, seconds, strict=True))
                    chosen[label] = tried[int(np.argmin(seconds))]
        timings = run.measure([system for *_, system in chosen.values()], [encoded], runs=size.rounds)
    finally:
        for worker in all_workers:
            worker.close()
    times = {m.name: m for m in timings}
    rows = [
        {
            "name": m.name,
            "sentences_per_second": len(texts) / median(m),
            "batch": batch,
            "threads": run.threads,
            **ratio_of("ratio", m.seconds, times[f"compiled {m.name.split()[-1]}"].seconds),
            "agreement": same_share(rows_of(m.outputs), list(alone)),
            "backend": backend,
        }
        for m, (backend, batch, _) in zip(timings, chosen.values(), strict=True)
    ]
    facts = {"search_seconds": search_seconds, "sentences": len(texts), "set": set_name}
    return _table(rows, run, size, name, seconds={m.name: m.seconds.tolist() for m in timings}, **facts)


def _batch_system(label: str, worker: Worker, batch: int) -> System:
    """CTranslate2 on all sentences in batches; its output is that of a `text_system`."""

    def timed(sources: Sequence[Source]) -> tuple[float, tuple[Any, ...]]:
        (source,) = sources
        seconds, outputs = worker.in_batches(source, batch)
        return seconds, (tuple(outputs),)

    return System(label, lambda source: timed([source])[1][0], timed=timed)


def throughput_sentences(run: CorpusRun, number: int) -> tuple[list[str], str]:
    """Sentences of the corpus's development split in random order, else the project's own, repeated; and the set's name."""
    pairs, name = run.pairs_or_own(*DIRECTION, "dev")
    if name == "own":
        return [pairs[i % len(pairs)][0] for i in range(number)], "own, repeated"
    return [text for text, _ in shuffled(pairs, 0)[:number]], name


# ---------------------------------------------------------------------------------------------------------------- a start

FIRST_TRANSLATION = """
import sys
import fastdecode_lib
model = fastdecode_lib.load()
print(fastdecode_lib.translate(model, "The children are playing in the garden.", source="en", target="de"))
imported = sorted({"torch", "transformers"} & set(sys.modules))
sys.exit(f"imported: {imported}" if imported else 0)
"""


@experiment
def start_up(run: Run, *, size: Size | None = None) -> pd.DataFrame:
    """Seconds of a fresh process that loads the bundled model and translates a sentence, with cached kernels.

    Raises
    ------
    RuntimeError
        If the process imports torch or transformers, or fails.
    """
    size = size or SIZES[run.scale]

    def process(code: str) -> Callable[[Source], tuple[int, ...]]:
        def decode(_: Source) -> tuple[int, ...]:
            finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            if finished.returncode:
                raise RuntimeError(f"A fresh process failed: {finished.stderr.strip()[-500:]}")
            return ()

        return decode

    systems = [
        System("load and first translation", process(FIRST_TRANSLATION)),
        System("Python alone", process("pass")),
    ]
    timings = run.measure(systems, [NO_SOURCE], runs=size.starts)
    rows = [{"name": m.name, "seconds": median(m)} for m in timings]
    return table_of(rows, run, seconds={m.name: m.seconds.tolist() for m in timings})
