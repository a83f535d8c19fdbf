"""Transfer between siblings: tasks with the same main computation, and other operators fused with it.

The best of one is near the best of the other. Their latencies are not compared, only ranked within each.
"""

import hashlib
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from autosched_backend_autotvm.templates.kernel_analysis import KernelAnalysis
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler

BEST_OF_EACH = 3
"""Number of the best of each sibling that are tried: the very best of short measurements is in part luck."""
DIGITS = 12


def kernel_of(nest: KernelAnalysis) -> str:
    """The same for siblings, in any process: all that is known of a kernel but the names of its parts."""
    return hashlib.sha256(repr(replace(nest, block="", right="")).encode()).hexdigest()[:DIGITS]


class Siblings:
    """Those of one task."""

    def __init__(self, points: ConfigSampler, elsewhere: Callable[[], Sequence[Mapping[bytes, float]]]) -> None:
        """`elsewhere`: for each other task of the job, candidates and their latencies in seconds."""
        self._points, self._elsewhere = points, elsewhere
        # As it stands in a candidate, so that those of other tasks need not be parsed, thousands of bytes each.
        self._mark = json.dumps(points.space.identity, separators=(",", ":"))[1:-1].encode()

    def best(self, known: Collection[int]) -> list[int]:
        """Configurations that are not known, the best of each sibling first."""
        ranked = [self._ranked(measured) for measured in self._elsewhere()]
        found = dict.fromkeys(index for rank in zip_longest(*ranked) for index in rank if index is not None)
        return [index for index in found if index not in known and self._points.legal(index)]

    def _ranked(self, measured: Mapping[bytes, float]) -> list[int | None]:
        """The best of another task, best first; None for what this space does not have; empty: it is no sibling."""
        own = [(s, candidate) for candidate, s in measured.items() if self._mark in candidate and 0.0 < s < math.inf]
        return [
            self._points.space.find(json.loads(candidate)[-1]["config"]) for _, candidate in sorted(own)[:BEST_OF_EACH]
        ]
