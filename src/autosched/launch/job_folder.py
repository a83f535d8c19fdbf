"""The folder in which a job's client works: its processes are known by it, and its leftovers are removed."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from autosched.process.detached_process import started_before

LOOKS_MAX = 5
"""Maximum looks at all processes while new ones appear."""
LOOK_AGAIN_S = 0.002
"""Seconds between two of these looks."""
LOG = "client.log"
"""Name of the client's log in the folder."""
JOB_DIR = "AUTOSCHED_JOB_DIR"
"""Variable in the environment of a client and of everything it starts, by which its processes are known."""


def sweep(folder: Path) -> None:
    """Delete what the client of an ended job worked with, several copies of the network; logs stay."""
    for path in sorted(folder.rglob("*"), reverse=True):  # what lies in a folder comes before the folder
        with contextlib.suppress(OSError):  # a folder with logs is not empty
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            elif path.suffix != ".log":
                path.unlink()


def kill_strays(folder: Path, spared: Collection[Path] = (), *, before_s: float = math.inf) -> list[int]:
    """Kill the processes that were started for a job folder, or for one below it, and are still there.

    Those for the folders `spared` live on, and those that started after `before_s`, seconds since the boot. A killed
    client may leave processes in sessions of their own; they would disturb the next measurement. While they die they
    may start others, so it looks until it finds none.
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
    """The environment of a process; None while it turns into another program, when the kernel shows none."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        if not environment:
            os.readlink(f"/proc/{pid}/exe")  # the kernel's own threads and the dead have none
            return None
    except OSError:  # ended meanwhile, or not ours
        return []
    return environment.split(b"\0")
