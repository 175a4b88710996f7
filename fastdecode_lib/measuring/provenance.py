"""Provenance: how a number was made, on which machine, with which versions."""

import os
import platform
import subprocess
import sys
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from fastdecode_lib.kernels.cpu import info, processor
from fastdecode_lib.loading import TranslationModel


def provenance(
    model: TranslationModel | None = None, *, threads: int | None = None, seed: int | None = None
) -> dict[str, Any]:
    """Origin of a number: date, commit, machine, versions, command, and the model if there is one."""
    about: dict[str, Any] = {
        "date": date.today().isoformat(),
        "commit": commit(),
        "command": " ".join(["fastdecode", *sys.argv[1:]] if "fastdecode" in sys.argv[0] else sys.argv),
        "cpu": processor(),
        "cpu_flags": cpu_features(),
        "cores": os.cpu_count(),
        "threads": threads,
        "seed": seed,
        "python": platform.python_version(),
        "versions": versions(),
    }
    if model is not None:
        about |= {
            "model": model.name,
            "fingerprint": model.checkpoint.fingerprint,
            "engine": model.engine,
            "device": device_name(model.device),
            "dtype": model.dtype,
        }
    return about


@cache
def commit() -> str | None:
    """The checkout's commit, with ``-dirty`` where code has changed since; None for an installed library."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None
    try:
        head = _git(checkout, "rev-parse", "--short", "HEAD")
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "*.py", "fastdecode_lib/assets")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if changed else head


def _git(checkout: Path, *command: str) -> str:
    called = subprocess.run(
        ["git", "-C", str(checkout), *command], capture_output=True, text=True, check=True, timeout=10
    )
    return called.stdout.strip()


def versions() -> dict[str, str]:
    """Installed versions of the packages that influence a number."""
    from importlib import metadata

    from fastdecode_lib import __version__

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
    """A device as its maker calls it."""
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    return device


def cpu_features() -> list[str]:
    """Instruction sets that matter for decoding, as the system's kernel names them; empty where it names none."""
    wanted = (
        "avx2",
        "avx512f",
        "avx512_vnni",
        "avx512_bf16",
        "avx_vnni",
        "amx_int8",
        "amx_bf16",
        "neon",
        "asimd",
        "bf16",
    )
    flags = info("flags") or info("Features")
    return [flag for flag in wanted if flag in flags.split()]
