"""How kernels are compiled: without the interpreter's lock, once on a machine, and again when any kernel has changed.

numba caches compiled code beside the sources and compiles again when the file of the function changes. It does not check the
files of functions that are compiled into it; here, a change of any file of this folder counts.
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
    """Compile a function when it is first called, and cache the result for later processes if the cache can be written."""
    compiled: Any = njit(nogil=True, error_model="numpy")(function)
    _enable_cache(compiled)
    return compiled


def callback(function: Callable[..., Any], numbers: int) -> Any:
    """Compile a function of `numbers` int64 without a result in the same way, to be called at its ``address``.

    Its callers do not contain it, and so compile faster. Its ``__qualname__`` must be unique: numba identifies compiled code by
    module, name and a number that starts anew in every process, and confuses functions of the same name (its issue 10486).
    """
    signature = (types.intp,) * numbers, types.void
    compiled: Any = CFunc(function, signature, {}, {"nopython": True, "error_model": "numpy"})
    if _enable_cache(compiled):  # by its name, not by its closure, which is new in every process
        compiled._cache._index_key = lambda signature, target: (signature, target.magic_tuple(), function.__qualname__)
    compiled.compile()
    return compiled


def _enable_cache(compiled: Any) -> bool:
    """Cache compiled code beside the sources until they change; False if the cache cannot be written."""
    try:
        compiled.enable_caching()
    except RuntimeError:  # no folder that can be written to
        return False
    cached = compiled._cache
    cached._cache_file._source_stamp = (cached._cache_file._source_stamp, stamp())
    load = cached.load_overload

    def load_or_print(signature: Any, target: Any) -> Any:
        overload = load(signature, target)
        if overload is None:
            _print_note()
        return overload

    cached.load_overload = load_or_print
    return True


@cache
def _print_note() -> None:
    """Print once, in a terminal or notebook, why nothing happens for a while."""
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        print("Compiling kernels for this processor: about a minute, once.", file=sys.stderr, flush=True)
