"""Laws of the recurrent models on the compiled engine: they compute what torch computes, and each speed-up changes nothing."""

import copy
import gc
import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from fastdecode_lib.checkpoints.recurrent import RELU_LIMIT, SYSTEMS, RecurrentShape, system
from fastdecode_lib.core import Constraints, Source, drain
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.decoding.jacobi import GaussSeidel, Jacobi
from fastdecode_lib.kernels import recurrent as kernels
from fastdecode_lib.kernels.matrices import Matrix, OverflowRisk
from fastdecode_lib.lexicon import Lexicon
from fastdecode_lib.models.compiled_recurrent import FASTEST, CompiledRecurrent, Speedups, ladder
from fastdecode_lib.models.recurrent import Recurrent, first_weights
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.projections.lexical import Lexical

WORDS = 60
STAGES = ladder(embeddings=20)
EXACT = {  # what must not change a float32 model but by rounding
    "packed products": Speedups("float32"),
    "precomputed embeddings": Speedups("float32", embeddings=20),
    "precomputed attention": Speedups("float32", attention=True),
    "merged states": Speedups("float32", merged=True),
    "polynomials": Speedups("float32", functions="polynomial"),
    "all": replace(FASTEST, embeddings=20),
}


def tiny(name: str) -> RecurrentShape:
    sizes = {"embedding": 10, "source_width": 6, "width": 18, "attention": 7, "fc_width": 13, "max_positions": 40}
    shape = system(name, "small", source_vocabulary=WORDS, vocabulary=WORDS)
    return replace(shape, **sizes)


def weights(shape: RecurrentShape, seed: int = 1) -> dict[str, torch.Tensor]:
    found = first_weights(shape, seed)
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(tensor.shape, generator=generator) * 0.3 if name.endswith(".b") else tensor
        for name, tensor in found.items()
    }


def pair(name: str, speedups: Speedups, seed: int = 1) -> tuple[Recurrent, CompiledRecurrent]:
    shape = tiny(name)
    tensors = weights(shape, seed)
    arrays = {key: tensor.numpy() for key, tensor in tensors.items()}
    return Recurrent(shape, tensors), CompiledRecurrent(shape, arrays, speedups)


def sentences(seed: int, *lengths: int) -> Source:
    ids = np.random.default_rng(seed).integers(3, WORDS, (len(lengths), max(lengths)))
    return Source(ids, np.array(lengths))


FED = np.array([[2, 5, 7, 30, 8], [2, 9, 59, 4, -1]])


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("speedups", EXACT.values(), ids=EXACT)
def test_it_equals_torch_in_float32(name: str, speedups: Speedups) -> None:
    reference, network = pair(name, speedups)
    source, prefix = sentences(0, 7, 4), np.array([[2], [2]])
    expected = reference.step(reference.start(reference.encode(source), prefix), FED).numpy()
    found = network.step(network.start(network.encode(source), prefix), FED)
    np.testing.assert_allclose(found[FED >= 0], expected[FED >= 0], atol=2e-5)
    targets = np.maximum(FED[:, 1:], 0)
    np.testing.assert_allclose(
        network.align(source, targets, np.array([2])), reference.align(source, targets, np.array([2])), atol=2e-6
    )


def test_relus_are_clipped_as_torch_clips_them() -> None:
    shape = tiny("S4")
    tensors = weights(shape)
    for name in tensors:
        if ".fc." in name:
            tensors[name] = tensors[name].sign() * 0.9
    reference = Recurrent(shape, tensors)
    arrays = {key: tensor.numpy() for key, tensor in tensors.items()}
    library, fastest = (CompiledRecurrent(shape, arrays, speedups) for speedups in (Speedups(), FASTEST))
    seen: list[float] = []
    (top,) = library.tops
    library.tops = [lambda x: (seen.append(float(x.max())), top(x))[1]]
    source, prefix = sentences(0, 7, 4), np.array([[2], [2]])
    expected = reference.step(reference.start(reference.encode(source), prefix), FED).numpy()
    for network in (library, fastest):
        found = network.step(network.start(network.encode(source), prefix), FED)
        np.testing.assert_allclose(found[FED >= 0], expected[FED >= 0], atol=2e-4)
    assert max(seen) == RELU_LIMIT


def test_a_layer_with_tanh_needs_no_fully_connected_ones_below() -> None:
    shape = replace(tiny("S1"), fc_layers=0, top="tanh")
    tensors = weights(shape)
    network = CompiledRecurrent(shape, {key: tensor.numpy() for key, tensor in tensors.items()}, FASTEST)
    source, prefix = sentences(0, 7, 4), np.array([[2], [2]])
    expected, found = (
        np.asarray(model.step(model.start(model.encode(source), prefix), FED))
        for model in (Recurrent(shape, tensors), network)
    )
    np.testing.assert_allclose(found[FED >= 0], expected[FED >= 0], atol=2e-4)


def test_a_prefix_for_each_source() -> None:
    reference, network = pair("S1", FASTEST)
    for model in (reference, network):
        with pytest.raises(ValueError, match=r"needs a prefix \(P,\) for each source: got \(2, 1\) for 1 sources"):
            model.start(model.encode(sentences(0, 5)), np.array([[2], [2]]))  # type: ignore[union-attr]


def test_states_that_are_dropped_make_room() -> None:
    _, network = pair("S1", FASTEST)
    state = network.start(network.encode(sentences(0, 5)), np.array([[2]]))
    for _ in range(50):
        network.step(state, np.array([[2, 5, 7]]))
        state.truncate(np.array([1]))
    assert state.nodes.used == 2
    selected = state.select(np.array([0]))
    network.step(state, np.array([[5, 7]]))
    state.truncate(np.array([1]))
    assert state.nodes.used == 4 and selected.nodes is state.nodes, "others may have paths there"


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("products", ["int16", "fixed16", "int8"])
def test_quantised_products_come_close(name: str, products: str) -> None:
    speedups = replace(STAGES["merged states"], products=products)  # type: ignore[arg-type]
    reference, network = pair(name, speedups)
    source, prefix = sentences(0, 7, 4), np.array([[2], [2]])
    expected = reference.step(reference.start(reference.encode(source), prefix), FED).numpy()
    found = network.step(network.start(network.encode(source), prefix), FED)
    bound = {"int16": 0.01, "fixed16": 0.1, "int8": 0.3}[products]
    assert np.abs(found - expected)[FED >= 0].max() < bound


@pytest.mark.parametrize("name", ["S1", "S4", "S5", "S7"])
@pytest.mark.parametrize("products", ["float32", "int16", "int8"])
def test_slots_and_batches_change_no_bit(name: str, products: str) -> None:
    _, network = pair(name, replace(FASTEST, products=products, embeddings=20))  # type: ignore[arg-type]
    source, prefix = sentences(0, 7, 4), np.array([[2], [2]])
    together = network.step(network.start(network.encode(source), prefix), FED)
    for row, length in enumerate((5, 4)):
        alone = network.start(network.encode(source.row(row)), prefix[:1])
        for slot in range(length):
            step = network.step(alone, FED[row : row + 1, slot : slot + 1])
            np.testing.assert_array_equal(step[0, 0], together[row, slot])


def test_states_can_be_truncated_kept_and_selected() -> None:
    _, network = pair("S5", FASTEST)
    source, prefix = sentences(0, 7, 4), np.array([[2], [2]])
    whole = network.step(network.start(network.encode(source), prefix), FED)
    state = network.start(network.encode(source), prefix)
    network.step(state, FED[:, :4])
    state.truncate(np.array([2, 1]))
    again = network.step(state, np.array([[7, 30, 1], [9, -1, -1]]))
    np.testing.assert_array_equal(again[0, :2], whole[0, 2:4])
    np.testing.assert_array_equal(again[1, 0], whole[1, 1])
    state.keep(np.array([[0, 1], [0, -1]]))
    assert state.lengths.tolist() == [4, 2]
    swapped = state.select(np.array([1, 0, 0]))
    found = network.step(swapped, np.array([[59, 3], [8, 3], [8, 3]]))
    np.testing.assert_array_equal(found[0, 0], whole[1, 2])
    np.testing.assert_array_equal(found[1, 0], whole[0, 4])
    assert state.lengths.tolist() == [4, 2], "a state does not change with those selected from it"
    with pytest.raises(ValueError, match="keeps the first slots of a step, in their order"):
        swapped.keep(np.array([[0], [0], [1]]))
    with pytest.raises(ValueError, match="truncate needs lengths"):
        state.truncate(np.array([9, 0]))
    with pytest.raises(ValueError, match="visible"):
        network.step(state, FED, np.ones((2, 5, 5), dtype=bool))
    with pytest.raises(ValueError, match="Unknown id among the tokens: got 60"):
        network.step(state, np.array([[60], [1]]))
    with pytest.raises(ValueError, match="Unknown id among the source tokens: got -1"):
        network.encode(Source(np.array([[5, -1]]), np.array([2])))


def test_rows_that_share_a_state_are_computed_once() -> None:
    """By where they come from (sec. 4.5); without the switch each row has its own product."""
    rows: dict[bool, list[int]] = {}
    for merged in (False, True):
        _, network = pair("S1", replace(FASTEST, merged=merged))
        seen: list[int] = []
        product = network.from_state
        network.from_state = lambda x, product=product, seen=seen: (seen.append(len(x)), product(x))[1]  # type: ignore[misc]
        state = network.start(network.encode(sentences(0, 5)), np.array([[2]]))
        network.step(state, np.array([[2]]))
        state = state.select(np.array([0, 0, 0, 0]))
        network.step(state, np.array([[5], [6], [7], [8]]))
        state = state.select(np.array([1, 1, 3, 3, 3, 0]))
        hidden = network.step(state, np.array([[9], [10], [9], [10], [11], [9]]))
        rows[merged] = seen
        assert len(np.unique(hidden[:, 0], axis=0)) == 6
    assert rows == {False: [1, 4, 6], True: [1, 1, 3]}


@pytest.mark.parametrize("seed", range(4))
def test_every_stage_finds_the_baselines_translations(seed: int) -> None:
    """Exact stages but for rounding, quantised ones on models whose choices are clear."""
    shape = tiny("S4")
    arrays = {name: tensor.numpy() for name, tensor in weights(shape, seed).items()}
    arrays["output.V"] = arrays["output.V"] * 30
    lexicon = Lexicon.of_entries(
        np.repeat(np.arange(WORDS), 5), np.random.default_rng(seed).integers(3, WORDS, 5 * WORDS),
        np.tile(np.linspace(1, 0.1, 5), WORDS), WORDS, WORDS,
    )  # fmt: skip
    constraints = Constraints((2,), (0,), 12, banned=(2,))
    outputs = {}
    for name, speedups in (STAGES | EXACT).items():
        network = CompiledRecurrent(shape, arrays, speedups)
        projection = Lexical.of(network, lexicon, frequent=4)
        beam = Beam(size=6, delta=3.0)
        found = [drain(beam.iterate(network, projection, sentences(s, 6), constraints))[0] for s in range(5)]
        outputs[name] = found
    for name, found in outputs.items():
        for ours, baseline in zip(found, outputs["baseline"], strict=True):
            assert ours.score == pytest.approx(baseline.score, abs=0.05)
            assert ours.tokens == baseline.tokens or abs((ours.score or 0) - (baseline.score or 0)) < 0.02, name


@pytest.mark.parametrize("products", ["float32", "int16", "int8"])
def test_parallel_decoders_equal_greedy(products: str) -> None:
    _, network = pair("S4", replace(FASTEST, products=products))  # type: ignore[arg-type]
    exact, constraints = CompiledExact.of(network), Constraints((2,), (0,), 14, banned=(2,))
    for seed in range(5):
        source = sentences(seed, 6, 3, 5)
        greedy = drain(Greedy().iterate(network, exact, source, constraints))
        for decoder in (Jacobi(), GaussSeidel(block=3)):
            assert drain(decoder.iterate(network, exact, source, constraints)) == greedy
        for row in range(3):
            (alone,) = drain(Greedy().iterate(network, exact, source.row(row), constraints))
            assert alone == greedy[row]


def test_tables_and_polynomials_are_close_to_the_functions() -> None:
    x = np.concatenate([np.linspace(-30, 30, 20_001), [0.0, -0.0, 1e-30]]).astype(np.float32)
    for function, exact in (
        (kernels.sigmoid, 1 / (1 + np.exp(-x.astype(np.float64)))),
        (kernels.tangent, np.tanh(x.astype(np.float64))),
    ):
        for way, bound in ((kernels.LIBRARY, 1e-7), (kernels.POLYNOMIAL, 2e-7), (kernels.TABLE, 4e-4)):
            found = x.copy()
            function(found, way)
            assert np.abs(found - exact).max() < bound


def test_fixed_point_refuses_weights_that_do_not_fit() -> None:
    shape = tiny("S3")
    arrays = {name: tensor.numpy() for name, tensor in weights(shape).items()}
    arrays["target.fc.2"] = np.full_like(arrays["target.fc.2"], 40.0)
    with pytest.raises(OverflowRisk, match=r"target\.fc\.2 does not fit in 16 bits"):
        CompiledRecurrent(shape, arrays, Speedups("fixed16"))
    heavy = Matrix.of(np.ones((3, 500), np.float32), None, "int16", multiplier=1024, largest=10.0, name="target.fc.1")
    assert heavy.multiplier < 1024 and 500 * 1024 * heavy.limit < 2**31
    with pytest.raises(OverflowRisk, match=r"target\.fc\.1 can overflow 32-bit sums"):
        Matrix.of(
            np.full((1, 6000), 30.0, np.float32), None, "int16", multiplier=1024, largest=10.0, name="target.fc.1"
        )
    rounded = CompiledRecurrent(shape, arrays, Speedups("int16"))
    assert rounded.step(rounded.start(rounded.encode(sentences(0, 4)), np.array([[2]])), np.array([[2]])).shape == (
        1,
        1,
        18,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"products": "int4"}, "Unknown products: got 'int4'. Use one of blas, float32"),
        ({"functions": "cordic"}, "Unknown functions: got 'cordic'. Use one of library, table, polynomial."),
        ({"embeddings": -1}, "embeddings must be a number of words from 0 on: got -1."),
    ],
)
def test_unknown_speedups_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Speedups(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_a_copy_has_weights_of_its_own(again: Callable[[CompiledRecurrent], CompiledRecurrent]) -> None:
    """The kernels read addresses; a copy must not read those of the first."""
    model = pair("S4", FASTEST)[1]
    copied = again(model)
    assert model.records is not None and copied.records is not None
    records, layers = [r.tolist() for r in copied.records], (copied.fully_connected, copied.tops)
    assert records == [[matrix.record.tolist() for matrix in group] for group in layers]
    assert records != [r.tolist() for r in model.records]
    source = sentences(1, 5, 3)
    expected = model.step(model.start(model.encode(source), FED[:, :1]), FED)
    del model
    gc.collect()
    np.testing.assert_array_equal(copied.step(copied.start(copied.encode(source), FED[:, :1]), FED), expected)
