"""Training Imamura and Sumita's systems: what the loss sees, what is exported, loaded, translated and bundled."""

import dataclasses
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import torch

from fastdecode_lib import cli, load, translate
from fastdecode_lib.checkpoints import hub
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.contexts.feeding import Translations, hidden_and_labels
from fastdecode_lib.contexts.shards import ContextsError
from fastdecode_lib.core import Source
from fastdecode_lib.decoding.folding import unfolded
from fastdecode_lib.measuring.comparing import compare
from fastdecode_lib.models.transformer import Transformer
from fastdecode_lib.papers.shared.random_models import random_weights
from fastdecode_lib.projections.exact_torch import Exact
from fastdecode_lib.text.corpus import Tatoeba
from fastdecode_lib.training import bundling, train
from fastdecode_lib.training.learner import Examples, begin_as
from fastdecode_lib.training.multi_token import END, PADDING, GroupLearner, _slots, _untied
from fastdecode_lib.training.presets import PRESETS, SYSTEMS_002, GroupPreset
from fastdecode_lib.translation import Session

SMALL = {
    "vocabulary": 60,
    "width": 16,
    "heads": 2,
    "feed_forward": 24,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_positions": 64,
    "tokens_per_update": 400,
    "peak_rate": 5e-3,
    "warm_up": 20,
    "average": 0.9,
    "dropout": 0.0,
    "teacher": "",
    "dev_single": 6,
    "dev_joined": 2,
}
NAMES = ("single-l2r", "bidirectional", "double-r2l", "triple", "mask-predict")
TEXT = "ban kira don. listi bara."


def small(name: str, **more: Any) -> GroupPreset:
    preset = SYSTEMS_002[name]
    assert isinstance(preset, GroupPreset)
    return dataclasses.replace(preset, **(SMALL | more))


def whole(slots: list[int], tokens_per_step: int, both_ends: bool) -> list[int]:
    """The sentence that was folded into whole groups, with ends alone behind its tokens."""
    length = slots.index(END)
    assert len(slots) == tokens_per_step * (length // tokens_per_step + 1) and set(slots[length:]) == {END}
    return unfolded(slots[:length], both_ends)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write_corpus(tmp_path_factory.mktemp("corpus") / "data")


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The best checkpoints of small systems after 150 updates."""
    folder = tmp_path_factory.mktemp("trained")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.setitem(PRESETS, name, small(name, updates=150, evaluate_every=150))
            found[name] = train.train(name, data=corpus, folder=folder, progress=False)
    return found


def learner(name: str, corpus: Path, folder: Path, **more: Any) -> GroupLearner:
    return GroupLearner(small(name, **more), Tatoeba(corpus), folder, "cpu", 1)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_falls_and_every_weight_learns(name: str, corpus: Path, tmp_path: Path) -> None:
    made = learner(name, corpus, tmp_path)
    optimiser = torch.optim.Adam(made.parameters.values(), lr=5e-3)
    source, target = made.examples.batch(np.arange(40), PADDING)
    losses = []
    for _ in range(25):
        loss = made.loss(source, target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.8 * losses[0]
    idle = [n for n, p in made.parameters.items() if p.grad is None or not p.grad.abs().sum()]
    assert not idle, "positions and lengths learn too"


def test_targets_are_folded(corpus: Path, tmp_path: Path) -> None:
    for name in NAMES[:-1]:
        made = learner(name, corpus, tmp_path / name)
        preset, examples = made.preset, made.examples
        for a, b in zip(examples.target_offsets[:20], examples.target_offsets[1:21], strict=True):
            tokens = whole(examples.target[a:b].tolist(), preset.tokens_per_step, preset.order == "both_ends")
            text = made.pieces.decode(tokens[::-1] if preset.order == "right_to_left" else tokens)
            assert text.endswith(".") and "en" in text


def test_a_masked_model_begins_with_its_teacher(trained: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    """All weights are the teacher's but the length's, which the teacher does not have."""
    made = learner("mask-predict", corpus, tmp_path)
    length = made.parameters["length.weight"].clone()
    base = hub.find_checkpoint(trained["single-l2r"])
    begin_as(made.parameters, base)
    tensors = base.tensors()
    for name, parameter in made.parameters.items():
        expected = length if name == "length.weight" else tensors.get(name, tensors["lm_head.weight"])
        assert torch.equal(parameter.detach(), expected), name


def slot_by_slot(made: GroupLearner, weights: dict[str, torch.Tensor], row: int) -> float:
    """The mean log-probability of a target as the decoder's network sees it, a group at a time."""
    source, target = made.examples.batch(np.array([row]), PADDING)
    network = Transformer(made.architecture, _untied(weights), dtype=torch.float64)
    batch = Source(source.numpy(), np.array([source.shape[1]]))
    state = network.start(network.encode(batch), np.array([[PADDING] * network.tokens_per_step]))
    fed, total = [PADDING] * network.tokens_per_step, 0.0
    scorer = Exact.of(network).bind(batch)
    for first in range(0, target.shape[1], network.tokens_per_step):
        slots = target[0, first : first + network.tokens_per_step].tolist()
        total += scorer.log_probs(network.step(state, np.array([fed]))[0], np.array(slots)[:, None]).sum()
        fed = slots
    return total / target.shape[1]


def sharp(made: GroupLearner) -> dict[str, torch.Tensor]:
    """Weights of unit gain in place of a learner's first ones, under which every slot depends on what it sees."""
    drawn = random_weights(made.architecture, 5)
    with torch.no_grad():
        for name, parameter in made.parameters.items():
            parameter.copy_(torch.from_numpy(drawn[name]))
    return {name: parameter.detach().double() for name, parameter in made.parameters.items()}


@pytest.mark.parametrize("name", ["single-l2r", "bidirectional", "triple"])
def test_training_sees_what_decoding_sees(name: str, corpus: Path, tmp_path: Path) -> None:
    """The loss of a target is that of its slots, decoded group by group; with another mask or shift it is another."""
    made = learner(name, corpus, tmp_path)
    made.preset = dataclasses.replace(made.preset, label_smoothing=0.0)
    weights, group = sharp(made), made.preset.tokens_per_step
    for row in (3, 40, 90):
        source, target = made.examples.batch(np.array([row]), PADDING)
        with torch.no_grad():
            told = -made._group_loss(source, target).item()
        expected = slot_by_slot(made, weights, row)
        assert told == pytest.approx(expected, abs=2e-4)
        if group > 1:  # a plain causal mask would be another model
            kept, causal = (
                made.hidden_groups,
                torch.full_like(made.hidden_groups, torch.finfo(torch.float32).min).triu(1),
            )
            made.hidden_groups = causal
            with torch.no_grad():
                assert abs(-made._group_loss(source, target).item() - expected) > 2e-3
            made.hidden_groups = kept


@pytest.mark.parametrize("name", ["bidirectional", "mask-predict"])
def test_the_start_and_the_mask_learn_as_inputs(name: str, corpus: Path, tmp_path: Path) -> None:
    """Their row's gradient depends on where it is fed: torch freezes the row of a padding id unless it is told not to."""
    made = learner(name, corpus, tmp_path)
    sharp(made)

    def gradient() -> torch.Tensor:
        torch.manual_seed(1)
        loss = made.loss(*made.examples.batch(np.array([3]), PADDING))
        (found,) = torch.autograd.grad(loss, [made.parameters["model.shared.weight"]])
        return found[PADDING]

    free = gradient()
    inside = made.model.model
    for embedding in (inside.shared, inside.encoder.embed_tokens, inside.decoder.embed_tokens):
        assert embedding.padding_idx is None
        embedding.padding_idx = PADDING
    assert not torch.allclose(free, gradient(), atol=1e-6), "frozen as an input, it would have another"


@pytest.mark.parametrize("name", ["bidirectional", "mask-predict"])
def test_a_system_learns_from_its_teachers_translations(
    name: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The teacher is random: what it says depends on the source, and is not the reference."""
    monkeypatch.setitem(PRESETS, "single-l2r", small("single-l2r", updates=150))
    monkeypatch.setitem(PRESETS, name, small(name, updates=20, evaluate_every=20, teacher="single-l2r"))
    teaching, best = learner("single-l2r", corpus, tmp_path / "single-l2r"), tmp_path / "single-l2r" / "best"
    best.mkdir()
    teaching.export(sharp(teaching), best)
    (best.parent / "history.json").write_text('[{"update": 150, "dev_chrf": 1.0}]')
    assert load(str(train.train(name, data=corpus, folder=tmp_path, progress=False)), device="cpu").network

    made, teacher = learner(name, corpus, tmp_path / name, teacher="single-l2r"), load(str(best), device="cpu")
    taught = {}
    for row in range(0, len(made.examples.target_offsets) - 1, 7):
        source, target = (ids[0].tolist() for ids in made.examples.batch(np.array([row]), PADDING))
        text = made.pieces.decode(source[:-1])
        taught[text] = made.pieces.decode(target if made.preset.masked else whole(target, 2, True))
        assert taught[text] == translate(teacher, text).text
    assert len(set(taught.values())) > 2


def test_a_teacher_must_have_come_to_its_end(
    trained: dict[str, Path], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a teacher in training says would be kept for good."""
    folder = trained["single-l2r"].parents[1]
    monkeypatch.setitem(PRESETS, "single-l2r", small("single-l2r", updates=300, evaluate_every=150))
    monkeypatch.setattr("fastdecode_lib.training.presets.bundled", dict)
    for work in (folder / "half", tmp_path / "none"):
        work.mkdir()
        said = rf"teacher single-l2r has not been trained to its end: got {work.parent}/single-l2r.*fastdecode train single-l2r"
        with pytest.raises(ValueError, match=said):
            learner("bidirectional", corpus, work, teacher="single-l2r")
        assert not (work / "examples.npz").exists()


def test_a_bundled_model_teaches_where_none_is_trained(corpus: Path, tmp_path: Path) -> None:
    made = learner("bidirectional", corpus, tmp_path, teacher="single-l2r")
    source, target = (ids[0].tolist() for ids in made.examples.batch(np.array([3]), PADDING))
    said = translate(load("single-l2r"), made.pieces.decode(source[:-1])).text
    assert made.pieces.decode(whole(target, 2, True)) == made.pieces.decode(made.pieces.encode(said))


@pytest.mark.parametrize("name", ["bidirectional", "mask-predict"])
def test_pairs_for_which_the_teacher_says_nothing_are_left_out(
    name: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sparing(teacher: str, texts: list[str], direction: Any, pieces: Any, *_: object) -> list[list[int]]:
        return [[] if i % 3 == 0 else row for i, row in enumerate(pieces.encode(texts))]

    monkeypatch.setattr("fastdecode_lib.training.multi_token._teacher_outputs", sparing)
    made = learner(name, corpus, tmp_path, teacher="single-l2r")
    plain = learner(name, corpus, tmp_path / "plain", teacher="")
    number = len(made.examples.target_offsets) - 1
    assert number == len(made.examples.source_offsets) - 1 < 0.7 * len(plain.examples.target_offsets)
    assert made.preset.tokens_per_step <= np.diff(made.examples.target_offsets).min()
    for row in range(0, 60, 4):
        assert np.isfinite(made.loss(*made.examples.batch(np.arange(row, row + 4), PADDING)).item())


@pytest.mark.parametrize("name", ["bidirectional", "mask-predict"])
def test_a_run_begins_with_trained_weights_as_they_are_stored(
    name: str, trained: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    made, base = learner(name, corpus, tmp_path), hub.find_checkpoint(trained[name])
    begin_as(made.parameters, base)
    stored = base.tensors()
    assert all(torch.equal(p, stored.get(n, stored["lm_head.weight"]).float()) for n, p in made.parameters.items())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_exported_translates_alike_on_both_engines(name: str, trained: dict[str, Path]) -> None:
    outputs = [translate(load(str(trained[name]), device="cpu", engine=e), TEXT) for e in ("torch", "compiled")]
    assert outputs[0].tokens == outputs[1].tokens and outputs[0].text
    model = load(str(trained[name]), device="cpu")
    assert model.directions == (("en", "de"),) and model.engine == "compiled"
    assert model.constraints().prefix == (PADDING,) * model.network.tokens_per_step
    usual = {"single-l2r": "greedy", "mask-predict": "mask_predict"}.get(name, "double_token")
    assert outputs[0].trace.settings["decoder"] == usual


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_as_long_as_what_was_learned_from(name: str, trained: dict[str, Path]) -> None:
    """Positions that no target reached are noise, however many there are."""
    with np.load(trained[name].parent / "examples.npz") as examples:
        lengths = np.diff(examples["target_offsets"])
    model = load(str(trained[name]), device="cpu")
    limit, group = model.constraints().max_length, model.network.tokens_per_step
    assert (lengths + group <= limit).mean() >= 0.99 and limit <= lengths.max() + 2 * group
    assert limit < SMALL["max_positions"]  # type: ignore[operator]


@pytest.mark.parametrize("name", ["single-l2r", "bidirectional", "mask-predict"])
def test_an_output_of_the_longest_length_learned_is_within_reach(name: str, corpus: Path, tmp_path: Path) -> None:
    """Ten tokens and the end, which the targets of a masked model are without, behind the start."""
    made = learner(name, corpus, tmp_path)
    ten = np.array(_slots(made.preset, [5] * 10), dtype=np.uint16)
    made.examples = Examples.of([np.array([5, END], dtype=np.uint16)] * 20, [ten] * 20, 64)
    assert made._longest == {"single-l2r": 12, "bidirectional": 14, "mask-predict": 12}[name]


def test_a_backward_model_is_read_backwards(trained: dict[str, Path]) -> None:
    model = load(str(trained["double-r2l"]), device="cpu")
    tokenizer: Any = model.tokenizer
    (ids,) = tokenizer.output_ids(["banen kiraen."])
    assert tokenizer.decode(ids) == "banen kiraen." and tokenizer.pieces(ids)[0] == "."
    assert translate(model, TEXT).text.endswith(".")


def test_recording_feeds_whole_groups(trained: dict[str, Path]) -> None:
    """What is recorded equals what decoding saw, to the last bit."""
    model = load(str(trained["bidirectional"]), device="cpu")
    feeder = Translations(model)
    fed = feeder.fed("en-de", feeder.items("en-de", [TEXT]))
    ((hidden, labels),) = hidden_and_labels(model.network, model.exact, fed, 3)
    found = translate(model, TEXT)
    assert len(hidden) == len(fed.outputs[0]) == 2 * found.trace.calls
    assert whole(list(fed.outputs[0]), 2, True) == list(found.tokens[:-1])
    assert labels.shape == (len(hidden), 3)


def test_a_masked_model_is_not_recorded(trained: dict[str, Path]) -> None:
    with pytest.raises(ContextsError, match="recorded of causal models: got .*mask-predict.*, a masked model"):
        Translations(load(str(trained["mask-predict"]), device="cpu"))


def test_models_are_compared_with_the_decoder_that_fits(trained: dict[str, Path]) -> None:
    model = load(str(trained["bidirectional"]), device="cpu")
    frame = compare(model, [TEXT], decoders=("double_token", "double_token:size=2"), runs=3, progress=False)
    assert list(frame.name) == ["double_token", "double_token:size=2"] and frame.speedup[0] == 1
    assert list(compare(model, [TEXT], runs=3, progress=False).name) == ["double_token"]
    single = load(str(trained["single-l2r"]), device="cpu")
    drafted = f"window:draft=model,model={trained['bidirectional']}"
    frame = compare(single, [TEXT], decoders=("greedy", drafted), runs=3, progress=False)
    assert list(frame.agreement) == [1, 1] and frame.calls.isna().tolist() == [False, True], (
        "the draft's passes are not known"
    )


@pytest.mark.parametrize("name", ["bidirectional", "mask-predict"])
def test_only_what_greedy_decoding_can_drive_is_verified(name: str, trained: dict[str, Path]) -> None:
    model = load(str(trained[name]), device="cpu")
    for text in (TEXT, [TEXT, TEXT]):
        with pytest.raises(
            ValueError, match=r"greedy decoding, which cannot drive this model: got verify=True for .*Leave"
        ):
            translate(model, text, verify=True)
    session = Session.of(model)
    assert not session.has_greedy and session.translate(TEXT, verify=True).trace.greedy is None
    assert Session.of(load(str(trained["single-l2r"]), device="cpu")).has_greedy


def test_another_number_of_tokens_is_refused_before_any_work(
    trained: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(str(trained["bidirectional"]), device="cpu")
    for method in ("encode", "start", "step"):
        monkeypatch.setattr(model.network, method, lambda *_, **__: pytest.fail("the model was called"))
    for spec, said in (
        ("double_token:tokens=3", "trained for 2 tokens a step: got tokens=3"),
        ("greedy", "Use double_token"),
    ):
        with pytest.raises(ValueError, match=said):
            compare(model, [TEXT], decoders=("double_token", spec), runs=1, progress=False)


def test_another_models_output_is_a_draft(trained: dict[str, Path]) -> None:
    model = load(str(trained["single-l2r"]), device="cpu")
    greedy = translate(model, TEXT)
    found = translate(model, TEXT, decoder=f"window:width=6,draft=model,model={trained['bidirectional']}", verify=True)
    assert found.tokens == greedy.tokens and found.trace.greedy["identical"]  # type: ignore[index]
    itself = translate(model, TEXT, decoder=f"window:width=64,draft=model,model={trained['single-l2r']}")
    assert itself.tokens == greedy.tokens and itself.trace.calls == 1, "its own output is right in one pass"
    assert "model" in itself.trace.iterations[0].origins
    with pytest.raises(ValueError, match="needs the vocabulary and order"):
        translate(model, TEXT, decoder=f"window:draft=model,model={trained['double-r2l']}")


def test_a_draft_of_another_vocabulary_is_refused(trained: dict[str, Path]) -> None:
    model = load(str(trained["single-l2r"]), device="cpu")
    with pytest.raises(ValueError, match="needs the vocabulary and order of the one that verifies: tatoeba-small and"):
        translate(model, TEXT, decoder="window:draft=model,model=tatoeba-small")
    with pytest.raises(ValueError, match=r"needs a model that drafts, got none\. Name it: window:draft=model,model="):
        translate(model, TEXT, decoder="window:draft=model")
    with pytest.raises(ValueError, match="A model drafts for draft=model only: got draft='recycled'"):
        translate(model, TEXT, decoder="window:draft=recycled,model=tatoeba-small")


def test_the_command_line_takes_the_decoder_that_fits(
    trained: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["translate", "--model", str(trained["bidirectional"]), TEXT]) == 0
    assert capsys.readouterr().out.strip()
    assert cli.main(["translate", "--model", str(trained["bidirectional"]), "--decoder", "greedy", TEXT]) != 0
    assert "got a causal model of 2 tokens a step. Use double_token for this model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokens_per_step": 0}, "tokens_per_step must be a whole number from 1 on, got 0"),
        ({"order": "sideways"}, "order must be one of left_to_right, right_to_left, both_ends, got 'sideways'"),
        ({"masked": "no"}, "masked must be true or false, got 'no'"),
        ({"masked": True}, "a masked model has tokens_per_step 1, got 2"),
        ({"masked": True, "tokens_per_step": 1, "decoder_start_token_id": [2]}, "lacks the tensor 'length.weight'"),
        ({"decoder_start_token_id": [2]}, r"must list a start for each token a step, got \[2\]"),
        ({"max_position_embeddings": 32}, "has shape"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    trained: dict[str, Path], tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    import shutil

    folder = tmp_path / "broken"
    shutil.copytree(trained["bidirectional"], folder)
    fakes.change_json(folder / "config.json", **change)
    with pytest.raises(CheckpointError, match=said):
        load(str(folder), device="cpu")


def test_a_checkpoint_without_its_tokenizer_is_refused(trained: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "bare"
    shutil.copytree(trained["bidirectional"], folder)
    (folder / "fastdecode.json").unlink()
    with pytest.raises(CheckpointError, match=r"incomplete: fastdecode\.json is missing"):
        load(str(folder), device="cpu")


def test_a_trained_system_is_bundled_with_its_card(
    trained: dict[str, Path], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(bundling, "ROOT", tmp_path)
    monkeypatch.setitem(PRESETS, "bidirectional", small("bidirectional", updates=150, evaluate_every=150))
    made = bundling.bundle("bidirectional", data=corpus, folder=trained["bidirectional"].parents[1])
    card = (made / "README.md").read_text(encoding="utf-8")
    assert "two tokens a step, from both ends of the sentence" in card and "| single | 8 |" in card
    assert {p.name for p in made.iterdir()} == {
        "README.md", "config.json", "fastdecode.json", "model.safetensors", "source.spm",
    }  # fmt: skip
    assert load(str(made), device="cpu").network.tokens_per_step == 2
