"""Compares the outputs of a build with those of a reference, within the resolution of the computation.

The tolerance of an output has three parts: a share of its largest value, which depends on its type; an absolute floor,
the resolution of the type near 1; and the measured spread of other correct results. Where a network rounds between its
operators, single elements may exceed it: then the distance of the whole output counts. See
docs/decisions/001-verification.md.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from autosched.backend import NO_NUMBER, Difference
from autosched_tvm.evaluation.verification_messages import Check
from autosched_tvm.rounding import EPSILON, rounding_share
from autosched_tvm.tensors import Array

RELATIVE = {"float64": 1e-11, "float32": 5e-5, "float16": 5e-3, "bfloat16": 4e-2}
"""Minimum tolerance, as a share of the largest absolute value of an output. Correct builds with Winograd's algorithm
differed by 6e-6 in float32, and kernels broken on purpose by more than 1e-2."""
SPREAD_FACTOR = 8.0
"""Ratio of the tolerance to the spread of correct results. A few results bound the next one only roughly."""
SPREAD_QUANTILE = 0.99
"""Quantile of the spread that widens the tolerance of a whole output. The few elements above it, such as values beside
a discontinuity, get their own tolerance."""
LARGE_SHARE = 0.01
"""Minimum magnitude of a large element, as a share of the largest. Few elements of a softmax are large, and the others
do not show the spread of those, so that large elements have their own relative spread."""
ROUNDED_FACTOR = 3.0
"""Maximum distance of an output of a network that rounds, relative to other correct results. The distance is a root
mean square. Among 60 perturbed runs of a network that reads text, the largest was 2.3 times the median."""
UNSTABLE_SHARE = 0.01
"""Tolerance, as a share of an output's largest value, above which the comparison proves little."""

UNKNOWN_SHARE = 0.5
"""Share of non-finite elements of an output above which the comparison proves little."""


class Scores(Struct, frozen=True):
    """Values from which ArgMax, ArgMin or TopK chose the indices of an output."""

    values: Array
    others: tuple[Array, ...]
    """The same values in other correct results."""
    axis: int


class Expected(Struct, frozen=True):
    """Expected outputs for one sample of inputs."""

    outputs: tuple[Array, ...]
    others: tuple[tuple[Array, ...], ...] = ()
    """Other correct results for the same sample: other builds, or inputs and weights perturbed by rounding."""
    scores: Mapping[int, Scores] = {}
    """Scores by number of the output."""
    levels: frozenset[int] = frozenset()
    """Numbers of the outputs that are levels of a quantised tensor. Between two levels, both are correct."""
    amplified: Mapping[int, Array] = {}
    """Largest error of each element by number of the output, where a rounding of a tie is amplified by later ones."""
    rounds: bool = False
    """Whether the network rounds between its operators. A value between two levels then moves by a whole level, and
    different elements change in each correct result."""


class Limits(Struct, frozen=True):
    """Tolerance of each element of an output: the larger of both limits."""

    absolute: float
    relative: float
    """Relative to the element."""


class Tolerances:
    """Tolerances of each output, from all samples together."""

    def __init__(
        self, samples: Sequence[Expected], names: Sequence[str] = (), share: float | None = None, terms: int = 1
    ) -> None:
        """`share`: the user's tolerance as a share of each output's largest value; None: as measured. `terms`: number
        of terms that the reference adds one after the other, each with a rounding error."""
        self._samples, self._share, self._terms = samples, share, terms
        count = len(samples[0].outputs)
        self._names = [names[n] if n < len(names) else f"output {n}" for n in range(count)]
        self.common = [
            self._limits([one.outputs[n] for one in samples], [[o[n] for o in one.others] for one in samples])
            for n in range(count)
        ]
        """Limits of each output."""
        self._scores = {
            n: self._limits([one.scores[n].values for one in samples], [list(one.scores[n].others) for one in samples])
            for n in samples[0].scores
        }

    @property
    def largest(self) -> float:
        """Largest tolerance of all outputs."""
        return max((limits.absolute for limits in self.common), default=0.0)

    def notes(self) -> list[str]:
        """Returns the reasons why the comparison is weak."""
        said = []
        arrays = [[one.outputs[n] for one in self._samples] for n in range(len(self._names))]
        if not any(_finite(array).size for own in arrays for array in own):
            said.append("no output is a finite number for made-up inputs, so that their comparison proves little")
        else:
            for name, own in zip(self._names, arrays, strict=True):
                share = 1 - sum(_finite(array).size for array in own) / max(1, sum(array.size for array in own))
                if share > UNKNOWN_SHARE:
                    said.append(
                        f"{share:.0%} of output {name!r} are not finite numbers for made-up inputs, so that nothing is"
                        " known about them; compare with samples of your own: --inputs FILE.npz"
                    )
        for name, own, bound in zip(self._names, arrays, self.common, strict=True):
            scale = max(_scale(array) for array in own)
            share = bound.absolute / scale + bound.relative if scale else 0.0
            if self._share is None and _is_float(own[0]) and share > UNSTABLE_SHARE:
                said.append(
                    f"output {name!r} differs by {share / SPREAD_FACTOR:.1g} of its largest value between"
                    " correct builds, so that its comparison says little; samples of your own may say more:"
                    " --inputs FILE.npz"
                )
        return said

    def check(self, got: Sequence[Sequence[Array]]) -> Check:
        """Compares the outputs of a build, sample by sample. The worst element decides, or the distance of all
        elements."""
        if any(len(one.outputs) != len(outputs) for one, outputs in zip(self._samples, got, strict=True)):
            return Check(False, NO_NUMBER, 0.0)
        checks = [self._output(n, [outputs[n] for outputs in got]) for n in range(len(self._names))]
        return max(checks, key=lambda check: check.severity, default=Check(True, 0.0, 0.0))

    def _output(self, n: int, got: Sequence[Array]) -> Check:
        """Compares one output in all samples."""
        pairs = zip(self._samples, got, strict=True)
        checks = [self._one(one, n, number, array) for number, (one, array) in enumerate(pairs)]
        worst = max(checks, key=lambda check: check.severity)
        if worst.equal or self._share is not None or not self._rounded_alike(n, got):
            return worst
        return Check(True, worst.max_abs_error, worst.tolerance)

    def _rounded_alike(self, n: int, got: Sequence[Array]) -> bool:
        """Returns whether an output of a network that rounds is about as far from the expected one as other results
        are."""
        expected = [one.outputs[n] for one in self._samples]
        count = min(len(one.others) for one in self._samples)
        if not all(one.rounds for one in self._samples) or not count or not _is_float(expected[0]):
            return False
        if any(one.shape != array.shape for one, array in zip(expected, got, strict=True)):
            return False
        others = [_apart(expected, [one.others[other][n] for one in self._samples]) for other in range(count)]
        return _apart(expected, got) <= ROUNDED_FACTOR * max(filter(math.isfinite, others), default=0.0)

    def _limits(self, expected: Sequence[Array], others: Sequence[Sequence[Array]]) -> Limits:
        if not _is_float(expected[0]):
            return Limits(0.0, 0.0)
        scale, name = max(_scale(array) for array in expected), expected[0].dtype.name
        if self._share is not None:
            return Limits(self._share * scale + EPSILON[name], 0.0)
        spreads, relative = [np.zeros(1)], [np.zeros(1)]
        for array, other in zip(expected, others, strict=True):
            spread, size = _spread(array, other).ravel(), np.abs(array.astype("float64")).ravel()
            large = np.isfinite(size) & (size >= LARGE_SHARE * scale) & (size > 0)
            spreads.append(spread)
            relative.append(spread[large] / size[large])
        widest, widest_share = (float(np.quantile(np.concatenate(s), SPREAD_QUANTILE)) for s in (spreads, relative))
        least = max(RELATIVE[name], rounding_share(name, self._terms)) * scale
        return Limits(EPSILON[name] + max(least, SPREAD_FACTOR * widest), SPREAD_FACTOR * widest_share)

    def _one(self, expected: Expected, n: int, sample: int, got: Array) -> Check:
        right = expected.outputs[n]
        if right.shape != got.shape:
            said = Difference(self._names[n], sample, (), f"shape {right.shape}", f"shape {got.shape}", 0.0, "tuned")
            return Check(False, NO_NUMBER, 0.0, said)
        if right.dtype != got.dtype:
            said = Difference(self._names[n], sample, (), f"type {right.dtype}", f"type {got.dtype}", 0.0, "tuned")
            return Check(False, NO_NUMBER, 0.0, said)
        others = [other[n] for other in expected.others]
        same = same_elements(right, got)
        error = _distance(right, got, same)
        limits = self.common[n]
        allowed = np.full(right.shape, limits.absolute)
        if self._share is None:
            if _is_float(right):
                allowed = np.maximum(allowed, limits.relative * np.abs(np.nan_to_num(right.astype("float64"))))
            for other in others:
                same |= same_elements(other, got)
            if _is_float(right) and others:
                allowed = np.maximum(allowed, SPREAD_FACTOR * _spread(right, others))
        amplified = expected.amplified.get(n, 0.0)
        allowed = allowed + amplified
        fine = same | (error <= allowed) if _is_float(right) else same
        if n in expected.levels:
            fine |= error <= 1 + amplified
        if n in expected.scores:
            fine |= _tied(expected.scores[n], right, got, 2 * self._scores[n].absolute).reshape(right.shape)
        worst = float(np.max(error, initial=0.0))
        if fine.all():
            return Check(True, _number(worst), limits.absolute)
        with np.errstate(invalid="ignore", divide="ignore"):
            excess = np.where(fine, -1.0, np.nan_to_num(error / np.maximum(allowed, 1e-300), nan=NO_NUMBER))
        at = np.unravel_index(int(np.argmax(excess)), right.shape)
        said = Difference(
            self._names[n],
            sample,
            tuple(int(i) for i in at),
            _shown(right[at]),
            _shown(got[at]),
            float(allowed[at]),
            "tuned",
        )
        return Check(False, _number(float(error[at])), float(allowed[at]), said)


def _is_float(array: Array) -> bool:
    return array.dtype.name in EPSILON


def _finite(array: Array) -> Array:
    wide = array.astype("float64")
    finite: Array = wide[np.isfinite(wide)]
    return finite


def _scale(array: Array) -> float:
    """Returns the largest finite absolute value."""
    return float(np.max(np.abs(_finite(array)), initial=0.0))


def same_elements(one: Array, other: Array) -> Array:
    """Returns where two arrays are equal, including NaN."""
    if not _is_float(one):
        return np.asarray(one == other)
    a, b = one.astype("float64"), other.astype("float64")
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _distance(one: Array, other: Array, same: Array) -> Array:
    """Returns absolute differences; infinite where only one value is finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(one.astype("float64") - other.astype("float64"))
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def _apart(expected: Sequence[Array], others: Sequence[Array]) -> float:
    """Returns the root mean square of all differences of an output, in all samples; infinite where only one value is
    finite."""
    pairs = zip(expected, others, strict=True)
    squares = np.concatenate([_distance(one, other, same_elements(one, other)).ravel() ** 2 for one, other in pairs])
    return float(np.sqrt(np.mean(squares))) if squares.size else 0.0


def _spread(expected: Array, others: Sequence[Array]) -> Array:
    """Returns the largest finite difference of other correct results, per element."""
    spread = np.zeros(expected.shape)
    for other in others:
        apart = _distance(expected, other, same_elements(expected, other))
        spread = np.maximum(spread, np.where(np.isfinite(apart), apart, 0.0))
    return spread


def _tied(scores: Scores, right: Array, got: Array, tolerance: float) -> Array:
    """Returns where an unexpected index selects a value that ties with the expected one's."""
    values = scores.values.astype("float64")
    shape = list(values.shape)
    shape[scores.axis] = right.size * shape[scores.axis] // values.size
    indices = [np.asarray(array).reshape(shape).astype("int64") for array in (right, got)]
    valid = (indices[1] >= 0) & (indices[1] < values.shape[scores.axis])
    first, second = (np.take_along_axis(values, np.where(valid, i, 0), scores.axis) for i in indices)
    with np.errstate(invalid="ignore"):
        return np.asarray(valid & (np.abs(first - second) <= tolerance))


def _number(value: float) -> float:
    return value if math.isfinite(value) else NO_NUMBER


def _shown(value: Any) -> str:
    """Returns a value for messages and JSON, which has no infinity."""
    return f"{float(value):.9g}" if np.asarray(value).dtype.name in EPSILON else str(value)
