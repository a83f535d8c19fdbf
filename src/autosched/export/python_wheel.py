"""Packs a network as a wheel: a Python package whose one file is NAME.asn. `pip install` needs no compiler for it.

The format: PyPA, "Binary distribution format" 1.0, and "Core metadata" 2.1.
"""

import base64
import hashlib
import keyword
import re
import sys
from pathlib import Path
from zipfile import ZipFile

from autosched.errors import RequestError
from autosched.export import network_file
from autosched.export.contents import Contents
from autosched_runtime.version import __version__ as RUNTIME

PLATFORM = "manylinux_2_27"
"""The oldest systems on which networks run: those of the runtime's wheel."""
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_VERSION = re.compile(r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?", re.ASCII)
"""A version as PEP 440 writes it."""
PACKAGE = '''\
"""{name}: a network that autosched has compiled.

    import {package}
    outputs = {package}.session().run(None, {{...}})
"""

from pathlib import Path
from typing import Any

import autosched_runtime

__version__ = {version!r}
FILE = Path(__file__).parent / {file!r}


def session(options: Any = None) -> Any:
    """A session with the interface of onnxruntime's."""
    return autosched_runtime.InferenceSession(FILE, options)


def load(threads: int | None = None) -> autosched_runtime.Network:
    """The network, which takes and gives arrays."""
    return autosched_runtime.load(FILE, threads=threads)
'''


def write(folder: Path, contents: Contents, name: str, version: str) -> Path:
    """Write a wheel to a folder; returns its path. Raises RequestError for a name or version that pip refuses."""
    package = _package(name)
    if not _VERSION.fullmatch(version):
        raise RequestError(f"{version!r} is no version of a Python package. Write one such as  --version 1.4.0")
    distribution = re.sub(r"[-_.]+", "_", name).lower()
    tag = ".".join(f"{PLATFORM}_{machine}" for machine in sorted({one.architecture for one in contents.variants}))
    tag = f"py3-none-{tag}"
    file, metadata = f"{contents.name}{network_file.SUFFIX}", f"{distribution}-{version}.dist-info"
    files = {
        f"{package}/__init__.py": PACKAGE.format(name=name, package=package, version=version, file=file).encode(),
        f"{package}/py.typed": b"",
        f"{package}/{file}": network_file.content(contents),
        f"{metadata}/METADATA": _metadata(contents, name, version).encode(),
        f"{metadata}/WHEEL": f"Wheel-Version: 1.0\nGenerator: autosched\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        **{f"{metadata}/licenses/{Path(path).name}": text for path, text in contents.licences.items()},
    }
    rows = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in files.items()]
    files[f"{metadata}/RECORD"] = "\n".join([*rows, f"{metadata}/RECORD,,", ""]).encode()
    path = folder / f"{distribution}-{version}-{tag}.whl"
    with ZipFile(path, "w") as archive:
        for inside, content in files.items():
            archive.writestr(network_file.plain_entry(inside), content)
    return path


def _package(name: str) -> str:
    """The package's name in Python. Raises RequestError."""
    package = re.sub(r"[-_.]+", "_", name).lower()
    if not _NAME.fullmatch(name) or not package.isidentifier() or keyword.iskeyword(package):
        raise RequestError(
            f"{name!r} cannot be the name of a Python package: letters, digits and - _ . in the middle are allowed, and"
            " a letter comes first. Choose one:  --name NAME"
        )
    if package in sys.stdlib_module_names or package in ("numpy", "autosched", "autosched_runtime"):
        raise RequestError(f"{package!r} would hide another package. Choose another name:  --name NAME")
    return package


def _metadata(contents: Contents, name: str, version: str) -> str:
    cpus = ", ".join(one.cpu for one in contents.variants)
    return (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        f"Summary: The network {contents.name}, compiled by autosched for {cpus}\n"
        f"Requires-Python: >=3.11\nRequires-Dist: autosched-runtime>={RUNTIME}\n"
        f"Description-Content-Type: text/markdown\n\n{contents.card}"
    )


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
