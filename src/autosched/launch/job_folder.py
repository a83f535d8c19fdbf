"""The work folder of a job's client, by which its processes are recognised, and which is cleaned up after it."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from autosched.process import process_tree
from autosched.process.detached_process import birth, started_before

LOOKS_MAX = 5
"""Maximum scans of all processes while new ones appear."""
LOOK_AGAIN_S = 0.002
"""Seconds between two of these scans."""
LOG = "client.log"
"""Name of the client's log in the folder."""
HELPER = "helper"
"""Name of the folder of the client's helper in the folder."""
JOB_DIR = "AUTOSCHED_JOB_DIR"
"""Environment variable of a client and all its descendants, by which its processes are recognised."""


def sweep(folder: Path) -> None:
    """Delete the files of an ended job's client, such as copies of the network; logs stay."""
    for path in sorted(folder.rglob("*"), reverse=True):  # files in a folder come before the folder
        with contextlib.suppress(OSError):  # a folder with logs is not empty
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            elif path.suffix != ".log":
                path.unlink()


def kill_strays(folder: Path, spared: Collection[Path] = (), *, before_s: float = math.inf) -> list[int]:
    """Kill all processes that were started for a job folder, or for one below it. They are recognised by their
    environment or, if they have emptied it, by their mark.

    Spares the folders in `spared`, and processes that started after `before_s`, seconds since the boot. A killed client
    may leave processes in other sessions, which would disturb the next measurement. They may start others while they
    die, so the scan is repeated until it finds none.
    """
    variable = f"{JOB_DIR}={folder}".encode()
    spared_variables = {f"{JOB_DIR}={path}".encode() for path in spared}
    marks = {process_tree.mark(path) for path in (folder, *_folders_in(folder))}
    marks -= {process_tree.mark(path) for one in spared for path in (one, *_folders_in(one))}
    killed: list[int] = []
    for _ in range(LOOKS_MAX):
        clear = True
        for pid in {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()} - {
            os.getpid(),
            *killed,
        }:
            marked, variables = process_tree.mark_of(pid) in marks and birth(pid), _variables(pid)
            if not marked and variables is None:
                clear = False
            elif marked or any(
                (v == variable or v.startswith(variable + b"/")) and v not in spared_variables for v in variables or ()
            ):
                if before_s != math.inf and not started_before(pid, before_s):
                    continue
                clear = False
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
        if clear:
            break
        time.sleep(LOOK_AGAIN_S)
    return killed


def _folders_in(folder: Path) -> list[Path]:
    """Folders of clients and of their helpers in a folder."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [path for name in names for path in (folder / name, folder / name / HELPER)]


def _variables(pid: int) -> list[bytes] | None:
    """The environment of a process; None during an exec, when the kernel shows none."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        if not environment:
            os.readlink(f"/proc/{pid}/exe")  # kernel threads and dead processes have none
            return None
    except OSError:  # ended meanwhile, or of another user
        return []
    return environment.split(b"\0")
