"""A client for one step: holds a device's lease while something of the user's own runs on it.

So a measurement by hand waits for the device like every job, and disturbs no other measurement.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from autosched.errors import AutoschedError, DaemonUnreachable, JobCancelled, WireError
from autosched.link import Link
from autosched.model import NETWORK_TASK, JobFailure, JobLoad, JobSpec, Outcome, TaskLoad
from autosched.protocol import (
    DAEMON_METHODS,
    PROTOCOL,
    AskLoad,
    BlobState,
    CancelJob,
    Done,
    EndStep,
    Heartbeat,
    Hello,
    Method,
    PutBlob,
    RevokeStep,
    StartStep,
    Stop,
    Submit,
    Submitted,
    Welcome,
)
from autosched.version import __version__

T = TypeVar("T")
Work = Callable[[StartStep], Awaitable[T]]
WAIT_MAX_S = 24 * 3600.0
SAID_AFTER_S = 2.0


class _Visitor:
    """Answers the daemon's calls until its one step has been ordered."""

    def __init__(self, load: TaskLoad) -> None:
        self._load = load
        self.order: asyncio.Future[StartStep] = asyncio.get_running_loop().create_future()
        self.revoked = asyncio.Event()
        self.reason = ""

    async def handle(self, method: Method) -> Struct:
        match method:
            case AskLoad():
                return JobLoad(tasks=(self._load,))
            case StartStep():
                if not self.order.done():
                    self.order.set_result(method)
            case RevokeStep(reason=reason) | Stop(reason=reason):
                self.reason = reason
                self.revoked.set()
            case _:
                raise WireError(f"a visitor does not answer {type(method).__name__}")
        return Done()


async def visit(
    user: Link,
    address: str,
    spec: JobSpec,
    load: TaskLoad,
    work: Work[T],
    *,
    waiting: Callable[[int], None] | None = None,
) -> T:
    """Submit `spec` as an external job of one step, `load`; run `work` when the daemon starts it, and report its end.

    `address` is where clients connect; `waiting` is told the job's number when the lease does not come at once.
    Raises what `work` raises, and JobCancelled when the step is revoked.
    """
    spec = await _with_blob(user, spec)
    submitted = await user.call(Submit(spec=spec), Submitted)
    visitor = _Visitor(load)
    try:
        link = await Link.open(address, serves=DAEMON_METHODS, handler=visitor.handle)
        hello = Hello(
            protocol=PROTOCOL,
            software=f"autosched {__version__}",
            role="client",
            job=submitted.job,
            token=submitted.token,
        )
        welcome = await link.call(hello, Welcome)
        beat = asyncio.get_running_loop().create_task(_beat(link, welcome.heartbeat_s))
        try:
            order = await _lease(visitor, link, submitted.job, waiting)
            return await _run(visitor, link, order, work)
        finally:
            beat.cancel()
            link.close()
    except BaseException:
        with suppress(AutoschedError):  # it has ended already, or the daemon has
            await user.call(CancelJob(job=submitted.job), Done)
        raise


async def _with_blob(user: Link, spec: JobSpec) -> JobSpec:
    """Every job names a blob; that of a visit is its name."""
    from msgspec.structs import replace

    data = spec.name.encode()
    sha256 = hashlib.sha256(data).hexdigest()
    state = await user.call(PutBlob(sha256=sha256, total=len(data), offset=0, data=b""), BlobState)
    if not state.complete:
        await user.call(PutBlob(sha256=sha256, total=len(data), offset=state.bytes_have, data=data), BlobState)
    return replace(spec, model=sha256, external=True)


async def _beat(link: Link, every_s: float) -> None:
    while not link.closed:
        link.notify(Heartbeat())
        await asyncio.sleep(every_s)


async def _lease(visitor: _Visitor, link: Link, job: int, waiting: Callable[[int], None] | None) -> StartStep:
    """Wait for the lease, the end of the connection or that of the job, whichever comes first."""
    lost = asyncio.ensure_future(link.wait_closed())
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
            raise JobCancelled(f"job {job} was stopped while it waited for the device: {visitor.reason}")
        raise DaemonUnreachable(f"the daemon went away while job {job} waited for the device: {link.lost or 'timeout'}")
    finally:
        lost.cancel()
        stopped.cancel()


async def _run(visitor: _Visitor, link: Link, order: StartStep, work: Work[T]) -> T:
    running = asyncio.ensure_future(work(order))
    stopped = asyncio.ensure_future(visitor.revoked.wait())
    outcome, failure = Outcome.DONE, None
    try:
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise JobCancelled(f"the measurement was stopped: {visitor.reason}")
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
        with suppress(AutoschedError):  # a daemon that is gone needs no report
            await link.call(EndStep(step=order.step.id, outcome=outcome, load=load), Done)
