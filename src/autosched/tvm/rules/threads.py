"""Decides which loops are spread over the cores of a device."""

import math
from collections.abc import Sequence
from typing import Any

from autosched.tvm.rules import access
from autosched.tvm.rules.stage import Loop, Stage, bytes_of

PARALLEL_BYTES_MIN = 256 * 1024
"""Memory accesses of a stage, in bytes, from which a fork and a join of the thread pool (some microseconds) pay off."""


def worthwhile(stage: Stage, cores: int) -> bool:
    """Whether a stage is spread over threads."""
    if cores < 2:
        return False
    steps = math.prod(loop.extent for loop in stage.every_loop)
    return steps * _bytes_per_step(stage) >= PARALLEL_BYTES_MIN


def cores_of(target: Any) -> int:
    """Number of cores that a target names."""
    return int(target.attrs.get("num-cores", 1))


def outermost(loops: Sequence[Loop], cores: int) -> bool:
    """Whether the first loop that counts has a value for each core."""
    first = next((loop for loop in loops if loop.extent > 1), None)
    return first is not None and first.extent >= cores


def _bytes_per_step(stage: Stage) -> int:
    return sum(bytes_of(one.buffer.ty.dtype) for one in (access.store_of(stage), *access.loads_of(stage)))
