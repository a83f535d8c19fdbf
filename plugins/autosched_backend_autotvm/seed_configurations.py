"""Examples for the first round of a task: the best configurations of the most similar tasks, else the starter book.

An example is adapted to the nearest values of the task's own knobs. Does not use TVM.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from autosched_backend_autotvm.config_space import Config, ConfigSpace, Knob, Value
from autosched_backend_autotvm.knob_features import logarithm
from autosched_tvm.api import shape_distance

LIKE, OF_EACH = 2, 4
"""Number of tasks that give examples, and number of examples of each. The best one is partly luck."""


@dataclass(frozen=True)
class Examples:
    """Examples from one task."""

    shape: tuple[int, ...]
    """Sizes of the task's workload, in the same order for all tasks of a template."""
    best: tuple[Config, ...]
    """Best configurations, best first."""


def of(shape: Sequence[int], space: ConfigSpace, known: Sequence[Examples]) -> list[int]:
    """Returns configurations of a new task's space, the most promising first. The order of `known` does not matter."""
    like = sorted(known, key=lambda one: (shape_distance(shape, one.shape), one.shape, repr(one.best)))[:LIKE]
    in_turns = (config for rank in zip_longest(*(one.best for one in like)) for config in rank if config is not None)
    return adapted_all(in_turns, space)


def adapted_all(configs: Iterable[Config], space: ConfigSpace) -> list[int]:
    """Returns the nearest configuration of this space to each one, without duplicates."""
    found = (adapted(config, space) for config in configs)
    return list(dict.fromkeys(index for index in found if index is not None))


def adapted(config: Config, space: ConfigSpace) -> int | None:
    """Returns the nearest configuration of this space; None if it has other knobs or words."""
    if config.keys() != {knob.name for knob in space.knobs}:
        return None
    nearest = (_nearest(knob, config[knob.name]) for knob in space.knobs)
    digits = [digit for digit in nearest if digit is not None]
    return space.index(digits) if len(digits) == len(space.knobs) else None


def _nearest(knob: Knob, value: Value) -> int | None:
    """Returns the index of the nearest value of a knob by ratio; for a word or a tiling, that of the equal value."""
    if value in knob.values:
        return knob.values.index(value)
    numbers = [other for other in knob.values if isinstance(other, int)]
    if not isinstance(value, int) or len(numbers) < len(knob.values):
        return None
    return int(np.argmin([abs(logarithm(number) - logarithm(value)) for number in numbers]))
