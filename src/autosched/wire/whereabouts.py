"""daemon.json in the state folder: process and addresses of the daemon that runs on it."""

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from autosched.errors import Refused
from autosched.process import whole_file

WHEREABOUTS = "daemon.json"


class Whereabouts(Struct, frozen=True):
    """Contents of daemon.json."""

    pid: int
    version: str
    addresses: tuple[str, ...]
    started_at: str
    page: str = ""
    """URL of the page; empty if it is not served."""
    console: tuple[str, ...] = ()
    """Addresses of the admin console: unix:PATH, HOST:PORT."""


def read(folder: Path) -> Whereabouts:
    """Read daemon.json. Raises Refused while the daemon does not serve."""
    try:
        return msgspec.json.decode((folder / WHEREABOUTS).read_bytes(), type=Whereabouts)
    except (OSError, msgspec.MsgspecError):
        raise Refused(
            f"the daemon that has {folder} does not serve yet, or not any more; try again in a moment"
        ) from None


def write(folder: Path, whereabouts: Whereabouts) -> None:
    """Write daemon.json atomically."""
    whole_file.write(folder / WHEREABOUTS, msgspec.json.encode(whereabouts) + b"\n")


def remove(folder: Path) -> None:
    """Deletes daemon.json, unless it belongs to another process: the folder may have been deleted and made again."""
    try:
        own = read(folder).pid == os.getpid()
    except Refused:
        return
    if own:
        (folder / WHEREABOUTS).unlink(missing_ok=True)
