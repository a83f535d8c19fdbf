"""The choice of the task for the next round (Ansor, section 6)."""

import pytest

from autosched.client.plan.allocation import STRIKES_MAX, TaskRounds, leading, light, next_share, outdone, untuned_s


def share(task: int, *best_s: float | None, weight: int = 1, flops: float = 1.0, **more: object) -> TaskRounds:
    return TaskRounds(task, weight, flops, list(best_s), **more)  # type: ignore[arg-type]


def chosen(*shares: TaskRounds) -> int | None:
    best = next_share(shares, leading(shares))
    return best.task if best is not None else None


def test_without_tasks_nothing_is_allocated() -> None:
    assert chosen() is None


def test_each_task_is_served_once_before_any_is_served_twice() -> None:
    assert chosen(share(1, 1.0), share(2)) == 2


def test_the_heaviest_new_task_goes_first() -> None:
    assert chosen(share(1, flops=5.0), share(2, flops=2.0, weight=3), share(3, flops=1.0)) == 2


def test_ties_go_to_the_lower_index() -> None:
    assert chosen(share(2), share(1)) == 1
    assert chosen(share(2, 1.0), share(1, 1.0)) == 1


def test_the_larger_share_of_the_latency_goes_first() -> None:
    assert chosen(share(1, 1.0), share(2, 3.0)) == 2
    assert chosen(share(1, 1.0, weight=9), share(2, 3.0)) == 1


def test_a_task_that_stopped_improving_yields_to_one_that_improves() -> None:
    stuck, moving = share(1, *[1.0] * 8), share(2, *[2.0 - 0.14 * i for i in range(8)])
    assert chosen(stuck, moving) == 2


def test_rounds_spent_lower_the_gain() -> None:
    assert share(1, 1.0).gain_s({}) > share(1, 1.0, 1.0).gain_s({}) > share(1, 1.0, 1.0, 1.0).gain_s({}) > 0


def test_gain_follows_the_formula() -> None:
    # alpha 0.2, window 3: 2 * (0.2 * (4 - 1) / 3 + 0.8 * 1 / 4)
    assert share(1, 4.0, 3.0, 2.0, 1.0, weight=2).gain_s({}) == pytest.approx(2 * (0.2 * 1.0 + 0.8 * 0.25))


def test_a_task_without_a_valid_measurement_is_tried_again_first() -> None:
    assert chosen(share(1, 1.0), share(2, None)) == 2


@pytest.mark.parametrize("closed", [share(1, None, strikes=STRIKES_MAX), share(1, 1.0, exhausted=True)])
def test_closed_tasks_get_nothing(closed: TaskRounds) -> None:
    assert not closed.open
    assert chosen(closed) is None
    assert chosen(closed, share(2, 1e-9)) == 2


def rival(task: int, *best_s: float | None, **more: object) -> TaskRounds:
    return share(task, *best_s, groups={"g": more.get("weight", 1)}, **more)


def test_a_contested_call_gains_as_much_as_the_best_is_undercut() -> None:
    # one round: 0.8 of 2 s may be saved, which is 0.6 s below the rival's 1 s
    assert rival(1, 2.0, weight=3).gain_s({"g": 1.0}) == pytest.approx(3 * 0.6)
    assert rival(1, 2.0).gain_s({"g": 2.0}) == rival(1, 2.0).gain_s({}) == share(1, 2.0).gain_s({})
    mixed = share(1, 2.0, weight=3, groups={"g": 1})
    assert mixed.gain_s({"g": 1.0}) == pytest.approx(2 * 1.6 + 0.6)


def test_the_fastest_of_competing_tasks_continues() -> None:
    assert chosen(rival(1, 3.0, 2.5), rival(2, 3.0, 2.0)) == 2
    assert chosen(rival(1, 2.5, 2.5, 2.5), rival(2, 3.0, 2.0, 2.0), share(3, 0.1)) == 2


def test_the_competing_task_with_the_least_arithmetic_goes_first() -> None:
    direct, other, winograd = rival(1, flops=9.0), share(2, flops=2.0), rival(3, flops=3.0)
    assert chosen(direct, other, winograd) == 3
    assert chosen(direct, other, rival(3, 1.0, flops=3.0)) == 2
    assert chosen(direct, rival(3, 1.0, flops=3.0)) == 1
    busy = next_share([direct, other, winograd], {}, {2, 3})
    assert busy is direct, "better early than nothing to do"


def test_a_task_that_would_lose_at_the_fastest_speed_seen_is_never_measured() -> None:
    # 2 operations a second are seen, so 3 a second may be possible
    winograd, fast = rival(1, 1.0, flops=1.0), share(2, 1.0, flops=2.0)
    assert [one.task for one in outdone([winograd, fast, rival(3, flops=3.1)])] == [3]
    assert outdone([winograd, fast, rival(3, flops=2.9)]) == []
    elsewhere = share(3, flops=9.0, weight=2, groups={"g": 1})
    assert outdone([winograd, fast, elsewhere]) == [], "it has a call of its own"
    both = share(3, flops=9.0, weight=2, groups={"g": 1, "h": 1})
    assert outdone([winograd, fast, both]) == [], "no task was measured for its other call"


def test_a_task_that_cannot_win_any_call_is_outdone() -> None:
    shares = [rival(1, 1.0), rival(2, 6.0, 6.0), rival(3, 4.0, 1.5), rival(4), rival(5, None), share(6, 9.0, 9.0)]
    assert [one.task for one in outdone(shares)] == [2]
    assert outdone([rival(1, 1.0), rival(2, 6.0)]) == [], "one round may have been of a single trial"
    both = [share(1, 6.0, 6.0, weight=2, groups={"g": 1, "h": 1}), rival(2, 1.0)]
    assert outdone(both) == [], "no other task was measured for its other call"
    assert outdone([rival(1, *[1.0] * 4), rival(2, *[1.1] * 4), rival(3, *[1.5] * 4)])[0].task == 3


def test_after_a_measured_build_its_seconds_order_the_new_tasks() -> None:
    assert chosen(share(1, flops=5.0, untuned_s=1.0), share(2, flops=1.0, untuned_s=2.0)) == 2
    assert chosen(share(1, flops=5.0, untuned_s=1.0), share(2, flops=1.0, untuned_s=0.4, weight=3)) == 2


def test_a_task_that_the_build_did_not_contain_is_expected_to_be_as_fast_as_the_others() -> None:
    shares = [share(1, flops=4.0, untuned_s=2.0), share(2, flops=6.0, weight=2)]
    assert untuned_s(shares) == {1: 2.0, 2: pytest.approx(6.0)}
    assert untuned_s([share(1), share(2)]) == {}


def test_light_tasks_have_a_small_share_of_the_network() -> None:
    shares = [share(1, untuned_s=1.0), share(2, untuned_s=0.004), share(3, untuned_s=0.004, weight=2)]
    assert light(shares) == {2}
    assert light([share(1), share(2, flops=1e-9)]) == set(), "no build was measured"
