from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched_backend_autotvm.config_space import ConfigSpace, Knob
from autosched_backend_autotvm.tuners.config_sampler import ConfigSampler

RADICES = st.lists(st.integers(1, 40), min_size=0, max_size=20)


def space_of(radices: list[int]) -> ConfigSpace:
    return ConfigSpace("t", tuple(Knob(f"k{at}", tuple(range(radix))) for at, radix in enumerate(radices)))


@given(RADICES, st.data())
@settings(deadline=None)
def test_rows_and_numbers_agree_with_the_space_of_any_size(radices: list[int], data: st.DataObject) -> None:
    space = space_of(radices)
    points = ConfigSampler(space)
    indices = data.draw(st.lists(st.integers(0, space.size - 1), max_size=8, unique=True))
    digits = points.digits(indices)
    assert [tuple(row) for row in digits.tolist()] == [space.digits(index) for index in indices]
    assert points.indices(digits) == indices
    assert len(set(points.keys(digits).tolist())) == len(indices), "unequal rows, unequal keys"


@given(RADICES, st.integers(0, 30), st.integers(0, 2**32))
@settings(deadline=None, max_examples=50)
def test_fresh_configurations_are_new_different_and_complete(radices: list[int], count: int, seed: int) -> None:
    points = ConfigSampler(space_of(radices))
    known = set(points.fresh(Random(1), 5, ()))
    found = points.fresh(Random(seed), count, known)
    assert len(found) == len(set(found)) == min(count, points.space.size - len(known))
    assert not known & set(found)


def test_inadmissible_configurations_are_not_drawn() -> None:
    odd = ConfigSpace("t", space_of([10, 10]).knobs, lambda config: None if int(str(config["k0"])) % 2 else "even")
    points = ConfigSampler(odd)
    assert {index % 2 for index in points.fresh(Random(1), 100, ())} == {1}
    assert len(points.fresh(Random(1), 100, ())) == 50


def test_draws_from_a_part_of_a_space_stay_within_it() -> None:
    small, huge = space_of([10, 10]), space_of([40] * 20)
    assert sorted(ConfigSampler(small, 90, 95).fresh(Random(1), 9, ())) == [90, 91, 92, 93, 94]
    assert sorted(ConfigSampler(small, 98, 200).fresh(Random(1), 9, ())) == [98, 99]
    assert ConfigSampler(small, 200).fresh(Random(1), 9, ()) == []
    first = huge.size - 10**15
    assert all(index >= first for index in ConfigSampler(huge, first).fresh(Random(1), 9, ()))


def test_draws_reach_every_value() -> None:
    rows = ConfigSampler(space_of([1, 2, 5])).draw(np.random.default_rng(1), 200)
    assert [set(column.tolist()) for column in rows.T] == [{0}, {0, 1}, {0, 1, 2, 3, 4}]
