"""The file beside a compiled network: NAME.json holds the facts that the library NAME.so lacks."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from autosched.errors import RequestError
from autosched.runtime_errors import in_words
from autosched_runtime.side_file import cores_of, files_of
from autosched_tvm.tensors import Tensor


class FilePart(Struct, frozen=True):
    """A part of a file."""

    at: int
    """Its place in bytes from the begin of the file."""
    bytes: int
    crc32: int


class OutsideWeight(Struct, frozen=True):
    """A weight outside of the library."""

    part: int
    """Number of the part in which it lies."""
    at: int
    """Its place in bytes from the begin of the part."""
    shape: tuple[int, ...]
    dtype: str


class OutsideWeights(Struct, frozen=True):
    """The weights of a library, which lie behind it in its file."""

    parts: tuple[FilePart, ...]
    """One part; several in a file of several networks, which share weights."""
    tensors: tuple[OutsideWeight, ...]
    """In the order in which they follow the inputs of the network."""


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
    """CPU features that the code may use, by their LLVM names."""
    about: dict[str, Any] = {}
    """Facts that the model's file states about itself; see `autosched_runtime.side_file.Description.about`."""
    library: FilePart | None = None
    """The library in its file; None: the whole file."""
    weights: OutsideWeights | None = None
    """The weights outside of the library; None without any."""
    integers: bool = False
    """Whether products of a quantised network use 8-bit integers instead of float32."""

    @property
    def cores(self) -> int:
        """Number of cores that it was tuned for."""
        return cores_of(self.target)


def side_of(path: Path) -> SideFile:
    """Reads a module's side file without loading the module. Raises NotFound, RequestError."""
    with in_words():
        side = files_of(path)[1]
    return read_side(side)


def read_side(path: Path) -> SideFile:
    """Reads a side file. Raises RequestError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SideFile)
    except msgspec.DecodeError as error:
        raise RequestError(f"{path} does not describe a compiled module: {error}. Compile the network again") from error
