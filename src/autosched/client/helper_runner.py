"""Helps a client on another host: runs the stages of its tuners on this host's units, and returns the results.

A helper decides nothing and keeps no state that matters: its orders come with each part of a step.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct, structs

from autosched import backend
from autosched.backend import Built, Lease, Measured, Network, Session, Tuner
from autosched.client import backend_boundary, job_files
from autosched.client.daemon_session import DaemonSession
from autosched.client.interference import InterferenceMonitor
from autosched.client.moved_builds import MovedBuilds
from autosched.client.pinning import in_thread, keep_to, on_lane
from autosched.errors import RequestError, StepFailed, WireError
from autosched.model import JobLoad, JobSpec, StepId, TaskIndex
from autosched.protocol import (
    AskLoad,
    Done,
    GetOrder,
    Goodbye,
    JobOrder,
    Method,
    MovedBuild,
    PartEnded,
    PartResult,
    Return,
    RevokeStep,
    RunElsewhere,
    Stop,
    Work,
)
from autosched.sentinel import run_sentinel
from autosched.stages import IMPORT

log = logging.getLogger(__name__)

IMPORT_TIMEOUT_S = 1_800.0
"""Maximum seconds of the model's import."""
KILL_GRACE_S = 5.0
"""Maximum seconds that a part may run after its processes were killed. If it does not end, this process ends."""
THREADS_MAX = 4_096
"""Maximum threads; more than the lanes and devices of any machine."""


class HelperRunner:
    """State of one helper."""

    def __init__(self, workdir: Path, line: DaemonSession) -> None:
        self._workdir, self._line = workdir, line
        self._builds = MovedBuilds(line, workdir / "moved")
        self._opened: asyncio.Future[tuple[Session, Network, JobSpec]]
        self._opened = asyncio.get_running_loop().create_future()
        self._session: Session | None = None
        self._tuners: dict[TaskIndex, Tuner] = {}
        self._parts: dict[tuple[StepId, int], asyncio.Task[None]] = {}
        """All ordered parts. A part that is ordered again is not run again."""
        self._leases: dict[StepId, Lease] = {}
        self._revoked: dict[StepId, str] = {}
        self._pool = ThreadPoolExecutor(THREADS_MAX, "part")

    async def begin(self) -> None:
        """Fetch the job, and import its model. Raises the error that prevents it; this process then ends and logs
        it."""
        order = await self._line.ask(GetOrder(), JobOrder)
        keep_to(order.host_cores)
        spec, network = order.spec, order.network
        if network is None:
            raise RequestError(f"the client of job {order.job} has not imported its model")
        if network.identity is not None and network.identity.target:
            spec = structs.replace(spec, target=network.identity.target)
        model = await job_files.fetch_inputs(self._line, spec, self._workdir)

        def opened() -> tuple[Session, Network]:
            loaded = backend.load(spec.backend)
            session = backend_boundary.opened(loaded, spec, model, self._workdir, order.device_cores)
            if not session.movable:
                raise RequestError(f"backend {spec.backend!r} runs no stages on other hosts")
            self._session = session
            lease = Lease(stage=IMPORT, units=(), cores=order.host_cores, timeout_s=IMPORT_TIMEOUT_S)
            return session, backend_boundary.network(session.import_tasks(lease))

        session, here = await asyncio.to_thread(opened)
        log.info("the model is imported: %d tasks", len(here.tasks))
        self._opened.set_result((session, here, spec))

    def standing(self) -> Return | None:
        """The message to a daemon after a reconnect."""
        return Return(steps=tuple(self._leases), load=JobLoad())

    def kill(self) -> None:
        """End all processes that work for the helper."""
        if self._session is not None:
            self._session.kill()

    async def handle(self, method: Method) -> Struct:
        """Answer one call of the daemon."""
        match method:
            case RunElsewhere():
                self._start(method)
            case RevokeStep(step=step, reason=reason):
                self._revoke(step, reason)
            case AskLoad():
                return JobLoad()
            case Goodbye(reason=reason):
                log.info("the daemon goes, and comes back: %s", reason)
            case Stop(reason=reason):
                log.info("stopping: %s", reason)
                self.kill()
                os._exit(0)
            case _:
                raise WireError(f"a helper does not answer {type(method).__name__}")
        return Done()

    def _start(self, order: RunElsewhere) -> None:
        part = (order.step, order.part)
        if part in self._parts:
            return
        if order.lease is None:
            raise WireError("a part of a step has no lease")
        said = order.lease
        lease = Lease(
            stage=said.stage, units=said.units, cores=said.cores, timeout_s=said.timeout_s, step=order.step,
            gpu=said.gpu,
        )  # fmt: skip
        self._leases[order.step] = lease
        task = self._parts[part] = asyncio.get_running_loop().create_task(self._run(order, lease))
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a part of a step could not be reported; ending", exc_info=error)
            self.kill()
            os._exit(1)

    def _revoke(self, step: StepId, reason: str) -> None:
        """Kill the processes of a step. If the step does not end then, it hangs in this process: end the process."""
        lease = self._leases.get(step)
        if lease is None:
            return
        log.warning("step %d is revoked: %s", step, reason)
        self._revoked[step] = reason
        if self._session is None:
            return  # a part that was not begun does not start after the import
        self._session.kill(lease)

        def check() -> None:
            if step in self._leases:
                log.error("step %d does not end: it hangs in the backend's own code; ending this process", step)
                self.kill()
                os._exit(1)

        asyncio.get_running_loop().call_later(KILL_GRACE_S, check)

    # A part of a step -------------------------------------------------------------------------------------------------

    async def _run(self, order: RunElsewhere, lease: Lease) -> None:
        await asyncio.shield(self._opened)
        try:
            ended = await self._work(order, lease)
        finally:
            self._leases.pop(order.step, None)
        await self._line.ask(PartEnded(step=order.step, part=order.part, ended=ended), Done)
        del self._parts[order.step, order.part]

    async def _work(self, order: RunElsewhere, lease: Lease) -> PartResult:
        watch = InterferenceMonitor(() if on_lane(lease) else lease.cores)
        measured: list[Measured] = []
        sent: tuple[MovedBuild, ...] = ()
        brought: list[Built] = []
        error, loop = "", asyncio.get_running_loop()
        began_at, worked_s = loop.time(), 0.0
        try:
            if (reason := self._revoked.get(order.step)) is not None:
                raise StepFailed(f"it was revoked before it began: {reason}")
            tuner = self._tuner(order)
            brought = await self._builds.bring_all(map(self._builds.came, order.builds))
            if watch.cores:
                await in_thread(self._pool, lease, lambda: watch.begin(run_sentinel if order.sentinel else None))
            began_at = loop.time()
            overdue = loop.call_later(lease.timeout_s, self._revoke, order.step, f"its {lease.timeout_s:g} s are over")
            try:
                builds = await in_thread(
                    self._pool, lease, _work_of(order, tuner, brought, lease, measured, self._workdir)
                )
            finally:
                overdue.cancel()
                worked_s = loop.time() - began_at
                await in_thread(self._pool, lease, watch.end)
            sent = tuple([await self._builds.send(built) for built in builds])
        except Exception as failed:  # boundary to plugin code: any exception is this part's failure
            error = f"{type(failed).__name__}: {failed}"
            log.warning("part %d of step %d failed", order.part, order.step, exc_info=failed)
        self._builds.forget(brought)
        return PartResult(sent, tuple(measured), watch.note, watch.disturbed, worked_s, error[:4_000])

    def _tuner(self, order: RunElsewhere) -> Tuner:
        session, network, spec = self._opened.result()
        if (known := self._tuners.get(order.task.task)) is not None:
            return known
        own = next((info for info in network.tasks if info.task == order.task.task), None)
        if own is None or own.workload != order.task.workload:
            raise RequestError(
                f"task {order.task.task} is another one here: the model was imported otherwise than on the client's"
                " host. Give both the same versions"
            )
        tuner = self._tuners[own.task] = session.tuner(own, spec.seed)
        return tuner


def _work_of(
    order: RunElsewhere, tuner: Tuner, brought: Sequence[Built], lease: Lease, measured: list[Measured], folder: Path
) -> Callable[[], Sequence[Built]]:
    """The function of the part's thread. It returns the builds, and adds each measurement to `measured`. `folder`: the
    one of new builds."""

    def work() -> Sequence[Built]:
        if order.work is Work.BUILD:
            built = backend_boundary.built(tuner.build(order.candidates, lease), order.candidates)
            backend_boundary.check_space(folder, built)
            return built
        left = [one.candidate for one in brought]
        answers = tuner.compare(brought, lease) if order.work is Work.COMPARE else tuner.profile(brought, lease)
        for answer in backend_boundary.each(answers):
            measured.append(backend_boundary.measured(answer, left))  # noqa: PERF401 - all before an error count
        return ()

    return work
