"""Views of jobs and units, in words."""

import pytest

from autosched.backend import Network, Skipped
from autosched.core.events import (
    ClientAttached,
    ClientCutOff,
    ClientLost,
    Event,
    JobCancelRequested,
    JobSubmitted,
    ResourcesDeclared,
    UnitDrained,
)
from autosched.core.scheduler import Scheduler
from autosched.daemon.devices.device_monitor import Health
from autosched.daemon.devices.quarantine import BY
from autosched.daemon.jobs.progress import JobProgress
from autosched.daemon.observe.views import asked_for, calibration, job_view, reason, unit_views
from autosched.daemon.storage.job_store import Found
from autosched.daemon.timeline import Timeline
from autosched.errors import RequestError
from autosched.model import (
    Failure,
    JobFailure,
    JobId,
    JobLoad,
    JobSpec,
    Pool,
    Record,
    StepId,
    TaskIndex,
    TaskInfo,
    TaskLoad,
    Unit,
)
from autosched.protocol import ListJobs

SPEC = JobSpec(name="net", model="0" * 64, trials=10)
POOLS = (Pool("host", (Unit("host/0", (0,)),)), Pool("device:cpu", (Unit("cpu0", (1,)),)))
NETWORK = Network(tasks=(TaskInfo(task=1, name="conv2d_3", workload="w", weight=2),), skipped=(Skipped("pad", "none"),))


def load(task: int, pool: str, stage: str) -> JobLoad:
    return JobLoad(tasks=(TaskLoad(task=task, resources_next=(pool,), stage_next=stage),))


def happened(*events: Event) -> Scheduler:
    scheduler = Scheduler()
    for now, event in enumerate((ResourcesDeclared(POOLS, 100.0, 60.0), *events)):
        scheduler.handle(float(now), event)
    return scheduler


def attached(job: JobId, *loads: JobLoad) -> list[Event]:
    return [ClientAttached(job, JobLoad(tasks=tuple(task for one in loads for task in one.tasks)))]


def progress() -> JobProgress:
    made = JobProgress()
    made.plan(NETWORK, 10)
    return made


def test_a_fused_operator_is_shown_by_the_start_of_its_name() -> None:
    state, made = happened(JobSubmitted(1, SPEC), *attached(1, BUILD)).state, JobProgress()
    fused = TaskInfo(task=1, name="fused_matmul_" + "add_multiply_" * 20, workload="w")
    made.plan(Network(tasks=(fused,)), 10)
    assert reason(state, state.jobs[1], made) == ("building ", "fused_matmul_add_multiply_add_m… on host/0")


@pytest.mark.parametrize("word", ["", "active", "waiting", "held", "paused", "done", "starting", "evaluate", "dance"])
def test_a_list_is_filtered_by_each_state_and_stage(word: str) -> None:
    state = happened(JobSubmitted(1, SPEC), *attached(1, load(7, "host", "dance"))).state
    assert asked_for(state, ListJobs(state=word), "me")(state.jobs[1]) is (word in ("", "active", "dance"))


def test_an_unknown_state_in_a_filter_is_refused() -> None:
    state = happened(JobSubmitted(1, SPEC)).state
    with pytest.raises(RequestError, match=r"does 'profiel'\. Did you mean profile\? There are: active, .*build"):
        asked_for(state, ListJobs(state="profiel"), "me")
    with pytest.raises(RequestError, match=r"'dance'.*There are: active"):
        asked_for(state, ListJobs(state="dance"), "me")


BUILD, PROFILE, IMPORT = load(1, "host", "build"), load(1, "device:cpu", "profile"), load(0, "host", "import")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "its client starts"),
        (attached(1), "its client has nothing to run"),
        (attached(1, BUILD), "building conv2d_3 on host/0"),
        (attached(1, PROFILE), "measuring conv2d_3 on cpu0"),
        (attached(1, IMPORT), "importing the network on host/0"),
        (attached(1, load(7, "host", "dance")), "dance of task 7 on host/0"),
        (
            [*attached(1, BUILD), ClientCutOff(1, "silent")],
            "its client is cut off: silent; building conv2d_3 on host/0",
        ),
        ([*attached(1, BUILD), JobCancelRequested(1, "me")], "cancelled by me (still stopping)"),
        ([*attached(1, BUILD), JobCancelRequested(1, "me"), ClientLost(1, "x")], "cancelled by me"),
        ([ClientAttached(1, JobLoad(complete=True))], "done"),
        ([ClientAttached(1, JobLoad(failure=JobFailure("model_rejected", "no LSTM")))], "no LSTM"),
    ],
)
def test_a_job_shows_its_current_work(events: list[Event], words: str) -> None:
    state = happened(JobSubmitted(1, SPEC), *events).state
    assert "".join(reason(state, state.jobs[1], progress())) == words


def test_a_waiting_job_shows_the_resource_and_its_holder() -> None:
    state = happened(JobSubmitted(1, SPEC), JobSubmitted(2, SPEC), *attached(1, PROFILE), *attached(2, PROFILE)).state
    assert reason(state, state.jobs[2], progress()) == ("waits for ", "device:cpu, held by job 1")


@pytest.mark.parametrize(
    ("reason_why", "by", "words"),
    [
        ("new fan", "me", "waits for device:cpu: cpu0 is drained: new fan"),
        ("", "me", "waits for device:cpu: cpu0 is drained"),
        ("quarantined: 3 mishaps", BY, "waits for device:cpu: cpu0 is quarantined: 3 mishaps"),
    ],
)
def test_a_job_that_waits_for_an_unavailable_unit_shows_the_reason(reason_why: str, by: str, words: str) -> None:
    drained = UnitDrained("cpu0", reason_why, by)
    state = happened(JobSubmitted(1, SPEC), drained, *attached(1, PROFILE)).state
    assert "".join(reason(state, state.jobs[1], progress())) == words


def test_a_job_with_many_steps_names_the_first() -> None:
    pools = (Pool("host", tuple(Unit(f"host/{n}") for n in range(4))),)
    scheduler = Scheduler()
    events = [ResourcesDeclared(pools, 9.0, 9.0), JobSubmitted(1, SPEC)]
    for event in [*events, *attached(1, *(load(task, "host", "build") for task in (1, 2, 3)))]:
        scheduler.handle(0.0, event)
    words = reason(scheduler.state, scheduler.state.jobs[1], progress())
    assert words == ("building ", "conv2d_3 on host/0; building task 2 on host/1; 1 more")


def test_a_full_view_of_a_job_has_tasks_and_the_number_left_out() -> None:
    state = happened(JobSubmitted(1, SPEC), *attached(1, BUILD)).state
    made = progress()
    made.add(Found.of(1, Record(task=1, number=0, candidate=b"a", latency_s=(0.5,))))
    made.add(Found.of(1, Record(task=1, number=1, candidate=b"b", failure=Failure.RUN_CRASH)))
    view = job_view(state, state.jobs[1], made, 9.0, whole=True)
    assert (view.trials, view.trials_total, view.failed, view.failures) == (2, 10, 1, {"run crash": 1})
    assert view.estimate_s == pytest.approx(1.0)
    (task,) = view.tasks
    assert (task.task, task.name, task.stage, task.trials, task.best_s) == (1, "conv2d_3", "build", 2, 0.5)
    assert view.skipped == (("pad", "none"),)
    assert view.spec == SPEC
    short = job_view(state, state.jobs[1], made, 9.0, whole=False)
    assert (short.tasks, short.skipped, short.spec, short.trials) == ((), (), None, 2)


def test_the_budget_is_that_of_the_submission_until_the_network_is_planned() -> None:
    state = happened(JobSubmitted(1, SPEC)).state
    assert job_view(state, state.jobs[1], JobProgress(), 9.0, whole=False).trials_total == 10


def test_units_show_their_holder_and_for_how_long() -> None:
    scheduler = happened(JobSubmitted(1, SPEC), JobSubmitted(2, SPEC), *attached(1, PROFILE), *attached(2, PROFILE))
    timeline = Timeline()
    timeline.open(scheduler.state.steps[1], 3.0)
    lane, device = unit_views(scheduler.state, timeline, 13.0)
    assert (lane.unit, lane.pools, lane.cores, lane.state, lane.job) == ("host/0", ("host",), (0,), "free", None)
    assert (device.unit, device.state, device.job, device.task, device.stage) == ("cpu0", "busy", 1, 1, "profile")
    assert (device.held_s, device.left_s, device.waiting) == (10.0, 90.0, 1)
    assert device.busy_ratio == pytest.approx(10 / 13)
    views = unit_views(scheduler.state, timeline, 13.0, lambda slot, now: Health(f"{slot.unit.name} at {now:g}"))
    assert [view.health for view in views] == ["host/0 at 13", "cpu0 at 13"]
    scheduler.handle(14.0, JobCancelRequested(1, "me"))
    assert unit_views(scheduler.state, timeline, 14.0)[1].state == "stopping"


def test_a_job_shows_the_time_limits_of_its_steps_and_its_settings() -> None:
    spec = JobSpec(name="net", model="0" * 64, priority=5, deadline_s=90.0)
    state = happened(JobSubmitted(1, spec), *attached(1, BUILD)).state
    view = job_view(state, state.jobs[1], progress(), now=10.0, whole=True)
    (task,) = view.tasks
    (step,) = state.steps.values()
    assert task.left_s == pytest.approx(step.deadline_at - 10.0)
    assert (view.priority, view.deadline_at) == (5, 91.0)


def test_one_short_step_with_a_bad_estimate_does_not_spoil_the_mean_error() -> None:
    state = happened().state
    assert calibration(state) is None
    for step, seconds in enumerate((100.0, 1.0, 1.25, 0.8, 1.25)):
        state.estimates.begin(StepId(step), 1.0 if step else 0.01, "build", sure=False)
        state.estimates.learn(JobId(1), TaskIndex(1), "build", StepId(step), seconds)
    known = calibration(state)
    assert known is not None
    assert known.typical == pytest.approx(1.25)
