"""Reads a user's samples of inputs from a .npz file."""

from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from autosched.errors import RequestError
from autosched_tvm.generated_inputs import random_inputs
from autosched_tvm.tensors import Array, Tensor, describe

SEEDS = 3
"""Number of generated samples of inputs."""
SAMPLES_MAX = 16
"""Maximum number of samples used from a file. More take long and prove little more."""


def of(tensors: Sequence[Tensor], file: str, seed: int = 0) -> list[dict[str, Array]]:
    """Returns the user's samples, or generated ones. Raises RequestError for a file that does not fit."""
    if file:
        return read(Path(file), tensors)
    return [random_inputs(tensors, seed + n) for n in range(SEEDS)]


def read(path: Path, wanted: Sequence[Tensor]) -> list[dict[str, Array]]:
    """Returns the samples in a file: an array for each input, of its shape, or with a leading axis that counts samples.

    Raises RequestError for a file that cannot be read, or arrays that do not fit.
    """
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, BadZipFile) as error:
        raise RequestError(
            f"{path.name} cannot be read as samples of inputs ({error}). Write them with"
            " numpy.savez(FILE, **{INPUT: ARRAY})"
        ) from error
    names = [tensor.name for tensor in wanted]
    said = ", ".join(map(describe, wanted))
    if unknown := [name for name in arrays if name not in names]:
        raise RequestError(f"{path.name} holds {unknown[0]!r}, which is no input; the inputs are: {said}")
    if lacking := [name for name in names if name not in arrays]:
        raise RequestError(f"{path.name} lacks input {lacking[0]!r}; the inputs are: {said}")
    stacked = {tensor.name: _stacked(path, tensor, arrays[tensor.name]) for tensor in wanted}
    counts = {len(array) for array in stacked.values()}
    if len(counts) > 1 and counts - {1}:
        most = max(counts)
        if counts != {1, most}:
            raise RequestError(f"{path.name} holds {sorted(counts)} samples of the inputs; give as many of each")
    count = max(counts, default=0)
    if count < 1:
        raise RequestError(f"{path.name} holds no sample; give at least one of each input: {said}")
    return [
        {name: array[n if len(array) > 1 else 0] for name, array in stacked.items()}
        for n in range(min(count, SAMPLES_MAX))
    ]


def _stacked(path: Path, tensor: Tensor, array: Array) -> Array:
    """Returns the samples of one input, along the first axis."""
    if array.dtype != np.dtype(tensor.dtype):
        raise RequestError(
            f"{path.name}: input {describe(tensor)} was given as {array.dtype};"
            f" convert it with .astype({tensor.dtype!r})"
        )
    if array.shape == tensor.shape:
        return array[None]
    if array.shape[1:] == tensor.shape:
        return array
    given = "x".join(map(str, array.shape)) or "scalar"
    raise RequestError(
        f"{path.name}: input {describe(tensor)} was given as {given}; give one sample of its shape, or several stacked"
        " along one more axis in front"
    )
