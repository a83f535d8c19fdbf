"""Tuners that learn nothing: in order of the numbers, and at random."""

from collections.abc import Collection
from random import Random

from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_backend_autotvm.tuners.score_history import ScoreHistory


class GridTuner(ScoreHistory):
    """All configurations in the order of their numbers."""

    def __init__(self, points: ConfigSampler) -> None:
        super().__init__()
        self._points = points
        self._next = points.first

    def propose(self, count: int, taken: Collection[int]) -> list[int]:
        """Returns the next configurations."""
        while self._next in self.scores:
            self._next += 1
        found: list[int] = []
        index = self._next
        while len(found) < count and index < self._points.end:
            if index not in self.scores and index not in taken and self._points.legal(index):
                found.append(index)
            index += 1
        return found


class RandomTuner(ScoreHistory):
    """Configurations drawn uniformly."""

    def __init__(self, points: ConfigSampler, seed: int) -> None:
        super().__init__()
        self._points, self._seed = points, seed

    def propose(self, count: int, taken: Collection[int]) -> list[int]:
        """Returns random new configurations."""
        known = self.scores.keys() | taken
        return self._points.fresh(seeded(self._seed, len(known)), count, known)


def seeded(seed: int, known: int) -> Random:
    """Returns a random generator that depends on the seed and the number of known configurations only, so that a
    restored tuner continues alike."""
    return Random(f"{seed} {known}")
