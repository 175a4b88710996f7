"""Models trained for parallel decoding, small: tables at tiny scale, the grown model, and training on for a few updates."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import torch

from fastdecode_lib import load
from fastdecode_lib.drafts.finding import find_head
from fastdecode_lib.drafts.head import DraftHead
from fastdecode_lib.drafts.scores import BoundHead
from fastdecode_lib.drafts.sources import Draft
from fastdecode_lib.papers.combinations import drafts
from fastdecode_lib.papers.combinations.grown import grown, grown_head, grown_table
from fastdecode_lib.papers.experiment import Scale
from fastdecode_lib.training import bundling, for_drafting, presets, train
from fastdecode_lib.translation import Session

TEXTS = sorted(fakes.own_sentences()["en"], key=len)[:12]


@pytest.fixture(scope="module")
def model() -> Any:
    return load("tatoeba-small", device="cpu")


def test_drafts_change_no_output_and_heads_save_most() -> None:
    table = drafts.drafts(Scale.TINY)
    measured = table[table["kind"] == "measured"]
    assert (measured["identical"] == 1).all() and measured["name"].is_unique
    assert set(measured["draft"]) == set(drafts.DRAFTS) and set(measured["set"]) == {
        "joined",
        "single",
        "technical",
    }
    assert (measured["tokens_per_pass"] >= 1).all()
    own = measured[measured["model"] == "untouched"]
    wide = own[(own["width"] == 4) & (own["set"] == "technical")].set_index("draft")["tokens_per_pass"]
    assert wide["ngram+lexicon+head"] > wide["ngram+lexicon"] > 1 and wide["head"] > wide["recycled/pad"]
    gaps = table[table["kind"] == "gap"]
    assert gaps["gap"].str.contains("fastdecode train tatoeba-").all()
    assert set(table["model"]) == set(drafts.MODELS)


def test_quality_is_compared_with_the_untouched_model() -> None:
    table = drafts.tuned(Scale.TINY).set_index("name")
    assert table.loc["untouched, single", "bleu"] > 0 and table.loc["untouched, joined", "not_ended"] >= 0


def test_time_is_of_the_same_outputs() -> None:
    found = drafts.draft_time(Scale.TINY)
    assert set(found["model"]) == set(drafts.TIMED_DRAFTS) and found["name"].is_unique
    measured = found[found["kind"] == "measured"]
    assert (measured["identical"] == 1).all() and set(measured["set"]) == set(drafts.TIMED_SETS)
    table = measured[(measured["model"] == "untouched") & (measured["set"] == "joined")]
    plain = table[table["draft"] == "greedy"]
    assert (plain["speedup"] == 1).all() and np.allclose(plain["predicted"], 1) and (plain["cost"] == 1).all()
    by_shape = table.set_index(["shape", "draft"])["tokens_per_pass"].unstack("shape")
    assert set(by_shape) == {drafts.BASE, drafts.LARGE}
    assert (by_shape.min(axis=1) >= 1).all()


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
    path = find_head(model.checkpoint.folder, model.checkpoint.fingerprint)
    assert path is not None
    head, (table, _) = DraftHead.load(path), drafts._parts(model)
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


# ----------------------------------------------------------------------------------------------------- training on


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    fakes.write_corpus(folder)
    return folder


def micro(objective: str, **changes: Any) -> presets.DraftingPreset:
    return presets.DraftingPreset(
        name=f"micro-{objective}", objective=objective, own_sentences=80, tokens_per_update=120, updates=2,
        evaluate_every=2, dev_single=2, dev_joined=1, block=4, **changes,
    )  # fmt: skip


@pytest.mark.parametrize("objective", ["head", "consistency", "none"])
def test_training_goes_on_from_the_bundled_model(
    objective: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(for_drafting, "HELD_OUT", 4)
    monkeypatch.setitem(presets.PRESETS, f"micro-{objective}", micro(objective))
    best = train.train(f"micro-{objective}", data=corpus, folder=tmp_path, threads=1, progress=False)
    history = json.loads((best.parent / "history.json").read_text())
    tuned, base = load(str(best), device="cpu"), load("tatoeba-small", device="cpu")
    assert tuned.checkpoint.fingerprint != base.checkpoint.fingerprint and history[-1]["update"] == 2
    outputs = [[h.tokens for h in Session.of(one, "en", "de", "greedy").decode(TEXTS)] for one in (tuned, base)]
    assert np.mean([a == b for a, b in zip(*outputs, strict=True)]) > 0.5, "it begins as the bundled model"
    if objective == "head":
        assert history[-1]["tokens_per_pass"] > 1.5, "the head begins as the bundled one"
        session = Session.of(tuned, "en", "de", "window:width=4,draft=head")
        greedy = Session.of(tuned, "en", "de", "greedy")
        assert [h.tokens for h in session.decode(TEXTS[:4])] == [h.tokens for h in greedy.decode(TEXTS[:4])]
    with pytest.raises(ValueError, match="is trained to be measured, not to be bundled"):
        bundling.bundle(f"micro-{objective}", data=corpus, folder=tmp_path)


def test_consistency_learns_the_solution_of_a_block(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss falls where the state is the solution already: by hand, for one sentence."""
    monkeypatch.setattr(for_drafting, "HELD_OUT", 4)
    learner = for_drafting.DraftingLearner(micro("consistency"), for_drafting.Tatoeba(corpus), tmp_path, "cpu", 1)
    source, output = learner.own[5]
    sources, outputs = learner._padded([source]), learner._padded([output])
    torch.manual_seed(3)
    states = []
    behind = learner._behind

    def watched(model: Any, given: Any, fed: Any) -> Any:
        states.append(fed.clone())
        return behind(model, given, fed)

    monkeypatch.setattr(learner, "_behind", watched)
    total = learner._consistent(sources, outputs)
    assert torch.isfinite(total) and total.requires_grad
    right = torch.cat([torch.full_like(outputs[:, :1], learner.padding), outputs[:, :-1]], 1)
    first, last = states[0], states[-1]
    assert any((state == right).all() for state in states), "the ordinary loss is fed what was put out"
    assert ((last != right).sum() <= learner.preset.block - 1) and (first[0, 0] == learner.padding)
