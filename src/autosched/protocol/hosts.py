"""Methods of agents, which lend hosts to the daemon, and of users about hosts."""

import hashlib
from typing import Annotated

from msgspec import Meta, Struct

from autosched.gpu_probe import GpuState
from autosched.model import HostName, JobId, Name, Pool, Seconds, Text
from autosched.protocol.method import FRAME_BYTES, HEARTBEAT_S, Asker, Done, Method, Role

HOST_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,62}$"
HOST_REPORT_S = HEARTBEAT_S
"""Maximum seconds between two reports of an agent."""
REPORTS_OF_LEASE = 6
"""Minimum reports of an agent during one lease."""

ClientName = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
"""Name of a client on a host: the beginning of its token's SHA-256."""
Machine = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]


def client_name(token: str) -> str:
    """Name of a client on its host: the beginning of its token's SHA-256, which does not reveal the token."""
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
    """Name of this boot of the machine, the same in all its containers."""
    versions: Annotated[dict[Name, Name], Meta(max_length=64)] = {}
    """Python, autosched, and the packages that affect the speed of code."""


class HostedClient(Struct, frozen=True):
    """A client that is alive on a host."""

    name: ClientName
    memory_bytes: Annotated[int, Meta(ge=0)] = 0


class HostLease(Struct, frozen=True):
    """The answer to a report."""

    lease_s: float
    """Seconds after the report was sent at which the host ends its clients, unless another report is answered."""
    kill: tuple[ClientName, ...] = ()
    """Clients that the daemon has given up. The host joins only when there are none: its agent ends them and asks
    again."""


class ProbedUnit(Struct, frozen=True):
    """Times of the sentinel on a device."""

    core_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Seconds of work that depends on the core only; None if the device has no cores."""
    memory_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Seconds of work that depends on the memory."""


class JoinHost(Method, frozen=True):
    """An agent lends the units of its host, for the first time or again."""

    result = HostLease
    askers = (Asker.AGENT,)
    bytes_max = FRAME_BYTES
    host: Annotated[HostName, Meta(pattern=HOST_NAME)]
    machine: Machine
    """Random name of the agent's state folder: another machine must not use the name of a known one."""
    pools: Annotated[tuple[Pool, ...], Meta(min_length=1, max_length=100)]
    """Lanes and devices, by their names on the host."""
    facts: HostFacts
    clients: Annotated[tuple[HostedClient, ...], Meta(max_length=4_096)] = ()
    """All clients that are alive there."""
    paces: Annotated[dict[Name, ProbedUnit], Meta(max_length=1_000)] = {}  # noqa: RUF012 - a Struct
    """Speed of each idle device, by its name on the host."""


class ReportHost(Method, frozen=True):
    """An agent reports the state of its host, and renews its lease."""

    result = HostLease
    askers = (Asker.AGENT,)
    bytes_max = FRAME_BYTES
    clients: Annotated[tuple[HostedClient, ...], Meta(max_length=4_096)]
    load: Annotated[float, Meta(ge=0, le=1e6)]
    """Load average of the last minute."""
    memory_free_bytes: Annotated[int, Meta(ge=0)]
    clock_s: Annotated[float, Meta(ge=0)]
    """Unix time of the host's clock, in seconds."""
    gpus: Annotated[tuple[GpuState, ...], Meta(max_length=64)] = ()
    """The last states of its GPUs, once each."""


class EndedHostClient(Method, frozen=True):
    """An agent reports that a client and all its children have ended."""

    result = Done
    askers = (Asker.AGENT,)
    client: ClientName
    how: Text


class LeaveHost(Method, frozen=True):
    """An agent withdraws its host: first the host gets no new work; with `ended`, nothing runs there any more."""

    result = Done
    askers = (Asker.AGENT,)
    reason: Text
    ended: bool = False
    disturbed_s: Seconds = 0.0
    """Seconds up to now in which other programs may have disturbed measurements there."""


class StartHostClient(Method, frozen=True, omit_defaults=True):
    """The daemon orders an agent to start the client of a job."""

    result = Done
    askers = (Asker.DAEMON_OF_AGENT,)
    job: JobId
    token: Annotated[str, Meta(min_length=1, max_length=200)]
    cache_bytes_max: Annotated[int, Meta(ge=0)]
    helps: bool = False
    """Whether it is a helper of the job's client, which is on another host."""
    apart_for: Annotated[str, Meta(max_length=200)] = ""
    """The owner of the job if it must run apart from the agent's user; else empty."""
    apart_only: bool = False
    """Whether it must not start where it cannot run apart."""
    memory_bytes_max: Annotated[int, Meta(ge=0)] = 0
    """Maximum bytes of its memory; 0: no limit."""
    tasks_max: Annotated[int, Meta(ge=0)] = 0
    """Maximum number of its processes and threads; 0: no limit."""


class KillHostClient(Method, frozen=True):
    """The daemon orders an agent to kill a client with all its children."""

    result = Done
    askers = (Asker.DAEMON_OF_AGENT,)
    client: ClientName
    reason: Text


class ProbeUnit(Method, frozen=True, omit_defaults=True):
    """The daemon orders an agent to treat a device: its reboot hook, then its sentinel. An error says what is wrong."""

    result = ProbedUnit
    askers = (Asker.DAEMON_OF_AGENT,)
    unit: Name
    """By its name on the host."""
    reboots: bool = True
    """Whether its reboot hook is called."""


class HostView(Struct, frozen=True, kw_only=True):
    """A host beside the daemon's own."""

    host: HostName
    state: str
    """here, away or left"""
    reason: str = ""
    """Why it is not here."""
    lost_in_s: float | None = None
    """Seconds until the host itself must have ended its clients, while it is away."""
    units: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Kinds of its devices, as jobs name them."""
    busy: int = 0
    drained: int = 0
    jobs: tuple[JobId, ...] = ()
    """Jobs whose client is placed there."""
    helps: tuple[JobId, ...] = ()
    """Jobs with a client on another host and stages there."""
    address: str = ""
    """Address of its agent."""
    heard_s: Seconds | None = None
    """Seconds since its agent last reported; None if it has not since the daemon's start."""
    facts: HostFacts | None = None
    """None if its agent has not connected since the daemon's start."""
    differs: tuple[str, ...] = ()
    """Versions that differ from other hosts, in words. Measurements are kept apart by version."""
    load: float = 0.0
    memory_free_bytes: int = 0
    client_bytes: int = 0
    """Memory of all clients there."""
    clock_offset_s: float = 0.0
    """The host's clock minus the daemon's, in seconds, with the duration of the report."""


class HostList(Struct, frozen=True):
    """All known hosts beside the daemon's own, in the order in which they joined."""

    hosts: tuple[HostView, ...]


class ListHosts(Method, frozen=True):
    """List the hosts beside the daemon's own."""

    result = HostList
    least_role = Role.VIEWER
    host: Annotated[HostName, Meta(max_length=200)] = ""
    """Only this host; empty: all."""


class DrainHost(Method, frozen=True):
    """Give the units of a host no more steps, and start no client there. Running steps go on."""

    result = Done
    host: HostName
    reason: Text


class ReturnHost(Method, frozen=True):
    """Give the units of a host steps again."""

    result = Done
    host: HostName


class ForgetHost(Method, frozen=True):
    """Stop waiting for a host that has left: jobs no longer wait for it."""

    result = Done
    host: HostName
