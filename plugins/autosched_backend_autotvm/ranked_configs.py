"""The configurations of a task that a ranker or a starter book expects to be the fastest, before a measurement.

Lorien (Yu et al., SoCC 2021, section 3.4) ranks a sample of the space in the same way. Does not use TVM.
"""

from collections.abc import Sequence
from random import Random

import numpy as np

from autosched_backend_autotvm import seed_configurations
from autosched_backend_autotvm.config_space import Config
from autosched_backend_autotvm.task_features import TaskFeatures
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_tvm.api import Prediction

SAMPLE = 5_000
"""Number of random configurations that are ranked."""


def of_book(points: ConfigSampler, book: Sequence[Config], count: int) -> list[int]:
    """Returns up to `count` configurations of a starter book that the space admits, adapted to it."""
    return [index for index in seed_configurations.adapted_all(book, points.space) if points.legal(index)][:count]


def best(points: ConfigSampler, shape: Sequence[int], ranker: Prediction, count: int) -> list[int]:
    """Returns up to `count` configurations, the best first. `shape`: sizes of the task's workload, in the same order
    for all tasks of the template."""
    features = TaskFeatures(points.space, shape)
    sample = points.fresh(Random(0), SAMPLE, ())
    scores = ranker(features.of(points.digits(sample)), features.names)
    return [sample[at] for at in np.argsort(-scores, kind="stable")[:count]]
