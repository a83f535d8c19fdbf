"""Idle units are offered again when they may take a task that they could not take before."""

from autosched.core import idle_units
from autosched.core.events import (
    ClientAttached,
    ClientLost,
    HostJoined,
    JobCancelRequested,
    JobPruned,
    JobSubmitted,
    Paused,
    ResourcesDeclared,
    StagesFreed,
    StepEnded,
)
from autosched.core.scheduler import Scheduler
from autosched.model import JobLoad, JobSpec, Outcome, TaskLoad, lent_by
from autosched.sim.scenario import pools

MEASURES = TaskLoad(task=9, stage_next="profile", resources_next=("device:cpu",))
BUILDS = tuple(TaskLoad(task=n, stage_next="build", resources_next=("host",)) for n in (1, 2))
MUCH = 10_000
"""Number of rounds that is worth a helper."""


def lab(name: str) -> HostJoined:
    return HostJoined(name, lent_by(name, pools(1, 1)), "a" * 32)


def crowded() -> Scheduler:
    """Returns a job that measures, builds, and has another build waiting, beside an idle host that is not worth a
    helper."""
    made = Scheduler()
    for event in (
        ResourcesDeclared(pools(1, 1), 600.0, 60.0), lab("a"), JobSubmitted(1, JobSpec(name="net", model="0" * 64)),
        ClientAttached(1, JobLoad()), StagesFreed(1, ("build",)),
        ClientAttached(1, JobLoad(tasks=(MEASURES, *BUILDS), rounds_left=2), ()),
    ):  # fmt: skip
        made.handle(0.0, event)
    assert lanes(made) == {"host/0": 1}
    return made


def lanes(made: Scheduler) -> dict[str, int]:
    """Returns the task of each busy lane."""
    made.state.check_all()
    return {step.units[0]: step.task for step in made.state.steps.values() if step.stage == "build"}


def measured(made: Scheduler, now: float, *tasks: TaskLoad) -> dict[str, int]:
    """Ends a measurement and begins the next one; the job has much work left."""
    (step,) = [step.id for step in made.state.steps.values() if step.stage == "profile"]
    made.handle(now, StepEnded(step, Outcome.DONE, JobLoad(tasks=(MEASURES, *tasks), rounds_left=MUCH)))
    return lanes(made)


def test_a_fruitless_search_for_work_is_repeated_after_a_second() -> None:
    made = crowded()
    assert measured(made, idle_units.LOOK_AGAIN_S / 2) == {"host/0": 1}
    assert measured(made, 1.5 * idle_units.LOOK_AGAIN_S) == {"host/0": 1, "host/0@a": 2}


def test_a_new_task_is_considered_at_once() -> None:
    made = crowded()
    new = TaskLoad(task=3, stage_next="build", resources_next=("host",))
    assert measured(made, idle_units.LOOK_AGAIN_S / 2, new) == {"host/0": 1, "host/0@a": 3}


def test_any_other_event_causes_a_full_search() -> None:
    made = crowded()
    made.handle(0.1, ClientAttached(1, JobLoad(tasks=BUILDS[1:], rounds_left=MUCH), tuple(made.state.steps)))
    assert lanes(made) == {"host/0": 1, "host/0@a": 2}


def test_a_job_pruned_during_a_pause_is_not_considered() -> None:
    made = crowded()
    made.handle(0.1, Paused("ada", "lunch"))
    new = TaskLoad(task=3, stage_next="build", resources_next=("host",))
    made.handle(0.2, ClientAttached(1, JobLoad(tasks=(*BUILDS[1:], new), rounds_left=MUCH), tuple(made.state.steps)))
    for event in (JobCancelRequested(1, "ada"), ClientLost(1, "it was stopped"), JobPruned(1), Paused("ada", "")):
        made.handle(0.3, event)
    made.state.check_all()
    assert not made.state.steps
    assert not any(kind.new_tasks for kind in made.state.kinds.values())
