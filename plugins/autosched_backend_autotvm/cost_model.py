"""Cost model: boosted trees that predict the score of a configuration."""

from typing import Any, Literal, TypeAlias

import numpy as np
import xgboost
from numpy.typing import NDArray

from autosched_backend_autotvm.knob_features import Matrix

Loss: TypeAlias = Literal["reg", "rank"]
Vector: TypeAlias = NDArray[np.float32]

TREES = {"max_depth": 3, "gamma": 1e-4, "min_child_weight": 1, "subsample": 1.0, "eta": 0.3, "lambda": 1.0, "alpha": 0}
"""Parameters of AutoTVM (xgboost_cost_model.py of TVM 0.18)."""
ROUNDS = 60
PAIRS_MAX = 100_000
"""Maximum number of pairs of records that the loss `rank` compares, which takes 0.2 s."""


class CostModel:
    """Model that is refitted from scratch to all records, which costs less than incremental updates."""

    def __init__(self, loss: Loss, seed: int, threads: int) -> None:
        self._loss = loss
        self._fixed = {**TREES, "nthread": threads, "seed": seed % (1 << 31), "verbosity": 0}
        self._booster: Any = None

    def fit(
        self, features: Matrix, scores: Vector, *, margin: Vector | None = None, groups: NDArray[np.int64] | None = None
    ) -> None:
        """Fits the model. `scores`: larger is better, the best of a task 1, failures 0.

        `margin`: prediction of another model, added to each. `groups`: the task of each record, ascending; without: one
        task.
        """
        wanted: dict[str, Any] = {"objective": "reg:squarederror", "base_score": float(scores.mean())}
        tasks: dict[str, Any] = {}
        if self._loss == "rank":
            # XGBoost 2 and later compare only the best 32 of a group with the others unless told to, which leaves most
            # of the order to chance; and they take the groups from `qid`.
            tasks["qid"] = np.zeros(len(scores), np.int64) if groups is None else groups
            pairs = max(1, PAIRS_MAX // len(scores))
            wanted = {"objective": "rank:pairwise", "lambdarank_pair_method": "topk"}
            wanted["lambdarank_num_pair_per_sample"] = pairs
        if margin is not None:
            wanted["base_score"] = 0.0
        data = xgboost.DMatrix(features, scores, base_margin=margin, **tasks)
        self._booster = xgboost.train({**self._fixed, **wanted}, data, ROUNDS)

    def predict(self, features: Matrix, margin: Vector | None = None) -> Vector:
        """Returns predictions; larger is better. They are near the scores with the loss `reg`, and of any size with
        `rank`."""
        found: Vector = self._booster.inplace_predict(features, predict_type="margin", base_margin=margin)
        return found
