"""Forecast of an experiment's duration."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from autosched.experiments.definition import parse
from autosched.experiments.forecast import TRIALS, Expected, expected, makespan_s, outlook, row_of_store
from autosched.experiments.plan import AT_ONCE, Plan, plan
from autosched.experiments.rows import Row
from autosched.recordstore.catalogue import MeasuredJob


def row(model: str = "a", *, trials: int = 100, host_s: float = 60.0, device_s: float = 30.0, **more: object) -> Row:
    values = {"model": model, "trials": trials, **{key: str(one) for key, one in more.items() if key == "backend"}}
    took_s = 70.0 * host_s / 60.0
    return Row(
        combination=f"{model}{trials}", values=values, job=1, state=str(more.get("state", "done")), trials=trials,
        host_s=host_s, device_s=device_s, took_s=took_s,
    )  # fmt: skip


def test_the_same_job_takes_what_it_took() -> None:
    found = expected({"model": "a", "trials": 100}, [row(), row("b", host_s=600.0)])
    assert (found.host_s, found.device_s, found.alone_s, found.trials, found.jobs) == (60.0, 30.0, 70.0, 100, 1)


def test_rounds_alone_grow_with_the_trials() -> None:
    """30 s of lane and 10 s of device belong to the network, and 4 tasks cost as much as 8 more trials."""
    stages = {"import": 20.0, "compile": 10.0, "baseline": 4.0, "evaluate": 6.0, "build": 28.0, "profile": 14.0}
    earlier = replace(row(trials=20, host_s=58.0, device_s=24.0), stages_s=stages, tasks=4)
    found = expected({"model": "a", "trials": 48}, [earlier])
    assert (found.host_s, found.device_s) == (30.0 + 28.0 * 56 / 28, 10.0 + 14.0 * 56 / 28)


def test_more_trials_take_longer_but_for_what_every_job_takes() -> None:
    found = expected({"model": "a", "trials": 200}, [row()])
    assert 60.0 * 1.4 < found.host_s < 60.0 * 2.0


def test_another_network_counts_where_nothing_better_is_known() -> None:
    assert expected({"model": "x", "trials": 100}, [row(), row("b", host_s=120.0)]).jobs == 2
    guess = expected({"model": "x"}, [row(state="failed")])
    assert (guess.jobs, guess.trials) == (0, TRIALS)


ONE = Expected(60.0, 30.0, 80.0, 100)


@pytest.mark.parametrize(
    ("policy", "jobs", "lanes", "at_once", "least_s", "most_s"),
    [
        ("predictive", 1, 1, None, 80.0, 80.0),
        ("predictive", 4, 1, None, 240.0, 280.0),
        ("predictive", 4, 2, None, 120.0, 140.0),
        ("sequential", 4, 1, None, 320.0, 320.0),
        ("stagewise", 4, 1, None, 360.0, 360.0),
        ("", 4, 1, 1, 320.0, 320.0),
        ("", 4, 8, 2, 160.0, 160.0),
        ("", 0, 1, None, 0.0, 0.0),
    ],
)
def test_jobs_that_share_units(
    policy: str, jobs: int, lanes: int, at_once: int | None, least_s: float, most_s: float
) -> None:
    assert least_s <= makespan_s([ONE] * jobs, policy, lanes, 1, at_once) <= most_s


def planned(folder: Path, text: str) -> Plan:
    for name in "ab":
        (folder / name).write_bytes(b"model " + name.encode())
    return plan(parse(f'[parameters]\nmodel = ["a", "b"]\ntrials = 100\n{text}', folder / "x.toml"))


def test_what_is_left_of_an_experiment(tmp_path: Path) -> None:
    whole = planned(tmp_path, "seed = [0, 1]")
    rows = [row(), row("b", host_s=120.0, device_s=60.0)]
    found = outlook(whole, (), rows, lambda _: (1, 1))
    assert (found.jobs, found.trials, found.known) == (4, 400, 4)
    assert found.seconds == makespan_s([expected(job.values, rows) for job in whole.jobs], "", 1, 1, AT_ONCE)
    done = [job.combination for job in whole.jobs if job.values["model"] == "b"]
    less = outlook(whole, done, rows, lambda _: (1, 1))
    assert (less.jobs, less.trials) == (2, 200)
    assert less.seconds < found.seconds
    assert outlook(whole, [job.combination for job in whole.jobs], rows, lambda _: (1, 1)).seconds == 0.0


def test_batches_come_one_after_the_other(tmp_path: Path) -> None:
    head, tail = 'together = ["model"]\n', 'policy = ["sequential", "interleaved"]\n[daemon]\nown = true\n'
    for name in "ab":
        (tmp_path / name).write_bytes(b"model " + name.encode())
    whole = plan(parse(f'{head}[parameters]\nmodel = ["a", "b"]\ntrials = 100\n{tail}', tmp_path / "x.toml"))
    found = outlook(whole, (), [row(), row("b")], lambda _: (1, 1))
    assert found.seconds == pytest.approx(
        2 * 70.0 + makespan_s([expected(whole.jobs[0].values, [row()])] * 2, "", 1, 1)
    )


def test_jobs_of_the_record_store_count_as_earlier_ones(tmp_path: Path) -> None:
    known = row_of_store(MeasuredJob("0" * 64, "autotvm", 100, 40.0, 20.0, 50.0), "a")
    found = expected({"model": "a", "backend": "autotvm", "trials": 100}, [known])
    assert (found.jobs, found.host_s > 40.0, found.device_s > 20.0) == (1, True, True)
    assert found.alone_s >= 50.0
