"""Loads a library with code for GPUs. Initialises CUDA when a kernel is first called, not before.

TVM keeps one function that compiles a source; here it hands out the code that lies behind the libraries that were
loaded, so that a machine with a GPU needs no compiler.
"""

from pathlib import Path
from typing import Any

import tvm

from autosched_tvm.compile import cuda_code

COMPILE = "tvm_callback_cuda_compile"
"""TVM's name of the function that compiles a source for the present GPU."""
_known: dict[str, bytes] = {}
"""Code of the libraries that were loaded, by the digest of its source."""


def load(library: Path) -> Any:
    """Returns TVM's module of a library. Raises ValueError for one that is damaged."""
    _known.update(cuda_code.behind(library))
    tvm.register_global_func(COMPILE, _compiled, override=True)
    return tvm.runtime.load_module(str(library))


def _compiled(source: str) -> bytes:
    """Returns the code of a source of a loaded library."""
    try:
        return _known[cuda_code.digest_of(str(source))]
    except KeyError:
        raise ValueError("no code for a GPU lies behind the library: build it again") from None
