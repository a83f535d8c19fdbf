"""Compares the outputs of a build with those of a reference."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from autosched.tvm.module import Array

RELATIVE_TOLERANCE = 1e-3
INFINITE = 1e308
"""Stands for infinity, which JSON cannot express."""


class Check(Struct, frozen=True):
    """How far outputs are from those of the reference."""

    equal: bool
    max_abs_error: float
    tolerance: float


def compare(expected: Sequence[Array], got: Sequence[Array]) -> Check:
    """Outputs may differ by a thousandth of the largest value of the reference; whole numbers not at all."""
    if len(expected) != len(got):
        return Check(False, INFINITE, 0.0)
    checks = [_compare_one(e, g) for e, g in zip(expected, got, strict=True)]
    worst = max(checks, key=lambda check: (not check.equal, check.max_abs_error))
    return Check(all(check.equal for check in checks), worst.max_abs_error, worst.tolerance)


def _compare_one(expected: Array, got: Array) -> Check:
    if expected.shape != got.shape:
        return Check(False, INFINITE, 0.0)
    left, right = expected.astype("float64"), got.astype("float64")
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        error = float(np.max(np.where(same, 0.0, np.abs(left - right)), initial=0.0))
    if expected.dtype.kind != "f":
        return Check(np.array_equal(expected, got), error, 0.0)
    finite = np.abs(left[np.isfinite(left)])
    tolerance = RELATIVE_TOLERANCE * float(np.max(finite, initial=0.0)) + 1e-7
    if expected.dtype == np.float16:
        tolerance *= 20
    return Check(bool(error <= tolerance), error if np.isfinite(error) else INFINITE, tolerance)
