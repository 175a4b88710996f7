"""Recorded contexts as they are read: every view equals the same choice made with numpy; damage is found and named."""

import json
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fastdecode_lib import store
from fastdecode_lib.contexts.shards import FORMAT, NOTE, VERSION, Block, Contexts, ContextsError, key_of, write_shard

DIRECTIONS = ("en-de", "de-en", "en-fr")
FIELDS = ("hidden", "labels", "gold", "direction", "sentence", "step")


class Written(NamedTuple):
    folder: Path
    table: dict[str, np.ndarray]
    """All rows in use, by field of `Block`."""


def random_table(
    random: np.random.Generator, rows: int, direction: int, float16: bool = False
) -> dict[str, np.ndarray]:
    where = np.stack([np.full(rows, direction), np.sort(random.integers(0, 30, rows)), random.integers(0, 9, rows)], 1)
    hidden = random.normal(size=(rows, 6)).astype(np.float16 if float16 else np.float32)
    labels, gold = random.integers(0, 99, (rows, 2)), random.integers(0, 99, rows)
    return {
        "hidden": hidden,
        "labels": labels.astype(np.int32),
        "gold": gold.astype(np.int32),
        "where": where.astype(np.int32),
    }


def write(
    folder: Path, seed: int, shards: int = 5, cut: bool = False, float16: bool = False, **changes: Any
) -> Written:
    """A recording as `recording.record` leaves it, of random numbers."""
    random = np.random.default_rng(seed)
    settings = {"fingerprint": "abc", "width": 6, "vocabulary": 99, "top": 2, "directions": list(DIRECTIONS)} | changes
    tables = [random_table(random, int(random.integers(0, 40)), i % 3, float16) for i in range(shards - 1)]
    tables.append(random_table(random, 20, 1, float16))
    for number, table in enumerate(tables):
        write_shard(folder / f"shard-{number:05}", key_of(settings), table, left_out=1)
    used = [len(table["gold"]) for table in tables]
    used[-1] -= 7 if cut else 0
    write_note(folder, settings=settings, shards=used)
    whole = {name: np.concatenate([t[name][:n] for t, n in zip(tables, used, strict=True)]) for name in tables[0]}
    where = whole.pop("where")
    return Written(folder, whole | {"direction": where[:, 0], "sentence": where[:, 1], "step": where[:, 2]})


def write_note(folder: Path, **changes: Any) -> None:
    note = {
        "format": FORMAT,
        "version": VERSION,
        "model": "tiny",
        "settings": {},
        "shards": None,
        "left_out": 5,
    } | changes
    (folder / NOTE).write_text(json.dumps(note), encoding="utf-8")


def assert_rows(block: Block, table: dict[str, np.ndarray], rows: np.ndarray) -> None:
    assert len(block) == len(rows)
    for name in FIELDS:
        found = getattr(block, name)
        assert type(found) is np.ndarray and found.flags.c_contiguous, name
        assert found.dtype == (np.float32 if name == "hidden" else np.int32), name
        assert np.array_equal(found, table[name][rows]), name


def joined(contexts: Contexts, size: int = 65_536) -> Block:
    blocks = list(contexts.blocks(size))
    return Block(*(np.concatenate([getattr(block, name) for block in blocks]) for name in FIELDS))


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.os, "fsync", lambda handle: None)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return write(tmp_path / "contexts", seed=0)


@pytest.mark.parametrize("seed", range(25))
def test_rows_are_read_as_they_were_written(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng((seed, 1))
    folder, table = write(tmp_path, seed, int(random.integers(1, 8)), cut=seed % 2 == 0, float16=seed % 3 == 0)
    contexts = Contexts.open(folder, verify=True)
    rows = len(table["gold"])
    assert len(contexts) == rows and (contexts.width, contexts.vocabulary, contexts.top) == (6, 99, 2)
    assert contexts.directions == DIRECTIONS and contexts.fingerprint == "abc" and contexts.left_out == 5
    assert_rows(joined(contexts, int(random.integers(1, 30))), table, np.arange(rows))
    sizes = [len(block) for block in contexts.blocks(7)]
    assert set(sizes[:-1]) <= {7} and 1 <= sizes[-1] <= 7
    chosen = random.integers(0, rows, size=int(random.integers(0, 2 * rows)))
    assert_rows(contexts.take(chosen), table, chosen)


@pytest.mark.parametrize("seed", range(25))
def test_views_equal_the_same_choice_with_numpy(tmp_path: Path, seed: int) -> None:
    folder, table = write(tmp_path, seed, shards=6)
    contexts, chosen = Contexts.open(folder), np.arange(len(table["gold"]))
    random = np.random.default_rng((seed, 2))
    for _ in range(3):
        kind = random.integers(0, 3)
        if kind == 0:
            name = str(random.choice([d for i, d in enumerate(DIRECTIONS) if i in table["direction"][chosen]]))
            contexts = contexts.where(direction=name)
            chosen = chosen[table["direction"][chosen] == DIRECTIONS.index(name)]
        elif kind == 1:
            count = int(random.integers(1, len(chosen) + 1))
            drawn = contexts.sample(count, seed)
            assert_rows(joined(drawn), table, drawn.rows)
            assert len(drawn) == count and set(drawn.rows) <= set(chosen) and (np.diff(drawn.rows) > 0).all()
            assert np.array_equal(drawn.rows, contexts.sample(count, seed).rows)
            contexts, chosen = drawn, drawn.rows
        elif len(np.unique(table["sentence"][chosen])) > 20:
            fit, held_out = contexts.split(0.4, seed)
            assert np.array_equal(np.sort(np.concatenate([fit.rows, held_out.rows])), chosen)
            assert not set(joined(fit).sentence) & set(joined(held_out).sentence)
            contexts, chosen = fit, fit.rows
        assert_rows(joined(contexts, 9), table, chosen)
        again = random.permutation(len(chosen))
        assert_rows(contexts.take(again), table, chosen[again])


def test_the_same_sentences_are_held_out_in_every_view(tmp_path: Path) -> None:
    contexts = Contexts.open(write(tmp_path, seed=3, shards=9).folder)
    held_out = set(joined(contexts.split(0.3, seed=5)[1]).sentence)
    for direction in DIRECTIONS:
        view = contexts.where(direction=direction)
        expected = held_out & set(joined(view).sentence)
        assert set(joined(view.split(0.3, seed=5)[1]).sentence) == expected
    assert set(joined(contexts.split(0.3, seed=6)[1]).sentence) != held_out
    assert 0.1 < len(held_out) / 30 < 0.5


def test_several_directions(written: Written) -> None:
    contexts = Contexts.open(written.folder)
    some = contexts.where(direction=["en-fr", "en-de"])
    assert_rows(joined(some), written.table, np.flatnonzero(written.table["direction"] != 1))
    assert len(contexts.where(direction=DIRECTIONS)) == len(contexts) and len(contexts.where(direction=[])) == 0


def test_a_direction_without_rows(tmp_path: Path) -> None:
    contexts = Contexts.open(write(tmp_path, seed=0, shards=1).folder)
    empty = contexts.where(direction="en-fr")
    assert len(empty) == 0 and list(empty.blocks()) == [] and len(empty.take(np.zeros(0, dtype=int))) == 0


def test_many_shards_need_few_open_files(tmp_path: Path) -> None:
    folder, table = write(tmp_path, seed=1, shards=120)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
    try:
        assert_rows(joined(Contexts.open(folder)), table, np.arange(len(table["gold"])))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_other_models_are_refused(written: Written) -> None:
    contexts = Contexts.open(written.folder)
    contexts.check_model("abc", width=6, vocabulary=99)
    for given, message in (
        (("abd", 6, 99), "of another model, tiny: its fingerprint is 'abc', got 'abd'. Record contexts of this model"),
        (("abc", 5, 99), "its width is 6, got 5"),
        (("abc", 6, 100), "its vocabulary is 99, got 100"),
    ):
        with pytest.raises(ContextsError, match=message):
            contexts.check_model(*given)


# ------------------------------------------------------------------------------------------------------------- damage


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def flip(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)


DAMAGE: list[tuple[str, Callable[[Path], Any], str]] = [
    ("hidden.npy", cut, r"hidden.npy holds \d+ bytes instead of \d+"),
    ("labels.npy", Path.unlink, "it cannot be read.*labels.npy"),
    ("shard.json", cut, "it cannot be read"),
    ("shard.json", Path.unlink, "it cannot be read"),
    ("shard.json", lambda file: file.write_text('{"rows": 3}'), "it cannot be read"),
    ("shard.json", lambda file: file.write_text("[]"), "it cannot be read"),
    ("shard.json", lambda file: file.write_text(file.read_text().replace("recording", "x", 1)), "it cannot be read"),
    ("shard.json", lambda file: file.write_text(file.read_text().replace("sha256", "x", 1)), "it cannot be read"),
    (
        "shard.json",
        lambda file: file.write_text(file.read_text().replace('"sha256": "', '"sha256": null, "x": "', 1)),
        "it cannot be read.*no checksum",
    ),
    (".", shutil.rmtree, "it cannot be read"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGE)
def test_a_damaged_shard_is_named_when_opened(
    written: Written, name: str, damage: Callable[[Path], Any], message: str
) -> None:
    damage(written.folder / "shard-00003" / name)
    with pytest.raises(ContextsError, match=rf"damaged: shard-00003: {message}.*only this shard is made again"):
        Contexts.open(written.folder)


@pytest.mark.parametrize("name", ["hidden", "labels", "gold", "where"])
def test_changed_bytes_are_found_by_their_checksum(written: Written, name: str) -> None:
    flip(written.folder / "shard-00004" / f"{name}.npy")
    contexts = Contexts.open(written.folder)
    for check in (contexts.verify, lambda: Contexts.open(written.folder, verify=True)):
        with pytest.raises(ContextsError, match=f"shard-00004: {name}.npy has another checksum"):
            check()


def test_a_shard_of_another_recording(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", seed=0).folder
    other = write(tmp_path / "b", seed=0, vocabulary=98).folder
    shutil.copytree(other / "shard-00001", folder / "shard-00001", dirs_exist_ok=True)
    with pytest.raises(ContextsError, match=r"shard-00001: it belongs to the recording '\w+', not to '\w+'"):
        Contexts.open(folder)


def test_a_hidden_vector_that_is_not_finite(written: Written) -> None:
    contexts = Contexts.open(written.folder)
    hidden = np.load(written.folder / "shard-00004" / "hidden.npy")
    hidden[13, 2] = np.nan
    np.save(written.folder / "shard-00004" / "hidden.npy", hidden)
    with pytest.raises(ContextsError, match="shard-00004: the hidden vector in row 13 is not finite"):
        list(contexts.blocks(4))
    contexts.where(direction="en-de").take(np.arange(3))


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("labels", (13, 1), 1 << 20, "labels.npy holds tokens outside the vocabulary of"),
        ("labels", (13, 1), -1, "labels.npy holds tokens outside"),
        ("gold", 13, 1 << 20, "gold.npy holds tokens outside"),
        ("where", (13, 0), 3, "where.npy holds directions outside the 3"),
    ],
)
def test_numbers_that_stand_for_nothing(written: Written, name: str, place: Any, value: int, message: str) -> None:
    """A bit that fell over on the disk is not counted as a token of another cluster."""
    path = written.folder / "shard-00004" / f"{name}.npy"
    array = np.load(path)
    array[place] = value
    np.save(path, array)
    with pytest.raises(ContextsError, match=f"shard-00004: {message}"):
        list(Contexts.open(written.folder).blocks())


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((20, 7), dtype=np.float32), r"holds rows of shape \(7,\) instead of \(6,\)"),
        (np.zeros((19, 6), dtype=np.float32), "holds 19 rows instead of 20"),
        (None, "hidden.npy cannot be read"),
    ],
)
def test_arrays_of_another_shape(written: Written, array: np.ndarray | None, message: str) -> None:
    contexts, file = Contexts.open(written.folder), written.folder / "shard-00004" / "hidden.npy"
    if array is None:
        file.write_bytes(b"none")
    else:
        np.save(file, array)
    with pytest.raises(ContextsError, match=f"shard-00004: .*{message}"):
        list(contexts.blocks())


NOTES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: (folder / NOTE).unlink(), "There are no recorded contexts in .*it has no contexts.json"),
    (lambda folder: shutil.rmtree(folder), "There are no recorded contexts"),
    (lambda folder: cut(folder / NOTE), "contexts.json cannot be read"),
    (lambda folder: (folder / NOTE).write_text("[1]"), "contexts.json cannot be read"),
    (lambda folder: write_note(folder, format="else"), "Not recorded contexts of version 1: .* says 'else'"),
    (lambda folder: write_note(folder, version=2), "version 1: .* version 2. Record them again"),
    (lambda folder: write_note(folder, settings={"width": 6}, shards=[]), "contexts.json is damaged"),
    (lambda folder: write_note(folder, shards=3), "contexts.json is damaged"),
    (
        lambda folder: write_note(folder),
        "is not finished: got 5 shards so far. Go on by recording with the same settings .*fastdecode record ... --out",
    ),
]


@pytest.mark.parametrize(("damage", "message"), NOTES)
def test_a_note_that_cannot_be_used(written: Written, damage: Callable[[Path], Any], message: str) -> None:
    damage(written.folder)
    with pytest.raises(ContextsError, match=message):
        Contexts.open(written.folder)


def test_a_note_that_counts_more_rows_than_there_are(written: Written) -> None:
    note = json.loads((written.folder / NOTE).read_text())
    note["shards"][4] = 21
    write_note(written.folder, **note)
    with pytest.raises(ContextsError, match="shard-00004: it holds 20 rows, fewer than contexts.json counts"):
        Contexts.open(written.folder)


BAD: list[tuple[Callable[[Contexts], Any], str]] = [
    (lambda c: c.where(direction="en-es"), "Unknown direction: got 'en-es'. Recorded are en-de, de-en, en-fr."),
    (lambda c: c.where(direction=["en-de", "xx"]), "Unknown direction: got 'xx'"),
    (lambda c: c.sample(0, seed=1), "sample draws from 1 to .* rows: got 0. Ask for fewer."),
    (lambda c: c.sample(10_000, seed=1), "got 10000"),
    (lambda c: c.split(0.0, seed=1), "split cannot hold out a share of 0.0 of .* sentences"),
    (lambda c: c.split(1.0, seed=1), "share of 1.0"),
    (lambda c: c.where(direction="en-fr").sample(1, 0).split(0.5, seed=1), "of 1 sentences: one side would be empty"),
    (lambda c: c.take(np.array([0, len(c)])), r"take needs indices \(n,\) from 0 to \d+: got \[ *0 +\d+\]"),
    (lambda c: c.take(np.array([-1])), "take needs indices"),
    (lambda c: c.take(np.array([0.5])), "take needs indices"),
    (lambda c: c.take(np.array([[1]])), "take needs indices"),
    (lambda c: next(c.blocks(0)), "A block needs at least 1 row, got 0."),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments(written: Written, call: Callable[[Contexts], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(Contexts.open(written.folder))


def test_it_says_what_it_is(written: Written) -> None:
    rows = len(written.table["gold"])
    expected = f"Contexts('{written.folder}', {rows} rows of width 6, top 2 of 99, en-de, de-en, en-fr)"
    assert repr(Contexts.open(written.folder)) == expected


def test_blocks_are_read_one_at_a_time(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    take = Contexts.take
    monkeypatch.setattr(Contexts, "take", lambda self, rows: read.append(len(rows)) or take(self, rows))
    blocks: Iterator[Block] = Contexts.open(written.folder).blocks(10)
    next(blocks)
    assert read == [10]
