"""Finds the compiled network of a model, by what the network's side file says of the model.

It is looked for beside the model (NAME.so or NAME.asn), in NAME-tuned/ there, where `autosched tune` leaves it, and in
the folders that the environment variable AUTOSCHED_NETWORKS names, separated by colons, and their folders.
"""

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

from autosched_runtime.errors import FileMissing, NetworkError
from autosched_runtime.network_file import SUFFIX, manifest_of

VARIABLE = "AUTOSCHED_NETWORKS"
COMPILED = (".so", ".json", SUFFIX)
Model = str | bytes | os.PathLike[str]


def network_of(model: Model) -> Path:
    """The compiled network of a model, which is a path or the contents of a file; a path may also name a compiled
    network, or a folder with one. Raises FileMissing if there is none, NetworkError."""
    if isinstance(model, bytes):
        return _compiled_from(_digest(io.BytesIO(model)), None)
    path = Path(model)
    if path.is_dir():
        found = [one for one in sorted(path.glob("*.so")) if one.with_suffix(".json").is_file()]
        found = found or sorted(path.glob(f"*{SUFFIX}"))
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
    for path in _candidates(model):
        if _model_of(path) == digest:
            return path
    name = "this model" if model is None else str(model)
    raise FileMissing(
        f"there is no compiled network of {name}, neither beside it nor in the folders of {VARIABLE}. Make one with:"
        " autosched tune MODEL.onnx"
    )


def _candidates(model: Path | None) -> Iterator[Path]:
    """Files of networks, the likeliest first."""
    if model is not None:
        yield from (path for suffix in (".so", SUFFIX) if (path := model.with_suffix(suffix)).is_file())
        yield from _networks(model.with_name(f"{model.stem}-tuned"))
    for folder in map(Path, filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))):
        for place in (folder, *sorted(folder.glob("*/"))):
            yield from _networks(place)


def _networks(folder: Path) -> list[Path]:
    return [*sorted(folder.glob("*.so")), *sorted(folder.glob(f"*{SUFFIX}"))]


def _model_of(network: Path) -> str:
    """The digest of the model from which a network was compiled; empty for another file."""
    try:
        if network.suffix == SUFFIX:
            told = manifest_of(network)
        else:
            told = json.loads(network.with_suffix(".json").read_bytes())
    except (OSError, ValueError, NetworkError):  # a file of another program
        return ""
    return str(told.get("model", "")) if isinstance(told, dict) and ("target" in told or "variants" in told) else ""
