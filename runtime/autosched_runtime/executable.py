"""The library of a compiled network, loaded once in a process: its kernels, its weights and its program."""

import ctypes
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from autosched_runtime import tvm_interface
from autosched_runtime.errors import NetworkError
from autosched_runtime.tvm_interface import CPU, POOLED, Handle

PROGRAM = "__tvm_ffi__library_bin"
"""Symbol of a library: the size in bytes of its program and weights, and behind it these."""
SIZE_BYTES = 8
DONT_NEED = 4
"""Advice to Linux that pages of a file need not stay in memory (madvise, MADV_DONTNEED)."""
REASON_MAX = 300
"""Maximum characters of a reason in a message."""

FileIdentity = tuple[int, int, int, int]
"""Device, inode, size in bytes and time of the last change in nanoseconds of a file."""
_loaded: WeakValueDictionary[FileIdentity, "Executable"] = WeakValueDictionary()
_names: dict[Path, FileIdentity] = {}
"""The first file that was loaded under each name."""
_loading = threading.RLock()
"""Held while a library is loaded, and by a fork; a signal handler may fork, so it is reentrant."""
os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


class Executable:
    """A loaded library. All virtual machines of it share its weights."""

    def __init__(self, path: Path) -> None:
        """Raises NetworkError."""
        module = tvm_interface.call(tvm_interface.function("ffi.ModuleLoadFromFile"), str(path))
        self._make = tvm_interface.method(module, "vm_load_executable")
        if not self._make.address:
            raise NetworkError("the library holds no network")
        _release_pages(path)

    def new_machine(self) -> Handle:
        """A new virtual machine."""
        machine = tvm_interface.call(self._make)
        tvm_interface.call(tvm_interface.method(machine, "vm_initialization"), CPU, 0, POOLED)
        return machine


def executable_of(path: Path, versions: Mapping[str, str]) -> Executable:
    """The executable of a file. `versions`: of the packages that compiled it. Raises NetworkError."""
    found = os.stat(path)
    identity = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    with _loading:
        if (known := _loaded.get(identity)) is not None:
            return known
        try:
            with _loadable_name(path, identity) as name:
                made = _loaded[identity] = Executable(name)
        except NetworkError as error:
            raise NetworkError(_why_not(path, error, versions)) from error
        return made


@contextmanager
def _loadable_name(path: Path, identity: FileIdentity) -> Iterator[Path]:
    """A name of a file under which this process has loaded no other one: the loader knows files by their names, and
    takes the former one for a file that was replaced."""
    if _names.setdefault(path, identity) == identity:
        yield path
        return
    import tempfile  # takes some milliseconds

    with tempfile.TemporaryDirectory(prefix="autosched-") as folder:
        link = Path(folder) / path.name
        link.symlink_to(path)
        yield link


def _why_not(path: Path, error: NetworkError, versions: Mapping[str, str]) -> str:
    if os.statvfs(path.parent).f_flag & os.ST_NOEXEC:
        return (
            f"{path} cannot be loaded: files in {path.parent} may not be executed (its file system is mounted with"
            " noexec). Copy it to another folder, with its .json"
        )
    made_by = ", ".join(f"{name} {number}" for name, number in versions.items()) or "unknown versions"
    return (
        f"{path} cannot be loaded: {str(error).splitlines()[-1][:REASON_MAX]}. It was compiled with {made_by};"
        " compile it again with: autosched compile ID"
    )


def _release_pages(path: Path) -> None:
    """Let Linux drop the file's pages of the weights, of which TVM has made a copy. The library stays open: code that
    threads may run is never unloaded."""
    process, library = ctypes.CDLL(None), ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    begin = ctypes.addressof(ctypes.c_uint64.in_dll(library, PROGRAM))
    end = begin + SIZE_BYTES + ctypes.c_uint64.from_address(begin).value
    page = os.sysconf("SC_PAGESIZE")
    first, last = -(-begin // page) * page, end // page * page
    if last > first:
        process.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), DONT_NEED)
