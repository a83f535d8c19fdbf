"""The daemon's state folder, its lock, and its sockets."""

import asyncio
import contextlib
import fcntl
import gc
import os
import resource
import socket
import stat
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from autosched.config import HOST_POOL
from autosched.errors import AutoschedError, ConfigError, Refused
from autosched.model import Pool
from autosched.wire.address import TCP, TLS

SOCKET_PATH_BYTES_MAX = 107  # of sun_path, without its final zero
CONNECT_S = 1.0
COLLECT_AFTER = (200_000, 50, 10)
"""Objects made and not freed between two looks of Python's collector at what is new; and how many of these looks lie
between two at what is older."""
IDLE_EVERY_S = 60.0
FILES_BESIDE = 256
"""Open files that are no connections: database, uploads, logs, processes."""
WHEREABOUTS = "daemon.json"


def spare_the_collector(held: contextlib.ExitStack) -> None:
    """Keep Python's garbage collector away from the objects that exist before the daemon serves.

    A collection of 100,000 objects holds the loop up for 10 ms, and for 100 ms where they are not in the caches. Later
    objects are collected when many have gathered: steps, connections and refusals leave no cycles. With 1,000 clients
    the collector took 20 to 30 ms every few seconds.
    """
    gc.collect()
    gc.freeze()
    held.callback(gc.unfreeze)
    held.callback(gc.set_threshold, *gc.get_threshold())
    gc.set_threshold(*COLLECT_AFTER)


async def collect_when_idle(active: Collection[object], decisions: Callable[[], int]) -> None:
    """For ever: look through everything when nobody works, once for each time that somebody has."""
    seen = decisions()
    while True:
        await asyncio.sleep(IDLE_EVERY_S)
        if not active and decisions() != seen:
            seen = decisions()
            gc.unfreeze()
            gc.collect()
            gc.freeze()


class Whereabouts(Struct, frozen=True):
    """daemon.json in the state folder: where the running daemon is."""

    pid: int
    version: str
    addresses: tuple[str, ...]
    started_at: str
    page: str = ""
    """Where browsers look; empty when nothing is served."""
    console: tuple[str, ...] = ()
    """Where people type commands: unix:PATH, HOST:PORT."""


def take_state_dir(folder: Path) -> int:
    """Make the folder and lock it for this process; the lock lives as long as the returned file descriptor.

    Raises Refused when another daemon has it, ConfigError when it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(
            f"the state folder {folder} cannot be written ({error.strerror}); set daemon.state_dir to another one"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Refused(
            f"a daemon runs already on {folder}{_who(folder)}; use it, or set another daemon.state_dir"
        ) from None
    return lock


def _who(folder: Path) -> str:
    try:
        there = whereabouts(folder)
    except Refused:
        return ""
    return f" (process {there.pid}, at {there.addresses[0]})"


def whereabouts(folder: Path) -> Whereabouts:
    """Where the daemon of this state folder is. Raises Refused while it does not serve."""
    try:
        return msgspec.json.decode((folder / WHEREABOUTS).read_bytes(), type=Whereabouts)
    except (OSError, msgspec.MsgspecError):
        raise Refused(f"whoever has {folder} does not serve yet, or not any more; try again in a moment") from None


def tell_whereabouts(folder: Path, whereabouts: Whereabouts) -> None:
    """Write daemon.json, whole or not at all."""
    new = folder / f"{WHEREABOUTS}.new"
    new.write_bytes(msgspec.json.encode(whereabouts) + b"\n")
    new.replace(folder / WHEREABOUTS)


def bind_unix(path: Path) -> socket.socket:
    """A listening socket for this user only. The socket of a dead daemon is replaced; a live one is Refused."""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise ConfigError(
            f"the socket path {path} is longer than {SOCKET_PATH_BYTES_MAX} bytes, which the system does not allow;"
            " set daemon.socket to a shorter one"
        )
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_dead(path)
        mask = os.umask(0o177)
        try:
            server.bind(str(path))
        finally:
            os.umask(mask)
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
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError:
            pass  # busy, so somebody is there
    raise Refused(f"another daemon answers at unix:{path}; use it, or set daemon.socket to another path")


def bind_tcp(name: str, host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises ConfigError, which names the setting, when the port is taken."""
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
        raise ConfigError(
            f"{name}: {host}:{port} cannot be used ({error.strerror}); choose another port, or 0 for any"
        ) from None
    return server


def allow_connections(wanted: int) -> None:
    """Let this process have so many open, and what else it needs, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + FILES_BESIDE
    if hard != resource.RLIM_INFINITY:
        files = min(files, hard)
    if soft not in (resource.RLIM_INFINITY, hard) and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def tcp_address(server: socket.socket, *, tls: bool = False) -> str:
    """How to reach it."""
    host, port = server.getsockname()[:2]
    return f"{TLS if tls else TCP}[{host}]:{port}" if ":" in host else f"{TLS if tls else TCP}{host}:{port}"


def stay_off_devices(pools: Iterable[Pool]) -> None:
    """Keep this process, and every client it starts, on the cores of the host's lanes: devices are to be quiet."""
    if cores := {core for pool in pools if pool.name == HOST_POOL for unit in pool.units for core in unit.cores}:
        os.sched_setaffinity(0, cores)


def started_at() -> str:
    """Wall time, for people."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
