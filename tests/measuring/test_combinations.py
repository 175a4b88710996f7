"""Combinations of decoder, projection and precision: what is promised, and what they should cost."""

import numpy as np
import pytest

from fastdecode_lib import load, registry
from fastdecode_lib.core import Measurement
from fastdecode_lib.measuring import combinations as combining
from fastdecode_lib.measuring.combinations import (
    WIDTHS,
    Combination,
    Costs,
    combinations,
    costs,
    known_projections,
)

TEXTS = ["The train is late.", "Where did you put my keys?", "It is raining again."]


def test_a_sentence_costs_its_passes_at_their_width() -> None:
    prices = Costs(encoder=2.0, passes=np.array(WIDTHS, dtype=float), overhead=0.5)
    assert prices.seconds(10, 10) == 2 + 10 * 1.5 and prices.seconds(10, 40) == 2 + 10 * 4.5
    assert prices.seconds(1, 100) == 2 + 100.5, "wider than any that was measured"


def test_costs_give_greedy_decoding_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever passes take, what is left of greedy decoding is beside them; and every pass really runs."""

    def measure(systems, sources, **_):
        made = []
        for number, one in enumerate(systems, 1):
            outputs = tuple(one.decode(source) for source in sources)
            assert (
                not one.name[-1].isdigit()
                or all(len(found) in WIDTHS for found in outputs)
                or "float32" in one.name[-7:]
            )
            made.append(Measurement(one.name, np.full(3, float(number)), outputs))
        seconds.update({m.name: float(m.seconds[0]) / len(sources) for m in made})
        return made

    seconds: dict[str, float] = {}
    monkeypatch.setattr(combining, "measure", measure)
    model = load("tatoeba-small", device="cpu")
    names = ("exact", "clustered", "lexical")
    found = combinations({"float32": model}, "en", "de", ["greedy", "jacobi"], names, TEXTS[0], max_length=9)
    prices = costs(found, TEXTS, runs=3)
    assert set(prices) == {(name, "float32") for name in names}
    for (projection, precision), own in prices.items():
        (session,) = [c.session for c in found if (c.decoder, c.projection) == ("greedy", projection)]
        steps = np.mean([len(hypothesis.tokens) for hypothesis in session.decode(TEXTS, batch=1)])
        assert own.seconds(steps, steps) == pytest.approx(seconds[f"greedy, {projection}, {precision}"])
        assert own.passes[3] == seconds[f"{projection}, {precision}, {WIDTHS[3]}"]


def test_a_union_promises_nothing() -> None:
    model = load("tatoeba-small", device="cpu")
    names = ("clustered", "clustered:shared=true", "svd:windw=3")
    own, shared, wrong = combinations(
        {"float32": model}, "en", "de", ["jacobi"], names, "The train is late.", max_length=6
    )
    assert own.keeps_outputs and not own.lossless and own.alone
    assert not shared.keeps_outputs and not shared.alone
    assert wrong.session is None and "windw" in wrong.refused
    assert not Combination("greedy", "exact", "float32", None).lossless
    assert costs([own, wrong], ["The train is late."], runs=1) == {}, (
        "without plain decoding there is nothing to read it off"
    )
    assert {*registry.PROJECTIONS, "clustered:shared=true"} == set(known_projections())
