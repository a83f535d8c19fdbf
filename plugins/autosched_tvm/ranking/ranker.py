"""A fitted ranker of one operator family: an order of schedules, and which of them fail."""

import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import xgboost
from msgspec import Struct

from autosched_tvm.ranking.learners import Scorer, Settings, boosted, loaded, prediction
from autosched_tvm.ranking.measured_task import (
    Family,
    Matrix,
    MeasuredTask,
    Vector,
    aligned_features,
    column_names,
    stacked,
)

FEATURES_VERSION = 1
"""Version of the features that are made of a schedule."""
FAILED_MIN = 20
"""Minimum number of failed schedules from which failures are learned."""
FAILURE_PENALTY = 4.0
"""Number of standard deviations of the scores by which a schedule that fails for certain is worse."""
SPREAD_MIN = 1e-3
"""Least standard deviation of scores that counts as one."""
CLASSIFIER = {"objective": "binary:logistic", "max_depth": 6, "eta": 0.2, "nthread": 1, "verbosity": 0, "seed": 0}
CLASSIFIER_ROUNDS = 100


class Prediction(Protocol):
    """Scores schedules, larger is better."""

    def __call__(self, features: Matrix, names: Sequence[str]) -> Vector:
        """Returns a score for each row of features. The scores of one task have a standard deviation of about 1."""


class Ranker(Struct, frozen=True):
    """A fitted ranker in its stored form."""

    family: Family
    version: str
    """See `version_of`."""
    settings: Settings
    names: tuple[str, ...]
    """Names of the features, in the order of the columns."""
    trees: bytes
    failures: bytes = b""
    """Trees that predict failures; empty where there were too few."""
    spread: float = 1.0
    """Standard deviation of the trees' scores within a task."""

    def prediction(self) -> Prediction:
        """Returns the function that scores rows of features."""
        order = prediction(self.trees, self.settings.learner)
        fails = _failure_probability(self.failures)

        def score(features: Matrix, names: Sequence[str]) -> Vector:
            rows = aligned_features(features, names, self.names)
            scores = order(rows) / np.float32(self.spread)
            return scores if fails is None else scores - np.float32(FAILURE_PENALTY) * fails(rows)

        return score

    def scorer(self) -> Scorer:
        """Returns the function that scores the schedules of a task."""
        score = self.prediction()
        return lambda task: score(task.features, task.names)


def fitted(
    family: Family, tasks: Sequence[MeasuredTask], settings: Settings, seed: int = 0, failures: bytes | None = None
) -> Ranker:
    """Fits a ranker to tasks of one family. `failures`: what `failure_trees` returned for them; None: fit these too."""
    valid = _valid(tasks)
    trees, names = boosted(valid, settings, seed)
    score = prediction(trees, settings.learner)
    spreads = [float(np.std(score(aligned_features(task.features, task.names, names)))) for task in valid]
    failing = failure_trees(tasks) if failures is None else failures
    return Ranker(family, version_of(family), settings, names, trees, failing, max(float(np.mean(spreads)), SPREAD_MIN))


def encode_ranker(ranker: Ranker) -> bytes:
    """Returns the stored form: msgpack, compressed with zlib."""
    return zlib.compress(msgspec.msgpack.encode(ranker))


def version_of(family: Family) -> str:
    """Returns the version of a ranker of this family."""
    return f"{FEATURES_VERSION} {family.version}"


def decode_ranker(stored: bytes, family: Family) -> Ranker | None:
    """Returns a stored ranker; None if it is not readable, or learned from other schedules or features."""
    try:
        found = msgspec.msgpack.decode(zlib.decompress(stored), type=Ranker)
    except (zlib.error, msgspec.DecodeError):
        return None
    return found if found.version == version_of(family) else None


def _valid(tasks: Sequence[MeasuredTask]) -> list[MeasuredTask]:
    return [task for task in tasks if task.speeds.any()]


def failure_trees(tasks: Sequence[MeasuredTask]) -> bytes:
    """Fits trees that predict failures, which no settings change; empty where there were too few."""
    features, speeds, _ = stacked(tasks, column_names(_valid(tasks)))
    failed = speeds <= 0
    if failed.sum() < FAILED_MIN or (~failed).sum() < FAILED_MIN:
        return b""
    trees = xgboost.train(CLASSIFIER, xgboost.DMatrix(features, failed.astype("float32")), CLASSIFIER_ROUNDS)
    return bytes(trees.save_raw("ubj"))


def _failure_probability(trees: bytes) -> Any | None:
    return loaded(trees).inplace_predict if trees else None
