"""Listening sockets of the daemon."""

import errno
import os
import socket
import stat
from contextlib import ExitStack
from pathlib import Path

from autosched.errors import AutoschedError, ConfigError, Refused
from autosched.wire import unix_sockets
from autosched.wire.address import TCP, TLS, UNIX

LOOPBACK, LOOPBACK_IPV6 = "127.0.0.1", "::1"
BACKLOG = 4_096
"""Maximum connections that wait in the kernel. After a restart of the daemon all clients reconnect together."""
CONNECT_S = 1.0
"""Seconds in which a live daemon accepts a connection."""


class UnixListener(socket.socket):
    """A unix socket that knows its path, which may be longer than the system's name of it."""

    path = ""


def unix_address(listener: socket.socket) -> str:
    """Address for clients of a unix socket."""
    known = listener.path if isinstance(listener, UnixListener) else ""
    return f"{UNIX}{known or listener.getsockname()}"


def own_unix(path: Path, held: ExitStack) -> socket.socket:
    """Returns the socket of `bind_unix`, which `held` closes and removes. A socket that another daemon has made at the
    same path since then stays."""
    server = held.enter_context(bind_unix(path))
    held.callback(_remove_own, path, _identity(path))
    return server


def _remove_own(path: Path, own: tuple[int, int, int] | None) -> None:
    if _identity(path) == own:
        path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Returns what tells a file from a later one of the same name; None without a file."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns  # a later file may have the inode of a deleted one


def bind_unix(path: Path) -> socket.socket:
    """A listening socket for this user only. Replaces the socket of a dead daemon. Raises Refused for a live one, and
    ConfigError."""
    server = UnixListener(socket.AF_UNIX, socket.SOCK_STREAM)
    server.path = str(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_dead(path)
        mask = os.umask(0o177)
        try:
            with unix_sockets.short(path) as name:
                server.bind(name)
        finally:
            os.umask(mask)
        server.listen(BACKLOG)  # at once: a socket that refuses is taken for that of a dead daemon
    except OSError as error:
        server.close()
        raise ConfigError(
            f"the socket {path} cannot be made ({error.strerror}); set daemon.socket to another one"
        ) from None
    except AutoschedError:
        server.close()
        raise
    return server


def _remove_dead(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} exists and is not a socket; move it away, or set daemon.socket to another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_S)
        try:
            with unix_sockets.short(path) as name:
                probe.connect(name)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError:
            pass  # busy: a daemon listens
    raise Refused(f"another daemon answers at unix:{path}; use it, or set daemon.socket to another path")


def bind_tcp(name: str, host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises ConfigError, which names the setting, when the port is taken.

    On a machine without IPv4, which has no 127.0.0.1, it is on ::1 instead.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((host, port))
        server.listen(128)
    except socket.gaierror as error:
        server.close()
        raise ConfigError(
            f"{name}: {host!r} cannot be resolved ({error.strerror}); write an address of this machine, or 127.0.0.1"
        ) from None
    except OSError as error:
        server.close()
        if host == LOOPBACK and error.errno == errno.EADDRNOTAVAIL:
            return bind_tcp(name, LOOPBACK_IPV6, port)
        raise ConfigError(
            f"{name}: {host}:{port} cannot be used ({error.strerror}); choose another port, or 0 for any"
        ) from None
    return server


def tcp_address(server: socket.socket, *, tls: bool = False) -> str:
    """Address for clients."""
    host, port = server.getsockname()[:2]
    return f"{TLS if tls else TCP}[{host}]:{port}" if ":" in host else f"{TLS if tls else TCP}{host}:{port}"
