"""The comparison with other engines: which outputs count as different."""

import math

import numpy as np
import pytest
import trained_networks


def test_difference_is_in_parts_of_an_outputs_largest_value() -> None:
    expected = [np.array([[100.0, 0.0]], "float32"), np.array([1.0], "float32")]
    assert trained_networks.difference(expected, [np.array([99.0, 0.0]), np.array([1.0])]) == pytest.approx(0.01)


def test_outputs_of_another_shape_or_number_differ_without_bound() -> None:
    expected = [np.zeros((1, 2, 3))]
    assert trained_networks.difference(expected, [np.zeros((3, 2))]) == math.inf
    assert trained_networks.difference(expected, []) == math.inf
