"""The laws of models for passes of fixed shapes, as graphs replay them, here without being recorded."""

import dataclasses
from typing import Any

import fakes
import numpy as np
import pytest

from fastdecode_lib import load
from fastdecode_lib.laws import cases, models
from fastdecode_lib.loading import graphed
from fastdecode_lib.models.graphs import ROOMS, GraphState, GraphTransformer
from fastdecode_lib.translation import Session

TEXTS = fakes.own_sentences()["en"][:6]
DECODERS = (
    "greedy",
    "jacobi",
    "hybrid:block=3",
    "window:width=4,candidates=2,draft=ngram|recycled|pool",
    "beam:size=3",
)


@pytest.mark.parametrize("family", ["marian", "mbart", "m2m_100"])
@pytest.mark.parametrize("law", models.MODEL_LAWS, ids=lambda law: law.__name__)
def test_model_law(law: Any, family: str) -> None:
    for seed in range(6):
        case = cases.random_case(seed, family)
        law(dataclasses.replace(case, model=GraphTransformer.of(case.model)))


@pytest.mark.parametrize("law", models.GROUP_LAWS, ids=lambda law: law.__name__)
def test_model_law_of_groups(law: Any) -> None:
    for seed in range(6):
        case = cases.random_case(seed, fits="double_token")
        law(dataclasses.replace(case, model=GraphTransformer.of(case.model)))


@pytest.mark.parametrize("decoder", DECODERS)
def test_outputs_are_those_of_the_plain_engine(decoder: str) -> None:
    plain = load("tatoeba-small", device="cpu", engine="torch", dtype="float64")
    both = [Session.of(model, "en", "de", decoder) for model in (plain, graphed(plain))]
    assert isinstance(both[1].model.network, GraphTransformer)
    for batch in (1, 3):
        first, second = ([h.tokens for h in session.decode(TEXTS, batch=batch)] for session in both)
        assert first == second


def test_a_pass_runs_in_its_room_and_hidden_vectors_are_the_same() -> None:
    """Of every width, before and behind the end of a multiple of entries, and while the room is another state's."""
    case = cases.random_case(3, "marian")
    network = GraphTransformer.of(case.model)
    random = np.random.default_rng(0)
    rows = len(case.source)
    prefix = np.tile(np.array(case.constraints.prefix), (rows, 1))
    several = [network.start(network.encode(case.source), prefix, 30) for _ in range(ROOMS + 1)]
    assert [isinstance(state, GraphState) for state in several] == [True] * ROOMS + [False], "all rooms are taken"
    assert len({id(state.room) for state in several[:-1]}) == ROOMS
    del several
    states = [model.start(model.encode(case.source), prefix, 30) for model in (case.model, network)]
    assert isinstance(states[1], GraphState) and states[1].room is not None
    for width in (1, 3, 7, 2):
        tokens = random.integers(0, case.model.outputs[0].vocabulary, (rows, width))
        hidden = [model.step(state, tokens) for model, state in zip((case.model, network), states, strict=True)]
        assert hidden[0].shape == hidden[1].shape and (hidden[0] - hidden[1]).abs().max() < 1e-9
    assert {width for width, _ in states[1].room.passes} >= {1, 2, 3, 8}


def test_what_has_no_graph_is_refused() -> None:
    with pytest.raises(ValueError, match=r"absolute positions on the torch engine: got a CompiledTransformer\. Load a"):
        graphed(load("tatoeba-small", device="cpu"))
