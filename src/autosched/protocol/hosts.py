"""Methods of agents, which lend hosts to the daemon, and of users about hosts. Since protocol 1.9."""

import hashlib
from typing import Annotated

from msgspec import Meta, Struct

from autosched.model import HostName, JobId, Name, Pool, Seconds, Text
from autosched.protocol.method import FRAME_BYTES, HEARTBEAT_S, Asker, Done, Method, Role

HOST_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,62}$"
HOST_REPORT_S = HEARTBEAT_S
"""Maximum seconds between two reports of an agent."""
REPORTS_OF_LEASE = 6
"""Minimum reports of an agent while one lease lasts."""

ClientName = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
"""Name of a client on a host: the beginning of its token's SHA-256."""
Machine = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]


def client_name(token: str) -> str:
    """Name of a client on its host: the beginning of its token's SHA-256, which gives the token away to no one."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


class HostFacts(Struct, frozen=True):
    """Facts about a machine. Unknown text is empty."""

    system: Annotated[str, Meta(max_length=200)] = ""
    """Kernel and architecture: "Linux 6.1 x86_64"."""
    cpu: Annotated[str, Meta(max_length=200)] = ""
    """Model of the processor."""
    cores: Annotated[int, Meta(ge=0)] = 0
    memory_bytes: Annotated[int, Meta(ge=0)] = 0
    boot: Annotated[str, Meta(max_length=64)] = ""
    """Name of this start of the machine, the same in all its containers."""
    versions: Annotated[dict[Name, Name], Meta(max_length=64)] = {}
    """Python, autosched, and the packages that decide how fast code is."""


class HostedClient(Struct, frozen=True):
    """A client that is alive on a host."""

    name: ClientName
    memory_bytes: Annotated[int, Meta(ge=0)] = 0


class HostLease(Struct, frozen=True):
    """The answer to a report."""

    lease_s: float
    """Seconds, from when the report was sent, after which the host ends its clients unless another one is answered."""
    kill: tuple[ClientName, ...] = ()
    """Clients that the daemon has given up. While there are any, the host has not joined: its agent ends them, and asks
    again."""


class ProbedUnit(Struct, frozen=True):
    """How fast fixed work ran on a device."""

    core_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Seconds of work that needs only the core; None: the device has no cores."""
    memory_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """The same for work that needs the memory."""


class JoinHost(Method, frozen=True):
    """An agent lends the units of its host, for the first time or again."""

    result = HostLease
    askers = (Asker.AGENT,)
    bytes_max = FRAME_BYTES
    host: Annotated[HostName, Meta(pattern=HOST_NAME)]
    machine: Machine
    """Random name of the agent's state folder: another machine may not go by the name of a known one."""
    pools: Annotated[tuple[Pool, ...], Meta(min_length=1, max_length=100)]
    """Lanes and devices, as they are called there."""
    facts: HostFacts
    clients: Annotated[tuple[HostedClient, ...], Meta(max_length=4_096)] = ()
    """All that are alive there."""
    paces: Annotated[dict[Name, ProbedUnit], Meta(max_length=1_000)] = {}  # noqa: RUF012 - a Struct
    """How fast each device is, as it is called there, measured while nothing ran on it."""


class ReportHost(Method, frozen=True):
    """An agent tells how its host is, and renews its lease."""

    result = HostLease
    askers = (Asker.AGENT,)
    bytes_max = FRAME_BYTES
    clients: Annotated[tuple[HostedClient, ...], Meta(max_length=4_096)]
    load: Annotated[float, Meta(ge=0, le=1e6)]
    """Processes that ran or wanted to run, mean of the last minute."""
    memory_free_bytes: Annotated[int, Meta(ge=0)]
    clock_s: Annotated[float, Meta(ge=0)]
    """Unix time of the host's clock, in seconds."""


class EndedHostClient(Method, frozen=True):
    """An agent tells that a client, and all that it had started, has ended."""

    result = Done
    askers = (Asker.AGENT,)
    client: ClientName
    how: Text


class LeaveHost(Method, frozen=True):
    """An agent takes its host away: first it gets nothing new to do; with `ended`, nothing runs there any more."""

    result = Done
    askers = (Asker.AGENT,)
    reason: Text
    ended: bool = False
    disturbed_s: Seconds = 0.0
    """Seconds up to now in which other programs may have disturbed what was measured there."""


class StartHostClient(Method, frozen=True):
    """The daemon orders an agent to start the client of a job."""

    result = Done
    askers = (Asker.DAEMON_OF_AGENT,)
    job: JobId
    token: Annotated[str, Meta(min_length=1, max_length=200)]
    cache_bytes_max: Annotated[int, Meta(ge=0)]
    helps: bool = False
    """Whether it is a helper of the job's client, which is on another host."""


class KillHostClient(Method, frozen=True):
    """The daemon orders an agent to kill a client, with all that it has started."""

    result = Done
    askers = (Asker.DAEMON_OF_AGENT,)
    client: ClientName
    reason: Text


class ProbeUnit(Method, frozen=True):
    """The daemon orders an agent to treat a quarantined device: its reboot hook, then its sentinel. An error says what
    is wrong with it."""

    result = ProbedUnit
    askers = (Asker.DAEMON_OF_AGENT,)
    unit: Name
    """As it is called there."""


class HostView(Struct, frozen=True, kw_only=True):
    """One host beside the daemon's own."""

    host: HostName
    state: str
    """here, away or left"""
    reason: str = ""
    """Why it is not here."""
    lost_in_s: float | None = None
    """While it is away: seconds until the host itself must have ended what runs there."""
    units: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Kinds of its devices, as jobs name them."""
    busy: int = 0
    drained: int = 0
    jobs: tuple[JobId, ...] = ()
    """Those whose client is placed there."""
    helps: tuple[JobId, ...] = ()
    """Those whose client is elsewhere, and of which stages run there."""
    address: str = ""
    """Where its agent connects from."""
    heard_s: Seconds | None = None
    """Seconds since its agent last reported; None: not since the daemon's start."""
    facts: HostFacts | None = None
    """None: its agent was not there since the daemon's start."""
    differs: tuple[str, ...] = ()
    """Versions that other hosts have otherwise, in words. Measurements are kept apart by them."""
    load: float = 0.0
    memory_free_bytes: int = 0
    client_bytes: int = 0
    """Memory of all clients there."""
    clock_offset_s: float = 0.0
    """Its clock minus the daemon's, with the time that the report took."""


class HostList(Struct, frozen=True):
    """All known hosts beside the daemon's own, in the order in which they joined."""

    hosts: tuple[HostView, ...]


class ListHosts(Method, frozen=True):
    """List the hosts beside the daemon's own."""

    result = HostList
    least_role = Role.VIEWER
    host: Annotated[HostName, Meta(max_length=200)] = ""
    """Only this one; empty: all."""


class DrainHost(Method, frozen=True):
    """No unit of the host gets steps any more, and no client is started there; what runs goes on."""

    result = Done
    host: HostName
    reason: Text


class ReturnHost(Method, frozen=True):
    """All units of the host get steps again."""

    result = Done
    host: HostName


class ForgetHost(Method, frozen=True):
    """A host that has left is not expected back: jobs no longer wait for it."""

    result = Done
    host: HostName
