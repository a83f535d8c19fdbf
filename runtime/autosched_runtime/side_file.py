"""The file beside a compiled network: NAME.json describes the library NAME.so."""

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autosched_runtime.errors import FileMissing, NetworkError

_ELF_HEADER = struct.Struct("<40xQ10xHH2x")
"""Fields of an ELF header: offset of the section table, size of an entry, number of entries."""


@dataclass(frozen=True)
class Tensor:
    """An input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """NumPy's name of the type of its elements."""

    def __str__(self) -> str:
        return f"{self.name!r} ({self.dtype} {'x'.join(map(str, self.shape)) or 'scalar'})"


@dataclass(frozen=True)
class Description:
    """Facts about a compiled network that the runtime needs."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    target: dict[str, Any]
    """TVM's target."""
    features: tuple[str, ...]
    """CPU features that the code may use, by their LLVM names; empty: unknown."""
    versions: dict[str, str]
    """Packages that compiled it."""
    about: dict[str, Any]
    """Facts that the model's file states about itself: producer_name, graph_name, domain, description,
    graph_description, version, and texts by name in `metadata`. Empty for files that say nothing."""

    @property
    def cores(self) -> int:
        """Number of cores that it was tuned for."""
        found = self.target.get("num-cores", 1)
        return found if isinstance(found, int) and found > 0 else 1


def files_of(path: Path) -> tuple[Path, Path]:
    """The library and its side file, from either's path or the name without a suffix. Raises NetworkError."""
    stem = path.with_suffix("") if path.suffix in (".so", ".json") else path
    library, side = stem.with_name(f"{stem.name}.so"), stem.with_name(f"{stem.name}.json")
    if not library.is_file():
        raise FileMissing(
            f"there is no compiled module {library}. Make one with: autosched tune MODEL.onnx --output DIR"
        )
    if not side.is_file():
        raise FileMissing(f"{library} has no {side.name} beside it, which names its inputs. Copy both files together")
    if _is_cut_off(library):
        raise NetworkError(f"{library} is cut off: its end is missing. Copy it again, or: autosched compile ID")
    return library, side


def _is_cut_off(library: Path) -> bool:
    """Whether an ELF file ends before its section table, which is its last part. Loading such a file kills the
    process."""
    with library.open("rb") as file:
        head = file.read(_ELF_HEADER.size)
        if len(head) < _ELF_HEADER.size or not head.startswith(b"\x7fELF\x02\x01"):
            return False
        offset, entry_bytes, entries = _ELF_HEADER.unpack(head)
        end: int = offset + entry_bytes * entries
        return file.seek(0, os.SEEK_END) < end


def described(side: Path) -> Description:
    """The contents of a side file. Raises NetworkError."""
    try:
        told = json.loads(side.read_bytes())
        return Description(
            name=str(told["name"]),
            inputs=tuple(map(_tensor, told["inputs"])),
            outputs=tuple(map(_tensor, told["outputs"])),
            target=dict(told["target"]),
            features=tuple(map(str, told.get("features", ()))),
            versions=dict(told.get("versions", {})),
            about=dict(told.get("about", {})),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise NetworkError(f"{side} does not describe a compiled module: {why}. Compile the network again") from error


def _tensor(told: dict[str, Any]) -> Tensor:
    return Tensor(str(told["name"]), tuple(int(size) for size in told["shape"]), str(told["dtype"]))
