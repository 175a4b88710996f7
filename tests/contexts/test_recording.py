"""Recorded contexts are what the decoder saw, bit for bit, however and wherever they are made."""

import os
import pickle
import random as chance
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
from tqdm.auto import tqdm

from fastdecode_lib import load, store
from fastdecode_lib.contexts.feeding import Fed, IdRows, Item, References, Translations, hidden_and_labels
from fastdecode_lib.contexts.recording import record
from fastdecode_lib.contexts.shards import NOTE, Contexts, ContextsError
from fastdecode_lib.core import Model, Source, drain
from fastdecode_lib.decoding.autoregressive import Greedy
from fastdecode_lib.laws import cases
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.registry import projection
from fastdecode_lib.text.words import Vocabulary, WordText
from fastdecode_lib.translation import Session
from fastdecode_lib.workers import over

SENTENCES = fakes.own_sentences()


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.os, "fsync", lambda handle: None)


@pytest.fixture(scope="module")
def bundled() -> TranslationModel:
    return load("tatoeba-small", device="cpu", engine="compiled")


@pytest.fixture(scope="module")
def tiny(marian_folder: Path) -> TranslationModel:
    """The tiny Marian checkpoint on the compiled engine."""
    return load(str(marian_folder), device="cpu", engine="compiled")


class Spy:
    """A network that remembers the hidden vectors of each step."""

    def __init__(self, network: Any):
        self.network, self.seen = network, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.network, name)

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Any:
        hidden = self.network.step(state, tokens, visible)
        self.seen.append(np.asarray(hidden))
        return hidden


@dataclass
class Sourceless:
    """A language model for tests: a translation model whose source is always the same."""

    network: Any
    kind = "causal"
    tokens_per_step = 1
    both_ends = False

    def __post_init__(self) -> None:
        self.supports, self.outputs = self.network.supports, self.network.outputs
        self.engine, self.max_source, self.max_target = self.network.engine, 0, self.network.max_target

    def encode(self, source: Source | None) -> Any:
        rows = 1 if source is None else len(source)
        return self.network.encode(Source(np.tile([4, 7, 3], (rows, 1)), np.full(rows, 3)))

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> Any:
        return self.network.start(encoded, prefix, capacity)

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Any:
        return self.network.step(state, tokens, visible)


def language_model(seed: int = 0, numbers: str = "float32") -> IdRows:
    network = Sourceless(cases.random_case(seed, "marian", numbers).model)
    return IdRows(network, projection("exact", network), (2,), fingerprint=f"seed {seed}", name="tiny language model")


def random_rows(seed: int, count: int, vocabulary: int = 13, longest: int = 12) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(0, vocabulary, int(random.integers(1, longest))).tolist() for _ in range(count)]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def everything(contexts: Contexts) -> Any:
    return contexts.take(np.arange(len(contexts)))


# ----------------------------------------------------------------------------------------------------- what is recorded


@pytest.mark.parametrize("numbers", cases.NUMBERS)
@pytest.mark.parametrize("seed", range(12))
def test_fed_at_once_equals_fed_one_at_a_time(seed: int, numbers: str) -> None:
    """The law behind a recording: a slot's vector and labels do not depend on how its output is fed."""
    case = cases.random_case(seed, numbers=numbers)
    outputs = random_rows(seed, len(case.source))
    outputs[0] = outputs[0] if seed % 3 else []
    fed = Fed(case.source, case.constraints.prefix, outputs)
    top = 1 + seed % 13
    for row, (hidden, labels) in enumerate(hidden_and_labels(case.model, case.projection, fed, top)):
        state = case.model.start(case.model.encode(case.source.row(row)), np.array([case.constraints.prefix]))
        last = case.constraints.prefix[-1]
        assert len(hidden) == len(labels) == len(outputs[row]) and hidden.shape[1] == 8
        for slot, token in enumerate(outputs[row]):
            alone = case.model.step(state, np.array([[last]]))[0]
            expected = np.asarray(alone, dtype=np.float32)[0]
            assert np.abs(hidden[slot] - expected).max() <= (1e-5 if numbers == "float64" else 0), (slot, numbers)
            assert np.array_equal(labels[slot], case.projection.bind(None).top_k(alone, top).ids[0])
            last = token


def test_networks_that_run_row_by_row() -> None:
    case = cases.random_case(3)
    fed = Fed(case.source.rows(np.array([0, 0, 0])), (2,), [[3, 4, 5], [], [6]])
    together = hidden_and_labels(case.model, case.projection, fed, 2)
    alone = Spy(case.model)
    alone.supports = frozenset()
    for (a, b), (c, d) in zip(hidden_and_labels(alone, case.projection, fed, 2), together, strict=True):
        assert np.allclose(a, c, atol=1e-5) and np.array_equal(b, d)
    assert [hidden.shape[0] for hidden in alone.seen] == [1, 1]


@pytest.mark.parametrize("spec", ["greedy", "window:width=4,draft=recycled"])
def test_contexts_are_what_greedy_decoding_saw(bundled: TranslationModel, tmp_path: Path, spec: str) -> None:
    texts = [text for text in SENTENCES["en"] if len(text) < 60][:9]
    made = record(
        Translations(bundled, spec, max_length=30), {"en-de": texts}, tmp_path, seed=None, sentences_per_shard=4
    )
    found = everything(made)
    session = Session.of(bundled, "en", "de", max_length=30)
    for number, text in enumerate(texts):
        spy = Spy(bundled.network)
        source = bundled.encode([text], "en", "de")
        (hypothesis,) = drain(Greedy().iterate(spy, bundled.exact, source, session.constraints))
        seen = np.concatenate(spy.seen)[:, 0]
        own = np.flatnonzero(found.sentence == number)
        assert found.hidden[own].tobytes() == seen.tobytes()
        assert found.gold[own].tolist() == list(hypothesis.tokens)
        assert found.step[own].tolist() == list(range(len(hypothesis.tokens)))
        assert np.array_equal(found.labels[own], bundled.exact.bind(None).top_k(seen, 5).ids)
    assert (found.labels[:, 0] == found.gold).mean() > 0.9
    assert made.settings["decoder"] == spec and made.model == "tatoeba-small"
    made.check_model(bundled.checkpoint.fingerprint, 256, bundled.network.outputs[0].vocabulary)


def test_references_are_fed_as_they_stand(bundled: TranslationModel, tmp_path: Path) -> None:
    pairs = list(zip(SENTENCES["de"], SENTENCES["en"], strict=True))[:6]
    made = record(References(bundled), {"de-en": pairs}, tmp_path, seed=None)
    found = everything(made)
    for number, (_, reference) in enumerate(pairs):
        ids = found.gold[found.sentence == number].tolist()
        assert bundled.tokenizer.decode(ids) == reference and ids[-1] == bundled.constraints().end[0]
    assert 0.2 < (found.labels[:, 0] == found.gold).mean() < 0.95
    assert made.settings["decoder"] is None


def test_float16_is_rounded_and_its_labels_are_not(tiny: TranslationModel, tmp_path: Path) -> None:
    inputs = {"en-de": SENTENCES["en"][:20]}
    single, half = (record(Translations(tiny), inputs, tmp_path / str(f), float16=f) for f in (False, True))
    a, b = everything(single), everything(half)
    assert b.hidden.dtype == np.float32 and np.array_equal(b.hidden, a.hidden.astype(np.float16).astype(np.float32))
    assert np.array_equal(a.labels, b.labels) and not np.array_equal(a.hidden, b.hidden)
    assert np.load(tmp_path / "True/shard-00000/hidden.npy").dtype == np.float16


def test_sentences_without_contexts_are_counted(tiny: TranslationModel, tmp_path: Path) -> None:
    texts = ["Good morning.", "", "   ", "\u200b", "word " * 200, "Good morning."]
    made = record(Translations(tiny), {"en-de": texts}, tmp_path / "own", seed=None)
    assert made.left_out == 4 and set(everything(made).sentence) == {0}, "a repeated text is one sentence"
    pairs = [("Hello.", "Hallo."), ("Hello.", ""), ("", "Hallo."), ("Bye.", "wort " * 200), ("Hello.", "Guten Tag.")]
    made = record(References(tiny), {"en-de": pairs}, tmp_path / "forced", seed=None)
    assert made.left_out == 3 and set(everything(made).sentence) == {0}
    made = record(language_model(), {"text": [[3, 4], [], [5] * 41, [6] * 40]}, tmp_path / "ids", seed=None)
    assert made.left_out == 2 and np.bincount(everything(made).sentence).tolist() == [2, 0, 0, 40]


@pytest.mark.parametrize("numbers", ["float64", "float32"])
def test_language_models(tmp_path: Path, numbers: str) -> None:
    feeder, rows = language_model(1, numbers), random_rows(1, 70)
    made = record(feeder, {"text": [np.array(ids) for ids in rows]}, tmp_path, top=3, sentences_per_shard=20)
    found = everything(made)
    assert sorted(found.gold.tolist()) == sorted(i for ids in rows for i in ids)
    for number in (0, 33, 69):
        own = np.flatnonzero(found.sentence == rows.index(rows[number]))[: len(rows[number])]
        assert found.gold[own].tolist() == rows[number] and found.step[own].tolist() == list(range(len(rows[number])))
    best = feeder.exact.bind(None).top_k(as_engine(feeder.network, found.hidden), 3).ids
    assert np.array_equal(found.labels, best) and made.directions == ("text",)


def as_engine(network: Model, hidden: np.ndarray) -> Any:
    import torch

    return hidden if network.outputs[0].weight.__class__.__name__ == "Matrix" else torch.from_numpy(hidden).double()


def test_ids_of_references_with_every_tokenizer(multilingual: Callable[[str], Path], bundled: TranslationModel) -> None:
    words = Vocabulary.count([["the", "train", "is", "late", "."]], 20)
    text = WordText(("de", "en"), words, words)
    assert text.output_ids(["the late train."]) == text.encode(["the late train."], "de", "en").ids[:, :-1].tolist()
    for kind in ("m2m", "mbart50"):
        model = load(str(multilingual(kind)), device="cpu")
        (ids,) = model.tokenizer.output_ids(["Der Zug"])
        special = set(model.tokenizer.tokenizer.all_special_ids) | set(model.tokenizer.language_ids)
        assert ids and not set(ids) & special and model.tokenizer.decode(ids) == "Der Zug"
    assert bundled.tokenizer.decode(bundled.tokenizer.output_ids(["Der Zug"])[0]) == "Der Zug"


# ---------------------------------------------------------------------------------------------- order, cap and resuming


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_directions_take_turns_and_the_order_follows_from_the_seed(tmp_path: Path, seed: int | None) -> None:
    inputs = {"a": random_rows(1, 25), "b": random_rows(2, 10), "c": []}
    made = record(language_model(), inputs, tmp_path, seed=seed, sentences_per_shard=10)
    shards = [np.load(shard.folder / "where.npy")[:, :2] for shard in made.shards]
    assert [set(where[:, 0]) for where in shards] == [{0}, {1}, {0}, {0}]
    firsts = [inputs["a"].index(ids) for ids in inputs["a"]]
    order = list(dict.fromkeys(np.concatenate([shards[i][:, 1] for i in (0, 2, 3)]).tolist()))
    assert sorted(order) == sorted(set(firsts)) and (order == sorted(order)) == (seed is None)
    again = record(language_model(), inputs, tmp_path / "again", seed=seed, sentences_per_shard=10)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(vars(everything(made)).values(), vars(everything(again)).values(), strict=True)
    )


def test_a_cap_is_a_prefix_of_the_whole(tmp_path: Path) -> None:
    inputs = {"text": random_rows(5, 40)}
    made = record(language_model(), inputs, tmp_path / "whole", sentences_per_shard=10)
    whole, first = everything(made), int(made.offsets[1])
    for most, shards in ((1, 1), (first - 1, 1), (first, 1), (first + 1, 2), (len(made), 4), (10_000, 4)):
        folder = tmp_path / str(most)
        cut = record(language_model(), inputs, folder, sentences_per_shard=10, most=most)
        assert len(cut) == min(most, len(made))
        for name, values in vars(everything(cut)).items():
            assert np.array_equal(values, vars(whole)[name][: len(cut)]), name
        assert len(list(folder.glob("shard-*"))) == len(cut.shards) == shards


class Stopped(RuntimeError):
    pass


@dataclass(frozen=True)
class Stopping(IdRows):
    """Stops at the shard that feeds a given row, once."""

    row: tuple[int, ...] = ()
    marker: Path | None = None
    how: Callable[[], Any] | None = None

    def fed(self, direction: str, items: Sequence[Item]) -> Fed:
        if self.marker and (self.row,) in items and not self.marker.exists():
            self.marker.touch()
            self.how()
        return super().fed(direction, items)


def stop() -> None:
    raise Stopped


def interrupt() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stopping(how: Callable[[], Any], rows: Sequence[Sequence[int]], marker: Path) -> Stopping:
    return Stopping(**vars(language_model()), row=tuple(rows[25]), marker=marker, how=how)


@pytest.mark.parametrize(("how", "error"), [(stop, Stopped), (interrupt, KeyboardInterrupt)])
def test_a_recording_goes_on_where_it_was_stopped(
    tmp_path: Path, how: Callable[[], Any], error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, settings = random_rows(6, 40), {"sentences_per_shard": 10, "seed": None}
    record(language_model(), {"text": rows}, tmp_path / "whole", **settings)
    feeder = stopping(how, rows, tmp_path / "marker")
    with pytest.raises(error):
        record(feeder, {"text": rows}, tmp_path / "stopped", **settings)
    with pytest.raises(ContextsError, match="not finished: got 2 shards so far"):
        Contexts.open(tmp_path / "stopped")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "stopped").glob("shard-*/*")}
    assert len(record(feeder, {"text": rows}, tmp_path / "stopped", **settings).shards) == 4
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")
    assert all(path.stat().st_mtime_ns == made for path, made in before.items())


def test_ctrl_c_inside_a_batch(tiny: TranslationModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches keep what they have when interrupted; a shard must not be made of half the sentences."""

    def interrupted(*given: Any) -> Any:
        raise KeyboardInterrupt

    for name in ("decode_ids", "step"):
        feeder = Translations(tiny) if name == "decode_ids" else References(tiny)
        monkeypatch.setattr(type(tiny.network), "step", interrupted)
        inputs = ["Hello."] if name == "decode_ids" else [("Hello.", "Hallo.")]
        with pytest.raises(KeyboardInterrupt):
            record(feeder, {"en-de": inputs}, tmp_path / name)
        assert not list((tmp_path / name).glob("shard-*"))


def in_a_child(work: Callable[[], Any]) -> int:
    """Run in a forked process and return its process id.

    The child gets a lock of its own for progress bars: tqdm's is shared with the parent, which would wait for ever where the
    child is killed with it.
    """
    child = os.fork()
    if child == 0:
        try:
            tqdm.set_lock(threading.RLock())
            work()
        finally:
            os._exit(0)
    return child


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """At each replacing of a file or folder, before it and after it."""
    rows, settings = random_rows(7, 12), {"sentences_per_shard": 4}
    whole, replace = tmp_path / "whole", os.replace
    record(language_model(), {"text": rows}, whole, **settings)
    feeder, expected, moments = language_model(), files(whole), 0
    for moment in range(20):
        left = iter(range(moment))

        def maybe_die(*given: Any, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                die()
            replace(*given)
            if next(left, None) is None:
                die()

        def work(folder: Path, hook: Callable[..., None] = maybe_die) -> None:
            store.os.replace = hook
            record(feeder, {"text": rows}, folder, **settings)

        folder = tmp_path / str(moment)
        child = in_a_child(lambda folder=folder, work=work: work(folder))
        moments += os.waitpid(child, 0)[1] == signal.SIGKILL
        record(feeder, {"text": rows}, folder, **settings)
        assert files(folder) == expected, moment
    assert moments == 10


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_a_random_moment(tmp_path: Path, seed: int) -> None:
    rows, settings = random_rows(8, 300), {"sentences_per_shard": 10}
    feeder = language_model()
    record(feeder, {"text": rows}, tmp_path / "whole", **settings)
    child = in_a_child(lambda: record(feeder, {"text": rows}, tmp_path / "killed", **settings))
    while len(list(tmp_path.glob("killed/shard-*"))) < 3 + 4 * seed:
        time.sleep(0.001)
    time.sleep(chance.Random(seed).random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    record(feeder, {"text": rows}, tmp_path / "killed", **settings)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_only_damaged_shards_are_made_again(tmp_path: Path) -> None:
    rows, feeder = random_rows(9, 40), language_model()
    settings: dict[str, Any] = {"sentences_per_shard": 10}
    record(feeder, {"text": rows}, tmp_path, **settings)
    expected = files(tmp_path)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.glob("shard-*/hidden.npy")}

    def made_again(verify: bool) -> list[str]:
        record(feeder, {"text": rows}, tmp_path, verify=verify, **settings)
        assert files(tmp_path) == expected
        return sorted(path.parent.name for path, before in made.items() if path.stat().st_mtime_ns != before)

    assert made_again(verify=True) == []
    gold = tmp_path / "shard-00001" / "gold.npy"
    gold.write_bytes(gold.read_bytes()[:-1])
    with pytest.raises(ContextsError, match="shard-00001: gold.npy holds"):
        Contexts.open(tmp_path)
    assert made_again(verify=False) == ["shard-00001"]
    labels = tmp_path / "shard-00002" / "labels.npy"
    raw = bytearray(labels.read_bytes())
    raw[-1] ^= 1
    labels.write_bytes(raw)
    record(feeder, {"text": rows}, tmp_path, **settings)
    with pytest.raises(ContextsError, match="shard-00002: labels.npy has another checksum"):
        Contexts.open(tmp_path, verify=True)
    assert made_again(verify=True) == ["shard-00001", "shard-00002"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top": 4}, "other settings: got top 4, it has 5. Give the same again, or another folder."),
        ({"most": 7}, "got most 7, it has None"),
        ({"seed": 1}, "got seed 1, it has 0"),
        ({"float16": True}, "got hidden 'float16', it has 'float32'"),
        ({"sentences_per_shard": 3}, "got sentences_per_shard 3"),
        ({"inputs": {"text": [[3], [5]]}}, "other settings: got other text than it has. Give the same again"),
        ({"inputs": {"else": [[3], [4]]}}, r"got directions \['else'\]"),
        ({"feeder": language_model(1)}, "got fingerprint 'seed 1', it has 'seed 0'"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"feeder": language_model(), "inputs": {"text": [[3], [4]]}, "out": tmp_path}
    record(**settings)
    before = files(tmp_path)
    with pytest.raises(ContextsError, match=message):
        record(**settings | change)
    assert files(tmp_path) == before


def test_other_rules_of_generation_are_other_settings(broken_marian: Path, tmp_path: Path) -> None:
    text = {"en-de": SENTENCES["en"][:2]}
    record(Translations(load(str(broken_marian), device="cpu")), text, tmp_path / "made")
    fakes.change_json(broken_marian / "generation_config.json", max_length=5)
    with pytest.raises(ContextsError, match="was begun with other settings: got tokenizer and rules"):
        record(Translations(load(str(broken_marian), device="cpu")), text, tmp_path / "made")


def test_a_folder_in_which_nothing_could_be_recorded_takes_other_text(tmp_path: Path) -> None:
    with pytest.raises(ContextsError, match="There is nothing to record: got 1 sentences"):
        record(language_model(), {"text": [[]]}, tmp_path)
    assert len(record(language_model(), {"text": [[3]]}, tmp_path)) > 0


def test_folders_that_are_not_for_this_recording(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".draft.part").write_text("mine")
    with pytest.raises(ContextsError, match="needs a folder of its own: got .* which holds '.*' and no contexts.json"):
        record(language_model(), {"text": [[3]]}, tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".draft.part", "notes.txt"]
    made = tmp_path / "made"
    record(language_model(), {"text": [[3]]}, made)
    (made / NOTE).write_text("{")
    with pytest.raises(ContextsError, match="contexts.json cannot be read"):
        record(language_model(), {"text": [[3]]}, made)
    (made / NOTE).unlink()
    record(language_model(1), {"text": [[4]]}, made)
    assert everything(Contexts.open(made)).gold.tolist() == [4], "shards of another recording are not used"


def test_one_recording_in_a_folder_at_a_time(tmp_path: Path) -> None:
    rows = random_rows(6, 40)

    def again() -> None:
        with pytest.raises(ContextsError, match="Another recording is running in .*. Wait for it, or stop it first."):
            record(language_model(), {"text": rows}, tmp_path / "out", seed=None)

    record(stopping(again, rows, tmp_path / "marker"), {"text": rows}, tmp_path / "out", seed=None)
    assert (tmp_path / "marker").exists()


def test_who_waits_for_a_recording_finds_it_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, made = random_rows(6, 40), []

    def wait() -> None:
        made.append(record(language_model(), {"text": rows}, tmp_path / "out", seed=None, wait=True))

    thread = threading.Thread(target=wait)

    def begin() -> None:
        thread.start()
        thread.join(0.5)
        assert thread.is_alive() and not made

    ours = record(stopping(begin, rows, tmp_path / "marker"), {"text": rows}, tmp_path / "out", seed=None)
    thread.join(60)
    assert (tmp_path / "marker").exists() and len(made) == 1
    assert everything(made[0]).gold.tolist() == everything(ours).gold.tolist()


@pytest.mark.parametrize(("value", "float16"), [(np.nan, False), (np.inf, False), (1e5, True)])
def test_hidden_vectors_that_are_not_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, float16: bool
) -> None:
    feeder = language_model()
    step = type(feeder.network.network).step

    def broken(self: Any, state: Any, tokens: np.ndarray, visible: Any = None) -> Any:
        hidden = step(self, state, tokens, visible)
        hidden[0, 1, 3] = value
        return hidden

    monkeypatch.setattr(type(feeder.network.network), "step", broken)
    numbers = "float16" if float16 else "float32"
    with pytest.raises(ContextsError, match=f"not finite as {numbers}: got one of text, sentence 2, step 2. Compute"):
        record(feeder, {"text": [[3], [4, 5, 6]]}, tmp_path, float16=float16, seed=None)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"feeder": object()}, "needs to know what to feed: got <object.*give Translations\\(model\\)"),
    ({"inputs": [[3]]}, "Inputs are given by direction: got a list. Example"),
    ({"inputs": {"text": [[3], [13]]}}, r"Sentence 2 must be ids from 0 to 12: got '\[13\]'. Correct it"),
    ({"inputs": {"text": [[3], 4]}}, "Sentence 2 must be ids from 0 to 12: got '4'"),
    ({"inputs": {"text": [[0.5]]}}, "Sentence 1 must be ids"),
    ({"inputs": {"text": [[], []]}}, "There is nothing to record: got 2 sentences, none with content"),
    ({"inputs": {}}, "There is nothing to record: got 0 sentences"),
    ({"top": 0}, "top must be a whole number from 1 on: got 0"),
    ({"top": 14}, "top is at most the vocabulary's size, 13: got 14"),
    ({"most": 0}, "most must be a whole number from 1 on: got 0"),
    ({"most": 1.5}, "most must be a whole number from 1 on: got 1.5"),
    ({"sentences_per_shard": 0}, "sentences_per_shard must be a whole number"),
    ({"workers": 0}, "workers must be a whole number from 1 on: got 0. Example: workers=2"),
    (
        {"workers": 1, "scheduler": "tcp://127.0.0.1:1"},
        "got workers=1 and scheduler='tcp://127.0.0.1:1'. Leave out one.",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"feeder": language_model(), "inputs": {"text": [[3], [4]]}, "out": tmp_path / "out"}
    with pytest.raises(ValueError, match=message):
        record(**given | change)


def test_bad_texts(tiny: TranslationModel, tmp_path: Path) -> None:
    for feeder, inputs, message in (
        (Translations(tiny), {"en-de": ["Hi.", 3]}, "Sentence 2 must be a text: got '3'"),
        (References(tiny), {"en-de": ["Hi"]}, "Sentence 1 must be a pair of texts: got 'Hi'"),
        (References(tiny), {"en-de": [("Hi.", 3)]}, "Sentence 1 must be a pair of texts"),
        (References(tiny), {"en-de": [4]}, "Sentence 1 must be a pair of texts: got '4'"),
        (Translations(tiny), {"en-xx": ["Hi."]}, "Unknown target language: got 'xx'"),
        (Translations(tiny, "gredy"), {"en-de": ["Hi."]}, "Unknown decoder: got 'gredy'"),
        (Translations(tiny, max_length=0), {"en-de": ["Hi."]}, "max_length must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            record(feeder, inputs, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_progress_shows_rate_and_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    for _ in range(2):
        record(language_model(), {"text": random_rows(3, 30)}, tmp_path, sentences_per_shard=10, progress=True)
        shown = capsys.readouterr().err
        assert "3 of up to 3 shards, " in shown and "contexts/s" in shown and "kB" in shown
    record(language_model(), {"text": random_rows(3, 30)}, tmp_path, sentences_per_shard=10)
    assert capsys.readouterr().err == ""


# -------------------------------------------------------------------------------------------------------------- workers


def test_a_feeder_travels_by_the_name_of_its_model(broken_marian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(broken_marian.parent)
    model = load(broken_marian.name, device="cpu", precision="int8")
    packed = pickle.dumps(Translations(model, "gauss_seidel:block=3", max_length=9))
    assert len(packed) < 1000
    monkeypatch.chdir("/")
    again = pickle.loads(packed)
    assert (again.decoder, again.max_length, again.settings) == (
        "gauss_seidel:block=3",
        9,
        Translations(model, "gauss_seidel:block=3", max_length=9).settings,
    )
    assert pickle.loads(pickle.dumps(References(load(str(broken_marian), dtype="float64")))).model.dtype == "float64"
    fakes.change_json(broken_marian / "config.json", dropout=0.5)
    with pytest.raises(ContextsError, match="A worker finds other weights under .*: got .*, not "):
        pickle.loads(packed)


def test_without_dask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(
        ValueError, match=r"needs the package \w+, which is not installed.*pip install 'fastdecode.dask.'"
    ):
        record(language_model(), {"text": [[3]]}, tmp_path / "out", workers=2)
    assert len(record(language_model(), {"text": [[3]]}, tmp_path / "out")) == 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    settings = {"processes": True, "threads_per_worker": 1, "memory_limit": 0, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=3, **settings, silence_logs=40) as made:
        yield made


def test_workers_make_the_same_files(tiny: TranslationModel, tmp_path: Path, cluster: Any) -> None:
    texts = {"en-de": SENTENCES["en"][:60], "de-en": SENTENCES["de"][:60]}
    settings: dict[str, Any] = {"sentences_per_shard": 7, "most": 1100}
    serial = record(Translations(tiny), texts, tmp_path / "serial", **settings)
    assert 2 < len(serial.shards) < 18, "the cap leaves shards that need not be made"
    here, there = {"workers": 2}, {"scheduler": cluster.scheduler_address}
    for name, where in (("2", here), ("3", there), ("1", there)):
        if name == "1":
            cluster.scale(1)
        made = record(Translations(tiny), texts, tmp_path / name, **settings, **where)
        assert len(made) == 1100 and files(tmp_path / name) == files(tmp_path / "serial"), name


def test_a_worker_that_is_killed(tiny: TranslationModel, tmp_path: Path, cluster: Any) -> None:
    texts, settings = {"en-de": SENTENCES["en"]}, {"sentences_per_shard": 3}
    whole = record(Translations(tiny), texts, tmp_path / "calm", **settings)
    with cluster.get_client() as client:
        victim = min(client.run(os.getpid).values())
    there: list[int] = []

    def kill() -> None:
        while len(list(tmp_path.glob("killed/shard-*"))) < 2:
            time.sleep(0.002)
        os.kill(victim, signal.SIGKILL)
        there.append(len(list(tmp_path.glob("killed/shard-*"))))

    killing = threading.Thread(target=kill)
    killing.start()
    record(Translations(tiny), texts, tmp_path / "killed", scheduler=cluster.scheduler_address, **settings)
    killing.join()
    assert there[0] < len(whole.shards) and files(tmp_path / "killed") == files(tmp_path / "calm")


def test_errors_of_workers_are_ours(
    tiny: TranslationModel, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"en-de": SENTENCES["en"][:5]}
    other = replace(tiny, checkpoint=replace(tiny.checkpoint))
    vars(other.checkpoint)["fingerprint"] = "other"
    with pytest.raises(ContextsError, match="A worker finds other weights under .*tiny-marian': got .*, not other"):
        record(Translations(other), texts, tmp_path / "a", scheduler=cluster.scheduler_address)
    cluster.scheduler.allowed_failures = 0
    with pytest.raises(RuntimeError, match="Several workers died of the same task: got .*use fewer workers"):
        list(over(os._exit, [1], scheduler=cluster.scheduler_address))
    monkeypatch.setattr("fastdecode_lib.workers.PATIENCE", 0.3)
    with pytest.raises(ValueError, match="No scheduler with workers answers: got scheduler='tcp://127.0.0.1:9'.*dask"):
        record(Translations(tiny), texts, tmp_path / "b", scheduler="tcp://127.0.0.1:9")
