"""Attribution of failures to candidates and devices: events, stored records, and clients that are not believed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from autosched.backend import Network
from autosched.core.events import ClientAttached, JobSubmitted, ResourcesDeclared, StepEnded
from autosched.core.scheduler import Scheduler
from autosched.daemon.devices.attribution_handler import BATCH_LEAST, AttributionHandler
from autosched.daemon.event_stream.daemon_events import CandidateBlocked, ClientNews, DaemonEvent
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.runtime import Runtime, spawn
from autosched.daemon.storage.database import TABLES
from autosched.daemon.storage.job_store import Found
from autosched.daemon.storage.journal import Journal
from autosched.errors import NotFound
from autosched.model import (
    Failure,
    Identity,
    JobId,
    JobLoad,
    JobSpec,
    Outcome,
    Pool,
    Purpose,
    Record,
    Step,
    TaskInfo,
    TaskLoad,
    Unit,
)
from autosched.protocol import BLOCKS_MAX, BlockCandidates
from autosched.records.failure_attribution import MISHAPS_MAX, DeviceSuspicion
from deadlines import DEADLINE_S

POOLS = (Pool("host", (Unit("host/0"),)), Pool("device:cpu", (Unit("dev0"), Unit("dev1"))))
SPEC = JobSpec(name="net", model="0" * 64)
NETWORK = Network(tasks=tuple(TaskInfo(task=task, name="conv", workload=f"w{task}") for task in (1, 2)))


class Bench:
    """One daemon without connections."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.runtime, self.progress = journal, Runtime(journal, Scheduler()), ProgressRegistry()
        self.doubted: list[str] = []
        self.told: list[tuple[JobId, BlockCandidates]] = []
        self.quarantined: list[tuple[str, str]] = []
        self.happened: list[DaemonEvent] = []
        self.verdicts = AttributionHandler(
            self.runtime, self.progress, cast(Any, SimpleNamespace(doubt=self.doubted.append)),
            lambda unit, verdict: self.quarantined.append((unit, verdict.reason)), DeviceSuspicion(30.0),
        )  # fmt: skip
        self.runtime.replay()
        self.runtime.stream.attach(self.happened.append)
        self.runtime.stream.attach(self._note, ClientNews)
        self._numbers = 0

    def _note(self, event: DaemonEvent) -> None:
        if isinstance(what := event.what, ClientNews) and isinstance(what.news, BlockCandidates):
            self.told.append((what.job, what.news))

    async def job(self, spec: JobSpec = SPEC, identity: Identity | None = None) -> JobId:
        """Returns a job whose client has reported its network."""
        job = self.runtime.state.last_job + 1
        await self.runtime.post(lambda: JobSubmitted(job, spec))
        self.progress.get(job).plan(replace(NETWORK, identity=identity), 100)
        self.verdicts.tell_all(job)
        return job

    async def step(self, job: JobId, device: str, task: int = 1) -> Step:
        """Starts a step of it on this device."""
        avoid = tuple(unit.name for unit in POOLS[1].units if unit.name != device)
        load = TaskLoad(task=task, resources_next=("device:cpu",), stage_next="profile", avoid=avoid)
        await self.runtime.post(lambda: ClientAttached(job, JobLoad(tasks=(load,)), ()))
        (step,) = [step for step in self.runtime.state.steps.values() if step.job == job]
        assert step.units == (device,)
        return step

    async def end(self, step: Step, outcome: Outcome = Outcome.DONE, error: str = "") -> None:
        self.verdicts.ended(step, outcome, error)
        await self.runtime.post(lambda: StepEnded(step.id, outcome))

    async def says(self, step: Step, candidate: str, *, good: bool = False, **words: Any) -> None:
        """Its client reports a measurement."""
        self._numbers += 1
        record = Record(
            **{
                "task": step.task, "number": self._numbers, "candidate": candidate.encode(), "unit": step.units[0],
                "latency_s": (1e-3,) if good else (), "failure": None if good else Failure.RUN_CRASH, **words,
            }
        )  # fmt: skip
        statements = self.verdicts.recorded(step.job, record)
        self.progress.get(step.job).add(Found.of(step.job, record))
        if statements:
            await self.journal.write(*statements)

    async def measures(self, job: JobId, device: str, *candidates: str, good: bool = False, task: int = 1) -> None:
        """Plays a whole step."""
        step = await self.step(job, device, task)
        for candidate in candidates:
            await self.says(step, candidate, good=good)
        await self.end(step)

    def blocked(self) -> list[str]:
        return [case.workload for case in self.verdicts.listed(500, None)]


def live(path: Path, *works: Callable[[Bench], Awaitable[None]]) -> None:
    """Runs each work in a daemon of its own, one after the other."""

    async def one(work: Callable[[Bench], Awaitable[None]]) -> None:
        journal = Journal(path / "db", *TABLES)
        bench = Bench(journal)
        journal.start()
        performer = SimpleNamespace(perform=lambda action: None, changed=lambda job: None)
        loop = spawn(bench.runtime.run(cast(Any, performer)), "loop")
        try:
            async with asyncio.timeout(DEADLINE_S):
                await bench.runtime.post(lambda: ResourcesDeclared(POOLS, 600.0, 600.0))
                await work(bench)
        finally:
            loop.cancel()
            journal.close()

    for work in works:
        asyncio.run(one(work))


async def break_down(bench: Bench, job: JobId, name: str = "x") -> None:
    await bench.measures(job, "dev0", name)
    await bench.measures(job, "dev0", "sound", good=True)
    await bench.measures(job, "dev1", name)


def test_all_clients_with_the_same_task_learn_of_a_blocked_candidate(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        first, second = await bench.job(), await bench.job()
        other = await bench.job(JobSpec(name="net", model="0" * 64, backend="gcc"))
        await break_down(bench, first)
        assert [job for job, _ in bench.told] == [first, second]
        ((note,),) = {told.candidates for _, told in bench.told}
        assert (note.task, note.reason) == (1, "run crash on dev0 (job 1); run crash on dev1 (job 1)")
        assert other not in dict(bench.told)
        assert bench.blocked() == ["w1"]
        assert [one.what.workload for one in bench.happened if isinstance(one.what, CandidateBlocked)] == ["w1"]

    live(tmp_path, work)


def test_blocked_candidates_survive_a_restart_and_reach_later_jobs(tmp_path: Path) -> None:
    async def before(bench: Bench) -> None:
        job = await bench.job()
        await break_down(bench, job)
        await bench.measures(job, "dev0", "once")

    async def after(bench: Bench) -> None:
        assert bench.blocked() == ["w1"]
        job = await bench.job()
        ((told, blocked),) = bench.told
        assert (told, len(blocked.candidates)) == (job, 1)
        await bench.measures(job, "dev1", "sound", good=True)
        await bench.measures(job, "dev1", "once")
        assert bench.blocked() == ["w1", "w1"], "its first failure was in another job and another life"

    live(tmp_path, before, after)


def test_a_candidate_is_blocked_for_one_identity_only(tmp_path: Path) -> None:
    """Another compiler may build it correctly, and another CPU run it."""
    one, other = Identity("znver4", compiler="llvm 22"), Identity("znver4", compiler="llvm 23")

    async def first(bench: Bench) -> None:
        unknown, old = await bench.job(), await bench.job(identity=one)
        new, same = await bench.job(identity=other), await bench.job(replace(SPEC, target="znver4"), identity=one)
        await break_down(bench, old)
        assert [job for job, _ in bench.told] == [old, same]
        assert {unknown, new}.isdisjoint(job for job, _ in bench.told)

    async def second(bench: Bench) -> None:
        await bench.job(identity=other)
        assert bench.told == []
        job = await bench.job(identity=one)
        assert [told for told, _ in bench.told] == [job]

    live(tmp_path, first, second)


def test_an_unblocked_candidate_is_reported_and_stays_unblocked(tmp_path: Path) -> None:
    async def before(bench: Bench) -> None:
        await break_down(bench, await bench.job())
        (case,) = bench.verdicts.listed(500, None)
        bench.told.clear()
        await bench.verdicts.forgive(case.number)
        ((_, told),) = bench.told
        assert [note.reason for note in told.candidates] == [""]
        with pytest.raises(NotFound, match="autosched blocked list"):
            await bench.verdicts.forgive(case.number)

    async def after(bench: Bench) -> None:
        assert bench.blocked() == []

    live(tmp_path, before, after)


def test_a_long_list_of_blocked_candidates_is_paged(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        job = await bench.job()
        names = [str(n) for n in range(BLOCKS_MAX + 1)]
        for device in ("dev0", "dev1"):
            step = await bench.step(job, device)
            for name in names:
                bench.verdicts.recorded(
                    job, Record(task=1, number=0, candidate=name.encode(), failure=Failure.RUN_CRASH, unit=device)
                )
            await bench.says(step, "sound", good=True)
            await bench.end(step)
        bench.told.clear()
        bench.verdicts.tell_all(job)
        assert [len(told.candidates) for _, told in bench.told] == [BLOCKS_MAX, 1]
        last = bench.verdicts.listed(100, None)
        assert [one.number for one in last] == list(range(BLOCKS_MAX - 98, BLOCKS_MAX + 2))
        assert [one.number for one in bench.verdicts.listed(2, last[0].number)] == [BLOCKS_MAX - 100, BLOCKS_MAX - 99]

    live(tmp_path, work)


def test_a_device_that_fails_candidates_valid_elsewhere_is_quarantined(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        job, names = await bench.job(), [str(n) for n in range(MISHAPS_MAX)]
        await bench.measures(job, "dev0", *names)
        assert bench.doubted == ["dev0"] * MISHAPS_MAX
        await bench.measures(job, "dev1", *names, good=True)
        ((device, why),) = bench.quarantined
        assert device == "dev0"
        assert why == "3 mishaps within 10 min, the last: run crash (job 1), which passes elsewhere"
        assert bench.verdicts.blame.cases == {}

    live(tmp_path, work)


def test_a_device_on_which_whole_batches_fail_is_quarantined_and_blocks_no_candidate(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        first, second = await bench.job(), await bench.job()
        await bench.measures(first, "dev1", "sound", good=True)
        batch = [str(n) for n in range(BATCH_LEAST)]
        for job, task in ((first, 1), (first, 1), (first, 2)):
            await bench.measures(job, "dev0", *batch, task=task)
        assert bench.quarantined == [], "one task twice is one mishap"
        assert len(bench.verdicts.blame.cases) == 2 * BATCH_LEAST
        await bench.measures(second, "dev0", *batch)
        ((device, why),) = bench.quarantined
        assert (device, why.partition("last: ")[2]) == ("dev0", "all 3 candidates of job 2, task 1 failed")
        assert bench.verdicts.blame.cases == {}

    async def later(bench: Bench) -> None:
        assert bench.verdicts.blame.cases == {}

    live(tmp_path, work, later)


@pytest.mark.parametrize("good_between", [True, False])
def test_failed_steps_count_against_a_device_without_successes(good_between: bool, tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        for _ in range(MISHAPS_MAX):
            job = await bench.job()
            await bench.measures(job, "dev1", "sound", good=True)
            step = await bench.step(job, "dev0")
            await bench.end(step, Outcome.FAILED, "the device hung")
            if good_between:
                await bench.measures(job, "dev0", "sound", good=True)
        assert [device for device, _ in bench.quarantined] == ([] if good_between else ["dev0"])

    live(tmp_path, work)


@pytest.mark.parametrize(
    ("proven", "failure"), [(True, Failure.RUN_ERROR), (False, Failure.RUN_ERROR), (False, Failure.RUN_CRASH)]
)
def test_a_job_without_valid_measurements_counts_against_no_device(
    proven: bool, failure: Failure, tmp_path: Path
) -> None:
    """The plugin of a new job raises in each step, or for each candidate: the device serves all jobs."""

    async def work(bench: Bench) -> None:
        if proven:
            await bench.measures(await bench.job(), "dev1", "sound", good=True)
        for _ in range(MISHAPS_MAX):
            await bench.end(await bench.step(await bench.job(), "dev0"), Outcome.FAILED, "RuntimeError: boom")
        assert bench.quarantined == []
        for _ in range(MISHAPS_MAX):
            step = await bench.step(await bench.job(), "dev0")
            for candidate in range(BATCH_LEAST):
                await bench.says(step, str(candidate), failure=failure)
            await bench.end(step)
        believed = proven or failure is Failure.RUN_CRASH
        assert [device for device, _ in bench.quarantined] == (["dev0"] if believed else [])

    live(tmp_path, work)


def test_a_few_failed_candidates_in_a_step_count_against_the_candidates(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        for _ in range(2 * MISHAPS_MAX):
            await bench.measures(await bench.job(), "dev0", *(str(n) for n in range(BATCH_LEAST - 1)))
        assert bench.quarantined == []

    live(tmp_path, work)


@pytest.mark.parametrize(
    "words",
    [
        {"unit": "dev1"},
        {"unit": "host/0"},
        {"unit": "nowhere"},
        {"task": 2},
        {"purpose": Purpose.DEFAULT},
        {"failure": Failure.BUILD_CRASH},
        {"failure": Failure.BLOCKED},
    ],
)
def test_failures_without_a_device_are_not_counted(words: dict[str, Any], tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        step = await bench.step(await bench.job(), "dev0")
        await bench.says(step, "x", **words)
        assert bench.verdicts.blame.cases == {}
        assert bench.doubted == []

    live(tmp_path, work)


def test_lost_steps_leave_no_counts(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        job = await bench.job()
        for _ in range(3):
            await bench.says(await bench.step(job, "dev0"), "x", good=True)
        assert len(bench.verdicts._tallies) == 1

    live(tmp_path, work)
