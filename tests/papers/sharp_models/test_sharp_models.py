"""Devlin (2017): the recurrent network against its equations written out plainly in numpy, float64, one word at a time."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fastdecode_lib.checkpoints.recurrent import SYSTEMS, RecurrentShape, system
from fastdecode_lib.core import Source
from fastdecode_lib.models import recurrent
from fastdecode_lib.models.recurrent import RELU_LIMIT, Network, Recurrent, first_weights

TINY = {"embedding": 5, "source_width": 4, "width": 6, "attention": 7, "fc_width": 3, "max_positions": 40}


def tiny(name: str) -> RecurrentShape:
    return replace(system(name, source_vocabulary=11, vocabulary=13), **TINY)


def weights_of(shape: RecurrentShape, seed: int, scale: float = 0.8) -> dict[str, torch.Tensor]:
    """Weights large enough that every gate, word and source position matters."""
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(size, generator=generator, dtype=torch.float64) * scale for n, size in shape.tensors.items()}


# -------------------------------------------------------------------------------------------------- equations, plainly


def sigma(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def relu(x: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(x, 0), 10)


class Plain:
    """One sentence through the equations of sec. 4 and 5, matrix by matrix as the paper names them."""

    def __init__(self, shape: RecurrentShape, tensors: dict[str, torch.Tensor]):
        self.shape, self.w = shape, {name: tensor.numpy() for name, tensor in tensors.items()}

    def gates(self, name: str) -> list[np.ndarray]:
        return np.split(self.w[name], self.shape.gates)

    def cell(self, name: str, remembered: Any, x: np.ndarray, c: np.ndarray | None = None) -> Any:
        W, V, b = (self.gates(f"{name}.{part}") for part in "WVb")
        U = self.gates(f"{name}.U") if c is not None else [np.zeros((1, 1))] * len(W)
        context = c if c is not None else np.zeros(1)
        if self.shape.cell == "gru":
            h = remembered
            u = sigma(W[0] @ h + V[0] @ x + U[0] @ context + b[0])
            r = sigma(W[1] @ h + V[1] @ x + U[1] @ context + b[1])
            k = np.tanh(r * (W[2] @ h) + V[2] @ x + U[2] @ context + b[2])
            return u * h + (1 - u) * k
        h, memory = remembered
        i, f, o = (sigma(W[g] @ h + V[g] @ x + U[g] @ context + b[g]) for g in range(3))
        memory = f * memory + i * np.tanh(W[3] @ h + V[3] @ x + U[3] @ context + b[3])
        return o * np.tanh(memory), memory

    def zeros(self, width: int) -> Any:
        zero = np.zeros(width)
        return zero if self.shape.cell == "gru" else (zero, zero)

    def hidden(self, remembered: Any) -> np.ndarray:
        return remembered if self.shape.cell == "gru" else remembered[0]

    def run(self, name: str, xs: list[np.ndarray], width: int) -> list[np.ndarray]:
        remembered, out = self.zeros(width), []
        for x in xs:
            remembered = self.cell(name, remembered, x)
            out.append(self.hidden(remembered))
        return out

    def encode(self, ids: list[int]) -> list[np.ndarray]:
        shape = self.shape
        xs = [self.w["source.embedding"][i] for i in ids]
        for layer in range(shape.source_layers):
            name = f"source.{layer}"
            if layer < shape.bidirectional_layers:
                left = self.run(f"{name}.forward", xs, shape.source_width)
                right = self.run(f"{name}.backward", xs[::-1], shape.source_width)[::-1]
                xs = [np.concatenate(pair) for pair in zip(left, right, strict=True)]
            else:
                found = self.run(f"{name}.forward", xs, 2 * shape.source_width)
                xs = [x + h if shape.residual else h for x, h in zip(xs, found, strict=True)]
        return xs

    def decode(self, source: list[np.ndarray], ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
        w, shape = self.w, self.shape
        bottom, extra, top = self.zeros(shape.width), [self.zeros(shape.width)] * shape.extra_layers, None
        top = self.zeros(shape.width)
        outputs, alignments = [], []
        for i in ids:
            x = w["target.embedding"][i]
            query = np.tanh(w["target.attention.Wa"] @ self.hidden(bottom) + w["target.attention.Va"] @ x)
            d = np.array([query @ np.tanh(w["target.attention.Ua"] @ s) for s in source])
            alpha = np.exp(d) / np.exp(d).sum()
            c = sum(a * s for a, s in zip(alpha, source, strict=True))
            bottom = self.cell("target.bottom", bottom, x, c)
            h = self.hidden(bottom)
            for layer in range(shape.extra_layers):
                extra[layer] = self.cell(f"target.extra.{layer}", extra[layer], h)
                h = h + self.hidden(extra[layer]) if shape.residual else self.hidden(extra[layer])
            h = self.fully_connected(h)
            if shape.top == "tanh":
                h = np.tanh(w["target.top"] @ h)
            elif shape.top == "recurrent":
                top = self.cell("target.top", top, h)
                h = self.hidden(top)
            outputs.append(h)
            alignments.append(alpha)
        return np.stack(outputs), np.stack(alignments)

    def fully_connected(self, hB: np.ndarray) -> np.ndarray:
        W = {k: self.w[f"target.fc.{k}"] for k in range(1, self.shape.fc_layers + 1)}
        if not W:
            return hB
        h = {1: relu(W[1] @ hB)}
        for k in range(2, self.shape.fc_layers + 1, 2):
            h[k] = relu(W[k] @ h[k - 1])
            h[k + 1] = relu(W[k + 1] @ h[k] + h[k - 1])
        return h[self.shape.fc_layers]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_network_is_the_papers_equations(name: str) -> None:
    shape = tiny(name)
    tensors = weights_of(shape, seed=int(name[1]))
    plain = Plain(shape, tensors)
    model = Recurrent(shape, tensors, dtype=torch.float64)
    source = Source(np.array([[3, 4, 5, 6, 0], [7, 8, 0, 9, 9]]), np.array([5, 3]))
    targets = np.array([[2, 5, 9, 12, 1, 3], [2, 7, 7, 4, 6, 8]])
    state = model.start(model.encode(source), targets[:, :1])
    hidden = model.step(state, targets).numpy()
    alignment = model.align(source, targets[:, 1:], np.array([2]))
    for row, length in enumerate(source.lengths):
        expected, attention = plain.decode(plain.encode(source.ids[row, :length].tolist()), targets[row].tolist())
        assert np.abs(hidden[row] - expected).max() < 1e-12
        assert np.abs(alignment[row, :, :length] - attention[:-1]).max() < 1e-12
        assert (alignment[row, :, length:] == 0).all()
    assert model.outputs[0].weight is model.network.tensors["output.V"]


def test_a_wrong_reset_gate_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: Cho's gate, which scales the state and not its product, differs from the paper's r * (W h)."""

    def cho(state: torch.Tensor, from_state: torch.Tensor, from_input: torch.Tensor) -> torch.Tensor:
        update, reset, candidate = from_input.chunk(3, -1)
        own_update, own_reset, own_candidate = from_state.chunk(3, -1)
        u, r = torch.sigmoid(update + own_update), torch.sigmoid(reset + own_reset)
        return torch.lerp(torch.tanh(candidate + own_candidate * r.mean(-1, keepdim=True)), state, u)

    monkeypatch.setitem(recurrent.CELLS, "gru", cho)
    with pytest.raises(AssertionError):
        test_the_network_is_the_papers_equations("S1")


def test_skips_come_every_other_layer_before_the_relu() -> None:
    """With W of the even layers zero, an odd layer passes on the odd one below it; without skips nothing would arrive."""
    shape = replace(tiny("S4"), fc_layers=7)
    tensors = weights_of(shape, 5)
    for layer in (2, 4, 6):
        tensors[f"target.fc.{layer}"].zero_()
    hidden = torch.randn(2, 3, shape.width, dtype=torch.float64)
    network = Network(shape, tensors)
    first = torch.relu(hidden @ tensors["target.fc.1"].T)
    assert torch.equal(network._fully_connected(hidden), first.clamp_max(RELU_LIMIT))
    assert (first > 0).any() and (first == 0).any()


def test_relus_are_clipped_to_ten() -> None:
    shape = tiny("S4")
    tensors = weights_of(shape, 6, scale=30.0)
    found = Network(shape, tensors)._fully_connected(torch.ones(1, 1, shape.width, dtype=torch.float64))
    assert found.max() == RELU_LIMIT and found.min() >= 0


def test_systems_are_table_2() -> None:
    assert SYSTEMS == ("S1", "S2", "S3", "S4", "S5", "S6", "S7")
    shapes = {name: system(name) for name in SYSTEMS}
    assert all((s.source_width, s.width, s.fc_width, s.vocabulary) == (512, 1024, 768, 80_000) for s in shapes.values())
    assert {n: s.fc_layers for n, s in shapes.items()} == dict(zip(SYSTEMS, (0, 0, 3, 7, 7, 15, 0), strict=True))
    assert {n: s.extra_layers for n, s in shapes.items()} == dict(zip(SYSTEMS, (0, 1, 0, 0, 0, 0, 7), strict=True))
    assert shapes["S5"].tensors["target.top.V"] == (3 * 1024, 768)
    assert shapes["S4"].tensors["target.top"] == (1024, 768)
    assert shapes["S7"].tensors["target.bottom.U"] == (4 * 1024, 1024) and shapes["S7"].source_layers == 8
    small = system("S4", "small", source_vocabulary=8_000, vocabulary=8_000)
    assert (small.source_width, small.width, small.fc_width, small.embedding) == (128, 256, 192, 128)


@pytest.mark.parametrize("name", SYSTEMS)
def test_first_weights_fit_the_shape_and_the_clip(name: str) -> None:
    weights = first_weights(tiny(name), 1)
    assert {n: tuple(t.shape) for n, t in weights.items()} == tiny(name).tensors
    assert all(t.abs().max() <= 1 for t in weights.values())
    again, other = first_weights(tiny(name), 1), first_weights(tiny(name), 2)
    assert all(torch.equal(weights[n], again[n]) for n in weights)
    assert not torch.equal(weights["output.V"], other["output.V"])


def test_a_shape_survives_its_config() -> None:
    for name in SYSTEMS:
        assert RecurrentShape.from_config(tiny(name).config) == tiny(name)
    config = tiny("S1").config
    with pytest.raises(ValueError, match=r"lacks the setting 'cell' that a fastdecode_recurrent model needs"):
        RecurrentShape.from_config({k: v for k, v in config.items() if k != "cell"})
    with pytest.raises(ValueError, match=r"config.json is damaged: Unknown cell .*got 'rnn'. Use one of gru, lstm"):
        RecurrentShape.from_config(config | {"cell": "rnn"})
    for wrong in (0, -1, 1.5, "6", True, None):
        with pytest.raises(ValueError, match=r"width of a recurrent model must be a whole number from 1: got"):
            RecurrentShape.from_config(config | {"width": wrong})
    with pytest.raises(ValueError, match=r"bidirectional_layers must be from 1 to source_layers = 3: got 4"):
        replace(tiny("S1"), bidirectional_layers=4)
    with pytest.raises(ValueError, match=r"need a top: got fc_layers=3 and top='none'. Use top='tanh'"):
        replace(tiny("S3"), top="none")
    with pytest.raises(ValueError, match=r"Unknown system or size: got 'S8', 'paper'. Use one of S1"):
        system("S8")


def test_what_a_recurrent_model_cannot_do_is_refused() -> None:
    shape = tiny("S1")
    model = Recurrent(shape, weights_of(shape, 1), dtype=torch.float64)
    source = Source(np.array([[3, 4, 0]]), np.array([3]))
    prefix = np.array([[2]])
    state = model.start(model.encode(source), prefix, 4)
    with pytest.raises(ValueError, match="feeds one slot after another: got `visible`"):
        model.step(state, np.array([[2, 3]]), np.ones((1, 2, 2), dtype=bool))
    with pytest.raises(ValueError, match=r"must stand at the end of their row: got \[\[-1, 3\]\]"):
        model.step(state, np.array([[-1, 3]]))
    with pytest.raises(ValueError, match="needs 5 slots, the state holds 4. Lower max_length"):
        model.step(state, np.array([[2, 3, 4, 5, 6]]))
    model.step(state, np.array([[2, 3, 4]]))
    with pytest.raises(ValueError, match=r"keeps the first slots of a step, in their order: got \[\[1, 2\]\]"):
        state.keep(np.array([[1, 2]]))
    with pytest.raises(ValueError, match=r"which fed \[3\]: got \[\[0, 1, 2, 3\]\]"):
        state.keep(np.array([[0, 1, 2, 3]]))
    state.keep(np.array([[0, 1, -1]]))
    assert state.lengths.tolist() == [2]
    with pytest.raises(ValueError, match=r"truncate needs lengths from 0 to \[2\], got \[3\]"):
        state.truncate(np.array([3]))
    with pytest.raises(ValueError, match="The source is too long: got 41 tokens, this model allows 40"):
        model.encode(Source(np.ones((1, 41), dtype=np.int64), np.array([41])))
