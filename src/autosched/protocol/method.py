"""Base type of a method, the version of the protocol, and its limits."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

PROTOCOL = (2, 0)
"""(major, minor). Peers with another major version are refused; a minor version only adds methods and optional
fields."""
FRAME_BYTES_BEFORE_HELLO = 4 * 1024
FRAME_BYTES = 512 * 1024
CHUNK_BYTES = 256 * 1024
BULK_BYTES = CHUNK_BYTES + 16 * 1024
"""Maximum bytes of a request that is one long byte string and little else."""
HEARTBEAT_S = 5.0
SILENCE_S = 20.0
"""Seconds of silence after which a client is considered dead."""
WAIT_MAX_S = 30.0
Version = Annotated[tuple[int, int], Meta(description="(major, minor)")]


class Role(StrEnum):
    """The rights of a connection. viewer < user < operator; a client connects for the job whose token it shows, an
    agent lends a host and starts clients there."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    CLIENT = "client"
    AGENT = "agent"


class Asker(StrEnum):
    """Peers that call methods."""

    ANYONE = "anyone"
    """A peer before its authentication."""
    USER = "user"
    CLIENT = "client"
    DAEMON = "daemon"
    """The daemon, at a client."""
    AGENT = "agent"
    DAEMON_OF_AGENT = "daemon of agent"
    """The daemon, at an agent."""


class Method(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request. A subclass declares everything about its method except the answer's content."""

    result: ClassVar[type[Struct]]
    """Type of the answer."""
    askers: ClassVar[tuple[Asker, ...]] = (Asker.USER,)
    least_role: ClassVar[Role] = Role.OPERATOR
    """The least role of a user that may call it."""
    audited: ClassVar[bool] = True
    """Whether calls are recorded in the audit trail. A viewer's method changes nothing, and never is."""
    bytes_max: ClassVar[int] = 32 * 1024
    """Maximum bytes of the parameters. Thousands of small values, or one key many times, take 5 to 15 ns a byte to
    decode."""


class Done(Struct, frozen=True):
    """The answer of a method without a result."""
