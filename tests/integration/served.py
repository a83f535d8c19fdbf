"""The daemon inside the test's own event loop, and scripted clients."""

import asyncio
import hashlib
import io
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import uvloop
from msgspec import Struct
from msgspec.structs import replace

from autosched import config
from autosched.api.connection import Daemon
from autosched.backend import Network
from autosched.config import Config
from autosched.daemon import state_folder
from autosched.daemon.compose import Daemon as Served
from autosched.daemon.event_stream import logs
from autosched.daemon.settings_reload import LiveSettings
from autosched.errors import DaemonUnreachable
from autosched.model import DeviceNote, JobId, JobLoad, JobSpec, Outcome, Record, Step, TaskInfo, TaskLoad
from autosched.protocol import (
    DAEMON_METHODS,
    HEARTBEAT_S,
    PROTOCOL,
    AddRecord,
    AskLoad,
    Done,
    EndStep,
    Goodbye,
    Heartbeat,
    Hello,
    JobView,
    Method,
    Return,
    RevokeStep,
    StartStep,
    Stop,
    TagRecords,
    Welcome,
)
from autosched.wire.link import Link
from deadlines import DEADLINE_S

MODEL = b"any bytes: no test here reads a model"
SHA256 = hashlib.sha256(MODEL).hexdigest()


TCP = 'listen = "127.0.0.1:0"\n'
"""Setting of a daemon that listens on TCP."""


def undated(records: Sequence[Record]) -> list[Record]:
    """Returns records without the times at which the daemon received them."""
    assert all(one.measured_at > 0 for one in records)
    return [replace(one, measured_at=0.0) for one in records]


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Runs a test on the daemon's kind of loop, with a deadline, and restores the affinity that the daemon narrows."""

    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work()

    cores = os.sched_getaffinity(0)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(limited())
    finally:
        os.sched_setaffinity(0, cores)


def made(settings: str, *, on_demand: bool = False, read: Callable[[], Config] | None = None) -> Served:
    """Returns a daemon with these settings, whose log is not read. `read`: returns the settings at a reload."""
    quiet = logs.Logs(io.StringIO(), json=False, level=logging.INFO)
    return Served(LiveSettings(config.parse(settings, "test"), read), on_demand, False, quiet)


@asynccontextmanager
async def serving(
    folder: Path, settings: str = "", *, on_demand: bool = False, changed: str | None = None
) -> AsyncIterator[Served]:
    """Runs a daemon in this folder until the block ends. `changed`: settings at the next reload."""
    head = f'[daemon]\nstate_dir = "{folder}"\n'
    read = None if changed is None else lambda: config.parse(head + changed, "changed")
    served = made(head + settings, on_demand=on_demand, read=read)
    os.close(state_folder.take_state_dir(folder))
    serving = asyncio.ensure_future(served.serve())
    address = f"unix:{folder}/api.sock"
    try:
        while not serving.done():
            try:
                (await Daemon.connect(address)).close()
                break
            except DaemonUnreachable:
                await asyncio.sleep(0.01)
        else:
            serving.result()  # raises the reason why it did not start
        yield served
    finally:
        if not serving.done() and not served._stop.is_set():
            served.stop("the test is over")
        await serving


async def signed_in(served: Served) -> str:
    """Returns a session of this user for the page, as a browser gets it for a link."""
    daemon = await Daemon.connect(served._addresses[0])
    link = await daemon.page_link()
    daemon.close()
    async with (
        aiohttp.ClientSession() as browser,
        browser.post(f"{link.partition('#')[0]}login", json={"link": link.partition("#sign-in=")[2]}) as answer,
    ):
        return str((await answer.json())["session"])


async def user(folder: Path) -> Daemon:
    """Returns a connection as a user, with the model uploaded."""
    daemon = await Daemon.connect(f"unix:{folder}/api.sock")
    path = folder / "model.onnx"
    if not path.exists():
        path.write_bytes(MODEL)
    await daemon.upload(path)
    return daemon


def spec(**words: object) -> JobSpec:
    """Returns a job whose client the test starts."""
    return JobSpec(**{"name": "net", "model": SHA256, "external": True, **words})  # type: ignore[arg-type]


def load(task: int, pool: str, stage: str) -> JobLoad:
    """Returns the load of one waiting task."""
    return JobLoad(tasks=(TaskLoad(task=task, resources_next=(pool,), stage_next=stage),))


def record(trial: int) -> Record:
    """Returns a valid trial of task 1."""
    return Record(task=1, number=trial, candidate=f"candidate {trial}".encode(), latency_s=(0.001 * (trial + 1),))


class Puppet:
    """A scripted client: it stores the daemon's orders, and ends steps on request."""

    def __init__(self, first: JobLoad) -> None:
        self.first = first
        self.steps: asyncio.Queue[Step] = asyncio.Queue()
        self.orders: dict[int, StartStep] = {}
        self.revoked: asyncio.Queue[int] = asyncio.Queue()
        self.stopped: asyncio.Queue[str] = asyncio.Queue()
        self.goodbyes: asyncio.Queue[str] = asyncio.Queue()
        self.tags: asyncio.Queue[TagRecords] = asyncio.Queue()
        self.link: Link | None = None
        self.heart: asyncio.Task[None] | None = None
        self.takes_orders = True

    async def connect(self, address: str, job: JobId, token: str, *, returns: bool = False) -> "Puppet":
        """Says hello for this job."""
        self.link = await Link.open(address, serves=DAEMON_METHODS, handler=self._handle)
        hello = Hello(protocol=PROTOCOL, software="puppet", role="client", job=job, token=token, returns=returns)
        await self.link.call(hello, Welcome)
        if self.heart is not None:
            self.heart.cancel()
        self.heart = asyncio.ensure_future(self.link.keep_alive(Heartbeat(), HEARTBEAT_S, DEADLINE_S))
        return self

    async def come_back(self, address: str, job: JobId, token: str, *held: Step, load: JobLoad | None = None) -> None:
        """Reconnects, and reports the steps that it holds; by default it has no other work."""
        await self.connect(address, job, token, returns=True)
        await self.ask(Return(steps=tuple(step.id for step in held), load=load or JobLoad()))

    async def _handle(self, method: Method) -> Struct:
        match method:
            case AskLoad():
                return self.first
            case StartStep(step=step):
                if not self.takes_orders:
                    await asyncio.Event().wait()
                self.orders[step.id] = method
                self.steps.put_nowait(step)
            case RevokeStep(step=step_id):
                self.revoked.put_nowait(step_id)
            case TagRecords():
                self.tags.put_nowait(method)
            case Goodbye(reason=reason):
                self.goodbyes.put_nowait(reason)
            case Stop(reason=reason):
                self.stopped.put_nowait(reason)
        return Done()

    async def ask(self, method: Method, kind: type[Struct] = Done) -> Struct:
        """Calls the daemon."""
        assert self.link is not None
        return await self.link.call(method, kind)

    def measure(self, trial: int, device: str = "") -> None:
        """Reports a record."""
        assert self.link is not None
        self.link.notify(AddRecord(record=replace(record(trial), unit=device)))

    async def end(
        self,
        step: Step,
        load: JobLoad | None = None,
        outcome: Outcome = Outcome.DONE,
        device: DeviceNote | None = None,
    ) -> None:
        """Ends a step; by default its task has no further work."""
        load = load or JobLoad(tasks=(TaskLoad(task=step.task),))
        await self.ask(EndStep(step=step.id, outcome=outcome, load=load, note=device))


LANE = "host/0" if len(os.sched_getaffinity(0)) > 1 else "cpu0"
"""Unit for builds: on one core, lane and device are one unit."""
BUILD, PROFILE = load(1, "host", "build"), load(1, "device:cpu", "profile")
NETWORK = Network(tasks=(TaskInfo(task=1, name="conv", workload="w", weight=2),))


async def attached(daemon: Daemon, folder: Path, first: JobLoad = BUILD, **words: object) -> tuple[int, Puppet]:
    """Returns a job with its client."""
    submitted = await daemon.submit(spec(**words))
    puppet = await Puppet(first).connect(f"unix:{folder}/api.sock", submitted.job, submitted.token)
    return submitted.job, puppet


async def until(daemon: Daemon, job: int, holds: Callable[[JobView], bool]) -> JobView:
    """Waits for a change after which the condition holds."""
    view = await daemon.job(job)
    while not holds(view):
        view = await daemon.job(job, since=view.version, wait_s=10.0)
    return view
