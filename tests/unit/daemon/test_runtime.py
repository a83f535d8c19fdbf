"""The loop: journal before action, answers in order, on a clock that only moves forward."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from autosched.core.actions import Action, Decision, RevokeStep, StartClient, StartStep
from autosched.core.events import (
    ClientAttached,
    ClientLost,
    Event,
    JobCancelRequested,
    JobPruned,
    JobSubmitted,
    PolicyChosen,
    ResourcesDeclared,
    RuleChosen,
    StepEnded,
)
from autosched.core.scheduler import Scheduler
from autosched.daemon import runtime as runtime_module
from autosched.daemon.event_stream import daemon_events
from autosched.daemon.event_stream.daemon_events import DaemonEvent
from autosched.daemon.runtime import Runtime, spawn
from autosched.daemon.storage.job_store import TABLES, JobStore
from autosched.daemon.storage.journal import Journal
from autosched.errors import AutoschedError, Damaged, Refused
from autosched.model import Goal, JobId, JobLoad, JobSpec, JobState, Outcome, Pool, Step, TaskLoad, Unit
from deadlines import DEADLINE_S

SPEC = JobSpec(name="net", model="0" * 64)
POOLS = (Pool("host", (Unit("host/0", (0,)),)), Pool("device:cpu", (Unit("cpu0", (1,)),)))
BUILD = JobLoad(tasks=(TaskLoad(task=1, resources_next=("host",), stage_next="build"),))


class Seen:
    """A performer that stores its actions, and the durable events at that time."""

    def __init__(self, journal: Journal) -> None:
        self.actions: list[Action] = []
        self.durable: list[int] = []
        self.changes: list[JobId] = []
        self.acted = asyncio.Event()
        self._journal = journal

    def perform(self, action: Action) -> None:
        self.actions.append(action)
        self.durable.append(self._journal.seq)
        self.acted.set()

    def changed(self, job: JobId) -> None:
        self.changes.append(job)

    async def until(self, kind: type[Action]) -> None:
        while not any(isinstance(action, kind) for action in self.actions):
            self.acted.clear()
            await self.acted.wait()


Work = Callable[[Runtime, Seen], Awaitable[None]]


def live(path: Path, work: Work, step_timeout_s: float = 600.0) -> None:
    """Runs a runtime on this journal."""

    async def run() -> None:
        with closing(Journal(path, *TABLES)) as journal:
            runtime = Runtime(journal, Scheduler())
            runtime.replay()
            journal.start()
            seen = Seen(journal)
            loop = spawn(runtime.run(seen), "loop")
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await happen(runtime, ResourcesDeclared(POOLS, step_timeout_s, 60.0))
                    await work(runtime, seen)
            finally:
                loop.cancel()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the daemon's
        runner.run(run())


async def until(holds: Callable[[], bool]) -> None:
    """Other tasks of the loop run meanwhile."""
    while not holds():  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(0)


async def happen(runtime: Runtime, event: Event) -> None:
    await runtime.post(lambda: event)


async def a_running_step(runtime: Runtime) -> None:
    await happen(runtime, JobSubmitted(runtime.state.last_job + 1, SPEC))
    await happen(runtime, ClientAttached(runtime.state.last_job, BUILD))


def test_an_action_is_performed_after_its_event_is_durable(tmp_path: Path) -> None:
    async def work(runtime: Runtime, seen: Seen) -> None:
        await a_running_step(runtime)
        assert [type(action) for action in seen.actions] == [StartClient, StartStep]
        assert seen.durable == [2, 3]
        assert seen.changes == [1, 1]

    live(tmp_path / "db", work)


def test_a_decision_is_durable_with_its_event(tmp_path: Path) -> None:
    steps: list[Step] = []

    async def work(runtime: Runtime, seen: Seen) -> None:
        await a_running_step(runtime)
        steps.extend(action.step for action in seen.actions if isinstance(action, StartStep))

    live(tmp_path / "db", work)
    journal = Journal(tmp_path / "db", *TABLES)
    assert [started for *_, started in journal.replay()] == [(), (), tuple(steps)]
    assert len(steps) == 1
    journal.close()


@contextmanager
def a_full_disk(path: Path) -> Iterator[None]:
    """Nothing can be written inside the block."""
    full = sqlite3.connect(path, isolation_level=None)
    full.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        full.execute("ROLLBACK")
        full.close()


def test_events_do_not_wait_for_the_disk_but_their_actions_and_answers_do_in_order(tmp_path: Path) -> None:
    async def work(runtime: Runtime, seen: Seen) -> None:
        answered: list[str] = []

        async def post(name: str, prepare: Callable[[], Event | None]) -> None:
            try:
                await runtime.post(prepare)
            except Refused:
                answered.append(f"{name} refused")
            else:
                answered.append(name)

        def refuse() -> Event:
            assert 1 in runtime.state.jobs, "it is decided when the next event is looked at"
            raise Refused("job 1 is there")

        with a_full_disk(tmp_path / "db"):
            posted = [
                asyncio.ensure_future(post("submit", lambda: JobSubmitted(1, SPEC))),
                asyncio.ensure_future(post("nothing", lambda: None)),
                asyncio.ensure_future(post("check", refuse)),
                asyncio.ensure_future(post("attach", lambda: ClientAttached(1, BUILD))),
            ]
            await until(lambda: bool(runtime.state.steps))
            assert (seen.actions, answered) == ([], [])
        await asyncio.gather(*posted)
        assert answered == ["submit", "nothing", "check refused", "attach"]
        assert [type(action) for action in seen.actions] == [StartClient, StartStep]

    live(tmp_path / "db", work)


def test_an_answer_waits_for_the_disk_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(runtime: Runtime, seen: Seen) -> None:
        await runtime.durable()  # nothing is pending
        posted = asyncio.ensure_future(happen(runtime, JobSubmitted(1, SPEC)))
        await until(lambda: 1 in runtime.state.jobs)
        assert runtime.journal.seq == 1
        await runtime.durable()
        assert runtime.journal.seq == 2
        await posted
        monkeypatch.setattr(runtime_module, "DURABLE_WAIT_S", 0.01)
        with a_full_disk(tmp_path / "db"):
            posted = asyncio.ensure_future(happen(runtime, ClientAttached(1, BUILD)))
            await until(lambda: bool(runtime.state.steps))
            await runtime.durable()
            assert runtime.journal.seq == 2
        await posted

    live(tmp_path / "db", work)


def test_a_step_that_ends_before_its_start_is_durable_is_remembered_whole(tmp_path: Path) -> None:
    async def work(runtime: Runtime, seen: Seen) -> None:
        await happen(runtime, JobSubmitted(1, SPEC))
        with a_full_disk(tmp_path / "db"):
            both = asyncio.gather(
                happen(runtime, ClientAttached(1, BUILD)), happen(runtime, ClientLost(1, "killed at once"))
            )
            await until(lambda: runtime.state.last_step == 1 and not runtime.state.steps)
        await both
        (span,), _ = await JobStore(runtime.journal).spans(0)
        assert (span.step, span.outcome, runtime.timeline.running) == (1, "lost", {})

    live(tmp_path / "db", work)


def test_only_so_much_is_decided_ahead_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "AHEAD_MAX", 3)

    async def work(runtime: Runtime, seen: Seen) -> None:
        with a_full_disk(tmp_path / "db"):
            posted = [asyncio.ensure_future(happen(runtime, JobSubmitted(job, SPEC))) for job in range(1, 9)]
            for _ in range(100):
                await asyncio.sleep(0)
            assert list(runtime.state.jobs) == [1, 2, 3]
        await asyncio.gather(*posted)
        assert len(runtime.state.jobs) == 8

    live(tmp_path / "db", work)


def test_a_decision_that_cannot_be_written_ends_the_loop(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path / "db", *TABLES)
        runtime = Runtime(journal, Scheduler())
        journal.start()
        seen = Seen(journal)
        posted = asyncio.ensure_future(happen(runtime, JobSubmitted(1, SPEC)))
        try:
            with pytest.raises(sqlite3.OperationalError, match="no such table"):
                await runtime.run(seen, lambda spans: (("INSERT INTO nowhere VALUES (1)", ()),))
            assert not posted.done()
            assert seen.actions == []
        finally:
            posted.cancel()
            journal.close()

    asyncio.run(run())
    live(tmp_path / "db", a_start)


class Thoughtful(Scheduler):
    """Plans in three pieces after each event, and then decides."""

    def __init__(self) -> None:
        super().__init__()
        self.turns_of_others = 0
        self.pieces: list[int] = []

    def handle(self, *args: Any, **kwargs: Any) -> Decision:
        return replace(super().handle(*args, **kwargs), search=True)

    def search(self) -> Iterator[RuleChosen | None]:
        for _ in range(3):
            self.pieces.append(self.turns_of_others)
            yield None
        yield RuleChosen("mwkr")


def test_looking_ahead_goes_on_piece_by_piece_between_other_work(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path / "db", *TABLES)
        runtime = Runtime(journal, scheduler := Thoughtful())
        journal.start()
        loop = spawn(runtime.run(Seen(journal)), "loop")
        posted = asyncio.ensure_future(happen(runtime, ResourcesDeclared(POOLS, 600.0, 60.0)))
        while journal.seq < 2:
            scheduler.turns_of_others += 1
            await asyncio.sleep(0)
        await posted
        assert len(set(scheduler.pieces[:3])) == 3, "other work had a turn after each piece"
        await happen(runtime, JobSubmitted(1, SPEC))
        loop.cancel()
        journal.close()

    asyncio.run(run())
    journal = Journal(tmp_path / "db", *TABLES)
    events = [event for _, event, _ in journal.replay()]
    assert events[:2] == [ResourcesDeclared(POOLS, 600.0, 60.0), RuleChosen("mwkr")]
    assert events[2] == JobSubmitted(1, SPEC), "a conclusion alone gives nothing new to think about"
    journal.close()


def test_a_check_that_fails_when_its_turn_comes_leaves_no_trace(tmp_path: Path) -> None:
    async def work(runtime: Runtime, seen: Seen) -> None:
        def refuse() -> Event:
            raise Refused("not now")

        before = runtime.journal.seq
        with pytest.raises(Refused, match="not now"):
            await runtime.post(refuse)
        await runtime.post(lambda: None)
        assert runtime.journal.seq == before
        await happen(runtime, JobSubmitted(1, SPEC))

    live(tmp_path / "db", work)


def test_of_two_ends_of_a_step_one_counts(tmp_path: Path) -> None:
    async def work(runtime: Runtime, seen: Seen) -> None:
        await a_running_step(runtime)

        def end() -> Event:
            if 1 not in runtime.state.steps:
                raise Refused("stale step")
            return StepEnded(1, Outcome.DONE, JobLoad())

        ends = await asyncio.gather(runtime.post(end), runtime.post(end), return_exceptions=True)
        assert ends[0] is None
        assert isinstance(ends[1], Refused)

    live(tmp_path / "db", work)


def test_another_life_knows_what_this_one_was_told_and_starts_clients_anew(tmp_path: Path) -> None:
    async def first(runtime: Runtime, seen: Seen) -> None:
        await a_running_step(runtime)
        await happen(runtime, JobSubmitted(2, SPEC))
        await happen(runtime, JobCancelRequested(2, "me"))

    async def second(runtime: Runtime, seen: Seen) -> None:
        assert [action for action in seen.actions if isinstance(action, StartClient)] == [StartClient(1)]
        assert runtime.state.jobs[2].state is JobState.CANCELLED
        assert runtime.state.steps == {}
        (span,), _ = await JobStore(runtime.journal).spans(0)
        assert (span.step, span.outcome) == (1, "lost")
        await happen(runtime, ClientAttached(1, BUILD))
        assert list(runtime.state.steps) == [2], "a step's number is never given twice"

    live(tmp_path / "db", first)
    live(tmp_path / "db", second)


def test_jobs_whose_steps_may_have_shared_units_are_known_as_long_as_the_job_is(tmp_path: Path) -> None:
    async def work(runtime: Runtime, seen: Seen) -> None:
        await a_running_step(runtime)
        assert not runtime.sharing
        await happen(runtime, PolicyChosen("synchronous", Goal.BALANCED, "test"))
        await happen(runtime, StepEnded(1, Outcome.DONE, BUILD))
        assert runtime.sharing == {1: None}
        await happen(runtime, JobCancelRequested(1, "test"))
        await happen(runtime, ClientLost(1, "test", progressed=False))
        await happen(runtime, JobPruned(1))
        assert not runtime.sharing

    live(tmp_path / "db", work)


def test_the_clock_goes_on_where_the_journal_ends(tmp_path: Path) -> None:
    times: list[float] = []

    async def work(runtime: Runtime, seen: Seen) -> None:
        times.append(runtime.state.now)
        await happen(runtime, JobSubmitted(runtime.state.last_job + 1, SPEC))
        times.append(runtime.state.now)

    for _ in range(3):
        live(tmp_path / "db", work)
    assert times == sorted(times)


def test_two_events_of_one_turn_of_the_loop_have_two_times(tmp_path: Path) -> None:
    """With the loop's own clock, which ticks in milliseconds, a policy could not tell the order of arrival."""

    async def work(runtime: Runtime, seen: Seen) -> None:
        for _ in range(3):
            runtime.tell(lambda: JobSubmitted(runtime.state.last_job + 1, SPEC))
        await happen(runtime, JobSubmitted(4, SPEC))
        first, second, third, fourth = (job.submitted_at for job in runtime.state.jobs.values())
        assert first < second < third < fourth

    live(tmp_path / "db", work)


def test_a_deadline_wakes_the_scheduler(tmp_path: Path) -> None:
    async def work(runtime: Runtime, seen: Seen) -> None:
        await a_running_step(runtime)
        await seen.until(RevokeStep)
        assert runtime.state.now >= 0.05
        assert 1 in runtime.state.revoked

    live(tmp_path / "db", work, step_timeout_s=0.05)


def test_ended_steps_are_remembered_with_their_units_and_times(tmp_path: Path) -> None:
    async def work(runtime: Runtime, seen: Seen) -> None:
        await a_running_step(runtime)
        assert list(runtime.timeline.running) == [1]
        await happen(runtime, StepEnded(1, Outcome.FAILED, BUILD))
        await happen(runtime, ClientLost(1, "killed"))
        spans, _ = await JobStore(runtime.journal).spans(0)
        assert [(s.step, s.stage, s.units, s.outcome) for s in spans] == [
            (1, "build", ("host/0",), "failed"),
            (2, "build", ("host/0",), "lost"),
        ]
        assert all(s.queued_at <= s.started_at <= (s.ended_at or 0.0) for s in spans)
        assert runtime.timeline.running == {}
        assert 0.0 < runtime.timeline.busy_ratio("host/0", runtime.clock()) <= 1.0
        assert runtime.timeline.busy_ratio("cpu0", runtime.clock()) == 0.0

    live(tmp_path / "db", work)


def test_what_breaks_the_core_ends_the_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        journal = Journal(tmp_path / "db", *TABLES)
        runtime = Runtime(journal, Scheduler())
        runtime.replay()
        journal.start()
        posted = asyncio.ensure_future(happen(runtime, JobSubmitted(5, SPEC)))  # the first job has the number 1
        try:
            with pytest.raises(AssertionError, match="job 5 does not follow 0"):
                await runtime.run(Seen(journal))
            with pytest.raises(AutoschedError, match="the daemon is broken and ends"):
                await posted
        finally:
            journal.close()

    asyncio.run(run())
    assert "JobSubmitted breaks the scheduler" in caplog.text
    live(tmp_path / "db", a_start)  # the cause is not in the journal: the next daemon works


async def a_start(runtime: Runtime, seen: Seen) -> None:
    assert runtime.state.jobs == {}


def test_a_row_that_breaks_the_core_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def write(runtime: Runtime, seen: Seen) -> None:
        await runtime.journal.append(1.0, JobSubmitted(5, SPEC))

    live(tmp_path / "db", write)
    with pytest.raises(Damaged, match=r"row 2 of .* breaks the scheduler"):
        live(tmp_path / "db", a_start)
    assert "job=5" in caplog.text


def test_a_crash_in_the_background_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def crash() -> None:
        raise ZeroDivisionError

    async def work() -> None:
        await asyncio.wait([spawn(crash(), "the name of the task")])
        await asyncio.sleep(0)

    asyncio.run(work())
    assert "the name of the task crashed" in caplog.text


def test_everything_is_published_once_when_it_is_durable(tmp_path: Path) -> None:
    published: list[DaemonEvent] = []
    durable: list[int] = []

    async def work(runtime: Runtime, _seen: Seen) -> None:
        runtime.stream.attach(published.append)
        runtime.stream.attach(lambda _: durable.append(runtime.journal.seq))
        await a_running_step(runtime)
        await happen(runtime, StepEnded(1, Outcome.FAILED, BUILD, "no compiler", 0.5))
        await happen(runtime, ClientLost(1, "killed"))

    live(tmp_path / "db", work)
    assert [(one.name, one.job) for one in published] == [
        ("JobSubmitted", 1),
        ("StartClient", 1),
        ("ClientAttached", 1),
        ("StepStarted", 1),
        ("StepEnded", 1),
        ("StepStarted", 1),
        ("ClientLost", 1),
        ("StepEnded", 1),
        ("StartClient", 1),
    ]
    assert durable == [2, 2, 3, 3, 4, 4, 5, 5, 5]
    ends = [one.what for one in published if isinstance(one.what, daemon_events.StepEnded)]
    assert [(end.step, end.outcome, end.error, end.worked_s) for end in ends] == [
        (1, "failed", "no compiler", 0.5),
        (2, "lost", "", None),
    ]
    assert all(one.units == ("host/0",) for one in published if one.name.startswith("Step"))
