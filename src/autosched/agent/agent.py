"""An agent's successive connections to its daemon: it lends the machine, reports, and carries out orders."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from autosched.agent import device_paces, machine_facts
from autosched.agent.client_keeper import ClientKeeper
from autosched.agent.host_lease import HostLease, now_s
from autosched.agent.owner_watch import OwnerWatch
from autosched.device_probe import Unwell, treat
from autosched.errors import AutoschedError, Busy, DaemonUnreachable, NotFound, Refused, RequestError, WireError
from autosched.gpu_probe import GpuState
from autosched.gpu_states import GpuStates
from autosched.machine import unix_time_s
from autosched.model import CudaDevice, HostName, Pool, UnitName
from autosched.process import whole_file
from autosched.protocol import (
    HOST_METHODS,
    HOST_REPORT_S,
    PROTOCOL,
    REPORTS_OF_LEASE,
    SILENCE_S,
    Done,
    EndedHostClient,
    Hello,
    JoinHost,
    KillHostClient,
    LeaveHost,
    Method,
    ProbedUnit,
    ProbeUnit,
    ReportHost,
    StartHostClient,
    client_name,
)
from autosched.protocol import (
    HostLease as LeaseAnswer,
)
from autosched.version import __version__
from autosched.wire.handshake import introduce
from autosched.wire.link import Link
from autosched.wire.pauses import pauses

log = logging.getLogger(__name__)

LOOK_S = 0.2
"""Minimum seconds between two checks of the lease."""
ENDING_S = 0.02
"""Seconds between two checks for the end of killed clients."""
LEAVE_S = 10.0
"""Maximum seconds in which a stopping agent reports that to the daemon."""
MACHINE = "machine"
"""File in the state folder with the random name of this machine."""


class Agent:
    """Lends one machine to one daemon."""

    def __init__(
        self,
        address: str,
        host: HostName,
        pools: tuple[Pool, ...],
        folder: Path,
        lease: HostLease,
        hooks: Mapping[UnitName, Sequence[str]],
        hook_s: float,
    ) -> None:
        """`folder`: the agent's state folder, used by this process only. `hooks`: commands that reboot a device, by its
        name, and the maximum seconds of each."""
        self._address, self._host, self._pools, self._lease = address, host, pools, lease
        self._machine = machine_name(folder)
        self._hooks, self._hook_s = hooks, hook_s
        self._facts = machine_facts.facts()
        self._folder = folder
        self._paces: dict[UnitName, ProbedUnit] = {}
        self.clients = ClientKeeper(folder, address, self._client_ended)
        self._link: Link | None = None
        self._unsaid: dict[str, str] = {}  # clients whose end was not reported to the daemon yet, and how they ended
        self._saying: set[asyncio.Task[None]] = set()
        self._leaving = self._complaint = ""
        self._gpus: tuple[GpuState, ...] = ()
        """The last states of its GPUs that were not reported yet."""
        self._report_every_s = HOST_REPORT_S

    async def run(self, stop: asyncio.Event, owner: OwnerWatch | None = None) -> None:
        """Lend the machine until told to stop. Raises Refused and RequestError for permanent errors.

        `owner`: of a borrowed machine, which is lent only while its owner does not use it.
        """
        self.clients.adopt()
        await self.clients.door.open()
        try:
            while not stop.is_set():
                if owner is not None and not self.clients.names:
                    await _first(owner.quiet(), stop)
                if not stop.is_set():
                    await self._lend(stop, owner)
        finally:
            await self.clients.kill_all()
            await self.clients.door.close()

    async def _lend(self, stop: asyncio.Event, owner: OwnerWatch | None) -> None:
        """Lend the machine until told to stop, or until its owner uses it."""
        self._leaving = ""
        self._paces = await device_paces.paces(self._pools, self._folder, busy=bool(self.clients.names))
        loop = asyncio.get_running_loop()
        work = [loop.create_task(self._watch_lease()), loop.create_task(self._serve())]
        try:
            if owner is not None:
                work.append(loop.create_task(self._give_back_to(owner)))
            if any(isinstance(unit.accelerator, CudaDevice) for pool in self._pools for unit in pool.units):
                work.append(loop.create_task(GpuStates(self._hear_gpus).run()))
            await _first(asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED), stop)
            for task in work:
                if task.done():
                    task.result()  # raises the reason of its end
            if stop.is_set():
                await self._leave()
        finally:
            for task in work:
                task.cancel()
            await asyncio.wait(work)

    def _hear_gpus(self, states: Sequence[GpuState]) -> None:
        self._gpus = tuple(states)

    async def _give_back_to(self, owner: OwnerWatch) -> None:
        """When the owner uses the machine, end all clients, then report that to the daemon."""
        back = await owner.back()
        self._leaving = str(back)
        # in this order: the daemon must not start anything in place of ended clients
        async with asyncio.TaskGroup() as both:
            both.create_task(self._say_leaving(ended=False))
            both.create_task(self.clients.kill_all())
        log.info("the machine is given back: %s", back)
        await self._say_leaving(ended=True, disturbed_s=asyncio.get_running_loop().time() - back.since_s)

    async def _watch_lease(self) -> None:
        """End all clients if the daemon could not be reached for too long."""
        while True:
            await asyncio.sleep(max(self._lease.left_s, LOOK_S))
            if not self._lease.valid and self.clients.names:
                log.error("the daemon cannot be reached: all clients on this machine are ended")
                await self.clients.kill_all()

    # Connections ------------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Connect, join and report, repeatedly."""
        waits = pauses(most_s=HOST_REPORT_S)
        while True:
            try:
                await self._connected()
                waits = pauses(most_s=HOST_REPORT_S)
            except (DaemonUnreachable, TimeoutError) as error:
                self._complain(str(error) or "a client that was killed has not ended")
            except (Refused, RequestError) as error:
                if not isinstance(error, Busy) and not self.clients.names:
                    raise
                self._complain(f"the daemon refuses this agent: {error}")
            await asyncio.sleep(next(waits))

    def _complain(self, why: str) -> None:
        """Log a problem once, until it changes."""
        if why != self._complaint:
            log.warning("%s", why)
        self._complaint = why

    async def _connected(self) -> None:
        """Serve one connection from its beginning to its end."""
        link = await Link.open(self._address, serves=HOST_METHODS, handler=self._obey)
        try:
            await introduce(link, Hello(protocol=PROTOCOL, software=f"autosched {__version__}", role="agent"))
            await self._join(link)
            self._link, self._complaint = link, ""
            log.info("READY host %s is lent to %s", self._host, self._address)
            for name in list(self._unsaid):
                await self._say_ended(link, name)
            while not link.closed:
                await self._report(link)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._report_every_s):
                        log.warning("the connection to the daemon was lost: %s", await link.wait_closed())
        finally:
            self._link = None
            link.abort("it is over")

    async def _join(self, link: Link) -> None:
        """Lend the machine; clients that the daemon has given up are ended first."""
        while True:
            await asyncio.to_thread(self.clients.measure)
            sent_at = now_s()
            said = JoinHost(
                host=self._host, machine=self._machine, pools=self._pools, facts=self._facts,
                clients=self.clients.alive(), paces=self._paces,
            )  # fmt: skip
            lease = await link.call(said, LeaseAnswer)
            if not lease.kill:
                return self._renew(sent_at, lease)
            await self._end(lease.kill)

    async def _end(self, names: tuple[str, ...]) -> None:
        """Kill these clients, and wait until no process of them is left."""
        for name in names:
            self.clients.kill(name)
        async with asyncio.timeout(SILENCE_S):
            while any(name in self.clients.names for name in names):  # noqa: ASYNC110 - it lasts some milliseconds
                await asyncio.sleep(ENDING_S)

    async def _report(self, link: Link) -> None:
        await asyncio.to_thread(self.clients.measure)
        sent_at = now_s()
        said = ReportHost(
            clients=self.clients.alive(), load=machine_facts.load(), clock_s=unix_time_s(),
            memory_free_bytes=machine_facts.memory_free_bytes(), gpus=self._gpus,
        )  # fmt: skip
        self._gpus = ()
        lease = await link.call(said, LeaseAnswer, timeout_s=SILENCE_S)
        self._renew(sent_at, lease)
        for name in lease.kill:
            self.clients.kill(name)

    def _renew(self, sent_at: float, lease: LeaseAnswer) -> None:
        self._lease.renew(sent_at + lease.lease_s)
        self._report_every_s = min(HOST_REPORT_S, lease.lease_s / REPORTS_OF_LEASE)

    # Orders -----------------------------------------------------------------------------------------------------------

    async def _obey(self, method: Method) -> Struct | None:
        match method:
            case StartHostClient():
                return self._start(method)
            case KillHostClient(client=name, reason=reason):
                log.info("client %s is killed: %s", name, reason)
                self.clients.kill(name)
                return Done()
            case ProbeUnit(unit=unit, reboots=reboots):
                return await self._probe(unit, self._hooks.get(unit, ()) if reboots else ())
        raise WireError(f"an agent is not asked for {type(method).__name__}")

    def _start(self, method: StartHostClient) -> Done:
        if self._leaving or not self._lease.valid:
            raise Refused(f"host {self._host} starts no clients: {self._leaving or 'its lease is over'}")
        name = client_name(method.token)
        try:
            self.clients.start(name, method)
        except OSError as error:
            raise RequestError(f"it cannot be started on host {self._host}: {error}") from None
        log.info("%s %s of job %d starts", "helper" if method.helps else "client", name, method.job)
        return Done()

    async def _probe(self, name: UnitName, hook: Sequence[str]) -> ProbedUnit:
        unit = next((unit for pool in self._pools for unit in pool.units if unit.name == name), None)
        if unit is None:
            raise NotFound(f"host {self._host} has no unit {name}")
        try:
            pace = await treat(name, unit.cores, hook, self._hook_s)
        except Unwell as error:
            raise RequestError(str(error)) from None
        return ProbedUnit() if pace is None else ProbedUnit(pace.core_s, pace.memory_s)

    def _client_ended(self, name: str, how: str) -> None:
        self._unsaid[name] = how
        if (link := self._link) is not None:
            saying = asyncio.get_running_loop().create_task(self._say_ended(link, name))
            self._saying.add(saying)
            saying.add_done_callback(self._saying.discard)

    async def _say_ended(self, link: Link, name: str) -> None:
        """Report a client's end to the daemon; without an answer, report it again over the next connection. The daemon
        counts it once."""
        if (how := self._unsaid.get(name)) is not None:
            with contextlib.suppress(AutoschedError):
                await link.call(EndedHostClient(client=name, how=how[:4_000]), Done)
                self._unsaid.pop(name, None)

    async def _leave(self) -> None:
        """Report that nothing new may begin on this machine, then that nothing runs any more."""
        self._leaving = "its agent was stopped"
        await self._say_leaving(ended=False)
        await self.clients.kill_all()
        await self._say_leaving(ended=True)

    async def _say_leaving(self, *, ended: bool, disturbed_s: float = 0.0) -> None:
        if (link := self._link) is not None:
            with contextlib.suppress(AutoschedError):
                said = LeaveHost(reason=self._leaving, ended=ended, disturbed_s=disturbed_s)
                await link.call(said, Done, timeout_s=LEAVE_S)


async def _first(work: Coroutine[Any, Any, Any], stop: asyncio.Event) -> None:
    """Wait until the work is done, or until told to stop."""
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(work), loop.create_task(stop.wait())}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def machine_name(folder: Path) -> str:
    """The random name of this state folder, and so of the machine; created once."""
    path = folder / MACHINE
    with contextlib.suppress(OSError):
        if len(name := path.read_text().strip()) == 32:
            return name
    name = secrets.token_hex(16)
    whole_file.write(path, name.encode(), durable=True, private=True)
    return name
