"""The cost model, on invented programs."""

from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("xgboost")

from autosched_backend_ansor.cost_model import EAGER, Rows, SharedModel, trained_size


def programs(count: int, seed: int) -> tuple[list[Rows], list[float]]:
    """Returns programs of one to three rows of eight features; two features add to the speed."""
    random = np.random.default_rng(seed)
    rows = [random.uniform(size=(random.integers(1, 4), 8)).astype("float32") for _ in range(count)]
    return rows, [float(1 / np.exp(3 * program[:, 0] - program[:, 3]).sum()) for program in rows]


def taught(count: int = 60, *, task: str = "a", scale: float = 1.0, into: SharedModel | None = None) -> SharedModel:
    model = into or SharedModel(16, 1)
    rows, latency_s = programs(count, 1)
    model.learn(task, rows, [scale * s for s in latency_s])
    return model


def ranks(values: Sequence[float]) -> np.ndarray:
    return np.argsort(np.argsort(values))


def correlation(model: SharedModel) -> float:
    rows, latency_s = programs(200, 2)
    return float(np.corrcoef(ranks(list(model.scores(rows))), ranks([-s for s in latency_s]))[0, 1])


def test_the_model_ranks_unseen_programs() -> None:
    assert correlation(taught()) > 0.7


def test_the_model_predicts_nothing_before_it_has_enough_records() -> None:
    assert not taught(15).warm
    assert taught(16).warm


def test_tasks_of_any_scale_share_the_model() -> None:
    """A latency that is a thousand times larger is another task's scale, not a worse score."""
    model = taught(8)
    assert not model.warm
    taught(40, task="b", scale=1000.0, into=model)
    assert correlation(model) > 0.6


def test_the_model_depends_only_on_the_measurements() -> None:
    rows, latency_s = programs(100, 1)
    at_once, by_rounds = SharedModel(16, 1), SharedModel(16, 1)
    at_once.learn("a", rows, latency_s)
    for start in range(0, 100, 8):
        by_rounds.learn("a", rows[start : start + 8], latency_s[start : start + 8])
    fresh, _ = programs(50, 3)
    assert np.array_equal(at_once.scores(fresh), by_rounds.scores(fresh))


def test_the_model_learns_from_failures() -> None:
    """Programs with a large feature 5 fail; among the others it has no effect."""
    rows, latency_s = programs(120, 1)
    failing = [bool(program[0, 5] > 0.5) for program in rows]
    model = SharedModel(16, 1)
    model.learn("a", rows, [None if fails else s for s, fails in zip(latency_s, failing, strict=True)])
    fresh, _ = programs(200, 2)
    scores = model.scores(fresh)
    fails = np.array([bool(program[0, 5] > 0.5) for program in fresh])
    assert scores[fails].mean() < 0.7 * scores[~fails].mean()


def test_a_model_of_failures_alone_works() -> None:
    rows, _ = programs(20, 1)
    model = SharedModel(16, 1)
    model.learn("a", rows, [None] * 20)
    assert np.isfinite(model.scores(rows)).all()


def test_a_program_without_stores_is_left_out() -> None:
    rows, latency_s = programs(20, 1)
    empty = np.zeros((0, 8), "float32")
    model = SharedModel(16, 1)
    model.learn("a", [empty, *rows], [1.0, *latency_s])
    assert model.scores([empty, rows[0]])[0] == 0.0
    assert model.scores([empty]).tolist() == [0.0]


@pytest.mark.parametrize("count", [0, 1, EAGER - 1, EAGER, 100, 1000, 12_345])
def test_the_model_is_trained_on_nearly_all_records(count: int) -> None:
    size = trained_size(count)
    assert size <= count
    assert count - size <= max(0, count // 10)
    assert trained_size(size) == size, "what was known at the time of the training"


def test_the_order_of_the_tasks_measurements_does_not_matter() -> None:
    """The task that was restored first is served first."""
    a, b = programs(24, 1), programs(24, 2)
    first, second = SharedModel(16, 1), SharedModel(16, 1)
    for model, order in ((first, "ab"), (second, "ba")):
        for task in order:
            model.learn(task, *(a if task == "a" else b))
    fresh, _ = programs(50, 3)
    assert np.array_equal(first.scores(fresh), second.scores(fresh))
