"""A connection to a daemon as a user, for coroutines."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from autosched.errors import Busy, DaemonUnreachable
from autosched.model import DEVICE_POOL, Goal, JobId, JobSpec, JobState, Record
from autosched.protocol import (
    PROTOCOL,
    SILENCE_S,
    WAIT_MAX_S,
    Artifact,
    ArtifactList,
    CancelJob,
    ChoosePolicy,
    DaemonInfo,
    Done,
    GetJob,
    GetPageLink,
    GetPolicy,
    Heartbeat,
    Hello,
    Info,
    JobView,
    ListArtifacts,
    ListDevices,
    Method,
    PageLink,
    PolicyView,
    RecordPage,
    Span,
    SpanList,
    Submit,
    Submitted,
    UnitList,
    UnitView,
    Welcome,
    pagination,
)
from autosched.version import __version__
from autosched.wire import blob_transfer, blocking_link
from autosched.wire.address import UNIX
from autosched.wire.handshake import introduce
from autosched.wire.link import Link

T = TypeVar("T", bound=Struct)
CONNECT_S = 5.0
BUSY_S = 60.0
BEAT_S = 15.0
"""Seconds between two checks of a user's connection. A silent daemon is noticed SILENCE_S later."""


class Daemon:
    """An open connection as a user."""

    def __init__(self, link: Link, welcome: Welcome) -> None:
        self.link = link
        self.welcome = welcome
        self._beating: asyncio.Future[None] | None = None

    @classmethod
    async def connect(cls, address: str, *, timeout_s: float = CONNECT_S) -> "Daemon":
        """Connect and send Hello. Raises DaemonUnreachable."""
        try:
            link = await Link.open(address, timeout_s=timeout_s)
        except DaemonUnreachable as error:
            if isinstance(error.__context__, OSError) and not isinstance(error.__context__, TimeoutError):
                raise blocking_link.unreachable(address, error.__context__) from None
            raise
        try:
            hello = Hello(protocol=PROTOCOL, software=f"autosched {__version__}")
            daemon = cls(link, await introduce(link, hello, timeout_s=timeout_s))
        except BaseException:
            link.abort("hello failed")
            raise
        if not address.startswith(UNIX):  # the kernel reports the end of a peer on this machine
            daemon._beating = asyncio.ensure_future(link.keep_alive(Heartbeat(), BEAT_S, SILENCE_S))
        return daemon

    @property
    def address(self) -> str:
        """Address of the daemon."""
        return self.link.address

    def close(self) -> None:
        """Close the connection; jobs go on."""
        if self._beating is not None:
            self._beating.cancel()
        self.link.close()

    async def info(self) -> DaemonInfo:
        """Identity and state of the daemon."""
        return await self.link.call(Info(), DaemonInfo)

    async def page_link(self, job: JobId = 0) -> str:
        """An address of the page, of a job or of all, that signs in its first reader; empty without a page."""
        return (await self.link.call(GetPageLink(job=job), PageLink)).url

    async def policy(self) -> PolicyView:
        """The scheduling policy, and the reason for it."""
        return await self.link.call(GetPolicy(), PolicyView)

    async def choose_policy(self, policy: str | None = None, goal: Goal | None = None) -> PolicyView:
        """Set the policy or goal until the daemon restarts. Raises NotFound or Refused."""
        return await self.link.call(ChoosePolicy(policy=policy, goal=goal), PolicyView)

    async def upload(self, path: Path, progress: blob_transfer.Progress | None = None) -> str:
        """Upload a file to the blob store; returns its hash."""
        return await blob_transfer.upload(self.link, path, progress)

    async def submit(self, spec: JobSpec) -> Submitted:
        """Submit one job whose model is uploaded; retries for a minute at most while the daemon is overloaded."""
        return await self.change(Submit(spec=spec), Submitted)

    async def change(self, method: Method, kind: type[T]) -> T:
        """Call a method that changes the daemon's state. Repeat the call, for a minute at most, while the daemon is
        busy."""
        patient_until = asyncio.get_running_loop().time() + BUSY_S
        while True:
            try:
                return await self.link.call(method, kind)
            except Busy as busy:
                # random, so that refused users do not all return together
                pause_s = (busy.retry_after_s or 1.0) * random.uniform(1.0, 2.0)
                if asyncio.get_running_loop().time() + pause_s > patient_until:
                    raise
            await asyncio.sleep(pause_s)

    async def cancel(self, job: JobId) -> None:
        """Cancel a job; its records are kept."""
        await self.change(CancelJob(job=job), Done)

    async def job(self, job: JobId, *, since: int | None = None, wait_s: float = 0.0) -> JobView:
        """One job with its tasks; waits up to `wait_s` for a version other than `since`."""
        wait_s = min(wait_s, WAIT_MAX_S)
        return await self.link.call(GetJob(job=job, since=since, wait_s=wait_s), JobView, timeout_s=wait_s + 30.0)

    async def follow(self, job: JobId, *, wait_s: float = 1.0) -> AsyncIterator[JobView]:
        """Yield views of a job whenever it has changed, and at least every `wait_s` seconds; the last one has ended."""
        view = await self.job(job)
        yield view
        while not JobState(view.state).ended:
            view = await self.job(job, since=view.version, wait_s=wait_s)
            yield view

    async def records(self, job: JobId) -> list[Record]:
        """All records of a job, in the order in which they were measured."""
        return await pagination.answered_async(
            pagination.records_of(job), lambda asked: self.link.call(asked, RecordPage)
        )

    async def spans(self, near: JobView | float | None = None) -> list[Span]:
        """Steps of all jobs: during the time of a job, in the last seconds, or all."""
        asking = pagination.steps_beside(near) if isinstance(near, JobView) else pagination.steps_since(near)
        spans, _ = await pagination.answered_async(asking, lambda asked: self.link.call(asked, SpanList))
        return spans

    async def units(self) -> tuple[UnitView, ...]:
        """All lanes and devices."""
        return (await self.lab()).units

    async def lab(self) -> UnitList:
        """All lanes and devices, and boards that are expected back."""
        return await self.link.call(ListDevices(), UnitList)

    async def artifacts(self, job: JobId) -> tuple[Artifact, ...]:
        """Result files of a job."""
        return (await self.link.call(ListArtifacts(job=job), ArtifactList)).artifacts

    async def download(self, artifact: Artifact, folder: Path, name: str | None = None) -> Path:
        """Download one result file, under its own name if no other is given. Raises OSError if it cannot be written."""
        path = folder / (name or Path(artifact.name).name)
        await blob_transfer.download(self.link, artifact.sha256, path)
        return path


@asynccontextmanager
async def off_devices(daemon: Daemon) -> AsyncIterator[None]:
    """Keep this process off the cores that a daemon on this machine measures on: even a progress bar disturbs."""
    home = os.sched_getaffinity(0)
    units = await daemon.units()
    devices = {c for unit in units if any(pool.startswith(DEVICE_POOL) for pool in unit.pools) for c in unit.cores}
    elsewhere = home - devices
    if not elsewhere or not daemon.address.startswith("unix:"):
        yield
        return
    _move_to(elsewhere)
    try:
        yield
    finally:
        _move_to(home)  # a process that is started next, perhaps a daemon, may need all cores


def _move_to(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)
