"""The weights of a network, which lie outside of its library."""

import ctypes
import math
import mmap
import os
import zlib
from typing import BinaryIO
from weakref import WeakValueDictionary

import numpy as np

from autosched_runtime import tvm_interface
from autosched_runtime.errors import NetworkError
from autosched_runtime.inputs import Array, dlpack_type, dtype_of
from autosched_runtime.side_file import Description, Part
from autosched_runtime.tvm_interface import TENSOR, Value

CHUNK_BYTES = 1 << 22
"""Number of bytes that are read and then checked, while the processor's cache has them."""
Identity = tuple[int, int, int, int]
"""Device, inode, size in bytes and time of the last change in nanoseconds of a file."""
_in_memory: WeakValueDictionary[tuple[Identity, Part], mmap.mmap] = WeakValueDictionary()


class Weights:
    """The weights of a network in memory, as arrays and as TVM's arguments. No thread writes to them.

    They are a copy: a file that is overwritten while a process has it mapped ends the process (SIGBUS).
    """

    def __init__(self, file: BinaryIO, description: Description) -> None:
        """Raises NetworkError for a file that is damaged."""
        self.arrays: list[Array] = []
        self.values = (Value * len(description.weights))()
        self._holds: list[object] = []
        parts = [_shared(file, part) for part in description.weight_parts]
        for tensor, value in zip(description.weights, self.values, strict=True):
            dtype = dtype_of(tensor)
            array = np.frombuffer(parts[tensor.part], dtype, math.prod(tensor.shape), tensor.at).reshape(tensor.shape)
            made, holds = tvm_interface.tensor_object(array.ctypes.data, tensor.shape, *dlpack_type(dtype))
            value.type, value.content = TENSOR, ctypes.addressof(made)
            self.arrays.append(array)
            self._holds += [made, holds]


def _shared(file: BinaryIO, part: Part) -> mmap.mmap:
    """A part of a file in memory, read once as long as a network uses it. Raises NetworkError."""
    key = identity_of(file), part
    if (found := _in_memory.get(key)) is None:
        found = _in_memory[key] = read_part(file, part)
    return found


def identity_of(file: BinaryIO) -> Identity:
    """The identity of an open file."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read_part(file: BinaryIO, part: Part) -> mmap.mmap:
    """A part of a file, in memory of its own. Raises NetworkError for a file that is cut off or damaged."""
    memory = mmap.mmap(-1, max(1, part.size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    file.seek(part.at)
    view, done, crc32 = memoryview(memory), 0, 0
    while done < part.size:
        chunk = view[done : min(done + CHUNK_BYTES, part.size)]
        count = file.readinto(chunk)  # type: ignore[attr-defined]
        if not count:
            raise NetworkError(f"{file.name} is cut off: its end is missing. Copy it again")
        crc32 = zlib.crc32(chunk[:count], crc32)
        done += count
    if crc32 != part.crc32:
        raise NetworkError(f"{file.name} is damaged: its contents are not what was written. Copy it again")
    return memory
