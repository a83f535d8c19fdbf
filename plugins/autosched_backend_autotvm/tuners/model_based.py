"""The tuner `xgb`: predicts the scores of unmeasured configurations, and proposes the best it finds."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Protocol

import numpy as np

from autosched_backend_autotvm.cost_model import CostModel, Loss, Vector
from autosched_backend_autotvm.knob_features import KnobFeatures, Matrix
from autosched_backend_autotvm.tuners import diversity
from autosched_backend_autotvm.tuners.annealing import Best, Plan, Scores, anneal
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler, Digits
from autosched_backend_autotvm.tuners.grid_and_random import seeded
from autosched_backend_autotvm.tuners.score_history import ScoreHistory

ELITE_SHARE = 0.5
"""Share of the chains that start at the best measured configurations."""
DIVERSITY_WEIGHT = 0.3
POOL = 512
PROMISING_SHARE = 1 / 16
"""Before the model has data, rounds are drawn from this best share of a random pool, ranked by the template's
estimate."""
PROMISE_WEIGHT = 2.0
"""Score added, with the loss `rank`, to a configuration that the template expects to be twice as fast."""
HALF_LIFE = 64
"""Number of own records with which the added score halves, each time."""
EXAMPLES_SHARE = 0.5
"""Maximum share of the first round that comes from the best of other tasks."""
BLIND_SHARE = 0.25
"""Share of the first round that is random, so that a wrong template does not decide everything."""


@dataclass(frozen=True)
class Learning:
    """Parameters, under AutoTVM's names."""

    plan_size: int = 64
    """Number of best predictions that are searched for. A round takes the best of them."""
    epsilon: float = 0.05
    """Share of proposals that are random."""
    diversity_filter_ratio: float = 0.0
    """Ratio of the candidates that the search collects to those that it proposes: of the collected ones, those that
    differ most from each other are proposed."""
    loss: Loss = "rank"
    warm_up: int = 16
    """Number of measurements before the model is used."""
    chains: int = 128
    plan: Plan = field(default_factory=Plan)
    threads: int = 1


class Prior(Protocol):
    """Prior from other tasks."""

    def tell(self, digits: Digits, scores: Vector) -> None:
        """Shares this task's configurations and scores, of which the best is 1."""

    def opinion(self, measured: int) -> Callable[[Digits], Vector] | None:
        """Returns the margin of scores from the other tasks; None where their weight is too small beside `measured` own
        records."""

    def examples(self) -> list[int]:
        """Returns the best configurations of the other tasks, adapted to this one, the most promising first."""


class Reranker(Protocol):
    """Slower and better features for a few configurations."""

    def rows(self, indices: Sequence[int]) -> Matrix:
        """Returns features, one row for each configuration."""


class ModelBasedTuner(ScoreHistory):
    """Fits a model to the scores, and anneals on its predictions."""

    def __init__(
        self,
        points: ConfigSampler,
        seed: int,
        learning: Learning,
        prior: Prior | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        super().__init__()
        self._points, self._seed, self._learning = points, seed, learning
        self._features = KnobFeatures(points.space)
        self._prior, self._reranker = prior, reranker

    def propose(self, count: int, taken: Collection[int]) -> list[int]:
        """Returns the best configurations by prediction, and a few random ones."""
        known = self.scores.keys() | taken
        random = seeded(self._seed, len(known))
        rng = np.random.default_rng([self._seed, len(known)])
        planned = self._examples(count, known)
        known, free = known | set(planned), count - len(planned)
        if (score := self.predictor()) is not None:
            chance = int(rng.binomial(free, self._learning.epsilon))
            planned += self._plan(score, free - chance, known, random, rng)
        else:
            chance = int(rng.binomial(free, BLIND_SHARE))
            promising = self._promising(free, random, known)
            planned += random.sample(promising, min(len(promising), free - chance))
        return [*planned, *self._points.fresh(random, count - len(planned), known | set(planned))]

    def _examples(self, count: int, known: Collection[int]) -> list[int]:
        """Returns, for the first round, the best configurations of other tasks."""
        if self._prior is None or self.scores:
            return []
        found = (index for index in self._prior.examples() if index not in known and self._points.legal(index))
        return list(islice(found, max(1, round(EXAMPLES_SHARE * count))))

    def learn(self, indices: Sequence[int], scores: Sequence[float]) -> None:
        """Learns, and shares the scores with other tasks."""
        super().learn(indices, scores)
        if self._prior is not None and self.best:
            known, normalised = self._normalised()
            self._prior.tell(self._points.digits(known), normalised)

    def _promising(self, count: int, random: Random, known: Collection[int]) -> list[int]:
        """Returns new configurations that the template considers promising, at least `count` where possible; none
        without an opinion."""
        pool = self._points.fresh(random, POOL, known)
        promise = self._features.promise(self._points.digits(pool))
        if promise is None:
            return []
        best = np.argsort(-promise, kind="stable")[: max(count, round(PROMISING_SHARE * len(pool)))]
        return [pool[at] for at in best]

    def predictor(self) -> Callable[[Digits], Scores] | None:
        """Returns the function that predicts scores of rows; None as long as nothing is known."""
        if not self._features.names:
            return None
        taught = self._prior.opinion(len(self.scores)) if self._prior is not None else None
        if not self.best or (len(self.scores) < self._learning.warm_up and taught is None):
            return taught
        opinion = self._opinion(taught)
        indices, scores = self._normalised()
        digits = self._points.digits(indices)
        model = CostModel(self._learning.loss, self._seed, self._learning.threads)
        model.fit(self._features.of(digits), scores, margin=opinion(digits) if opinion is not None else None)
        return lambda rows: model.predict(self._features.of(rows), opinion(rows) if opinion is not None else None)

    def _opinion(self, taught: Callable[[Digits], Vector] | None) -> Callable[[Digits], Vector] | None:
        """Returns the scores of configurations before this task's own measurements, which outweigh them later."""
        if self._features.promise(self._points.digits([self._points.first])) is None:
            return taught
        weight = np.float32(0.5 ** (len(self.scores) / HALF_LIFE))
        order = self._learning.loss == "rank"

        def opinion(rows: Digits) -> Vector:
            promise = self._features.promise(rows)
            assert promise is not None
            told = np.float32(PROMISE_WEIGHT) * promise if order else np.exp2(promise)
            return weight * told + (taught(rows) if taught is not None else np.float32(0.0))

        return opinion

    def _normalised(self) -> tuple[list[int], Vector]:
        """Returns measured configurations with scores, of which the best is 1, in an order independent of time."""
        indices = sorted(self.scores)
        return indices, np.array([self.scores[index] for index in indices], np.float32) / np.float32(self.best)

    def _plan(
        self,
        score: Callable[[Digits], Scores],
        count: int,
        known: Collection[int],
        random: Random,
        rng: np.random.Generator,
    ) -> list[int]:
        """Returns the best `count` configurations by prediction."""
        ratio = self._learning.diversity_filter_ratio
        wide = max(count, math.ceil(count * ratio))
        points = self._points
        best = Best(points, max(wide, self._learning.plan_size), points.keys(points.digits(known)))
        if points.listed:
            best.merge(points.all_legal, score(points.all_legal))
        else:
            elites = self.ranked(int(ELITE_SHARE * self._learning.chains))
            free = self._learning.chains - len(elites)
            others = self._promising(free, random, known)[:free]
            drawn = points.draw(rng, free - len(others))
            chains = np.concatenate([points.digits([*elites, *others]), drawn])
            anneal(points, _even(score, chains), chains, best, self._learning.plan, rng)
        digits, scores = self._reranked(best)
        if ratio > 1:
            taken = diversity.pick(digits[:wide], scores[:wide], count, DIVERSITY_WEIGHT)
            return points.indices(digits[taken])
        return points.indices(digits[:count])

    def _reranked(self, best: Best) -> tuple[Digits, Scores]:
        """Returns the plan reordered by the reranker, where there is one."""
        if self._reranker is None or not self.best or not len(best.scores):
            return best.digits, best.scores
        indices, scores = self._normalised()
        model = CostModel(self._learning.loss, self._seed, self._learning.threads)
        model.fit(self._reranker.rows(indices), scores)
        again = model.predict(self._reranker.rows(self._points.indices(best.digits)))
        order = np.argsort(-again, kind="stable")
        return best.digits[order], again[order]


def _even(score: Callable[[Digits], Scores], rows: Digits) -> Callable[[Digits], Scores]:
    """Returns the scores normalised to a spread of 1 on these rows, so that a temperature means the same for each
    loss."""
    told = score(rows)
    low, spread = told.min(), max(np.ptp(told), np.float32(1e-6))
    return lambda other: (score(other) - low) / spread
