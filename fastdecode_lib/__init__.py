"""Faster decoding for neural machine translation: five papers side by side, exact and measured.

>>> import fastdecode_lib
>>> model = fastdecode_lib.load("tatoeba-small")
>>> fastdecode_lib.translate(model, "The train is late.", source="en", target="de", decoder="gauss_seidel:block=3").text
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0"

_HOMES = {
    "load": "loading",
    "translate": "translation",
    "Translation": "translation",
    "compare": "measuring.comparing",
    "speedup": "training.speedup",
    "runner": "runners",
    "decoder": "registry",
    "Trace": "trace",
    "Constraints": "core",
}

__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from fastdecode_lib.core import Constraints as Constraints
    from fastdecode_lib.loading import load as load
    from fastdecode_lib.measuring.comparing import compare as compare
    from fastdecode_lib.registry import decoder as decoder
    from fastdecode_lib.runners import runner as runner
    from fastdecode_lib.trace import Trace as Trace
    from fastdecode_lib.training.speedup import speedup as speedup
    from fastdecode_lib.translation import Translation as Translation
    from fastdecode_lib.translation import translate as translate


def __getattr__(name: str) -> Any:
    if name == "hf":
        return importlib.import_module(f"{__name__}.hf")
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
