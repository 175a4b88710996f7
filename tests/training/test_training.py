"""Training: resumable to the bit, one trainer in a folder at a time, and what it exports is an ordinary model."""

import dataclasses
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fastdecode_lib import cli
from fastdecode_lib.text.corpus import CorpusNotFound, Tatoeba, corpus_folder, join_pairs
from fastdecode_lib.training import marian
from fastdecode_lib.training import run as training_run
from fastdecode_lib.training.learner import Examples, SmoothedLoss, batches
from fastdecode_lib.training.presets import PRESETS, Preset
from fastdecode_lib.training.stacked_muon import StackedMuon
from fastdecode_lib.training.train import train

NAME = "micro"
MICRO = Preset(
    name=NAME,
    directions=(("en", "de"), ("de", "en")),
    vocabulary=60,
    encoder_layers=1,
    decoder_layers=1,
    width=16,
    heads=2,
    feed_forward=24,
    max_positions=48,
    dropout=0.1,
    tokens_per_update=400,
    peak_rate=0.02,
    warm_up=8,
    evaluate_every=1000,
    dev_single=4,
    dev_joined=2,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write_corpus(tmp_path_factory.mktemp("corpus") / "data")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests keep their priority and their threads."""
    monkeypatch.setitem(PRESETS, NAME, MICRO)
    monkeypatch.setattr(os, "nice", lambda _: 0)


def run(folder: Path, corpus: Path, stop_at: int | None = None, **settings: Any) -> Path:
    return train(NAME, data=corpus, folder=folder, stop_at=stop_at, progress=False, **settings)


def checkpoint(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / NAME / "checkpoint.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# ------------------------------------------------------------------------------------------------------------ training


def test_resumed_training_is_the_same_to_the_bit(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "whole", corpus, 6)
    run(tmp_path / "parts", corpus, 3)
    assert not same(checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "parts"))

    step = training_run.Run.step

    def killed(self: Any, rows: np.ndarray) -> tuple[float, int]:
        if self.update == 5:
            raise KeyboardInterrupt
        return step(self, rows)

    monkeypatch.setattr(training_run.Run, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", corpus, 6)
    monkeypatch.setattr(training_run.Run, "step", step)
    torch.manual_seed(99)
    run(tmp_path / "parts", corpus, 6)
    assert same(checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "parts"))


def test_resuming_across_the_end_of_an_epoch(corpus: Path, tmp_path: Path) -> None:
    examples, _ = marian.prepare(MICRO, Tatoeba(corpus), _made(tmp_path / "one" / NAME), 1)
    epoch = len(batches(examples, MICRO.tokens_per_update, 1, 0))
    assert 5 < epoch < 120
    run(tmp_path / "one", corpus, epoch + 2)
    run(tmp_path / "two", corpus, epoch)
    run(tmp_path / "two", corpus, epoch + 2)
    assert same(checkpoint(tmp_path / "one"), checkpoint(tmp_path / "two"))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def test_a_run_that_is_done_stays_as_it_is(corpus: Path, tmp_path: Path) -> None:
    run(tmp_path, corpus, 2)
    before = checkpoint(tmp_path)
    run(tmp_path, corpus, 2)
    assert same(before, checkpoint(tmp_path))


def test_the_seed_decides(corpus: Path, tmp_path: Path) -> None:
    run(tmp_path / "a", corpus, 1, seed=1)
    run(tmp_path / "b", corpus, 1, seed=2)
    assert not same(checkpoint(tmp_path / "a"), checkpoint(tmp_path / "b"))


def test_loss_falls_and_the_export_is_an_ordinary_model(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import MarianMTModel, MarianTokenizer

    from fastdecode_lib import load, translate

    monkeypatch.setitem(PRESETS, NAME, dataclasses.replace(MICRO, evaluate_every=60, dropout=0.0, average=0.9))
    losses: list[float] = []
    step = training_run.Run.step

    def noted(self: Any, rows: np.ndarray) -> tuple[float, int]:
        loss, tokens = step(self, rows)
        losses.append(loss)
        return loss, tokens

    monkeypatch.setattr(training_run.Run, "step", noted)
    best = run(tmp_path, corpus, 60)
    assert len(losses) == 60 and np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])

    module = MarianMTModel.from_pretrained(best)
    tokenizer = MarianTokenizer.from_pretrained(best)
    assert module.dtype == torch.float32 and tokenizer.pad_token_id == MICRO.vocabulary - 1
    assert (module.get_input_embeddings().weight[tokenizer.pad_token_id] == 0).all()
    assert (module.final_logits_bias == 0).all()
    assert all(t.dtype in (torch.float16,) for t in load_file(best / "model.safetensors").values())
    assert not list(best.glob("*.bin"))

    model = load(str(best), device="cpu")
    text = Tatoeba(corpus).pairs("dev", "en", "de")[0][0]
    inputs = tokenizer(f">>deu<< {text}", return_tensors="pt")
    expected = module.generate(**inputs)[0, 1:].tolist()
    assert list(translate(model, text, target="de").tokens) == expected
    history = (tmp_path / NAME / "history.json").read_text()
    assert '"update": 60' in history and '"dev_chrf"' in history and '"en-de"' in history


def test_a_second_trainer_is_refused(corpus: Path, tmp_path: Path) -> None:
    with (_made(tmp_path / NAME) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match=r"Another trainer is running in .*\. Wait for it, or stop it first"):
            run(tmp_path, corpus, 1)
    assert not (tmp_path / NAME / "checkpoint.safetensors").exists()
    run(tmp_path, corpus, 1)


def test_side_by_side_one_failure_stops_its_pupils_alone(
    corpus: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The corpus has too few words for a vocabulary of 8,000 pieces, and enough for a model of words."""
    names, options = ["mask-predict", "single-l2r", "sharp-s4"], [f"--data={corpus}", f"--folder={tmp_path}"]
    assert cli.main(["train", *names, *options, "--jobs=2", "--stop-at=1"]) == 1
    out, err = capfd.readouterr()
    assert set(out.splitlines()) == {
        f"single-l2r: begun, see {tmp_path}/single-l2r/train.log",
        f"sharp-s4: begun, see {tmp_path}/sharp-s4/train.log",
        f"single-l2r: failed, see {tmp_path}/single-l2r/train.log",
        f"sharp-s4: trained, see {tmp_path}/sharp-s4/train.log",
    }
    assert err == "mask-predict: not begun, since its teacher single-l2r failed\n"
    assert "Traceback" not in (log := (tmp_path / "single-l2r" / "train.log").read_text()) and "fastdecode:" in log
    assert (tmp_path / "sharp-s4" / "checkpoint.safetensors").is_file() and not (tmp_path / "mask-predict").exists()
    assert cli.main(["train", *names, *options, "--jobs=0"]) == 2
    assert "--jobs counts processes: got 0" in capfd.readouterr().err
    assert cli.main(["train", "sharp-s44", "../sharp-s4", *options, "--jobs=2"]) == 2
    assert "Unknown model to train: got sharp-s44, ../sharp-s4." in capfd.readouterr().err
    assert not (tmp_path / "sharp-s44").exists() and not (tmp_path.parent / "sharp-s4").exists()


def test_who_ends_side_by_side_training_ends_its_trainers(corpus: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fastdecode_lib.cli", "train", "sharp-s1", "sharp-s4", "--jobs=2"]
    with subprocess.Popen([*command, f"--data={corpus}", f"--folder={tmp_path}"], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        begun = [parent.stdout.readline().decode() for _ in range(2)]
        trainers = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        parent.terminate()
        status = parent.wait(60)
    assert all("begun" in line for line in begun) and len(trainers) == 2 and status == 128 + signal.SIGTERM
    assert not any(Path(f"/proc/{trainer}").exists() for trainer in trainers)


def test_a_full_disk_leaves_the_old_checkpoint(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.torch

    run(tmp_path, corpus, 2)
    before, files = checkpoint(tmp_path), sorted(os.listdir(tmp_path / NAME))

    def full(_: object, path: Path, **__: object) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path, corpus, 4)
    monkeypatch.undo()
    monkeypatch.setitem(PRESETS, NAME, MICRO)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    assert same(before, checkpoint(tmp_path)) and sorted(os.listdir(tmp_path / NAME)) == files
    run(tmp_path, corpus, 3)


def test_rates_rise_stay_and_fall_to_zero() -> None:
    recipe = dataclasses.replace(MICRO, updates=1000, warm_up=100, constant=0.3)
    assert [recipe.rate(update) for update in (1, 50, 100, 300)] == [0.01, 0.5, 1.0, 1.0]
    assert recipe.decay_from == 300 and recipe.rate(301) < 1.0
    assert recipe.rate(650) == pytest.approx(351 / 701) and 0 < recipe.rate(1000) < 0.002
    former = dataclasses.replace(recipe, optimiser="adamw")
    assert [former.rate(update) for update in (50, 100, 400)] == [0.5, 1.0, 0.5]


def test_muon_trains_the_matrices_of_layers_alone(corpus: Path, tmp_path: Path) -> None:
    learner = marian.MarianLearner(MICRO, Tatoeba(corpus), _made(tmp_path / NAME), "cpu", 1)
    muon, adamw = (optimiser for optimiser, _ in training_run.Run(MICRO, learner, tmp_path, "cpu", 1).optimisers)
    names = {id(parameter): name for name, parameter in learner.parameters.items()}
    matrices, rest = ({names[id(p)] for p in o.param_groups[0]["params"]} for o in (muon, adamw))
    assert matrices | rest == set(learner.parameters) and not matrices & rest
    assert all(".layers." in name and name.endswith("weight") for name in matrices) and len(matrices) == 4 * 3 + 2 * 2
    assert "model.shared.weight" in rest
    former = dataclasses.replace(MICRO, optimiser="adamw")
    ((only, _),) = training_run.Run(former, learner, tmp_path, "cpu", 1).optimisers
    assert len(only.param_groups[0]["params"]) == len(learner.parameters)


def test_stacked_matrices_are_trained_as_one_by_one() -> None:
    def trained(kind: type[torch.optim.Optimizer], begun: list[torch.Tensor]) -> list[torch.nn.Parameter]:
        parameters = [torch.nn.Parameter(p.clone()) for p in begun]
        muon: Any = kind
        optimiser = muon(parameters, lr=0.02, weight_decay=0.01, momentum=0.95, adjust_lr_fn="original")
        generator = torch.Generator().manual_seed(3)
        for _ in range(3):
            for p in parameters[:-1]:
                p.grad = torch.randn(p.shape, generator=generator)
            optimiser.step()
        return parameters

    shapes = ((24, 24), (24, 24), (60, 24), (24, 60), (24, 24))
    begun = [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in shapes]
    pairs = zip(trained(torch.optim.Muon, begun), trained(StackedMuon, begun), begun, strict=True)
    moved = [((a - b).norm(), (a - p).norm()) for a, b, p in pairs]
    assert all(gap < 0.02 * way for gap, way in moved[:-1]) and moved[-1] == (0, 0)


def test_an_extended_run_is_the_longer_run_to_the_bit(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRESETS, NAME, dataclasses.replace(MICRO, evaluate_every=5, updates=10))
    run(tmp_path / "long", corpus, updates=20)
    run(tmp_path / "short", corpus, updates=10)
    assert PRESETS[NAME].trained(tmp_path / "short")
    run(tmp_path / "short", corpus, updates=20, stop_at=12)
    assert not PRESETS[NAME].trained(tmp_path / "short")
    run(tmp_path / "short", corpus)
    assert same(checkpoint(tmp_path / "long"), checkpoint(tmp_path / "short"))
    history = json.loads((tmp_path / "short" / NAME / "history.json").read_text())
    assert [(entry["update"], entry["planned"]) for entry in history] == [
        (5, 10), (10, 10), (5, 20), (10, 20), (15, 20), (20, 20),
    ]  # fmt: skip
    assert {entry["averaged"] for entry in history} <= {True, False}


def test_a_run_of_rates_without_a_plan_goes_on_from_its_end(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRESETS, NAME, dataclasses.replace(MICRO, optimiser="adamw", evaluate_every=5, updates=10))
    run(tmp_path / "long", corpus, updates=15)
    run(tmp_path / "short", corpus, updates=10)
    run(tmp_path / "short", corpus, updates=15)
    assert same(checkpoint(tmp_path / "long"), checkpoint(tmp_path / "short"))
    history = json.loads((tmp_path / "short" / NAME / "history.json").read_text())
    assert [(entry["update"], entry["planned"]) for entry in history] == [(5, 10), (10, 10), (15, 15)]


def test_the_length_changes_freely_before_the_decay(corpus: Path, tmp_path: Path) -> None:
    run(tmp_path / "one", corpus, updates=20)
    run(tmp_path / "two", corpus, updates=40, stop_at=5)
    run(tmp_path / "two", corpus, updates=20)
    assert same(checkpoint(tmp_path / "one"), checkpoint(tmp_path / "two"))
    with pytest.raises(
        ValueError,
        match=r"until .* falls: got 10 updates, .* at 20 of 20, without a checkpoint from before update 3",
    ):
        run(tmp_path / "one", corpus, updates=10)
    run(tmp_path / "one", corpus)


def test_a_plan_shortened_where_it_stopped_can_be_extended_again(corpus: Path, tmp_path: Path) -> None:
    run(tmp_path / "one", corpus, updates=40, stop_at=9)
    run(tmp_path / "one", corpus, updates=30)
    run(tmp_path / "one", corpus, updates=36)
    run(tmp_path / "two", corpus, updates=36)
    assert same(checkpoint(tmp_path / "one"), checkpoint(tmp_path / "two"))


def test_what_stopped_before_the_decay_goes_on_from_there_and_not_from_an_earlier_plan(
    corpus: Path, tmp_path: Path
) -> None:
    run(tmp_path / "one", corpus, updates=10)
    run(tmp_path / "one", corpus, updates=40, stop_at=8)
    run(tmp_path / "one", corpus, updates=40, stop_at=9)
    run(tmp_path / "two", corpus, updates=40, stop_at=9)
    assert same(checkpoint(tmp_path / "one"), checkpoint(tmp_path / "two"))


def test_a_run_that_is_not_over_is_not_called_trained(tmp_path: Path) -> None:
    best = tmp_path / MICRO.name / "best"
    assert MICRO.trained(tmp_path) is None
    best.mkdir(parents=True)
    (best / "config.json").write_text("{}")
    for update, found in ((5, None), (MICRO.updates, best)):
        (best.parent / "history.json").write_text(json.dumps([{"update": update, "dev_chrf": 1.0}]))
        assert MICRO.trained(tmp_path) == found


def test_a_run_begins_with_trained_weights_and_their_vocabulary(corpus: Path, tmp_path: Path) -> None:
    base = run(tmp_path / "base", corpus, 2, updates=2)
    vocabulary = (base / "vocab.json").read_bytes()
    on = {"begin_with": base, "updates": 40, "seed": 2}
    with pytest.raises(RuntimeError, match="killed"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_run.Run, "train", _killed)
        run(tmp_path / "on", corpus, **on)
    with pytest.raises(ValueError, match=r"before its first checkpoint.*--begin-with MODEL"):
        run(tmp_path / "on", corpus, 2, seed=2)
    run(tmp_path / "on", corpus, 1, **on)
    assert (tmp_path / "on" / NAME / "tokenizer" / "vocab.json").read_bytes() == vocabulary
    before, after = load_file(base / "model.safetensors"), checkpoint(tmp_path / "on")
    moved = [(after[f"model.{name}"] - before[name].float()).abs().max() for name in before if f"model.{name}" in after]
    assert 0 < max(moved) < 2 * MICRO.peak_rate  # one update away, which fresh weights are not
    run(tmp_path / "on", corpus, 3, seed=2)
    run(tmp_path / "whole", corpus, 3, **on)
    assert same(checkpoint(tmp_path / "on"), checkpoint(tmp_path / "whole"))
    other = run(tmp_path / "other", corpus, 1, updates=1, seed=3)
    with pytest.raises(ValueError, match="begun with another begun_with"):
        run(tmp_path / "on", corpus, 4, begin_with=other, seed=2)


def test_a_run_does_not_begin_with_weights_of_another_shape(corpus: Path, tmp_path: Path, monkeypatch: Any) -> None:
    base = run(tmp_path / "base", corpus, 1, updates=1)
    monkeypatch.setitem(PRESETS, NAME, dataclasses.replace(MICRO, feed_forward=32))
    with pytest.raises(ValueError, match=r"weights of its own shape: .*fc1.*has shape \(24, 16\).*the same preset"):
        run(tmp_path / "on", corpus, 1, begin_with=base)


def _killed(*_: Any) -> None:
    raise RuntimeError("killed")


def test_bad_input(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTDECODE_DATA", raising=False)
    with pytest.raises(ValueError, match="Unknown model to train: got 'x'. Use one of tatoeba-small"):
        train("x", folder=tmp_path)
    with pytest.raises(ValueError, match="needs stop_at >= 1, got 0. Leave it out"):
        run(tmp_path, corpus, 0)
    with pytest.raises(ValueError, match="Unsupported device: got 'meta'"):
        run(tmp_path, corpus, 1, device="meta")
    assert not (tmp_path / NAME / "tokenizer").exists() and not list(tmp_path.rglob("*.safetensors"))
    with pytest.raises(CorpusNotFound, match="no folder was named. Pass --data DIR or set FASTDECODE_DATA"):
        corpus_folder()
    with pytest.raises(CorpusNotFound, match="does not exist: got '.*none'. Pass an existing --data"):
        corpus_folder(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusNotFound, match="no files to train on: got .*empty.*Check --data or FASTDECODE_DATA"):
        run(tmp_path / "new", tmp_path / "empty", 1)
    run(tmp_path / "new", corpus, 1)  # it was not begun
    with pytest.raises(CorpusNotFound, match=r"A corpus file is missing: .*train.en-de.tsv.gz. Check --data"):
        Tatoeba(tmp_path).pairs("train", "en", "de")
    with pytest.raises(ValueError, match="Unknown split: got 'valid'. Use one of train, dev, test"):
        Tatoeba(corpus).pairs("valid", "en", "de")
    with pytest.raises(ValueError, match="no direction de-fr. Use one of en-de"):
        Tatoeba(corpus).pairs("dev", "de", "fr")


def test_a_damaged_corpus(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "tatoeba").mkdir()
    with gzip.open(tmp_path / "tatoeba" / "dev.en-de.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("one\teins\ntwo\n")
    with pytest.raises(ValueError, match=r"dev.en-de.tsv.gz, line 2: expected source<TAB>target, got 1 fields"):
        Tatoeba(tmp_path).pairs("dev", "en", "de")


def test_pairs_turn_round(corpus: Path) -> None:
    forward, back = (Tatoeba(corpus).pairs("test", *d) for d in (("en", "fr"), ("fr", "en")))
    assert back == [(b, a) for a, b in forward] and len(forward) == 8


# ------------------------------------------------------------------------------------------------------------- batches


def random_examples(seed: int, number: int) -> Examples:
    random = np.random.default_rng(seed)

    def side() -> tuple[np.ndarray, np.ndarray]:
        lengths = random.integers(1, 30, size=number)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return random.integers(0, 50, size=offsets[-1]).astype(np.uint16), offsets

    return Examples(*side(), *side())


@pytest.mark.parametrize(("number", "limit"), [(1, 100), (257, 60), (400, 1000)])
def test_batches_cover_every_row_once(number: int, limit: int) -> None:
    examples = random_examples(number, number)
    for epoch in (0, 1):
        found = batches(examples, limit, 3, epoch)
        assert sorted(np.concatenate(found)) == list(range(number))
        for rows in found:
            source, target = examples.batch(rows, 99)
            assert target.numel() <= limit and source.numel() <= limit
            assert target.shape[0] == source.shape[0] == len(rows)
            for i, row in enumerate(rows):
                start, end = examples.target_offsets[row : row + 2]
                assert target[i, : end - start].tolist() == examples.target[start:end].tolist()
                assert (target[i, end - start :] == 99).all()
    if number > 1:
        again, other = batches(examples, limit, 3, 0), batches(examples, limit, 3, 1)
        assert all(np.array_equal(a, b) for a, b in zip(batches(examples, limit, 3, 0), again, strict=True))
        assert not all(len(a) == len(b) and (a == b).all() for a, b in zip(again, other, strict=False))


@pytest.mark.parametrize("number", [2, 3, 4, 5, 7, 50, 101])
@pytest.mark.parametrize("seed", range(5))
def test_joined_pairs_use_every_pair_once(number: int, seed: int) -> None:
    pairs = [(f"s{i}", f"t{i}") for i in range(number)]
    joined = join_pairs(pairs, seed=seed)
    used: Counter[str] = Counter()
    for source, target in joined:
        sources, targets = source.split(), target.split()
        assert 2 <= len(sources) <= 4, "two to four pairs"
        assert [s[1:] for s in sources] == [t[1:] for t in targets], "both sides in the same order"
        used.update(sources)
    assert used == Counter({f"s{i}": 1 for i in range(number)})
    assert joined == join_pairs(pairs, seed=seed)


def test_joined_pairs_by_count() -> None:
    pairs = [(f"s{i}", f"t{i}") for i in range(9)]
    assert join_pairs(pairs, seed=1, count=0) == [] == join_pairs([], seed=1, count=3)
    joined = join_pairs(pairs, seed=1, count=50)
    assert len(joined) == 50
    used = Counter(s for source, _ in joined for s in source.split())
    assert len(used) == 9 and max(used.values()) - min(used.values()) <= 1 + 50 // 9
    assert join_pairs(pairs, seed=2, count=50) != joined


# ---------------------------------------------------------------------------------------------------------------- loss


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 37, 1100])
def test_gradient_equals_cross_entropy_with_label_smoothing(dtype: torch.dtype, smoothing: float, rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    classes = 23
    hidden = torch.randn(rows, 8, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(classes + 1, 8, generator=generator, dtype=dtype).requires_grad_()
    target = torch.randint(0, classes, (rows,), generator=generator)
    loss = SmoothedLoss.apply(hidden, weight, target, classes, smoothing)
    (3 * loss).backward()
    found = hidden.grad, weight.grad
    assert found[0] is not None and found[1] is not None
    assert (found[1][classes:] == 0).all(), "padding is no class and learns nothing"
    expected_hidden, expected_weight = hidden.detach().clone(), weight.detach().clone()
    expected_hidden.requires_grad_(), expected_weight.requires_grad_()
    logits = expected_hidden @ expected_weight[:classes].T
    smoothed = torch.nn.functional.cross_entropy(logits, target, label_smoothing=smoothing)
    (3 * smoothed).backward()
    tolerance = 1e-6
    assert torch.allclose(found[0], expected_hidden.grad, atol=1e-12 if dtype == torch.float64 else tolerance)
    assert torch.allclose(found[1], expected_weight.grad, atol=tolerance, rtol=1e-5)
    plain = torch.nn.functional.cross_entropy(logits, target)
    assert loss.item() == pytest.approx(plain.item(), rel=1e-5)


@pytest.mark.parametrize("with_bias", [False, True])
def test_smoothed_loss_in_half_precision_stays_near(with_bias: bool) -> None:
    """Under autocast products are rounded; the loss and its gradients keep the parameters' precision."""
    generator = torch.Generator().manual_seed(1)
    hidden, weight, bias = (
        torch.randn(size, generator=generator).requires_grad_() for size in ((700, 16), (23, 16), (23,))
    )
    given = [hidden, weight, *([bias] if with_bias else [])]
    target = torch.randint(0, 23, (700,), generator=generator)
    found = []
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = SmoothedLoss.apply(hidden, weight, target, 23, 0.1, *given[2:])
        found.append((loss.item(), torch.autograd.grad(loss, given)))
    (exact, wanted), (rounded, own) = found
    assert exact != rounded and rounded == pytest.approx(exact, rel=0.01)
    for one, other in zip(own, wanted, strict=True):
        assert one.dtype == torch.float32
        assert torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), 0) > 0.99


def test_smoothed_loss_with_a_bias() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (
        torch.randn(size, generator=generator).requires_grad_() for size in ((600, 8), (7, 8), (7,))
    )
    target = torch.randint(0, 7, (600,), generator=generator)
    SmoothedLoss.apply(hidden, weight, target, 7, 0.1, bias).backward()
    found = [part.grad.clone() for part in (hidden, weight, bias) if part.grad is not None]
    for part in (hidden, weight, bias):
        part.grad = None
    logits = torch.nn.functional.linear(hidden, weight, bias)
    torch.nn.functional.cross_entropy(logits, target, label_smoothing=0.1).backward()
    for own, part in zip(found, (hidden, weight, bias), strict=True):
        assert part.grad is not None and torch.allclose(own, part.grad, atol=1e-6)
