"""Instructions of the processor that the kernels use, and how to switch them off.

``FASTDECODE_CPU=portable`` leaves the byte products of AVX-512 VNNI and AMX unused; ``vnni`` leaves AMX's unused, and lays weights
out for VNNI even where its products must be imitated. The integers are the same. numba's own ``NUMBA_CPU_NAME=generic`` switches
off more.
"""

import ctypes
import os
import platform
from functools import cache
from typing import Any

PORTABLE, VNNI = "portable", "vnni"
CHOICES = ("auto", PORTABLE, VNNI)
TILE_PERMISSION = 158, 0x1023, 18
"""Linux' call ``arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)``, by which a process asks for tile registers."""


@cache
def features() -> frozenset[str]:
    """Instruction sets that numba compiles for, in LLVM's names."""
    from llvmlite import binding
    from numba.core import config as numba_config

    config: Any = numba_config  # its settings are made when it is imported
    if config.CPU_FEATURES is not None:
        return frozenset(feature[1:] for feature in config.CPU_FEATURES.split(",") if feature.startswith("+"))
    if config.CPU_NAME:
        return frozenset()
    return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


def wide() -> bool:
    """Whether there are 32 vector registers of 16 floats."""
    return "avx512f" in features()


def has_vnni() -> bool:
    """Whether the processor multiplies bytes four at a time (AVX-512 VNNI)."""
    return {"avx512f", "avx512vnni"} <= features()


def has_amx() -> bool:
    """Whether int8 products use AMX's tile registers: the processor has them, and Linux lets this process use them."""
    return os.environ.get("FASTDECODE_CPU", "auto") == "auto" and _may_use_tiles()


@cache
def _may_use_tiles() -> bool:
    if not (has_vnni() and {"amx-tile", "amx-int8"} <= features() and platform.system() == "Linux"):
        return False
    return ctypes.CDLL(None).syscall(*TILE_PERMISSION) == 0


def layout() -> str:
    """The layout of int8 weights: ``"vnni"`` or ``"portable"``.

    Raises
    ------
    ValueError
        If the value of ``FASTDECODE_CPU`` is unknown.
    """
    choice = os.environ.get("FASTDECODE_CPU", "auto")
    if choice not in CHOICES:
        raise ValueError(f"Unknown FASTDECODE_CPU: got {choice!r}. Use one of {', '.join(CHOICES)}.")
    if choice == "auto":
        return VNNI if has_vnni() else PORTABLE
    return choice


@cache
def processor() -> str:
    """The processor's own name."""
    return info("model name") or platform.processor() or platform.machine()


def info(key: str) -> str:
    """An entry of ``/proc/cpuinfo`` for the first core; empty if there is none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")
    except OSError:
        return ""
