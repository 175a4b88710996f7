"""Where both halves meet: pairs across the middle, repetitions, and the loss of each half."""

from typing import Any

import numpy as np
import pytest

from fastdecode_lib import registry
from fastdecode_lib.decoding.folding import folded, place
from fastdecode_lib.papers.double_token_decoding.junction import MEASURES, half_losses, junction, middle
from fastdecode_lib.papers.double_token_decoding.systems import DIRECTION, model_of
from fastdecode_lib.papers.run import CorpusRun, Scale

TINY = CorpusRun(Scale.TINY)


@pytest.mark.parametrize(
    ("tokens", "reference", "counts"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], [(1, 1), (2, 2), (0, 1)]),
        ([1, 2, 2, 3], [1, 2, 3], [(0, 1), (2, 2), (1, 1)]),
        ([9, 1, 2, 1, 2, 8], [1, 2], [(0, 1), (2, 4), (1, 1)]),
        ([1, 2, 1, 2], [1, 2], [(0, 1), (2, 2), (1, 1)]),
        ([1, 2, 3, 4, 5], [3, 4], [(1, 1), (0, 3), (0, 1)]),
        ([1, 2, 3], [1, 2, 3], [(0, 0), (2, 2), (0, 0)]),
        ([], [1], [(0, 0), (0, 0), (0, 0)]),
    ],
)
def test_the_middle_of_an_output(tokens: list[int], reference: list[int], counts: list[tuple[int, int]]) -> None:
    assert middle(tokens, reference) == counts


@pytest.mark.parametrize("preset", ["single-l2r", "bidirectional"])
@pytest.mark.parametrize("number", [1, 4, 5])
def test_losses_are_those_of_step_after_step(preset: str, number: int) -> None:
    model = model_of(preset, Scale.TINY)
    network: Any = model.network
    projection = registry.projection("exact", network)
    text, reference = "The train is late.", list(range(5, 5 + number))
    rules = model.constraints(DIRECTION[1])
    group = network.tokens_per_step
    slots = folded(reference, rules.end[0], group, network.both_ends)
    state = network.start(network.encode(model.encode([text], *DIRECTION)), np.array([rules.prefix]))
    fed, expected = list(rules.prefix[-group:]), {"left": 0.0, "right": 0.0}
    for first in range(0, len(slots), group):
        hidden = network.step(state, np.array([fed]))[0]
        scored = projection.top_k(hidden, network.outputs[0].vocabulary, normalise=True)
        for offset in range(group):
            token, where = slots[first + offset], place(first + offset, network.both_ends)
            rank = int(np.flatnonzero(scored.ids[offset] == token)[0])
            loss = float(scored.log_normaliser[offset] - scored.scores[offset, rank])
            if token != rules.end[0]:
                at = where if where >= 0 else number + 1 + where
                expected["left" if at < (number + 1) // 2 else "right"] += loss
        fed = slots[first : first + group]
    (left, in_left), (right, in_right) = half_losses(model, network.outputs[0].weight.unpacked(), text, reference)
    assert (in_left, in_right) == ((number + 1) // 2, number // 2)
    assert (left, right) == (
        pytest.approx(expected["left"], rel=1e-4),
        pytest.approx(expected["right"], rel=1e-4, abs=1e-6),
    )


def test_the_table_has_a_row_for_each_set_and_measure() -> None:
    frame = junction(TINY)
    assert len(frame) == 3 * len(MEASURES) and frame["difference"].notna().all()
    assert np.allclose(frame["difference"], frame["bidirectional"] - frame["single"])
    assert (frame["difference_low"] <= frame["difference_high"]).all()
