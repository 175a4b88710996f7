"""Drafts in passes and in time at tiny scale, and the grown model."""

import dataclasses
from typing import Any

import fakes
import numpy as np
import pytest

from fastdecode_lib import load
from fastdecode_lib.drafts.scores import BoundHead
from fastdecode_lib.drafts.sources import Draft
from fastdecode_lib.papers.combinations import drafts
from fastdecode_lib.papers.experiment import Scale
from fastdecode_lib.papers.shared.grown import grown, grown_head, grown_table
from fastdecode_lib.translation import Session

TEXTS = sorted(fakes.own_sentences()["en"], key=len)[:12]


@pytest.fixture(scope="module")
def model() -> Any:
    return load("tatoeba-small", device="cpu")


def test_drafts_change_no_output_and_heads_save_most() -> None:
    table = drafts.drafts(Scale.TINY)
    assert (table["identical"] == 1).all() and table["name"].is_unique
    assert set(table["draft"]) == set(drafts.DRAFTS) and set(table["set"]) == {"joined", "single", "technical"}
    assert (table["tokens_per_pass"] >= 1).all()
    wide = table[(table["width"] == 4) & (table["set"] == "technical")].set_index("draft")["tokens_per_pass"]
    assert wide["ngram+lexicon+head"] > wide["ngram+lexicon"] > 1 and wide["head"] > wide["recycled/pad"]


def test_time_is_of_the_same_outputs() -> None:
    found = drafts.draft_time(Scale.TINY)
    assert found["name"].is_unique and (found["identical"] == 1).all()
    assert set(found["set"]) == set(drafts.TIMED_SETS) and set(found["shape"]) == {drafts.BASE, drafts.LARGE}
    assert set(found.loc[found["precision"] == "float32", "projection"]) == {"exact", "quantised"}
    assert set(found.loc[found["precision"] == "int8", "projection"]) == {"exact"}
    plain = found[(found["draft"] == "greedy") & (found["projection"] == "exact")]
    assert (plain["speedup"] == 1).all() and np.allclose(plain["predicted"], 1) and (plain["cost"] == 1).all()
    assert (found["tokens_per_pass"] >= 1).all()
    same_passes = found.groupby(["shape", "precision", "set", "draft", "width"])["tokens_per_pass"].nunique()
    assert (same_passes == 1).all(), "the lossless projection changes no token, and so no pass"


# ------------------------------------------------------------------------------------------------------ grown models


@pytest.mark.parametrize("layers", [(4, 2), (5, 4)])
def test_a_grown_model_says_the_same(model: Any, layers: tuple[int, int]) -> None:
    large = grown(model, layers, 16_200, "float32")
    shape = large.network.architecture
    assert (shape.width, shape.decoder_layers, shape.vocabulary) == (512, layers[1], 16_200)
    small, other = (Session.of(one, "en", "de", "greedy").decode(TEXTS) for one in (model, large))
    assert [h.tokens for h in small] == [h.tokens for h in other]


def test_a_grown_head_drafts_the_same(model: Any) -> None:
    large = grown(model, (4, 3), 16_200, "float32")
    table, head = drafts._table_and_head(model)
    passes = {}
    for one, own, counted in (
        (model, head, table),
        (large, grown_head(head, 16_200), grown_table(table, 16_200)),
    ):
        bound = BoundHead(own, one.network.outputs[0], "de")
        window = drafts.Window(4, Draft("ngram+lexicon+head", counted, head=bound))
        session = dataclasses.replace(Session.of(one, "en", "de", "greedy"), decoder=window)
        passes[one.name] = drafts.count(session, TEXTS)["passes"].tolist()
    first, second = passes.values()
    assert np.mean(np.array(first) == np.array(second)) > 0.8, "but for rounding, the same drafts hold"


def test_only_what_can_grow_grows(model: Any) -> None:
    with pytest.raises(
        ValueError, match="to no fewer layers and tokens: got marian with 4 and 2 layers and 16000 tokens"
    ):
        grown(model, (4, 1), 16_000, "float32")
    with pytest.raises(ValueError, match="Only a Marian model grows"):
        grown(load("bidirectional", device="cpu"), (6, 6), 20_000, "float32")
