"""Tunes the most useful collected tasks in jobs of several tasks each, for a time budget or without an end.

After each job the tasks are rated again, because tuned ones are less useful. A filler's job has the lowest priority. A
filler that uses idle time cancels its job as soon as the daemon has another one. Measurements go to the record store.
"""

import asyncio
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct
from sqlalchemy.engine import URL

from autosched import api, formatting, task_bundle
from autosched.api.connection import Daemon
from autosched.api.settings import Settings
from autosched.collecting import model_training
from autosched.collecting.collector import Importer
from autosched.collecting.model_training import PRIORITY
from autosched.collecting.usefulness import TRIALS_OF_HALF, Rated, rate
from autosched.errors import AutoschedError, JobCancelled, NotFound, RequestError
from autosched.model import DEVICE_POOL, JobId, JobState
from autosched.protocol import JobList, JobView, ListJobs
from autosched.recordstore import opening
from autosched.recordstore.collected import Collection, Knowledge
from autosched.recordstore.rows import RANKER_GROWTH
from autosched.text.job_selectors import OWN

LABELS = {"made-by": "collect"}
"""Labels of all fillers' jobs."""
TASKS = 8
"""Number of tasks of one job."""
TRIALS = TRIALS_OF_HALF
"""Number of new trials of each task in one job."""
USEFUL_LEAST = 1e-4
"""Minimum expected saving, as a share of the time of all networks, of a task that is worth a job."""
LEFT_LEAST_S = 20.0
"""Minimum seconds of the budget that must be left to begin a job."""
LOOK_S = 0.5
"""Seconds between two checks for other jobs."""
REST_S = 60.0
"""Seconds until tasks are rated again if none was worth a job."""
SCHEDULES_MIN = 1_000
"""Minimum number of schedules from which models are trained."""
FAILURES_MAX = 3
"""Maximum number of jobs in a row that may fail."""
KNOWN_S = 20.0
"""Maximum seconds until a record store has the first measurements of a job."""
SETTLED_S = 6.0
"""Seconds after which a record store with some measurements has all: a daemon gathers for less."""
WEIGHT_MAX = 1_000_000
"""Maximum weight of a task in a job; the least is 1."""
JOBS_MAX = 500
"""Maximum active jobs to check."""
Told = Callable[[str], None]


class Filled(Struct):
    """Work done so far."""

    jobs: int = 0
    trials: int = 0
    took_s: float = 0.0


class Filler:
    """Tunes collected tasks of one scope on one kind of device."""

    def __init__(self, by: Importer, store: str | URL, device: str, told: Told = lambda _: None) -> None:
        """`store`: where the daemon keeps its measurements. `told`: called with words about each job."""
        self._by, self._store, self._device, self._told = by, store, device, told
        self.filled = Filled()
        self._labels = LABELS | {"filler": secrets.token_hex(4)}
        """Labels of this filler's jobs."""
        self._spent: set[str] = set()
        """Workloads whose last job made no trials, because nothing was left to try or it failed."""
        self._failures = 0
        """Number of jobs in a row that failed."""
        self._learned = 0
        """Number of schedules in the store when models were trained last."""

    async def fill(self, daemon: Daemon, budget_s: float) -> None:
        """Tune until the budget, in seconds, is used up or no task is worth more trials. Raises AutoschedError."""
        ends_at = time.monotonic() + budget_s
        while (left_s := ends_at - time.monotonic()) > LEFT_LEAST_S:
            threads = await self._threads(daemon)
            if not (tasks := self._most_useful(threads)):
                return self._told("no task is worth more trials")
            await self._tune(daemon, tasks, threads, left_s, leaves=False)

    async def fill_while_idle(self, daemon: Daemon) -> None:
        """Tune whenever the daemon has no other job; does not return. Raises AutoschedError."""
        while True:
            if await _others(daemon):
                await asyncio.sleep(LOOK_S)
            elif (schedules := self._schedules()) >= max(RANKER_GROWTH * self._learned, SCHEDULES_MIN):
                await self._train(daemon, schedules)
            elif tasks := self._most_useful(threads := await self._threads(daemon)):
                await self._tune(daemon, tasks, threads, None, leaves=True)
            else:
                await asyncio.sleep(REST_S)

    def _schedules(self) -> int:
        with Collection(self._store) as collection:
            return collection.schedule_count()

    async def _train(self, daemon: Daemon, schedules: int) -> None:
        """Train the models that order schedules; stop when other jobs come. `schedules`: number in the store."""
        url = opening.read_url(self._store).render_as_string(hide_password=False)
        words = ["--backend", self._by.backend]
        training = asyncio.ensure_future(model_training.train(url, words, daemon, labels=self._labels))
        try:
            while not (await asyncio.wait({training}, timeout=LOOK_S))[0]:
                if await _others(daemon):
                    return
            trained = training.result()
        except (RequestError, JobCancelled) as error:
            self._told(f"models are not trained: {error}")
        else:
            kept = sum(not one["refused"] for one in trained)
            self._told(f"trained {formatting.count(kept, 'model')} on {formatting.count(schedules, 'schedule')}")
        finally:
            training.cancel()
            with suppress(asyncio.CancelledError, AutoschedError):
                await training
        self._learned = schedules

    async def _threads(self, daemon: Daemon) -> int:
        """Number of cores of the devices of the kind. Raises NotFound if there is none."""
        pool = f"{DEVICE_POOL}{self._device}"
        cores = [len(unit.cores) for unit in await daemon.units() if pool in unit.pools]
        if not cores:
            raise NotFound(f"the daemon has no device of kind {self._device!r}. See what it has:  autosched devices")
        return max(1, *cores)

    def _most_useful(self, threads: int) -> list[Rated]:
        with Collection(self._store) as collection:
            uses = collection.uses(self._by.scope)
            if not uses:
                raise NotFound("no tasks are collected for this target and backend. Name models to collect")
            rated = rate(uses, collection.known(self._by.scope, self._by.backend, threads))
        worth = (one for one in rated if one.useful >= USEFUL_LEAST and one.workload.hash not in self._spent)
        return list(islice(worth, TASKS))

    async def _tune(
        self, daemon: Daemon, tasks: Sequence[Rated], threads: int, left_s: float | None, *, leaves: bool
    ) -> None:
        """Run a job for these tasks. `left_s`: maximum seconds. `leaves`: whether it is cancelled when other jobs
        come."""
        began_at = time.monotonic()
        settings = Settings(
            trials=sum(one.known.tried + TRIALS for one in tasks), target=self._by.asked_target, device=self._device,
            backend=self._by.backend, priority=PRIORITY, labels=self._labels, deadline_s=left_s,
        )  # fmt: skip
        try:
            with tempfile.TemporaryDirectory(prefix="autosched-tasks-") as folder:
                path = Path(folder) / f"tasks{task_bundle.ENDING}"
                task_bundle.write(self._bundle(tasks), path)
                job = await api.submit(daemon, api.Model(path), settings)
            view = await self._watched(daemon, job, left_s, leaves)
        except asyncio.CancelledError:
            for own in await _active(daemon, self._labels):  # the answer to its submission may still be on its way
                await daemon.cancel(own.job)
            raise
        took_s = time.monotonic() - began_at
        self.filled = Filled(self.filled.jobs + 1, self.filled.trials + view.trials, self.filled.took_s + took_s)
        if view.state != JobState.CANCELLED.value and not view.trials:  # the next job would have the same result
            self._spent.update(one.workload.hash for one in tasks)
        if view.state == JobState.FAILED.value:
            self._failures += 1
            why = f"job {job} failed: {'' if view.failure is None else view.failure.message}. See:  autosched job {job}"
            if self._failures >= FAILURES_MAX:
                raise RequestError(f"{FAILURES_MAX} jobs failed one after the other; {why}")
            return self._told(why)
        self._failures = 0
        known = await self._known(tasks, threads, view.trials) if view.trials else {}
        ended = formatting.count(len(tasks), "task"), formatting.count(view.trials, "trial")
        left = "; it left for another job" if leaves and view.state == JobState.CANCELLED.value else ""
        self._told(f"job {job}: {ended[0]}, {ended[1]} in {formatting.duration(took_s)}{_gained(tasks, known)}{left}")

    async def _watched(self, daemon: Daemon, job: JobId, left_s: float | None, leaves: bool) -> JobView:
        """Wait for the end of a job; cancel it when its time is over or others come."""
        ends_at = None if left_s is None else time.monotonic() + left_s
        async for view in daemon.follow(job, wait_s=LOOK_S):
            over = ends_at is not None and time.monotonic() > ends_at
            if not JobState(view.state).ended and (over or (leaves and await _others(daemon))):
                await daemon.cancel(job)
        return view

    def _bundle(self, tasks: Sequence[Rated]) -> task_bundle.TaskBundle:
        """The file of a job. Weights make the allocation of trials follow the tasks' shares of time."""
        with Collection(self._store) as collection:
            programs = collection.programs([one.workload.hash for one in tasks])
        calls = [one.share / one.latency_s for one in tasks]
        return task_bundle.TaskBundle(
            tuple(
                task_bundle.BundledTask(
                    one.workload.name, one.workload.hash, one.workload.shape, one.workload.flops,
                    max(1, min(WEIGHT_MAX, round(count / min(calls)))), programs[one.workload.hash],
                )
                for one, count in zip(tasks, calls, strict=True)
            )
        )  # fmt: skip

    async def _known(self, tasks: Sequence[Rated], threads: int, trials: int) -> dict[str, Knowledge]:
        """Wait until the record store has the trials of a job; return the knowledge of its tasks.

        Raises RequestError if the store has none of them.
        """
        before = tried = sum(one.known.tried for one in tasks)
        grew_at = time.monotonic()
        with Collection(self._store) as collection:
            while True:
                known = collection.known(self._by.scope, self._by.backend, threads)
                found = {one.workload.hash: known[one.workload.hash] for one in tasks if one.workload.hash in known}
                if (now := sum(one.tried for one in found.values())) > tried:
                    tried, grew_at = now, time.monotonic()
                if tried >= before + trials or (tried > before and time.monotonic() > grew_at + SETTLED_S):
                    return found
                if time.monotonic() > grew_at + KNOWN_S:
                    raise RequestError(
                        f"what was measured is not in the record store {self._store} after {KNOWN_S:g} s: the daemon"
                        " keeps its measurements in another one. Name that one with --store, or its settings with"
                        " --config"
                    )
                await asyncio.sleep(LOOK_S)


async def _others(daemon: Daemon) -> bool:
    """Whether the daemon has a job that is not a filler's."""
    return any(not view.held and LABELS.items() - view.labels.items() for view in await _active(daemon, {}))


async def _active(daemon: Daemon, labels: Mapping[str, str]) -> Sequence[JobView]:
    """Jobs with these labels that have not ended."""
    return (
        await daemon.link.call(ListJobs(limit=JOBS_MAX, owner=OWN, state="active", labels=dict(labels)), JobList)
    ).jobs


def _gained(tasks: Sequence[Rated], known: dict[str, Knowledge]) -> str:
    """Speed-up of the tasks over no tuning, in words; empty if one of them is unknown."""
    pairs = [
        (one.share, found.best_s / found.untuned_s)
        for one in tasks
        if (found := known.get(one.workload.hash)) and found.best_s and found.untuned_s
    ]
    whole = sum(share for share, _ in pairs)
    return f", {formatting.ratio(whole / sum(s * r for s, r in pairs))} as fast as untuned" if pairs else ""
