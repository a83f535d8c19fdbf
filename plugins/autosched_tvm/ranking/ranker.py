"""A fitted ranker of one operator family: an order of schedules, and which of them fail."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import xgboost
from msgspec import Struct

from autosched_tvm.ranking.learners import Scorer, Settings, boosted, loaded, prediction
from autosched_tvm.ranking.measured_task import MeasuredTask, Vector, aligned_features, column_names, stacked

FEATURES_VERSION = 1
"""Version of the features. A ranker of another version is not used."""
FAILED_MIN = 20
"""Minimum number of failed schedules from which failures are learned."""
FAILS_AT = 0.5
"""Probability of a failure from which a schedule comes after all others."""
CLASSIFIER = {"objective": "binary:logistic", "max_depth": 6, "eta": 0.2, "nthread": 1, "verbosity": 0, "seed": 0}
CLASSIFIER_ROUNDS = 100


class Ranker(Struct, frozen=True):
    """A fitted ranker in its stored form."""

    family: str
    """Operator family: the name of a schedule template."""
    settings: Settings
    names: tuple[str, ...]
    """Names of the features, in the order of the columns."""
    trees: bytes
    failures: bytes = b""
    """Trees that predict failures; empty where there were too few."""
    features_version: int = FEATURES_VERSION

    def scorer(self) -> Scorer:
        """Returns the function that scores the schedules of a task."""
        order = prediction(self.trees, self.settings.learner)
        fails = _failure_probability(self.failures)

        def score(task: MeasuredTask) -> Vector:
            rows = aligned_features(task.features, task.names, self.names)
            scores = order(rows)
            if fails is not None and len(scores):
                scores = np.where(fails(rows) > FAILS_AT, scores - np.float32(np.ptp(scores) + 1.0), scores)
            return scores

        return score


def fitted(
    family: str, tasks: Sequence[MeasuredTask], settings: Settings, seed: int = 0, failures: bytes | None = None
) -> Ranker:
    """Fits a ranker to tasks of one family. `failures`: what `failure_trees` returned for them; None: fit these too."""
    trees, names = boosted(_valid(tasks), settings, seed)
    return Ranker(family, settings, names, trees, failure_trees(tasks) if failures is None else failures)


def encode(ranker: Ranker) -> bytes:
    """Returns the stored form."""
    return msgspec.msgpack.encode(ranker)


def decode(stored: bytes) -> Ranker | None:
    """Returns a stored ranker; None for one of other features. Raises msgspec.DecodeError."""
    found = msgspec.msgpack.decode(stored, type=Ranker)
    return found if found.features_version == FEATURES_VERSION else None


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
