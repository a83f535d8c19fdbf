"""The work folder of a job's client, by which its processes are recognised, and which is cleaned up after it."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from autosched.process.detached_process import started_before

LOOKS_MAX = 5
"""Maximum scans of all processes while new ones appear."""
LOOK_AGAIN_S = 0.002
"""Seconds between two of these scans."""
LOG = "client.log"
"""Name of the client's log in the folder."""
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
    """Kill all processes that were started for a job folder, or for one below it.

    Spares the folders in `spared`, and processes that started after `before_s`, seconds since the boot. A killed client
    may leave processes in other sessions, which would disturb the next measurement. They may start others while they
    die, so the scan is repeated until it finds none.
    """
    mark = f"{JOB_DIR}={folder}".encode()
    spared_marks = {f"{JOB_DIR}={path}".encode() for path in spared}
    killed: list[int] = []
    for _ in range(LOOKS_MAX):
        clear = True
        for pid in {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()} - {
            os.getpid(),
            *killed,
        }:
            variables = _variables(pid)
            if variables is None:
                clear = False
            elif any((v == mark or v.startswith(mark + b"/")) and v not in spared_marks for v in variables):
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
