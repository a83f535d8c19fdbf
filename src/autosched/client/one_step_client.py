"""A client for one step: holds the lease of a unit while code of the user runs on it.

A measurement or a training by a user therefore waits for the unit as jobs do, and disturbs no other measurement.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from autosched.client.daemon_session import DaemonSession
from autosched.errors import AutoschedError, DaemonUnreachable, JobCancelled, WireError
from autosched.model import NETWORK_TASK, JobFailure, JobLoad, JobSpec, Outcome, TaskLoad
from autosched.protocol import (
    AskLoad,
    BlobState,
    CancelJob,
    Done,
    EndStep,
    Goodbye,
    Method,
    PutBlob,
    Return,
    RevokeStep,
    StartStep,
    Stop,
    Submit,
    Submitted,
)
from autosched.wire.link import Link

T = TypeVar("T")
Work = Callable[[StartStep], Awaitable[T]]
WAIT_MAX_S = 24 * 3600.0
SAID_AFTER_S = 2.0
SEARCH_S = 60.0
"""Maximum seconds of the search for a lost daemon."""
REPORT_S = 15.0
"""Maximum seconds that the user waits for the report of a finished measurement."""


class _Visitor:
    """Answers the daemon's calls until the step is ordered."""

    def __init__(self, load: TaskLoad) -> None:
        self._load = load
        self.order: asyncio.Future[StartStep] = asyncio.get_running_loop().create_future()
        self.revoked = asyncio.Event()
        self.reason = ""

    def standing(self) -> Return:
        """The message to a daemon after a reconnect: whether the step was ordered."""
        if not self.order.done():
            return Return(steps=(), load=JobLoad(tasks=(self._load,)))
        load = TaskLoad(task=self._load.task, stage_done=False)
        return Return(steps=(self.order.result().step.id,), load=JobLoad(tasks=(load,)))

    async def handle(self, method: Method) -> Struct:
        match method:
            case AskLoad():
                return JobLoad(tasks=(self._load,))
            case StartStep():
                if not self.order.done():
                    self.order.set_result(method)
            case Goodbye():
                pass
            case RevokeStep(reason=reason) | Stop(reason=reason):
                self.reason = reason
                self.revoked.set()
            case _:
                raise WireError(f"a visitor does not answer {type(method).__name__}")
        return Done()


async def run_under_lease(
    user: Link,
    address: str,
    spec: JobSpec,
    load: TaskLoad,
    work: Work[T],
    *,
    waiting: Callable[[int], None] | None = None,
) -> T:
    """Submit `spec` as an external job of one step, `load`; run `work` when the daemon starts the step, and report its
    end.

    `address`: where clients connect; `waiting` is called with the job's number if the lease does not come at once.
    Raises the exceptions of `work`, and JobCancelled if the step is revoked.
    """
    spec = await _with_blob(user, spec)
    submitted = await user.call(Submit(spec=spec), Submitted)
    visitor = _Visitor(load)
    try:
        line = DaemonSession(address, submitted.job, submitted.token, SEARCH_S)
        await line.open(visitor.handle)
        loop = asyncio.get_running_loop()
        beat, keep = loop.create_task(line.beat()), loop.create_task(line.keep(visitor.standing))
        try:
            order = await _lease(visitor, keep, submitted.job, waiting)
            return await _run(visitor, line, order, work)
        finally:
            beat.cancel()
            keep.cancel()
            line.close()
    except BaseException:
        with suppress(AutoschedError):  # the job may have ended already, or the daemon
            await user.call(CancelJob(job=submitted.job), Done)
        raise


async def _with_blob(user: Link, spec: JobSpec) -> JobSpec:
    """Upload the content that each job must name; here it is the job's name."""
    from msgspec.structs import replace

    data = spec.name.encode()
    sha256 = hashlib.sha256(data).hexdigest()
    state = await user.call(PutBlob(sha256=sha256, total=len(data), offset=0, data=b""), BlobState)
    if not state.complete:
        await user.call(PutBlob(sha256=sha256, total=len(data), offset=state.bytes_have, data=data), BlobState)
    return replace(spec, model=sha256, external=True)


async def _lease(
    visitor: _Visitor, lost: asyncio.Task[str], job: int, waiting: Callable[[int], None] | None
) -> StartStep:
    """Wait for the lease, the loss of the daemon or the end of the job, whichever comes first."""
    stopped = asyncio.ensure_future(visitor.revoked.wait())
    ends: set[asyncio.Future[object]] = {visitor.order, lost, stopped}  # type: ignore[arg-type]
    try:
        done, _ = await asyncio.wait(ends, timeout=SAID_AFTER_S, return_when=asyncio.FIRST_COMPLETED)
        if not done and waiting is not None:
            waiting(job)
        if not done:
            done, _ = await asyncio.wait(ends, timeout=WAIT_MAX_S, return_when=asyncio.FIRST_COMPLETED)
        if visitor.order.done():
            return visitor.order.result()
        if stopped.done():
            raise JobCancelled(f"job {job} was stopped while it waited for its unit: {visitor.reason}")
        why = lost.result() if lost.done() else "timeout"
        raise DaemonUnreachable(f"the daemon went away while job {job} waited for its unit: {why}")
    finally:
        stopped.cancel()


async def _run(visitor: _Visitor, line: DaemonSession, order: StartStep, work: Work[T]) -> T:
    running = asyncio.ensure_future(work(order))
    stopped = asyncio.ensure_future(visitor.revoked.wait())
    outcome, failure = Outcome.DONE, None
    try:
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise JobCancelled(f"the step was stopped: {visitor.reason}")
        return running.result()
    except BaseException as error:
        code = error.code if isinstance(error, AutoschedError) else "job_failed"
        interrupted = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
        why = "interrupted by its user" if interrupted else str(error)[:4_000] or type(error).__name__
        outcome, failure = Outcome.FAILED, JobFailure(code, why)
        raise
    finally:
        stopped.cancel()
        if not running.done():
            running.cancel()
            with suppress(asyncio.CancelledError, AutoschedError):
                await running
        ended = TaskLoad(task=NETWORK_TASK, complete=True)
        load = JobLoad(tasks=(ended,), complete=True, failure=failure)
        end = EndStep(step=order.step.id, outcome=outcome, load=load)
        with suppress(AutoschedError, TimeoutError):  # a daemon that is gone needs no report
            async with asyncio.timeout(REPORT_S):
                await line.end(lambda _: end)
