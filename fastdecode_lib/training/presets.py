"""Recipes of the bundled models, which training, cards and loading read."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from fastdecode_lib.checkpoints.hub import bundled
from fastdecode_lib.checkpoints.language import LanguageShape
from fastdecode_lib.checkpoints.recurrent import SYSTEMS, RecurrentShape, system
from fastdecode_lib.checkpoints.weights import find_weights, finished_run
from fastdecode_lib.text.corpus import DIRECTIONS

RUN, BEGUN_WITH = "run.json", "begun_with"
"""The file that describes a run, and its field with the fingerprint of the weights that the run began with."""
LANGUAGE_TAGS = {"en": ">>eng<<", "de": ">>deu<<", "fr": ">>fra<<", "es": ">>spa<<"}


@dataclass(frozen=True)
class Recipe:
    """Recipe of a model of any kind.

    Attributes
    ----------
    directions : tuple of (source, target)
        Language pairs translated by the one model.
    seed : int
        Default seed; presets that differ only in it make an ensemble.
    joined_share : float
        Joined examples (two to four pairs each) per single pair.
    tokens_per_update : int
        Padded target tokens in one batch, at most.
    optimiser : str
        ``"muon"``: Muon (Jordan et al. 2024) for the matrices of layers, AdamW for embeddings, output layers, norms and
        biases. ``"adamw"``, for comparison: AdamW for all, the rate falling with the inverse square root of the update.
    matrix_rate, peak_rate : float
        Highest learning rates of Muon and of AdamW.
    warm_up : int
        Updates over which the rates rise linearly.
    constant : float
        Share of the run after which the rates fall linearly, to zero at its end.
    dropout : float
        0.1 helps runs of more than three epochs.
    average : float
        Decay of the running average of the weights; the better of weights and average on dev is kept.
    updates : int
        Planned length of the run.
    """

    kind: ClassVar[str]
    """Name of the learner that trains it."""
    corpus: ClassVar[str] = "tatoeba"
    """The part of the corpus it is trained on."""
    measure: ClassVar[str] = "dev_chrf"
    """Score that the best checkpoint is chosen by; higher is better."""

    name: str
    directions: tuple[tuple[str, str], ...] = DIRECTIONS
    seed: int = 1
    joined_share: float = 0.5
    label_smoothing: float = 0.1
    tokens_per_update: int = 3_000
    optimiser: str = "muon"
    matrix_rate: float = 0.02
    peak_rate: float = 1.5e-3
    warm_up: int = 100
    constant: float = 0.3
    dropout: float = 0.0
    average: float = 0.99
    evaluate_every: int = 500
    updates: int = 6_000
    dev_single: int = 100
    dev_joined: int = 40

    @property
    def decay_from(self) -> int:
        """The last update before the rates fall to zero; up to it, longer runs are the same. AdamW alone falls without an end."""
        return self.updates if self.optimiser == "adamw" else int(self.constant * self.updates)

    def rate(self, update: int) -> float:
        """The learning rate at an update, counted from 1, as a share of its peak."""
        if self.optimiser == "adamw":
            return min(update / self.warm_up, math.sqrt(self.warm_up / update))
        remaining = (self.updates + 1 - update) / (self.updates + 1 - self.decay_from)
        return max(0.0, min(1.0, update / self.warm_up, remaining))

    def trained(self, folder: str | Path = "build/train") -> Path | None:
        """The best checkpoint of a finished run of this recipe; None if there is none."""
        work = Path(folder) / self.name
        return work / "best" if finished_run(work) >= self.updates else None


R = TypeVar("R", bound=Recipe)


@dataclass(frozen=True)
class Preset(Recipe):
    """A Marian-shaped translation model and its training recipe.

    Attributes
    ----------
    vocabulary : int
        Size of the joint SentencePiece vocabulary with end, unknown, tags and padding; a tag in front of the source names
        the target language.
    """

    kind = "marian"

    vocabulary: int = 16_000
    encoder_layers: int = 4
    decoder_layers: int = 2
    width: int = 256
    heads: int = 4
    feed_forward: int = 1024
    max_positions: int = 256


@dataclass(frozen=True)
class GroupPreset(Recipe):
    """A system of Imamura and Sumita (2020), table 2, and its training recipe: Marian's shape, positions of the decoder learned.

    Attributes
    ----------
    vocabulary : int
        Size of the joint SentencePiece vocabulary with end, unknown and padding.
    tokens_per_step, order, masked
        As in `checkpoints.transformer.Architecture`.
    joined_sizes : (int, int)
        Fewest and most pairs of a joined example: long ones too, so that all positions are learned.
    teacher : str
        A preset, trained or bundled, whose greedy translations of the training sources are the targets (distillation); the
        references if empty.
    """

    kind = "group"

    directions: tuple[tuple[str, str], ...] = (("en", "de"),)
    tokens_per_update: int = 12_000
    updates: int = 2_800
    dropout: float = 0.1
    joined_sizes: tuple[int, int] = (2, 8)
    teacher: str = ""
    dev_single: int = 250
    dev_joined: int = 50
    vocabulary: int = 8_000
    encoder_layers: int = 3
    decoder_layers: int = 3
    width: int = 256
    heads: int = 4
    feed_forward: int = 896
    max_positions: int = 256
    tokens_per_step: int = 1
    order: str = "left_to_right"
    masked: bool = False


@dataclass(frozen=True)
class RecurrentPreset(Recipe):
    """A word-based recurrent model and its training recipe.

    Attributes
    ----------
    shape : RecurrentShape
        Its vocabulary sizes are upper limits, special tokens included.
    translations : int
        Entries of the lexicon for each source word; the paper's candidate lists have 20.
    """

    kind = "recurrent"

    directions: tuple[tuple[str, str], ...] = (("en", "fr"),)
    joined_share: float = 0.3
    tokens_per_update: int = 12_000
    peak_rate: float = 3e-3
    evaluate_every: int = 400
    updates: int = 2_400
    dropout: float = 0.1
    dev_single: int = 250
    dev_joined: int = 50
    shape: RecurrentShape = field(default_factory=RecurrentShape)
    translations: int = 20


@dataclass(frozen=True)
class LanguagePreset(Recipe):
    """A word-based LSTM language model and its training recipe.

    Attributes
    ----------
    shape : LanguageShape
        Its vocabulary size is an upper limit, special tokens included.
    lower : bool
        Whether text is lower-cased, as the Penn Treebank's is.
    """

    kind = "language"
    corpus = "novels"
    measure = "dev_log_probability"

    directions: tuple[tuple[str, str], ...] = ()
    joined_share: float = 0.0
    label_smoothing: float = 0.0
    tokens_per_update: int = 2_000
    peak_rate: float = 3e-3
    updates: int = 8_000
    dev_single: int = 1_500
    shape: LanguageShape = field(default_factory=LanguageShape)
    lower: bool = True


def _sharp(name: str, seed: int = 1) -> RecurrentPreset:
    """A system of Devlin (2017), table 2, at a quarter of its widths: ``sharp-s4``, and ``sharp-s4-2`` from another seed."""
    full_name = f"sharp-{name.lower()}" + (f"-{seed}" if seed > 1 else "")
    return RecurrentPreset(
        name=full_name, seed=seed, shape=system(name, "small", source_vocabulary=8_000, vocabulary=8_000)
    )


_SHORT: Any = {"evaluate_every": 300, "updates": 1_200}
"""Settings of the larger language models: two million words, some 40 minutes on a core with bfloat16 products. Both still gain."""

_COMPARED: Any = {"dropout": 0.0, "evaluate_every": 300, "tokens_per_update": 3_000}
"""Settings of two runs that differ only in their optimiser and its rates; less than two epochs."""

_FORMER: Any = {"peak_rate": 1e-3, "warm_up": 400, "average": 0.999, "updates": 4_500}
"""The earlier recipe: AdamW for all weights, the rate falling with the inverse square root of the update."""


def _by_name(*presets: R) -> dict[str, R]:
    return {preset.name: preset for preset in presets}


SYSTEMS_002 = _by_name(
    GroupPreset("single-l2r"),
    GroupPreset("bidirectional", tokens_per_step=2, order="both_ends"),
    GroupPreset("single-r2l", order="right_to_left"),
    GroupPreset("double-l2r", tokens_per_step=2),
    GroupPreset("double-r2l", tokens_per_step=2, order="right_to_left"),
    GroupPreset("mask-predict", masked=True, teacher="single-l2r", matrix_rate=0.01, peak_rate=7.5e-4, updates=4_200),
    GroupPreset("shallow-l2r", encoder_layers=6, decoder_layers=1),
    GroupPreset("triple", tokens_per_step=3, order="both_ends"),
    GroupPreset("quadruple", tokens_per_step=4, order="both_ends"),
)
"""Systems of Imamura and Sumita (2020), of one recipe but for Mask-Predict: the paper's own, a fast baseline, and more tokens a
step. Mask-Predict learns from a teacher's translations, as its authors train it, at half the rates of the others, at which it does
not learn its task. The weights in ``weights/`` began with its teacher's."""

RECIPES = _by_name(
    GroupPreset("single-l2r-muon", peak_rate=5e-3, **_COMPARED | {"updates": 1_500}),
    GroupPreset("single-l2r-adamw", optimiser="adamw", **_COMPARED | _FORMER),
)
"""One system of Imamura and Sumita (2020) by two recipes, to compare what training costs.

AdamW's peak rate beside Muon was chosen by runs of 400 updates; the systems above have the rate that their weights were trained
with, before that.
"""

PRESETS: dict[str, Recipe] = _by_name(
    Preset(name="tatoeba-small"),
    *SYSTEMS_002.values(),
    *RECIPES.values(),
    *map(_sharp, SYSTEMS),
    _sharp("S4", 2),
    _sharp("S4", 3),
    LanguagePreset(name="novels-small"),
    LanguagePreset(name="novels-large", shape=LanguageShape(width=1_500), peak_rate=1e-3, **_SHORT),
    LanguagePreset(name="novels-cased", shape=LanguageShape(vocabulary=70_000, width=400), lower=False, **_SHORT),
)


def place_of(name: str, folder: str | Path = "build/train") -> str | None:
    """A preset's model for `load`: the folder of its finished run, or its name if it is bundled or in ``weights/``."""
    checkpoint = PRESETS[name].trained(folder)
    if checkpoint is not None:
        return str(checkpoint)
    if name in bundled():
        return name
    return None if find_weights(name) is None else name
