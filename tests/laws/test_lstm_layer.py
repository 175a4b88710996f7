"""The LSTM layer of training, whose gradient is written out, against the same steps one by one under autograd."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fastdecode_lib.models.lstm_layer import LstmLayer, lstm_layer
from fastdecode_lib.models.recurrent import lstm

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
