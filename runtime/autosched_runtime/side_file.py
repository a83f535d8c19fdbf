"""The file beside a compiled network: NAME.json describes the library NAME.so."""

import json
import math
import platform
import string
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autosched_runtime.errors import FileMissing, NetworkError

FORMAT = 2
"""Newest format of side files that is read here. 1: the weights are in the library."""
SAMPLES = "samples.npz"
"""Name of the file of samples in a network's file. Beside NAME.so it is called NAME.samples.npz."""
ALIGNMENT = 64
"""Bytes to whose multiples weights and inputs are aligned, as kernels expect."""
PAGE_BYTES = 4096
"""Bytes to whose multiples parts of a file are aligned."""
_ELF_HEADER = struct.Struct("<4x2B12xH20xQ10xHH2x")
"""Fields of an ELF header: class and byte order, machine, offset of the section table, size and number of its
entries."""
_MACHINES = {62: "x86_64", 183: "aarch64", 40: "arm", 243: "riscv64"}
"""Names of CPUs by their numbers in ELF files."""


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
class Part:
    """A part of a file."""

    at: int
    """Its place in bytes from the begin of the file."""
    size: int
    """Its size in bytes."""
    crc32: int
    """Checksum of its contents."""


@dataclass(frozen=True)
class Weight(Tensor):
    """A weight outside of the library. Its name is empty."""

    part: int
    """Number of the part of the file in which it lies."""
    at: int
    """Its place in bytes from the begin of the part."""

    @property
    def size(self) -> int:
        """Its size in bytes."""
        bits = self.dtype.lstrip(string.ascii_lowercase).partition("_")[0] or "8"  # "bfloat16", "float8_e5m2", "bool"
        return math.prod(self.shape) * int(bits) // 8


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
    library: Part | None = None
    """The library in its file; None: the whole file."""
    weight_parts: tuple[Part, ...] = ()
    """Parts of the file with the weights outside of the library. Other networks in the file may share them."""
    weights: tuple[Weight, ...] = ()
    """These weights, in the order in which they follow the inputs."""
    promise: Mapping[str, Any] = field(default_factory=dict)
    """How fast it was: median_s, cpu, cores; and beside its model: rival, rival_s, ratio. Empty if unknown."""
    samples: Part | None = None
    """Samples in the same file; None for a network whose samples are beside it, or that has none."""

    @property
    def cores(self) -> int:
        """Number of cores that it was tuned for."""
        return cores_of(self.target)

    @property
    def told_inputs(self) -> str:
        """Its inputs in words."""
        return ", ".join(map(str, self.inputs))


def cores_of(target: Mapping[str, Any]) -> int:
    """Number of cores of TVM's target."""
    found = target.get("num-cores", 1)
    return found if isinstance(found, int) and found > 0 else 1


def samples_beside(library: Path) -> Path:
    """The file with the samples of a network that is no single file. `library`: NAME.so, or NAME."""
    return library.with_name(f"{library.name.removesuffix('.so')}.{SAMPLES}")


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
    _refuse_cut_off(library)
    return library, side


def refuse_other_machines(library: Path) -> None:
    """Refuse an ELF file for another CPU, of which the system's loader says that it is not there. Raises
    NetworkError."""
    if (header := _elf_header(library)) is None:
        return
    (bits, order, number, *_), here = header, platform.machine()
    if (bits, order) != (2, 1) or _MACHINES.get(number, here) != here:
        made_for = _MACHINES.get(number, f"a machine of another kind ({number})")
        raise NetworkError(f"{library} was compiled for {made_for}, and this is {here}. Tune the model for it")


def _refuse_cut_off(library: Path) -> None:
    """Refuse an ELF file that ends before its section table, which is its last part: loading it kills the process."""
    if (header := _elf_header(library)) is None:
        return
    bits, order, _, offset, entry_bytes, entries = header
    if (bits, order) == (2, 1) and library.stat().st_size < offset + entry_bytes * entries:
        raise NetworkError(f"{library} is cut off: its end is missing. Copy it again, or: autosched compile ID")


def _elf_header(library: Path) -> tuple[int, ...] | None:
    """The header of an ELF file; None for another file."""
    with library.open("rb") as file:
        head = file.read(_ELF_HEADER.size)
    return _ELF_HEADER.unpack(head) if len(head) == _ELF_HEADER.size and head.startswith(b"\x7fELF") else None


def described(side: Path) -> Description:
    """The contents of a side file. Raises NetworkError."""
    try:
        return description_of(json.loads(side.read_bytes()), side)
    except (OSError, ValueError) as error:
        raise NetworkError(_no_description(side, error)) from error


def description_of(told: Any, where: Path) -> Description:
    """Read a side file, or a variant in the manifest of a network in one file. Raises NetworkError."""
    try:
        if int(told.get("format", FORMAT)) > FORMAT:
            raise NetworkError(
                f"{where} has format {told['format']}, and this runtime reads {FORMAT}: a newer autosched has written"
                " it. Update autosched-runtime"
            )
        weights = told.get("weights") or {"parts": (), "tensors": ()}
        return Description(
            name=str(told["name"]),
            inputs=tuple(map(_tensor, told["inputs"])),
            outputs=tuple(map(_tensor, told["outputs"])),
            target=dict(told["target"]),
            features=tuple(map(str, told.get("features", ()))),
            versions=dict(told.get("versions", {})),
            about=dict(told.get("about", {})),
            library=part_of(told["library"]) if told.get("library") else None,
            weight_parts=tuple(map(part_of, weights["parts"])),
            weights=tuple(map(_weight, weights["tensors"])),
            promise=dict(told.get("promise") or {}),
            samples=part_of(told["samples"]) if told.get("samples") else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NetworkError(_no_description(where, error)) from error


def _no_description(where: Path, error: Exception) -> str:
    why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return f"{where} does not describe a compiled module: {why}. Compile the network again"


def _tensor(told: dict[str, Any]) -> Tensor:
    return Tensor(str(told["name"]), _shape(told), str(told["dtype"]))


def _weight(told: dict[str, Any]) -> Weight:
    return Weight("", _shape(told), str(told["dtype"]), int(told["part"]), int(told["at"]))


def _shape(told: dict[str, Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in told["shape"])


def part_of(told: Mapping[str, Any]) -> Part:
    """A part of a file, from what a manifest says of it."""
    return Part(int(told["at"]), int(told["bytes"]), int(told["crc32"]))
