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
    """The defaults of the commit that made it."""
    model, made = load("tatoeba-small", device="cpu"), {}
    for name in SPECS:
        (row,) = combinations({"float32": model}, "en", "de", ["greedy"], [name], "The train is late.", specs=SPECS)
        assert row.name == f"greedy + {name} + float32" and row.session is not None
        made[name] = row.session.projection
    assert (made["svd"].window, made["svd"].full, made["greedy_mips"].budget) == (64, 256, 512)
    assert (made["fgd"].neighbours, made["fgd"].search, made["fgd"].links) == (64, 128, 16)
    assert made["fgd"].index.hnsw.efConstruction == 200
    assert len(made["pca_mips"].offsets) - 1 == 16 and not made["pca_mips"].detours
    assert made["lsh_mips"].offsets.shape == (16, 257)
    assert (made["row_clusters"].probes, len(made["row_clusters"].offsets) - 1) == (8, 256)
