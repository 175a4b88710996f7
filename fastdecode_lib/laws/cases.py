"""Random cases for the laws: small models, batches of sources, constraints, decoders and drafts, each from a seed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fastdecode_lib import registry
from fastdecode_lib.checkpoints.t5 import T5
from fastdecode_lib.checkpoints.transformer import FAMILIES, ORDERS, OWN, Architecture
from fastdecode_lib.core import Constraints, Decoder, Hypothesis, Model, Output, Passes, Projection, Source, drain
from fastdecode_lib.decoding.auto import Auto, Experience
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.decoding.double_token import DoubleToken
from fastdecode_lib.decoding.jacobi import GaussSeidel, Hybrid, Jacobi
from fastdecode_lib.decoding.mask_predict import MaskPredict
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.head import ANY, DraftHead
from fastdecode_lib.drafts.head import Shape as DraftHeadShape
from fastdecode_lib.drafts.scores import BoundHead
from fastdecode_lib.drafts.sources import Draft
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.kernels.matrices import PRECISIONS
from fastdecode_lib.models.compiled_transformer import CompiledTransformer
from fastdecode_lib.models.transformer import Transformer

TOLERANCE = 1e-9
"""Largest difference of hidden vectors in float64 that counts as equal."""
ROUNDED = 1e-6
"""The same if norms round mean squares to float32: a difference in float64's last bit can then become one in float32's."""

NUMBERS = ("float64", *PRECISIONS)
"""Number formats of models: float64 on the torch engine, the others on the compiled engine."""


class LawBroken(AssertionError):
    """A law is broken; the message names the case and how to reproduce it."""


@dataclass(frozen=True)
class Case:
    """One random situation: a small random model and a batch of few sentences of different length.

    `random_case` makes the same case again from the seed; `tolerance` is the largest difference of the model's hidden vectors that
    counts as equal.
    """

    seed: int
    model: Model
    projection: Projection
    source: Source
    constraints: Constraints
    tolerance: float = TOLERANCE

    @property
    def random(self) -> np.random.Generator:
        """A new generator of random numbers with the case's seed."""
        return np.random.default_rng((self.seed, 1))


def tiny_architecture(family: str, vocabulary: int = 13, max_positions: int = 40, **own: Any) -> Architecture:
    """A two-layer model of a family, small enough for hundreds of cases a second; `own` has further fields of `Architecture`."""
    mt5 = family == "mt5"
    if family in T5:  # few rows for near distances, so that short sentences reach the last row
        own = {"head_size": 4, "relative_buckets": 8, "relative_distance": 6, "epsilon": 1e-6} | own
        own |= {"gated": mt5, "scaled_output": not mt5}
    return Architecture.of_marian(
        width=8,
        feed_forward=12,
        heads=2,
        layers=(1, 2),
        vocabulary=vocabulary,
        family=family,
        max_positions=max_positions,
        activation={"mbart": "gelu", "m2m_100": "relu", "t5": "relu", "mt5": "gelu_new"}.get(family, "swish"),
        scaled_embeddings=family not in ("mbart", *T5),
        padding=1,
        tied_output=not mt5,
        **own,
    )


def random_tensors(architecture: Architecture, seed: int, scale: float = 0.7) -> dict[str, torch.Tensor]:
    """Random weights, large enough that every position depends on its prefix and its source."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in architecture.tensors.items():
        values = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
        tensors[name] = values + 1.0 if name.endswith("norm.weight") else values
    decoder = tensors["model.decoder.embed_tokens.weight"]
    if architecture.shared_embeddings:
        tensors["model.encoder.embed_tokens.weight"] = decoder
    if architecture.tied_output:
        tensors["lm_head.weight"] = decoder
    if architecture.output_bias:
        tensors["final_logits_bias"] = torch.randn(1, architecture.vocabulary, generator=generator).double()
    return tensors


def _tied(
    architecture: Architecture, tensors: dict[str, torch.Tensor], random: np.random.Generator
) -> dict[str, torch.Tensor]:
    """Ternary weights, and tokens whose rows of the output matrix and bias are copies of other tokens' rows."""
    size = float(random.uniform(0.2, 1.1))
    copied = np.arange(architecture.vocabulary)
    copied[3:] = random.choice(copied[3:], size=len(copied) - 3)
    tied, ternary = {}, {}
    for name, tensor in tensors.items():
        if id(tensor) not in ternary:  # tied matrices stay one
            matrix = tensor if name.endswith("norm.weight") else (tensor / size).round().clamp(-1, 1) * size
            if name in ("model.decoder.embed_tokens.weight", "lm_head.weight", "model.encoder.embed_tokens.weight"):
                matrix = matrix[torch.from_numpy(copied)]
            ternary[id(tensor)] = matrix[:, torch.from_numpy(copied)] if name == "final_logits_bias" else matrix
        tied[name] = ternary[id(tensor)]
    return tied


def random_case(
    seed: int, family: str | None = None, numbers: str = "float64", fits: str = "greedy", ties: bool = False
) -> Case:
    """A case that depends only on its seed, with a model in one of `NUMBERS` for the decoder `fits`.

    With `ties`, scores are often equal: weights are -1, 0 or 1 times one number, and half of the tokens have duplicates.
    """
    random = np.random.default_rng((seed, 0))
    options: dict[str, Any] = {}
    if fits == "double_token":
        family, options = OWN, {"tokens_per_step": int(random.integers(2, 5)), "order": ORDERS[seed % len(ORDERS)]}
    elif fits == "mask_predict":
        family, options = OWN, {"masked": True}
    architecture = tiny_architecture(family or FAMILIES[seed % len(FAMILIES)], **options)
    tensors, compiled = random_tensors(architecture, seed), numbers != "float64"
    if ties:
        tensors = _tied(architecture, tensors, random)
    model: Any = Transformer(architecture, tensors, dtype=torch.float64)
    if compiled:
        model = CompiledTransformer(architecture, {name: t.numpy() for name, t in tensors.items()}, numbers)  # type: ignore[arg-type]
    lengths = random.integers(1, 9, size=int(random.integers(1, 4)))
    ids = random.integers(3, architecture.vocabulary, size=(len(lengths), int(lengths.max())))
    prefix = (2,) if random.random() < 0.7 else (2, int(random.integers(3, architecture.vocabulary)))
    max_length = int(random.integers(1, 20)) + (fits == "mask_predict")
    constraints = Constraints(
        prefix=(2,) * architecture.tokens_per_step if options else prefix,
        end=(0,) if random.random() < 0.8 else (0, 5),
        max_length=max_length,
        padding=int(random.integers(0, architecture.vocabulary)),
        banned=(1,) if random.random() < 0.8 else (),
        forced_end=bool(random.random() < 0.5),
        min_length=int(random.integers(0, min(3, max_length))),
        exact_length=int(random.integers(1 + (fits == "mask_predict"), max_length + 1))
        if random.random() < 0.1
        else None,
    )
    source = Source(ids.astype(np.int64), lengths.astype(np.int64))
    projection = registry.projection("exact", model)
    tolerance = TOLERANCE if architecture.biases else ROUNDED
    return Case(seed, model, projection, source, constraints, 0.0 if compiled else tolerance)


def random_decoder(name: str, random: np.random.Generator) -> Decoder:
    """A decoder of the registry with random settings."""
    draw = lambda low, high: int(random.integers(low, high))  # noqa: E731
    makers: dict[str, Callable[[], Any]] = {
        "greedy": Greedy,
        "beam": lambda: Beam(size=draw(1, 5), length_penalty=float(random.choice([0.0, 0.6, 1.0, 1.5]))),
        "jacobi": lambda: Jacobi(
            ratio=float(random.choice([0.0, 0.5, 1.2, 3.0])),
            extra=draw(1, 8),
            oracle_length=draw(1, 20) if random.random() < 0.3 else None,
        ),
        "gauss_seidel": lambda: GaussSeidel(block=draw(1, 9)),
        "hybrid": lambda: Hybrid(block=draw(1, 9), length=draw(0, 25) if random.random() < 0.5 else None),
        "window": lambda: random_window(random),
        "auto": lambda: random_auto(random),
        "double_token": lambda: DoubleToken(size=draw(1, 5), length_penalty=float(random.choice([0.0, 0.6, 1.0, 1.5]))),
        "mask_predict": lambda: MaskPredict(iterations=draw(1, 6), lengths=draw(1, 6)),
    }
    decoder: Decoder = makers[name]()
    return decoder


DRAFTS = (
    "pad", "recycled", "recycled/pad", "source", "prompt/recycled", "ngram", "lexicon", "ngram+lexicon", "lexicon/recycled/pad",
    "recycled|pool", "ngram+lexicon|recycled|pool", "source|recycled", "pool",
)  # fmt: skip
"""Every source of drafts that needs no training, alone and combined."""
HEAD_DRAFTS = ("head", "ngram+lexicon+head", "prompt/head|pool")
"""Drafts that need a draft head."""
MODEL_DRAFTS = ("model", "model/recycled", "model|pool")
"""Drafts that need another model."""


def random_window(random: np.random.Generator, draft: str | None = None) -> Window:
    """A window with random settings, a draft table counted on random sentences, and a random draft head.

    The outputs of a draft model depend on the case: see `drafted`.
    """
    sentences = [random.integers(0, 13, size=int(random.integers(1, 9))) for _ in range(12)]
    table = DraftTable.count(sentences, sentences[::-1], source_vocabulary=13, vocabulary=13, start=2, least=1)
    width, candidates = int(random.integers(1, 10)), int(random.integers(1, 4))
    name = draft or str(random.choice(DRAFTS + HEAD_DRAFTS + MODEL_DRAFTS))
    return Window(width, Draft(name, table, head=random_head(random)), candidates)


def random_auto(random: np.random.Generator) -> Auto:
    """`auto` with random settings and random widths, on which the output must not depend."""
    window = random_window(random)
    return RandomAuto(window.width, window.draft, window.candidates, RandomExperience(int(random.integers(1 << 30))))


class RandomAuto(Auto):
    """`auto` with random widths that switches to greedy decoding's loop at a random pass, the same in every batch."""

    def with_draft(self, draft: Draft) -> "RandomAuto":
        """The same decoder with a draft resolved for a model."""
        return replace(self, draft=draft)

    def iterate(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, *, observe: bool = False
    ) -> Passes:
        """Passes of a batch, with a new random experience of the same seed."""
        assert isinstance(self.experience, RandomExperience)
        again = replace(self, experience=RandomExperience(self.experience.seed))
        return Auto.iterate(again, model, projection, source, constraints, observe=observe)


class RandomExperience(Experience):
    """Experience with random answers."""

    def __init__(self, seed: int):
        super().__init__()
        self.seed = seed
        self.random = np.random.default_rng(seed)

    def width(self, rows: int, place: int = 0, most: int = 8) -> int:
        """A random width."""
        return int(self.random.integers(1, most + 1))

    def greedy(self, rows: int, most: int = 8) -> bool:
        """A random answer, before every pass."""
        return bool(self.random.random() < 0.1)


def random_head(random: np.random.Generator) -> BoundHead:
    """A draft head with random weights, bound to a random output matrix of the size of `tiny_architecture`'s."""
    shape = DraftHeadShape(hidden=8, source=8, tokens=13, embedding=4, width=8, inner=12)
    tensors = {name: random.normal(size=size).astype(np.float32) for name, size in shape.tensors.items()}
    words = np.flatnonzero(random.random(13) < 0.7)
    head = DraftHead(shape, tensors, {ANY: words if len(words) else np.arange(13)})
    return BoundHead(head, Output(torch.from_numpy(random.normal(size=(13, 8)))), None)


def drafted(decoder: Decoder, case: Case) -> Decoder:
    """A decoder for a case: if it needs a draft model, it gets one whose outputs are `half_right`."""
    draft: Any = getattr(decoder, "drafts", None)
    if draft is None or not draft.needs("model") or draft.model is not None:
        return decoder
    return replace(decoder, draft=replace(draft, model=partial(half_right, case)))  # type: ignore[type-var]


def half_right(case: Case, source: Source) -> list[tuple[int, ...]]:
    """Outputs of a fictitious draft model: greedy decoding's tokens, with some removed, inserted, or cut off."""
    outputs = []
    for greedy in drain(Greedy().iterate(case.model, case.projection, source, case.constraints)):
        random = np.random.default_rng((case.seed, 3, *greedy.tokens))
        first, skipped, inserted = (int(n) for n in random.integers(0, (len(greedy.tokens) + 1, 3, 4)))
        wrong_tokens = random.integers(0, case.model.outputs[0].vocabulary, size=inserted).tolist()
        rest = greedy.tokens[first + skipped :] if random.random() < 0.7 else ()
        outputs.append((*greedy.tokens[:first], *wrong_tokens, *rest))
    return outputs


def decode(decoder: Decoder, case: Case, model: Any = None) -> tuple[Hypothesis, ...]:
    """Run a decoder on a case."""
    return drain(drafted(decoder, case).iterate(model or case.model, case.projection, case.source, case.constraints))
