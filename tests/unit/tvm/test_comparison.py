import numpy as np
import pytest

from autosched.tvm.comparison import compare


def test_equal_outputs_are_equal() -> None:
    array = np.array([1.0, np.nan, np.inf], "float32")
    check = compare([array], [array.copy()])
    assert (check.equal, check.max_abs_error) == (True, 0.0)


@pytest.mark.parametrize(("error", "equal"), [(1e-3, True), (3e-2, False), (np.nan, False)])
def test_the_tolerance_follows_the_scale(error: float, equal: bool) -> None:
    expected = np.array([10.0, -5.0], "float32")
    assert compare([expected], [expected + np.float32(error)]).equal is equal


def test_whole_numbers_must_be_the_same() -> None:
    assert not compare([np.array([1, 2])], [np.array([1, 3])]).equal


def test_other_shapes_and_counts_differ() -> None:
    a = np.zeros(3, "float32")
    assert not compare([a], [a.reshape(3, 1)]).equal
    assert not compare([a], [a, a]).equal


def test_large_whole_numbers_are_told_apart() -> None:
    assert not compare([np.array([2**62])], [np.array([2**62 + 1])]).equal
