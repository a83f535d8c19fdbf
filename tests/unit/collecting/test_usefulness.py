"""Collected tasks that are worth trials."""

import pytest

from autosched.collecting.usefulness import FLOPS_GUESS, GAIN_GUESS, TRIALS_OF_HALF, rate
from autosched.recordstore.collected import Knowledge, Use
from autosched.recordstore.rows import Workload

CONV = Workload("a", "conv2d", "conv2d 64x56x56 -> 64x56x56, 3x3", 4e8)
SMALL = Workload("b", "conv2d", "conv2d 64x28x28 -> 64x28x28, 3x3", 1e8)
DENSE = Workload("c", "matmul", "matmul 1x512 by 512x1000", 1e6)


def test_no_tasks_have_no_usefulness() -> None:
    assert rate([], {}) == []


def test_the_heaviest_task_comes_first_while_nothing_was_measured() -> None:
    found = rate([Use(1, "net", DENSE, 1), Use(1, "net", CONV, 2), Use(1, "net", SMALL, 1)], {})
    assert [one.workload for one in found] == [CONV, SMALL, DENSE]
    assert found[0].latency_s == CONV.flops / FLOPS_GUESS
    assert found[0].gain == GAIN_GUESS
    assert found[0].share == pytest.approx(8e8 / 9.01e8)
    assert sum(one.share for one in found) == pytest.approx(1)


def test_each_model_counts_once_for_all_its_sizes() -> None:
    """One network of a single task, and another in three sizes of another task each."""
    others = [Workload(f"x{n}", "conv2d", f"conv2d {n}x56x56 -> 64x56x56, 3x3", 1e9) for n in range(3)]
    found = rate([Use(1, "one", CONV, 1), *(Use(2 + n, "other", one, 5) for n, one in enumerate(others))], {})
    shares = {one.workload.hash: one.share for one in found}
    assert shares == pytest.approx({"a": 1 / 2, "x0": 1 / 6, "x1": 1 / 6, "x2": 1 / 6})


def test_a_task_of_many_models_counts_in_each() -> None:
    (first, *_) = rate([Use(1, "one", DENSE, 3), Use(2, "two", DENSE, 4), Use(2, "two", CONV, 1)], {})
    assert first.workload == DENSE
    assert (first.models, first.networks, first.calls) == (2, 2, 7)
    assert 0.5 < first.share < 0.51


def test_tasks_with_slow_trials_come_later() -> None:
    """A kernel of 4 s is half of the time of one model, and one of 4 ms of the other."""
    slow, quick = Workload("s", "conv2d", "conv2d 1", 4e10), Workload("q", "conv2d", "conv2d 2", 4e7)
    other = Workload("o", "conv2d", "conv2d 3", 4e10)
    uses = [Use(1, "slow", slow, 1), Use(1, "slow", other, 1), Use(2, "quick", quick, 1)]
    found = rate(uses, {})
    assert found[0].workload.hash == "q"
    assert found[0].trial_s < 0.2 < 4 < found[1].trial_s


def test_trials_make_a_task_less_useful() -> None:
    uses = [Use(1, "net", CONV, 1), Use(1, "net", SMALL, 3)]
    known = {"a": Knowledge(1e-3, None, TRIALS_OF_HALF)}
    found = {one.workload.hash: one for one in rate(uses, known)}
    assert found["a"].gain == pytest.approx(GAIN_GUESS / 2)
    assert found["b"].gain == GAIN_GUESS
    assert found["a"].latency_s == 1e-3
    assert [one.workload for one in rate(uses, known)] == [SMALL, CONV]


def test_measurements_estimate_the_speed_of_the_same_operator_first() -> None:
    known = {"a": Knowledge(4e8 / 2e10, None, 5), "c": Knowledge(1e6 / 1e9, None, 5)}
    other = Workload("d", "softmax", "softmax 1x1000", 1e4)
    found = {
        one.workload.hash: one for one in rate([Use(1, "n", one, 1) for one in (CONV, SMALL, DENSE, other)], known)
    }
    assert found["b"].latency_s == pytest.approx(1e8 / 2e10)
    assert found["d"].latency_s == pytest.approx(1e4 / 1.05e10), "the median of all"


def test_savings_so_far_predict_those_to_come() -> None:
    uses = [Use(1, "net", CONV, 1), Use(1, "net", SMALL, 1), Use(1, "net", DENSE, 1)]
    known = {"a": Knowledge(1e-3, 4e-3, 8), "b": Knowledge(1e-3, 2e-3, 8)}
    found = {one.workload.hash: one for one in rate(uses, known)}
    assert found["c"].gain == pytest.approx((0.75 + 0.5) / 2)
    worse = {"a": Knowledge(4e-3, 1e-3, 8)}
    assert rate([Use(1, "net", DENSE, 1)], worse)[0].gain == GAIN_GUESS


def test_a_task_that_only_fails_is_given_up() -> None:
    failing = {"a": Knowledge(None, None, 1_000)}
    assert rate([Use(1, "net", CONV, 1)], failing)[0].useful < 0.01
