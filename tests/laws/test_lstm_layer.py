"""Layers of training, one with its gradient written out and torch's own for a GPU, against single steps under autograd."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fastdecode_lib.checkpoints.recurrent import SYSTEMS, system
from fastdecode_lib.models import lstm_layer as lstm_layers
from fastdecode_lib.models import recurrent
from fastdecode_lib.models.lstm_layer import LstmLayer, lstm_layer, torch_layer
from fastdecode_lib.models.recurrent import Network, first_weights, lstm

Layer = Callable[[Tensor, Tensor, Tensor], Tensor]
SHAPES = [(1, 1, 1), (1, 6, 3), (4, 1, 2), (3, 5, 4)]
"""Texts, words and width."""


def step_by_step(inputs: Tensor, matrix: Tensor, state: Tensor) -> Tensor:
    """The states after every word (B, T, 2 D), as the torch engine decodes."""
    states = []
    for from_input in inputs.unbind(1):
        hidden, _ = state.chunk(2, -1)
        state = lstm(state, functional.linear(hidden, matrix), from_input)
        states.append(state)
    return torch.stack(states, 1)


def some(shape: tuple[int, int, int], seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Inputs, matrix and first state."""
    texts, words, width = shape
    generator = torch.Generator().manual_seed(seed)
    sizes = ((texts, words, 4 * width), (4 * width, width), (texts, 2 * width))
    return [torch.randn(size, generator=generator, dtype=dtype).requires_grad_() for size in sizes]


def check_layer(layer: Layer) -> None:
    """States are those of single steps bit for bit, and so are the gradients, but for rounding, of any weighting of them."""
    for seed, shape in enumerate(SHAPES):
        given = some(shape, seed)
        wanted, found = step_by_step(*given), layer(*given)
        assert torch.equal(found, wanted)
        weights = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(99), dtype=wanted.dtype)
        of_wanted = torch.autograd.grad((weights * wanted).sum(), given)
        of_found = torch.autograd.grad((weights * found).sum(), given)
        for own, other in zip(of_found, of_wanted, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-12, atol=1e-12)


def test_layer_equals_its_steps() -> None:
    check_layer(lstm_layer)


class MemoryForgotten(LstmLayer):
    """What reaches a memory cell from later words is left out."""

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return LstmLayer.backward(ctx, torch.cat([grad.chunk(2, -1)[0], torch.zeros_like(grad.chunk(2, -1)[1])], -1))


@pytest.mark.parametrize(
    "broken",
    [
        MemoryForgotten.apply,
        lambda inputs, matrix, state: lstm_layer(inputs, matrix.detach(), state) + 0 * matrix.sum(),
        lambda inputs, matrix, state: lstm_layer(inputs, matrix, state.detach()) + 0 * state.sum(),
        lambda inputs, matrix, state: lstm_layer(inputs.roll(matrix.shape[1], -1), matrix, state),
    ],
)
def test_broken_layers_are_caught(broken: Layer) -> None:
    with pytest.raises(AssertionError):
        check_layer(broken)


def test_products_in_half_precision_stay_near() -> None:
    given = some((4, 9, 16), 7, torch.float32)
    wanted = step_by_step(*given)
    with torch.autocast("cpu", torch.bfloat16):
        found = lstm_layer(*given)
    assert found.dtype == torch.float32, "states keep their precision"
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.1)
    for own, other in zip(
        torch.autograd.grad(found.sum(), given), torch.autograd.grad(wanted.sum(), given), strict=True
    ):
        assert own.dtype == torch.float32 and functional.cosine_similarity(own.flatten(), other.flatten(), 0) > 0.99


def hidden_and_gradients(name: str) -> tuple[Tensor, dict[str, Tensor]]:
    """What a small untrained system predicts from, for texts of several lengths, and the gradient of each weight."""
    shape = system(name, "small", source_vocabulary=30, vocabulary=40)
    weights = {n: w.double().requires_grad_() for n, w in first_weights(shape, seed=1).items()}
    generator = torch.Generator().manual_seed(2)
    source, target = (torch.randint(0, 30, size, generator=generator) for size in ((4, 7), (4, 6)))
    network = Network(shape, weights)
    memory = network.encode(source, torch.tensor([7, 3, 5, 1]))
    hidden, _, _ = network.decode(memory, target, network.first_states(4))
    trained = {n: w for n, w in weights.items() if n != "output.V"}
    weighting = torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).view_as(hidden)
    return hidden, dict(
        zip(trained, torch.autograd.grad((weighting * hidden).sum(), list(trained.values())), strict=True)
    )


def check_layers_of_a_gpu(name: str, layer: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a system says with the layers of a GPU, and its gradients, are those with the layers of a CPU."""
    wanted, of_wanted = hidden_and_gradients(name)
    calls = []
    monkeypatch.setattr(recurrent, "trained_on_gpu", lambda x: torch.is_grad_enabled())
    monkeypatch.setattr(recurrent, "torch_layer", lambda *a: calls.append(a) or layer(*a))
    found, of_found = hidden_and_gradients(name)
    assert calls, "the layers of a GPU are not used"
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(of_found, of_wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_by_the_layers_of_a_gpu_equal_those_of_a_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_layers_of_a_gpu(name, torch_layer, monkeypatch)


@pytest.mark.parametrize("name", ["S1", "S7"])
def test_gates_in_another_order_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm_layers, "TORCH_GATES", {"gru": (0, 1, 2), "lstm": (0, 1, 2, 3)})
    with pytest.raises(AssertionError, match="not close"):
        check_layers_of_a_gpu(name, torch_layer, monkeypatch)
