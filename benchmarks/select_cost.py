"""What a proposal of the backend `autotvm` costs: selecting 64 candidates, and refitting its cost model.

``python benchmarks/select_cost.py`` prints one JSON object, in seconds of processor time on one thread: by records of
the task, to fit the model (for both losses), and to fit and propose 64 configurations of a space of some 10^13; once
more with what 2,000 records of other tasks taught.
What TVM adds is about 7 ms for each candidate, to apply the template, and 12 more for its features of stores.
"""

import json
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from autosched_backend_autotvm.config_space import ConfigSpace, Knob
from autosched_backend_autotvm.cost_model import CostModel, Loss, Vector
from autosched_backend_autotvm.knob_features import KnobFeatures, Matrix
from autosched_backend_autotvm.template_transfer import Knowledge, Prior
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler, Digits
from autosched_backend_autotvm.tuners.model_based import Learning, ModelBasedTuner

RECORDS = (16, 64, 256, 1_000)
REPEATS = 5
LOSSES: tuple[Loss, ...] = ("reg", "rank")


def main() -> None:
    """Measure and tell."""
    space = large_space()
    told = {str(records): costs_s(space, records) for records in RECORDS}
    print(json.dumps({"configurations": float(space.size), "by_records": told}, indent=1))


def large_space() -> ConfigSpace:
    """Twelve knobs, of numbers, tilings and words."""
    sizes = tuple(2**k for k in range(10))
    tilings = tuple((a, b) for a in sizes for b in sizes)
    numbers = tuple(Knob(f"number{k}", sizes) for k in range(5))
    tiles = tuple(Knob(f"tiles{k}", tilings) for k in range(3))
    words = tuple(Knob(f"word{k}", ("a", "b", "c")) for k in range(4))
    return ConfigSpace("large", (*numbers, *tiles, *words))


def costs_s(space: ConfigSpace, records: int) -> dict[str, float]:
    """Medians."""
    points, rng = ConfigSampler(space), np.random.default_rng(records)
    digits = points.draw(rng, records)
    near = np.abs(digits / points.radices - 0.5).sum(axis=1)
    scores = np.exp(-near + 0.05 * rng.normal(size=records)).astype(np.float32)
    features = KnobFeatures(space).of(digits)
    found = {f"fit_{loss}_s": took_s(partial(fitted, loss, features, scores)) for loss in LOSSES}
    indices = points.indices(digits)
    for loss in LOSSES:
        tuner = ModelBasedTuner(points, 1, Learning(loss=loss))
        tuner.learn(indices, scores.tolist())
        found[f"propose_64_{loss}_s"] = took_s(partial(tuner.propose, 64, ()))
    found["propose_64_taught_s"] = took_s(lambda: taught(space, digits, scores).propose(64, ()))
    return found


def taught(space: ConfigSpace, digits: Digits, scores: Vector) -> ModelBasedTuner:
    """A tuner that learns for the first time what two other tasks know, whose records are 1,000 each."""
    knowledge, points = Knowledge(), ConfigSampler(space)
    rng = np.random.default_rng(1)
    for other in ("one", "two"):
        rows = points.draw(rng, 1_000)
        Prior(knowledge, other, space, (56, 64), "rank").tell(rows, rng.random(1_000, np.float32))
    tuner = ModelBasedTuner(points, 1, Learning(), Prior(knowledge, "own", space, (28, 64), "rank"))
    tuner.learn(points.indices(digits), scores.tolist())
    return tuner


def fitted(loss: Loss, features: Matrix, scores: Vector) -> None:
    """One fit from scratch."""
    CostModel(loss, 1, 1).fit(features, scores / scores.max())


def took_s(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    found = []
    for _ in range(REPEATS):
        started_at = time.thread_time()
        work()
        found.append(time.thread_time() - started_at)
    return round(statistics.median(found), 3)


if __name__ == "__main__":
    main()
