"""Chooses the settings of a ranker by networks that it has not seen, and refuses one that is no better than baselines.

Schedules of one task, and tasks of one network, resemble each other. A ranker is therefore judged on networks that were
left out, never on single schedules.

The settings are found by successive halving (Jamieson and Talwalkar, AISTATS 2016): many are fitted with few trees, the
better half with twice as many, and so on.
"""

import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from statistics import fmean, stdev

import numpy as np
from msgspec import Struct, structs

from autosched_tvm.ranking import learners
from autosched_tvm.ranking.learners import Learner, Scorer, Settings
from autosched_tvm.ranking.measured_task import Family, MeasuredTask
from autosched_tvm.ranking.ndcg import mean_ndcg
from autosched_tvm.ranking.ranker import Ranker, failure_trees, fitted

DRAWN = 16
"""Number of settings with which the search begins."""
ROUNDS_FIRST, ROUNDS_LAST = 40, 320
"""Number of trees at the beginning and at the end of the search."""
FOLDS_MAX = 5
"""Maximum number of groups of networks, each of which is left out once during the search."""
NETWORKS_MIN = 4
"""Minimum number of networks with tasks of the family."""
ERRORS = 2.0
"""Number of standard errors by which a ranker must be better than a baseline."""


class Quality(Struct, frozen=True):
    """Mean NDCG@8 over networks, each left out once."""

    ranker: float
    random: float
    nearest: float
    """NDCG of the order by resemblance to the best schedule of the nearest shape."""
    linear: float
    networks: int
    tasks: int
    schedules: int


class Choice(Struct, frozen=True):
    """Result of training one family."""

    family: Family
    quality: Quality | None = None
    ranker: Ranker | None = None
    refused: str = ""
    """Why there is no ranker; empty if there is one."""
    left_out: dict[str, tuple[float, float, float, float]] = {}
    """NDCG@8 of each network that was left out: of ranker, chance, nearest shape and linear model."""


def choose(family: Family, tasks: Sequence[MeasuredTask], *, drawn: int = DRAWN, seed: int = 0) -> Choice:
    """Trains a ranker of one operator family, and measures its quality. `drawn`: number of settings to begin with."""
    names = sorted({name for task in tasks for name in task.networks})
    if len(names) < NETWORKS_MIN:
        return Choice(family, refused=f"tasks of {NETWORKS_MIN} networks are required; the store has {len(names)}")
    settings = _settings(family, tasks, _folds(names), drawn, seed)
    per_network = [
        (_quality(left_out, lambda kept: fitted(family, kept, settings, seed).scorer()),
         _quality(left_out, lambda _: learners.random_order(seed)),
         _quality(left_out, learners.nearest_shape), _quality(left_out, learners.linear))
        for left_out in (_left_out(tasks, {name}) for name in names)
    ]  # fmt: skip
    left_out = {name: row for name, row in zip(names, per_network, strict=True) if not any(map(math.isnan, row))}
    known = list(left_out.values())
    if len(known) < NETWORKS_MIN:
        wanted = f"tasks of {NETWORKS_MIN} networks, with enough schedules, are required"
        return Choice(family, refused=f"{wanted}; the store has {len(known)}")
    ours, chance, nearest, linear = zip(*known, strict=True)
    quality = Quality(
        fmean(ours), fmean(chance), fmean(nearest), fmean(linear), len(known), len(tasks), sum(map(len, tasks))
    )
    for name, other in (("chance", chance), ("the nearest shape", nearest)):
        gain = [one - two for one, two in zip(ours, other, strict=True)]
        if fmean(gain) <= ERRORS * stdev(gain) / math.sqrt(len(gain)):
            return Choice(family, quality, None, f"it is not clearly better than {name}", left_out)
    return Choice(family, quality, fitted(family, tasks, settings, seed), "", left_out)


class _Split(Struct, frozen=True):
    kept: list[MeasuredTask]
    left: list[MeasuredTask]


def _left_out(tasks: Sequence[MeasuredTask], networks: set[str]) -> _Split:
    """Divides tasks into those of other networks only, and the rest."""
    kept = [task for task in tasks if not task.networks & networks]
    return _Split(kept, [task for task in tasks if task.networks & networks])


def _quality(split: _Split, fit: Callable[[Sequence[MeasuredTask]], Scorer]) -> float:
    if not any(task.speeds.any() for task in split.kept):
        return math.nan
    return mean_ndcg(split.left, fit(split.kept))


def _folds(names: Sequence[str]) -> list[set[str]]:
    count = min(FOLDS_MAX, len(names))
    return [set(names[number::count]) for number in range(count)]


def _settings(
    family: Family, tasks: Sequence[MeasuredTask], folds: Sequence[set[str]], drawn: int, seed: int
) -> Settings:
    splits = [_left_out(tasks, fold) for fold in folds]
    failures = [failure_trees(split.kept) if split.kept else b"" for split in splits]
    left, rounds = list(_drawn(drawn, Random(seed))), ROUNDS_FIRST

    def quality_of(settings: Settings) -> float:
        def fit(own: bytes, kept: Sequence[MeasuredTask]) -> Scorer:
            return fitted(family, kept, settings, seed, own).scorer()

        pairs = zip(splits, failures, strict=True)
        return float(np.nanmean([_quality(split, partial(fit, own)) for split, own in pairs]))

    while True:
        left = [structs.replace(one, rounds=rounds) for one in left]
        quality = [quality_of(one) for one in left]
        order = sorted(range(len(left)), key=lambda number: -quality[number])
        left = [left[number] for number in order[: max(1, len(left) // 2)]]
        if rounds >= ROUNDS_LAST or len(left) == 1:
            return left[0]
        rounds *= 2


def _drawn(count: int, random: Random) -> Iterator[Settings]:
    """Yields the default settings and random ones; half of them of LightGBM where it is installed."""
    trees: tuple[Learner, ...] = ("xgboost", "lightgbm") if importlib.util.find_spec("lightgbm") else ("xgboost",)
    yield Settings()
    for number in range(1, count):
        yield Settings(
            learner=trees[number % len(trees)], depth=random.randint(3, 9), eta=0.3 * 10 ** random.uniform(-1.0, 0.0),
            subsample=random.uniform(0.5, 1.0), columns=random.uniform(0.3, 1.0),
            weight_min=10 ** random.uniform(-3.0, 0.0), pairs=random.choice((4, 8, 16, 32)),
        )  # fmt: skip
