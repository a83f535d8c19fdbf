"""Samples of a network's inputs, with the outputs that it was verified with: a .npz file.

Its arrays: input/NUMBER/NAME, output/NUMBER/NAME, and limits/NAME: how far an element of a correct output may differ
from that of the file, absolutely and relative to it; the larger of both counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile

import numpy as np

from autosched_runtime.errors import NetworkError
from autosched_runtime.inputs import Array, dtype_of
from autosched_runtime.network_file import SUFFIX
from autosched_runtime.side_file import Description, Tensor, samples_beside
from autosched_runtime.weights import read_part


@dataclass(frozen=True)
class Sample:
    """Inputs in order, and the outputs that were found."""

    inputs: list[Array]
    outputs: list[Array]
    limits: list[tuple[float, float]]
    """Absolute and relative, of each output."""

    def differing(self, outputs: list[Array]) -> Iterator[tuple[int, float, float]]:
        """Numbers of the given outputs that differ by more than the limits, with their largest excess: the difference,
        and what is allowed."""
        for number, (right, found) in enumerate(zip(self.outputs, outputs, strict=True)):
            wanted, got = right.astype("float64"), found.astype("float64")
            absolute, relative = self.limits[number]
            with np.errstate(invalid="ignore"):
                apart = np.where((wanted == got) | (np.isnan(wanted) & np.isnan(got)), 0.0, np.abs(wanted - got))
                allowed = np.maximum(absolute, relative * np.abs(np.nan_to_num(wanted)))
                wrong = ~(apart <= allowed)
            if wrong.any():
                worst = np.argmax(np.where(wrong, np.nan_to_num(apart, nan=np.inf), -1.0))
                yield number, float(apart.flat[worst]), float(np.broadcast_to(allowed, apart.shape).flat[worst])


def stored(array: Array) -> Array:
    """An array in a form that .npz files can hold: bfloat16 as whole numbers of 16 bits."""
    return array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")


def of(network: Path, description: Description) -> list[Sample]:
    """The samples of a network's file; empty if none were kept. Raises NetworkError."""
    if network.suffix != SUFFIX:
        beside = samples_beside(network)
        return read(BytesIO(beside.read_bytes()), description) if beside.is_file() else []
    if description.samples is None:
        return []
    with network.open("rb") as file:
        return read(BytesIO(read_part(file, description.samples)), description)


def read(file: BinaryIO, description: Description) -> list[Sample]:
    """The samples in a file. Raises NetworkError for a file that does not fit the network."""
    try:
        with np.load(file, allow_pickle=False) as found:
            count = len({name.split("/")[1] for name in found.files if name.startswith("input/")})
            limits = [tuple(map(float, found[f"limits/{tensor.name}"])) for tensor in description.outputs]
            return [
                Sample(
                    [_array(found[f"input/{number}/{tensor.name}"], tensor) for tensor in description.inputs],
                    [_array(found[f"output/{number}/{tensor.name}"], tensor) for tensor in description.outputs],
                    [(absolute, relative) for absolute, relative in limits],
                )
                for number in range(count)
            ]
    except (OSError, ValueError, KeyError, IndexError, EOFError, BadZipFile) as error:
        raise NetworkError(
            f"the samples of {description.name} cannot be read: {error}. Compile the network again"
        ) from error


def _array(found: Array, tensor: Tensor) -> Array:
    dtype = dtype_of(tensor)
    return found if found.dtype == dtype else found.view(dtype)
