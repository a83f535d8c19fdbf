"""Properties of all tuners, and of each one."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched_backend_autotvm.config_space import ConfigSpace, Knob
from autosched_backend_autotvm.tuners import Tuner, diversity
from autosched_backend_autotvm.tuners.annealing import Plan
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler
from autosched_backend_autotvm.tuners.genetic import Breeding, GeneticTuner
from autosched_backend_autotvm.tuners.grid_and_random import GridTuner, RandomTuner
from autosched_backend_autotvm.tuners.model_based import Learning, ModelBasedTuner
from made_up_kernel import MadeUpKernel

QUICK = Learning(warm_up=8, chains=16, plan=Plan(iterations=30))
MAKERS: dict[str, Callable[[ConfigSampler, int], Tuner]] = {
    "grid": lambda points, _: GridTuner(points),
    "random": RandomTuner,
    "ga": lambda points, seed: GeneticTuner(points, seed, Breeding(population=8, elites=2)),
    "xgb": lambda points, seed: ModelBasedTuner(points, seed, QUICK),
}
every = pytest.mark.parametrize("name", list(MAKERS))


def space_of(*radices: int) -> ConfigSpace:
    return ConfigSpace("t", tuple(Knob(f"k{at}", tuple(range(radix))) for at, radix in enumerate(radices)))


HUGE = ConfigSampler(space_of(*[1000] * 5))


def score(index: int) -> float:
    """Returns a score that is smooth in the first digits; every eleventh configuration fails."""
    return 0.0 if index % 11 == 10 else 1.0 / (1.0 + abs(index % 1000 - 300) + 0.001 * (index % 7))


def run(tuner: Tuner, rounds: int, batch: int = 8) -> list[int]:
    proposed: list[int] = []
    for _ in range(rounds):
        indices = tuner.propose(batch, ())
        tuner.learn(indices, [score(index) for index in indices])
        proposed += indices
    return proposed


@every
def test_the_same_seed_and_records_give_the_same_proposals_also_when_restored_in_between(name: str) -> None:
    whole = run(MAKERS[name](HUGE, 7), 6)
    assert run(MAKERS[name](HUGE, 7), 6) == whole
    if name != "grid":
        assert run(MAKERS[name](HUGE, 8), 6) != whole
    restored = MAKERS[name](HUGE, 7)
    restored.learn(whole[:32], [score(index) for index in whole[:32]])
    assert run(restored, 2) == whole[32:]


@every
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 9), st.integers(0, 5))
@settings(max_examples=10, deadline=None)
def test_each_configuration_of_a_space_is_proposed_once(name: str, radices: list[int], batch: int, seed: int) -> None:
    points = ConfigSampler(space_of(*radices))
    tuner = MAKERS[name](points, seed)
    proposed: list[int] = []
    while indices := tuner.propose(batch, ()):
        assert len(indices) <= batch
        tuner.learn(indices, [score(index) for index in indices])
        proposed += indices
    assert sorted(proposed) == list(range(points.space.size))


@every
@pytest.mark.parametrize("radices", [(), (1,), (2,), (1, 1, 2)])
def test_a_space_of_one_or_two_configurations_ends_after_them(name: str, radices: tuple[int, ...]) -> None:
    tuner = MAKERS[name](ConfigSampler(space_of(*radices)), 1)
    size = math.prod(radices)
    assert sorted(run(tuner, 1)) == list(range(size))
    assert tuner.propose(8, ()) == []


@every
def test_a_space_with_indices_beyond_64_bits_is_searched(name: str) -> None:
    points = ConfigSampler(space_of(*[50] * 20))
    tuner = MAKERS[name](points, 1)
    proposed = run(tuner, 4)
    assert len(set(proposed)) == 32
    assert all(0 <= index < points.space.size for index in proposed)


@every
def test_measured_configurations_are_not_proposed(name: str) -> None:
    tuner = MAKERS[name](ConfigSampler(space_of(6, 5)), 1)
    first = tuner.propose(10, ())
    tuner.learn(first, [score(index) for index in first])
    second = tuner.propose(10, ())
    third = tuner.propose(30, set(second))
    assert sorted([*first, *second, *third]) == list(range(30))
    assert tuner.propose(5, {*second, *third}) == []


@every
@pytest.mark.parametrize("value", [0.0, math.nan, -1.0, math.inf])
def test_a_task_that_only_fails_is_searched_to_the_end(name: str, value: float) -> None:
    points = ConfigSampler(space_of(10, 5))
    tuner = MAKERS[name](points, 1)
    seen: set[int] = set()
    while indices := tuner.propose(8, ()):
        seen.update(indices)
        tuner.learn(indices, [value] * len(indices))
    assert len(seen) == 50


@every
def test_equal_scores_and_single_nans_are_accepted(name: str) -> None:
    tuner = MAKERS[name](HUGE, 1)
    seen: list[int] = []
    for _ in range(4):
        indices = tuner.propose(8, ())
        tuner.learn(indices, [math.nan, *[1.0] * 7])
        seen += indices
    assert len(set(seen)) == 32


@every
def test_the_unit_of_scores_does_not_matter(name: str) -> None:
    tuners = [MAKERS[name](HUGE, 3) for _ in range(2)]
    for _ in range(4):
        one, other = (tuner.propose(8, ()) for tuner in tuners)
        assert one == other
        tuners[0].learn(one, [score(index) for index in one])
        tuners[1].learn(one, [1024.0 * score(index) for index in one])


@every
def test_a_search_stays_within_a_part_of_a_space(name: str) -> None:
    tuner = MAKERS[name](ConfigSampler(space_of(10, 10, 10), first=500, end=530), 1)
    proposed = run(tuner, 6)
    assert sorted(proposed) == list(range(500, 530))


def test_grid_proceeds_in_order_and_skips_inadmissible_configurations() -> None:
    space = ConfigSpace("t", space_of(4, 3).knobs, lambda config: "no" if config["k0"] == 1 else None)
    tuner = GridTuner(ConfigSampler(space))
    assert run(tuner, 3, batch=4) == [0, 2, 3, 4, 6, 7, 8, 10, 11]


def test_the_children_of_a_genetic_search_have_their_parents_values() -> None:
    tuner = GeneticTuner(HUGE, 1, Breeding(population=8, elites=2, mutation=0.0))
    parents = run(tuner, 1)
    children = tuner.propose(8, ())
    rows, born = HUGE.digits(parents), HUGE.digits(children)
    for child in born:
        assert all(value in rows[:, knob] for knob, value in enumerate(child.tolist()))
        assert any((child == row).sum() >= 2 for row in rows)


def test_a_genetic_search_improves() -> None:
    kernel = MadeUpKernel(seed=1)
    tuner = GeneticTuner(ConfigSampler(kernel.space), 1, Breeding(population=16))
    scores: list[float] = []
    for _ in range(12):
        indices = tuner.propose(16, ())
        tuner.learn(indices, [kernel.throughput(index) for index in indices])
        scores += [kernel.throughput(index) for index in indices]
    assert np.mean(scores[-64:]) > 1.5 * np.mean(scores[:64])


def test_the_diversity_filter_prefers_unused_values() -> None:
    digits = np.array([[0, 0], [0, 0], [0, 1], [3, 3]])
    scores = np.array([1.0, 0.99, 0.98, 0.8], np.float32)
    assert diversity.pick(digits, scores, 2, weight=0.0) == [0, 1]
    assert diversity.pick(digits, scores, 2, weight=0.5) == [0, 3]
    assert sorted(diversity.pick(digits, scores, 9, weight=0.5)) == [0, 1, 2, 3]
