"""AutoTVM's genetic tuner (ga_tuner.py of TVM 0.18), changed to propose nothing twice."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_backend_autotvm.tuners.grid_and_random import seeded
from autosched_backend_autotvm.tuners.score_history import ScoreHistory

CHILDREN_MAX = 50
"""Maximum number of children per wanted one, before the rest is drawn at random."""


@dataclass(frozen=True)
class Breeding:
    """Parameters, with AutoTVM's defaults."""

    population: int = 100
    elites: int = 3
    mutation: float = 0.1
    """Probability of a mutation per knob."""


class GeneticTuner(ScoreHistory):
    """Generations of measured configurations; the first is random.

    Parents of a generation are all configurations of the one before, and the best of all generations, picked with a
    probability proportional to their scores.
    """

    def __init__(self, points: ConfigSampler, seed: int, breeding: Breeding) -> None:
        super().__init__()
        self._points, self._seed, self._breeding = points, seed, breeding

    def propose(self, count: int, taken: Collection[int]) -> list[int]:
        """Returns children, or random configurations where there are no parents or no new children."""
        known = self.scores.keys() | taken
        random = seeded(self._seed, len(known))
        found: dict[int, None] = {}
        parents = self._parents(len(known))
        if len(parents) > 1:
            rows = [self._points.space.digits(index) for index in parents]
            weights = list(accumulate(self.scores[index] for index in parents))
            for _ in range(CHILDREN_MAX * count):
                if len(found) == count:
                    break
                child = self._child(random, rows, weights)
                if child not in known and self._points.legal(child):
                    found[child] = None
        rest = count - len(found)
        return [*found, *self._points.fresh(random, rest, known | found.keys())]

    def _parents(self, known: int) -> list[int]:
        population = self._breeding.population
        born = known // population * population
        if not born:
            return []
        before = list(self.scores)[max(0, born - population) : born]
        both = dict.fromkeys([*before, *self.ranked(self._breeding.elites)])
        return [index for index in both if self.scores[index] > 0]

    def _child(self, random: Random, rows: list[tuple[int, ...]], weights: list[float]) -> int:
        """Returns a child of two different parents, cut at one point, with mutations."""
        one = other = random.choices(range(len(rows)), cum_weights=weights)[0]
        while one == other:
            other = random.choices(range(len(rows)), cum_weights=weights)[0]
        cut = random.randrange(len(rows[0]) + 1)
        digits = [*rows[one][:cut], *rows[other][cut:]]
        for knob, radix in enumerate(self._points.space.radices):
            if random.random() < self._breeding.mutation:
                digits[knob] = random.randrange(radix)
        return self._points.space.index(digits)
