"""What soak calls a fault is one: every kind of end is told from the others."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fastdecode_lib.store import parse_json
from soak import damage, workshop
from soak.workshop import begin, finish, run


def raising(error: BaseException) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


def died() -> int:
    import os

    os._exit(3)


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (lambda: 0, "done"),
        (lambda: parse_json("[1, NaN]"), "refused"),
        (lambda: int("one"), "foreign"),
        (raising(RuntimeError("torn")), "foreign"),
        (raising(KeyError("a")), "traceback"),
        (lambda: len(np.ones(10**11)), "memory"),
        (died, "traceback"),
    ],
)
def test_ends_are_told_apart(tmp_path: Path, work: Callable[[], int], kind: str) -> None:
    assert run(tmp_path, work).kind == kind


def test_what_does_not_end_is_a_hang_and_what_is_killed_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workshop, "SECONDS", 0.1)
    wait = lambda: time.sleep(30) or 0  # noqa: E731
    assert run(tmp_path, wait).kind == "hang"
    monkeypatch.setattr(workshop, "SECONDS", 20)  # a large process takes a while to end
    assert finish(begin(tmp_path, wait), 0.02).kind == "killed"
    assert finish(begin(tmp_path, wait), 0.05, signal.SIGINT).kind == "interrupted"


def test_a_full_disk_is_refused(tmp_path: Path) -> None:
    def write() -> int:
        return (tmp_path / "a").write_bytes(bytes(2_000)) * 0

    assert finish(begin(tmp_path, write, largest_file=1_000)).kind == "foreign"
    assert finish(begin(tmp_path, write, largest_file=3_000)).kind == "done"


@pytest.mark.parametrize("name", ["a.json", "a.safetensors", "a.spm"])
def test_most_damage_changes_a_file(tmp_path: Path, name: str) -> None:
    from safetensors.numpy import save_file

    random, changed = np.random.default_rng(1), 0
    for _ in range(60):
        file = tmp_path / name
        if file.is_dir():
            file.rmdir()
        file.write_text('{"a": [1, 2, {"b": "c"}], "d": 3}')
        if file.suffix == ".safetensors":
            save_file({"a": np.ones((2, 3)), "b": np.zeros(4)}, file)
        before = file.read_bytes()
        damage.alter(file, random)
        changed += not file.is_file() or file.read_bytes() != before
    assert changed >= 54
