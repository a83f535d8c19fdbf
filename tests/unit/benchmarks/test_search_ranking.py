"""How a model's order is judged."""

import numpy as np
import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from search_ranking import score  # noqa: E402

ACTUAL = np.arange(1.0, 41.0)


def test_a_perfect_order() -> None:
    assert score(10 * ACTUAL, ACTUAL) == pytest.approx((1.0, 1.0, 1.0))


def test_the_wrong_way_round() -> None:
    """The first eight are the eight slowest."""
    assert score(-ACTUAL, ACTUAL) == pytest.approx((-1.0, 0.0, 40.0 / 8.0))


def test_the_best_tenth_is_found_in_part() -> None:
    predicted = ACTUAL.copy()
    predicted[[38, 39]] = 0.0
    order, recall, slower = score(predicted, ACTUAL)
    assert 0.5 < order < 1.0
    assert (recall, slower) == (0.5, pytest.approx(40.0 / 38.0))
