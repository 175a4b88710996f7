"""Provenance: how a number was made, on which machine, with which versions."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import date
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from fastdecode_lib import __version__
from fastdecode_lib.kernels.cpu import info, processor
from fastdecode_lib.loading import TranslationModel


def provenance(
    model: TranslationModel | None = None, *, threads: int | None = None, seed: int | None = None
) -> dict[str, Any]:
    """Origin of a number: date, commit, machine, versions, command, and the model if there is one."""
    origin: dict[str, Any] = {
        "date": date.today().isoformat(),
        "commit": commit(),
        "command": command(),
        "cpu": processor(),
        "cpu_flags": cpu_features(),
        "cores": os.cpu_count(),
        "threads": threads,
        "seed": seed,
        "python": platform.python_version(),
        "versions": versions(),
    }
    if model is not None:
        origin |= {
            "model": model.name,
            "fingerprint": model.checkpoint.fingerprint,
            "engine": model.engine,
            "device": device_name(model.device),
            "dtype": model.dtype,
        }
    return origin


def command() -> str:
    """The command that this process runs, ``fastdecode`` with its arguments for ours."""
    program = Path(sys.argv[0])
    ours = program.stem == "fastdecode" or program.parts[-3:-1] == ("fastdecode_lib", "cli")
    return shlex.join(["fastdecode", *sys.argv[1:]] if ours else sys.argv)


@cache
def commit() -> str | None:
    """The checkout's commit, with ``-dirty`` if code has changed since; None for an installed library."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None
    try:
        revision = _git(checkout, "rev-parse", "--short", "HEAD")
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "*.py", "fastdecode_lib/assets")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{revision}-dirty" if changed else revision


def _git(checkout: Path, *command: str) -> str:
    process = subprocess.run(
        ["git", "-C", str(checkout), *command], capture_output=True, text=True, check=True, timeout=10
    )
    return process.stdout.strip()


def versions() -> dict[str, str]:
    """Installed versions of the packages that influence a number."""
    installed = {"fastdecode": __version__}
    packages = (
        "numpy", "numba", "torch", "transformers", "sentencepiece", "ctranslate2", "sacrebleu", "faiss-cpu", "scann",
    )  # fmt: skip
    for package in packages:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def device_name(device: str) -> str:
    """The product name of a CUDA device; the name of any other device."""
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    return device


def cpu_features() -> list[str]:
    """Instruction sets that matter for decoding, by the operating system's names; empty if it gives none."""
    relevant = (
        "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "amx_bf16", "neon", "asimd", "bf16",
    )  # fmt: skip
    flags = (info("flags") or info("Features")).split()
    return [flag for flag in relevant if flag in flags]
