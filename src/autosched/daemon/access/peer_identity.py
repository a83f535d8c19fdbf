"""Identifies the user of a connection over a unix socket through the kernel.

A TCP connection has no user: the kernel's table of connections also lists sockets without an owner, with uid
0, so that a user of this machine could be taken for root. Over TCP a peer shows a key, a token or a session.
"""

import asyncio
import grp
import os
import pwd
import socket
import struct

from msgspec import Struct

from autosched.errors import ConfigError, Refused
from autosched.protocol.roles import Role
from autosched.wire.keys import Key

OF_USER, OF_KEY = "uid ", "key "
"""Beginnings of the names of principals."""
DIRECTORY_S = 10.0
"""Maximum seconds for an answer of the user directory (LDAP)."""
_CREDENTIALS = struct.Struct("3i")


class Principal(Struct, frozen=True):
    """An admitted peer. The audit trail shows `name`."""

    name: str
    role: Role
    address: str = ""
    key: Key | None = None
    """The key with which the peer has authenticated."""
    uid: int | None = None
    """Id of the user of this machine, as the kernel tells it; None for the owner of a key."""


def user(uid: int, role: Role, address: str) -> Principal:
    """The principal of a user of this machine."""
    return Principal(f"{OF_USER}{uid}", role, address, uid=uid)


def key_owner(key: Key, address: str) -> Principal:
    """The principal of a key."""
    return Principal(f"{OF_KEY}{key.id}", key.role, address, key)


def peer_uid(sock: socket.socket) -> int:
    """The user behind a unix socket (SO_PEERCRED)."""
    _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)


def group_id(name: str) -> int | None:
    """Id of the group whose members may use the socket; None without a name. Raises ConfigError."""
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError(
            f"daemon.group: there is no group {name!r} on this machine; make it, or leave it empty"
        ) from None


def owners() -> tuple[int, ...]:
    """The users of this machine who are operators: root, and the daemon's own user."""
    return 0, os.geteuid()


async def local_role(uid: int, group: int | None) -> Role:
    """The role of a user of this machine. Asks the user directory in a thread. Raises Refused."""
    if uid in owners():
        return Role.OPERATOR
    if group is not None and group in await _groups_in_time(uid):
        return Role.USER
    raise Refused(
        f"this daemon belongs to another user, not to uid {uid}; its operator can let you in with a key"
        " (autosched key new user), or with daemon.group in its settings"
    )


async def _groups_in_time(uid: int) -> list[int]:
    try:
        async with asyncio.timeout(DIRECTORY_S):
            return await asyncio.to_thread(_groups, uid)
    except TimeoutError:
        raise Refused(f"this machine's directory of users does not tell the groups of uid {uid}: try again") from None


def _groups(uid: int) -> list[int]:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return []
    return os.getgrouplist(entry.pw_name, entry.pw_gid)
