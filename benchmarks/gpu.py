"""Everything that is tested and measured on a GPU, in minutes: parity tests, then the GPU experiments of three papers.

Each part has a time limit, so that a part that fails or hangs stops no other; its output and its table are in the folder as soon as
they exist. Experiments share a process, which is restarted after an experiment that fails.
"""

import argparse
import gc
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastdecode_lib.measuring.referee import stopwatch

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ("-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", "--tb=short")
AGREEMENT = "agreement.json"
"""Shares of outputs in float16 and bfloat16 that are the same in float64, from the parity tests."""
PARITY, LIMIT = "parity", 100
SCREENS = "test_screens_gpu"
TESTS = ("test_graphs", "test_cuda", "test_bundled_models", SCREENS)
LIMITS = {
    "parallel_decoding.gpu_passes": 45,
    "double_token_decoding.gpu": 45,
    "vocabulary_clusters.gpu": 90,
    "parallel_decoding.gpu": 60,
    "vocabulary_clusters.gpu_decoding": 60,
    "double_token_decoding.gpu_beams": 45,
}
"""Experiments in order, with the time limit of each in seconds."""
COMPILED = ("vocabulary_clusters.gpu", "vocabulary_clusters.gpu_decoding")
"""Experiments with Triton and numba kernels, which are compiled while the parity tests run."""
LATE = "over its time"


def compiling(tables: Sequence[str], device: str) -> list[tuple[str, ...]]:
    """Commands that make the tables at tiny scale, so that their kernels are compiled before the measurement."""
    names = [name for name in COMPILED if name in tables]
    return [("-m", "fastdecode_lib.cli", "experiment", name, "--scale", "tiny", "--device", device) for name in names]


def parity_commands(files: Sequence[str]) -> list[tuple[str, ...]]:
    """The tests marked `gpu`, by file; the tests of screens, which compile many kernels, in four processes by seed."""
    commands: list[tuple[str, ...]] = [(*PYTEST, f"tests/gpu/{name}.py") for name in files if name != SCREENS]
    seeds = range(4) if SCREENS in files else ()
    return commands + [
        (*PYTEST, f"tests/gpu/{SCREENS}.py", "-k", f"seed{i} or seed{i + 4}{' or not seed' * (i == 0)}") for i in seeds
    ]


def side_by_side(commands: Sequence[tuple[str, ...]], limit: float, log: Path) -> list[int | str]:
    """Exit statuses of Python commands, run until they end or the time is over; their outputs are appended to the log in order."""
    logs = [log.with_name(f"{log.name}.{i}") for i in range(len(commands))]

    def status_of(command: tuple[str, ...], command_log: Path) -> int | str:
        with command_log.open("wb") as output, _started(command, output) as process:
            try:
                return process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return LATE

    with ThreadPoolExecutor(len(commands)) as pool:
        statuses = list(pool.map(status_of, commands, logs))
    with log.open("ab") as file:
        for command, command_log in zip(commands, logs, strict=True):
            file.write(f"\n== python {' '.join(command)}\n".encode() + command_log.read_bytes())
            command_log.unlink()
    return statuses


def _started(command: Sequence[str], output: Any, **options: Any) -> "subprocess.Popen[bytes]":
    settings: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "start_new_session": True}
    return subprocess.Popen([sys.executable, *command], stdout=output, **(settings | options))


@dataclass
class Worker:
    """A process that makes one table after another; it starts early, and imports while other commands still run."""

    log: Path
    process: "subprocess.Popen[bytes] | None" = field(default=None)
    answers: int = -1

    def start(self) -> None:
        """Start the process, unless it is running."""
        if self.process is not None and self.process.poll() is None:
            return
        self.answers, write_end = os.pipe()
        with self.log.open("ab") as output:
            command = ("-m", "benchmarks.gpu", "--serve", str(write_end))
            self.process = _started(command, output, stdin=subprocess.PIPE, pass_fds=(write_end,))
        os.close(write_end)

    def run(self, arguments: Sequence[str], limit: float) -> int | str:
        """The exit status of a fastdecode command, ``"over its time"``, or ``"died"``."""
        self.start()
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(list(arguments)).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.stop()
            return "died"
        ready, _, _ = select.select([self.answers], [], [], limit)
        answer = os.read(self.answers, 100).decode().strip() if ready else LATE
        if answer != "0":
            self.stop()
        return int(answer) if answer.isdecimal() else answer or "died"

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            if self.process.stdin is not None:
                self.process.stdin.close()
            os.close(self.answers)
            self.process = None


def serve(answers: int) -> int:
    """Run the fastdecode commands from the lines of the standard input, and answer each with its exit status."""
    from fastdecode_lib.cli.main import main as fastdecode
    from fastdecode_lib.papers.catalogue import experiments

    experiments()
    os.environ["FASTDECODE_TRACEBACK"] = "1"
    for line in sys.stdin:
        arguments = json.loads(line)
        print(f"\n== fastdecode {' '.join(arguments)}", flush=True)
        sys.argv = ["fastdecode", *arguments]
        try:
            status = fastdecode(arguments)
        except BaseException:
            traceback.print_exc()
            status = 3
        sys.stdout.flush()
        os.write(answers, f"{status}\n".encode())
        _free_memory()
    return 0


def _free_memory() -> None:
    """Free the device memory of the last table."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts; 1 if one has failed."""
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument("--out", default="build/gpu", help="folder of the results (default: build/gpu)")
    parser.add_argument("--scale", default="laptop", help="tiny (shows that all parts run) or laptop (default)")
    parser.add_argument("--device", default="cuda", help="cuda or cpu (default: cuda)")
    parser.add_argument("--parts", nargs="*", help=f"only these of {PARITY}, {', '.join(LIMITS)}")
    parser.add_argument("--tests", nargs="*", default=TESTS, help=f"files of the parity tests: {', '.join(TESTS)}")
    parser.add_argument("--seconds", type=float, default=600, help="for everything; what has no time left is left out")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve is not None:
        return serve(options.serve)
    if unknown := sorted({*(options.parts or ())} - {PARITY, *LIMITS}):
        parser.error(f"unknown part: got {', '.join(unknown)}. Parts: {PARITY}, {', '.join(LIMITS)}.")
    if options.device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            parser.error(
                f"no CUDA device here: got --device {options.device}. Run it on a machine with one, or --device cpu."
            )
    os.chdir(ROOT)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    for name, value in {
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "FASTDECODE_AGREEMENT": str(out / AGREEMENT),
    }.items():
        os.environ[name] = value
    for file in ("tests.log", "tables.log", "parts.json", AGREEMENT):
        (out / file).unlink(missing_ok=True)
    parts = [name for name in (PARITY, *LIMITS) if name in (options.parts or (PARITY, *LIMITS))]
    for table in (table for name in parts for table in out.glob(f"{name}.*.json")):
        table.unlink()
    settings = ("--scale", options.scale, "--device", options.device, "--results", str(out))
    worker, records, failed, seconds_left = Worker(out / "tables.log"), [], False, options.seconds
    if parts != [PARITY]:
        worker.start()
    try:
        for name in parts:
            limit = min(LIMITS.get(name, LIMIT), seconds_left)
            if limit < 1:
                print(f"{name} is left out: no time is left.")
                continue

            def part(name: str, limit: float = limit) -> list[int | str]:
                if name == PARITY:
                    commands = parity_commands(options.tests) + compiling(parts, options.device)
                    return side_by_side(commands, limit, out / "tests.log")
                return [worker.run(("experiment", name, *settings), limit)]

            seconds, (statuses,) = stopwatch(part, [name])
            seconds_left -= seconds
            failed |= any(status != 0 for status in statuses)
            records.append({"part": name, "seconds": round(seconds, 1), "limit": limit, "ended": statuses})
            (out / "parts.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(records[-1]), flush=True)
    finally:
        worker.stop()
    print(f"Results are in {out}: a file for each table, what was printed in tests.log and tables.log.")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
