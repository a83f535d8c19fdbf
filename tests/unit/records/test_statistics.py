import random
from statistics import NormalDist

import pytest

from autosched.backend import Timing
from autosched.records.statistics import clearly_faster, interval, p99, summarize


def test_few_samples_give_all_of_them() -> None:
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert interval([1.0]) == (1.0, 1.0)


@pytest.mark.parametrize(("count", "dropped"), [(5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (20, 5), (60, 21)])
def test_known_order_statistics(count: int, dropped: int) -> None:
    """The table of the sign test."""
    samples = [float(i) for i in range(count)]
    assert interval(samples) == (float(dropped), float(count - 1 - dropped))


def test_it_covers_the_median_as_often_as_it_says() -> None:
    generator = random.Random(1)
    inside = 0
    for _ in range(2_000):
        low, high = interval([generator.lognormvariate(0, 1) for _ in range(15)])
        inside += low <= 1.0 <= high
    spread = NormalDist().inv_cdf(0.9999) * (0.95 * 0.05 / 2_000) ** 0.5
    assert inside / 2_000 >= 0.95 - spread


def test_summary() -> None:
    timing = summarize("tuned", [2.0, 1.0, 3.0])
    assert timing == Timing("tuned", (2.0, 1.0, 3.0), 2.0, 1.0, 3.0)
    assert clearly_faster(timing, summarize("default", [4.0, 5.0, 6.0]))
    assert not clearly_faster(timing, summarize("default", [2.5, 5.0, 6.0]))


def test_one_in_a_hundred_may_exceed_p99() -> None:
    assert p99([]) == 0.0
    assert p99([7.0]) == 7.0
    assert p99(range(1000, 0, -1)) == 990
