"""Code for GPUs in TVM's libraries: compiled where the library is built, and written behind it.

On a machine without a driver, TVM leaves the CUDA C++ of a library's kernels in it, and compiles it when they are first
called. The code behind the library spares that: a machine with the GPU needs no compiler, and one file moves between
hosts. The loader of libraries does not read what lies behind them.
"""

import hashlib
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from autosched_tvm.compile import cuda_compiler

FOOTER = struct.Struct("<Q8s")
"""Size of the code, and MAGIC: the last bytes of the file."""
MAGIC = b"ascubin1"
KIND = "cuda"
"""TVM's kind of a module of kernels for NVIDIA's GPUs."""


def stay_off_gpus() -> None:
    """Let TVM build for GPUs in this process as on a machine without any: otherwise it compiles and loads for the GPU
    that is here, on which another process measures."""
    os.environ.update({"TVM_COMPILE_FORCE_FALLBACK": "1", "CUDA_VISIBLE_DEVICES": ""})


def of_library(library: Any, arch: str) -> dict[str, bytes]:
    """Returns the code of each module of kernels in a library, by the digest of its source; empty for a library without
    any. Raises CudaRefused, and RequestError without a compiler."""
    found, waiting = dict[str, bytes](), list(library.imports)
    while waiting:
        module = waiting.pop()
        waiting += list(module.imports)
        if module.kind == KIND:
            source = str(module.inspect_source(KIND))
            if (key := digest_of(source)) not in found:
                found[key] = cuda_compiler.compiler().cubin(source, arch)
    return found


def digest_of(source: str) -> str:
    """Returns the key of a source."""
    return hashlib.sha256(source.encode()).hexdigest()


def append_to(library: Path, code: Mapping[str, bytes]) -> None:
    """Writes code behind a library."""
    content = msgspec.msgpack.encode(dict(sorted(code.items())))
    with library.open("ab") as file:
        file.write(content + FOOTER.pack(len(content), MAGIC))


def behind(library: Path) -> dict[str, bytes]:
    """Returns the code behind a library, by the digest of its source; empty if there is none. Raises ValueError for a
    damaged file."""
    with library.open("rb") as file:
        size = file.seek(0, 2)
        if size < FOOTER.size:
            return {}
        file.seek(size - FOOTER.size)
        length, magic = FOOTER.unpack(file.read(FOOTER.size))
        if magic != MAGIC:
            return {}
        file.seek(size - FOOTER.size - length)
        try:
            return msgspec.msgpack.decode(file.read(length), type=dict[str, bytes])
        except msgspec.MsgspecError as error:
            raise ValueError(f"the code behind {library.name} is damaged: {error}") from error
