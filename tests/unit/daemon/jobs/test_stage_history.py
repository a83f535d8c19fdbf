"""Stage times of earlier jobs: unused ones take no memory, and are never overwritten."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import structs

from autosched.backend import Network
from autosched.core.events import HistoryRecalled, JobSubmitted
from autosched.core.scheduler import Scheduler
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.jobs.stage_history import History
from autosched.daemon.runtime import Runtime, spawn
from autosched.daemon.storage import stage_times
from autosched.daemon.storage.journal import Journal
from autosched.model import Identity, JobSpec, Outcome, StageHistory, TaskInfo
from autosched.protocol import Span
from deadlines import DEADLINE_S

SPEC = JobSpec(name="net", model="0" * 64, external=True)
NETWORK = Network(tasks=(TaskInfo(task=1, name="conv", workload="w"),))


class NoPerformer:
    """Performs nothing."""

    def perform(self, action: object) -> None: ...

    def changed(self, job: int) -> None: ...


def live(path: Path, work: Callable[[Runtime, History], Awaitable[None]]) -> None:
    """Runs a daemon with one more job."""

    async def run() -> None:
        journal = Journal(path, *stage_times.TABLES)
        runtime, progress = Runtime(journal, Scheduler()), ProgressRegistry()
        runtime.replay()
        journal.start()
        loop, past = spawn(runtime.run(NoPerformer()), "loop"), History(runtime, progress)
        try:
            async with asyncio.timeout(DEADLINE_S):
                job = runtime.state.last_job + 1
                await runtime.post(lambda: JobSubmitted(job, SPEC))
                progress.get(job).plan(NETWORK, 4)
                await work(runtime, past)
        finally:
            loop.cancel()
            journal.close()

    asyncio.run(run())


def span(runtime: Runtime, worked_s: float, task: int = 1) -> Span:
    job = runtime.state.last_job
    return Span(1, job, task, "build", ("host/0",), 0.0, 0.0, worked_s, Outcome.DONE.value, worked_s)


async def end(runtime: Runtime, past: History, worked_s: float, task: int = 1) -> None:
    await runtime.journal.write(*past.rows([span(runtime, worked_s, task)]))


def told(path: Path) -> tuple[StageHistory, ...]:
    """Returns the stage times that the last job received."""
    journal = Journal(path, *stage_times.TABLES)
    try:
        *_, last = (event for _, event, _ in journal.replay())
    finally:
        journal.close()
    assert isinstance(last, HistoryRecalled)
    return last.stages


def test_totals_survive_restarts_and_reach_later_jobs(tmp_path: Path) -> None:
    async def one_step(runtime: Runtime, past: History) -> None:
        await past.look_up(runtime.state.last_job)
        await end(runtime, past, 3.0)
        await end(runtime, past, 8.0, task=0)

    async def come(runtime: Runtime, past: History) -> None:
        await past.recall(runtime.state.last_job)

    for _ in range(2):
        live(tmp_path / "db", one_step)
    live(tmp_path / "db", come)
    assert told(tmp_path / "db") == (StageHistory(0, "build", 8.0, 2), StageHistory(1, "build", 3.0, 2))


def test_unread_totals_are_not_overwritten(tmp_path: Path) -> None:
    async def known(runtime: Runtime, past: History) -> None:
        await past.look_up(runtime.state.last_job)
        await end(runtime, past, 3.0)

    async def ahead(runtime: Runtime, past: History) -> None:
        assert past.rows([span(runtime, 99.0)]) == ()
        await past.recall(runtime.state.last_job)

    live(tmp_path / "db", known)
    live(tmp_path / "db", ahead)
    assert told(tmp_path / "db") == (StageHistory(1, "build", 3.0, 1),)


def test_concurrent_reads_lose_no_added_times(tmp_path: Path) -> None:
    async def work(runtime: Runtime, past: History) -> None:
        job = runtime.state.last_job
        late = asyncio.ensure_future(past.look_up(job))
        await asyncio.sleep(0)  # it has asked, and has no answer yet
        await past.look_up(job)
        await end(runtime, past, 3.0)
        await late
        await end(runtime, past, 5.0)
        await past.recall(job)

    live(tmp_path / "db", work)
    assert told(tmp_path / "db") == (StageHistory(1, "build", 4.0, 2),)


def under(identity: Identity | None) -> Network:
    """Returns the network of a client with this identity."""
    return structs.replace(NETWORK, identity=identity)


def test_times_of_one_identity_do_not_reach_another(tmp_path: Path) -> None:
    """Two models of CPU once shared a mean, since both were the target "auto"."""
    seconds = {Identity("znver4", "EPYC"): 3.0, Identity("skylake", "Xeon"): 9.0, None: 20.0}

    def a_step(identity: Identity | None, worked_s: float) -> None:
        async def work(runtime: Runtime, past: History) -> None:
            past._progress.get(runtime.state.last_job).plan(under(identity), 4)
            await past.look_up(runtime.state.last_job)
            await end(runtime, past, worked_s)

        live(tmp_path / "db", work)

    def asked(identity: Identity | None) -> tuple[StageHistory, ...]:
        async def work(runtime: Runtime, past: History) -> None:
            past._progress.get(runtime.state.last_job).plan(under(identity), 4)
            await past.recall(runtime.state.last_job)

        live(tmp_path / "db", work)
        return told(tmp_path / "db")

    for identity, worked_s in seconds.items():
        a_step(identity, worked_s)
    for identity, worked_s in seconds.items():
        assert asked(identity) == (StageHistory(1, "build", worked_s, 1),)


def test_times_of_imports_are_known_before_the_identity(tmp_path: Path) -> None:
    async def imported(runtime: Runtime, past: History) -> None:
        job = runtime.state.last_job
        past._progress.get(job).plan(Network(tasks=()), 4)
        await past.recall(job)  # its client has come
        past._progress.get(job).plan(under(Identity("znver4", "EPYC")), 4)
        await past.recall(job)  # and reports its network, before the step ends
        steps = [structs.replace(span(runtime, 7.0, 0), stage=stage) for stage in ("import", "compile")]
        await runtime.journal.write(*past.rows(steps))

    async def come(runtime: Runtime, past: History) -> None:
        past._progress.get(runtime.state.last_job).network = None
        await past.recall(runtime.state.last_job)

    async def planned(runtime: Runtime, past: History) -> None:
        past._progress.get(runtime.state.last_job).plan(under(Identity("znver4", "EPYC")), 4)
        await past.recall(runtime.state.last_job)

    live(tmp_path / "db", imported)
    live(tmp_path / "db", come)
    assert told(tmp_path / "db") == (StageHistory(0, "import", 7.0, 1),)
    live(tmp_path / "db", planned)
    assert {(one.stage, one.mean_s) for one in told(tmp_path / "db")} == {("import", 7.0), ("compile", 7.0)}
