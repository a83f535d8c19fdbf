"""Allowed differences of outputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from autosched_tvm.evaluation.output_comparison import Expected, Scores, Tolerances
from autosched_tvm.evaluation.verification_messages import Check

RANDOM = np.random.default_rng(0)


def compared(
    expected: Any, got: Any, others: Sequence[Any] = (), scores: Scores | None = None, share: float | None = None
) -> Check:
    found = {} if scores is None else {0: scores}
    sample = Expected((expected,), tuple((other,) for other in others), found)
    return Tolerances([sample], ["y"], share).check([[got]])


def test_equal_outputs_are_equal() -> None:
    array = np.array([1.0, np.nan, np.inf], "float32")
    check = compared(array, array.copy())
    assert (check.equal, check.max_abs_error, check.difference) == (True, 0.0, None)


@pytest.mark.parametrize(
    ("dtype", "fine", "wrong"), [("float64", 1e-12, 1e-9), ("float32", 2e-5, 2e-4), ("float16", 4e-3, 3e-2)]
)
def test_the_tolerance_follows_type_and_scale(dtype: str, fine: float, wrong: float) -> None:
    expected = np.array([4.0, -1.0], dtype)
    assert compared(expected, (expected + 4 * fine).astype(dtype)).equal
    assert not compared(expected, (expected + 4 * wrong).astype(dtype)).equal


@pytest.mark.parametrize("got", ["float64", "int64", "bool"])
def test_outputs_of_another_type_are_wrong(got: str) -> None:
    found = compared(np.ones(3, "float32"), np.ones(3, got))
    assert not found.equal
    assert found.difference is not None
    assert (found.difference.expected, found.difference.got) == ("type float32", f"type {got}")


def test_outputs_near_zero_may_differ_as_correct_builds_do() -> None:
    expected = np.full(100, 1e-6, "float32")
    moved = expected + np.float32(1.4e-7)
    assert not compared(expected, expected + np.float32(2.8e-7)).equal
    assert compared(expected, expected + np.float32(2.8e-7), [moved]).equal
    assert not compared(expected, expected + np.float32(1e-5), [moved]).equal


def test_tiny_outputs_of_another_sign_are_wrong() -> None:
    expected = RANDOM.standard_normal(50).astype("float32") * np.float32(1e-3)
    assert not compared(expected, -expected, [expected * np.float32(1 + 1e-6)]).equal


def test_nan_is_correct_only_where_the_reference_has_it() -> None:
    nan, inf = np.nan, np.inf
    expected = np.array([nan, 1.0, inf, -inf], "float32")
    assert compared(expected, expected.copy()).equal
    for got in ([1.0, 1.0, inf, -inf], [nan, nan, inf, -inf], [nan, 1.0, 1e38, -inf], [nan, 1.0, -inf, -inf]):
        assert not compared(expected, np.array(got, "float32")).equal


def rounded(got: Any, *, rounds: bool = True) -> bool:
    """Returns whether an output is accepted when other correct results have one differing element in a thousand."""
    expected = np.zeros((4, 1000), "float32")
    expected[:, 0] = 1
    others = []
    for place in (1, 2):
        other = expected.copy()
        other[place, place] = 0.5
        others.append((other,))
    sample = Expected((expected,), tuple(others), rounds=rounds)
    return Tolerances([sample], ["y"]).check([[expected + got]]).equal


def test_in_a_network_that_rounds_the_distance_of_all_elements_counts() -> None:
    elsewhere, everywhere = np.zeros((4, 1000), "float32"), np.full((4, 1000), 0.03, "float32")
    elsewhere[3, 7] = 0.9
    assert rounded(elsewhere)
    assert not rounded(elsewhere, rounds=False)
    assert not rounded(2 * elsewhere), "3.6 times as far as the others"
    assert not rounded(everywhere)
    elsewhere[0, 0] = np.nan
    assert not rounded(elsewhere)


def test_a_nan_sets_no_distance() -> None:
    expected, unknown = np.ones(100, "float32"), np.full(100, np.nan, "float32")
    sample = Expected((expected,), ((unknown,), (expected * np.float32(1.001),)), rounds=True)
    one_is_infinite = expected.copy()
    one_is_infinite[3] = np.inf
    for wrong in (expected * 2, one_is_infinite):
        assert not Tolerances([sample], ["y"]).check([[wrong]]).equal


def test_the_worst_element_is_named() -> None:
    expected = np.zeros((2, 3), "float32") + 1
    got = expected.copy()
    got[1, 2] = np.nan
    found = compared(expected, got).difference
    assert found is not None
    assert (found.output, found.sample, found.index, found.expected, found.got) == ("y", 0, (1, 2), "1", "nan")


def test_whole_numbers_must_be_the_same() -> None:
    assert not compared(np.array([1, 2]), np.array([1, 3])).equal
    assert not compared(np.array([2**62]), np.array([2**62 + 1])).equal
    assert compared(np.array([1, 2]), np.array([1, 3]), [np.array([1, 3])]).equal


def test_an_index_may_differ_only_where_the_values_tie() -> None:
    values = np.array([[1.0, 2.0, 2.000001, 0.0], [5.0, 1.0, 4.0, 0.0]], "float32")
    scores = Scores(values, (values,), 1)
    expected = np.array([2, 0])
    assert compared(expected, np.array([1, 0]), scores=scores).equal
    assert not compared(expected, np.array([2, 2]), scores=scores).equal
    assert not compared(expected, np.array([2, 9]), scores=scores).equal


def test_other_shapes_and_counts_differ() -> None:
    a = np.zeros(3, "float32")
    assert not compared(a, a.reshape(3, 1)).equal
    assert not Tolerances([Expected((a,))]).check([[a, a]]).equal


def test_a_value_beside_a_jump_may_differ_and_the_others_may_not() -> None:
    expected = RANDOM.uniform(1, 2, 1000).astype("float32")
    jumped = expected.copy()
    jumped[7] += 1
    assert compared(expected, jumped, [jumped]).equal
    elsewhere = expected.copy()
    elsewhere[8] += 1
    assert not compared(expected, elsewhere, [jumped]).equal


def test_the_few_large_values_of_a_softmax_have_a_spread_of_their_own() -> None:
    expected = np.full((2, 5000), 1e-7, "float32")
    expected[0, 3], expected[1, 9] = 0.9, 0.8
    moved = expected.copy()
    moved[0, 3] += np.float32(3e-4)
    got = expected.copy()
    got[1, 9] += np.float32(2e-4)
    assert compared(expected, got, [moved]).equal
    assert not compared(expected, got).equal


def test_the_users_tolerance_replaces_the_measured_one() -> None:
    expected = np.array([10.0, -5.0], "float32")
    assert compared(expected, expected + np.float32(0.05), share=1e-2).equal
    assert not compared(expected, expected + np.float32(0.05), [expected + np.float32(1)], share=1e-3).equal


def test_a_network_that_rounding_changes_is_noted() -> None:
    expected = RANDOM.uniform(1, 2, 100).astype("float32")
    sample = Expected((expected,), ((expected * np.float32(1.1),),))
    assert "comparison says little" in " ".join(Tolerances([sample], ["y"]).notes())
    assert not Tolerances([Expected((expected,), ((expected,),))]).notes()


def test_outputs_without_a_finite_number_are_noted() -> None:
    assert "proves little" in " ".join(Tolerances([Expected((np.full(3, np.nan, "float32"),))]).notes())


def test_an_output_that_is_mostly_not_a_number_is_noted() -> None:
    few, many = (np.where(np.arange(10) < count, np.nan, 1.0).astype("float32") for count in (3, 7))
    assert not Tolerances([Expected((few,))], ["y"]).notes()
    assert "70% of output 'y' are not finite" in " ".join(Tolerances([Expected((many,))], ["y"]).notes())
