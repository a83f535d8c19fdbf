"""The scheduler against theory: the thesis' stage times, and the speed-ups that follow from them."""

import pytest

from autosched.core.policies.policy import INTERLEAVED, PREDICTIVE
from autosched.sim import thesis_workload
from autosched.sim.scenario import lower_bound_s

ITERATION_S = 8.3 + 39.5 + 44.0
CLIENT_S = 8.3 + 44.0


@pytest.mark.parametrize(
    ("jobs", "iterations", "speedups"),
    [
        (2, 50, {"sequential": 1.000, "synchronous": 1.000, "interleaved": 1.352, "predictive": 1.745}),
        (3, 50, {"sequential": 1.000, "synchronous": 1.000, "interleaved": 1.750, "predictive": 1.750}),
        (8, 20, {"sequential": 1.000, "synchronous": 1.000, "interleaved": 1.755, "predictive": 1.755}),
    ],
)
def test_one_lane_and_one_device(jobs: int, iterations: int, speedups: dict[str, float]) -> None:
    table = thesis_workload.table(jobs, iterations)
    assert {row.policy: row.speedup for row in table.rows} == pytest.approx(speedups, abs=0.0006)
    assert table.bound == pytest.approx(ITERATION_S / CLIENT_S, abs=0.0006)
    assert all(row.speedup <= table.bound + 1e-9 for row in table.rows)


@pytest.mark.parametrize(
    ("lanes", "devices", "jobs", "iterations", "bound", "interleaved", "predictive"),
    [
        (2, 1, 3, 50, ITERATION_S / 39.5, 2.304, 2.304),  # the device is the bottleneck, and nearly always busy
        (2, 2, 4, 50, 2 * ITERATION_S / CLIENT_S, 2.704, 3.490),
        (4, 3, 8, 20, 3 * ITERATION_S / 39.5, 6.271, 6.721),
    ],
)
def test_several_lanes_and_devices(
    lanes: int, devices: int, jobs: int, iterations: int, bound: float, interleaved: float, predictive: float
) -> None:
    table = thesis_workload.table(jobs, iterations, lanes, devices)
    rows = {row.policy: row for row in table.rows}
    assert table.bound == pytest.approx(bound, abs=0.001)
    assert rows["interleaved"].speedup == pytest.approx(interleaved, abs=0.001)
    assert rows["predictive"].speedup >= predictive - 0.001
    assert rows["interleaved"].speedup <= rows["predictive"].speedup + 1e-9 <= table.bound + 2e-9


@pytest.fixture(scope="module")
def four_jobs() -> dict[str, thesis_workload.Row]:
    return {row.policy: row for row in thesis_workload.table(4).rows}


def test_utilisation_of_the_thesis(four_jobs: dict[str, thesis_workload.Row]) -> None:
    """Thesis, section 2: without interleaving the client is busy 57 % of the time and the device 43 %."""
    rows = four_jobs
    assert (rows["sequential"].host_busy, rows["sequential"].device_busy) == pytest.approx((0.570, 0.430), abs=0.001)
    assert (rows["interleaved"].host_busy, rows["interleaved"].device_busy) == pytest.approx((1.0, 0.755), abs=0.005)


def test_interference_makes_nothing_faster(four_jobs: dict[str, thesis_workload.Row]) -> None:
    rows = four_jobs
    assert rows["synchronous"].makespan_s == pytest.approx(rows["sequential"].makespan_s)
    assert rows["synchronous"].mean_completion_s > rows["sequential"].mean_completion_s


def test_predictive_also_ends_jobs_earlier() -> None:
    load = thesis_workload.scenario(2)
    assert (
        thesis_workload.run(PREDICTIVE, load).mean_completion_s
        < thesis_workload.run(INTERLEAVED, load).mean_completion_s
    )


def test_nothing_beats_the_lower_bound() -> None:
    load = thesis_workload.scenario(5, iterations=7, lanes=2, devices=1)
    assert lower_bound_s(load) == pytest.approx(5 * 7 * 39.5)
    assert thesis_workload.run(INTERLEAVED, load).makespan_s >= lower_bound_s(load)


def test_the_chart_shows_the_first_minutes() -> None:
    table = thesis_workload.table(2, iterations=3)
    lines = thesis_workload.chart(table, "interleaved", width=70)
    assert [line.split()[0] for line in lines[:2]] == ["host/0", "cpu0"]
    assert max(map(len, lines)) <= 70
