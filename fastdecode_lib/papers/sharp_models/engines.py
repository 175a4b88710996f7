"""Speed of the engines, ours and others'; one file because every table times the same engines in turn.

Two shapes: the bundled model on sentences, to their natural ends, and opus-mt's with random weights, held to 30 tokens. All
systems read the same weights and take turns, one thread each. CTranslate2 runs in processes of its own, each with the
backend that was fastest in a trial, and only its own call is timed; ours are timed with everything around them.
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
from fastdecode_lib.measuring.comparing import decoder_system, outputs_of, text_system
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.measuring.referee import System, measure, noisy
from fastdecode_lib.measuring.widths import pass_cost
from fastdecode_lib.papers.run import CorpusRun, ModelRun, Run, Scale, ThreadedRun, experiment
from fastdecode_lib.papers.shared.random_models import OPUS, TOY, random_checkpoint
from fastdecode_lib.papers.shared.rows import median, ratio_of, table_of
from fastdecode_lib.papers.sharp_models.ctranslate2_worker import BACKENDS, NotComputed, Worker
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.text.tokenizers import padded
from fastdecode_lib.translation import Session

FOLDER = Path("build") / "bench"
"""Folder of the random model and its conversions."""
DIRECTION = ("en", "de")
FORCED = 30
"""Tokens of every output of the random model."""
WIDTHS = (1, 2, 4, 8, 16, 32)
HOPELESS = 2
"""Times as slow as torch in float32 that a backend of CTranslate2 must be to be left out."""
SMALL, LARGE = "tatoeba-small", "opus-mt shape"


@dataclass(frozen=True)
class Size:
    """Amount of measurement at a scale.

    Attributes
    ----------
    sentences : (int, int)
        Decoded in each round, of the bundled model and of the random one.
    rounds, trials : int
        Rounds counted; rounds in which CTranslate2's backends are compared, 0 to take the first that works.
    passes : (int, int)
        Timed together for the cost of a pass, of both models.
    many : int
        Sentences for throughput.
    batches : tuple of int
        Sizes tried for throughput.
    starts : int
        Fresh processes.
    shape : Architecture
        Shape of the random model.
    """

    sentences: tuple[int, int]
    rounds: int
    trials: int
    passes: tuple[int, int]
    many: int
    batches: tuple[int, ...]
    starts: int
    shape: Architecture = OPUS


QUICK = Size((20, 2), rounds=5, trials=1, passes=(20, 3), many=1000, batches=(16, 32, 64), starts=3)
FULL = Size((60, 6), rounds=9, trials=3, passes=(40, 5), many=1000, batches=(8, 16, 32, 64, 128), starts=7)
SIZES = {
    Scale.TINY: Size((2, 1), rounds=3, trials=0, passes=(1, 1), many=6, batches=(4,), starts=1, shape=TOY),
    Scale.LAPTOP: FULL,
    Scale.PAPER: replace(FULL, sentences=(130, 12), rounds=15),
}


@dataclass(frozen=True)
class Geometry:
    """A model in every engine and precision, with what it is timed on."""

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

    def glance(self) -> float:
        """Seconds that torch takes for two tokens of the first sentence."""
        limits = {"min_length": 0, "max_length": 2}
        session = replace(self, limits=limits).session("torch float32")
        (found,) = measure([decoder_system(session)], self.sources[:1], runs=1)
        return float(found.seconds[0])

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
    """The bundled model and the random one, one after the other."""
    models = engines_of(name)
    sources = natural_ends(models["compiled float32"], [a for a, _ in own_pairs(*DIRECTION)], size.sentences[0])
    yield Geometry(SMALL if name == SMALL else Path(name).name, models, sources, {}, size.passes[0], None)
    random = np.random.default_rng(seed)
    shape = size.shape
    folder = folder / f"marian-{shape.width}x{shape.decoder_layers}-{shape.vocabulary}-seed{seed}"
    models = engines_of(str(random_checkpoint(folder, shape, seed)))
    rows = [[*random.integers(2, shape.padding, random.integers(17, 23)), 0] for _ in range(size.sentences[1])]
    limits = {"min_length": FORCED - 1, "max_length": FORCED}
    sources = [padded([row], shape.padding) for row in rows]
    yield Geometry(
        LARGE if shape == OPUS else "toy shape", models, sources, limits, size.passes[1], folder.parent / "ctranslate2"
    )


def natural_ends(model: TranslationModel, texts: Sequence[str], number: int) -> list[Source]:
    """The first sentences whose greedy output ends by itself; one that repeats itself to the limit would dominate the time."""
    session = Session.of(model, *direction_of(model), "greedy")
    texts = texts[: 2 * number]
    limit = session.constraints.limit  # where an end may be forced
    ended = [len(found.tokens) < limit for found in session.decode(texts)]
    kept = [text for text, ends in zip(texts, ended, strict=True) if ends] or texts
    return [model.encode([text], *direction_of(model)) for text in kept[:number]]


def _table(rows: Iterable[Mapping[str, Any]], run: ModelRun, size: Size, name: str, **about: Any) -> pd.DataFrame:
    model = load(name, device="cpu")
    return table_of(rows, run, model, rounds=size.rounds, direction="-".join(DIRECTION), **about)


# ------------------------------------------------------------------------------------------------------ a step, a sentence


@experiment
def steps(run: ModelRun, *, size: Size | None = None, folder: Path = FOLDER) -> pd.DataFrame:
    """Milliseconds a step and a sentence, one sentence at a time on one thread, encoder included.

    ``ratio``: a system's time a step divided by the compiled engine's in the same precision (float32 for Hugging Face and
    torch), in one run. ``agreement``: outputs equal to the compiled engine's in float32. Raw seconds stand in the provenance.
    """
    size = size or SIZES[run.scale]
    name = run.model.name if run.model else SMALL
    rows: list[dict[str, Any]] = []
    seconds: dict[str, dict[str, list[float]]] = {}
    tried: dict[str, dict[str, float]] = {}
    missing: dict[str, str] = {}
    for geometry in geometries(size, name, run.seed, folder):
        workers: dict[str, Worker] = {}
        for precision in PRECISIONS:
            label = f"ctranslate2 {precision}"
            worker, times = best_worker(geometry, precision, size.trials, run.progress)
            tried[f"{geometry.name}, {label}"] = times
            if worker:
                workers[label] = worker
            else:
                missing[f"{geometry.name}, {label}"] = (
                    "not installed, or this processor has no use for it in this precision"
                )
        systems = [System(label, decoder_system(geometry.session(label)).decode) for label in geometry.models]
        systems.append(System("hf float32", baseline("hf", geometry.reference, geometry.constraints, 1)))
        systems += [worker.system(label) for label, worker in workers.items()]
        try:
            timings = measure(systems, geometry.sources, runs=size.rounds, progress=run.progress)
        finally:
            for worker in workers.values():
                worker.close()
        times_of = {m.name: m for m in timings}
        seconds[geometry.name] = {m.name: m.seconds.tolist() for m in timings}
        for m in timings:
            backend = workers[m.name].backend if m.name in workers else ""
            rows.append(_step_row(geometry, m, times_of, run.seed) | {"backend": backend, "note": _note(m, times_of)})
    about = {"seconds": seconds, "backends_milliseconds": tried, "missing": missing, "sentences": size.sentences}
    return _table(rows, run, size, name, **about)


def _step_row(geometry: Geometry, m: Measurement, times: dict[str, Measurement], seed: int) -> dict[str, Any]:
    own = times[f"compiled {m.name.split()[-1]}"]
    most = geometry.constraints.limit
    taken, own_taken = (sum(min(len(output) + 1, most) for output in found.outputs) for found in (m, own))
    each, own_each = m.seconds / taken, own.seconds / own_taken
    return {
        "name": f"{geometry.name}, {m.name}",
        "geometry": geometry.name,
        "system": m.name,
        "ms_per_step": 1000 * median(m) / taken,
        "ms_per_sentence": 1000 * median(m) / len(geometry.sources),
        "steps": taken,
        **ratio_of("ratio", each, own_each, seed),
        "agreement": m.agreement(times["compiled float32"]),
    }


def _note(m: Measurement, times: dict[str, Measurement]) -> str:
    own = times[f"compiled {m.name.split()[-1]}"]
    return "noisy" if noisy(m, own) else ""


def best_worker(
    geometry: Geometry, precision: str, trials: int, progress: bool = False
) -> tuple[Worker | None, dict[str, float]]:
    """CTranslate2 with the backend that is fastest here, and milliseconds a sentence with each; None where it cannot."""
    workers, hopeless = workers_of(geometry, precision, 1, first=not trials)
    if not trials or not workers:
        return next(iter(workers), None), hopeless
    sources = geometry.sources[: max(2, len(geometry.sources) // 4)]
    timings = measure([w.system(w.backend) for w in workers], sources, runs=trials, progress=progress)
    times = {m.name: 1000 * median(m) / len(sources) for m in timings}
    best = min(workers, key=lambda worker: times[worker.backend])
    for worker in workers:
        if worker is not best:
            worker.close()
    return best, times | hopeless


def workers_of(
    geometry: Geometry, precision: str, threads: int, first: bool = False
) -> tuple[list[Worker], dict[str, float]]:
    """CTranslate2 with each backend that computes in a precision, or the first of them; none where it is not installed.

    Left out are backends that are `HOPELESS` times as slow as torch at a glance, as MKL is with integers on processors it
    does not know; the milliseconds of that glance are returned, too.
    """
    try:
        folder = converted(geometry.reference, geometry.cache)
    except ImportError:
        return [], {}
    torch = geometry.glance()
    workers: list[Worker] = []
    hopeless: dict[str, float] = {}
    for backend in BACKENDS:
        try:
            worker = Worker(geometry.reference, geometry.constraints, folder, precision, backend, threads)
        except NotComputed:
            continue
        taken = worker.glance(geometry.sources[0])
        if taken > HOPELESS * torch:
            worker.close()
            hopeless[f"{backend}, two tokens"] = 1000 * taken
            continue
        workers.append(worker)
        if first:
            break
    return workers, hopeless


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
            for width, m in zip(WIDTHS, timings, strict=True):
                rows.append(
                    {
                        "name": f"{geometry.name}, {label}",
                        "geometry": geometry.name,
                        "system": label,
                        "width": width,
                        **ratio_of("cost", m.seconds, timings[0].seconds, run.seed),
                        "milliseconds": 1000 * median(m) / geometry.passes,
                        "note": "noisy" if noisy(m, timings[0]) else "",
                    }
                )
    return _table(rows, run, size, name, seconds=seconds, passes=size.passes)


# ------------------------------------------------------------------------------------------------------------ many sentences


@experiment
def throughput(run: ThreadedRun, *, size: Size | None = None) -> pd.DataFrame:
    """Sentences a second of many, greedily, each system at its best size of batches, found first.

    Ours is timed from ids to ids, as CTranslate2 is: neither includes the tokenizer. ``ratio``: a system's time divided by
    the compiled engine's in the same precision. ``agreement``: outputs equal to those of the compiled engine in float32, one
    sentence at a time on one thread.
    """
    size = size or SIZES[run.scale]
    name = run.model.name if run.model else SMALL
    geometry = next(geometries(size, name, run.seed))
    texts, which = many_sentences(run, size.many)
    sessions = {label: geometry.session(label) for label in geometry.models if label.startswith("compiled")}
    everything = geometry.reference.encode(texts, *direction_of(geometry.reference))
    alone = text_system(sessions["compiled float32"]).decode(everything)
    chosen: list[System] = []
    backends: dict[str, str] = {}
    batches: dict[str, int] = {}
    tried: dict[str, dict[str, float]] = {}
    started: list[Worker] = []
    try:
        for precision in PRECISIONS:
            label = f"compiled {precision}"
            systems = {
                batch: text_system(sessions[label], label, batch=batch, threads=run.threads) for batch in size.batches
            }
            timings = measure(list(systems.values()), [everything], runs=1, progress=run.progress)
            tried[label] = {str(batch): median(m) for batch, m in zip(systems, timings, strict=True)}
            batches[label] = min(size.batches, key=lambda batch: tried[label][str(batch)])
            chosen.append(systems[batches[label]])
            label = f"ctranslate2 {precision}"
            workers, _ = workers_of(geometry, precision, run.threads, first=not size.trials)
            started += workers
            offers = [(worker, batch) for worker in workers for batch in size.batches]
            if offers:
                timings = measure(
                    [_theirs(label, *offer) for offer in offers], [everything], runs=1, progress=run.progress
                )
                tried[label] = {
                    f"{worker.backend}, {batch}": median(m) for (worker, batch), m in zip(offers, timings, strict=True)
                }
                fastest, batches[label] = offers[int(np.argmin([median(m) for m in timings]))]
                backends[label] = fastest.backend
                chosen.append(_theirs(label, fastest, batches[label]))
        timings = measure(chosen, [everything], runs=size.rounds, progress=run.progress)
    finally:
        for worker in started:
            worker.close()
    rows = _rates(timings, alone, len(texts), batches, backends, run.threads, run.seed)
    seconds = {m.name: m.seconds.tolist() for m in timings}
    return _table(rows, run, size, name, seconds=seconds, search_seconds=tried, sentences=len(texts), set=which)


def _rates(
    timings: Sequence[Measurement],
    alone: tuple[int, ...],
    sentences: int,
    batches: Mapping[str, int],
    backends: Mapping[str, str],
    threads: int,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """A row of `throughput` for each system; `alone` has the outputs of single sentences, as a `text_system` puts them."""
    times = {m.name: m for m in timings}
    for m in timings:
        compiled = times[f"compiled {m.name.split()[-1]}"]
        yield {
            "name": m.name,
            "sentences_per_second": sentences / median(m),
            "batch": batches[m.name],
            "threads": threads,
            **ratio_of("ratio", m.seconds, compiled.seconds, seed),
            "agreement": same_share(outputs_of(m.outputs[0]), outputs_of(alone)),
            "backend": backends.get(m.name, ""),
            "note": _note(m, times),
        }


def _theirs(label: str, worker: Worker, batch: int) -> System:
    def timed(sources: Sequence[Source]) -> tuple[float, tuple[tuple[int, ...], ...]]:
        taken, found = worker.together(sources[0], batch)
        return taken, (tuple(token for output in found for token in (*output, -1)),)

    return System(label, lambda source: timed([source])[1][0], timed=timed)


def many_sentences(run: CorpusRun, number: int) -> tuple[list[str], str]:
    """Sentences of the corpus's development split in any order, else the project's own, repeated; and their source."""
    pairs, where = run.pairs_or_own(*DIRECTION, "dev")
    if where == "own":
        return [pairs[i % len(pairs)][0] for i in range(number)], "own, repeated"
    order = np.random.default_rng(0).permutation(len(pairs))[:number]  # the file is sorted by length
    return [pairs[i][0] for i in order], where


# ---------------------------------------------------------------------------------------------------------------- a start

FIRST_TRANSLATION = """
import sys
import fastdecode_lib
model = fastdecode_lib.load()
print(fastdecode_lib.translate(model, "The children are playing in the garden.", source="en", target="de"))
late = sorted({"torch", "transformers"} & set(sys.modules))
sys.exit(f"imported: {late}" if late else 0)
"""


@experiment
def start_up(run: Run, *, size: Size | None = None) -> pd.DataFrame:
    """Seconds of a fresh process that loads the bundled model and translates a sentence, kernels being cached.

    Raises
    ------
    RuntimeError
        If it imports torch or transformers, or fails.
    """
    size = size or SIZES[run.scale]
    nothing = Source(np.zeros((1, 1), dtype=np.int64), np.ones(1, dtype=np.int64))

    def process(code: str) -> Callable[[Source], tuple[int, ...]]:
        def decode(_: Source) -> tuple[int, ...]:
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"A fresh process failed: {done.stderr.strip()[-500:]}")
            return ()

        return decode

    systems = [
        System("load and first translation", process(FIRST_TRANSLATION)),
        System("Python alone", process("pass")),
    ]
    timings = measure(systems, [nothing], runs=size.starts, progress=run.progress)
    rows = [{"name": m.name, "seconds": median(m)} for m in timings]
    return table_of(rows, run, seconds={m.name: m.seconds.tolist() for m in timings})
