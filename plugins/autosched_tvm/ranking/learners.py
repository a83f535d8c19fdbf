"""Learners of a ranking, and the baselines that they must beat.

Each is fitted to tasks of one operator family and scores the schedules of another task of it; larger is better.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import xgboost
from msgspec import Struct

from autosched_tvm.ranking.measured_task import (
    MeasuredTask,
    Vector,
    aligned_features,
    column_names,
    shape_distance,
    stacked,
)
from autosched_tvm.tensors import Array

Scorer: TypeAlias = Callable[[MeasuredTask], Vector]
"""Scores the schedules of a task."""
Learner: TypeAlias = Literal["xgboost", "lightgbm"]
GAIN_LEVELS = 31
"""Number of levels of relevance: the maximum of the learners."""
RIDGE = 1.0
"""Weight of the penalty of the linear model, as a share of the number of rows."""


class Settings(Struct, frozen=True):
    """Settings of boosted trees."""

    learner: Learner = "xgboost"
    depth: int = 6
    eta: float = 0.1
    """Learning rate."""
    rounds: int = 200
    """Number of trees."""
    subsample: float = 0.8
    columns: float = 0.8
    """Share of the columns that a tree sees."""
    weight_min: float = 0.05
    """Minimum sum of weights of a leaf. A schedule's weight is below 1: it is that of its pairs' gains."""
    pairs: int = 8
    """Number of schedules at the beginning of an order, each of which is compared with all others of its task."""


def boosted(tasks: Sequence[MeasuredTask], settings: Settings, seed: int = 0) -> tuple[bytes, tuple[str, ...]]:
    """Fits trees with LambdaMART (Burges, MSR-TR-2010-82, section 7); returns them as bytes, and their columns."""
    names = column_names(tasks)
    features, speeds, groups = stacked(tasks, names)
    relevance = np.round(GAIN_LEVELS * speeds)
    if settings.learner == "lightgbm":
        return _lightgbm(features, relevance, groups, settings, seed), names
    parameters = {
        "objective": "rank:ndcg", "ndcg_exp_gain": False, "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": settings.pairs, "max_depth": settings.depth, "eta": settings.eta,
        "subsample": settings.subsample, "colsample_bytree": settings.columns, "nthread": 1, "verbosity": 0,
        "min_child_weight": settings.weight_min, "seed": seed,
    }  # fmt: skip
    trees = xgboost.train(parameters, xgboost.DMatrix(features, relevance, qid=groups), settings.rounds)
    return bytes(trees.save_raw("ubj")), names


def _lightgbm(features: Any, relevance: Any, groups: Any, settings: Settings, seed: int) -> bytes:
    import lightgbm  # an extra

    parameters = {
        "objective": "lambdarank", "label_gain": list(range(GAIN_LEVELS + 1)), "max_depth": settings.depth,
        "num_leaves": min(255, 2**settings.depth - 1), "learning_rate": settings.eta, "bagging_freq": 1,
        "bagging_fraction": settings.subsample, "feature_fraction": settings.columns,
        "min_sum_hessian_in_leaf": settings.weight_min, "lambdarank_truncation_level": settings.pairs,
        "num_threads": 1, "seed": seed, "verbosity": -1, "deterministic": True,
    }  # fmt: skip
    data = lightgbm.Dataset(features, relevance.astype("int32"), group=np.bincount(groups))
    return str(lightgbm.train(parameters, data, settings.rounds).model_to_string()).encode()


def prediction(trees: bytes, learner: Learner) -> Callable[[Any], Vector]:
    """Returns the function that scores rows of features."""
    if learner == "lightgbm":
        import lightgbm  # an extra

        read = lightgbm.Booster(model_str=trees.decode())
        return lambda rows: np.asarray(read.predict(rows, num_threads=1), np.float32)
    booster = loaded(trees)
    return lambda rows: np.asarray(booster.inplace_predict(rows, predict_type="margin"), np.float32)


def loaded(trees: bytes) -> xgboost.Booster:
    """Returns trees of XGBoost that were stored as bytes."""
    booster = xgboost.Booster({"nthread": 1})
    booster.load_model(bytearray(trees))
    return booster


def random_order(seed: int) -> Scorer:
    """Returns a baseline without knowledge."""
    return lambda task: np.random.default_rng([seed, len(task)]).random(len(task), np.float32)


def linear(tasks: Sequence[MeasuredTask]) -> Scorer:
    """Fits a ridge regression of the speeds on normalised features. An unknown feature counts as average."""
    names = column_names(tasks)
    features, speeds, _ = stacked(tasks, names)
    mean = np.nan_to_num(np.nanmean(features, axis=0))
    spread = np.nan_to_num(np.nanstd(features, axis=0))
    spread[spread < 1e-6] = 1.0

    def normalised(rows: Array) -> Array:
        return np.nan_to_num((rows - mean) / spread)

    rows = normalised(features).astype("float64")
    penalty = RIDGE * len(rows) * np.eye(rows.shape[1])
    weights = np.linalg.solve(rows.T @ rows + penalty, rows.T @ (speeds - speeds.mean()))
    return lambda task: np.asarray(normalised(aligned_features(task.features, task.names, names)) @ weights, np.float32)


def nearest_shape(tasks: Sequence[MeasuredTask]) -> Scorer:
    """Returns a baseline that prefers what resembles the best schedule of the task with the nearest shape."""

    def score(task: MeasuredTask) -> Vector:
        near = min(tasks, key=lambda other: shape_distance(task.shape, other.shape))
        best = aligned_features(near.features, near.names, task.names)[int(np.argmax(near.speeds))]
        distance = np.nansum(np.abs(task.features - best), axis=1)
        return np.asarray(-distance, np.float32)

    return score
