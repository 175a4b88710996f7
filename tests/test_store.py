"""Files are whole or absent, whatever happens while they are written."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fastdecode_lib import store
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.store import (
    atomic_file,
    atomic_folder,
    check_replaceable,
    read_json,
    read_tensors,
    recover,
    user_cache,
    write_table,
)


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    with atomic_file(path) as temporary:
        temporary.write_text("one")
        assert not path.exists() and temporary.parent.parent == path.parent
    assert path.read_text() == "one" and os.listdir(path.parent) == ["a.txt"]
    with atomic_file(path) as temporary:
        temporary.write_text("two")
        assert path.read_text() == "one"
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("before", [None, "old"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), ValueError("x")])
def test_a_file_that_fails_leaves_nothing(tmp_path: Path, before: str | None, error: BaseException) -> None:
    path = tmp_path / "a.txt"
    if before:
        path.write_text(before)
    with pytest.raises(type(error)), atomic_file(path) as temporary:
        temporary.write_text("half")
        raise error
    assert os.listdir(tmp_path) == (["a.txt"] if before else [])
    assert not before or path.read_text() == before


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "file.txt", tmp_path / "link.txt"
    file.write_text("old")
    link.symlink_to(file)
    with atomic_file(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink() and file.read_text() == "new" and os.listdir(tmp_path / "there") == ["file.txt"]


def test_a_link_to_a_folder_stays_and_the_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "old").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with atomic_folder(tmp_path / "link") as temporary:
        (temporary / "new").write_text("new")
    assert (tmp_path / "link").is_symlink() and os.listdir(tmp_path / "there") == ["new"]
    assert sorted(os.listdir(tmp_path)) == ["link", "there"]


def test_standard_output_may_be_a_pipe(tmp_path: Path) -> None:
    code = (
        "from fastdecode_lib.store import atomic_file\n"
        "with atomic_file('/dev/stdout') as temporary:\n    temporary.write_text('through')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "through"), done.stderr


def test_standard_output_in_a_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    code = (
        "from fastdecode_lib.store import write_text\nprint('before', flush=True)\n"
        "write_text('/dev/stdout', 'through\\n')\nwrite_text('/dev/fd/1', 'again\\n')\nprint('after')"
    )
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out").read_text().split() == ["before", "through", "again", "after"]


def test_who_reads_and_replaces_waits_for_another_who_does(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with store.locked(tmp_path / "one"):
            order.append("second")

    with store.locked(tmp_path / "one"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"] and os.listdir(tmp_path) == []


def test_a_user_without_a_home_has_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert user_cache() == tmp_path / ".cache" / "fastdecode"

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert user_cache().name == f"fastdecode-{os.getuid()}"


def test_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    file.chmod(0o600)
    with atomic_file(file) as temporary:
        temporary.write_text("new")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_pipe_is_written_through(tmp_path: Path) -> None:
    import threading

    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    with atomic_file(pipe) as temporary:
        temporary.write_text("through")
    reader.join(10)
    assert received == ["through"] and pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_text("")
    except PermissionError:
        pytest.skip("making a device needs rights that are not here")
    with atomic_file(device) as temporary:
        temporary.write_text("gone")
    assert device.is_char_device() and os.listdir(tmp_path) == ["null"]


def test_a_folder_or_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for name, kind in (("folder", "a folder"), ("socket", "a socket")):
            with (
                pytest.raises(
                    ValueError, match=f"cannot be written there: got .*{name}', which is {kind}. Name a file"
                ),
                atomic_file(tmp_path / name),
            ):
                pass
    assert sorted(os.listdir(tmp_path)) == ["folder", "socket"]


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("kind", [atomic_file, atomic_folder])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, kind: Callable[..., Any]) -> None:
    path, folder = tmp_path / "thing", kind is atomic_folder

    def fill(temporary: Path, text: str) -> None:
        (temporary / "inside" if folder else temporary).write_text(text)

    with kind(path) as temporary:
        fill(temporary, "old")
    monkeypatch.setattr(store.os, call, full_disk)
    with pytest.raises(OSError, match="No space left"), kind(path) as temporary:
        fill(temporary, "new")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["thing"]
    assert (path / "inside" if folder else path).read_text() == "old"


@pytest.mark.parametrize("moved", [0, 1])
def test_an_interrupt_amid_the_exchange_keeps_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """Ctrl-C may come right behind either move."""
    path, replace, moves = tmp_path / "my.model", os.replace, []
    with atomic_folder(path) as temporary:
        (temporary / "weights").write_text("old")

    def interrupted(source: Path, target: Path) -> None:
        replace(source, target)
        moves.append(target)
        if len(moves) == moved + 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(store.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_folder(path) as temporary:
        (temporary / "weights").write_text("new")
    assert os.listdir(tmp_path) == ["my.model"]
    assert (path / "weights").read_text() == ("new" if moved else "old")


def test_a_folder_left_aside_comes_back_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / ".my.model.x1y2.old").mkdir()
    (tmp_path / ".my.model.x1y2.old" / "weights").write_text("old")
    (tmp_path / ".my.model.x1y2.part").mkdir()
    recover(tmp_path)
    assert os.listdir(tmp_path) == ["my.model"] and (tmp_path / "my.model" / "weights").read_text() == "old"


def test_a_folder_that_holds_something_else_is_not_replaced(tmp_path: Path) -> None:
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    assert check_replaceable(full, "marker") == full and check_replaceable(tmp_path / "new", "marker")
    (full / "mine").write_text("dear")
    file.write_text("dear")
    for place in (full, file):
        with pytest.raises(
            ValueError, match=f"{place.name} would be replaced as a whole.* no marker in it. Name another"
        ):
            check_replaceable(place, "marker")
    (full / "marker").touch()
    assert check_replaceable(full, "marker") == full


def test_a_folder_that_cannot_take_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old folder has been moved aside when the second move fails; it must come back."""
    path, replace = tmp_path / "model", os.replace
    with atomic_folder(path) as temporary:
        (temporary / "weights").write_text("old")

    def second_fails(source: Path, target: Path) -> None:
        if Path(source).suffix == ".part":
            full_disk()
        replace(source, target)

    monkeypatch.setattr(store.os, "replace", second_fails)
    with pytest.raises(OSError, match="No space left"), atomic_folder(path) as temporary:
        (temporary / "weights").write_text("new")
    assert os.listdir(tmp_path) == ["model"]
    assert (path / "weights").read_text() == "old"


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for name in ("a", "b"):
        with atomic_folder(path) as temporary:
            (temporary / name).write_text(name)
        assert os.listdir(path) == [name]
    assert os.listdir(tmp_path) == ["model"] and path.stat().st_mode & 0o777 == 0o755
    with pytest.raises(ValueError), atomic_folder(path) as temporary:
        (temporary / "c").write_text("c")
        raise ValueError
    assert os.listdir(path) == ["b"] and os.listdir(tmp_path) == ["model"]


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    rows = [
        {"name": "ä", "bad": float("nan"), "worse": np.float64("inf"), "count": np.int64(3), "flag": np.bool_(True)},
        {"name": "b", "bad": None, "worse": -float("inf"), "ids": [1, 2]},
    ]
    write_table(path, rows, {"seed": 1})
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content == {
        "schema": 1,
        "provenance": {"seed": 1},
        "rows": [
            {"name": "ä", "bad": None, "worse": None, "count": 3, "flag": True},
            {"name": "b", "bad": None, "worse": None, "ids": [1, 2]},
        ],
    }
    assert "ä" in path.read_text(encoding="utf-8")


def test_a_table_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    write_table(path, [{"name": "old"}], {})
    with pytest.raises(TypeError):
        write_table(path, [{"name": object()}], {})
    assert json.loads(path.read_text())["rows"] == [{"name": "old"}]
    assert os.listdir(tmp_path) == ["table.json"]


# ------------------------------------------------------------------------------------------------ what a kill leaves

KILLED = """
import os, signal, sys
from fastdecode_lib.store import atomic_file, atomic_folder
with globals()[sys.argv[1]](sys.argv[2]) as temporary:
    (temporary / "x" if temporary.is_dir() else temporary).write_text("half")
    os.kill(os.getpid(), int(sys.argv[3]))
"""


def begun(kind: str, path: Path, number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", KILLED, kind, str(path), str(number)])


def write(kind: str, path: Path, text: str) -> None:
    with getattr(store, kind)(path) as temporary:
        (temporary / "x" if temporary.is_dir() else temporary).write_text(text)


@pytest.mark.parametrize("kind", ["atomic_file", "atomic_folder"])
def test_what_a_kill_leaves_is_cleared_by_the_next_writer_and_by_no_other(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "a[1].txt", tmp_path / "a1.txt"
    assert begun(kind, path, signal.SIGKILL).wait() == -signal.SIGKILL
    (left,) = os.listdir(tmp_path)
    write(kind, other, "another")
    assert left in os.listdir(tmp_path)
    write(kind, path, "whole")
    assert sorted(os.listdir(tmp_path)) == ["a1.txt", "a[1].txt"]


@pytest.mark.parametrize("kind", ["atomic_file", "atomic_folder"])
def test_what_a_living_process_writes_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    stopped = begun(kind, path, signal.SIGSTOP)
    try:
        os.waitpid(stopped.pid, os.WUNTRACED)
        before = os.listdir(tmp_path)
        recover(tmp_path)
        write(kind, path, "ours")
        assert len(before) == 1 and sorted(os.listdir(tmp_path)) == sorted([*before, "a"])
    finally:
        stopped.send_signal(signal.SIGCONT)
        assert stopped.wait() == 0
    assert os.listdir(tmp_path) == ["a"]
    assert (path / "x" if path.is_dir() else path).read_text() == "half"


# --------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 60 + "1" + "}" * 60, "nested deeper than 40 levels"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' stands twice"),
        ('{"a": Infinity}', "not finite: Infinity"),
        ('{"a": NaN}', "not finite: NaN"),
        ('{"a": 1e999}', "not finite: 1e999"),
        ('{"a": 1' + "0" * 5_000 + "}", "limit"),
        ('{"a": ', "Expecting value"),
        ("[1]", "should hold a JSON object, got list"),
        ("1", "should hold a JSON object, got int"),
    ],
)
def test_json_that_is_damaged(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(CheckpointError, match=rf"a\.json .*{said}.*Make it again\.$"):
        read_json(file, error=CheckpointError, again="Make it again.")


def test_json_that_is_no_file_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, said in (("none", "No such file"), (".", "Is a directory"), ("bytes", "utf-8")):
        with pytest.raises(ValueError, match=f"not readable JSON: .*{said}"):
            read_json(tmp_path / name)
    (tmp_path / "large").write_text('{"a": "bcd"}')
    monkeypatch.setattr(store, "LARGEST_JSON", 8)
    with pytest.raises(ValueError, match="12 bytes, and at most 8 are read"):
        read_json(tmp_path / "large")


def test_json_that_is_whole(tmp_path: Path) -> None:
    content = {"a": [1, 2.5, None, {"b": "ü"}], "c": -3e5}
    (tmp_path / "a").write_text(json.dumps(content))
    assert read_json(tmp_path / "a") == content and store.parse_json("[" * 40 + "]" * 40)


def test_tensors_of_all_types_and_none_that_numpy_lacks(tmp_path: Path) -> None:
    file, half = tmp_path / "a.safetensors", torch.arange(6).to(torch.bfloat16)
    save_file({"half": half, "whole": torch.arange(3)}, file, metadata={"note": '{"version": 1}', "list": "[1]"})
    arrays, metadata = read_tensors(file)
    assert arrays["half"].dtype == np.float32 and arrays["half"].tolist() == half.tolist()
    assert arrays["whole"].dtype == np.int64 and read_tensors(file, framework="pt")[0]["half"].dtype == torch.bfloat16
    assert store.note_of(metadata, "note") == store.read_note(file, "note") == {"version": 1}
    assert (
        store.read_note(file, "list") == store.read_note(file, "none") == store.read_note(tmp_path / "b", "note") == {}
    )
    save_file({"small": half.to(torch.float8_e4m3fn)}, file)
    with pytest.raises(CheckpointError, match=r"'small' of .* has type F8_E4M3, which numpy does not have. Save it as"):
        read_tensors(file, CheckpointError)


@pytest.mark.parametrize("content", [None, b"", b"abc", b"\xff" * 100, (1 << 60).to_bytes(8, "little") + b"{}"])
def test_tensors_that_are_damaged(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "a.safetensors"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CheckpointError, match="not a readable safetensors file: .*Copy it again"):
        read_tensors(file, CheckpointError)
    with pytest.raises(CheckpointError, match="not a readable safetensors file: .*Make it again"):
        read_tensors(tmp_path, CheckpointError, "Make it again.")


def test_a_disk_that_fills_up_under_tensors_is_an_error_of_the_system(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
import numpy as np
from safetensors.numpy import save_file
from fastdecode_lib.store import atomic_file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with atomic_file(sys.argv[1]) as temporary:
        save_file({"a": np.zeros(1000)}, temporary)
except OSError as error:
    print(error.filename, error.strerror)
"""
    path = tmp_path / "a.safetensors"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(path)) and "File too large" in done.stdout
    assert os.listdir(tmp_path) == []


def test_writers_of_one_file_do_not_take_each_other_for_dead(tmp_path: Path) -> None:
    def write_often(number: int) -> None:
        for _ in range(150):
            write("atomic_file", tmp_path / "a", str(number))

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(write_often, range(4)))
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_text() in "0123"


def test_a_doubled_key_among_many_is_found_at_once() -> None:
    keys = ",".join(f'"{number}":1' for number in range(50_000))
    with pytest.raises(ValueError, match="the key '49999' stands twice"):
        store.parse_json(f'{{{keys},"49999":2}}')


def test_what_another_user_left_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / ".a.x.part"
    left.mkdir()
    opened = os.open

    def refused(path: Any, *more: Any, **named: Any) -> int:
        if Path(path) == left:
            raise PermissionError(errno.EACCES, "another user's", str(path))
        return opened(path, *more, **named)

    monkeypatch.setattr(store.os, "open", refused)
    write("atomic_file", tmp_path / "a", "whole")
    assert (tmp_path / "a").read_text() == "whole" and left.is_dir()
