"""Clients: one process for each job. Started, told what to run, watched, and reported lost exactly once.

A local client is lost when its process is dead and whatever it started is dead too: only then are its units quiet.
Silence, a broken connection or a refused order therefore only *kill* it. An external client is lost with its
connection, since nothing better can be known.
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autosched import units
from autosched.core.actions import RevokeStep
from autosched.core.events import ClientAttached, ClientLost, Event
from autosched.core.scheduler import TURN_S
from autosched.daemon.client_session import ClientSession
from autosched.daemon.guard import Guard
from autosched.daemon.history import History
from autosched.daemon.process import JOB_DIR, Process, kill_strays, sweep
from autosched.daemon.progress import Ledger
from autosched.daemon.runtime import Runtime, spawn
from autosched.errors import AutoschedError, NotFound, Refused
from autosched.link import Link
from autosched.model import JobId, JobLoad, Step
from autosched.protocol import CLIENT_METHODS, PROTOCOL, SILENCE_S, AskLoad, Done, Hello, Method, Stop, TagRecords
from autosched.protocol import RevokeStep as RevokeStepCall
from autosched.protocol import StartStep as StartStepCall

log = logging.getLogger(__name__)

ORDER_S = 10.0
"""A client that does not take an order within this time is taken for dead."""
STOP_S = 0.7
"""Grace of a client that was told to stop."""
HANG_UP_S = 1.0
"""Grace of a client that has closed its connection."""
TAGS_SINCE = (1, 1)
"""Clients of an earlier protocol do not know what TagRecords is."""
WEIGH_S = 1.0
"""So often a client's memory is looked at, where there is a limit."""
ASK_LOAD_S = 600.0
"""Bounds what only the scheduler's attach deadline should end."""


@dataclass(eq=False)
class Client:
    """One client of one job; a job may have several, one after the other."""

    job: JobId
    token: str
    process: Process | None = None
    link: Link | None = None
    protocol: tuple[int, int] = PROTOCOL
    temporary: str = ""
    """Folder for what its processes forget; with a short name, since sockets lie in it. It goes when they are gone."""
    records_before: int = 0
    """Records of the job when it began."""
    why: str = ""
    """Why the daemon ended it; empty when it ended by itself."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    """It has said hello, or is gone."""

    @property
    def lost(self) -> bool:
        """True when nothing of it is left."""
        return self.gone.is_set()


class Clients:
    """All clients of this life of the daemon."""

    def __init__(
        self,
        runtime: Runtime,
        ledger: Ledger,
        past: History,
        guard: Guard,
        folder: Path,
        session: Callable[["Client"], ClientSession],
    ) -> None:
        self._runtime, self._ledger, self._past, self._guard = runtime, ledger, past, guard
        self._folder = folder
        self._session = session
        self._of: dict[JobId, Client] = {}
        self._to_start: deque[Client] = deque()
        self._starting = 0
        self._secret = _secret(folder / "secret")
        self.address = ""
        """Where clients connect to; set before the first one is started."""
        self.bytes_max = 0
        """A client that holds more memory is replaced; 0: no limit."""
        self.command: Sequence[str] = (sys.executable, "-m", "autosched.client")

    @property
    def alive(self) -> int:
        """How many clients there are."""
        return len(self._of)

    def memory_bytes(self, job: JobId) -> int:
        """What the job's client holds in memory; 0 when it has none on this machine."""
        client = self._of.get(job)
        return client.process.memory_bytes if client is not None and client.process is not None else 0

    # What the scheduler asks for --------------------------------------------------------------------------------------

    def start(self, job: JobId) -> None:
        """Start the process that hosts the job, when its turn comes.

        A hundred interpreters that start at once would keep the daemon from its work for half a minute, and none of
        them would be ready before all are: one starts for each core that the daemon has.
        """
        client = self._of[job] = Client(job, secrets.token_urlsafe(24), records_before=self._ledger.of(job).records)
        self._to_start.append(client)
        self._start_next()

    def _start_next(self) -> None:
        while self._to_start and self._starting < len(os.sched_getaffinity(0)):
            client = self._to_start.popleft()
            if not client.lost:
                self._starting += 1
                self._start(client)
                spawn(self._settle(client), f"start client of job {client.job}")

    async def _settle(self, client: Client) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TURN_S):
                await client.up.wait()
        self._starting -= 1
        self._start_next()

    def _start(self, client: Client) -> None:
        folder = self._folder / str(client.job)
        environment = {**os.environ, JOB_DIR: str(folder), "AUTOSCHED_TOKEN": client.token}
        command = [*self.command, "--connect", self.address, "--job", str(client.job)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            client.temporary = environment["TMPDIR"] = tempfile.mkdtemp(prefix="autosched-job-")
            environment["XDG_CACHE_HOME"] = (
                client.temporary
            )  # libraries that it loads leave files there, some in HOME else
            client.process = Process(command, environment, folder / "client.log")
        except OSError as error:
            self._lose(client, f"it cannot be started: {error}")
        else:
            spawn(self._watch(client, client.process, folder), f"watch client of job {client.job}")
            if self.bytes_max:
                spawn(self._weigh(client, client.process), f"weigh client of job {client.job}")

    def stop(self, job: JobId, reason: str) -> None:
        """End the job's client within a second."""
        client = self._of.get(job)
        if client is None:
            of = self._runtime.state.jobs[job]
            if of.spec.external and not of.state.ended:  # it never came; the loss of any other is on its way already
                self._lose(Client(job, ""), reason)
            return
        client.why = client.why or reason
        if client.link is not None and not client.link.closed:
            client.link.notify(Stop(reason=reason[:4_000]))
            asyncio.get_running_loop().call_later(STOP_S, self._kill, client, reason)
        else:
            self._kill(client, reason)

    def start_step(self, step: Step) -> None:
        """Tell the client to run a step."""
        client = self._of.get(step.job)
        if client is not None and client.link is not None:  # otherwise its loss is about to be reported
            spawn(self._order(client, client.link, step), f"order step {step.id}")

    def revoke_step(self, action: RevokeStep) -> None:
        """Tell the client to kill a step."""
        client = self._of.get(action.job)
        if client is not None and client.link is not None:
            call = RevokeStepCall(step=action.step, reason=action.reason[:4_000])
            spawn(self._tell(client, client.link, call), f"revoke step {action.step}")

    async def _order(self, client: Client, link: Link, step: Step) -> None:
        slots = self._runtime.state.slots
        cores = tuple(core for unit in step.units for core in slots[unit].unit.cores)
        timeout_s = step.deadline_at - step.started_at
        sentinel = len(step.units) == 1 and self._guard.begin(slots[step.units[0]], self._runtime.clock())
        call = StartStepCall(step=step, cores=cores, timeout_s=timeout_s, sentinel=sentinel)
        await self._tell(client, link, call)

    def tag(self, job: JobId, tags: TagRecords) -> None:
        """Tell the job's client which of its records were disturbed."""
        client = self._of.get(job)
        if client is not None and client.link is not None and not client.link.closed and client.protocol >= TAGS_SINCE:
            client.link.notify(tags)

    async def _tell(self, client: Client, link: Link, method: Method) -> None:
        try:
            await link.call(method, Done, timeout_s=ORDER_S)
        except AutoschedError as error:
            self._kill(client, f"it did not take {type(method).__name__}: {error}")

    # Its life ---------------------------------------------------------------------------------------------------------

    async def _watch(self, client: Client, process: Process, folder: Path) -> None:
        how = await process.wait()
        strays = await asyncio.to_thread(kill_strays, folder)
        if strays:
            log.warning("killed what the client of job %d left behind: %s", client.job, strays)
        self._lose(client, f"{client.why} ({how})" if client.why else how)
        if self._runtime.state.jobs[client.job].state.ended:
            await asyncio.to_thread(sweep, folder)

    async def _weigh(self, client: Client, process: Process) -> None:
        """Replace a client that leaks before the machine runs out of memory; the next one goes on from the records."""
        while not client.lost:
            if (used := process.memory_bytes) > self.bytes_max:
                most = units.size(self.bytes_max)
                return self._kill(client, f"it held {units.size(used)} of memory; limits.client_bytes_max is {most}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WEIGH_S):
                    await client.gone.wait()

    def _kill(self, client: Client, reason: str) -> None:
        if client.lost:
            return
        client.why = client.why or reason
        if client.process is not None:
            client.process.kill()
        elif client.link is not None:
            client.link.abort(reason)
        else:  # its turn to start has not come
            self._lose(client, reason)

    def _lose(self, client: Client, reason: str) -> None:
        """Nothing of it is left."""
        if client.lost:
            return
        client.gone.set()
        client.up.set()
        if self._of.get(client.job) is client:
            del self._of[client.job]
        if client.temporary:
            shutil.rmtree(client.temporary, ignore_errors=True)
        if client.link is not None:
            client.link.abort(reason)
        reason = reason.encode(errors="replace").decode()  # names of files need not be text
        progressed = self._ledger.of(client.job).records > client.records_before
        self._runtime.tell(lambda: ClientLost(client.job, reason, progressed))

    def attach(self, link: Link, hello: Hello) -> None:
        """A client says hello. Raises Refused or NotFound."""
        job = self._runtime.state.jobs.get(hello.job or 0)
        if job is None:
            raise NotFound(f"there is no job {hello.job}")
        client = self._of.get(job.id)
        if job.spec.external and client is None:
            client = Client(job.id, self.external_token(job.id))
        if client is None or not hmac.compare_digest(client.token.encode(), hello.token.encode()):
            raise Refused(f"the token is not that of the client of job {job.id}")
        if client.link is not None:
            raise Refused(f"job {job.id} has a client already")
        if job.state.ended:
            raise Refused(f"job {job.id} has ended: it is {job.state.value}")
        self._of[job.id], client.link, client.protocol = client, link, hello.protocol
        client.up.set()
        link.peer.serves, link.handler = CLIENT_METHODS, self._session(client).handle
        spawn(self._accompany(client, link), f"client of job {job.id}")

    async def _accompany(self, client: Client, link: Link) -> None:
        silence = spawn(self._listen(client, link), f"listen to client of job {client.job}")
        load = spawn(self._ask_load(client, link), f"ask load of job {client.job}")
        why = await link.wait_closed()
        silence.cancel()
        load.cancel()
        if client.process is None:
            self._lose(client, client.why or why)
        else:  # it is about to end, and how it ends says more than a closed connection
            asyncio.get_running_loop().call_later(HANG_UP_S, self._kill, client, why)

    async def _listen(self, client: Client, link: Link) -> None:
        """Silence counts only while this end listens."""
        loop = asyncio.get_running_loop()
        while True:
            left_s = link.last_heard_at + SILENCE_S - loop.time()
            if left_s <= 0 and link.reading:
                break
            await asyncio.sleep(max(left_s, 1.0))
        self._kill(client, f"it said nothing for {SILENCE_S:g} s")

    async def _ask_load(self, client: Client, link: Link) -> None:
        try:
            load = await link.call(AskLoad(), JobLoad, timeout_s=ASK_LOAD_S)
        except AutoschedError as error:
            self._kill(client, f"it did not tell its load: {error}")
            return

        def attached() -> Event | None:
            if client.lost or link.closed:
                return None
            progress = self._ledger.of(client.job)
            progress.began_at = progress.began_at or self._runtime.clock()
            return ClientAttached(client.job, load)

        await self._past.recall(client.job)
        await self._runtime.post(attached)

    async def close(self) -> None:
        """The daemon stops: end all clients, within a second."""
        clients = list(self._of.values())
        for client in clients:
            self.stop(client.job, "the daemon stops")
        await asyncio.gather(*(client.gone.wait() for client in clients))

    def external_token(self, job: JobId) -> str:
        """What the client of an external job shows; it survives restarts of the daemon."""
        return hmac.new(self._secret, str(job).encode(), hashlib.sha256).hexdigest()


def _secret(path: Path) -> bytes:
    """The daemon's own secret, made once."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        secret = secrets.token_bytes(32)
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(secret)
            os.fsync(file.fileno())
        return secret
