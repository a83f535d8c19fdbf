"""Starts, orders, watches and kills the clients, one process for each job, and reports each loss exactly once.

A local client is lost when its process and all processes that it started are dead: only then do its units rest.
Silence or a refused order therefore only *kills* a client. A client that loses its connection is not lost: it may
reconnect, to this daemon or the next one, and then names its steps.

The daemon knows of a client on another host what that host's agent tells. While the host cannot be reached its clients
may go on. They are lost when the host must have ended them itself (daemon/hosts).

Of an external client the daemon sees the connection alone. A client that hangs up has ended. A client that falls silent
may go on: its steps keep their units until its own watchdog must have killed them (deadline and margin), or until an
operator says that they are over.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
import shutil
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from autosched import file_names
from autosched.core.actions import RevokeStep
from autosched.core.events import ClientAttached, ClientCutOff, ClientLost, ClientPlaced, Event
from autosched.core.lifecycles import Attached
from autosched.daemon.answers import ANSWERS, Caller
from autosched.daemon.clients import adoption
from autosched.daemon.clients.client_session import ClientSession, Parts
from autosched.daemon.clients.client_state import Client
from autosched.daemon.clients.helper_registry import Helper, HelperRegistry
from autosched.daemon.clients.memory_limit import MemoryLimit
from autosched.daemon.clients.separation import Separation
from autosched.daemon.clients.start_queue import StartQueue
from autosched.daemon.event_stream.daemon_events import ClientNews, DaemonEvent
from autosched.daemon.hosts.host_registry import HostRegistry
from autosched.daemon.hosts.remote_client import RemoteClient
from autosched.daemon.runtime import spawn
from autosched.errors import AutoschedError, DaemonUnreachable, NotFound, Refused
from autosched.launch import ClientOrder, ClientProcess, Launcher, client_note
from autosched.launch.client_note import Note
from autosched.launch.job_folder import HELPER, kill_strays, sweep
from autosched.model import OWN_HOST, HostName, JobId, JobLoad, Step
from autosched.protocol import (
    CLIENT_METHODS,
    SILENCE_S,
    AskLoad,
    Done,
    EndStep,
    ForgetMoved,
    Goodbye,
    Hello,
    Method,
    PartEnded,
    Return,
    RunElsewhere,
    StartHostClient,
    Stop,
    StopElsewhere,
)
from autosched.protocol import RevokeStep as RevokeStepCall
from autosched.protocol import StartStep as StartStepCall
from autosched.wire import keys
from autosched.wire.keys import Key
from autosched.wire.link import Handler, Link

CACHE_FOLDER = "cache"
"""Name of the folder, in the state folder, with what backends keep for later jobs."""
CACHES_FOLDER = "caches"
"""Name of the folder, in the state folder, with the caches of owners whose jobs run apart."""
log = logging.getLogger(__name__)

ORDER_S = 10.0
"""Seconds within which a client accepts an order, or counts as dead."""
STOP_S = 0.7
"""Seconds between the request to stop and the kill."""
RETURN_S = 40.0
"""Seconds within which a client reconnects: its longest pause is 30 s."""
HINDERED_PAUSE_S, HINDERED_PAUSE_MAX_S, HINDERED_COUNTED_MAX = 1.0, 30.0, 8
"""Seconds before the next client of a job after one that the machine could not run, the maximum of these growing
pauses, and the number of such clients after which they grow no more."""
TRY_AGAIN_WORDS = f"exit code {os.EX_TEMPFAIL}"
"""Beginning of the words for the end of a client that the machine could not run."""
ASK_LOAD_S = 600.0
"""Maximum seconds until a client tells its first load; the scheduler's attach deadline is shorter."""


class ClientSupervisor:
    """All clients since the daemon started."""

    def __init__(
        self,
        parts: Parts,
        hosts: HostRegistry,
        folder: Path,
        address: str,
        separation: Separation,
        launcher: Launcher,
    ) -> None:
        """`folder`: contains a folder for each job. `address`: to which clients connect."""
        self._address, self._separation, self._launcher = address, separation, launcher
        self._runtime, self._progress = parts.runtime, parts.progress
        self._history, self._monitor = parts.history, parts.monitor
        self._parts, self._hosts, self._folder = parts, hosts, folder
        hosts.lost = self._host_left
        self._runtime.stream.attach(self._pass_on, ClientNews)
        self._moved = parts.moved
        self.memory = MemoryLimit()
        self._helpers = HelperRegistry(parts, self._launch_helper, self._tell_part, self.memory)
        self._clients: dict[JobId, Client] = {}
        self._start_queue = StartQueue(self._start)
        self._secret = adoption.secret(folder)
        self._hindered: dict[JobId, int] = {}
        """Number of clients in a row that the machine could not run, by job."""
        self.cache_bytes_max = 0
        """Size of the cache in which backends keep data for later jobs."""
        self.tasks_max = 0
        """Maximum number of processes and threads of each client and helper; 0: no limit."""

    @property
    def hosted(self) -> tuple[JobId, ...]:
        """Jobs that have a client."""
        return tuple(self._clients)

    def memory_bytes(self, job: JobId) -> int:
        """Memory of the job's client; 0 without a client that the daemon or an agent has started."""
        client = self._clients.get(job)
        return client.process.memory_bytes if client is not None and client.process is not None else 0

    # Actions of the scheduler -----------------------------------------------------------------------------------------

    def start(self, job: JobId) -> None:
        """Put the job's client into the start queue, after a pause if the last ones were hindered."""
        client = self._clients[job] = Client(
            job, secrets.token_urlsafe(24), records_before=self._progress.get(job).records
        )
        if hindered := self._hindered.get(job, 0):
            pause_s = min(HINDERED_PAUSE_MAX_S, HINDERED_PAUSE_S * 2.0 ** (hindered - 1))
            asyncio.get_running_loop().call_later(pause_s, self._start_queue.join, client)
        else:
            self._start_queue.join(client)

    def _start(self, client: Client) -> None:
        """Tell the scheduler that it is a client's turn."""

        def placed() -> Event | None:
            over = client.lost or self._clients.get(client.job) is not client
            return None if over else ClientPlaced(client.job)

        self._runtime.tell(placed)

    def launch(self, job: JobId, host: HostName) -> None:
        """Start the process of the job's client on a host."""
        client, folder = self._clients.get(job), self._folder / str(job)
        if client is None or client.lost:
            return  # its loss is reported already
        client.host = host
        if client.host != OWN_HOST:
            remote = self._launch_at(client.host, client.job, client.token)
            client.process = remote
            note = Note(token=client.token, records_before=client.records_before, host=client.host)
            client_note.leave(folder, note)
            return self._watch_process(client, remote)
        try:
            order = self._client_order(client.job, client.token, folder)
            launched = self._launcher.launch(order)
        except OSError as error:
            self._lose(client, f"it cannot be started: {error}", hindered=True)
            return
        client.process, client.temporary = launched.process, launched.temporary
        client_note.leave(folder, client_note.note_of(launched, order, client.records_before))
        self._watch_process(client, launched.process)

    def _launch_helper(self, helper: Helper) -> tuple[ClientProcess, str]:
        """Start the process of a helper; returns it with its temporary folder. Raises OSError."""
        if helper.host != OWN_HOST:
            return self._launch_at(helper.host, helper.job, helper.token, helps=True), ""
        folder = self._folder / str(helper.job) / HELPER
        launched = self._launcher.launch(self._client_order(helper.job, helper.token, folder, helps=True))
        return launched.process, launched.temporary

    def _launch_at(self, host: HostName, job: JobId, token: str, *, helps: bool = False) -> RemoteClient:
        owner = self._runtime.state.jobs[job].owner
        apart = owner if self._separation.applies_to(owner) else ""
        order = StartHostClient(
            job=job, token=token, cache_bytes_max=self.cache_bytes_max, helps=helps, apart_for=apart,
            apart_only=self._separation.required, memory_bytes_max=self.memory.bytes_max, tasks_max=self.tasks_max,
        )  # fmt: skip
        return self._hosts.launch(host, order)

    def _client_order(self, job: JobId, token: str, folder: Path, *, helps: bool = False) -> ClientOrder:
        """The order to start a process for a job on this machine: apart, if its owner must not act as this user. Each
        such owner has a cache of his own."""
        owner = self._runtime.state.jobs[job].owner
        cache, apart = self._folder.parent / CACHE_FOLDER, self._separation.runs_apart(owner)
        if apart:
            cache = self._folder.parent / CACHES_FOLDER / file_names.made_from(owner)
        return ClientOrder(
            job, self._address, token, folder, cache, self.cache_bytes_max, self.memory.bytes_max, self.tasks_max,
            helps, apart,
        )  # fmt: skip

    def _tell_part(self, job: JobId, ended: PartEnded) -> None:
        """Tell the job's client that a helper has ended a part. A client that is cut off asks when it reconnects."""
        if (client := self._clients.get(job)) is not None and client.link is not None and not client.link.closed:
            self._tell(client, client.link, ended)

    def _watch_process(self, client: Client, process: ClientProcess) -> None:
        spawn(self._watch(client, process, self._folder / str(client.job)), f"watch client of job {client.job}")
        spawn(self._limit_memory(client, process), f"limit memory of client of job {client.job}")

    def adopt(self, found: Sequence[adoption.Survivor]) -> None:
        """Take over clients of the daemon before this one. The scheduler bounds the wait for their return."""
        for survivor in found:
            note, job = survivor.note, survivor.job
            process: ClientProcess | None = survivor.process
            if note.host != OWN_HOST:
                process = self._hosts.adopt(note.host, note.token)
            if process is None:
                client = Client(job, self.external_token(job))
            else:
                client = Client(job, note.token, process, None, note.temporary, note.records_before)
                client.host = note.host
                self._watch_process(client, process)
            client.connected.set()
            self._clients[job] = client

    def give_up(self, job: JobId, reason: str) -> None:
        """Kill the job's client where that is possible; it is known to run nothing any more."""
        if (client := self._clients.get(job)) is not None:
            self._kill(client, reason)

    def stop(self, job: JobId, reason: str) -> None:
        """End the job's client within a second."""
        if (client := self._clients.get(job)) is None:
            of = self._runtime.state.jobs[job]
            if of.spec.external and not of.state.ended:  # it never came; the loss of others is being reported already
                self._lose(Client(job, ""), reason)
            return
        if self._may_run(client):
            return
        if client.link is None and client.returning is None and client.connected.is_set():
            reason = f"it did not come back to the restarted daemon ({reason})"
        client.end_reason = client.end_reason or reason
        if client.link is not None and not client.link.closed:
            client.link.notify(Stop(reason=reason[:4_000]))
            asyncio.get_running_loop().call_later(STOP_S, self._kill, client, reason)
        else:
            self._kill(client, reason)

    def start_step(self, step: Step) -> None:
        """Tell the client to run a step."""
        client = self._clients.get(step.job)  # a client that is lost or away does not take part
        if client is not None and client.link is not None and step.id in self._runtime.state.steps:
            self._order(client, client.link, step)

    def revoke_step(self, action: RevokeStep) -> None:
        """Tell the client to kill a step."""
        if (client := self._clients.get(action.job)) is not None and client.link is not None:
            self._tell(client, client.link, RevokeStepCall(step=action.step, reason=action.reason[:4_000]))

    def _order(self, client: Client, link: Link, step: Step) -> None:
        state = self._runtime.state
        timeout_s = step.deadline_at - step.started_at
        sentinel = len(step.units) == 1 and self._monitor.begin(state.slots[step.units[0]], self._runtime.clock())
        call = StartStepCall(
            step=step, cores=state.cores_of(step), timeout_s=timeout_s, sentinel=sentinel, gpu=state.gpu_of(step)
        )
        self._tell(client, link, call)

    def _pass_on(self, event: DaemonEvent) -> None:
        """Notify the job's client of changes to its records or candidates."""
        if not isinstance(what := event.what, ClientNews):
            return
        if (client := self._clients.get(what.job)) is not None and client.link is not None and not client.link.closed:
            client.link.notify(what.news)

    def _tell(self, client: Client, link: Link, method: Method) -> None:
        link.order(method, ORDER_S, partial(self._untold, client, link, type(method).__name__))

    def _untold(self, client: Client, link: Link, what: str, error: AutoschedError) -> None:
        why = f"it did not take {what}: {error}"
        if not isinstance(error, DaemonUnreachable):
            self._kill(client, why)
        elif not link.closed:  # else it may come back
            self._break(client, link, why)

    # A client's life --------------------------------------------------------------------------------------------------

    async def _watch(self, client: Client, process: ClientProcess, folder: Path) -> None:
        how = await process.wait()
        strays = await asyncio.to_thread(kill_strays, folder) if client.host == OWN_HOST else []
        if strays:  # of one that was told to end, they were about to follow it
            level = logging.INFO if client.end_reason else logging.WARNING
            log.log(level, "killed what the client of job %d left behind: %s", client.job, strays)
        self._lose(
            client,
            f"{client.end_reason} ({how})" if client.end_reason else how,
            hindered=how.startswith(TRY_AGAIN_WORDS),
        )
        if self._runtime.state.jobs[client.job].state.ended:
            await asyncio.to_thread(sweep, folder)

    async def _limit_memory(self, client: Client, process: ClientProcess) -> None:
        """Replace a client that leaks memory. The next client goes on from the job's records."""
        if reason := await self.memory.exceeded(process, client.gone):
            self._kill(client, reason)

    def _kill(self, client: Client, reason: str) -> None:
        if client.lost:
            return
        client.end_reason = client.end_reason or reason
        if client.process is not None:
            client.process.kill()
        elif client.link is not None and not client.link.closed:
            client.link.abort(reason)
        else:  # it waits to be started, or is external and not connected
            self._lose(client, reason, hindered=client.job in self._hindered)

    def _break(self, client: Client, link: Link, reason: str) -> None:
        """Kill a local client that does not react. For one on another host break the connection: the network may be
        at fault."""
        if client.process is not None and client.host == OWN_HOST:
            self._kill(client, reason)
        else:
            link.abort(reason)

    def _host_left(self, host: HostName, reason: str) -> None:
        """Drop the clients of a host that has left. The host's own event tells the scheduler."""
        for client in [client for client in self._clients.values() if client.host == host]:
            self._lose(client, reason, told=True)

    def _lose(self, client: Client, reason: str, *, told: bool = False, hindered: bool = False) -> None:
        """Drop a client of which no process is left. `told`: another event tells the scheduler. `hindered`: its machine
        could not run it."""
        if client.lost:
            return
        client.gone.set()
        client.connected.set()
        if self._clients.get(client.job) is client:
            del self._clients[client.job]
            client_note.tear(self._folder / str(client.job))
        if client.temporary:
            shutil.rmtree(client.temporary, ignore_errors=True)
        for link in (client.link, client.returning):
            if link is not None:
                link.abort(reason)
        reason = reason.encode(errors="replace").decode()  # file names may be no text
        progressed = self._progress.get(client.job).records > client.records_before
        if hindered:
            self._hindered[client.job] = min(self._hindered.get(client.job, 0) + 1, HINDERED_COUNTED_MAX)
        else:
            self._hindered.pop(client.job, None)
        lost = ClientLost(client.job, reason, progressed, hindered)
        if told or self._helpers.of(client.job):
            spawn(self._lose_helpers(lost, told), f"end the helpers of job {client.job}")
            return
        self._moved.clear(client.job)
        self._runtime.tell(lambda: lost)

    async def _lose_helpers(self, lost: ClientLost, told: bool) -> None:
        """End the helpers of a lost client, then tell the scheduler, when nothing of the job runs any more.

        `told`: the scheduler knows that the client's host has left. It waits only for steps on other hosts, including
        those that were to begin when the client could no longer be reached.
        """
        await self._helpers.end(lost.job)
        self._runtime.tell(lambda: lost if self._runtime.state.jobs[lost.job].steps or not told else None)

    def attach(self, link: Link, hello: Hello) -> None:
        """Serve a client or a helper that says hello. Raises Refused or NotFound."""
        if self._helpers.attach(link, hello):
            return
        if (job := self._runtime.state.jobs.get(hello.job or 0)) is None:
            raise NotFound(f"there is no job {hello.job}")
        client = self._clients.get(job.id)
        if job.spec.external and client is None:
            client = Client(job.id, self.external_token(job.id))
        if client is None or not hmac.compare_digest(client.token.encode(), hello.token.encode()):
            raise Refused(f"the token is not that of the client of job {job.id}")
        if not hello.returns and client.link is not None and not client.link.closed:
            raise Refused(f"job {job.id} has a client already")
        if job.state.ended and not (hello.returns and job.steps):
            raise Refused(f"job {job.id} has ended: it is {job.state.value}")
        if job.spec.external and job.id not in self._clients:
            client_note.leave(self._folder / str(job.id), Note())
        self._clients[job.id] = client
        client.connected.set()
        handler = JobSession(client, link, self._helpers, self._parts).handle
        link.peer.serves, link.handler = CLIENT_METHODS, handler
        if not hello.returns:
            client.link = link
            opening = self._ask_load(client, link)
        else:
            if client.link is not None:
                client.link.abort("it has another connection")
            client.returning = link
            link.handler = self._returning(client, link, handler)
            opening = self._await_return(client, link)
        spawn(self._accompany(client, link, opening), f"client of job {job.id}")

    async def _accompany(self, client: Client, link: Link, opening: Coroutine[None, None, None]) -> None:
        silence = spawn(self._listen(client, link), f"listen to client of job {client.job}")
        opened = spawn(opening, f"open client of job {client.job}")
        why = await link.wait_closed()
        silence.cancel()
        opened.cancel()
        if client.returning is link:
            client.returning = None
        elif client.link is not link:
            return  # another connection has taken its place
        if client.process is None and client.end_reason:  # the daemon ended it
            return self._kill(client, client.end_reason)
        self._runtime.tell(partial(self._cut_off, client, client.link, why))
        ends = client.process is None and link.hung_up
        grace_s = adoption.HANG_UP_S if ends else RETURN_S
        asyncio.get_running_loop().call_later(grace_s, self._give_up, client, client.link, why, ends)

    def _cut_off(self, client: Client, link: Link | None, why: str) -> Event | None:
        """The event that keeps new steps from a client without a connection; None if it is over or has reconnected."""
        job = self._runtime.state.jobs[client.job]
        over = client.lost or client.link is not link or job.state.ended or not isinstance(job.client, Attached)
        return None if over else ClientCutOff(client.job, why)

    def _give_up(self, client: Client, link: Link | None, why: str, ends: bool) -> None:
        """Kill a client that has not reconnected. The scheduler bounds the steps of a silent external client."""
        if client.lost or client.link is not link or client.returning is not None:
            return
        if (host := self._runtime.state.hosts.get(client.host)) is not None and host.away:  # it may go on there
            asyncio.get_running_loop().call_later(RETURN_S, self._give_up, client, link, why, ends)
            return
        if ends or not self._may_run(client):
            self._kill(client, why)

    def _may_run(self, client: Client) -> bool:
        """Whether a client may be running steps that the daemon can neither see nor end."""
        here = (
            client.process is not None
            or not client.connected.is_set()
            or not (client.link is None or client.link.closed)
        )
        return not here and adoption.any_in_time(self._runtime.state, client.job, self._runtime.clock())

    def _returning(self, client: Client, link: Link, handler: Handler) -> Handler:
        async def handle(method: Method) -> Struct | None:
            if not isinstance(method, Return):
                return await handler(method)

            def attached() -> Event:
                if client.lost or client.returning is not link:
                    raise Refused(f"the client of job {client.job} was given up, or has another connection")
                client.link, client.returning = link, None  # from here on steps may be ordered
                self._has_begun(client)
                return ClientAttached(client.job, method.load, method.steps)

            await self._runtime.post(attached)
            for step in method.steps:
                if step not in self._runtime.state.steps:  # it was given up here, and may still run there
                    self._tell(client, link, RevokeStepCall(step=step, reason="it is over"))
            return Done()

        return handle

    async def _await_return(self, client: Client, link: Link) -> None:
        await asyncio.sleep(ORDER_S)
        if client.returning is link:
            link.abort(f"it did not say Return within {ORDER_S:g} s")

    def _has_begun(self, client: Client) -> None:
        progress = self._progress.get(client.job)
        progress.began_at = progress.began_at or self._runtime.clock()

    async def _listen(self, client: Client, link: Link) -> None:
        await link.wait_silent(SILENCE_S)
        self._break(client, link, f"it said nothing for {SILENCE_S:g} s")

    async def _ask_load(self, client: Client, link: Link) -> None:
        try:
            load = await link.call(AskLoad(), JobLoad, timeout_s=ASK_LOAD_S)
        except AutoschedError as error:
            self._kill(client, f"it did not tell its load: {error}")
            return

        def attached() -> Event | None:
            if client.lost or link.closed:
                return None
            self._has_begun(client)
            return ClientAttached(client.job, load, ())

        await self._history.recall(client.job)
        await self._runtime.post(attached)

    async def close(self) -> None:
        """End all clients within a second, since the daemon stops."""
        clients = [client for client in self._clients.values() if not self._may_run(client)]
        for client in clients:
            self.stop(client.job, "the daemon stops")
        await asyncio.gather(*(client.gone.wait() for client in clients))
        await asyncio.gather(*(self._helpers.end(job) for job in self._helpers.jobs()))

    async def leave(self, reason: str) -> None:
        """Let the clients go on while the daemon restarts. Clients that have not begun end within a second."""
        ending = []
        for client in list(self._clients.values()):
            job = self._runtime.state.jobs[client.job]
            if not job.connected or job.state.ended:
                self.stop(client.job, reason)
                ending.append(client)
            elif client.link is not None and not client.link.closed:
                client.link.notify(Goodbye(reason=reason))
        await asyncio.gather(*(client.gone.wait() for client in ending))

    def key(self, id: str) -> Key | None:
        """The key with this id that the token of a client or helper is worth which may connect."""
        state = self._runtime.state
        tokens = [client.token for client in self._clients.values()] + self._helpers.tokens
        tokens += [self.external_token(job) for job in state.active if state.jobs[job].spec.external]
        return next((key for token in tokens if (key := keys.of_client(token)).id == id), None)

    def external_token(self, job: JobId) -> str:
        """Token of an external job's client, the same after a restart of the daemon."""
        return hmac.new(self._secret, str(job).encode(), hashlib.sha256).hexdigest()


class JobSession(ClientSession):
    """Session of one connection of a job's client, which may have helpers."""

    def __init__(self, client: Client, link: Link, helpers: HelperRegistry, parts: Parts) -> None:
        super().__init__(client.job, lambda: client.lost or client.link is not link, parts)
        self._helpers = helpers

    def handle(self, method: Method) -> Awaitable[Struct | None]:
        """See `ClientSession.handle`. A step that ends takes its parts from the helpers."""
        if isinstance(method, EndStep):
            self._helpers.step_ended(method.step)
        return super().handle(method)

    @ANSWERS.to(RunElsewhere, Caller.CLIENT)
    def _run_elsewhere(self, method: RunElsewhere) -> None:
        self._helpers.run(self._job, method)

    @ANSWERS.to(StopElsewhere, Caller.CLIENT)
    def _stop_elsewhere(self, method: StopElsewhere) -> None:
        self._helpers.stop(self._job, method)

    @ANSWERS.to(ForgetMoved, Caller.CLIENT)
    def _forget_moved(self, method: ForgetMoved) -> None:
        self._moved.forget(self._job, method.files)
