"""Finds the compiled network of a model, by what the network's side file says of the model.

It is looked for beside the model (NAME.so), in NAME-tuned/ there, where `autosched tune` leaves it, and in the folders
that the environment variable AUTOSCHED_NETWORKS names, separated by colons, and their folders.
"""

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

from autosched_runtime.errors import FileMissing, NetworkError

VARIABLE = "AUTOSCHED_NETWORKS"
COMPILED = (".so", ".json")
Model = str | bytes | os.PathLike[str]


def network_of(model: Model) -> Path:
    """The compiled network of a model, which is a path or the contents of a file; a path may also name a compiled
    network, or a folder with one. Raises FileMissing if there is none, NetworkError."""
    if isinstance(model, bytes):
        return _compiled_from(_digest(io.BytesIO(model)), None)
    path = Path(model)
    if path.is_dir():
        found = [one for one in sorted(path.glob("*.so")) if one.with_suffix(".json").is_file()]
        if len(found) != 1:
            raise NetworkError(f"{path} holds {len(found)} compiled networks: name one of them")
        return found[0]
    if path.suffix in COMPILED:
        return path
    if not path.is_file():
        raise FileMissing(f"there is no file {path}")
    with path.open("rb") as file:
        return _compiled_from(_digest(file), path)


def _digest(file: io.BufferedIOBase) -> str:
    import hashlib  # paths of compiled networks need none

    return hashlib.file_digest(file, "sha256").hexdigest()


def _compiled_from(digest: str, model: Path | None) -> Path:
    for side in _sides(model):
        if _model_of(side) == digest and (library := side.with_suffix(".so")).is_file():
            return library
    name = "this model" if model is None else str(model)
    raise FileMissing(
        f"there is no compiled network of {name}, neither beside it nor in the folders of {VARIABLE}. Make one with:"
        " autosched tune MODEL.onnx"
    )


def _sides(model: Path | None) -> Iterator[Path]:
    """Side files, the likeliest first."""
    if model is not None:
        yield model.with_suffix(".json")
        yield from sorted(model.with_name(f"{model.stem}-tuned").glob("*.json"))
    for folder in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        yield from sorted(Path(folder).glob("*.json"))
        yield from sorted(Path(folder).glob("*/*.json"))


def _model_of(side: Path) -> str:
    """The digest of the model that a side file names; empty for another file."""
    try:
        told = json.loads(side.read_bytes())
    except (OSError, ValueError):
        return ""
    return str(told.get("model", "")) if isinstance(told, dict) and "target" in told else ""
