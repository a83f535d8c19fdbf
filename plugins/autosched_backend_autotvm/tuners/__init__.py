"""Tuners: which configurations of a space to try next. They use numbers of configurations and scores, and no TVM."""

from collections.abc import Collection, Sequence
from typing import Protocol


class Tuner(Protocol):
    """Search of one space. Its proposals depend on its seed and its measurements only."""

    def propose(self, count: int, taken: Collection[int]) -> list[int]:
        """Returns up to `count` configurations that are neither measured nor `taken`; none where the space is
        exhausted."""

    def learn(self, indices: Sequence[int], scores: Sequence[float]) -> None:
        """Learns from configurations and their scores: throughput in any unit, 0 for a failure."""
