"""The daemon's state folder and its lock."""

import os
import shlex
import stat
import time
from contextlib import suppress
from pathlib import Path

from autosched.errors import ConfigError, Refused
from autosched.process import folder_lock
from autosched.wire import whereabouts

KEYS, OWN = "keys", ("blobs", "cache", "caches", "jobs", "moved", "snapshots", "backups", "daemon.json")
"""Names in the folder that are private."""
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""Mode bits that let other users write."""


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
    try:
        check_owner(folder)
    except ConfigError:
        os.close(lock)
        raise
    return lock


def check_owner(folder: Path) -> None:
    """Raise ConfigError if another user than root owns the folder, who could replace the database and the keys."""
    owner = folder.stat().st_uid
    if owner not in (os.geteuid(), 0) and os.geteuid() != 0:
        raise ConfigError(
            f"the state folder {folder} belongs to uid {owner}, who could change everything in it; set"
            f" daemon.state_dir to another one, or run, as root: chown {os.geteuid()} {shlex.quote(str(folder))}"
        )


def exposed(folder: Path) -> str:
    """A warning if other users may write to the folder; empty if they may not."""
    try:
        if not folder.stat().st_mode & WRITABLE_BY_OTHERS:
            return ""
    except OSError:
        return ""
    return (
        f"other users may write to the state folder {folder}, and so replace its keys and data; run, as its owner:"
        f" chmod go-w {shlex.quote(str(folder))}"
    )


def close_to_others(folder: Path) -> None:
    """Forbid other users to write to the folder, if this process may."""
    with suppress(OSError):
        if (mode := folder.stat().st_mode) & WRITABLE_BY_OTHERS:
            folder.chmod(stat.S_IMODE(mode) & ~WRITABLE_BY_OTHERS)


def make_private(folder: Path) -> None:
    """Have this process make files that only its user can read, and take the rights of others to those that are there,
    which an earlier version or a command may have made."""
    os.umask(0o077)
    close_to_others(folder)
    for path in [folder / KEYS, *folder.glob("*.db*"), *(folder / name for name in OWN)]:
        with suppress(OSError):
            if (mode := path.lstat().st_mode) & 0o077 and not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(mode) & ~0o077)


def _who(folder: Path) -> str:
    try:
        there = whereabouts.read(folder)
    except Refused:
        return ""
    return f" (process {there.pid}, at {there.addresses[0]})"


def started_at() -> str:
    """Current wall time, for display."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
