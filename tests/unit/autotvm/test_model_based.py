"""The tuner `xgb`, on kernels whose speed is a formula."""

import math
from dataclasses import replace

import numpy as np
import pytest

from autosched_backend_autotvm.knob_features import Matrix
from autosched_backend_autotvm.tuners import Tuner
from autosched_backend_autotvm.tuners.annealing import Plan
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_backend_autotvm.tuners.grid_and_random import RandomTuner
from autosched_backend_autotvm.tuners.model_based import Learning, ModelBasedTuner
from made_up_kernel import SHAPES, MadeUpKernel

SHORT = Learning(chains=32, plan=Plan(iterations=60))


def best_of(tuner: Tuner, kernel: MadeUpKernel, trials: int, batch: int = 8) -> float:
    best = 0.0
    for _ in range(trials // batch):
        indices = tuner.propose(batch, ())
        scores = [kernel.throughput(index) for index in indices]
        tuner.learn(indices, scores)
        best = max(best, *scores)
    return best


@pytest.mark.parametrize("loss", ["reg", "rank"])
def test_it_beats_chance_by_15_percent_in_64_trials(loss: str) -> None:
    logs: list[float] = []
    learning = replace(SHORT, loss=loss)  # type: ignore[arg-type]
    for seed, shape in enumerate(SHAPES[:4]):
        kernel = MadeUpKernel(seed, *shape)
        points = ConfigSampler(kernel.space)
        learned = best_of(ModelBasedTuner(points, seed, learning), kernel, 64)
        logs.append(math.log(learned / best_of(RandomTuner(points, seed), kernel, 64)))
    assert np.mean(logs) > 0.15


def test_random_proposals_have_their_share() -> None:
    kernel = MadeUpKernel(1)
    points = ConfigSampler(kernel.space)
    start = RandomTuner(points, 5).propose(32, ())
    proposed = []
    for epsilon in (0.0, 1.0):
        tuner = ModelBasedTuner(points, 1, replace(SHORT, epsilon=epsilon))
        tuner.learn(start, [kernel.throughput(index) for index in start])
        proposed.append(np.mean([kernel.throughput(index) for index in tuner.propose(32, ())]))
    assert proposed[0] > 1.5 * proposed[1]


def test_the_diversity_filter_spreads_a_round() -> None:
    kernel = MadeUpKernel(1)
    points = ConfigSampler(kernel.space)
    start = RandomTuner(points, 5).propose(32, ())
    values = []
    for ratio in (0.0, 4.0):
        tuner = ModelBasedTuner(points, 1, replace(SHORT, epsilon=0.0, diversity_filter_ratio=ratio))
        tuner.learn(start, [kernel.throughput(index) for index in start])
        rows = points.digits(tuner.propose(8, ()))
        values.append(sum(len(set(column.tolist())) for column in rows.T))
    assert values[1] > values[0]


class Truth:
    """A reranker with the true scores."""

    def __init__(self, kernel: MadeUpKernel) -> None:
        self.kernel = kernel
        self.asked = 0

    def rows(self, indices: list[int]) -> Matrix:
        self.asked += len(indices)
        return np.array([[self.kernel.throughput(index)] for index in indices], np.float32)


def test_a_second_prediction_reorders_the_plan() -> None:
    kernel = MadeUpKernel(2)
    points = ConfigSampler(kernel.space)
    start = RandomTuner(points, 5).propose(64, ())
    means = []
    for truth in (None, Truth(kernel)):
        tuner = ModelBasedTuner(points, 1, replace(SHORT, epsilon=0.0), reranker=truth)  # type: ignore[arg-type]
        tuner.learn(start, [kernel.throughput(index) for index in start])
        means.append(np.mean([kernel.throughput(index) for index in tuner.propose(8, ())]))
    assert means[1] > 1.05 * means[0]
