"""Finds and opens TVM's runtime: libtvm_ffi, libtvm_runtime and libtvm_runtime_extra.

The distribution `autosched-runtime` has copies of them in `lib/`, under names of their own (see `hatch_build.py` in
its sources). Where it is installed without them, as within autosched, they are those of the installed TVM.

The copies are opened so that they prefer their own functions (RTLD_DEEPBIND), since `import tvm_ffi` of another version
puts its functions before those of all libraries.
"""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

from autosched_runtime.errors import NetworkError

OWN = Path(__file__).parent / "lib"
OWN_NAMES = {
    "libtvm_ffi.so": "libautosched_ffi.so",
    "libtvm_runtime.so": "libautosched_relax.so",
    "libtvm_runtime_extra.so": "libautosched_extra.so",
}
"""Names of the copies, by the names of the originals."""
PACKAGES = {"libtvm_ffi.so": "tvm_ffi", "libtvm_runtime.so": "tvm", "libtvm_runtime_extra.so": "tvm"}
"""The package of TVM that has each library, in its folder lib."""
FFI, RELAX, EXTRA = OWN_NAMES
SPIN_VARIABLE, SPINS = "TVM_THREAD_POOL_SPIN_COUNT", 2_000
"""How often an idle worker of TVM asks for work before it sleeps: about a millisecond. TVM's default keeps each worker
busy for 0.1 s after every inference."""
TVM_VERSION = "0.27."
_SIGSEGV = 11
_SIGNAL_ACTION_BYTES = 256
"""More bytes than C's struct sigaction has on any machine."""


@cache
def opened() -> ctypes.CDLL:
    """The library of TVM's C interface; the one that runs networks is open too."""
    os.environ.setdefault(SPIN_VARIABLE, str(SPINS))
    before = ctypes.create_string_buffer(_SIGNAL_ACTION_BYTES)
    process = ctypes.CDLL(None)
    process.sigaction(_SIGSEGV, None, before)
    try:
        found = _opened(FFI)
        _opened(RELAX)
    finally:
        process.sigaction(_SIGSEGV, before, None)  # the library has put its own handler in the place of the program's
    return found


@cache
def open_extra() -> None:
    """Opens the library of functions that few networks call: sorting."""
    opened()
    _opened(EXTRA)


def _opened(name: str) -> ctypes.CDLL:
    path = found(name)
    deep = os.RTLD_DEEPBIND if path.parent == OWN else 0
    try:
        return ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW | deep)
    except OSError as error:
        raise NetworkError(f"{path} cannot be loaded: {error}. Install autosched-runtime again") from error


def found(name: str) -> Path:
    """Path of a library of TVM, by its original name. Raises NetworkError.

    A process that has imported TVM of the right version shares its libraries.
    """
    imported = getattr(sys.modules.get("tvm"), "__version__", "").startswith(TVM_VERSION)
    if not imported and (own := OWN / OWN_NAMES[name]).is_file():
        return own
    if (original := installed(name)) is not None:
        return original
    raise NetworkError(
        f"{name} is not installed, which runs compiled networks: install autosched-runtime from its wheel, or"
        f" 'autosched[tvm]'. Python is {sys.executable}"
    )


def installed(name: str) -> Path | None:
    """Path of a library in the installed packages of TVM; None without it."""
    from importlib.util import find_spec  # takes milliseconds

    spec = find_spec(PACKAGES[name])
    path = None if spec is None or spec.origin is None else Path(spec.origin).parent / "lib" / name
    return path if path is not None and path.is_file() else None
