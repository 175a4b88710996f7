"""The laws of models and decoders on recurrent networks, alone and as an ensemble, in torch and compiled."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdecode_lib.checkpoints.recurrent import SYSTEMS, system
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.decoding.jacobi import GaussSeidel, Hybrid, Jacobi
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.laws import cases as laws_cases
from fastdecode_lib.laws import decoders, models
from fastdecode_lib.laws.cases import Case, LawBroken
from fastdecode_lib.models.compiled_recurrent import FASTEST, CompiledRecurrent
from fastdecode_lib.models.ensemble import Ensemble
from fastdecode_lib.models.recurrent import Recurrent, RecurrentState
from fastdecode_lib.projections.average import Average
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.projections.exact_torch import Exact

seeds = st.integers(0, 2**31)
WIDTHS = {"embedding": 4, "source_width": 3, "width": 5, "attention": 4, "fc_width": 4, "max_positions": 40}
PRODUCTS = ("float32", "int16", "int8")
MODEL_LAWS = [
    models.wide_pass_equals_steps,
    models.truncate_forgets,
    models.ragged_equals_single,
    models.selected_rows_are_independent,
    decoders.beam_one_equals_greedy,
]
DECODERS = [Greedy(), Beam(3), Beam(2, delta=1.0), Jacobi(), GaussSeidel(3), Hybrid(2), Window(4, "recycled")]


def network(name: str, seed: int, engine: str) -> Recurrent | CompiledRecurrent:
    shape = replace(system(name, source_vocabulary=13, vocabulary=13), **WIDTHS)
    generator = torch.Generator().manual_seed(seed)
    tensors = {n: torch.randn(size, generator=generator, dtype=torch.float64) for n, size in shape.tensors.items()}
    if engine == "compiled":
        speedups = replace(FASTEST, products=PRODUCTS[seed % 3], embeddings=6)
        return CompiledRecurrent(shape, {n: tensor.float().numpy() for n, tensor in tensors.items()}, speedups)
    return Recurrent(shape, tensors, dtype=torch.float64)


def recurrent_case(seed: int, engine: str = "torch") -> Case:
    """A random case with one of the systems, or an ensemble of two, in the transformer's place."""
    case = laws_cases.random_case(seed)
    if seed % 8 == 7:
        ensemble = Ensemble([network("S4", seed, engine), network("S1", seed + 3, engine)])
        return replace(case, model=ensemble, projection=Average.of(ensemble))
    model = network(SYSTEMS[seed % 8], seed, engine)
    exact = CompiledExact if engine == "compiled" else Exact
    return replace(case, model=model, projection=exact.of(model))


@pytest.mark.parametrize("engine", ["torch", "compiled"])
@pytest.mark.parametrize("law", MODEL_LAWS, ids=lambda law: law.__name__)
def test_model_law(law, engine):
    @settings(max_examples=20)
    @given(seeds)
    def holds(seed):
        law(recurrent_case(seed, engine))

    holds()


@pytest.mark.parametrize("engine", ["torch", "compiled"])
@pytest.mark.parametrize("decoder", DECODERS, ids=str)
@pytest.mark.parametrize("law", decoders.DECODER_LAWS, ids=lambda law: law.__name__)
def test_decoder_law(law, decoder, engine):
    @settings(max_examples=6)
    @given(seeds)
    def holds(seed):
        law(decoder, recurrent_case(seed, engine))

    holds()


def test_a_state_that_selects_wrongly_is_caught(monkeypatch):
    """The twin of `select`: a state that takes its memory of the source, but not its layers, from the right rows."""

    def confused(self, rows):
        first = torch.zeros(len(rows), dtype=torch.int64)
        layers = [layer[first] for layer in self.layers]
        return RecurrentState(layers, self.memory, self.inverse[rows], self.filled[rows], self.before_step[rows])

    monkeypatch.setattr(RecurrentState, "select", confused)
    broken = 0
    for seed in range(20):
        try:
            models.selected_rows_are_independent(recurrent_case(seed))
        except LawBroken:
            broken += 1
    assert broken > 5


def test_outputs_depend_on_source_and_prefix():
    cases = [recurrent_case(seed) for seed in range(60)]
    outputs = [h.tokens for case in cases for h in laws_cases.decode(Greedy(), case)]
    assert len(set(outputs)) > len(outputs) / 2
