"""The systems of Imamura and Sumita (2020), trained or with random weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.checkpoints.transformer import OWN, Architecture
from fastdecode_lib.core import Constraints, Measurement, Model, Projection, Source
from fastdecode_lib.kernels.matrices import Precision
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.measuring.referee import System, measure
from fastdecode_lib.models.compiled_transformer import CompiledTransformer
from fastdecode_lib.papers.outcomes import NoResult, trained
from fastdecode_lib.papers.run import CorpusRun, Run, Scale, temporary_folder
from fastdecode_lib.papers.shared.batches import batch_system
from fastdecode_lib.papers.shared.random_models import random_weights
from fastdecode_lib.papers.shared.rows import median, ratio_of, speedup_of
from fastdecode_lib.papers.shared.training_curves import history_of
from fastdecode_lib.store import atomic_folder
from fastdecode_lib.text.corpus import Pair, join_pairs, spread_over
from fastdecode_lib.text.sentences import own_pairs
from fastdecode_lib.text.tokenizers import padded
from fastdecode_lib.trace import Trace
from fastdecode_lib.training.presets import SYSTEMS_002
from fastdecode_lib.translation import Session

DIRECTION = ("en", "de")
BEAM = 10
"""The paper's beam width."""
TOY_LENGTH = 16
"""Most slots of an output in a tiny run, whose untrained models do not predict ends."""
START, END = 2, 0
"""Ids of our own transformers."""


L2R, R2L, BOTH = "single_token_l2r", "single_token_r2l", "bidirectional"


@dataclass(frozen=True)
class TrainedSystem:
    """A system of table 2: the preset of its model, and its decoder."""

    preset: str
    decoder: str


def decoder_of(tokens_per_step: int, beam: int = BEAM) -> str:
    """The decoder at a beam width; as in the paper, a beam stops when the number of finished hypotheses is its width."""
    if tokens_per_step > 1:
        return f"double_token:size={beam}"
    return "greedy" if beam == 1 else f"beam:size={beam},early_stopping=true"


SYSTEMS = {
    "single_token_l2r": TrainedSystem("single-l2r", decoder_of(1)),
    "single_token_r2l": TrainedSystem("single-r2l", decoder_of(1)),
    "double_token_l2r": TrainedSystem("double-l2r", decoder_of(2)),
    "double_token_r2l": TrainedSystem("double-r2l", decoder_of(2)),
    "bidirectional": TrainedSystem("bidirectional", decoder_of(2)),
    "mask_predict_4": TrainedSystem("mask-predict", "mask_predict:iterations=4"),
    "mask_predict_10": TrainedSystem("mask-predict", "mask_predict:iterations=10"),
    "shallow_l2r": TrainedSystem("shallow-l2r", decoder_of(1)),
}
"""The paper's seven systems, Mask-Predict with 4 and with 10 iterations, and as a rival in speed single-token L2R with one decoder
layer and a deeper encoder."""


def model_of(preset: str, scale: Scale, **loading: Any) -> TranslationModel:
    """A system's model: fully trained here, bundled, or in ``weights/``; in a tiny run with random weights.

    By default on the compiled engine; `loading` are other options of `load`.

    Raises
    ------
    NoResult
        If there is none.
    """
    checkpoint = str(_toy(preset)) if scale is Scale.TINY else trained(preset)
    return load(checkpoint, **{"device": "cpu", "engine": "compiled"} | loading)


def fingerprints(models: Sequence[TranslationModel]) -> dict[str, str]:
    """Fingerprints of the models' weights by preset, for the provenance."""
    return {model.name.removesuffix("/best").rpartition("/")[2]: model.checkpoint.fingerprint for model in models}


def updates_of(preset: str) -> int:
    """Training updates of a system's best checkpoint, which `model_of` loads."""
    return int(max(history_of(preset), key=lambda entry: entry[SYSTEMS_002[preset].measure])["update"])


@cache
def _toy(preset: str) -> Path:
    """A small checkpoint of a system's architecture, with a vocabulary of our own sentences and random weights."""
    from fastdecode_lib.training.multi_token import SPECIAL, architecture_of, write_checkpoint
    from fastdecode_lib.training.pieces import trained_pieces

    small = replace(
        SYSTEMS_002[preset], vocabulary=300, width=32, heads=2, feed_forward=48, encoder_layers=1, max_positions=512
    )
    shape = architecture_of(small)
    folder = temporary_folder() / preset
    with atomic_folder(folder) as temporary:
        write_checkpoint(temporary, shape, random_weights(shape, seed=1), small.directions, TOY_LENGTH)
        texts = [text for pair in own_pairs(*DIRECTION) for text in pair]
        (temporary / "source.spm").write_bytes(trained_pieces(texts, small.vocabulary, seed=1, **SPECIAL))
    return folder


def session_of(model: TranslationModel, decoder: str, projection: str | Projection = "exact") -> Session:
    """A session of a system."""
    return Session.of(model, *DIRECTION, decoder, projection)


def live(preset: str, decoder: str, text: str, scale: Scale) -> Trace | None:
    """The passes of a system over a sentence; None if its model is not trained, and the command that trains it is printed."""
    try:
        return session_of(model_of(preset, scale), decoder).translate(text).trace
    except NoResult as missing:
        print(missing)
        return None


JOINED, LONG, SINGLE = "joined", "joined, five to eight", "single"


def pairs_of(set_name: str, run: CorpusRun, limit: int, split: str = "test") -> list[Pair]:
    """Sentence pairs to translate: single ones, two to four joined, or five to eight; our own in a tiny run."""
    pairs = run.pairs(*DIRECTION, split)
    if set_name == JOINED:
        pairs = join_pairs(pairs, seed=0)
    elif set_name == LONG:
        pairs = join_pairs(pairs, seed=0, sizes=(5, 8))
    return spread_over(pairs, limit)


# --------------------------------------------------------------------------------------------------- forced lengths


@dataclass(frozen=True)
class Geometry:
    """Size of a transformer with random weights, which decodes to a forced length.

    `layers` are of encoder and decoder; every output without the end, and every source, has `tokens` tokens.
    """

    layers: tuple[int, int]
    width: int
    heads: int
    feed_forward: int
    vocabulary: int
    tokens: int

    def shape(self, group: int = 1) -> Architecture:
        """The architecture of this size, in our own family, for a number of tokens a step: several are from both ends."""
        return Architecture.of_marian(
            self.width,
            self.feed_forward,
            self.heads,
            self.layers,
            self.vocabulary,
            family=OWN,
            max_positions=2 * self.tokens + 8,
            activation="relu",
            padding=START,
            tokens_per_step=group,
            order="both_ends" if group > 1 else "left_to_right",
        )


GEOMETRIES = {
    "base": Geometry((6, 6), 512, 8, 2_048, 16_000, 30),
    "big": Geometry((6, 6), 1_024, 16, 4_096, 16_000, 30),
    "ours": Geometry((3, 3), 256, 4, 896, 8_000, 30),
    "ours, wide": Geometry((3, 3), 512, 8, 2_048, 8_000, 30),
}
TOY = Geometry((1, 2), 32, 2, 48, 300, 8)


def geometry_of(name: str, run: Run) -> Geometry:
    """One of `GEOMETRIES`; in a tiny run a toy's."""
    return TOY if run.tiny else GEOMETRIES[name]


def forced_system(name: str, model: Model, beam: int, tokens: int, projection: Projection | None = None) -> System:
    """A model's decoder on batches whose outputs are exactly `tokens` tokens and the end; by default with the exact projection."""
    group = model.tokens_per_step
    decoder = registry.decoder(decoder_of(group, beam))
    constraints = Constraints(
        (START,) * group,
        (END,),
        tokens + 1,
        START,
        banned=(START,),
        exact_length=tokens + 1,
        forced_end=True,
    )
    projection = projection or registry.projection("exact", model)
    return batch_system(name, model, decoder, projection, constraints, counted=True)


@cache
def network_of(geometry: Geometry, group: int, seed: int, precision: Precision = "float32") -> CompiledTransformer:
    """A network with random weights on the compiled engine."""
    shape = geometry.shape(group)
    return CompiledTransformer(shape, random_weights(shape, seed), precision)


def random_source(geometry: Geometry, rows: int, seed: int) -> Source:
    """A batch of random sources, as long as the outputs."""
    random = np.random.default_rng(seed)
    return padded(random.integers(3, geometry.vocabulary, (rows, geometry.tokens)).tolist(), START)


def forced_pair(
    geometry: Geometry, size: int, batch: int, runs: int, seed: int, groups: Sequence[int] = (2,), shallow: bool = False
) -> list[dict[str, Any]]:
    """Single-token L2R and models of n tokens a step from both ends, of one size, for outputs of one length, in turns.

    The baseline comes first; if asked, a `shallow` single-token model, one decoder layer and twice the encoder layers, comes last.
    """
    source = random_source(geometry, batch, seed)
    models = [(geometry.layers, group) for group in (1, *groups)]
    if shallow:
        models.append(((2 * geometry.layers[0], 1), 1))
    systems = []
    for layers, group in models:
        network = network_of(replace(geometry, layers=layers), group, seed)
        systems.append(forced_system(f"{layers} {group}", network, size, geometry.tokens))
    timings = measure(systems, [source], runs=runs, seed=seed)
    return [
        timing_columns(timings[0], m)
        | {
            "tokens_a_step": group,
            "layers": " + ".join(map(str, layers)),
            "tokens_per_second": batch * geometry.tokens / median(m),
        }
        for (layers, group), m in zip(models, timings, strict=True)
    ]


def timing_columns(baseline: Measurement, m: Measurement) -> dict[str, Any]:
    """Speedup of a system over the baseline of its run."""
    return {
        **speedup_of(baseline, m),
        "passes": m.usage.passes if m.usage else None,
        "seconds": m.seconds.tolist(),
        "baseline_seconds": baseline.seconds.tolist(),
    }


def speed_columns(timings: Sequence[Measurement], ends: Sequence[int], suffix: str = "") -> dict[str, dict[str, Any]]:
    """By system: tokens a second, ends left out, and over single-token L2R the speedup and the ratio of tokens a second."""
    tokens = {m.name: sum(t not in ends for part in m.outputs for row in part for t in row) for m in timings}
    baseline = next((m for m in timings if m.name == L2R), None)
    rows: dict[str, dict[str, Any]] = {}
    for m in timings:
        rows[m.name] = row = {
            f"tokens_per_second{suffix}": tokens[m.name] / median(m),
            f"seconds{suffix}": m.seconds.tolist(),
        }
        ratio = ratio_of("", baseline.seconds, m.seconds) if baseline else {}
        for end in ("", "_low", "_high"):
            row[f"speedup{suffix}{end}"] = ratio.get(end)
            row[f"token_ratio{suffix}{end}"] = ratio[end] * tokens[m.name] / tokens[L2R] if ratio else None
    return rows


def models_of(scale: Scale, **loading: Any) -> tuple[dict[str, TranslationModel], dict[str, NoResult]]:
    """Models by system, and for systems that are not trained the reasons; see `model_of`."""
    models: dict[str, TranslationModel] = {}
    reasons: dict[str, NoResult] = {}
    for name, system in SYSTEMS.items():
        try:
            models[name] = model_of(system.preset, scale, **loading)
        except NoResult as missing:
            reasons[name] = missing
    return models, reasons
