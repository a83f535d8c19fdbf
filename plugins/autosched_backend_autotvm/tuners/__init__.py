"""Tuners: which configurations of a space to try next. They know numbers of configurations and scores, no TVM."""

from collections.abc import Collection, Sequence
from typing import Protocol


class Tuner(Protocol):
    """The search of one space: what it proposes depends on its seed and on what it was told, on nothing else."""

    def propose(self, count: int, taken: Collection[int]) -> list[int]:
        """Up to `count` configurations that are neither measured nor `taken`; none: there are no more."""

    def learn(self, indices: Sequence[int], scores: Sequence[float]) -> None:
        """Configurations that were measured and their scores: throughput in any unit, 0 for a failure."""
