"""Where a number comes from: the day, the commit, the machine."""

import subprocess
from datetime import date
from pathlib import Path

import pytest

from fastdecode_lib.measuring import provenance as module
from fastdecode_lib.measuring.provenance import commit, provenance


def test_a_result_says_when_and_from_which_commit_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "fastdecode_lib" / "measuring" / "provenance.py"))
    commit.cache_clear()
    try:
        assert provenance()["date"] == date.today().isoformat() and provenance()["commit"] is None
        git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run([*git, "init", "-q"], check=True)
        (tmp_path / "a.py").write_text("1")
        (tmp_path / "result.json").write_text("1")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", "a"], check=True)
        commit.cache_clear()
        clean = commit()
        (tmp_path / "result.json").write_text("2")
        commit.cache_clear()
        assert commit() == clean, "results are not what they were made with"
        (tmp_path / "a.py").write_text("2")
        commit.cache_clear()
        assert clean and len(clean) >= 7 and commit() == f"{clean}-dirty"
    finally:
        commit.cache_clear()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("/somewhere/bin/fastdecode", "fastdecode compare --runs 9"),
        ("/a/checkout/fastdecode_lib/cli/__main__.py", "fastdecode compare --runs 9"),
        ("/home/me/fastdecode/script.py", "/home/me/fastdecode/script.py compare --runs 9"),
        ("/home/me/fastdecode/.venv/bin/pytest", "/home/me/fastdecode/.venv/bin/pytest compare --runs 9"),
    ],
)
def test_only_our_program_is_called_fastdecode(program: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [program, "compare", "--runs", "9"])
    assert provenance()["command"] == expected
