"""Statistics of samples of any distribution: median with confidence interval, and 99th percentile."""

from collections.abc import Iterable, Sequence
from math import comb
from statistics import median

from autosched.backend import Timing

CONFIDENCE = 0.95
REPEATED = 0.01
"""Share by which two measurements of one module may differ, however narrow their intervals are."""


def summarize(name: str, samples_s: Sequence[float]) -> Timing:
    """Median and the bounds of its 95 % interval; with fewer than six samples the interval covers all of them."""
    low_s, high_s = interval(samples_s)
    return Timing(name, tuple(samples_s), median(samples_s), low_s, high_s)


def interval(samples_s: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The narrowest symmetric pair of order statistics that contains the median with this confidence.

    The number of samples below the true median is binomial(n, 1/2) for any distribution.
    """
    ordered = sorted(samples_s)
    count = len(ordered)
    outside = first = 0
    for dropped in range((count + 1) // 2):
        outside += comb(count, dropped)
        if 1 - 2 * outside / 2**count < confidence:
            break
        first = dropped
    return ordered[first], ordered[count - 1 - first]


def p99(samples: Iterable[float]) -> float:
    """99th percentile; 0 without samples."""
    ordered = sorted(samples)
    return ordered[int(0.99 * (len(ordered) - 1))] if ordered else 0.0


def clearly_faster(left: Timing, right: Timing) -> bool:
    """Whether `left` is faster than `right` by their intervals."""
    return left.high_s < right.low_s
