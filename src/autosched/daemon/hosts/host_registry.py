"""Registry of the hosts that agents lend: their leases and their clients.

An agent reports every few seconds. When no report has been answered for the time of the lease, the host ends all its
clients. The daemon waits a little longer, then counts the host as lost and runs its jobs on other hosts. A host that
joins, for the first time or again, first ends the clients that the daemon has given up. Therefore no unit of a host is
leased while an unknown process may run there.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import Struct

from autosched import machine
from autosched.core.events import Event, HostCutOff, HostForgotten, HostJoined, HostLeft
from autosched.core.state import Host
from autosched.daemon.hosts import lent_units
from autosched.daemon.hosts.device_comparison import DeviceComparison, Reference, pace_of
from autosched.daemon.hosts.lent_units import check_cores, check_names, lent
from autosched.daemon.hosts.remote_client import RemoteClient
from autosched.daemon.runtime import Runtime, spawn
from autosched.device_probe import Pace, Unwell
from autosched.errors import AutoschedError, DaemonUnreachable, NotFound, Refused, WireError
from autosched.gpu_probe import GpuState
from autosched.machine import boot_id, unix_time_s
from autosched.model import OWN_HOST, HostName, Pool, Unit, UnitName, at_host, device_kind
from autosched.protocol import (
    AGENT_METHODS,
    SILENCE_S,
    Done,
    EndedHostClient,
    Hello,
    HostedClient,
    HostFacts,
    HostLease,
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
from autosched.wire.link import Link

log = logging.getLogger(__name__)

MARGIN = 1 / 6
"""Time that the daemon waits after the end of a lease, as a share of the lease."""
ORDER_S = 10.0
"""Seconds within which an agent accepts an order."""
PROBE_S = 3_600.0
"""Maximum seconds for the treatment of a device by its agent. The reboot hook has its own limit."""
RESTARTED = "the daemon was started again"


@dataclass(eq=False)
class Lender:
    """Last known state of a host's agent."""

    link: Link
    facts: HostFacts
    address: str
    heard_at: float
    """Time of the last report, by the scheduler's clock."""
    load: float = 0.0
    memory_free_bytes: int = 0
    clock_offset_s: float = 0.0
    leaves: str = ""
    """Why the agent withdraws its host; empty while it does not."""


@dataclass(eq=False)
class _Session:
    """One connection of an agent."""

    link: Link
    host: HostName = ""
    """Empty before the agent has joined."""


class HostRegistry:
    """All hosts except the daemon's own."""

    def __init__(
        self,
        runtime: Runtime,
        lease_s: float,
        disturbed: Callable[[UnitName, float, str], None] = lambda *_: None,
        gpus: Callable[[HostName, Sequence[GpuState]], None] = lambda *_: None,
    ) -> None:
        """`lease_s`: seconds after the last answered report at which a host ends its clients. `disturbed`: called for
        each unit of a host that other programs used, with the start by the scheduler's clock, and the reason. `gpus`:
        called with the states of a host's GPUs."""
        self._gpus = gpus
        self._runtime, self.lease_s, self._disturbed = runtime, lease_s, disturbed
        self._comparison = DeviceComparison(runtime)
        self.lenders: dict[HostName, Lender] = {}
        """Agents that have joined since the daemon started."""
        self._clients: defaultdict[HostName, dict[str, RemoteClient]] = defaultdict(dict)
        self._trusted_until: dict[HostName, float] = {}
        self.lost: Callable[[HostName, str], None] = lambda host, reason: None
        """Called with the reason before a host leaves; no client of it is left."""

    @property
    def _patience_s(self) -> float:
        """Seconds after the last report at which a host has certainly ended its clients. Includes a margin for clocks
        and kills."""
        return self.lease_s * (1.0 + MARGIN)

    # Calls of the daemon ----------------------------------------------------------------------------------------------

    async def resume(self) -> None:
        """Wait for the hosts of the earlier daemon. Called after the daemon's own resources are declared."""
        for name in [name for name, host in self._runtime.state.hosts.items() if not host.left]:
            self._trust(name)
            await self._runtime.post(partial(self._cut_off, name, RESTARTED))

    def launch(self, host: HostName, order: StartHostClient) -> RemoteClient:
        """Let the host's agent start the client of a job, or a helper of it."""
        client = self.adopt(host, order.token)
        lender = self.lenders.get(host)
        if lender is None:
            client.end(f"host {host} cannot be reached")
        else:
            lender.link.order(order, ORDER_S, partial(self._not_started, client))
        return client

    def _not_started(self, client: RemoteClient, error: AutoschedError) -> None:
        if not isinstance(error, DaemonUnreachable):
            self._ended(client, f"it cannot be started on {client.host}: {error}")
        # else the agent may have started it: it tells when it joins again

    def adopt(self, host: HostName, token: str) -> RemoteClient:
        """Track a client that may run on a host."""
        client = RemoteClient(host, client_name(token), self._kill)
        self._clients[host][client.name] = client
        return client

    def _kill(self, client: RemoteClient) -> None:
        if (lender := self.lenders.get(client.host)) is not None and not lender.link.closed:
            method = KillHostClient(client=client.name, reason="it is given up")
            lender.link.order(method, ORDER_S, lambda error: None)  # then it is killed with the next report

    def _ended(self, client: RemoteClient, how: str) -> None:
        self._clients[client.host].pop(client.name, None)
        client.end(how)

    async def probe(self, unit: Unit, *, reboots: bool) -> Pace | None:
        """Let the host of a device reboot it, if there is a hook, and measure it. Raises Unwell."""
        lender = self.lenders.get(unit.host)
        if lender is None or lender.link.closed:
            raise Unwell(f"host {unit.host} cannot be reached")
        try:
            asked = ProbeUnit(unit=unit.name.removesuffix(at_host("", unit.host)), reboots=reboots)
            found = await lender.link.call(asked, ProbedUnit, timeout_s=PROBE_S)
        except AutoschedError as error:
            raise Unwell(str(error)) from None
        return None if found.core_s is None or found.memory_s is None else Pace(found.core_s, found.memory_s)

    def clients_of(self, host: HostName) -> Sequence[RemoteClient]:
        """Clients that may run on the host."""
        return tuple(self._clients[host].values())

    async def forget(self, host: HostName) -> None:
        """Forget a host that has left. Raises NotFound and Refused."""

        def forgotten() -> Event:
            if not self.known(host).left:
                raise Refused(
                    f"host {host} has not left: end its agent (systemctl stop autosched-agent there). Where nothing is"
                    f" heard of it, it counts as left after {self._patience_s:g} s"
                )
            return HostForgotten(host)

        await self._runtime.post(forgotten)
        self.lenders.pop(host, None)

    def known(self, host: HostName) -> Host:
        """The host of this name. Raises NotFound."""
        if (found := self._runtime.state.hosts.get(host)) is not None:
            return found
        names = ", ".join(self._runtime.state.hosts) or "none; the daemon's own has no name"
        raise NotFound(f"there is no host {host!r}; there are: {names}")

    # Agents -----------------------------------------------------------------------------------------------------------

    def attach(self, link: Link, hello: Hello) -> None:
        """Serve an agent that has said hello."""
        session = _Session(link)
        link.peer.serves, link.handler = AGENT_METHODS, partial(self._answer, session)
        spawn(self._accompany(session), "an agent")

    async def _answer(self, session: _Session, method: Method) -> Struct:
        if isinstance(method, JoinHost):
            return await self._join(session, method)
        lender = self.lenders.get(session.host)
        if lender is None or lender.link is not session.link:
            raise Refused("this connection lends no host, or the agent has another one: say join_host")
        match method:
            case ReportHost():
                return self._report(session.host, lender, method)
            case EndedHostClient(client=name, how=how):
                client = self._clients[session.host].get(name)
                if client is not None and not lender.leaves:  # else it ends with its host, not by its job's fault
                    self._ended(client, how)
                return Done()
            case LeaveHost():
                await self._leave(session.host, lender, method)
                return Done()
        raise WireError(f"an agent may not ask for {type(method).__name__}")

    async def _join(self, session: _Session, method: JoinHost) -> HostLease:
        name, known = method.host, self._runtime.state.hosts.get(method.host)
        pools = await self._named(method, known)
        others = {unit for unit, slot in self._runtime.state.slots.items() if slot.unit.host != name}
        check_names(name, pools, others)
        check_cores(pools, self._owners(name, method.facts))
        if known is not None and not known.left and known.machine != method.machine:
            raise Refused(
                f"another machine lends a host of the name {name}: name this one otherwise (--name). If the other one"
                f" is gone for good, wait for {self._patience_s:g} s after its end"
            )
        if (before := self.lenders.get(name)) is not None and before.link is not session.link:
            before.link.abort("its agent has another connection")
        alive = {client.name for client in method.clients}
        changed = known is not None and not known.left and known.pools != pools
        for client in self.clients_of(name):
            if client.name not in alive:
                self._ended(client, "its host's agent does not know it any more")
        if changed:
            for client in self.clients_of(name):
                client.wanted = False
        if unwanted := self._unwanted(name, method.clients):
            return HostLease(self.lease_s, unwanted)
        if changed:
            self._lose(name, "it has other units now")
        session.host, now = name, self._runtime.clock()
        address = session.link.address
        self.lenders[name] = Lender(session.link, method.facts, address, now)
        software = lent_units.software(method.facts, machine.versions())
        self._trust(name)

        def joined() -> Event | None:
            there = self._runtime.state.hosts.get(name)
            same = there is not None and not there.away and (there.pools, there.software) == (pools, software)
            return None if same else HostJoined(name, pools, method.machine, software)

        await self._runtime.post(joined)
        log.info("host %s is there, from %s", name, address)
        return HostLease(self.lease_s)

    async def _named(self, method: JoinHost, known: Host | None) -> tuple[Pool, ...]:
        """The pools of a host under their names in the daemon. A host that rejoins keeps its names."""
        host, references = method.host, dict[str, Reference]()
        pools = lent(host, method.pools, method.facts.cpu)
        if known is not None and not known.left and lent_units.are_same(known.pools, pools):
            pools = known.pools
        else:
            for pool in method.pools:
                if kind := device_kind(pool.name):
                    measured = pace_of(pool, method.paces) is not None
                    references[kind] = await self._comparison.reference(kind, host, measured=measured)
            pools = lent(host, method.pools, method.facts.cpu, references, method.paces)
        self._comparison.remember(host, pools, method.paces)
        return pools

    def _owners(self, host: HostName, facts: HostFacts) -> dict[int, tuple[UnitName, bool]]:
        """Units of other hosts on the same machine by their cores, and whether each is a device."""
        same = [name for name, one in self.lenders.items() if name != host and one.facts.boot == facts.boot]
        same += [OWN_HOST] if facts.boot == boot_id() else []
        slots = (slot for slot in self._runtime.state.slots.values() if facts.boot and slot.unit.host in same)
        return {
            core: (slot.unit.name, any(device_kind(pool) for pool, _ in slot.places))
            for slot in slots
            for core in slot.unit.cores
        }

    def _unwanted(self, host: HostName, clients: Sequence[HostedClient]) -> tuple[str, ...]:
        known = self._clients[host]
        return tuple(one.name for one in clients if one.name not in known or not known[one.name].wanted)

    def _report(self, host: HostName, lender: Lender, method: ReportHost) -> HostLease:
        lender.heard_at, lender.load = self._runtime.clock(), method.load
        lender.memory_free_bytes, lender.clock_offset_s = method.memory_free_bytes, method.clock_s - unix_time_s()
        known = self._clients[host]
        for one in method.clients:
            if one.name in known:
                known[one.name].memory_bytes = one.memory_bytes
        if method.gpus:
            self._gpus(host, method.gpus)
        self._trust(host)
        return HostLease(self.lease_s, self._unwanted(host, method.clients))

    async def _leave(self, host: HostName, lender: Lender, method: LeaveHost) -> None:
        lender.leaves = reason = method.reason
        if method.disturbed_s and (known := self._runtime.state.hosts.get(host)) is not None:
            for unit in known.units:
                self._disturbed(unit, self._runtime.clock() - method.disturbed_s, reason)
        if not method.ended:
            await self._runtime.post(partial(self._cut_off, host, reason))
        else:
            self._lose(host, reason)
            await self._runtime.post(lambda: None)  # waits until earlier events are durable

    # Leases -----------------------------------------------------------------------------------------------------------

    async def _accompany(self, session: _Session) -> None:
        """Watch an agent's connection until it is closed."""
        link = session.link
        listening = spawn(link.abort_when_silent(SILENCE_S), "listen to an agent")
        why = await link.wait_closed()
        listening.cancel()
        lender = self.lenders.get(session.host)
        if lender is not None and lender.link is link:
            log.warning("host %s is cut off: %s", session.host, why)
            self._runtime.tell(partial(self._cut_off, session.host, lender.leaves or why))

    def _cut_off(self, host: HostName, reason: str) -> Event | None:
        known, lender = self._runtime.state.hosts.get(host), self.lenders.get(host)
        if known is None or known.left:
            return None
        leaves = lender is not None and bool(lender.leaves) and not lender.link.closed
        if lender is not None and not lender.link.closed and not leaves:
            return None  # it has reconnected
        return HostCutOff(host, reason, None if leaves else self._trusted_until.get(host))

    def _trust(self, host: HostName) -> None:
        """Renew the lease of a host that has reported."""
        waits = host in self._trusted_until
        self._trusted_until[host] = self._runtime.clock() + self._patience_s
        if not waits:
            self._look_at(host)

    def _look_at(self, host: HostName) -> None:
        """Count a host as lost when its lease is over; else check again at its end."""
        if host not in self._trusted_until:
            return
        if (left_s := self._trusted_until[host] - self._runtime.clock()) > 0:
            asyncio.get_running_loop().call_later(left_s, self._look_at, host)
        else:
            self._lose(host, f"it was silent for {self._patience_s:.0f} s, and must have ended what ran there")

    def _lose(self, host: HostName, reason: str) -> None:
        """Remove a host on which nothing runs any more."""
        self._trusted_until.pop(host, None)
        lender = self.lenders.get(host)
        if lender is not None and not lender.link.closed and not lender.leaves:
            lender.link.abort(reason)
        self.lost(host, reason)
        for client in self.clients_of(host):
            self._ended(client, reason)

        def left() -> Event | None:
            known = self._runtime.state.hosts.get(host)
            return None if known is None or known.left else HostLeft(host, reason)

        self._runtime.tell(left)
