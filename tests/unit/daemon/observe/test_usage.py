"""Busy and idle seconds: each second of each unit is charged once, to the right account."""

from collections.abc import Iterator

from autosched.core.actions import StartStep
from autosched.core.events import (
    ClientAttached,
    Event,
    JobAltered,
    JobCancelRequested,
    JobSubmitted,
    ResourcesDeclared,
    StepEnded,
    UnitDrained,
)
from autosched.core.scheduler import Scheduler
from autosched.daemon.event_stream import daemon_events
from autosched.daemon.event_stream.daemon_events import DaemonEvent, StepStarted, What
from autosched.daemon.observe.usage import Cause, Spell, Usage
from autosched.model import JobLoad, JobSpec, Outcome, Pool, Step, TaskLoad, Unit

POOLS = (Pool("host", (Unit("host/0", (0,)),)), Pool("device:cpu", (Unit("cpu0", (1,)),)))
SPEC = JobSpec(name="net", model="0" * 64)


def wants(pool: str, stage: str) -> JobLoad:
    return JobLoad(tasks=(TaskLoad(task=1, resources_next=(pool,), stage_next=stage),))


class Life:
    """A scheduler, and its reports, as in the runtime."""

    def __init__(self) -> None:
        self.core = Scheduler()
        self.usage = Usage(lambda: self.core.state)
        self.running: dict[int, Step] = {}
        self.happen(0.0, ResourcesDeclared(POOLS, 600.0, 60.0))

    def happen(self, now: float, event: Event, worked_s: float | None = None) -> None:
        actions = self.core.handle(now, event).actions
        for what in self._told(now, event, worked_s):
            self.usage.take(DaemonEvent(now, 0.0, what))
        for action in actions:
            if isinstance(action, StartStep):
                step = self.running[action.step.id] = action.step
                started = StepStarted(step.id, step.job, step.task, step.stage, step.units, 0.0)
                self.usage.take(DaemonEvent(now, 0.0, started))

    def _told(self, now: float, event: Event, worked_s: float | None) -> Iterator[What]:
        if not isinstance(event, StepEnded):
            yield event
            return
        step = self.running[event.step]
        held_s = now - step.started_at
        yield daemon_events.StepEnded(step.id, 1, 1, step.stage, step.units, "done", 0.0, held_s, worked_s)

    def seconds(self, unit: str) -> dict[str, float]:
        idle = {cause.value: s for (of, cause), s in self.usage.idle_s.items() if of == unit}
        return idle | {stage: s for (of, stage), s in self.usage.busy_s.items() if of == unit}


def test_each_idle_second_has_one_cause() -> None:
    life = Life()
    life.usage.look(10.0)
    life.happen(10.0, JobSubmitted(1, SPEC))
    life.usage.look(10.0)  # as the loop does every quarter of a second
    life.happen(14.0, ClientAttached(1, wants("host", "build")))
    life.usage.look(14.0)
    life.happen(20.0, StepEnded(1, Outcome.DONE, wants("device:cpu", "profile")), worked_s=5.0)
    life.happen(23.0, StepEnded(2, Outcome.DONE, wants("host", "build")), worked_s=3.0)
    life.usage.look(30.0)
    assert life.seconds("host/0") == {
        "no job": 10.0, "jobs start": 4.0, "build": 5.0, "hand-over": 1.0, "nothing ready": 3.0,
    }  # fmt: skip
    assert life.seconds("cpu0") == {
        "no job": 10.0, "jobs start": 4.0, "nothing ready": 13.0, "profile": 3.0, "hand-over": 0.0,
    }  # fmt: skip
    assert list(life.usage.spells["cpu0"]) == [
        Spell("cpu0", 0.0, 10.0, Cause.NO_JOB),
        Spell("cpu0", 10.0, 14.0, Cause.STARTING),
        Spell("cpu0", 14.0, 20.0, Cause.NOTHING_READY),
    ]
    assert list(life.usage.under_way(31.0)) == [Spell("cpu0", 23.0, 31.0, Cause.NOTHING_READY)]


def test_units_that_only_held_jobs_need_are_idle_because_of_the_hold() -> None:
    life = Life()
    second = TaskLoad(task=2, resources_next=("host",), stage_next="build")
    life.happen(0.0, JobSubmitted(1, SPEC))
    life.happen(0.0, ClientAttached(1, JobLoad(tasks=(*wants("host", "build").tasks, second))))
    life.happen(0.0, JobSubmitted(2, SPEC))
    life.happen(0.0, ClientAttached(2, wants("device:cpu", "profile")))
    assert set(life.running) == {1, 2}
    life.happen(1.0, JobAltered(1, "me", 0, None, "a demo (me)"))
    life.happen(2.0, StepEnded(1, Outcome.DONE, JobLoad(tasks=(TaskLoad(task=1), second))), worked_s=2.0)
    assert life.usage.cause("host/0") is Cause.HELD, "task 2 of job 1 waits for it"
    life.happen(2.0, JobAltered(1, "me", 0, None, ""))
    life.happen(3.0, StepEnded(3, Outcome.DONE, JobLoad(tasks=(TaskLoad(task=2),))), worked_s=1.0)
    assert life.usage.cause("host/0") is Cause.NOTHING_READY, "no job is held, and none wants it"
    for job in (1, 2):
        life.happen(4.0, JobAltered(job, "me", 0, None, "a demo (me)"))
    assert life.usage.cause("host/0") is Cause.HELD, "all jobs are"


def test_a_drained_unit_is_idle_because_it_is_drained() -> None:
    life = Life()
    life.happen(5.0, UnitDrained("cpu0", "new fan", "me"))
    life.usage.look(5.0)
    life.usage.look(9.0)
    assert life.seconds("cpu0") == {"no job": 5.0, "drained": 4.0}


def test_a_unit_behind_another_resource_is_idle_because_of_it() -> None:
    life = Life()
    both = JobLoad(
        tasks=(
            TaskLoad(task=1, resources_next=("host",), stage_next="build"),
            TaskLoad(task=2, resources_next=("host", "device:cpu"), stage_next="both"),
        )
    )
    life.happen(0.0, JobSubmitted(1, SPEC))
    life.happen(0.0, ClientAttached(1, both))
    assert life.usage.cause("cpu0") is Cause.HELD_BACK


def test_a_job_that_ends_leaves_units_without_a_job() -> None:
    life = Life()
    life.happen(0.0, JobSubmitted(1, SPEC))
    life.happen(0.0, JobCancelRequested(1, "me"))
    assert life.usage.cause("cpu0") is Cause.NO_JOB


def test_causes_of_idle_time_in_the_last_seconds_are_known() -> None:
    usage = Usage(lambda: Scheduler().state)
    usage.spells["cpu0"] += [Spell("cpu0", 0.0, 5.0, Cause.NO_JOB), Spell("cpu0", 6.0, 8.0, Cause.NOTHING_READY)]
    assert usage.idle(10.0, 6.0) == {"cpu0": {"no job": 1.0, "nothing ready": 2.0}}
    assert usage.idle(10.0, 1.0) == {}


def test_idle_time_that_has_not_ended_counts_too() -> None:
    life = Life()
    assert life.usage.idle(3.0, 2.0) == {"host/0": {"no job": 2.0}, "cpu0": {"no job": 2.0}}
