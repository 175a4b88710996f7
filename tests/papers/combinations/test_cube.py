"""The cube at tiny scale: everything runs or says why not, and what must hold holds."""

from typing import Any

import numpy as np
import pytest

from fastdecode_lib import load
from fastdecode_lib.measuring.combinations import combinations
from fastdecode_lib.papers.combinations.cube import AMOUNTS, DECODERS, MODELS, SPECS, cube
from fastdecode_lib.papers.experiment import Scale


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
    assert gaps.empty or gaps["gap"].str.contains("fastdecode train").all()


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


def test_baselines_have_the_knobs_of_the_committed_result() -> None:
    model, text = load("tatoeba-small", device="cpu"), "The train is late."
    (row,) = combinations({"float32": model}, "en", "de", ["greedy"], ["row_clusters"], text, specs=SPECS)
    assert row.name == "greedy + row_clusters + float32" and row.session is not None
    assert row.session.projection.probes == 8 and row.session.projection.centroids.shape[0] == 256
