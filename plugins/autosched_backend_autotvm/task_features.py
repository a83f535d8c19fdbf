"""Features of a configuration with those of its task, which mean the same in all tasks of a template. Does not use TVM.

They are the values of the knobs and the template's insights (`knob_features`), the values relative to the largest that
the task has, and the sizes of the task's workload.
"""

from collections.abc import Sequence

import numpy as np

from autosched_backend_autotvm.config_space import ConfigSpace
from autosched_backend_autotvm.knob_features import KnobFeatures, Matrix, logarithm
from autosched_backend_autotvm.tuners.config_sampler import Digits


class TaskFeatures:
    """Features of one task's configurations."""

    def __init__(self, space: ConfigSpace, shape: Sequence[int]) -> None:
        """`shape`: sizes of the task's workload, in the same order for all tasks of the template."""
        self._features = KnobFeatures(space)
        self._shape = np.array([logarithm(number) for number in shape], np.float32)
        self.names = (
            *self._features.names,
            *(f"{name}/max" for name in self._features.names[: len(self._features.largest)]),
            *map(str, range(len(shape))),
        )

    def of(self, digits: Digits) -> Matrix:
        """Returns one row for each configuration."""
        own, largest = self._features.of(digits), self._features.largest
        shape = np.broadcast_to(self._shape, (len(digits), len(self._shape)))
        return np.concatenate([own, own[:, : len(largest)] - largest, shape], axis=1)
