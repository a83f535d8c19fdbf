"""The daemon's state folder: its lock, and daemon.json with the addresses of the running daemon."""

import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from autosched.errors import ConfigError, Refused
from autosched.process import folder_lock

WHEREABOUTS = "daemon.json"


class Whereabouts(Struct, frozen=True):
    """Contents of daemon.json: process and addresses of the running daemon."""

    pid: int
    version: str
    addresses: tuple[str, ...]
    started_at: str
    page: str = ""
    """URL of the page; empty if it is not served."""
    console: tuple[str, ...] = ()
    """Addresses of the admin console: unix:PATH, HOST:PORT."""


class Occupied(Refused):
    """Another daemon uses the state folder."""

    def __init__(self, fact: str) -> None:
        """`fact`: the daemon that uses it, without advice."""
        super().__init__(f"{fact}; use it, or set another daemon.state_dir")
        self.fact = fact


def take_state_dir(folder: Path) -> int:
    """Make the folder and lock it for this process. The lock lasts as long as the returned file descriptor is open.

    Raises Occupied when another daemon has it, ConfigError when it cannot be written.
    """
    try:
        lock = folder_lock.take(folder)
    except OSError as error:
        raise ConfigError(
            f"the state folder {folder} cannot be written ({error.strerror}); set daemon.state_dir to another one"
        ) from None
    if lock is None:
        raise Occupied(f"a daemon runs already on {folder}{_who(folder)}")
    return lock


def _who(folder: Path) -> str:
    try:
        there = whereabouts(folder)
    except Refused:
        return ""
    return f" (process {there.pid}, at {there.addresses[0]})"


def whereabouts(folder: Path) -> Whereabouts:
    """Read daemon.json. Raises Refused while the daemon does not serve."""
    try:
        return msgspec.json.decode((folder / WHEREABOUTS).read_bytes(), type=Whereabouts)
    except (OSError, msgspec.MsgspecError):
        raise Refused(
            f"the daemon that has {folder} does not serve yet, or not any more; try again in a moment"
        ) from None


def tell_whereabouts(folder: Path, whereabouts: Whereabouts) -> None:
    """Write daemon.json atomically."""
    new = folder / f"{WHEREABOUTS}.new"
    new.write_bytes(msgspec.json.encode(whereabouts) + b"\n")
    new.replace(folder / WHEREABOUTS)


def remove_whereabouts(folder: Path) -> None:
    """Deletes daemon.json, unless it belongs to another process: the folder may have been deleted and made again."""
    try:
        own = whereabouts(folder).pid == os.getpid()
    except Refused:
        return
    if own:
        (folder / WHEREABOUTS).unlink(missing_ok=True)


def started_at() -> str:
    """Current wall time, for display."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
