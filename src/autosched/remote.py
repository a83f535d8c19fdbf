"""A daemon as its users see it: async access over a link, and the start of a private one when none runs."""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from autosched.config import DEVICE_POOL, Config
from autosched.errors import Busy, DaemonUnreachable
from autosched.model import Goal, JobId, JobSpec, JobState, Record
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
    GetPolicy,
    Heartbeat,
    Hello,
    Info,
    JobView,
    ListArtifacts,
    ListDevices,
    PolicyView,
    RecordPage,
    Span,
    SpanList,
    Submit,
    Submitted,
    UnitList,
    UnitView,
    Welcome,
    pages,
)
from autosched.version import __version__
from autosched.wire import blobs, blocking
from autosched.wire.address import UNIX, default, named, own
from autosched.wire.introduction import introduce
from autosched.wire.link import Link

CONNECT_S = 5.0
BUSY_S = 60.0
BEAT_S = 15.0
"""So often a user's connection is looked at: a daemon that is silent is noticed after so long and SILENCE_S at most."""
ON_DEMAND_START_S = 30.0
"""A daemon that has not answered so long after its start is taken for broken."""
LOG_TAIL_LINES, LOG_LINE_CHARS = 10, 300
LOG_NAME = "daemon.log"
COMMAND = (sys.executable, "-m", "autosched", "serve", "--on-demand")
Told = Callable[[str], None]
"""Told in a sentence what is being done; for people."""
_started: list[subprocess.Popen[bytes]] = []  # kept: a daemon outlives the object, which would complain of that


class Daemon:
    """An open connection as a user."""

    def __init__(self, link: Link, welcome: Welcome) -> None:
        self.link = link
        self.welcome = welcome
        self._beating: asyncio.Future[None] | None = None

    @classmethod
    async def connect(cls, address: str, *, timeout_s: float = CONNECT_S) -> "Daemon":
        """Connect and say hello. Raises DaemonUnreachable."""
        try:
            link = await Link.open(address, timeout_s=timeout_s)
        except DaemonUnreachable as error:
            if isinstance(error.__context__, OSError) and not isinstance(error.__context__, TimeoutError):
                raise blocking.unreachable(address, error.__context__) from None
            raise
        try:
            hello = Hello(protocol=PROTOCOL, software=f"autosched {__version__}")
            daemon = cls(link, await introduce(link, hello, timeout_s=timeout_s))
        except BaseException:
            link.abort("hello failed")
            raise
        if not address.startswith(UNIX):  # there, whoever is gone is gone for the kernel too
            daemon._beating = asyncio.ensure_future(link.keep_alive(Heartbeat(), BEAT_S, SILENCE_S))
        return daemon

    @property
    def address(self) -> str:
        """Where the daemon listens."""
        return self.link.address

    def close(self) -> None:
        """End the connection; jobs go on."""
        if self._beating is not None:
            self._beating.cancel()
        self.link.close()

    async def info(self) -> DaemonInfo:
        """Who answers."""
        return await self.link.call(Info(), DaemonInfo)

    async def policy(self) -> PolicyView:
        """Who goes next, and why so."""
        return await self.link.call(GetPolicy(), PolicyView)

    async def choose_policy(self, policy: str | None = None, goal: Goal | None = None) -> PolicyView:
        """Let another policy or goal hold until the daemon starts again. Raises NotFound or Refused."""
        return await self.link.call(ChoosePolicy(policy=policy, goal=goal), PolicyView)

    async def upload(self, path: Path, progress: blobs.Progress | None = None) -> str:
        """Put a file into the blob store; returns its hash."""
        return await blobs.upload(self.link, path, progress)

    async def submit(self, spec: JobSpec) -> Submitted:
        """Submit one job whose model is uploaded; waits for a minute at most while the daemon has too much to do."""
        patient_until = asyncio.get_running_loop().time() + BUSY_S
        while True:
            try:
                return await self.link.call(Submit(spec=spec), Submitted)
            except Busy as busy:
                pause_s = (busy.retry_after_s or 1.0) * random.uniform(1.0, 2.0)  # or all would come back at once
                if asyncio.get_running_loop().time() + pause_s > patient_until:
                    raise
            await asyncio.sleep(pause_s)

    async def cancel(self, job: JobId) -> None:
        """Stop a job; its records are kept."""
        await self.link.call(CancelJob(job=job), Done)

    async def job(self, job: JobId, *, since: int | None = None, wait_s: float = 0.0) -> JobView:
        """One job with its tasks; waits up to `wait_s` for a version other than `since`."""
        wait_s = min(wait_s, WAIT_MAX_S)
        return await self.link.call(GetJob(job=job, since=since, wait_s=wait_s), JobView, timeout_s=wait_s + 30.0)

    async def follow(self, job: JobId, *, wait_s: float = 1.0) -> AsyncIterator[JobView]:
        """Views of a job whenever it changed, and at least every `wait_s`; the last one has ended."""
        view = await self.job(job)
        yield view
        while not JobState(view.state).ended:
            view = await self.job(job, since=view.version, wait_s=wait_s)
            yield view

    async def records(self, job: JobId) -> list[Record]:
        """All records of a job, in the order in which they were measured."""
        return await pages.answered_async(pages.records_of(job), lambda asked: self.link.call(asked, RecordPage))

    async def spans(self, near: JobView | float | None = None) -> list[Span]:
        """Steps of all jobs that the daemon remembers: in the time of a job, in the last so many seconds, or ever."""
        asking = pages.steps_beside(near) if isinstance(near, JobView) else pages.steps_since(near)
        spans, _ = await pages.answered_async(asking, lambda asked: self.link.call(asked, SpanList))
        return spans

    async def units(self) -> tuple[UnitView, ...]:
        """All lanes and devices."""
        return (await self.link.call(ListDevices(), UnitList)).units

    async def artifacts(self, job: JobId) -> tuple[Artifact, ...]:
        """Result files of a job."""
        return (await self.link.call(ListArtifacts(job=job), ArtifactList)).artifacts

    async def download(self, artifact: Artifact, folder: Path, name: str | None = None) -> Path:
        """Fetch one result file, under its own name if no other is given. Raises OSError when it cannot be written."""
        path = folder / (name or Path(artifact.name).name)
        await blobs.download(self.link, artifact.sha256, path)
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
        _move_to(home)  # what is started next, a daemon perhaps, may need them all


def _move_to(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)


@asynccontextmanager
async def connected(
    daemon: str | None = None, *, start: bool = True, told: Told | None = None, serve: Sequence[str] = ()
) -> AsyncIterator[Daemon]:
    """A connection to the daemon that is meant; this user's own is started if it does not run and `start` is true.

    `serve`: options of `autosched serve` for the one that is started.
    """
    chosen = named(daemon)
    try:
        connection = await Daemon.connect(chosen or default())
    except DaemonUnreachable:
        if chosen is not None or not start:
            raise
        if told is not None:
            told(f"No daemon at {own()}: starting a private one; it ends when it has nothing to do.")
        connection = await start_on_demand(own(), Config().state_dir, serve)
    try:
        yield connection
    finally:
        connection.close()


async def start_on_demand(
    address: str, state_dir: Path, words: Sequence[str] = (), *, timeout_s: float = ON_DEMAND_START_S
) -> Daemon:
    """Start a private daemon that outlives this process, and wait until it answers. `words`: options of `serve`.

    It ends by itself when it has nothing to do. Its output goes to a log file in the state folder, and the last lines
    of that go into the DaemonUnreachable that is raised when it does not answer.
    """
    log = state_dir / LOG_NAME
    try:
        process = _spawn(log, words)
    except OSError as error:
        raise DaemonUnreachable(
            f"no daemon runs, and none can be started: {error.filename or state_dir}: {error.strerror}."
            " Choose another folder for its state, for example: XDG_STATE_HOME=/path autosched ..."
        ) from None
    deadline_at = asyncio.get_running_loop().time() + timeout_s
    while asyncio.get_running_loop().time() < deadline_at:
        try:
            return await Daemon.connect(address)
        except DaemonUnreachable:
            if process.poll() is not None:  # it died, or lost the race to another daemon that may answer by now
                break
            await asyncio.sleep(0.05)
    try:
        return await Daemon.connect(address)
    except DaemonUnreachable:
        how = f"ended with exit code {process.poll()}" if process.poll() is not None else "does not answer"
        raise DaemonUnreachable(
            f"a private daemon was started but {how}. The end of its log, {log}:\n{tail(log)}"
            "\nSee what is wrong with this machine: autosched doctor"
        ) from None


def _spawn(log: Path, words: Sequence[str]) -> subprocess.Popen[bytes]:
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [*COMMAND, *words]
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    _started.append(process)
    return process


def tail(log: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a log file, indented."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            text = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"  ({error.strerror})"
    return "\n".join(f"  {line[:LOG_LINE_CHARS]}" for line in text[-lines:]) or "  (empty)"
