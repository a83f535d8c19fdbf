"""Small changes of decisions, on instructions as TVM writes them."""

from math import prod
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched_backend_tc.decision_mutation import beside

TILE = ["SamplePerfectTile", ["l0"], [4, 16], ["v1", "v2", "v3", "v4"]]
CATEGORY = ["SampleCategorical", [], [[0, 16, 64, 512], [0.25] * 4], ["v5"]]


@given(st.lists(st.integers(1, 48), min_size=3, max_size=3), st.integers(1, 16), st.integers(0, 99))
def test_one_prime_moves_from_one_factor_to_another(outer: list[int], innermost: int, seed: int) -> None:
    factors = (*outer, innermost)
    found = beside(TILE, factors, Random(seed))
    assert isinstance(found, tuple)
    assert prod(found) == prod(factors)
    assert found[-1] <= 16
    changed = [(old, new) for old, new in zip(factors, found, strict=True) if old != new]
    if prod(factors) == 1:
        assert found == factors
    else:
        (a, b), (c, d) = changed
        ratio = max(a, b) // min(a, b)
        assert max(c, d) == ratio * min(c, d)
        assert all(ratio % divisor for divisor in range(2, ratio)), "a prime"


def test_what_leads_to_a_too_large_innermost_factor_is_left_out() -> None:
    found = {beside(TILE, (1, 1, 2, 16), Random(seed)) for seed in range(60)}
    assert found == {(2, 1, 1, 16), (1, 2, 1, 16), (2, 1, 2, 8), (1, 2, 2, 8), (1, 1, 4, 8)}


@pytest.mark.parametrize(("now", "expected"), [(0, {1}), (2, {1, 3}), (3, {2})])
def test_a_category_goes_one_up_or_down(now: int, expected: set[int]) -> None:
    assert {beside(CATEGORY, now, Random(seed)) for seed in range(30)} == expected


def test_what_has_no_neighbour_stays() -> None:
    assert beside(TILE, (1, 1, 1, 1), Random(1)) == (1, 1, 1, 1)
    assert beside(["SampleCategorical", [], [[7], [1.0]], ["v5"]], 0, Random(1)) == 0


def test_numbers_of_loops_have_no_neighbours() -> None:
    assert beside(["SampleComputeLocation", ["b0"], [], ["l9"]], 3, Random(1)) is None
    assert beside(["SamplePartitionedTile", ["l0"], [3, 1, 1], ["v1", "v2", "v3"]], (1, 2, 4), Random(1)) is None
