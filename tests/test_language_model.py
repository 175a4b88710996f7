"""Language models: trained, resumed, exported, loaded; their probabilities, and every decoder on them."""

import gzip
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import torch

from fastdecode_lib import load
from fastdecode_lib.checkpoints.language import LanguageShape
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.core import Source, drain
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.decoding.jacobi import GaussSeidel, Hybrid, Jacobi
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.language_model import LanguageModel, load_language
from fastdecode_lib.models.language import Language
from fastdecode_lib.models.recurrent import first_weights
from fastdecode_lib.projections.exact_torch import Exact
from fastdecode_lib.text.corpus import CorpusNotFound, Novels
from fastdecode_lib.text.words import END, START, UNKNOWN
from fastdecode_lib.training import bundling
from fastdecode_lib.training.presets import PRESETS, LanguagePreset
from fastdecode_lib.training.train import train

NAME = "micro-novels"
MICRO = LanguagePreset(
    name=NAME,
    shape=LanguageShape(vocabulary=60, width=12, max_positions=40),
    tokens_per_update=300,
    peak_rate=0.02,
    warm_up=5,
    evaluate_every=10,
    dev_single=20,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "novels").mkdir()
    texts = fakes.own_sentences()["en"]
    for split, lines in (("train", texts * 3), ("valid", texts[::3]), ("test", texts[::4])):
        with gzip.open(folder / "novels" / f"{split}.txt.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True)
def micro(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, NAME, MICRO)


@pytest.fixture(scope="module")
def folder(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    patch = pytest.MonkeyPatch()
    patch.setitem(PRESETS, NAME, MICRO)
    work = tmp_path_factory.mktemp("trained")
    train(NAME, data=corpus, folder=work, updates=10, threads=1, progress=False)
    train(NAME, data=corpus, folder=work, updates=30, threads=1, progress=False)
    patch.undo()
    return work / NAME


@pytest.fixture
def model(folder: Path) -> LanguageModel:
    return load_language(str(folder / "best"))


def test_training_lowers_perplexity_and_resumes(folder: Path, corpus: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    whole = tmp_path / "whole"
    train(NAME, data=corpus, folder=whole, updates=30, threads=1, progress=False)
    a, b = (load_file(path / "checkpoint.safetensors") for path in (folder, whole / NAME))
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
    entries = fakes_json(folder / "history.json")
    history = [entry["dev_perplexity"] for entry in entries if entry["planned"] == 30]
    assert len(history) == 3 and history[-1] < history[0] < 61


def fakes_json(path: Path) -> Any:
    import json

    return json.loads(path.read_text(encoding="utf-8"))


def test_probabilities_are_those_of_the_network_word_by_word(model: LanguageModel) -> None:
    texts = ["The train is late.", "Ok", "A word that it never saw: zyzzyva!"]
    found = model.log_probs(texts)
    total = []
    for text, row in zip(texts, found, strict=True):
        ids = model.text.encode([text])[0]
        assert len(row) == len(ids) and ids[-1] == END
        state = model.network.start(model.network.encode(None), np.array([[START]]))
        before = START
        for token, said in zip(ids, row, strict=True):
            hidden = model.network.step(state, np.array([[before]]))[0, 0]
            weight, bias = model.network.outputs[0].weight, model.network.outputs[0].bias
            assert float(torch.log_softmax(weight @ hidden + bias, 0)[token]) == pytest.approx(said, abs=1e-5)
            before = token
            total.append(said)
    assert model.perplexity(texts) == pytest.approx(np.exp(-np.mean(total)))
    assert model.perplexity(np.array(texts)) == model.perplexity(text for text in texts) == model.perplexity(texts)
    with pytest.raises(
        ValueError, match=r"A text has at most \d+ words with its end: got 5001 in text 2, 'a a.*Divide it"
    ):
        model.perplexity([*texts[:1], "a " * 5000])
    assert UNKNOWN in model.text.encode(["zyzzyva"])[0]


@pytest.mark.parametrize("seed", range(15))
def test_every_decoder_runs_on_a_language_model(seed: int) -> None:
    """It has no source but the number of texts; lossless decoders agree with greedy in float64."""
    shape = LanguageShape(vocabulary=23, width=7, layers=1 + seed % 3, max_positions=30)
    weights = {name: 3 * tensor for name, tensor in first_weights(shape, seed).items()}
    network = Language(shape, weights, dtype=torch.float64)
    projection = Exact.of(network)
    nothing = Source(np.zeros((3, 0), np.int64), np.ones(3, np.int64))
    from fastdecode_lib.core import Constraints

    rules = Constraints((START, 3 + seed % 5), (END,), 12, banned=(START,))
    wanted = [h.tokens for h in drain(Greedy().iterate(network, projection, nothing, rules))]
    assert len(wanted) == 3 and len(set(wanted)) == 1
    for decoder in (
        Jacobi(),
        GaussSeidel(block=3),
        Hybrid(block=2),
        Window(width=4, draft="recycled/pad"),
        Beam(size=1),
    ):
        found = drain(decoder.iterate(network, projection, nothing, rules))
        assert [h.tokens for h in found] == wanted, decoder
    assert len(drain(Beam(size=3).iterate(network, projection, nothing, rules))) == 3


def test_it_is_bundled_in_bytes(folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "library"
    (root / "assets").mkdir(parents=True)
    (root / "results").mkdir()
    monkeypatch.setattr(bundling, "ROOT", root)
    made = bundling.bundle(NAME, data=corpus, folder=folder.parent)
    small, large = load_language(str(made)), load_language(str(folder / "best"))
    texts = [text for text in Novels(corpus).sentences("test") if len(text) < 120]
    assert small.perplexity(texts) == pytest.approx(large.perplexity(texts), rel=0.05)
    assert (made / "model.safetensors").stat().st_size < 0.5 * (folder / "best" / "model.safetensors").stat().st_size
    card = (made / "README.md").read_text(encoding="utf-8")
    rows = fakes_json(root / "results" / f"{NAME}.scores.laptop.json")["rows"]
    assert [row["name"] for row in rows] == ["dev", "test"] and f"{rows[1]['perplexity']:.1f}" in card


def test_bad_input(folder: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="'tatoeba-small' is a marian model, which is no language model"):
        load_language("tatoeba-small")
    with pytest.raises(
        CheckpointError, match="is a language model, .* Use fastdecode_lib.language_model.load_language"
    ):
        load(str(folder / "best"))
    with pytest.raises(ValueError, match="width of a language model must be a whole number from 1: got 0"):
        LanguageShape(width=0)
    with pytest.raises(ValueError, match="lacks the setting 'layers'"):
        LanguageShape.from_config({"vocabulary": 3, "width": 2, "max_positions": 4})
    with pytest.raises(ValueError, match="Unknown split: got 'valid'"):
        Novels(corpus).sentences("valid")
    with pytest.raises(CorpusNotFound, match=r"train.txt.gz"):
        Novels(tmp_path).sentences("train")
    assert MICRO.kind == "language" and PRESETS["novels-small"].corpus == "novels"
