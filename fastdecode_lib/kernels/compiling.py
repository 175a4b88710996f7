"""How kernels are compiled: without the interpreter's lock, once for a machine, and again when any kernel has changed.

numba keeps compiled code beside the sources and compiles again when the file of the function changes. It does not look at
the files of what the function calls, which is compiled into it; here, a change of any file of this folder counts.
"""

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit, types
from numba.core.ccallback import CFunc


@cache
def stamp() -> str:
    """A hash of the sources of all kernels."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called, and keep the result for later processes where there is a place for it."""
    compiled: Any = njit(nogil=True, error_model="numpy")(function)
    _keep(compiled)
    return compiled


def callback(function: Callable[..., Any], numbers: int) -> Any:
    """Compile a function of so many int64, without a result, in the same way; others call it at its ``address`` while it lives.

    What calls it does not contain it, and compiles the faster. Its ``__qualname__`` must be its own: numba knows compiled code
    by module, name and a number that starts anew in every process, and takes what bears one name for the same (its issue 10486).
    """
    signature = (types.intp,) * numbers, types.void
    compiled: Any = CFunc(function, signature, {}, {"nopython": True, "error_model": "numpy"})
    if _keep(compiled):  # under its name, and not under what it closes over, which is new in every process
        compiled._cache._index_key = lambda signature, target: (signature, target.magic_tuple(), function.__qualname__)
    compiled.compile()
    return compiled


def _keep(compiled: Any) -> bool:
    """Keep what is compiled beside the sources, until they change; False where nothing can be kept."""
    try:
        compiled.enable_caching()
    except RuntimeError:  # no folder that can be written to
        return False
    cached = compiled._cache
    cached._cache_file._source_stamp = (cached._cache_file._source_stamp, stamp())
    load = cached.load_overload

    def load_or_tell(signature: Any, target: Any) -> Any:
        found = load(signature, target)
        if found is None:
            _tell()
        return found

    cached.load_overload = load_or_tell
    return True


@cache
def _tell() -> None:
    """Say once to whoever is watching why nothing happens for a while."""
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        print("Compiling kernels for this processor: about a minute, once.", file=sys.stderr, flush=True)
