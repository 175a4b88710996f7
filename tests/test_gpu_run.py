"""`make gpu`: parts that fail, hang or die stop no other, and what they print is kept."""

import json
from pathlib import Path

import pytest

from benchmarks import gpu

HANGS = ("-c", "import time; print('begun', flush=True); time.sleep(60)")


def test_commands_run_side_by_side_and_one_that_hangs_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    found = gpu.side_by_side([("-c", "print('well')"), HANGS, ("-c", "raise SystemExit(3)")], 2.0, log)
    assert found == [0, gpu.LATE, 3]
    said = log.read_text(encoding="utf-8")
    assert "well" in said and "begun" in said and said.count("== python -c") == 3
    assert list(tmp_path.iterdir()) == [log]


def test_a_worker_goes_on_after_a_command_that_fails(tmp_path: Path) -> None:
    worker = gpu.Worker(tmp_path / "log")
    try:
        assert worker.run(("experiment", "--list", "start_here"), 200) == 0
        first = worker.process
        assert worker.run(("experiment", "start_here.nothing"), 200) == 2
        assert worker.run(("experiment", "--list", "start_here"), 200) == 0 and worker.process is not first
        assert worker.run(("experiment", "--list", "start_here"), 0) == gpu.LATE and worker.process is None
    finally:
        worker.stop()
    said = (tmp_path / "log").read_text(encoding="utf-8")
    assert "Unknown experiment: got 'start_here.nothing'" in said and said.count("start_here.comparison") >= 2


def test_parts_that_fail_are_told_and_the_others_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HF_HUB_OFFLINE", "PYTHONUNBUFFERED", "FASTDECODE_AGREEMENT"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(gpu, "LIMITS", {"parallel_decoding.nothing": 200, "parallel_decoding.gpu_passes": 200})
    monkeypatch.setattr(gpu, "parity_commands", lambda files: [("-c", f"print('tests of', {list(files)})")])
    out = tmp_path / "out"
    assert gpu.main(["--out", str(out), "--scale", "tiny", "--device", "cpu", "--tests", "some"]) == 1
    done = json.loads((out / "parts.json").read_text(encoding="utf-8"))
    assert [part["ended"] for part in done] == [[0], [2], [0]] and "tests of ['some']" in (
        out / "tests.log"
    ).read_text()
    assert (out / "parallel_decoding.gpu_passes.tiny.json").is_file()
    assert gpu.main(["--out", str(out), "--parts", "parity", "--seconds", "0.5", "--device", "cpu"]) == 0
    assert "parity is left out: no time is left." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        gpu.main(["--parts", "parity", "all"])
    assert "unknown part: got all. Parts: parity, parallel_decoding.nothing" in capsys.readouterr().err
