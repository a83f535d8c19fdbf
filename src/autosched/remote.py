"""A daemon as its users see it: async access over a link, and the start of a private one when none runs."""

import asyncio
import os
import random
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from autosched.api.daemon_address import default, named, own
from autosched.config import DEVICE_POOL, Config, usable_cores
from autosched.errors import Busy, DaemonUnreachable, Refused, RequestError
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
    Shutdown,
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

CONNECT_S = 5.0
BUSY_S = 60.0
BEAT_S = 15.0
"""Seconds between two checks of a user's connection. A silent daemon is noticed SILENCE_S later."""
ON_DEMAND_START_S = 30.0
"""A daemon that has not answered so long after its start is taken for broken."""
STOP_TIMEOUT_S = 15.0
"""Seconds that an idle daemon may take to end."""
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
                raise blocking_link.unreachable(address, error.__context__) from None
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
        """Identity and state of the daemon."""
        return await self.link.call(Info(), DaemonInfo)

    async def policy(self) -> PolicyView:
        """The scheduling policy, and the reason for it."""
        return await self.link.call(GetPolicy(), PolicyView)

    async def choose_policy(self, policy: str | None = None, goal: Goal | None = None) -> PolicyView:
        """Let another policy or goal hold until the daemon starts again. Raises NotFound or Refused."""
        return await self.link.call(ChoosePolicy(policy=policy, goal=goal), PolicyView)

    async def upload(self, path: Path, progress: blob_transfer.Progress | None = None) -> str:
        """Put a file into the blob store; returns its hash."""
        return await blob_transfer.upload(self.link, path, progress)

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
        return await pagination.answered_async(
            pagination.records_of(job), lambda asked: self.link.call(asked, RecordPage)
        )

    async def spans(self, near: JobView | float | None = None) -> list[Span]:
        """Steps of all jobs that the daemon remembers: in the time of a job, in the last so many seconds, or ever."""
        asking = pagination.steps_beside(near) if isinstance(near, JobView) else pagination.steps_since(near)
        spans, _ = await pagination.answered_async(asking, lambda asked: self.link.call(asked, SpanList))
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
        _move_to(home)  # what is started next, a daemon perhaps, may need them all


def _move_to(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)


@asynccontextmanager
async def connected(
    daemon: str | None = None, *, start: bool = True, told: Told | None = None, serve: Sequence[str] = (),
    cores: int | None = None,
) -> AsyncIterator[Daemon]:  # fmt: skip
    """A connection to the daemon that is meant; this user's own is started if it does not run and `start` is true.

    `serve`: options of `autosched serve` for the one that is started. `cores`: number of cores that its device is to
    have; a private daemon that has no such device and nothing to do is replaced by one that has.
    """
    chosen = named(daemon)
    words = [*serve, *(["--cores", str(cores)] if cores is not None else [])]
    try:
        connection = await Daemon.connect(chosen or default())
        if cores is not None and chosen is None and await _replaceable(connection, cores):
            _check_cores(cores)
            if told is not None:
                told(f"The private daemon has nothing to do, and no device of {_cores(cores)}: starting another one.")
            await _stopped(connection)
            connection = await start_on_demand(own(), Config().state_dir, words)
    except DaemonUnreachable:
        if chosen is not None or not start:
            raise
        _check_cores(cores)
        if told is not None:
            told(f"No daemon at {own()}: starting a private one; it ends when it has nothing to do.")
        connection = await start_on_demand(own(), Config().state_dir, words)
    try:
        yield connection
    finally:
        connection.close()


def kind_of_cores(units: Sequence[UnitView], kind: str, cores: int | None) -> str:
    """The kind of device to use for a number of cores: `kind` where its devices have so many, else one that has.

    Raises RequestError when there is none.
    """
    counts = _cores_of_kinds(units)
    if cores is None or counts.get(kind) == {cores}:
        return kind
    if fitting := sorted(name for name, found in counts.items() if found == {cores}):
        return fitting[0]
    there = ", ".join(f"{name} ({', '.join(map(_cores, sorted(found)))})" for name, found in sorted(counts.items()))
    raise RequestError(
        f"no device of the daemon that runs has {_cores(cores)}; there are: {there or 'none'}. Stop the daemon when its"
        " jobs are done (autosched stop) and try again, or list such a device in its settings: [[device]]"
    )


def _check_cores(cores: int | None) -> None:
    """Raise RequestError unless a daemon on this machine can have a device of this number of cores."""
    if cores is not None and cores > (usable := len(usable_cores())):
        raise RequestError(f"{_cores(cores)} are asked for, and this process may use {usable}. Give --cores {usable}")


def _cores(count: int) -> str:
    return f"{count} core{'' if count == 1 else 's'}"


def _cores_of_kinds(units: Sequence[UnitView]) -> dict[str, set[int]]:
    """Numbers of cores that the devices of each kind have."""
    counts: dict[str, set[int]] = {}
    for unit in units:
        for pool in unit.pools:
            if pool.startswith(DEVICE_POOL):
                counts.setdefault(pool.removeprefix(DEVICE_POOL), set()).add(len(unit.cores))
    return counts


async def _replaceable(daemon: Daemon, cores: int) -> bool:
    """Whether a daemon that was started for one command is idle and has no device of this number of cores."""
    if any(found == {cores} for found in _cores_of_kinds(await daemon.units()).values()):
        return False
    info = await daemon.info()
    return info.on_demand and info.jobs_active == 0


async def _stopped(daemon: Daemon) -> None:
    """Stop a daemon on this machine, and wait until its process has ended. Raises DaemonUnreachable."""
    pid = (await daemon.info()).pid
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            await daemon.link.call(Shutdown(), Done)
            daemon.close()
            ended: list[int] = (await asyncio.to_thread(select.select, [process], [], [], STOP_TIMEOUT_S))[0]
        finally:
            os.close(process)
        if not ended:
            raise Refused(
                f"the private daemon (process {pid}) does not end within {STOP_TIMEOUT_S:.0f} s, so no other one can be"
                " started. See what is wrong with it: autosched doctor"
            )


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
