"""A daemon's database read as a load."""

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from autosched.core.events import (
    ClientAttached,
    ClientPlaced,
    Event,
    JobSubmitted,
    PolicyChosen,
    ResourcesDeclared,
    StepEnded,
)
from autosched.errors import NotFound, RequestError
from autosched.model import Goal, JobLoad, JobSpec, Outcome, Pool, TaskLoad, Unit
from autosched.protocol import Span
from autosched.sim.scenario import pools
from autosched.workloads.recordings import DATABASE, read
from recordings import write

DONE = JobLoad(complete=True)


def asks(task: int, stage: str, *wanted: str) -> JobLoad:
    return JobLoad(tasks=(TaskLoad(task=task, stage_next=stage, resources_next=wanted),))


def span(step: int, task: int, stage: str, unit: str, start: float, end: float, outcome: str = "done") -> Span:
    return Span(step, 1, task, stage, (unit,), start - 0.5, start, end, outcome, end - start - 0.1)


def submitted(job: int = 1) -> JobSubmitted:
    return JobSubmitted(job, JobSpec(name="net", model="0" * 64, priority=3))


def one_job(path: Path, *extra: tuple[float, Event], spans: tuple[Span, ...] = ()) -> None:
    steps = [
        span(1, 0, "import", "host/0", 12.0, 14.0),
        span(2, 1, "select", "host/0", 14.0, 15.0),
        span(3, 1, "build", "host/0", 15.0, 18.0),
        span(4, 2, "select", "host/0", 18.0, 19.0),
        span(5, 1, "profile", "cpu0", 18.0, 28.0),
        span(6, 1, "select", "host/0", 30.0, 31.0),
        span(7, 0, "compile", "host/0", 31.0, 35.0),
        *spans,
    ]
    events: list[tuple[float, Event]] = [
        (0.0, ResourcesDeclared(pools(1, 1), 600.0, 60.0)),
        (10.0, submitted()),
        (12.0, ClientAttached(1, asks(0, "import", "host"))),
        (14.0, StepEnded(1, Outcome.DONE, asks(1, "select", "host"))),
        *extra,
        (35.0, StepEnded(7, Outcome.DONE, DONE)),
    ]
    write(path, events, steps)


def test_a_job_is_its_rounds_between_the_steps_of_its_network(tmp_path: Path) -> None:
    one_job(tmp_path / DATABASE)
    (job,) = read(tmp_path).jobs
    assert (job.job, job.spec.name, job.spec.priority, job.arrived_at, job.client_start_s) == (1, "net", 3, 10.0, 2.0)
    assert [step.stage for step in job.before] == ["import"]
    assert [step.stage for step in job.after] == ["compile"]
    stages = {task: [[step.stage for step in steps] for steps in rounds] for task, rounds in job.tasks.items()}
    assert stages == {1: [["select", "build", "profile"], ["select"]], 2: [["select"]]}
    assert job.order == (1, 2, 1)
    assert (job.ended_at, job.complete) == (35.0, True)
    profile = job.tasks[1][0][2]
    assert (profile.pools, profile.units, profile.held_s) == (("device:cpu",), ("cpu0",), 10.0)
    assert profile.worked_s == pytest.approx(9.9)


def test_what_is_measured_again_is_a_round_of_its_own(tmp_path: Path) -> None:
    again = [
        span(9 + i, 2, stage, "host/0", 40.0 + i, 41.0 + i) for i, stage in enumerate(("build", "update", "select"))
    ]
    one_job(tmp_path / DATABASE, spans=(span(8, 2, "build", "host/0", 38.0, 39.0), *again))
    (job,) = read(tmp_path).jobs
    assert [[step.stage for step in steps] for steps in job.tasks[2]] == [
        ["select", "build"], ["build", "update"], ["select"],
    ]  # fmt: skip


def test_what_was_asked_for_goes_before_what_the_unit_is(tmp_path: Path) -> None:
    """On one core the lane and the device are one unit in two pools."""
    core = Unit("core0", (0,))
    events: list[tuple[float, Event]] = [
        (0.0, ResourcesDeclared((Pool("host", (core,)), Pool("device:cpu", (core,))), 600.0, 60.0)),
        (0.0, submitted()),
        (0.0, ClientAttached(1, asks(1, "build", "host"))),
        (5.0, StepEnded(1, Outcome.DONE, asks(1, "profile", "device:cpu"))),
    ]
    steps = [span(1, 1, "build", "core0", 1.0, 5.0), span(2, 1, "profile", "core0", 5.0, 9.0)]
    write(tmp_path / DATABASE, events, steps)
    (job,) = read(tmp_path).jobs
    assert [step.pools for step in job.tasks[1][0]] == [("host",), ("device:cpu",)]
    assert not job.complete


def test_a_job_that_has_waited_for_a_host_is_read(tmp_path: Path) -> None:
    one_job(tmp_path / DATABASE, (14.0, ClientPlaced(1)), (14.0, ClientPlaced(1, "")))
    (job,) = read(tmp_path).jobs
    assert (job.ended_at, job.complete) == (35.0, True)


def test_what_was_lost_is_left_out_and_what_failed_is_not(tmp_path: Path) -> None:
    spans = (span(8, 2, "build", "host/0", 40.0, 41.0, "lost"), span(9, 2, "profile", "cpu0", 41.0, 42.0, "failed"))
    one_job(tmp_path / DATABASE, spans=spans)
    (job,) = read(tmp_path).jobs
    assert [step.stage for step in job.tasks[2][0]] == ["select", "profile"]


def test_the_import_of_a_client_that_took_over_is_left_out(tmp_path: Path) -> None:
    one_job(tmp_path / DATABASE, spans=(span(8, 0, "import", "host/0", 20.0, 22.0),))
    (job,) = read(tmp_path).jobs
    assert [step.stage for step in [*job.before, *job.after]] == ["import", "compile"]


def test_the_last_word_on_policy_and_pools_counts(tmp_path: Path) -> None:
    one_job(
        tmp_path / DATABASE,
        (15.0, ResourcesDeclared(pools(2, 1), 600.0, 60.0, "sequential")),
        (16.0, PolicyChosen("interleaved", Goal.LATENCY, "a user")),
    )
    recording = read(tmp_path)
    assert (recording.policy, recording.goal) == ("interleaved", Goal.LATENCY)
    assert {pool.name: len(pool.units) for pool in recording.pools} == {"host": 2, "device:cpu": 1}


def test_it_is_read_while_a_daemon_writes_it(tmp_path: Path) -> None:
    one_job(tmp_path / DATABASE)
    writer = sqlite3.connect(tmp_path / DATABASE)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("DELETE FROM spans")
    assert len(read(tmp_path / DATABASE).jobs) == 1
    writer.rollback()
    writer.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_it_is_read_where_nothing_may_be_written(tmp_path: Path) -> None:
    one_job(tmp_path / DATABASE)
    tmp_path.chmod(0o500)
    assert len(read(tmp_path).jobs) == 1


def test_what_is_no_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no recording at"):
        read(tmp_path)
    (tmp_path / "text").write_text("hello " * 1000)
    with pytest.raises(RequestError, match="text is no recording of a daemon"):
        read(tmp_path / "text")
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(RequestError, match="other is no recording of a daemon"):
        read(tmp_path / "other")
    write(tmp_path / "empty", [(0.0, ResourcesDeclared(pools(1, 1), 600.0, 60.0))], [])
    with pytest.raises(NotFound, match="no step of any job has ended"):
        read(tmp_path / "empty")
    write(tmp_path / "odd", [(0.0, submitted())], [])
    with contextlib.closing(sqlite3.connect(tmp_path / "odd")) as db, db:
        db.execute("INSERT INTO spans VALUES (1, x'c0', 0)")
    db.close()
    with pytest.raises(RequestError, match="odd has a row that this version cannot read"):
        read(tmp_path / "odd")
