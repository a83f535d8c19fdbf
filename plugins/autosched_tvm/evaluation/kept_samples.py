"""Samples with the outputs that a build was verified with, for those who check it where it runs later."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autosched_runtime.samples import stored
from autosched_runtime.side_file import samples_beside
from autosched_tvm.evaluation.output_comparison import Limits
from autosched_tvm.tensors import Array

SAMPLES_MAX = 2
BYTES_MAX = 64 << 20
"""Maximum size of all kept samples. Of a network with larger inputs and outputs, one sample is kept, or none."""


def keep(
    build: Path, inputs: Sequence[Mapping[str, Array]], outputs: Sequence[Sequence[Array]], names: Sequence[str],
    limits: Sequence[Limits],
) -> None:  # fmt: skip
    """Writes samples beside a build: its own outputs, and how far correct ones may differ from them.

    `names` and `limits`: of each output.
    """
    arrays: dict[str, Array] = {}
    size = 0
    for number, (given, found) in enumerate(zip(inputs, outputs, strict=False)):
        named = dict(zip(names, found, strict=True))
        size += sum(array.nbytes for array in (*given.values(), *found))
        if number == SAMPLES_MAX or size > BYTES_MAX:
            break
        arrays |= {f"input/{number}/{name}": stored(array) for name, array in given.items()}
        arrays |= {f"output/{number}/{name}": stored(array) for name, array in named.items()}
    file = samples_beside(build)
    file.unlink(missing_ok=True)
    if arrays:
        arrays |= {
            f"limits/{name}": np.array([limit.absolute, limit.relative])
            for name, limit in zip(names, limits, strict=True)
        }
        np.savez(file, **arrays)  # type: ignore[arg-type]
