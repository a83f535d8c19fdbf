"""The library of a compiled network, loaded once in a process: its kernels, its program and its weights."""

import ctypes
import errno
import itertools
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from weakref import WeakValueDictionary

from autosched_runtime import tvm_interface
from autosched_runtime.errors import NetworkError, OutOfMemory
from autosched_runtime.side_file import Description, Part
from autosched_runtime.tvm_interface import CPU, POOLED, Handle
from autosched_runtime.weights import Identity, Weights, identity_of, read_part

EXECUTABLE = 0x10
"""Flag of a file in memory whose content may be executed (memfd_create, MFD_EXEC). Linux before 6.3 refuses it."""
NAME_MAX = 64
"""Maximum characters of a network's name in that of its file in memory."""
REASON_MAX = 300
"""Maximum characters of a reason in a message."""

_loaded: WeakValueDictionary[tuple[Identity, Part | None], "Executable"] = WeakValueDictionary()
_numbers = itertools.count(1)
_loading = threading.RLock()
"""Held while a library is loaded, and by a fork; a signal handler may fork, so it is reentrant."""
os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


class Executable:
    """A loaded library. All virtual machines of it share its weights."""

    def __init__(self, file: BinaryIO, description: Description) -> None:
        """Raises NetworkError."""
        part = description.library
        content = file.read() if part is None else bytes(read_part(file, part))
        with _loadable(content, description.name) as name:
            load = tvm_interface.function("ffi.Module.load_from_file.so")
            self._make = tvm_interface.method(tvm_interface.call(load, name, "so"), "vm_load_executable")
            if not self._make.address:
                raise NetworkError("the library holds no network")
            ctypes.CDLL(name, mode=os.RTLD_LOCAL | os.RTLD_NOW)  # code that threads may run is never unloaded
        self.weights = Weights(file, description)

    def new_machine(self) -> Handle:
        """A new virtual machine."""
        machine = tvm_interface.call(self._make)
        tvm_interface.call(tvm_interface.method(machine, "vm_initialization"), CPU, 0, POOLED)
        return machine


def executable_of(path: Path, description: Description) -> Executable:
    """The executable of a file. Raises NetworkError."""
    try:
        with _loading, path.open("rb") as file:
            key = identity_of(file), description.library
            if (known := _loaded.get(key)) is not None:
                return known
            made = _loaded[key] = Executable(file, description)
            return made
    except (OSError, MemoryError, NetworkError) as error:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            weights_mb = sum(part.size for part in description.weight_parts) / 1e6
            raise OutOfMemory(f"there is no memory for {path}, whose weights take {weights_mb:.1f} MB") from error
        raise NetworkError(_why_not(path, error, description.versions)) from error


@contextmanager
def _loadable(content: bytes, name: str) -> Iterator[str]:
    """A path of a copy of a library, under which the loader knows no other one.

    The copy is in memory, where neither a file that is overwritten nor one that may not be executed matters; in a
    temporary file where Linux allows no code there.
    """
    if (descriptor := _file_in_memory(name)) is None:
        import tempfile  # takes some milliseconds

        with tempfile.NamedTemporaryFile(prefix="autosched-", suffix=".so") as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield _path_of(descriptor)
    finally:
        os.close(descriptor)


def _file_in_memory(name: str) -> int | None:
    """The descriptor of an empty file in memory; None where Linux allows none that holds code."""
    for flags in (EXECUTABLE, 0):
        try:
            descriptor = os.memfd_create(f"{name[:NAME_MAX]}.so", os.MFD_CLOEXEC | flags)
        except (OSError, ValueError):  # ValueError: a zero in the name
            continue
        if os.path.exists(_path_of(descriptor)):
            return descriptor
        os.close(descriptor)
    return None


def _path_of(descriptor: int) -> str:
    """A path of a file in memory that no former one has had: the loader knows libraries by their paths, and
    descriptors are used again. A number is written with "/" and "./", which name the same folder."""
    written = f"{next(_numbers):b}".replace("0", "/").replace("1", "./")
    return f"/proc/self/fd/{written}{descriptor}"


def _why_not(path: Path, error: Exception, versions: Mapping[str, str]) -> str:
    made_by = ", ".join(f"{name} {number}" for name, number in versions.items()) or "unknown versions"
    return (
        f"{path} cannot be loaded: {str(error).splitlines()[-1][:REASON_MAX]}. It was compiled with {made_by};"
        " compile it again with: autosched compile ID"
    )
