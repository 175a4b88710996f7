"""Recurrent layers over whole texts, for training: an LSTM whose weights' gradient is one product, and torch's own on a GPU."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class LstmLayer(torch.autograd.Function):
    """A layer over whole texts: products in the matrix's precision, gates and memory cells in the state's."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, matrix: Tensor, state: Tensor) -> Tensor:
        """Inputs V x + b (B, T, 4 D), matrix W (4 D, D) and first state (B, 2 D) -> states after every word (B, T, 2 D).

        Gates come in the order input, forget, output, candidate; a state is a hidden vector and a memory cell.
        """
        width = state.shape[-1] // 2
        hidden, memory = state.split(width, -1)
        gates, memories = [], [memory]
        states = state.new_empty(*inputs.shape[:2], 2 * width)
        for word, from_input in enumerate(inputs.unbind(1)):
            opened = from_input + functional.linear(hidden.to(matrix.dtype), matrix).to(state.dtype)
            opened[:, : 3 * width].sigmoid_()
            opened[:, 3 * width :].tanh_()
            enter, forget, out, candidate = opened.split(width, -1)
            memory = torch.addcmul(enter * candidate, forget, memory)
            hidden = out * torch.tanh(memory)
            states[:, word, :width], states[:, word, width:] = hidden, memory
            gates.append(opened)
            memories.append(memory)
        ctx.save_for_backward(matrix, state, states, *gates, *memories)
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of inputs, matrix and first state, from that of the states."""
        matrix, state, states, *saved = ctx.saved_tensors
        words, width = states.shape[1], state.shape[-1] // 2
        gates, memories = saved[:words], saved[words:]
        grad_gates = states.new_empty(*states.shape[:2], 4 * width)
        grad_hidden, grad_memory = torch.zeros_like(state).split(width, -1)
        for word in reversed(range(words)):
            enter, forget, out, candidate = gates[word].split(width, -1)
            tanh_memory = torch.tanh(memories[word + 1])
            grad_hidden = grad_hidden + grad[:, word, :width]
            grad_memory = grad_memory + grad[:, word, width:] + grad_hidden * out * (1 - tanh_memory * tanh_memory)
            grad_gate = grad_gates[:, word]
            grad_gate[:, :width] = grad_memory * candidate * enter * (1 - enter)
            grad_gate[:, width : 2 * width] = grad_memory * memories[word] * forget * (1 - forget)
            grad_gate[:, 2 * width : 3 * width] = grad_hidden * tanh_memory * out * (1 - out)
            grad_gate[:, 3 * width :] = grad_memory * enter * (1 - candidate * candidate)
            grad_hidden = (grad_gate.to(matrix.dtype) @ matrix).to(state.dtype)
            grad_memory = grad_memory * forget
        previous_hidden = torch.cat([state[:, None, :width], states[:, :-1, :width]], 1)
        flat_gates, flat_hidden = (t.flatten(0, 1).to(matrix.dtype) for t in (grad_gates, previous_hidden))
        return grad_gates, flat_gates.T @ flat_hidden, torch.cat([grad_hidden, grad_memory], -1)


def lstm_layer(inputs: Tensor, matrix: Tensor, state: Tensor) -> Tensor:
    """`LstmLayer`, with its product in autocast's precision if autocast is on."""
    return LstmLayer.apply(inputs.to(state.dtype), matrix.to(product_dtype(matrix)), state)


TORCH_GATES = {"gru": (1, 0, 2), "lstm": (0, 1, 3, 2)}
"""Our gates in torch's order: reset, update, candidate of a GRU; input, forget, candidate, output of an LSTM."""


def torch_layer(cell: str, inputs: Tensor, matrices: tuple[Tensor, Tensor, Tensor], state: Tensor) -> Tensor:
    """A layer by torch's own function, which is a few calls of cuDNN on a GPU instead of ten for each word.

    Inputs x (B, T, inputs), V, W and b with their gates one after another, and first state (B, states x D) -> hidden (B, T, D).
    """
    order = TORCH_GATES[cell]
    from_input, from_state, bias = (
        torch.cat([matrix.chunk(len(order))[gate] for gate in order]) for matrix in matrices
    )
    weights = [from_input, from_state, bias, torch.zeros_like(bias)]
    settings = (True, 1, 0.0, True, False, True)  # biases, one layer, no dropout, training, one direction, rows first
    first = state[None].contiguous()
    if cell == "gru":
        return torch.gru(inputs, first, weights, *settings)[0]
    hidden, memory = first.chunk(2, -1)
    return torch.lstm(inputs, (hidden.contiguous(), memory.contiguous()), weights, *settings)[0]


def product_dtype(tensor: Tensor) -> torch.dtype:
    """The precision of products with a tensor: autocast's if autocast is on, else the tensor's."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tensor.dtype
