"""Transfer between siblings: tasks with equal main computation and different fused operators.

The best configuration of one is near the best of the others. Latencies are ranked within each task, and not compared
between tasks.
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
"""Number of the best configurations of each sibling that are tried. The best of short measurements is partly luck."""
DIGITS = 12


def kernel_of(nest: KernelAnalysis) -> str:
    """Returns a key of a kernel that is equal for siblings in any process: its properties without the names of its
    parts."""
    return hashlib.sha256(repr(replace(nest, block="", right="")).encode()).hexdigest()[:DIGITS]


class Siblings:
    """Siblings of one task."""

    def __init__(self, points: ConfigSampler, elsewhere: Callable[[], Sequence[Mapping[bytes, float]]]) -> None:
        """`elsewhere` returns candidates and their latencies in seconds for each other task of the job."""
        self._points, self._elsewhere = points, elsewhere
        # Our identity as JSON text, as it occurs inside a candidate. A search for it is cheaper than parsing the
        # candidates of other tasks, which have thousands of bytes each.
        self._mark = json.dumps(points.space.identity, separators=(",", ":"))[1:-1].encode()

    def best(self, known: Collection[int]) -> list[int]:
        """Returns configurations that are not in `known`, the best of each sibling first."""
        ranked = [self._ranked(measured) for measured in self._elsewhere()]
        found = dict.fromkeys(index for rank in zip_longest(*ranked) for index in rank if index is not None)
        return [index for index in found if index not in known and self._points.legal(index)]

    def _ranked(self, measured: Mapping[bytes, float]) -> list[int | None]:
        """Returns another task's configurations, best first; None for one that this space lacks; empty for a task that
        is no sibling."""
        own = [(s, candidate) for candidate, s in measured.items() if self._mark in candidate and 0.0 < s < math.inf]
        return [
            self._points.space.find(json.loads(candidate)[-1]["config"]) for _, candidate in sorted(own)[:BEST_OF_EACH]
        ]
