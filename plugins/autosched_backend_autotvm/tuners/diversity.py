"""Diversity filter: selects different configurations out of many good ones."""

import numpy as np
from numpy.typing import NDArray

from autosched_backend_autotvm.tuners.config_sampler import Digits


def pick(digits: Digits, scores: NDArray[np.float32], count: int, weight: float) -> list[int]:
    """Returns the rows to take: greedily, the one with the largest score plus `weight` times the share of knobs with a
    value that no selected row has.

    AutoTVM's submodular pick (model_based_tuner.py of TVM 0.18) has an infinite `weight`: it multiplies scores by 0.
    """
    rows, knobs = digits.shape
    shown = [np.zeros(int(digits[:, knob].max(initial=0)) + 1, bool) for knob in range(knobs)]
    left = np.ones(rows, bool)
    taken: list[int] = []
    for _ in range(min(count, rows)):
        news = sum((~shown[knob][digits[:, knob]] for knob in range(knobs)), np.zeros(rows))
        gain = np.where(left, scores + weight * news / max(1, knobs), -np.inf)
        at = int(np.argmax(gain))
        taken.append(at)
        left[at] = False
        for knob in range(knobs):
            shown[knob][digits[at, knob]] = True
    return taken
