"""Forecasts of jobs at their submission."""

import pytest

from autosched.daemon.operations.forecast import ALIKE, LOOKED_AT, Past, forecast, latest_alike
from autosched.model import JobSpec
from autosched.protocol import Chance, Forecast

ONE = Past(3, 10e-3, 200, 20, 120.0, first_s=20e-3, last_s=10e-3, baseline_s=12e-3)
"""Ten times the trials of a first round have halved its latency."""
AGAIN = Past(4, 10.1e-3, 0, 20, 15.0)


def spec(**words: object) -> JobSpec:
    return JobSpec(name="net", model="0" * 64, **words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "chance", "ready_s"),
    [
        ({}, Chance.KNOWN, 120.0),
        ({"latency_goal_s": 11e-3}, Chance.KNOWN, 15.0),
        ({"latency_goal_s": 10.05e-3}, Chance.LIKELY, 120.0),  # within the difference of two measurements
        ({"latency_goal_s": 8.2e-3}, Chance.LIKELY, 120.0),  # 2 ** -0.301 of 10 ms are 8.1 ms
        ({"latency_goal_s": 8e-3}, Chance.UNLIKELY, 120.0),
        ({"improve_by": 0.1}, Chance.LIKELY, 120.0),
        ({"improve_by": 0.3}, Chance.UNLIKELY, 120.0),
        ({"until_faster": True}, Chance.KNOWN, 15.0),
    ],
)
def test_earlier_jobs_give_a_forecast(words: dict[str, object], chance: Chance, ready_s: float) -> None:
    assert forecast(spec(**words), [AGAIN, ONE]) == Forecast(chance, 10e-3, 3, ready_s)


@pytest.mark.parametrize("words", [{}, {"latency_goal_s": 1.0}, {"improve_by": 0.1}, {"until_faster": True}])
def test_without_earlier_jobs_there_is_no_forecast(words: dict[str, object]) -> None:
    assert forecast(spec(**words), []) == Forecast(Chance.UNKNOWN)
    assert forecast(spec(fresh=True, **words), [ONE]).chance is Chance.UNKNOWN


def test_a_job_that_searched_nothing_promises_no_gain() -> None:
    assert forecast(spec(latency_goal_s=10e-3), [AGAIN]) == Forecast(Chance.UNLIKELY, 10.1e-3, 4, 15.0)


def test_only_jobs_of_the_same_network_count_the_latest_first() -> None:
    others = [
        spec(target="other"), spec(device="gpu"), spec(backend="mock"), spec(shapes={"x": (1,)}),
        spec(options={"a": 1}), JobSpec(name="net", model="1" * 64),
    ]  # fmt: skip
    jobs = [(99 - number, one) for number, one in enumerate([spec(trials=3), *others, spec(priority=7)])]
    assert latest_alike(spec(), jobs) == [99, 92]
    assert len(latest_alike(spec(), ((number, spec()) for number in range(100)))) == ALIKE
    assert latest_alike(spec(), [*((number, others[0]) for number in range(LOOKED_AT)), (7, spec())]) == []
