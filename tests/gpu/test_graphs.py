"""CUDA graphs: hidden vectors and outputs are those without, and they are replayed."""

from typing import Any

import fakes
import numpy as np
import pytest
import torch

from fastdecode_lib import load
from fastdecode_lib.laws import cases, models
from fastdecode_lib.loading import graphed
from fastdecode_lib.models.graphs import GraphState, GraphTransformer
from fastdecode_lib.translation import Session

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
TEXTS = [text for text in fakes.own_sentences()["en"] if len(text.split()) < 20][:9]
DECODERS = (
    "greedy",
    "jacobi",
    "gauss_seidel:block=3",
    "hybrid:block=3",
    "window:width=5,draft=recycled/pad",
    "window:width=4,candidates=2,draft=ngram+lexicon|recycled|pool",
    "beam:size=3",
)


@pytest.mark.parametrize(("name", "decoder"), [*(("tatoeba-small", d) for d in DECODERS), ("single-l2r", "jacobi")])
def test_outputs_are_those_without(name: str, decoder: str) -> None:
    plain = load(name, device=DEVICE, dtype="float64")
    both = [Session.of(model, "en", "de", decoder) for model in (plain, graphed(plain))]
    for batch in (1, 4):
        first, second = ([h.tokens for h in session.decode(TEXTS[:6], batch=batch)] for session in both)
        assert first == second


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_hidden_vectors_are_those_without(dtype: str) -> None:
    """Again and again, so that a replay cannot live on what was there when it was recorded."""
    plain: Any = load("tatoeba-small", device=DEVICE, dtype=dtype, engine="torch")
    network = GraphTransformer.of(plain.network)
    random, close = np.random.default_rng(0), {"float64": 1e-9, "float32": 1e-3, "float16": 5e-2}[dtype]
    for turn in range(3):
        source = plain.encode(TEXTS[3 * turn : 3 * turn + 3], "en", "de")
        prefix = np.tile(np.array(plain.constraints("de").prefix), (3, 1))
        states = [model.start(model.encode(source), prefix, 200) for model in (plain.network, network)]
        assert isinstance(states[1], GraphState) and states[1].room is not None
        for width in (1, 1, 7, 3, 40, 30, 1):
            tokens = random.integers(0, 16_000, (3, width))
            hidden = [model.step(state, tokens) for model, state in zip((plain.network, network), states, strict=True)]
            assert (hidden[0] - hidden[1]).abs().max() < close, (turn, width)
            for state in states:
                state.truncate(state.lengths - width // 2)
        del states


@pytest.mark.parametrize(
    "law", [*models.GROUP_LAWS, models.kept_candidate_equals_stepped], ids=lambda law: law.__name__
)
def test_model_law(law: Any) -> None:
    import dataclasses

    from fastdecode_lib import registry

    for seed in range(3):
        case = cases.random_case(seed, "marian")
        small: Any = case.model
        network = GraphTransformer.of(
            small.__class__(small.architecture, _tensors(small.architecture, seed), DEVICE, torch.float64)
        )
        law(dataclasses.replace(case, model=network, projection=registry.projection("exact", network)))


def _tensors(shape: Any, seed: int) -> dict[str, torch.Tensor]:
    from fastdecode_lib.papers.shared.random_models import random_weights

    return {name: torch.from_numpy(array) for name, array in random_weights(shape, seed).items()}
