"""Rankers learn an order from other networks, and are refused where there is nothing to learn."""

import numpy as np
import pytest

pytest.importorskip("xgboost")

from autosched_tvm.ranking import learners, ranker, ranker_choice
from autosched_tvm.ranking.measured_task import Family, MeasuredTask, aligned_features, stacked
from autosched_tvm.ranking.ndcg import mean_ndcg, ndcg

FAMILY = Family("conv2d", "a1")
SCHEDULES = 40


def task(number: int, *, fails_above: float = 100.0) -> MeasuredTask:
    """Returns a task whose fastest schedules have tiles of a quarter or three quarters of its size; tiles above
    `fails_above` fail."""
    drawn = np.random.default_rng(number)
    size = float(drawn.integers(4, 10))
    tile = drawn.uniform(0, size, SCHEDULES)
    other = drawn.uniform(0, 1, SCHEDULES)
    speeds = np.exp(-np.minimum(np.abs(tile - size / 4), np.abs(tile - 3 * size / 4)))
    speeds = np.where(tile > fails_above, 0.0, speeds / speeds.max())
    features = np.stack([tile, tile - size, other, np.full(SCHEDULES, size)], axis=1)
    names = ("tile", "tile/max", "other", "0")
    return MeasuredTask(
        f"{number:x}", frozenset({f"net{number // 3}"}), (round(2**size),), names, features.astype("float32"),
        speeds.astype("float32"),
    )  # fmt: skip


TASKS = [task(number) for number in range(18)]


def test_the_best_order_has_quality_one_and_the_worst_has_less() -> None:
    speeds = np.array([0.1, 1.0, 0.5, 0.0], np.float32)
    assert ndcg(speeds, speeds) == pytest.approx(1.0)
    assert ndcg(-speeds, speeds) < 0.7
    gains = np.array([1.0, 0.5, 0.1, 0.0])
    discounts = 1 / np.log2([2, 3, 4, 5])
    assert ndcg(-speeds, speeds) == pytest.approx(float(gains[::-1] @ discounts) / float(gains @ discounts))


def test_schedules_with_equal_scores_count_alike_in_any_order() -> None:
    speeds = np.linspace(0, 1, 30, dtype="float32")
    scores = np.zeros(30, np.float32)
    assert ndcg(scores, speeds) == pytest.approx(ndcg(scores, speeds[::-1].copy()))


def test_tasks_with_few_or_equal_schedules_do_not_count() -> None:
    few = MeasuredTask("few", frozenset(), (), ("a",), np.zeros((3, 1), np.float32), np.ones(3, np.float32))
    equal = MeasuredTask("same", frozenset(), (), ("a",), np.zeros((40, 1), np.float32), np.ones(40, np.float32))
    assert np.isnan(mean_ndcg([few, equal], learners.random_order(0)))


def test_a_missing_word_is_not_chosen_and_a_missing_number_is_unknown() -> None:
    found = aligned_features(np.array([[1.0, 2.0]], np.float32), ("a", "order=x"), ("order=y", "b", "a"))
    assert found[0, 0] == 0.0
    assert np.isnan(found[0, 1])
    assert found[0, 2] == 1.0


def test_rows_keep_the_number_of_their_task() -> None:
    features, speeds, groups = stacked(TASKS[:2], TASKS[0].names)
    assert len(features) == len(speeds) == 2 * SCHEDULES
    assert groups.tolist() == [0] * SCHEDULES + [1] * SCHEDULES


@pytest.mark.parametrize("baseline", [learners.linear, learners.nearest_shape], ids=["linear", "nearest shape"])
def test_a_ranker_orders_tasks_that_it_has_not_seen_better_than_a_baseline(baseline) -> None:
    ours = ranker.fitted(FAMILY, TASKS[:12], learners.Settings(rounds=60)).scorer()
    left = TASKS[12:]
    assert mean_ndcg(left, ours) > mean_ndcg(left, baseline(TASKS[:12]))
    assert mean_ndcg(left, ours) > mean_ndcg(left, learners.random_order(0)) + 0.1


def test_a_stored_ranker_gives_the_same_scores() -> None:
    one = ranker.fitted(FAMILY, TASKS, learners.Settings(rounds=20))
    again = ranker.decode_ranker(ranker.encode_ranker(one), FAMILY)
    assert again is not None
    assert np.array_equal(one.scorer()(TASKS[0]), again.scorer()(TASKS[0]))


def test_a_ranker_of_another_template_version_is_not_used() -> None:
    one = ranker.fitted(FAMILY, TASKS, learners.Settings(rounds=5))
    assert ranker.decode_ranker(ranker.encode_ranker(one), Family("conv2d", "a2")) is None
    assert ranker.decode_ranker(b"torn", FAMILY) is None


def test_schedules_that_fail_come_last() -> None:
    tasks = [task(number, fails_above=3.0) for number in range(12)]
    scores = ranker.fitted(FAMILY, tasks[:10], learners.Settings(rounds=40)).scorer()(tasks[11])
    failed = tasks[11].speeds == 0
    assert failed.any()
    last = np.argsort(-scores)[-failed.sum() :]
    assert np.mean(failed[last]) > 0.9


def test_a_family_with_few_networks_is_refused() -> None:
    choice = ranker_choice.choose(FAMILY, TASKS[:9])
    assert choice.ranker is None
    assert choice.refused == "tasks of 4 networks are required; the store has 3"


def test_speeds_that_follow_from_nothing_known_are_refused() -> None:
    drawn = np.random.default_rng(1)
    chance = [
        MeasuredTask(one.workload, one.networks, one.shape, one.names, one.features,
                     drawn.uniform(0.01, 1, SCHEDULES).astype("float32"))
        for one in TASKS
    ]  # fmt: skip
    choice = ranker_choice.choose(FAMILY, chance, drawn=1)
    assert choice.ranker is None
    assert "not clearly better than" in choice.refused
    assert choice.quality is not None
    assert choice.quality.networks == 6


def test_a_ranker_is_chosen_by_networks_that_are_left_out() -> None:
    choice = ranker_choice.choose(FAMILY, TASKS, drawn=2)
    assert choice.refused == ""
    assert choice.ranker is not None
    assert choice.quality is not None
    assert choice.quality.ranker > max(choice.quality.random, choice.quality.nearest, choice.quality.linear)
