"""Random histories: no order of events that the daemon can send breaks an invariant."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from autosched.core.events import (
    ClientAttached,
    ClientLost,
    DeadlineReached,
    Event,
    HistoryRecalled,
    JobCancelRequested,
    JobSubmitted,
    PolicyChosen,
    ResourcesDeclared,
    StepEnded,
)
from autosched.core.policies.policy import POLICIES, Policy
from autosched.core.scheduler import Scheduler
from autosched.core.state import one_of_each
from autosched.model import Goal, JobFailure, JobLoad, JobSpec, Outcome, StageHistory, Step, TaskLoad
from unit.core.scheduler_driver import ONE_CORE, ONE_EACH, StopClient, Story, of, pool, steps
from unit.core.scheduler_driver import EndJob as Ended

MACHINES = (
    ONE_EACH,
    ONE_CORE,
    (pool("host", "a", "b", "c"), pool("device:cpu", "d", "e")),
    (pool("host", "a", "b"), pool("device:cpu", "b", "c")),
)
WISHES = (("host",), ("device:cpu",), ("host", "device:cpu"), ("device:cpu", "host"), ("host", "host"), ("gpu",))

task_loads = st.builds(
    TaskLoad,
    task=st.integers(0, 4),
    stage_done=st.sampled_from([True, True, True, False]),
    complete=st.sampled_from([False, False, False, True]),
    resources_next=st.sampled_from([(), *WISHES[:2], *WISHES]),
    stage_next=st.sampled_from(["build", "profile"]),
    timeout_s=st.sampled_from([None, 1.0, 50.0]),
)
loads = st.builds(
    JobLoad,
    tasks=st.lists(task_loads, max_size=4).map(tuple),
    complete=st.sampled_from([False] * 7 + [True]),
    failure=st.sampled_from([None] * 7 + [JobFailure("x", "y")]),
)


class Machine(RuleBasedStateMachine):
    @initialize(pools=st.sampled_from(MACHINES), policy=st.sampled_from([*POLICIES.values()]))
    def start(self, pools: tuple, policy: Policy) -> None:
        self.first_policy = policy
        self.story = Story(pools, policy, step_timeout_s=30.0, attach_timeout_s=20.0)
        self.journal: list[tuple[float, Event]] = [(0.0, ResourcesDeclared(pools, 30.0, 20.0))]
        self.decisions = list(self.story.said)
        self.started: list[tuple[Step, ...]] = [()]

    def nothing_is_shared_that_must_not_be(self, started: tuple[Step, ...]) -> None:
        """A policy that shares nothing gives a leased unit to no other step, whatever runs already."""
        if not self.story.core.policy.shares_units:
            held = [unit for step in self.story.state.steps.values() for unit in step.units]
            for step in started:
                assert all(held.count(unit) == 1 for unit in step.units), f"{step} shares a unit"

    def tell(self, event: Event) -> None:
        self.journal.append((self.story.now, event))
        before = dict(self.story.state.steps)
        actions = self.story.tell(event)
        self.started.append(tuple(steps(actions)))
        self.nothing_is_shared_that_must_not_be(self.started[-1])
        self.decisions += actions
        for step in steps(actions):
            assert step.id not in before
            assert self.story.state.steps[step.id] == step
        ended = [action.job for action in of(Ended, self.decisions)]
        assert len(ended) == len(set(ended)), "a job ended twice"

    def job(self, number: int) -> int:
        return number % self.story.state.last_job + 1

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.story.now += seconds

    @rule(
        external=st.booleans(),
        priority=st.sampled_from([0, 0, 7, -7]),
        deadline_s=st.sampled_from([None, None, 5.0, 500.0]),
    )
    def submit(self, external: bool, priority: int, deadline_s: float | None) -> None:
        job = self.story.state.last_job + 1
        spec = JobSpec(name="x", model="0" * 64, external=external, priority=priority, deadline_s=deadline_s)
        self.tell(JobSubmitted(job, spec))

    @rule(name=st.sampled_from(["magic", *POLICIES]), goal=st.sampled_from(Goal))
    def choose(self, name: str, goal: Goal) -> None:
        self.tell(PolicyChosen(name, goal, "ada"))
        assert self.story.core.policy.name == (name if name in POLICIES else "interleaved")

    @rule()
    def look_ahead(self) -> None:
        for rule_chosen in self.story.core.search():
            if rule_chosen is not None:
                self.tell(rule_chosen)

    @precondition(lambda self: self.story.state.last_job)
    @rule(number=st.integers(0, 9), task=st.integers(0, 4), mean_s=st.sampled_from([0.5, 20.0]))
    def recall(self, number: int, task: int, mean_s: float) -> None:
        self.tell(HistoryRecalled(self.job(number), (StageHistory(task, "build", mean_s, 3),)))

    @precondition(lambda self: self.story.state.last_job)
    @rule(number=st.integers(0, 9), load=loads)
    def attach(self, number: int, load: JobLoad) -> None:
        self.tell(ClientAttached(self.job(number), load))

    @precondition(lambda self: self.story.state.steps)
    @rule(number=st.integers(0, 9), load=st.none() | loads, outcome=st.sampled_from(Outcome))
    def end_step(self, number: int, load: JobLoad | None, outcome: Outcome) -> None:
        running = list(self.story.state.steps)
        self.tell(StepEnded(running[number % len(running)], outcome, load))

    @rule(step=st.integers(0, 30), load=loads)
    def answer_late(self, step: int, load: JobLoad) -> None:
        if step not in self.story.state.steps:
            holders = self.story.holders()
            self.tell(StepEnded(step, Outcome.DONE, load))
            assert self.story.holders() == holders

    @precondition(lambda self: self.story.state.last_job)
    @rule(number=st.integers(0, 9))
    def lose(self, number: int) -> None:
        job = self.job(number)
        self.tell(ClientLost(job, "gone"))
        assert not self.story.state.jobs[job].steps

    @precondition(lambda self: self.story.state.last_job)
    @rule(number=st.integers(0, 9))
    def cancel(self, number: int) -> None:
        job = self.job(number)
        self.tell(JobCancelRequested(job, "ada"))
        assert self.story.state.jobs[job].state.ended

    @rule()
    def wait(self) -> None:
        deadline = self.story.wake_at
        if deadline is not None:
            self.story.now = max(self.story.now, deadline)
            self.tell(DeadlineReached())
            after = self.story.wake_at
            assert after is None or after > self.story.now, "the same deadline comes again and again"

    @rule(pools=st.sampled_from(MACHINES))
    def restart(self, pools: tuple) -> None:
        self.tell(ResourcesDeclared(pools, 30.0, 20.0))
        assert not self.story.state.steps

    @invariant()
    def nothing_waits_that_could_start(self) -> None:
        if not hasattr(self, "story"):
            return
        state, admits = self.story.state, self.story.core.policy.admits
        heads = {}
        for name, queue in state.queues.items():
            live = sorted(entry for entry in queue.heap if state.is_live(*entry[1:]))
            if live:
                heads[name] = state.jobs[live[0][2]].tasks[live[0][3]]
        for task in heads.values():
            if (admits is None or admits(state, task)) and all(heads[pool] is task for pool in task.queued_in):
                free = [
                    [u.name for u in state.queues[pool].pool.units if state.slots[u.name].holder is None]
                    for pool in task.queued_in
                ]
                assert one_of_each(free) is None

    def teardown(self) -> None:
        if hasattr(self, "story"):
            self.every_job_ends()
            again, told = Scheduler(self.first_policy), Scheduler(self.first_policy)
            replayed = [action for now, event in self.journal for action in again.handle(now, event).actions]
            assert replayed == self.decisions
            for (now, event), started in zip(self.journal, self.started, strict=True):
                assert steps(told.handle(now, event, started).actions) == list(started)
            assert (told.state.estimates, told.state.rule) == (again.state.estimates, again.state.rule)
            for job, same in zip(told.state.jobs.values(), again.state.jobs.values(), strict=True):
                assert (job.end, job.client, job.done_s) == (same.end, same.client, same.done_s)

    def every_job_ends(self) -> None:
        """Liveness: every job ends, even if clients only die when they are stopped."""
        self.answered = 0
        self.clients_die()
        for _ in range(100 + 20 * self.story.state.last_job):
            if not self.story.state.active:
                return
            deadline = self.story.wake_at
            assert deadline is not None, f"jobs {list(self.story.state.active)} wait for nothing, for ever"
            self.story.now = max(self.story.now, deadline)
            self.tell(DeadlineReached())
            self.clients_die()
        raise AssertionError(f"jobs {list(self.story.state.active)} do not end")

    def clients_die(self) -> None:
        """Answers each StopClient so far."""
        while stops := of(StopClient, self.decisions[self.answered :]):
            self.answered = len(self.decisions)
            for stop in stops:
                self.tell(ClientLost(stop.job, "stopped"))


Machine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None, derandomize=True)
TestMachine = Machine.TestCase
