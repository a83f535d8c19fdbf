"""Estimates of tiles by templates, and their use by the tuner `xgb`."""

from collections.abc import Mapping

import numpy as np
import pytest

from autosched_backend_autotvm.config_space import PROMISE, ConfigSpace, Knob, Numbers
from autosched_backend_autotvm.knob_features import KnobFeatures
from autosched_backend_autotvm.templates import tile_estimate
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_backend_autotvm.tuners.model_based import BLIND_SHARE, Learning, ModelBasedTuner


def share(across: float, along: float, *, steps: float = 576.0, waste: float = 1.0, registers: int = 32) -> float:
    told = tile_estimate.tile(np.array([across]), np.array([along]), steps=steps, waste=waste, registers=registers)
    return float(2.0 ** told[PROMISE][0])


def test_a_tile_that_fills_the_registers_is_as_fast_as_the_core() -> None:
    assert share(2, 14) > 0.95
    assert share(1, 28) > 0.9


def test_a_tile_of_few_sums_waits_for_latencies() -> None:
    assert share(1, 4) == pytest.approx(0.5, rel=0.05)
    assert share(1, 2) < share(1, 4) < share(2, 4)


def test_a_tile_beyond_the_registers_is_slow() -> None:
    assert share(4, 12) < 0.5 * share(4, 6)
    assert share(2, 14, registers=16) < 0.7 * share(2, 6, registers=16)


def test_a_short_sum_is_mostly_overhead() -> None:
    assert share(2, 14, steps=9) < 0.75 * share(2, 14)


def test_waste_lowers_the_estimate_in_proportion() -> None:
    assert share(2, 14, waste=1.25) == pytest.approx(share(2, 14) / 1.25)
    assert tile_estimate.wasted(37, np.array([10.0]))[0] == pytest.approx(40 / 37)
    assert tile_estimate.wasted(56, np.array([14.0]))[0] == 1.0


def test_imbalance_is_the_excess_work_of_the_busiest_thread() -> None:
    found = tile_estimate.imbalance(np.array([1.0, 2.0, 3.0, 4.0, 101.0]), 2)
    assert found == pytest.approx([2.0, 1.0, 4 / 3, 1.0, 102 / 101])
    assert tile_estimate.imbalance(np.array([1.0, 7.0]), 1) == pytest.approx([1.0, 1.0])


def space(insight: bool = True) -> ConfigSpace:
    """Returns a hundred tiles; the template expects more of larger ones."""

    def told(values: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
        return {"area": values["a"] * values["b"], PROMISE: np.log2(values["a"] * values["b"] / 100)}

    sides = tuple(range(1, 11))
    knobs = (Knob("a", sides), Knob("word", ("x", "y")), Knob("b", sides))
    return ConfigSpace("t", knobs, insight=told if insight else None)


def test_estimates_of_a_template_are_features_of_the_cost_model() -> None:
    features = KnobFeatures(space())
    assert features.names == ("a", "word=x", "word=y", "b", "area", PROMISE)
    digits = np.array([[2, 1, 3]])
    assert features.of(digits)[0, -2:].tolist() == pytest.approx([12.0, np.log2(0.12)])
    assert len(features.largest) == 4
    assert KnobFeatures(space(insight=False)).promise(digits) is None


def area(points: ConfigSampler, indices: list[int]) -> float:
    return float(np.mean([(a + 1) * (b + 1) for a, _, b in points.digits(indices).tolist()]))


def test_the_first_rounds_favour_configurations_with_good_estimates() -> None:
    points = ConfigSampler(space())
    tuner = ModelBasedTuner(points, 1, Learning())
    first = tuner.propose(16, ())
    assert tuner.propose(16, ()) == first
    assert len(set(first)) == 16
    blind = ModelBasedTuner(ConfigSampler(space(insight=False)), 1, Learning()).propose(16, ())
    assert area(points, first) > 1.5 * area(points, blind)
    many = [index for seed in range(20) for index in ModelBasedTuner(points, seed, Learning()).propose(16, ())]
    poor = [index for index in many if area(points, [index]) < 20]
    assert 0 < len(poor) < 2 * BLIND_SHARE * len(many)


@pytest.mark.parametrize("loss", ["rank", "reg"])
def test_measurements_outweigh_wrong_estimates(loss: str) -> None:
    points = ConfigSampler(space())
    tuner = ModelBasedTuner(points, 1, Learning(loss=loss, epsilon=0.0))  # type: ignore[arg-type]
    tried: list[int] = []
    for _ in range(8):
        indices = tuner.propose(8, ())
        tuner.learn(indices, [1.0 / area(points, [index]) for index in indices])
        tried += indices
    assert area(points, tried[-24:]) < 0.6 * area(points, tried[:16])
