"""The daemon's state folder and its lock."""

import time
from pathlib import Path

from autosched.errors import ConfigError, Refused
from autosched.process import folder_lock
from autosched.wire import whereabouts


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
        there = whereabouts.read(folder)
    except Refused:
        return ""
    return f" (process {there.pid}, at {there.addresses[0]})"


def started_at() -> str:
    """Current wall time, for display."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
