"""Tasks collected from networks, and the file in which a job gets them.

A job tunes the tasks of such a file like those of a network, but no network is built. `autosched collect` writes the
file, and backends that know programs of this form read it.
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from autosched.errors import ModelRejected, RequestError, misfit
from autosched.model import TASKS_MAX, Program

MAGIC = b"autosched tasks 1\n"
"""First bytes of such a file."""
ENDING = ".tasks"


class BundledTask(Struct, frozen=True, forbid_unknown_fields=True):
    """One task. The fields are those of `model.TaskInfo`."""

    name: str
    workload: str
    shape: str
    flops: Annotated[float, Meta(ge=0)]
    weight: Annotated[int, Meta(ge=1)]
    """Importance relative to the file's other tasks: trials go to tasks with a large product of weight and latency."""
    program: Program


class Change(Struct, frozen=True):
    """Another size of a network. `Change()` is the size of its file."""

    batch: Annotated[int, Meta(ge=0, le=65_536)] = 0
    """Batch of all inputs; 0: unchanged."""
    resolution: Annotated[float, Meta(gt=0, le=64)] = 1.0
    """Factor of height and width of images."""

    @classmethod
    def read(cls, text: str) -> "Change":
        """Parse a size: "batch=4 resolution=0.75"; empty for the size of the file. Raises RequestError."""
        values = dict(word.partition("=")[::2] for word in text.split())
        try:
            return msgspec.convert(values, cls, strict=False)
        except msgspec.ValidationError as error:
            raise RequestError(f"the size {text!r} cannot be read: {misfit(error)}") from None

    @property
    def text(self) -> str:
        """The size in the form that `read` parses."""
        said = [f"batch={self.batch}"] if self.batch else []
        if self.resolution != 1.0:
            said.append(f"resolution={self.resolution:g}")
        return " ".join(said)

    @property
    def words(self) -> str:
        """The size for people: "batch 4, resolution 0.75"; empty for the size of the file."""
        return ", ".join(self.text.split()).replace("=", " ")


class Taken(Struct, frozen=True):
    """The tasks of a network in one size."""

    change: Change
    kept: tuple[str, ...]
    """Operators that only accept the sizes of the file; from them on nothing was changed."""
    tasks: tuple[BundledTask, ...]
    reason: str = ""
    """Why there are no tasks, if the network cannot have this size."""


class TaskBundle(Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a file."""

    tasks: Annotated[tuple[BundledTask, ...], Meta(min_length=1, max_length=TASKS_MAX)]


def write(bundle: TaskBundle, path: Path) -> None:
    """Write a file. Equal bundles give equal files."""
    path.write_bytes(MAGIC + msgspec.msgpack.encode(bundle, order="deterministic"))


def read(path: Path) -> TaskBundle:
    """Read a file. Raises ModelRejected for a file of another form, or a truncated one."""
    data = path.read_bytes()
    try:
        if not data.startswith(MAGIC):
            raise msgspec.DecodeError("its first bytes are others")
        return msgspec.msgpack.decode(data[len(MAGIC) :], type=TaskBundle)
    except msgspec.DecodeError as error:
        raise ModelRejected(
            f"{path.name} is no whole file of collected tasks: {error}. Make it again:  autosched collect"
        ) from None
