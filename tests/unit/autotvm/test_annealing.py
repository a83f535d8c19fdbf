import numpy as np
import pytest

from autosched_backend_autotvm.config_space import ConfigSpace, Knob
from autosched_backend_autotvm.tuners.annealing import Best, Plan, Scores, anneal
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler, Digits

NONE = np.empty(0, np.uint64)


def points_of(*radices: int, space: ConfigSpace | None = None) -> ConfigSampler:
    knobs = tuple(Knob(f"k{at}", tuple(range(radix))) for at, radix in enumerate(radices))
    return ConfigSampler(space or ConfigSpace("t", knobs))


def bumpy(points: ConfigSampler, seed: int) -> np.ndarray:
    """Returns a score for each configuration: smooth, with a little noise."""
    rng = np.random.default_rng(seed)
    digits = points.digits(range(points.space.size))
    peak = rng.integers(0, points.radices)
    return (-np.abs((digits - peak) / points.radices).sum(axis=1) + 0.1 * rng.random(len(digits))).astype(np.float32)


def found(points: ConfigSampler, table: np.ndarray, best: Best, plan: Plan, seed: int, chains: int = 32) -> None:
    rng = np.random.default_rng(seed)

    def score(digits: Digits) -> Scores:
        return np.asarray(table[points.indices(digits)], np.float32)

    anneal(points, score, points.draw(rng, chains), best, plan, rng)


@pytest.mark.parametrize("seed", range(5))
def test_the_optimum_of_a_small_space_is_found(seed: int) -> None:
    points = points_of(7, 5, 1, 9, 6)
    table = bumpy(points, seed)
    best = Best(points, 8, NONE)
    found(points, table, best, Plan(), seed)
    assert points.indices(best.digits)[0] == int(np.argmax(table))
    assert best.scores.tolist() == sorted(table.tolist(), reverse=True)[:8] or best.scores[7] > np.quantile(table, 0.98)


def test_proposals_are_new_legal_different_and_ordered() -> None:
    knobs = points_of(8, 8).space.knobs
    points = points_of(space=ConfigSpace("t", knobs, lambda config: "odd" if int(str(config["k0"])) % 2 else None))
    table = bumpy(points, 3)
    known = points.keys(points.digits([index for index in range(64) if index >= 32]))
    best = Best(points, 10, known)
    found(points, table, best, Plan(), 1)
    indices = points.indices(best.digits)
    legal = sorted((index for index in range(32) if index % 2 == 0), key=lambda index: -float(table[index]))
    assert indices == legal[:10]


def test_annealing_ends_early_without_improvement() -> None:
    points = points_of(4, 4)
    asked = 0

    def score(digits: Digits) -> Scores:
        nonlocal asked
        asked += 1
        return np.zeros(len(digits), np.float32)

    rng = np.random.default_rng(1)
    best = Best(points, 64, NONE)
    anneal(points, score, points.draw(rng, 32), best, Plan(iterations=10_000, early_stop=50), rng)
    assert asked <= 200
    assert len(best.scores) == 16, "all there is"


def test_a_space_of_one_configuration_does_not_move() -> None:
    points = points_of(1, 1)
    best = Best(points, 4, NONE)
    found(points, np.ones(1, np.float32), best, Plan(), 1)
    assert points.indices(best.digits) == [0]


def test_a_space_beyond_64_bits_is_searched() -> None:
    points = points_of(*[50] * 16)
    rng = np.random.default_rng(1)
    best = Best(points, 4, NONE)
    anneal(points, lambda d: d.sum(axis=1).astype(np.float32), points.draw(rng, 64), best, Plan(temperature=10), rng)
    assert best.scores[0] > 16 * 49 * 0.8
    assert points.space.digits(points.indices(best.digits)[0]) == tuple(best.digits[0])
