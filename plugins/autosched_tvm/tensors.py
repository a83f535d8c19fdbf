"""Inputs and outputs of a network: names, shapes, types, and kinds of data."""

from enum import StrEnum
from typing import Any

import numpy as np
from msgspec import Struct

from autosched_runtime import side_file

Array = np.ndarray[Any, Any]
"""An array of any shape and type."""


class Kind(StrEnum):
    """Kinds of inputs."""

    NORMAL = "normal"  # numbers of mean 0 and variance 1
    IMAGE = "image"  # normalised: mean about 0, variance about 1
    UNIT_IMAGE = "image 0..1"
    PIXELS = "image 0..255"
    SOUND = "sound"  # samples within -1 and 1
    POSITIVE = "positive"  # numbers above 0 of median 1
    STATE = "state"  # of a recurrent network
    MASK = "mask"  # ones up to a length, then zeros
    TOKENS = "tokens"  # whole numbers from `low` to below `high`
    POSITIONS = "positions"  # `low` + 0, 1, 2, ...
    COUNT = "count"  # `high` - 1, such as a length or a sample rate


class Tensor(Struct, frozen=True):
    """One input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    high: int = 2
    """Exclusive upper bound of generated integers."""
    kind: Kind | None = None
    """Kind of a generated input; None: numbers suggested by the type."""
    low: int = 0
    """Lowest generated integer."""


def describe(tensor: Tensor) -> str:
    """Name, type and shape, for error messages."""
    return str(side_file.Tensor(tensor.name, tensor.shape, tensor.dtype))
