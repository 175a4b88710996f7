"""Instructions that the processor offers to the kernels, and how to do without them.

``FASTDECODE_CPU=portable`` leaves the byte products of AVX-512 VNNI unused, and ``vnni`` lays weights out for them even
where they have to be imitated; the integers are the same. numba's own ``NUMBA_CPU_NAME=generic`` takes away more.
"""

import os
import platform
from functools import cache
from typing import Any

PORTABLE, VNNI = "portable", "vnni"
CHOICES = ("auto", PORTABLE, VNNI)


@cache
def features() -> frozenset[str]:
    """Instruction sets that numba compiles for, in LLVM's names."""
    from llvmlite import binding
    from numba.core import config as known

    config: Any = known  # its settings are made when it is imported
    if config.CPU_FEATURES is not None:
        return frozenset(part[1:] for part in config.CPU_FEATURES.split(",") if part.startswith("+"))
    if config.CPU_NAME:
        return frozenset()
    return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


def wide() -> bool:
    """Whether there are 32 vector registers of 16 floats."""
    return "avx512f" in features()


def has_vnni() -> bool:
    """Whether the processor multiplies bytes four at a time (AVX-512 VNNI)."""
    return {"avx512f", "avx512vnni"} <= features()


def layout() -> str:
    """How int8 weights are laid out: ``"vnni"`` or ``"portable"``.

    Raises
    ------
    ValueError
        If ``FASTDECODE_CPU`` asks for something unknown.
    """
    wanted = os.environ.get("FASTDECODE_CPU", "auto")
    if wanted not in CHOICES:
        raise ValueError(f"Unknown FASTDECODE_CPU: got {wanted!r}. Use one of {', '.join(CHOICES)}.")
    if wanted == "auto":
        return VNNI if has_vnni() else PORTABLE
    return wanted


@cache
def processor() -> str:
    """What the processor calls itself."""
    return info("model name") or platform.processor() or platform.machine()


def info(key: str) -> str:
    """What the kernel of the system says of the first core, empty where it does not."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")
    except OSError:
        return ""
