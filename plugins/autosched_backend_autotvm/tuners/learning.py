"""The tuner `xgb`: predicts what was not measured from what was, and proposes the best it finds."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from autosched_backend_autotvm.annealing import Best, Plan, Scores, anneal
from autosched_backend_autotvm.features import KnobFeatures, Matrix
from autosched_backend_autotvm.model import CostModel, Loss, Vector
from autosched_backend_autotvm.tuners import diversity
from autosched_backend_autotvm.tuners.chance import seeded
from autosched_backend_autotvm.tuners.memory import Memory
from autosched_backend_autotvm.tuners.points import Digits, Points

ELITE_SHARE = 0.5
"""Share of the chains that start at the best of what was measured."""
DIVERSITY_WEIGHT = 0.3


@dataclass(frozen=True)
class Learning:
    """The parameters, by AutoTVM's names."""

    plan_size: int = 64
    """So many of the best predictions are looked for, of which a round takes the best."""
    epsilon: float = 0.05
    """Share of proposals that are random."""
    diversity_filter_ratio: float = 0.0
    """Above 1: so many times as many candidates are looked for as are proposed, and the most different taken."""
    loss: Loss = "rank"
    warm_up: int = 16
    """Measurements before the model is asked."""
    chains: int = 128
    plan: Plan = field(default_factory=Plan)
    threads: int = 1


class Prior(Protocol):
    """What is known from other tasks."""

    def tell(self, digits: Digits, scores: Vector) -> None:
        """What this task knows: configurations and scores, of which the best is 1."""

    def opinion(self, measured: int) -> Callable[[Digits], Vector] | None:
        """What the others would add to a score; None when they have nothing to say beside so many own records."""


class Reranker(Protocol):
    """A slower, better look at a few configurations."""

    def rows(self, indices: Sequence[int]) -> Matrix:
        """Features."""


class LearningTuner(Memory):
    """Fits a model to the scores, and anneals on its predictions."""

    def __init__(
        self,
        points: Points,
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
        """The best by prediction, and a few random ones."""
        known = self.scores.keys() | taken
        random = seeded(self._seed, len(known))
        rng = np.random.default_rng([self._seed, len(known)])
        planned: list[int] = []
        if (score := self._model()) is not None:
            chance = int(rng.binomial(count, self._learning.epsilon))
            planned = self._plan(score, count - chance, known, rng)
        return [*planned, *self._points.fresh(random, count - len(planned), known | set(planned))]

    def learn(self, indices: Sequence[int], scores: Sequence[float]) -> None:
        """Also tells the others."""
        super().learn(indices, scores)
        if self._prior is not None and self.best:
            known, normalised = self._normalised()
            self._prior.tell(self._points.digits(known), normalised)

    def _model(self) -> Callable[[Digits], Scores] | None:
        """Predicted scores of rows; None as long as nobody knows anything."""
        if not self._features.names:
            return None
        opinion = self._prior.opinion(len(self.scores)) if self._prior is not None else None
        if not self.best or (len(self.scores) < self._learning.warm_up and opinion is None):
            return opinion
        indices, scores = self._normalised()
        digits = self._points.digits(indices)
        model = CostModel(self._learning.loss, self._seed, self._learning.threads)
        model.fit(self._features.of(digits), scores, margin=opinion(digits) if opinion is not None else None)
        return lambda rows: model.predict(self._features.of(rows), opinion(rows) if opinion is not None else None)

    def _normalised(self) -> tuple[list[int], Vector]:
        """What was measured, and scores of which the best is 1; in an order that does not depend on time."""
        indices = sorted(self.scores)
        return indices, np.array([self.scores[index] for index in indices], np.float32) / np.float32(self.best)

    def _plan(
        self, score: Callable[[Digits], Scores], count: int, known: Collection[int], rng: np.random.Generator
    ) -> list[int]:
        """The best `count` by prediction."""
        ratio = self._learning.diversity_filter_ratio
        wide = max(count, math.ceil(count * ratio))
        points = self._points
        best = Best(points, max(wide, self._learning.plan_size), points.keys(points.digits(known)))
        if points.listed:
            rows = points.digits(range(points.first, points.end))
            best.merge(rows, score(rows))
        else:
            elites = self.ranked(int(ELITE_SHARE * self._learning.chains))
            chains = np.concatenate([points.digits(elites), points.draw(rng, self._learning.chains - len(elites))])
            anneal(points, _even(score, chains), chains, best, self._learning.plan, rng)
        digits, scores = self._reranked(best)
        if ratio > 1:
            taken = diversity.pick(digits[:wide], scores[:wide], count, DIVERSITY_WEIGHT)
            return points.indices(digits[taken])
        return points.indices(digits[:count])

    def _reranked(self, best: Best) -> tuple[Digits, Scores]:
        """The plan in the order of a second opinion, where there is one."""
        if self._reranker is None or not self.best or not len(best.scores):
            return best.digits, best.scores
        indices, scores = self._normalised()
        model = CostModel(self._learning.loss, self._seed, self._learning.threads)
        model.fit(self._reranker.rows(indices), scores)
        again = model.predict(self._reranker.rows(self._points.indices(best.digits)))
        order = np.argsort(-again, kind="stable")
        return best.digits[order], again[order]


def _even(score: Callable[[Digits], Scores], rows: Digits) -> Callable[[Digits], Scores]:
    """The same scores with a spread of 1 on these rows, so that a temperature means the same whatever the loss."""
    told = score(rows)
    low, spread = told.min(), max(np.ptp(told), np.float32(1e-6))
    return lambda other: (score(other) - low) / spread
