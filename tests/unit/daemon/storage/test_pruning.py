"""A pruned history can be replayed, and the rest of the state is unchanged."""

import msgspec
import pytest

from autosched.core.actions import StartStep
from autosched.core.events import Event, JobCancelRequested, JobPruned, JobSubmitted
from autosched.core.scheduler import Scheduler
from autosched.core.state import Job, State
from autosched.daemon.storage.journal import Decided
from autosched.daemon.storage.pruning import Tracing, over
from autosched.model import JobSpec
from autosched.sim.random_testing import CHOICE
from autosched.sim.scenario import random_scenario
from autosched.sim.simulator import Simulator

Row = tuple[float, Event, Decided]
SPEC = JobSpec(name="net", model="a" * 64)


def lived(policy: str, seed: int) -> list[Row]:
    """Returns a history with faults, restarts, cancelled jobs and other policies, as stored in a journal."""
    world = Simulator(random_scenario(seed), CHOICE[policy], choice=CHOICE)
    world.run()
    return [(e.now, e.event, tuple(a.step for a in e.actions if isinstance(a, StartStep))) for e in world.history]


def replayed(policy: str, rows: list[Row]) -> State:
    core = Scheduler(CHOICE[policy], policies=CHOICE)
    for row in rows:
        core.handle(*row)
    core.state.check_all()
    return core.state


def pruned(rows: list[Row], jobs: list[int]) -> list[Row]:
    """Prunes rows as `statements` does in the database."""
    tracing = Tracing(jobs)
    for seq, (_, event, started) in enumerate(rows):
        tracing.look(seq, event, started)
    of = {seq: job for job, trace in tracing.found.items() for seq in trace.events}
    assert set(tracing.found) == set(jobs)
    return [(row[0], JobPruned(of[seq]), row[2]) if seq in of else row for seq, row in enumerate(rows)]


def what_is_told(state: State) -> object:
    """Returns the state of jobs, steps and units, without estimates and stale entries of queues."""

    def of(job: Job) -> object:
        tasks = {index: (task.load, task.step, bool(task.waiting), task.stage) for index, task in job.tasks.items()}
        return job.spec, job.state, job.end, job.held, job.done_s, tasks, job.steps

    holders = {name: slot.holder for name, slot in state.slots.items()}
    waiting = {name: queue.waiting for name, queue in state.queues.items()}
    jobs = {number: of(job) for number, job in state.jobs.items()}
    return jobs, state.active, state.steps, state.drained, holders, waiting, state.last_job, state.last_step


@pytest.mark.parametrize("policy", ["predictive", "interleaved", "sequential"])
def test_a_past_without_some_jobs_comes_to_the_same_for_the_others(policy: str) -> None:
    some = 0
    for seed in range(20):
        rows = lived(policy, seed)
        whole = rows[: len(rows) * 7 // 8]  # some jobs run
        before = replayed(policy, whole)
        jobs = over(before, 0.0, 0, ())
        some += len(jobs)
        after: list[Row] = [(before.now, JobPruned(job), ()) for job in jobs]
        live = replayed(policy, [*whole, *after])
        assert what_is_told(replayed(policy, [*pruned(whole, jobs), *after])) == what_is_told(live), f"seed {seed}"
        assert not set(jobs) & set(live.jobs)
        assert len(live.jobs) == len(before.jobs) - len(jobs)
    assert some >= 10


def test_what_comes_after_goes_on_without_them() -> None:
    """Ids continue, and no removed entry of a queue or alarm is missing."""
    for seed in range(20):
        rows = lived("interleaved", seed)
        cut = len(rows) * 3 // 4
        jobs = [job for job in over(replayed("interleaved", rows[:cut]), 0.0, 0, ()) if not _named(job, rows[cut:])]
        now = rows[cut - 1][0]
        after: list[Row] = [(now, JobPruned(job), ()) for job in jobs]
        state = replayed("interleaved", [*pruned(rows[:cut], jobs), *after, *rows[cut:]])
        whole = replayed("interleaved", rows)
        told = {job: known.state for job, known in state.jobs.items()}
        assert told == {job: known.state for job, known in whole.jobs.items() if job not in jobs}
        assert (state.last_job, state.last_step) == (whole.last_job, whole.last_step)


def _named(job: int, rows: list[Row]) -> bool:
    return any(getattr(event, "job", None) == job for _, event, _ in rows)


# Which ones -----------------------------------------------------------------------------------------------------------


def ended(*ends_at: float) -> Scheduler:
    """Returns jobs that were cancelled at these times; 0: not cancelled."""
    core = Scheduler()
    for job, _ in enumerate(ends_at, 1):
        core.handle(0.0, JobSubmitted(job, SPEC))
    for at, job in sorted((at, job) for job, at in enumerate(ends_at, 1) if at):
        core.handle(at, JobCancelRequested(job, "its user"))
    return core


@pytest.mark.parametrize(
    ("older_than_s", "keep", "expected"),
    [(0.0, 0, [3, 1, 4]), (5.0, 0, [3]), (0.0, 2, [3]), (7.0, 1, [3]), (10.0, 0, []), (0.0, 9, [])],
)
def test_which_jobs_go(older_than_s: float, keep: int, expected: list[int]) -> None:
    state = ended(6.0, 0.0, 3.0, 10.0).state
    assert over(state, older_than_s, keep, ()) == expected


def test_who_is_still_needed_stays() -> None:
    core = ended(1.0, 2.0, 3.0)
    core.handle(4.0, JobSubmitted(4, msgspec.structs.replace(SPEC, trials=0, records_from=2)))
    assert over(core.state, 0.0, 0, {1}) == [3], "1 has a client, 4 is made from 2"


def test_a_teaching_job_stays_as_long_as_a_job_learns_from_it() -> None:
    core = ended(1.0, 2.0)
    core.handle(4.0, JobSubmitted(3, msgspec.structs.replace(SPEC, learn_from=(2,))))
    assert over(core.state, 0.0, 0, ()) == [1]
    core.handle(5.0, JobCancelRequested(3, "a user"))
    assert over(core.state, 0.0, 0, ()) == [1, 2, 3]


def test_a_running_job_cannot_be_pruned() -> None:
    with pytest.raises(AssertionError, match="job 1 has not ended"):
        ended(0.0).handle(1.0, JobPruned(1))
