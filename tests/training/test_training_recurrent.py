"""Training a recurrent model: resumable to the bit, its weights clipped, and what it exports is loaded and translates."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from fastdecode_lib import cli, load, translate
from fastdecode_lib.checkpoints import hub
from fastdecode_lib.checkpoints.int8 import SCALE, dequantised, quantised
from fastdecode_lib.checkpoints.recurrent import system
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.checkpoints.weights import NOT_SHIPPED, Record
from fastdecode_lib.models.ensemble import Ensemble
from fastdecode_lib.runners import events, runner
from fastdecode_lib.store import read_json
from fastdecode_lib.text.corpus import Tatoeba
from fastdecode_lib.text.words import UNKNOWN
from fastdecode_lib.training import bundling
from fastdecode_lib.training import run as training_run
from fastdecode_lib.training.presets import PRESETS, RecurrentPreset
from fastdecode_lib.training.recurrent import RecurrentLearner
from fastdecode_lib.training.train import train
from fastdecode_lib.translation import Session

NAME = "micro-sharp"
SHAPE = dataclasses.replace(
    system("S3", source_vocabulary=40, vocabulary=40),
    embedding=12,
    source_width=8,
    width=16,
    attention=16,
    fc_width=12,
    max_positions=48,
)
MICRO = RecurrentPreset(
    name=NAME,
    shape=SHAPE,
    tokens_per_update=200,
    peak_rate=0.01,
    warm_up=10,
    evaluate_every=1000,
    dev_single=4,
    dev_joined=2,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write_corpus(tmp_path_factory.mktemp("corpus") / "data")


@pytest.fixture(autouse=True)
def micro(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, NAME, MICRO)


def run(folder: Path, corpus: Path, stop_at: int, **settings: Any) -> Path:
    return train(NAME, data=corpus, folder=folder, stop_at=stop_at, progress=False, **settings)


def same(a: Path, b: Path) -> bool:
    x, y = (load_file(folder / NAME / "checkpoint.safetensors") for folder in (a, b))
    return x.keys() == y.keys() and all(np.array_equal(x[name], y[name]) for name in x)


def test_resumed_training_is_the_same_to_the_bit(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(whole, corpus, 6)
    run(parts, corpus, 3)
    assert not same(whole, parts)
    step = training_run.Run.step

    def killed(self: Any, rows: np.ndarray) -> tuple[float, int]:
        if self.update == 5:
            raise KeyboardInterrupt
        return step(self, rows)

    monkeypatch.setattr(training_run.Run, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        run(parts, corpus, 6)
    monkeypatch.setattr(training_run.Run, "step", step)
    torch.manual_seed(99)
    run(parts, corpus, 6)
    assert same(whole, parts)
    run(tmp_path / "other", corpus, 6, seed=2)
    assert not same(whole, tmp_path / "other")
    words = [(folder / NAME / "words" / "vocabulary.json").read_bytes() for folder in (whole, tmp_path / "other")]
    assert words[0] == words[1], "models of other seeds share their vocabularies"


def test_a_run_begins_with_trained_weights(corpus: Path, tmp_path: Path) -> None:
    base = run(tmp_path / "base", corpus, 2, updates=2)
    run(tmp_path / "on", corpus, 1, begin_with=base, updates=40, seed=7)
    before, after = (
        load_file(f) for f in (base / "model.safetensors", tmp_path / "on" / NAME / "checkpoint.safetensors")
    )
    assert all(np.abs(after[f"model.{name}"] - tensor).max() < 0.05 for name, tensor in before.items())
    assert (base / "vocabulary.json").read_bytes() == (tmp_path / "on" / NAME / "words/vocabulary.json").read_bytes()


def test_the_preset_has_its_own_seed(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "given", corpus, 1, seed=7)
    monkeypatch.setitem(PRESETS, NAME, dataclasses.replace(MICRO, seed=7))
    run(tmp_path / "own", corpus, 1)
    assert same(tmp_path / "given", tmp_path / "own")


def test_weights_are_clipped_after_each_update(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, NAME, dataclasses.replace(MICRO, peak_rate=0.6, warm_up=1))
    run(tmp_path, corpus, 4)
    weights = load_file(tmp_path / NAME / "checkpoint.safetensors")
    values = np.concatenate([weights[f"model.{name}"].ravel() for name in SHAPE.tensors if f"model.{name}" in weights])
    assert np.abs(values).max() == 1.0 and (np.abs(values) == 1.0).sum() > 10


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """The best checkpoint after 150 updates, and the losses on the way."""
    folder, losses = tmp_path_factory.mktemp("trained"), []
    step = training_run.Run.step

    def noted(self: Any, rows: np.ndarray) -> tuple[float, int]:
        loss, tokens = step(self, rows)
        losses.append(loss)
        return loss, tokens

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, NAME, dataclasses.replace(MICRO, evaluate_every=150, average=0.9))
        patch.setattr(training_run.Run, "step", noted)
        return run(folder, corpus, 150), losses


def test_loss_falls_and_the_export_is_loaded(trained: tuple[Path, list[float]], corpus: Path) -> None:
    best, losses = trained
    assert np.isfinite(losses).all() and np.mean(losses[-5:]) < 0.75 * np.mean(losses[:5])
    assert '"update": 150' in (best.parent / "history.json").read_text()
    model = load(str(best), device="cpu", engine="torch")
    assert model.directions == (("en", "fr"),) and model.network.architecture.fc_layers == 3
    rules = model.constraints()
    assert (rules.prefix, rules.end, rules.banned) == ((2,), (0,), (2,))
    words = "".join(fakes_pairs(corpus)[0][0])
    found = translate(model, words, max_length=20)
    assert found.trace.source["pieces"][-1] == "</s>" and found.tokens
    assert translate(model, words, decoder="gauss_seidel:block=3", max_length=20).tokens == found.tokens
    assert translate(model, words, decoder="window:width=4", max_length=20).tokens == found.tokens
    assert model.tokenizer.lexicon is not None  # type: ignore[attr-defined]


def fakes_pairs(corpus: Path) -> list[tuple[str, str]]:
    from fastdecode_lib.text.corpus import Tatoeba

    return Tatoeba(corpus).pairs("dev", "en", "fr")


def test_the_lexicon_translates(trained: tuple[Path, list[float]]) -> None:
    model = load(str(trained[0]), device="cpu", engine="torch")
    text: Any = model.tokenizer
    for word in ("ban", "dora", "kisti"):
        assert text._translation(word) == f"le{word}"
    assert text._translation("unheard") == "unheard"


def test_translations_have_no_unknown_words(
    trained: tuple[Path, list[float]], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [text for text, _ in fakes_pairs(corpus)[:6]]
    usual = translate(load(str(trained[0]), device="cpu"), texts[0], max_length=20).tokens[0]
    output = load_file(trained[0] / "model.safetensors")["output.V"]
    output[UNKNOWN] = 2 * output[usual]
    folder = broken(trained, tmp_path / "unsure", **{"output.V": output})
    for engine in ("torch", "compiled"):
        model: Any = load(folder, device="cpu", engine=engine)
        results = [translate(model, text, max_length=20) for text in texts]
        assert any(UNKNOWN in result.tokens for result in results), "nothing was tested"
        expected = model.tokenizer.texts(model.network, texts, [result.tokens for result in results])
        assert [result.text for result in results] == expected
        assert expected != [model.tokenizer.decode(result.tokens) for result in results]
        assert [result.trace.target["text"] for result in results] == expected
        assert [result.text for result in translate(model, texts, max_length=20)] == expected
        *_, end = events(Session.of(model, max_length=20), texts[0])
        assert end["target"]["text"] == expected[0]
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    assert cli.main(["translate", "--model", folder, "--device", "cpu", "--file", str(file), "--max-length", "20"]) == 0
    assert capsys.readouterr().out.splitlines() == expected


def test_the_panel_offers_what_the_words_allow(trained: tuple[Path, list[float]], corpus: Path) -> None:
    run = runner(load(str(trained[0]), device="cpu"))
    choices = run.choices()
    assert choices["projection"] == ["exact", "quantised", "lexical"] and choices["engine"] == [
        "auto",
        "compiled",
        "torch",
    ]
    settings = {"decoder": "beam", "projection": "lexical", "precision": "int16"}
    start, *_, end = run.run(fakes_pairs(corpus)[0][0], settings)
    assert (start["settings"]["projection"], start["settings"]["dtype"]) == ("lexical", "int16")
    assert end["event"] == "end" and "projection='lexical'" in run.code(settings | {"text": "A dog."})


def test_int8_checkpoints_are_read(trained: tuple[Path, list[float]], tmp_path: Path) -> None:
    folder = tmp_path / "int8"
    shutil.copytree(trained[0], folder)
    plain = load_file(folder / "model.safetensors")
    small = quantised(plain)
    save_file(small, folder / "model.safetensors")
    assert (folder / "model.safetensors").stat().st_size < 0.5 * (trained[0] / "model.safetensors").stat().st_size
    loaded: Any = load(str(folder), device="cpu", engine="torch").network
    for name, tensor in loaded.network.tensors.items():
        step = small[name + SCALE][:, None] if name + SCALE in small else 0.0
        assert (np.abs(tensor.numpy() - plain[name]) <= step / 2 + 1e-7).all()
    with pytest.raises(ValueError, match=r"has scales of shape \(1,\). It needs one for each row"):
        dequantised(small | {"output.V" + SCALE: np.ones(1, dtype=np.float32)})


def test_the_bundle_is_small_scored_and_described(
    trained: tuple[Path, list[float]], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundling, "ROOT", tmp_path)
    folder = bundling.bundle(NAME, data=corpus, folder=trained[0].parents[1])
    assert folder == tmp_path / "assets" / NAME
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.md",
        "config.json",
        "lexicon.safetensors",
        "model.safetensors",
        "vocabulary.json",
    ]
    assert {t.dtype.name for n, t in load_file(folder / "model.safetensors").items() if t.ndim == 2} == {"int8"}
    card = (folder / "README.md").read_text()
    assert (
        re.search(rf"`fastdecode train {NAME} --updates \d+ --seed 1 --stop-at \d+`", card)
        and "CC BY 2.0 FR" in card
        and "| joined |" in card
    )
    result = tmp_path / "results" / f"{NAME}.scores.laptop.json"
    first = read_json(result)
    result.write_text(json.dumps(first | {"provenance": {**first["provenance"], "date": "1970-01-01"}}))
    monkeypatch.setattr(bundling, "bundled", lambda: (NAME,))
    for _ in range(2):
        rows = bundling.score_again(NAME, data=corpus)
        assert rows == first["rows"] == read_json(result)["rows"]
        assert {row["sentences"] for row in rows} == {"single", "joined"}
        about = read_json(result)["provenance"]
        assert about["date"] != "1970-01-01"
        assert about["command"] == f"{first['provenance']['command']} && fastdecode train {NAME} --score"
        assert (about["update"], about["seed"]) == (first["provenance"]["update"], 1)
    higher = [row | {"chrf": row["chrf"] + 1} for row in first["rows"]]
    result.write_text(json.dumps(first | {"rows": higher}))
    with pytest.raises(ValueError, match=r"not those of its card and manifest: got chrf .* they say"):
        bundling.score_again(NAME, data=corpus)
    assert read_json(result)["rows"] == higher, "nothing is written"
    monkeypatch.setattr(bundling, "bundled", lambda: ())
    with pytest.raises(ValueError, match=f"got {NAME}, which is neither bundled nor in weights/"):
        bundling.score_again(NAME, data=corpus)
    with pytest.raises(ValueError, match="Unknown model to score: got 'nothing'"):
        bundling.score_again("nothing", data=corpus)


def broken(trained: tuple[Path, list[float]], folder: Path, **changes: Any) -> str:
    shutil.copytree(trained[0], folder)
    tensors = load_file(folder / "model.safetensors") | changes
    save_file({n: t for n, t in tensors.items() if t is not None}, folder / "model.safetensors")
    return str(folder)


def test_damaged_checkpoints_are_refused(trained: tuple[Path, list[float]], tmp_path: Path) -> None:
    infinite = np.full((SHAPE.width, SHAPE.fc_width), np.inf, dtype=np.float32)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"target.top": None}, r"lacks the tensor 'target.top' \(16, 12\)"),
        (
            {"target.top": np.zeros((16, 13), np.float32)},
            r"'target.top' has shape \(16, 13\), but config.json asks for \(16, 12\)",
        ),
        (
            {"target.top": np.zeros((16, 12), np.int8)},
            "'target.top' has type torch.int8, but weights must be floating point",
        ),
        ({"target.top": infinite}, "'target.top' holds values that are not finite"),
        (
            {"target.fc.4": np.zeros((12, 12), np.float32)},
            "holds tensors that a fastdecode_recurrent model .* does not have",
        ),
    ]
    for number, (changes, message) in enumerate(cases):
        with pytest.raises(CheckpointError, match=message):
            load(broken(trained, tmp_path / str(number), **changes), device="cpu", engine="torch")
    folder = broken(trained, tmp_path / "config")
    fakes.change_json(Path(folder) / "config.json", width=17)
    with pytest.raises(CheckpointError, match="has shape .* but config.json asks for"):
        load(folder, device="cpu", engine="torch")
    fakes.change_json(Path(folder) / "config.json", width=None)
    with pytest.raises(CheckpointError, match=r"lacks the setting 'width' .* with fastdecode train"):
        load(folder, device="cpu", engine="torch")
    folder = broken(trained, tmp_path / "words")
    (Path(folder) / "vocabulary.json").unlink()
    with pytest.raises(CheckpointError, match=r"vocabulary.json is missing. Copy it again"):
        load(folder, device="cpu", engine="torch")


def test_an_untrained_preset_names_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # without build/train
    record = Record("sharp-s2", "0123456789abcdef", NOT_SHIPPED, "fastdecode train sharp-s2")
    monkeypatch.setattr(hub, "read_manifest", lambda: [record])
    monkeypatch.setattr(hub, "find_weights", lambda name: None)
    with pytest.raises(
        CheckpointError, match=r"'sharp-s2' does not come .* Run `fastdecode train sharp-s2 --data DIR`, then .*/best"
    ):
        load("sharp-s2")
    with pytest.raises(CheckpointError, match=r"got 'sharp-s6'\..*`fastdecode train` lists what can be trained"):
        load("sharp-s6")


def test_presets_are_the_systems_and_an_ensemble_shares_its_shape() -> None:
    names = [*(f"sharp-s{number}" for number in range(1, 8)), "sharp-s4-2", "sharp-s4-3"]
    presets: list[Any] = [PRESETS[name] for name in names]
    assert [p.name for p in presets] == names and [p.seed for p in presets] == [1] * 7 + [2, 3]
    assert presets[3].shape == presets[7].shape == presets[8].shape
    assert len({(p.updates, p.tokens_per_update, p.joined_share, p.shape.vocabulary) for p in presets}) == 1


def test_an_ensemble_of_trained_models(trained: tuple[Path, list[float]], corpus: Path) -> None:
    model = load(str(trained[0]), device="cpu", engine="torch")
    twice = dataclasses.replace(model, network=Ensemble([model.network, model.network]))
    for text, _ in fakes_pairs(corpus)[:4]:
        assert translate(twice, text, max_length=20).tokens == translate(model, text, max_length=20).tokens


def test_dropout_changes_training_alone(corpus: Path, tmp_path: Path) -> None:
    dropping = dataclasses.replace(MICRO, dropout=0.5)
    learner, plain = (
        RecurrentLearner(p, Tatoeba(corpus), _work(tmp_path / str(i)), "cpu", 1)
        for i, p in enumerate((dropping, dataclasses.replace(MICRO, dropout=0.0)))
    )
    batch = learner.examples.batch(np.arange(8), learner.padding)
    losses = [float(learner.loss(*batch)) for _ in range(2)]
    assert losses[0] != losses[1] and float(plain.loss(*batch)) == float(plain.loss(*batch))
    weights = {name: tensor.detach() for name, tensor in learner.parameters.items()}
    assert learner.translate(weights, ["ban kira don."], "en", "fr") == plain.translate(
        weights, ["ban kira don."], "en", "fr"
    )


def _work(folder: Path) -> Path:
    folder.mkdir()
    return folder
