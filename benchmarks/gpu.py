"""Everything there is to say about a GPU, in minutes: parity tests, then the experiments of three papers that are about one.

Each part is a process of its own with a time limit, so that one that fails or hangs stops no other; what it prints, and its table,
lie in the folder as soon as they exist. Nothing is installed and nothing is downloaded.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ("-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", "--tb=short")
AGREEMENT = "agreement.json"
"""Outputs that float16 and bfloat16 share with float64, as the parity tests count them."""


@dataclass(frozen=True)
class Part:
    """Part of the run: commands of Python's that run side by side, and the seconds they may take."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    limit: float


def parity() -> Part:
    """The tests marked `gpu`; those of screens, which compile many kernels, in four processes by their seeds."""
    screens = [
        (*PYTEST, "tests/gpu/test_screens_gpu.py", "-k", f"seed{i} or seed{i + 4}{' or not seed' * (i == 0)}")
        for i in range(4)
    ]
    others = [(*PYTEST, f"tests/gpu/{name}.py") for name in ("test_bundled_models", "test_cuda", "test_graphs")]
    return Part("parity", (*others, *screens), 70)


def experiment(name: str, limit: float, scale: str, device: str, out: Path) -> Part:
    """A table of a paper, written to the folder."""
    command = ("-m", "fastdecode_lib.cli", "experiment", name, "--scale", scale, "--device", device)
    return Part(name, ((*command, "--results", str(out)),), limit)


def parts_of(scale: str, device: str, out: Path) -> list[Part]:
    """All parts, in order."""
    limits = {
        "parallel_decoding.gpu": 60,
        "parallel_decoding.gpu_passes": 40,
        "double_token_decoding.gpu": 45,
        "vocabulary_clusters.gpu_decoding": 50,
        "vocabulary_clusters.gpu": 90,
        "double_token_decoding.gpu_beams": 45,
    }
    return [parity(), *(experiment(name, limit, scale, device, out) for name, limit in limits.items())]


def run(part: Part, log: Path, environment: Mapping[str, str]) -> dict[str, object]:
    """Run a part's commands side by side until they end or its time is over; what they print is added to the log."""
    start = monotonic()
    pieces = [log.with_suffix(f".{i}.part") for i in range(len(part.commands))]
    running = []
    for command, piece in zip(part.commands, pieces, strict=True):
        with piece.open("wb") as printed:
            running.append(
                subprocess.Popen(
                    [sys.executable, *command], cwd=ROOT, env=dict(environment), stdin=subprocess.DEVNULL,
                    stdout=printed, stderr=subprocess.STDOUT, start_new_session=True,
                )
            )  # fmt: skip
    while any(process.poll() is None for process in running) and monotonic() - start < part.limit:
        sleep(0.05)
    late = [process.poll() is None for process in running]
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with log.open("ab") as whole:
        for command, piece in zip(part.commands, pieces, strict=True):
            whole.write(f"\n== {part.name}: python {' '.join(command)}\n".encode() + piece.read_bytes())
            piece.unlink()
    ended = ["over its time" if slow else process.returncode for process, slow in zip(running, late, strict=True)]
    return {"part": part.name, "seconds": round(monotonic() - start, 1), "limit": part.limit, "ended": ended}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts; 1 if one has failed."""
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("build/gpu"), help="folder of the results (default: build/gpu)"
    )
    parser.add_argument("--scale", default="laptop", help="tiny (shows that all parts run) or laptop (default)")
    parser.add_argument("--device", default="cuda", help="cuda or cpu (default: cuda)")
    parser.add_argument("--parts", nargs="*", help="only these parts")
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    known = parts_of(options.scale, options.device, out)
    if unknown := sorted({*(options.parts or ())} - {part.name for part in known}):
        parser.error(f"unknown part: got {', '.join(unknown)}. Parts: {', '.join(part.name for part in known)}.")
    out.mkdir(parents=True, exist_ok=True)
    agreement = {"FASTDECODE_AGREEMENT": str(out / AGREEMENT)}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", **agreement}
    (out / "log.txt").write_text("", encoding="utf-8")
    done: list[dict[str, object]] = []
    for part in known:
        if options.parts and part.name not in options.parts:
            continue
        done.append(run(part, out / "log.txt", environment))
        (out / "parts.json").write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(done[-1]), flush=True)
    print(f"Results are in {out}; what was printed is in log.txt there.")
    return int(any(set(one["ended"]) != {0} for one in done))  # type: ignore[call-overload]


if __name__ == "__main__":
    raise SystemExit(main())
