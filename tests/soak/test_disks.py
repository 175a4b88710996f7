"""Every command on a disk without room and in a folder that cannot be written: one sentence, and nothing lost."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from soak import disks, disturbed
from soak.workshop import COMMANDS, Command, begin, finish

needs_disks = pytest.mark.skipif(not disks.available(), reason="no file systems of one's own here")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of every command on every disk, in a process without threads: one that has some cannot be forked safely."""
    if not disks.available():
        return {}
    folder = tmp_path_factory.mktemp("soak")
    paths = [str(Path(__file__).resolve().parents[1]), *sys.path]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    code = "import sys; from soak.disturbed import all_without_room; all_without_room(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return said


def write(folder: Path, number: int) -> Callable[[], int]:
    return lambda: (folder / "a").write_bytes(bytes(number)) * 0


@needs_disks
def test_disks_are_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "held").write_bytes(bytes(10_000))
    small = lambda folder: disks.make_small(folder, 8_192)  # noqa: E731
    assert finish(begin(tmp_path, write(tmp_path, 4_000), disk=small)).kind == "done"
    full = finish(begin(tmp_path, write(tmp_path, 100_000), disk=small))
    assert full.kind == "foreign" and "No space left" in full.message
    locked = finish(begin(tmp_path, write(tmp_path, 1), disk=disks.make_read_only))
    assert locked.kind == "foreign" and "Read-only" in locked.message
    assert [path.name for path in tmp_path.iterdir()] == ["held"]


@needs_disks
@pytest.mark.parametrize("how", ["read-only", "small disk"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_one_sentence_and_nothing_lost(outcomes: dict[str, str], command: Command, how: str) -> None:
    assert outcomes[f"{command.name}, {how}"].startswith("refused")


@needs_disks
@pytest.mark.parametrize("how, kind", [("read-only", "refused"), ("small disk", "traceback")])
def test_what_a_killed_command_left_is_a_fault_where_it_can_be_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, kind: str
) -> None:
    (tmp_path / ".a.part").write_bytes(b"1")
    monkeypatch.setattr(Command, "work", lambda _: 1)
    outcome = disturbed.without_room(COMMANDS[0], tmp_path, how)
    assert outcome.kind == kind
    assert ("left behind: .a.part" in outcome.message) == (how == "small disk")
    assert (tmp_path / ".a.part").read_bytes() == b"1"
