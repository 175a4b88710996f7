"""The referee: several systems on the same weights and sentences, in turn, in one process.

Systems run interleaved (A B C A B C ...), after a warm-up that is thrown away, with the garbage collector off and the
device synchronised; every raw time is kept. A speedup is the ratio of median times in one run, with a bootstrap interval.
"""

import gc
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.core import Candidates, Measurement, Model, Projection, Scorer, Source, Usage, drain
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.baselines import baseline, until_end
from fastdecode_lib.translation import Counted, Session

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "name", "agreement", "calls", "positions", "speedup", "speedup_low", "speedup_high", "seconds", "bleu", "chrf",
)  # fmt: skip
S = TypeVar("S")
T = TypeVar("T")

PARALLEL = ("greedy", "jacobi", "gauss_seidel:block=3", "hybrid:block=3")
"""What `compare` compares where nothing else is asked for."""
NOISY = 0.10
"""Spread (interquartile range over median) above which a time is called noisy."""


@dataclass(frozen=True)
class System:
    """Something that decodes one sentence: ids in, ids out (without the end)."""

    name: str
    decode: Callable[[Source], tuple[int, ...]]
    count: Callable[[Source], Usage] | None = None
    timed: Callable[[Sequence[Source]], tuple[float, tuple[tuple[int, ...], ...]]] | None = None
    """Where a system lives in another process: decodes all sentences there with `stopwatch`; seconds and outputs."""


def decoder_system(session: Session, name: str | None = None) -> System:
    """A session's decoder as a system; timed bare, counted in a run of its own through the counting proxy."""
    network = session.model.network

    def run(model: Any, source: Source) -> tuple[int, ...]:
        (best,) = drain(session.decoder.iterate(model, session.projection, source, session.constraints))
        return until_end(list(best.tokens), session.constraints)

    def count(source: Source) -> Usage:
        counted = Counted(network)
        run(counted, source)
        return counted.usage

    alone = getattr(session.decoder, "outputs", None) is None
    return System(name or session.decoder_name, lambda source: run(network, source), count if alone else None)


def measure(
    systems: Sequence[System],
    sources: Sequence[Source],
    *,
    runs: int = 5,
    warm_up: int = 1,
    threads: int = 1,
    synchronise: Callable[[], None] = lambda: None,
    progress: bool = False,
) -> list[Measurement]:
    """Time systems over all sentences, in turn.

    Parameters
    ----------
    systems : sequence of System
    sources : sequence of Source
        One sentence each.
    runs, warm_up : int
        Rounds counted, and rounds before them that are not.
    synchronise : callable
        Waits for the device; called before each reading of the clock.

    Returns
    -------
    list of Measurement, in the order of the systems
    """
    from tqdm.auto import tqdm

    if runs < 1:
        raise ValueError(f"A measurement needs runs >= 1, got {runs}. Use runs=5 for an interval worth printing.")
    seconds: list[list[float]] = [[] for _ in systems]
    outputs: list[tuple[tuple[int, ...], ...]] = [() for _ in systems]
    with (
        tqdm(total=(runs + warm_up) * len(systems), desc="measuring", unit="run", disable=not progress) as rounds,
        _fixed_threads(threads),
        _no_garbage_collection(),
    ):
        for number in range(warm_up + runs):
            for i, system in enumerate(systems):
                taken, decoded = (
                    system.timed(sources) if system.timed else stopwatch(system.decode, sources, synchronise)
                )
                if number >= warm_up:
                    seconds[i].append(taken)
                outputs[i] = decoded
                rounds.update()
            gc.collect()
    measurements = []
    for system, taken_by, decoded in zip(systems, seconds, outputs, strict=True):
        usage = None
        if system.count is not None:
            usage = sum((system.count(source) for source in sources), Usage())
        measurements.append(Measurement(system.name, np.array(taken_by), decoded, usage))
    return measurements


def noisy(*found: Measurement) -> bool:
    """Whether any of the measurements that a ratio is of spreads over more than `NOISY`."""
    return any(spread(one.seconds) > NOISY for one in found)


def stopwatch(
    decode: Callable[[S], T], sources: Sequence[S], synchronise: Callable[[], None] = lambda: None
) -> tuple[float, tuple[T, ...]]:
    """Seconds that it takes to decode some sources one after another, and what comes of each."""
    synchronise()
    start = perf_counter()
    decoded = tuple(decode(source) for source in sources)
    synchronise()
    return perf_counter() - start, decoded


@dataclass
class Watched:
    """A projection that adds up the seconds of its calls where they are made: amid decoding, with caches as that leaves them."""

    inner: Projection
    seconds: float = 0.0

    def bind(self, source: Source | None) -> "_WatchedScorer":
        """The inner scorer, watched."""
        return _WatchedScorer(self.inner.bind(source), self)

    @property
    def memory_bytes(self) -> int:
        """The inner's."""
        return self.inner.memory_bytes

    def multiply_adds(self, rows: int) -> int:
        """The inner's."""
        return self.inner.multiply_adds(rows)


@dataclass
class _WatchedScorer:
    inner: Scorer
    watch: Watched

    def top_k(self, hidden: Any, k: int, banned: np.ndarray | None = None, normalise: bool = False) -> Candidates:
        start = perf_counter()
        found = self.inner.top_k(hidden, k, banned, normalise)
        self.watch.seconds += perf_counter() - start
        return found

    def log_probs(self, hidden: Any, ids: np.ndarray) -> np.ndarray:
        return self.inner.log_probs(hidden, ids)


class WatchedModel:
    """A model that adds up the seconds of its calls: ``encoder``, ``layers`` of the decoder, ``copies`` of rows of a state."""

    def __init__(self, inner: Model):
        self.inner, self.seconds = inner, {"encoder": 0.0, "layers": 0.0, "copies": 0.0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _timed(self, part: str, call: Callable[[], T]) -> T:
        start = perf_counter()
        found = call()
        self.seconds[part] += perf_counter() - start
        return found

    def encode(self, source: Source) -> Any:
        """As the inner model's."""
        return self._timed("encoder", lambda: self.inner.encode(source))

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> Any:
        """As the inner model's; copies of the state are watched."""
        return _WatchedState(self.inner.start(encoded, prefix, capacity), self)

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Any:
        """As the inner model's."""
        return self._timed("layers", lambda: self.inner.step(state.inner, tokens, visible))


class _WatchedState:
    """A state beside the model's watch; it keeps nothing alive that decoding lets go."""

    def __init__(self, inner: Any, watch: WatchedModel):
        self.inner, self.watch = inner, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def select(self, rows: np.ndarray) -> "_WatchedState":
        return _WatchedState(self.watch._timed("copies", lambda: self.inner.select(rows)), self.watch)


def count(session: Session, texts: Sequence[str], *, batch: int = 32, progress: bool = False) -> "pd.DataFrame":
    """What it takes to decode each of many texts: passes and positions counted, times not read.

    Texts are decoded in batches of like length, which changes neither outputs nor counts. As in a trace, the pass over a
    forced target language is left out. Text without content takes nothing.

    Returns
    -------
    DataFrame with a row per text, in order
        ``source_tokens``; ``tokens`` of the output, the end included; ``passes``; ``positions`` computed; ``attended``:
        entries of the decoder's cache that those positions read, in sum; ``text``; ``ids`` of the output.
    """
    import pandas as pd
    from tqdm.auto import tqdm

    everything = session.model.encode(texts, session.source, session.target)
    filled = [i for i, text in enumerate(texts) if session.has_content(text)]
    order = sorted(filled, key=lambda i: int(everything.lengths[i]))
    outputs: list[tuple[int, ...]] = [()] * len(texts)
    counts = np.zeros((len(texts), 3), dtype=np.int64)
    with tqdm(total=len(order), desc=session.decoder_name, unit="sentence", disable=not progress) as bar:
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            source = everything.rows(np.array(rows))
            running = session.decoder.iterate(session.model.network, session.projection, source, session.constraints)
            while True:
                try:
                    iteration = next(running)
                except StopIteration as stop:
                    for i, hypothesis in zip(rows, stop.value, strict=True):
                        outputs[i] = hypothesis.tokens
                    break
                passes, group = counts[rows[iteration.row], 0], session.model.network.group
                # A beam feeds one slot in each lane, or a group; all others feed consecutive slots, which see each other. Of a
                # masked model's targets of several lengths, the one shown stands for all.
                in_steps, masked = iteration.lanes or group > 1, session.model.network.kind == "masked"
                held, fed = (passes * group, group) if in_steps else (iteration.slots[0], iteration.positions)
                held, fed = (0, len(iteration.slots)) if masked else (held, fed)
                entries = len(session.constraints.prefix) - group + held + fed
                counts[rows[iteration.row]] += (1, iteration.positions, iteration.positions * entries)
            bar.update(len(rows))
    return pd.DataFrame(
        {
            "source_tokens": everything.lengths,
            "tokens": [len(tokens) for tokens in outputs],
            "passes": counts[:, 0],
            "positions": counts[:, 1],
            "attended": counts[:, 2],
            "text": session.model.texts(texts, outputs),
            "ids": outputs,
        }
    )


def compare(
    model: TranslationModel,
    sentences: Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    decoders: Sequence[registry.Spec] | None = None,
    projections: Sequence[str] = ("exact",),
    baselines: Sequence[str] = (),
    references: Sequence[str] | None = None,
    runs: int = 5,
    threads: int = 1,
    seed: int = 0,
    progress: bool = True,
    **limits: Any,
) -> "pd.DataFrame":
    """One row per decoder and baseline: agreement with greedy, passes, positions, speedup over greedy, quality.

    Greedy decoding is always measured, being what the others are compared with; its row appears if it was asked for. For models
    that it cannot drive, `registry.usual` has its place. Without `decoders`, it and the parallel ones are compared. Passes of a
    model that drafts for another are not counted, so such rows have no ``calls``. Sentences without content are left out. Raw
    times and provenance stand in ``frame.attrs``.

    Returns
    -------
    DataFrame with the columns of `COLUMNS`
    """
    import pandas as pd

    if references is not None and len(references) != len(sentences):
        raise ValueError(
            f"Each sentence needs one reference: got {len(sentences)} sentences and {len(references)} references. "
            "Check that the files have the same number of lines."
        )
    usual = registry.usual(model.network)
    if not decoders:
        decoders = PARALLEL if usual == "greedy" else (usual,)
    sessions = [
        Session.of(model, source, target, decoder, projection, **limits)
        for projection in projections
        for decoder in decoders
    ]
    greedy = Session.of(model, source, target, usual, **limits)
    kept = [i for i, sentence in enumerate(sentences) if greedy.has_content(sentence)]
    if not kept:
        raise ValueError("There is nothing to compare on: got no sentence with content. Give at least one.")
    sources = [model.encode([sentences[i]], greedy.source, greedy.target) for i in kept]
    systems = [decoder_system(greedy, usual)]
    for session in sessions:
        name = session.decoder_name
        if session.projection_name != "exact":
            name += f"+{session.projection_name}"
        if name not in [system.name for system in systems]:
            systems.append(decoder_system(session, name))
    systems += [System(name, baseline(name, model, greedy.constraints, threads)) for name in baselines]
    measurements = measure(
        systems,
        sources,
        runs=runs,
        threads=threads,
        synchronise=synchroniser(model.device),
        progress=progress,
    )
    asked = {session.decoder_name for session in sessions}
    shown = [m for m in measurements if m is not measurements[0] or usual in asked or not asked]
    rows = [_row(m, measurements[0], seed) for m in shown]
    if references is not None:
        texts, expected = [sentences[i] for i in kept], [references[i] for i in kept]
        for row, m in zip(rows, shown, strict=True):
            row["bleu"], row["chrf"] = quality(model.texts(texts, m.outputs), expected)
    for row, session in ((row, session) for row in rows for session in sessions if session.decoder_name == row["name"]):
        if session.decoder.lossless and row["agreement"] < 1:
            margin = largest_margin(greedy, session, sources)
            row["note"] = " ".join([row["note"], f"differs where the top-2 margin is at most {margin:.1e}"]).strip()
    frame = pd.DataFrame(rows, columns=[*COLUMNS, "note"])
    frame.attrs["provenance"] = provenance(model, threads=threads, seed=seed) | {
        "sentences": len(kept),
        "runs": runs,
        "direction": f"{greedy.source}-{greedy.target}",
        **signatures(references is not None),
    }
    frame.attrs["seconds"] = {m.name: m.seconds.tolist() for m in measurements}
    return frame


def _row(m: Measurement, greedy: Measurement, seed: int) -> dict[str, Any]:
    low, high = bootstrap_ratio(greedy.seconds, m.seconds, seed)
    median = float(np.median(m.seconds))
    return {
        "name": m.name,
        "agreement": m.agreement(greedy),
        "calls": m.usage.passes if m.usage else None,
        "positions": m.usage.positions if m.usage else None,
        "speedup": float(np.median(greedy.seconds)) / median,
        "speedup_low": low,
        "speedup_high": high,
        "seconds": median,
        "bleu": None,
        "chrf": None,
        "note": "noisy" if noisy(greedy, m) else "",
    }


def largest_margin(greedy: Session, other: Session, sources: Sequence[Source]) -> float:
    """How sure greedy decoding was where another decoder first differs from it, at most over some sentences.

    A lossless decoder differs only through rounding, so that this is tiny; anything else is a fault.
    """
    network = greedy.model.network
    largest = 0.0
    for source in sources:
        passes = list(greedy.decoder.iterate(network, greedy.projection, source, greedy.constraints, observe=True))
        (found,) = drain(other.decoder.iterate(network, other.projection, source, other.constraints))
        for iteration, token in zip(passes, found.tokens, strict=False):
            if iteration.tokens[0] != token and iteration.margins is not None:
                largest = max(largest, float(iteration.margins[0]))
                break
    return largest


def same_share(one: Sequence[Any], other: Sequence[Any]) -> float:
    """The share of outputs that two systems have in common, sentence by sentence."""
    return float(np.mean([tuple(a) == tuple(b) for a, b in zip(one, other, strict=True)]))


def spread(seconds: np.ndarray) -> float:
    """Interquartile range over the median."""
    low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    return float((high - low) / middle)


def bootstrap_ratio(
    baseline: np.ndarray, method: np.ndarray, seed: int = 0, samples: int = 2000
) -> tuple[float, float]:
    """A 95% interval of median(baseline) / median(method), resampling the rounds, in which both ran side by side.

    Fewer than three rounds say nothing about their spread: NaN.
    """
    if len(baseline) < 3:
        return math.nan, math.nan
    if len(baseline) != len(method):
        raise ValueError(f"Both need the same rounds: got {len(baseline)} and {len(method)} times.")
    rounds = np.random.default_rng(seed).integers(0, len(baseline), (samples, len(baseline)))
    ratios = np.median(baseline[rounds], axis=1) / np.median(method[rounds], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def quality(texts: Sequence[str], references: Sequence[str]) -> tuple[float, float]:
    """BLEU and chrF of sacrebleu with its default settings."""
    import sacrebleu

    return (
        float(sacrebleu.corpus_bleu(list(texts), [list(references)]).score),
        float(sacrebleu.corpus_chrf(list(texts), [list(references)]).score),
    )


def paired_quality(
    outputs: Mapping[str, Sequence[str]], references: Sequence[str], against: str, seed: int = 0, samples: int = 1_000
) -> dict[str, dict[str, float | None]]:
    """BLEU and chrF of several systems with 95% intervals, and how likely each one's distance to `against` is by chance.

    Paired bootstrap of sacrebleu; that one's own ``bleu_p`` and ``chrf_p`` are None; all are where it is missing.
    """
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest

    if not outputs:
        return {}
    names = [*([against] if against in outputs else []), *(name for name in outputs if name != against)]
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(12345 + seed)
    try:
        metrics: Any = {"bleu": BLEU(references=[list(references)]), "chrf": CHRF(references=[list(references)])}
        systems: list[Any] = [(name, list(outputs[name])) for name in names]
        _, results = PairedTest(systems, metrics, references=None, test_type="bs", n_samples=samples)()
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
    found: dict[str, dict[str, float | None]] = {}
    for place, name in enumerate(names):
        row: dict[str, float | None] = {}
        for metric, key in (("BLEU", "bleu"), ("chrF2", "chrf")):
            result: Any = results[metric][place]
            row |= {key: result.score, f"{key}_low": result.mean - result.ci, f"{key}_high": result.mean + result.ci}
            known = against in outputs and result.p_value is not None
            row[f"{key}_p"] = float(np.asarray(result.p_value)) if known else None
        found[name] = row
    return found


def signatures(scored: bool = True) -> dict[str, str]:
    """The sacrebleu signatures of `quality`."""
    if not scored:
        return {}
    from sacrebleu.metrics import BLEU, CHRF

    made = {}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        metric.corpus_score(["a"], [["a"]])
        made[name] = str(metric.get_signature())
    return made


def provenance(
    model: TranslationModel | None = None, *, threads: int | None = None, seed: int | None = None
) -> dict[str, Any]:
    """How a number was made: machine, versions, command, and the model if there is one."""
    about: dict[str, Any] = {
        "command": " ".join(["fastdecode", *sys.argv[1:]] if "fastdecode" in sys.argv[0] else sys.argv),
        "cpu": _cpu(),
        "cpu_flags": cpu_features(),
        "cores": os.cpu_count(),
        "threads": threads,
        "seed": seed,
        "python": platform.python_version(),
        "versions": versions(),
    }
    if model is not None:
        about |= {
            "model": model.name,
            "fingerprint": model.checkpoint.fingerprint,
            "engine": model.engine,
            "device": device_name(model.device),
            "dtype": model.dtype,
        }
    return about


def versions() -> dict[str, str]:
    """Installed versions of the packages that influence a number."""
    from importlib import metadata

    from fastdecode_lib import __version__

    found = {"fastdecode": __version__}
    packages = (
        "numpy", "numba", "torch", "transformers", "sentencepiece", "ctranslate2", "sacrebleu", "faiss-cpu", "hnswlib", "scann",
    )  # fmt: skip
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def device_name(device: str) -> str:
    """A device as its maker calls it."""
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    return device


def cpu_features() -> list[str]:
    """Instruction sets that matter for decoding, as the kernel names them; empty where it does not tell."""
    wanted = (
        "avx2",
        "avx512f",
        "avx512_vnni",
        "avx512_bf16",
        "avx_vnni",
        "amx_int8",
        "amx_bf16",
        "neon",
        "asimd",
        "bf16",
    )
    flags = _cpu_info("flags") or _cpu_info("Features")
    return [flag for flag in wanted if flag in flags.split()]


def _cpu() -> str:
    return _cpu_info("model name") or platform.processor() or platform.machine()


def _cpu_info(key: str) -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")
    except OSError:
        return ""


def synchroniser(device: str) -> Callable[[], None]:
    """Waits for a device to finish; on the CPU there is nothing to wait for."""
    if device.startswith("cuda"):
        import torch

        return lambda: torch.cuda.synchronize(device)
    return lambda: None


@contextmanager
def _fixed_threads(threads: int) -> Iterator[None]:
    """The same number of threads for torch and the linear algebra below numpy."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Nothing is collected but by hand, and then only what was made since: what is there already would be searched in vain."""
    enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.collect()
    if not frozen:
        gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
        if enabled:
            gc.enable()
