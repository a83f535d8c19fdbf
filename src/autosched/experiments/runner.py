"""Runs an experiment: submits missing jobs, waits for them, and keeps a row of each.

Before submitting, the daemon is asked for existing jobs by their labels. The next run therefore continues after any
kill, and runs nothing twice.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from msgspec import Struct

from autosched import api
from autosched.api import on_demand, result_folder
from autosched.api.connection import Daemon, off_devices
from autosched.config import load
from autosched.errors import AutoschedError, Busy, DaemonUnreachable, NotFound, RequestError, WireError
from autosched.experiments import page
from autosched.experiments.plan import AT_ONCE, Plan, PlannedJob
from autosched.experiments.rows import Row, row_of
from autosched.experiments.workspace import Workspace
from autosched.model import COMBINATION, EXPERIMENT, Goal, JobId, JobState
from autosched.protocol import JobList, JobView, ListJobs
from autosched.text.job_selectors import OWN

PAGE = 500
"""Maximum jobs of one answer."""
WAIT_S = 20.0
"""Seconds that a request for a job waits for news."""
LOST_MAX_S = 600.0
"""Seconds without progress after which a run gives up a daemon that is unreachable or overloaded."""
PAUSE_S = 2.0
"""Seconds between attempts to reconnect to a lost daemon."""


class Progress(Struct):
    """Progress of a run; updated while it runs."""

    total: int
    rows: dict[str, Row]
    """Rows of ended jobs, by combination."""
    running: dict[str, JobView]
    """Views of the jobs that run or wait, by combination."""
    before: frozenset[str]
    """Combinations that had ended before the run."""
    note: str = ""


Watch = Callable[[Progress], None]


class Runner:
    """One run of an experiment."""

    def __init__(
        self, plan: Plan, workspace: Workspace, host: str | None = None, *, watch: Watch = lambda _: None,
        retry_failed: bool = False,
    ) -> None:  # fmt: skip
        """`host`: address of the daemon for an experiment without one of its own. `watch` is called on each news.
        `retry_failed`: jobs that failed run once more."""
        self._plan, self._workspace, self._host, self._watch = plan, workspace, host, watch
        known = workspace.rows_of(plan)
        self._failed = {row.job for row in known.values() if retry_failed and row.state == JobState.FAILED.value}
        """Failed jobs to run once more."""
        rows = {name: row for name, row in known.items() if row.job not in self._failed}
        self.progress = Progress(len(plan.jobs), rows, {}, frozenset(rows))
        self._advanced_at = time.monotonic()
        self._connected = False
        """Whether a daemon has answered: one that is unreachable from the start stays so."""

    @property
    def left(self) -> list[PlannedJob]:
        """Jobs without a row."""
        return [job for job in self._plan.jobs if job.combination not in self.progress.rows]

    async def run(self) -> Progress:
        """Run what is left; returns the progress at the end. Raises AutoschedError if it cannot continue."""
        while self.left:
            try:
                for _, some in groupby(self.left, key=lambda job: job.daemon):
                    await self._under(list(some))
            except (Busy, DaemonUnreachable, WireError) as error:
                if not self._connected or time.monotonic() - self._advanced_at > LOST_MAX_S:
                    raise
                what = "has too much to do" if isinstance(error, Busy) else "is gone; it is started again"
                self._say(f"the daemon {what} ({error})")
                self.progress.running.clear()
                await asyncio.sleep(PAUSE_S)
        return self.progress

    async def _under(self, jobs: Sequence[PlannedJob]) -> None:
        """Run jobs that need the same daemon."""
        async with self._daemon(jobs[0].daemon) as daemon, off_devices(daemon):
            self._connected = True
            self._say("")
            for _, batch in self._plan.batches(jobs):
                there = await find_jobs(daemon, self._plan.definition.name)
                await self._together(
                    daemon, batch, {name: view.job for name, view in there.items() if view.job not in self._failed}
                )

    async def _together(self, daemon: Daemon, jobs: Sequence[PlannedJob], there: dict[str, JobId]) -> None:
        """Run jobs at the same time, up to the maximum."""
        definition = self._plan.definition
        usual = len(jobs) if definition.together else AT_ONCE
        places = asyncio.Semaphore(definition.at_once or usual)
        begun = {job.combination for job in jobs if job.combination in there}

        async def one(job: PlannedJob) -> None:
            async with places:
                await self._one(daemon, job, there.get(job.combination))

        try:
            async with asyncio.TaskGroup() as group:
                for job in sorted(jobs, key=lambda job: job.combination not in begun):
                    group.create_task(one(job))
        except ExceptionGroup as errors:  # not `except*`, which before Python 3.11.4 raises a group again
            known, others = errors.split(AutoschedError)
            if known is None or others is not None:
                raise
            raise known.exceptions[0] from None

    async def _one(self, daemon: Daemon, job: PlannedJob, number: JobId | None) -> None:
        if number is None:
            settings = self._plan.settings(job)
            if settings.cores is not None:
                kind = on_demand.kind_of_cores(await daemon.units(), settings.device, settings.cores)
                settings = replace(settings, device=kind)
            number = await api.submit(daemon, job.model, settings)
            self._advanced_at = time.monotonic()
        async for view in daemon.follow(number, wait_s=WAIT_S):
            self.progress.running[job.combination] = view
            self._advanced_at = time.monotonic()
            self._watch(self.progress)
        await self._keep(daemon, job, view)

    async def _keep(self, daemon: Daemon, job: PlannedJob, view: JobView) -> None:
        gathered, records = await result_folder.gather(daemon, view, await daemon.artifacts(view.job))
        policy, units = await daemon.policy(), await daemon.units()
        row = row_of(job.combination, job.values, self._plan.batch(job), gathered, policy, units)
        folder = self._workspace.report(job.combination)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            result_folder.write(folder, gathered, result_folder.saved(records, gathered.job.identities))
        except OSError as error:
            raise RequestError(
                f"the report of job {view.job} cannot be written to {folder}: {error.strerror}. Make room, and run the"
                " experiment again: nothing is lost"
            ) from None
        self._workspace.add(row)
        self.progress.running.pop(job.combination, None)
        self.progress.rows[job.combination] = row
        self._write_page()
        self._advanced_at = time.monotonic()
        self._watch(self.progress)

    @asynccontextmanager
    async def _daemon(self, wanted: dict[str, str]) -> AsyncIterator[Daemon]:
        """The daemon with these parameters."""
        if not self._plan.definition.own_daemon:
            async with on_demand.connected(self._host, told=self._say) as daemon:
                yield daemon
            return
        async with own_daemon(self._plan, self._workspace, wanted.get("settings", "")) as daemon:
            policy, goal = wanted.get("policy"), wanted.get("goal")
            if policy is not None or goal is not None:
                await daemon.choose_policy(policy, Goal(goal) if goal is not None else None)
            yield daemon

    def _write_page(self) -> None:
        """Write the page of the present results."""
        rows, planned = self.progress.rows, self._plan
        ended = [rows[job.combination] for job in planned.jobs if job.combination in rows]
        self._workspace.write_page(page.page(planned.definition, ended, len(planned.jobs), planned.varied))

    def _say(self, note: str) -> None:
        self.progress.note = note
        self._watch(self.progress)


@asynccontextmanager
async def own_daemon(plan: Plan, workspace: Workspace, settings: str, *, start: bool = True) -> AsyncIterator[Daemon]:
    """The experiment's separate daemon with these settings, relative to its file. Raises RequestError for settings with
    another state folder."""
    words, socket = list[str](), ""
    if settings:
        path = plan.definition.file.parent / settings
        where = load(path).daemon
        if where.state_dir:
            raise RequestError(f"{path}: the daemon of an experiment lives in its folder; leave out daemon.state_dir")
        words, socket = ["-c", str(path)], where.socket
    state = workspace.state(Path(settings).stem)
    async with on_demand.separate(state, words, socket=socket, start=start) as daemon:
        yield daemon


async def find_jobs(daemon: Daemon, experiment: str) -> dict[str, JobView]:
    """The experiment's jobs by combination, the latest of each; cancelled ones do not count."""
    found: dict[str, JobView] = {}
    before: JobId | None = None
    while True:
        asked = ListJobs(limit=PAGE, owner=OWN, labels={EXPERIMENT: experiment}, before=before)
        page = (await daemon.link.call(asked, JobList)).jobs
        for view in reversed(page):
            if view.state != JobState.CANCELLED.value:
                found.setdefault(view.labels.get(COMBINATION, ""), view)
        if len(page) < PAGE:
            return found
        before = page[0].job


async def cancel_jobs(daemon: Daemon, experiment: str) -> int:
    """Cancel the experiment's jobs that have not ended; returns their number."""
    active = [view for view in (await find_jobs(daemon, experiment)).values() if not JobState(view.state).ended]
    for view in active:
        try:
            await daemon.cancel(view.job)
        except NotFound:
            continue
    return len(active)


async def stop_jobs(plan: Plan, workspace: Workspace, host: str | None = None) -> int:
    """Cancel the unfinished jobs of an experiment, in each daemon that runs; returns their number."""
    if not plan.definition.own_daemon:
        async with on_demand.connected(host, start=False) as daemon:
            return await cancel_jobs(daemon, plan.definition.name)
    cancelled = 0
    for settings in dict.fromkeys(job.daemon.get("settings", "") for job in plan.jobs):
        try:
            async with own_daemon(plan, workspace, settings, start=False) as daemon:
                cancelled += await cancel_jobs(daemon, plan.definition.name)
        except DaemonUnreachable:
            continue
    return cancelled
