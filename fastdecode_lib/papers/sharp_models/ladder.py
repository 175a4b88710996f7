"""Speed of Devlin's recurrent models; one file because all tables measure the same ladder of speed-ups.

Speed at the paper's geometry is measured with random weights, a vocabulary of 80,000 words with a language's frequencies, some 500
candidates for a sentence of 25 words, a beam of 6 and forced lengths. Agreement and shared states depend on the outputs, and
are measured with a trained model. One sentence at a time, one thread, systems in turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd

from fastdecode_lib.checkpoints.folder import Checkpoint
from fastdecode_lib.checkpoints.generation import constraints_of
from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.checkpoints.recurrent import RECURRENT, SYSTEMS, RecurrentShape, system
from fastdecode_lib.core import Constraints, Hypothesis, Measurement, Model, Projection, Source, drain
from fastdecode_lib.decoding.autoregressive import Beam
from fastdecode_lib.kernels.matrices import Matrix, Precision
from fastdecode_lib.lexicon import Lexicon
from fastdecode_lib.loading import TranslationModel, tokenizer_of
from fastdecode_lib.measuring.baselines import until_end
from fastdecode_lib.measuring.counting import Proxy
from fastdecode_lib.measuring.referee import NO_SOURCE, System, measure
from fastdecode_lib.models.compiled_recurrent import FASTEST, BlasProduct, CompiledRecurrent, Speedups, ladder
from fastdecode_lib.models.ensemble import Ensemble
from fastdecode_lib.papers.run import CorpusRun, ModelRun, Run, Scale, experiment, table_of
from fastdecode_lib.papers.shared.rows import median, ratio_of
from fastdecode_lib.papers.sharp_models import printed as devlin_2017
from fastdecode_lib.projections.average import Average
from fastdecode_lib.projections.lexical import Lexical
from fastdecode_lib.text.corpus import spread_over
from fastdecode_lib.text.words import END, START, WordText

MODEL = "sharp-s4"
"""The bundled recurrent model."""
BEAM = Beam(size=6, delta=3.0)
"""The paper's decoder (sec. 3)."""
TIMED = 150
"""Sentences that the trained model is timed on."""
RANDOM_TOP = 38
"""Translations of a random word: many are those of other words, too, so that a sentence has the paper's 500 candidates (sec. 3)."""
ENSEMBLES = {"E1": 2, "E2": 3}
"""Networks of each ensemble, all of S4's shape."""

BEYOND: dict[str, Speedups] = {
    "packed float32 products": Speedups("float32"),
    "all, products times 1,024": replace(ladder()["merged states"], products="fixed16"),
    "all, 8-bit products": replace(ladder()["merged states"], products="int8"),
    "all, polynomials for tables": replace(ladder()["merged states"], functions="polynomial"),
}
"""Stages that the paper does not have: its first without rounding, and its last with one part replaced."""
BLOCK = 20
"""Products timed one after another as one call, as in the paper."""
ZIPF = 1.2
"""A random word's frequency is its rank to minus this power: of 80,000 words, the first 8,000 make some 92% of a sentence."""
K = TypeVar("K")


@dataclass(frozen=True)
class Geometry:
    """Amount of measurement at a scale: words of each side, sentences of a round, lengths, rounds.

    `source` is the length of a sentence without the end, `target` that of its output with it; `held_out` are sentences for the
    trained model, `repeats` repetitions of products and layers.
    """

    size: str
    vocabulary: int
    sentences: int
    source: int
    target: int
    rounds: int
    held_out: int
    repeats: int


GEOMETRIES = {
    Scale.TINY: Geometry("small", 600, 1, 6, 5, 3, 4, 3),
    Scale.LAPTOP: Geometry("paper", 80_000, 12, 25, 27, 15, 1_000, 300),
    Scale.PAPER: Geometry("paper", 80_000, 20, 25, 27, 11, 3_000, 10_000),
}


@experiment
def table1(run: ModelRun) -> pd.DataFrame:
    """Table 1: words a second after each speed-up, at the paper's geometry and with a trained model.

    ``factor`` is the baseline's time over the stage's; ``agreement`` the share of sentences whose output equals the
    baseline's, and ``widest_gap`` the largest difference of two unequal outputs' scores (log-probabilities over lengths). The
    trained model is timed on `TIMED` sentences, spread from short to long, and compared on all. Rows of kind *beyond* are not the
    paper's.
    """
    geometry = GEOMETRIES[run.scale]
    stages = ladder(embeddings=8_000 if geometry.size == "paper" else 200) | BEYOND
    random = _RandomWords(geometry, run.seed)
    shape = random.shape("S1")
    systems = {name: random.system(name, random.network(shape, speedups)) for name, speedups in stages.items()}
    timings = run.measure(list(systems.values()), random.sources, runs=geometry.rounds)
    rows = _ladder_rows("paper geometry, random weights", timings, geometry.target)
    seconds = {"random": {m.name: m.seconds.tolist() for m in timings}}

    trained = Trained.find(run.model or MODEL)
    sources, split = trained.held_out(run, geometry.held_out)
    systems = {name: trained.system(name, speedups) for name, speedups in stages.items()}
    timings = run.measure(list(systems.values()), spread_over(sources, TIMED), runs=geometry.rounds)
    rows += _ladder_rows(f"{trained.checkpoint.name}, {split} sentences", timings, None)
    seconds["trained"] = {m.name: m.seconds.tolist() for m in timings}
    agreement = trained.identity(stages, sources, run)
    rows[len(timings) :] = [row | agreement[row["name"]] for row in rows[len(timings) :]]
    return table_of(
        rows,
        run,
        seconds=seconds,
        beam=6,
        delta=3.0,
        candidates=random.candidates,
        geometry=geometry.__dict__,
        fingerprint=trained.checkpoint.fingerprint,
    )


def _ladder_rows(name: str, timings: Sequence[Measurement], words: int | None) -> list[dict[str, Any]]:
    """A row for each stage; `words` is the length of every output, None to count each."""
    baseline, rows = timings[0], []
    for m in timings:
        total = words * len(m.outputs) if words else sum(len(output) + 1 for output in m.outputs)
        printed = devlin_2017.TABLE_1.get(m.name)
        rows.append(
            {
                "name": m.name,
                "set": name,
                "words_per_second": total / median(m),
                **ratio_of("factor", baseline.seconds, m.seconds),
                "agreement": m.agreement(baseline),
                "paper_words_per_second": printed[0] if printed else None,
                "paper_factor": printed[1] if printed else None,
                "kind": "measured" if printed else "beyond",
            }
        )
    return rows


@experiment
def speeds(run: Run) -> pd.DataFrame:
    """Table 2, speed: every system at the paper's geometry with all speed-ups in 16 bits, and the paper's speed."""
    geometry = GEOMETRIES[run.scale]
    random = _RandomWords(geometry, run.seed)
    speedups = ladder(embeddings=8_000 if geometry.size == "paper" else 200)["merged states"]
    networks: dict[str, Any] = {name: random.network(random.shape(name), speedups) for name in SYSTEMS}
    members = [random.network(random.shape("S4"), speedups, run.seed + number) for number in range(3)]
    networks |= {name: Ensemble(members[:number]) for name, number in ENSEMBLES.items()}
    systems = [random.system(name, network) for name, network in networks.items()]
    timings = run.measure(systems, random.sources, runs=geometry.rounds)
    first, printed = timings[0], devlin_2017.TABLE_2
    rows = [
        {
            "name": m.name,
            "words_per_second": geometry.target * len(random.sources) / median(m),
            **ratio_of("speed_over_s1", first.seconds, m.seconds),
            "distinct_states": random.distinct_states(networks[m.name]),
            "paper_words_per_second": printed[m.name][1],
            "paper_speed_over_s1": printed[m.name][1] / printed["S1"][1],
        }
        for m in timings
    ]
    seconds = {m.name: m.seconds.tolist() for m in timings}
    return table_of(
        rows, run, seconds=seconds, beam=6, delta=3.0, candidates=random.candidates, geometry=geometry.__dict__
    )


@experiment
def figure1(run: Run) -> pd.DataFrame:
    """Figure 1: speed of a product of 1 to 8 rows with a weight of 3,072 x 1,024, over that of torch's library (MKL).

    The paper compares its 16-bit integers with MKL on AVX2; it gives neither its matrix's size nor its axis' values.
    """
    geometry = GEOMETRIES[run.scale]
    outputs, columns = (3_072, 1_024) if geometry.size == "paper" else (96, 64)
    random = np.random.default_rng(run.seed)
    weight = random.uniform(-1, 1, (outputs, columns)).astype(np.float32)
    precisions: tuple[Precision, ...] = ("float32", "int16", "int8")
    products: dict[str, Any] = {
        "library float32": BlasProduct.of(weight, None),
        "numpy float32": lambda x: x @ weight.T,
    }
    products |= {f"ours {precision}": Matrix.of(weight, None, precision) for precision in precisions}
    batches = range(1, 9)
    inputs = {batch: random.uniform(-1, 1, (batch, columns)).astype(np.float32) for batch in batches}
    calls = {(name, batch): partial(product, inputs[batch]) for batch in batches for name, product in products.items()}
    times_by_call = _interleaved(calls, geometry.repeats, block=BLOCK)
    rows, seconds = [], {}
    for batch in batches:
        times_by_name = {name: times_by_call[name, batch] for name in products}
        seconds[str(batch)] = {name: times.tolist() for name, times in times_by_name.items()}
        library = times_by_name["library float32"]
        for name, times in times_by_name.items():
            low_paper, high_paper = devlin_2017.FIGURE_1 if name == "ours int16" and batch >= 2 else (None, None)
            rows.append(
                {
                    "name": name,
                    "batch": batch,
                    "microseconds": 1e6 * float(np.median(times)),
                    **ratio_of("speedup", library, times),
                    "paper_speedup_low": low_paper,
                    "paper_speedup_high": high_paper,
                }
            )
    return table_of(rows, run, seconds=seconds, shape=[outputs, columns], repeats=geometry.repeats)


@experiment
def layers(run: Run) -> pd.DataFrame:
    """Section 5: the cost of a fully-connected layer over a GRU's and an LSTM's of the same width, for six rows."""
    geometry = GEOMETRIES[run.scale]
    width = 1_024 if geometry.size == "paper" else 64
    random = np.random.default_rng(run.seed)
    x = random.uniform(-1, 1, (6, width)).astype(np.float32)
    rows = []
    for precision in ("float32", "int16", "int8"):

        def product(gates: int, precision: Any = precision) -> Matrix:
            return Matrix.of(random.uniform(-1, 1, (gates * width, width)).astype(np.float32), None, precision)

        calls = {
            "fully connected": partial(product(1), x),
            "GRU": partial(_recurrent_layer, product(3), product(3), x),
            "LSTM": partial(_recurrent_layer, product(4), product(4), x),
        }
        timings = _interleaved(calls, geometry.repeats, block=BLOCK)
        for name, paper_cost in (("GRU", devlin_2017.LAYER), ("LSTM", 1 / 8)):
            rows.append(
                {
                    "name": f"fully connected over {name}, {precision}",
                    **ratio_of("cost", timings["fully connected"], timings[name]),
                    "multiply_adds": paper_cost,
                    "paper_cost": paper_cost,
                }
            )
    return table_of(rows, run, width=width, rows=6)


def _recurrent_layer(input_matrix: Matrix, state_matrix: Matrix, x: np.ndarray) -> None:
    """The products of a recurrent layer."""
    input_matrix(x)
    state_matrix(x)


@experiment
def unique_states(run: ModelRun) -> pd.DataFrame:
    """Section 4.5: the share of distinct states among the hypotheses of a beam, by its size, with a trained model."""
    geometry, trained = GEOMETRIES[run.scale], Trained.find(run.model or MODEL)
    sources, split = trained.held_out(run, min(geometry.held_out, 200))
    rows = []
    for size in (2, 4, 6, 8, 12):
        network = trained.network(FASTEST)
        beam, projection = Beam(size=size, delta=3.0), trained.projection(network)
        rows.append(
            {
                "name": f"beam {size}",
                "beam": size,
                "unique": _distinct_states(beam, network, projection, sources, trained.constraints),
                "paper_unique": devlin_2017.UNIQUE_STATES if size == 6 else None,
                "set": f"{split} sentences",
            }
        )
    return table_of(rows, run, fingerprint=trained.checkpoint.fingerprint)


@experiment
def coverage(run: ModelRun) -> pd.DataFrame:
    """Section 4.2: tokens covered by tables of the most frequent words, and the memory of the tables.

    Coverage is counted on the words of our training text; memory is that of the paper's S1: V x for the gates of both
    directions of the source, for the gates of the target and for its attention.
    """
    trained = Trained.find(run.model or MODEL)
    shape = system("S1", "paper")
    columns = 2 * shape.gates * shape.source_width + shape.gates * shape.width + shape.attention
    rows = []
    for words in (500, 1_000, 2_000, 4_000, 8_000):
        shares = []
        for side in (trained.text.source, trained.text.target):
            counts = np.array(side.counts[START + 1 :])
            shares.append(counts[:words].sum() / (counts.sum() + side.counts[END + 1]))
        rows.append(
            {
                "name": f"{words:,} words",
                "words": words,
                "source_coverage": float(shares[0]),
                "target_coverage": float(shares[1]),
                "megabytes": 4 * words * columns / 1e6,
                "share_of_80000": words / 80_000,
                "paper_coverage": devlin_2017.COVERAGE if words == 8_000 else None,
                "paper_saved_memory": 0.9 if words == 8_000 else None,
            }
        )
    return table_of(rows, run, fingerprint=trained.checkpoint.fingerprint)


@experiment
def training_cost(run: Run) -> pd.DataFrame:
    """Section 5.1: time of forward and backward, which is most of a training update, of S1, S4 and S7 on random words."""
    import torch

    from fastdecode_lib.models.recurrent import Network, first_weights

    geometry = GEOMETRIES[run.scale]
    batch, length = (96, 14) if geometry.size == "paper" else (4, 5)
    random = np.random.default_rng(run.seed)
    calls = {}
    for name in ("S1", "S4", "S7"):
        shape = system(name, "small", source_vocabulary=8_000, vocabulary=8_000)
        weights = {key: value.requires_grad_() for key, value in first_weights(shape, run.seed).items()}
        ids = torch.from_numpy(random.integers(3, 8_000, (batch, length)))

        def update(shape: RecurrentShape = shape, weights: Any = weights, ids: Any = ids) -> None:
            for weight in weights.values():
                weight.grad = None
            network = Network(shape, weights)
            memory = network.encode(ids, torch.full((batch,), length))
            hidden, _, _ = network.decode(memory, ids, network.first_states(batch))
            scores = hidden.reshape(-1, shape.width) @ weights["output.V"].T
            torch.nn.functional.cross_entropy(scores, ids.reshape(-1)).backward()

        calls[name] = update
    timings = _interleaved(calls, 9 if geometry.size == "paper" else 3)
    rows = [
        {
            "name": name,
            "milliseconds": 1e3 * float(np.median(times)),
            **ratio_of("time_over_s4", times, timings["S4"]),
            "paper_time_over_s4": devlin_2017.TRAINING if name == "S7" else None,
        }
        for name, times in timings.items()
    ]
    return table_of(rows, run, batch=batch, words=length, size="small")


def _interleaved(calls: Mapping[K, Any], repeats: int, block: int = 1) -> dict[K, np.ndarray]:
    """Seconds of the calls, which take turns as systems of `referee.measure`.

    Parameters
    ----------
    repeats : int
        Repetitions of each call, in rounds of `block` without another call between them: a call of microseconds would otherwise
        be timed with caches filled by another call's weights or by garbage collection. A block of over `referee.TURN` is divided.
    """
    block = max(1, min(block, repeats // 6))
    systems = [
        System(str(number), lambda _, call=call: (call(), ())[1])  # type: ignore[misc]
        for number, call in enumerate(calls.values())
    ]
    timings = measure(systems, [NO_SOURCE] * block, runs=repeats // block)
    return {key: m.seconds / block for key, m in zip(calls, timings, strict=True)}


class _StateCounter(Proxy):
    """A model that counts the rows of its passes, and the distinct states among them."""

    rows, distinct = 0, 0

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Any:
        """Count, and pass on; a pass of one row has no states to share."""
        if len(tokens) > 1:
            first = getattr(state, "parts", (state,))[0]  # the paths of an ensemble's networks are the same
            nodes = first.path[np.arange(len(tokens)), first.filled]
            self.rows += len(nodes)
            self.distinct += len(np.unique(nodes))
        return self.inner.step(state, tokens, visible)


def _distinct_states(
    beam: Beam, network: Any, projection: Projection, sources: Sequence[Source], constraints: Constraints
) -> float:
    """Share of distinct states among those of a beam's hypotheses."""
    counter: Any = _StateCounter(network)
    for source in sources:
        drain(beam.iterate(counter, projection, source, constraints))
    return counter.distinct / counter.rows


def shortlists(network: Any, lexicon: Lexicon) -> Any:
    """A lexicon's translations of each source word, and no frequent words, for a network or an ensemble."""
    if isinstance(network, Ensemble):
        return Average.over(network, tuple(shortlists(part, lexicon) for part in network.parts))
    return Lexical.of(network, lexicon, frequent=0)


class _RandomWords:
    """Random weights, sources and translations at one geometry, the same for every system."""

    def __init__(self, geometry: Geometry, seed: int):
        self.geometry, self.seed = geometry, seed
        vocabulary = geometry.vocabulary
        random = np.random.default_rng(seed)
        frequency = np.arange(1, vocabulary - START) ** -ZIPF

        def words(number: int) -> np.ndarray:
            return START + 1 + random.choice(len(frequency), number, replace=False, p=frequency / frequency.sum())

        sentences = [words(geometry.source) for _ in range(geometry.sentences)]
        self.sources = [Source(np.append(ids, END)[None], np.array([geometry.source + 1])) for ids in sentences]
        source_words = np.unique(np.concatenate(sentences))
        translations = np.concatenate([words(RANDOM_TOP) for _ in source_words])
        probabilities = np.tile(np.linspace(1, 0.1, RANDOM_TOP), len(source_words))
        entries = (np.repeat(source_words, RANDOM_TOP), translations, probabilities)
        self.lexicon = Lexicon.of_entries(*entries, vocabulary, vocabulary)
        self.constraints = Constraints((START,), (END,), geometry.target, banned=(START,), exact_length=geometry.target)
        self.tensors: dict[tuple[str, int], dict[str, np.ndarray]] = {}

    @property
    def candidates(self) -> float:
        """Mean length of a sentence's shortlist."""
        return float(np.mean([len(self.lexicon.candidates(source.ids[0])) + 2 for source in self.sources]))

    def shape(self, name: str) -> RecurrentShape:
        """A system of table 2 at this geometry."""
        v = self.geometry.vocabulary
        return system(name, self.geometry.size, source_vocabulary=v, vocabulary=v)  # type: ignore[arg-type]

    def network(self, shape: RecurrentShape, speedups: Speedups, seed: int | None = None) -> CompiledRecurrent:
        """A network with random weights; the same shape and seed give the same weights."""
        from fastdecode_lib.models.recurrent import first_weights

        key = (repr(shape), self.seed if seed is None else seed)
        if key not in self.tensors:
            self.tensors = {k: v for k, v in self.tensors.items() if k[0] == key[0]}
            self.tensors[key] = {name: tensor.numpy() for name, tensor in first_weights(shape, key[1]).items()}
        return CompiledRecurrent(shape, self.tensors[key], speedups)

    def system(self, name: str, network: Any) -> System:
        """The paper's decoder with a network or an ensemble."""
        return _system(name, network, shortlists(network, self.lexicon), self.constraints)

    def distinct_states(self, network: Any) -> float:
        """Share of distinct states among those of a beam's hypotheses."""
        projection = shortlists(network, self.lexicon)
        return _distinct_states(BEAM, network, projection, self.sources[:1], self.constraints)


def _system(name: str, network: Model, projection: Projection, constraints: Constraints) -> System:
    def decode(source: Source) -> tuple[int, ...]:
        return until_end(list(best_of_beam(network, projection, source, constraints).tokens), constraints)

    return System(name, decode)


def best_of_beam(network: Model, projection: Projection, source: Source, constraints: Constraints) -> Hypothesis:
    """The best hypothesis for a sentence by the paper's decoder."""
    (best,) = drain(BEAM.iterate(network, projection, source, constraints))
    return best


@dataclass(frozen=True)
class Trained:
    """A trained recurrent checkpoint, which runs with any speed-ups."""

    checkpoint: Checkpoint
    text: WordText
    shape: RecurrentShape
    tensors: dict[str, np.ndarray]

    @classmethod
    def find(cls, model: TranslationModel | str | Path) -> "Trained":
        """A bundled model, a folder or a loaded model; `MODEL` if it is not recurrent."""
        checkpoint = model.checkpoint if isinstance(model, TranslationModel) else find_checkpoint(model)
        if checkpoint.family != RECURRENT:
            checkpoint = find_checkpoint(MODEL)
        return cls(checkpoint, cast(WordText, tokenizer_of(checkpoint)), checkpoint.architecture, checkpoint.arrays())

    @property
    def constraints(self) -> Constraints:
        """The checkpoint's constraints."""
        return constraints_of(
            self.checkpoint.name, self.checkpoint.rules, vocabulary=self.shape.vocabulary, room=self.shape.max_positions
        )

    def network(self, speedups: Speedups) -> CompiledRecurrent:
        """The network with the speed-ups."""
        return CompiledRecurrent(self.shape, self.tensors, speedups)

    def projection(self, network: Model) -> Any:
        """The paper's `shortlists`: 20 translations of each source word."""
        assert self.text.lexicon is not None
        return shortlists(network, self.text.lexicon)

    def system(self, name: str, speedups: Speedups) -> System:
        """The paper's decoder with this model."""
        network = self.network(speedups)
        return _system(name, network, self.projection(network), self.constraints)

    def identity(
        self, stages: Mapping[str, Speedups], sources: Sequence[Source], run: Run
    ) -> dict[str, dict[str, Any]]:
        """For each stage, the share of outputs that equal the first stage's, and the widest gap of scores among the others."""
        hypotheses: dict[str, list[Hypothesis]] = {}
        for name, speedups in run.bar(stages.items(), desc="comparing", unit="stage"):
            network = self.network(speedups)
            projection = self.projection(network)
            hypotheses[name] = [best_of_beam(network, projection, s, self.constraints) for s in sources]
        first = next(iter(hypotheses.values()))
        agreements = {}
        for name, outputs in hypotheses.items():
            pairs = list(zip(outputs, first, strict=True))
            gaps = [abs((a.score or 0.0) - (b.score or 0.0)) for a, b in pairs if a.tokens != b.tokens]
            agreement = float(np.mean([a.tokens == b.tokens for a, b in pairs]))
            agreements[name] = {"agreement": agreement, "sentences": len(pairs), "widest_gap": max(gaps, default=0.0)}
        return agreements

    def held_out(self, run: CorpusRun, number: int) -> tuple[list[Source], str]:
        """Sources of the test split, or without the corpus of our own sentences, and the split's name."""
        pairs, split = run.pairs_or_own(*self.text.direction)
        return [self.text.encode([text], *self.text.direction) for text, _ in spread_over(pairs, number)], split
