"""The cube at tiny scale: everything runs or says why not, and what must hold holds."""

from typing import Any

import numpy as np
import pytest

from fastdecode_lib import load, registry
from fastdecode_lib.combining import WIDTHS, Combination, Costs, combinations, costs, known_projections
from fastdecode_lib.experiments import Scale
from fastdecode_lib.experiments.combinations import AMOUNTS, DECODERS, MODELS, cube


@pytest.fixture(scope="module")
def table() -> Any:
    return cube(Scale.TINY)


def test_every_combination_runs_or_says_why_not(table: Any) -> None:
    amount = AMOUNTS[Scale.TINY]
    whole = table[table["kind"] != "gap"]
    each = len(DECODERS) * len(amount.projections) * len(amount.precisions)
    assert (whole.groupby("model").size() == each).all() and whole["name"].is_unique
    assert (whole["refused"].isna() == whole["speedup"].notna()).all()
    assert whole["refused"].dropna().str.len().min() > 20 and not whole["refused"].str.contains("/site-|/home").any()
    assert set(table["model"]) == set(MODELS)
    gaps = table[table["kind"] == "gap"]
    assert gaps["gap"].str.contains("fastdecode train").all()


def test_what_is_lossless_by_law_is_so(table: Any) -> None:
    lossless, keeps = (table[table[name].eq(True)] for name in ("lossless", "keeps_outputs"))
    assert (lossless["agreement"] == 1).all() and (keeps["as_plain"] == 1).all()
    assert set(lossless["projection"]) == {"exact", "quantised"} and set(lossless["precision"]) == {"float32"}
    assert len(keeps) > len(lossless) > 10


def test_the_parts_of_a_single_gain_are_that_gain(table: Any) -> None:
    plain = table[(table["decoder"] == "greedy") & (table["projection"] == "exact") & (table["speedup"].notna())]
    assert np.allclose(plain["product"], plain["speedup"])
    base = plain[plain["precision"] == "float32"]
    assert (base["speedup"] == 1).all() and np.allclose(base["predicted"], 1)
    assert table[table["decoder"] == "beam"]["predicted"].isna().all()


def test_a_sentence_costs_its_passes_at_their_width() -> None:
    prices = Costs(encoder=2.0, passes=np.array(WIDTHS, dtype=float), beside=0.5)
    assert prices.seconds(10, 10) == 2 + 10 * 1.5 and prices.seconds(10, 40) == 2 + 10 * 4.5


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
    assert set(registry.PROJECTIONS) < set(known_projections())
