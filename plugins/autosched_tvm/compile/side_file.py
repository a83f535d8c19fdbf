"""The file beside a compiled network: NAME.json holds the facts that the library NAME.so lacks."""

import os
import struct
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from autosched.errors import NotFound, RequestError
from autosched_tvm.tensors import Tensor

_ELF_HEADER = struct.Struct("<40xQ10xHH2x")
"""Fields of an ELF header: offset of the section table, size of an entry, number of entries."""


class SideFile(Struct, frozen=True, kw_only=True):
    """Facts about a compiled library."""

    format: int
    name: str
    build: str
    """"tuned" or "default"."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    target: dict[str, Any]
    versions: dict[str, str]
    model: str = ""
    """Content hash of the model file."""
    file: str = ""
    """Name of the model file."""
    verified: str | None = None
    """The engine that gives the same outputs; empty: none could check them. None in older files."""
    kernels: dict[str, str] = {}
    """Source of each kernel's schedule: "tuned", "by rule" or "default". Empty before 1.5."""
    roundings: dict[str, int] = {}
    """Number of roundings of each kernel of an unscheduled build that takes their moves as its last argument; see
    `movable_rounding`."""
    features: tuple[str, ...] = ()
    """CPU features that the code may use, by their LLVM names. Empty in older files: those of the target."""
    integers: bool = False
    """Whether products of a quantised network use 8-bit integers instead of float32."""

    @property
    def cores(self) -> int:
        """Number of cores that it was tuned for."""
        found = self.target.get("num-cores", 1)
        return found if isinstance(found, int) and found > 0 else 1


def files_of(path: Path) -> tuple[Path, Path]:
    """Returns the library and its side file, from either's path or the name without a suffix."""
    stem = path.with_suffix("") if path.suffix in (".so", ".json") else path
    library, side = stem.with_name(f"{stem.name}.so"), stem.with_name(f"{stem.name}.json")
    if not library.is_file():
        raise NotFound(f"there is no compiled module {library}. Make one with: autosched tune MODEL.onnx --output DIR")
    if not side.is_file():
        raise NotFound(f"{library} has no {side.name} beside it, which names its inputs. Copy both files together")
    if _is_cut_off(library):
        raise RequestError(f"{library} is cut off: its end is missing. Copy it again, or: autosched compile ID")
    return library, side


def _is_cut_off(library: Path) -> bool:
    """Returns whether an ELF file ends before its section table, which is its last part. Loading such a file kills the
    process."""
    with library.open("rb") as file:
        head = file.read(_ELF_HEADER.size)
        if len(head) < _ELF_HEADER.size or not head.startswith(b"\x7fELF\x02\x01"):
            return False
        offset, entry_bytes, entries = _ELF_HEADER.unpack(head)
        end: int = offset + entry_bytes * entries
        return file.seek(0, os.SEEK_END) < end


def side_of(path: Path) -> SideFile:
    """Reads a module's side file without loading the module. Raises NotFound, RequestError."""
    return read_side(files_of(path)[1])


def read_side(path: Path) -> SideFile:
    """Reads a side file. Raises RequestError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SideFile)
    except msgspec.DecodeError as error:
        raise RequestError(f"{path} does not describe a compiled module: {error}. Compile the network again") from error
