"""The forms in which a tuned network is packed."""

import os
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec

from autosched.errors import NotFound, RequestError
from autosched.export import container, contents, network_file, python_wheel
from autosched.export.card import Json
from autosched.export.contents import CARD, Contents
from autosched.process import whole_file
from autosched_runtime import libraries
from autosched_runtime.side_file import samples_beside

EXAMPLE = '''\
"""Runs the network with the samples that it was verified with. Needs what requirements.txt names."""

from pathlib import Path

import autosched_runtime

network = autosched_runtime.load(Path(__file__).with_name({file!r}))
print(*network.description.inputs, sep=", ")
for sample in network.samples():
    outputs = network.run(sample.inputs)
    print([array.shape for array in outputs], "differ" if list(sample.differing(outputs)) else "as verified")
'''


class Form(StrEnum):
    """A form of a packed network."""

    FILE = "file"  # NAME.asn
    WHEEL = "wheel"  # a Python package
    FOLDER = "folder"  # NAME.so and what belongs to it
    C = "c"  # NAME.asn with a library for C, and examples
    IMAGE = "image"  # NAME.asn with a service, and the file from which a container is built


class Packing(TypedDict, total=False):
    """Keyword arguments of `export`."""

    name: str
    """Name of a wheel's package; the network's by default."""
    version: str
    """Version of a wheel; 1.0 by default."""
    licence: Path | None
    """File of the model's licence."""
    runtime: Path | None
    """Wheel of autosched-runtime for an image; None: it is installed from an index."""
    padding: Json | None
    """How inputs of other sizes are padded, as `autosched_runtime.padding.Padding.told` has it; None: they are not."""


def export(modules: Sequence[Path], form: Form, output: Path | None = None, **how: Unpack[Packing]) -> Path:
    """Pack the network of NAME.so, or several for different CPUs and shapes; returns what was written. The same
    networks give the same bytes.

    `output`: the file or folder, for a wheel the folder that receives it; None: beside the network.

    Raises RequestError, NotFound.
    """
    runtime = how.get("runtime")
    if runtime is not None and not runtime.is_file():
        raise NotFound(f"there is no wheel {runtime}. Make one in a checkout of autosched:  make dist")
    found = contents.read(modules, how.get("licence"), how.get("padding"))
    beside = modules[0].parent
    try:
        if form is Form.FILE:
            path = output or beside / f"{found.name}{network_file.SUFFIX}"
            return whole_file.write(path, network_file.content(found))
        if form is Form.WHEEL:
            folder = output or beside
            folder.mkdir(parents=True, exist_ok=True)
            return python_wheel.write(folder, found, how.get("name") or found.name, how.get("version", "1.0"))
        made = {Form.FOLDER: _folder, Form.C: _c_project}
        inside = container.files(found, runtime) if form is Form.IMAGE else made[form](found)
        return _written(output or beside / f"{found.name}-{form}", inside)
    except OSError as error:
        raise RequestError(
            f"{error.filename or output or beside} cannot be written: {error.strerror}. Choose another:  --output PATH"
        ) from error


def _folder(found: Contents) -> dict[str, bytes]:
    """The network as it was compiled, with what belongs to it. Raises RequestError for several."""
    if len(found.variants) > 1:
        raise RequestError("a folder holds one network:  --as file  holds several")
    one = found.first
    side = msgspec.json.format(msgspec.json.encode(one.side), indent=2)
    library = f"{found.name}.so"
    samples = {samples_beside(Path(library)).name: one.samples} if one.samples else {}
    return {
        library: one.compiled, f"{found.name}.json": side, **samples, **found.texts(),
        "requirements.txt": container.requirements(None),
        "example.py": EXAMPLE.format(file=library).encode(),
    }  # fmt: skip


def _c_project(found: Contents) -> dict[str, bytes]:
    """A project that CMake builds: our library's source, TVM's libraries, the network and examples. Raises
    RequestError."""
    here = platform.machine()
    if here not in (one.architecture for one in found.variants):
        raise RequestError(
            f"{found.name} is for {found.first.architecture}, and TVM's libraries here are for {here}: export it for C"
            " on such a machine"
        )
    project = Path(__file__).with_name("c_project")
    sources = {path.name: path.read_bytes() for path in project.iterdir()}
    tvm = {}
    for name in libraries.OWN_NAMES:
        if (path := libraries.installed(name)) is None:
            raise RequestError(f"TVM is not installed, whose {name} a C program needs:  pip install 'autosched[tvm]'")
        tvm[f"lib/{name}"] = path.read_bytes()
    return {**sources, **tvm, f"{found.name}{network_file.SUFFIX}": network_file.content(found), **found.texts()}


def _written(folder: Path, inside: Mapping[str, bytes]) -> Path:
    """Write a folder as a whole. Raises RequestError for a folder that is there and was not exported, OSError."""
    folder = folder.absolute()
    if folder.exists() and not (folder / CARD).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"{folder} is there, and no exported network. Choose another:  --output DIR")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".autosched-") as temporary:
        made = Path(temporary) / "made"
        for name, content in inside.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_bytes(content)
        if folder.exists():
            os.rename(folder, Path(temporary) / "former")
        shutil.move(made, folder)
    return folder
