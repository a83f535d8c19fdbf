"""Inputs with NaN and infinities: how the outputs of a build then differ from those of the reference."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from autosched_tvm.evaluation import isolated_run
from autosched_tvm.tensors import Array

SPECIAL = {"NaN": (np.nan,), "infinities": (np.inf, -np.inf)}
"""Values that are put into inputs, by their name."""
Sample = Mapping[str, Array]


def note(build: Path, inputs: Sample, reference: Callable[[Sample], Sequence[Array]], names: Sequence[str]) -> str:
    """Says for which special values a build differs from the reference; empty if for none.

    The build runs in its own process: numbers that are none may become places outside of a table.
    """
    if not (samples := {word: made for word, values in SPECIAL.items() if (made := _with(inputs, values)) is not None}):
        return ""
    try:
        outputs = isolated_run.outputs(build, list(samples.values()))
    except isolated_run.Crashed as error:
        return f"inputs with NaN or infinities are not allowed: {error} (docs/limits.md)"
    said = []
    for (word, sample), got in zip(samples.items(), outputs, strict=True):
        try:
            wanted = reference(sample)
        except Exception:  # the reference refuses them, and has no errors of one class
            continue
        for name, right, own in zip(names, wanted, got, strict=False):
            if right.dtype.kind != "f" or right.shape != own.shape:
                continue
            count = int(np.sum(np.isfinite(right) != np.isfinite(own)))
            if count:
                said.append(f"with {word} in the inputs, {count} of {right.size} values of {name!r}")
    if not said:
        return ""
    return f"{'; '.join(said)} are numbers where the reference has none, or the reverse (docs/limits.md)"


def _with(inputs: Sample, values: Sequence[float]) -> dict[str, Array] | None:
    """A copy of the inputs with these values in each floating-point one; None without any."""
    made, found = dict(inputs), False
    for name, array in inputs.items():
        if array.dtype.kind == "f" and array.size:
            copy = np.array(array)
            places = np.linspace(0, copy.size - 1, min(copy.size, 3 * len(values))).astype(int)
            copy.reshape(-1)[places] = np.resize(np.asarray(values), len(places))
            made[name], found = copy, True
    return made if found else None
