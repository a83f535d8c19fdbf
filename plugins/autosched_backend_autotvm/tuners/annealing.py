"""Simulated annealing of many chains at once, on rows of digits.

The method is AutoTVM's (Chen et al., "Learning to Optimize Tensor Programs", 2018, section 3.3), with one prediction
for all chains per iteration and a sorted list of the best.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler, Digits

Scores = NDArray[np.float32]
MERGE_EVERY = 10
"""Number of iterations between two checks for better configurations."""
STEP_SHARE = 0.5
"""Share of the moves to a neighbouring value of a knob; the others go to any value."""


@dataclass(frozen=True)
class Plan:
    """Parameters of the annealing."""

    iterations: int = 500
    temperature: float = 1.0
    """Initial temperature, in units of the spread of scores; it falls to 0."""
    early_stop: int = 50
    """Number of iterations without a change among the best after which it ends."""


class Best:
    """The best legal rows found, without the known ones."""

    def __init__(self, points: ConfigSampler, count: int, known: NDArray[np.uint64]) -> None:
        self._points, self._count, self._known = points, count, known
        self.digits: Digits = np.empty((0, len(points.radices)), np.int64)
        self.scores: Scores = np.empty(0, np.float32)
        self._keys = np.empty(0, np.uint64)

    def merge(self, digits: Digits, scores: Scores) -> bool:
        """Merges better rows; returns whether there were any."""
        if len(self.scores) == self._count:
            better = scores > self.scores[-1]
            digits, scores = digits[better], scores[better]
        keys, first = np.unique(self._points.keys(digits), return_index=True)
        new = first[~np.isin(keys, self._known) & ~np.isin(keys, self._keys)]
        new = new[np.argsort(-scores[new], kind="stable")]
        numbers = self._points.indices(digits[new])
        legal: list[int] = []
        for at, number in zip(new.tolist(), numbers, strict=True):
            if len(legal) == self._count:
                break
            if self._points.legal(number):
                legal.append(at)
        if not legal:
            return False
        all_scores = np.concatenate([self.scores, scores[legal]])
        order = np.argsort(-all_scores, kind="stable")[: self._count]
        self.digits = np.concatenate([self.digits, digits[legal]])[order]
        self.scores = all_scores[order]
        self._keys = self._points.keys(self.digits)
        return True


def anneal(
    points: ConfigSampler,
    score: Callable[[Digits], Scores],
    chains: Digits,
    best: Best,
    plan: Plan,
    rng: np.random.Generator,
) -> None:
    """Walks from `chains`, one row each; results are in `best`. `score`: larger is better, with a spread of about 1."""
    movable = np.flatnonzero(points.radices > 1)
    at, value = chains.copy(), score(chains)
    best.merge(at, value)
    if not len(movable):
        return
    seen: list[tuple[Digits, Scores]] = []
    stale = 0
    for iteration in range(plan.iterations):
        proposed = _moved(at, points.radices, movable, rng)
        found = score(proposed)
        seen.append((proposed, found))
        temperature = plan.temperature * (1 - iteration / plan.iterations) + 1e-5
        gain = np.minimum((found - value) / temperature, 0.0)
        taken = np.flatnonzero(rng.random(len(at)) < np.exp(gain))
        # Most of a space may be illegal, and of that the scores know nothing.
        taken = taken[[points.legal(number) for number in points.indices(proposed[taken])]]
        at[taken], value[taken] = proposed[taken], found[taken]
        if len(seen) == MERGE_EVERY or iteration == plan.iterations - 1:
            changed = best.merge(np.concatenate([d for d, _ in seen]), np.concatenate([s for _, s in seen]))
            stale = 0 if changed else stale + len(seen)
            seen.clear()
            if stale >= plan.early_stop:
                return


def _moved(at: Digits, radices: NDArray[np.int64], movable: NDArray[np.int64], rng: np.random.Generator) -> Digits:
    """Returns each row with one digit changed."""
    rows = np.arange(len(at))
    knob = rng.choice(movable, len(at))
    radix, now = radices[knob], at[rows, knob]
    anywhere = (now + rng.integers(1, radix)) % radix
    step = now + rng.choice([-1, 1], len(at))
    near = np.where((step < 0) | (step >= radix), anywhere, step)
    moved = at.copy()
    moved[rows, knob] = np.where(rng.random(len(at)) < STEP_SHARE, near, anywhere)
    return moved
