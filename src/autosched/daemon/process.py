"""A child process that dies with the daemon, in a session of its own, watched without polling."""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
LOG_TAIL_BYTES = 4_096
JOB_DIR = "AUTOSCHED_JOB_DIR"
"""In the environment of a client and of everything it starts: by this its processes are known."""


class Process:
    """One running child. Its output goes to a file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start it. Raises OSError."""
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
                # Called between fork and exec; it must not allocate locks, and a foreign function call does not.
                preexec_fn=_die_with_parent,
            )
        self.pid = self._popen.pid
        self._log = log
        self._ended = asyncio.get_running_loop().create_future()
        self._watched = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._watched, self._reap)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watched)
        os.close(self._watched)
        self.kill()  # what it left in its group, while its number cannot have been given to another process
        self._popen.wait()
        if not self._ended.done():
            self._ended.set_result(None)

    @property
    def memory_bytes(self) -> int:
        """What it holds in memory, without what it has started; 0 when it has ended."""
        return resident_bytes(self.pid) if self._popen.returncode is None else 0

    def kill(self) -> None:
        """Kill the process and its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._popen.returncode is None:
                os.killpg(self.pid, signal.SIGKILL)

    async def wait(self) -> str:
        """Wait for its end; returns how it ended, with the last line it wrote."""
        await asyncio.shield(self._ended)
        code = self._popen.returncode
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        last = self._last_line() if code else ""
        return f"{how}; its last words: {last}" if last else how

    def _last_line(self) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - LOG_TAIL_BYTES))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def resident_bytes(pid: int | str) -> int:
    """What a process holds in memory; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def sweep(folder: Path) -> None:
    """Delete what the client of an ended job worked with, several copies of the network; logs stay."""
    for path in sorted(folder.rglob("*"), reverse=True):  # what lies in a folder comes before the folder
        with contextlib.suppress(OSError):  # a folder with logs is not empty
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            elif path.suffix != ".log":
                path.unlink()


def kill_strays(folder: Path) -> list[int]:
    """Kill the processes that were started for a job folder, or for one below it, and are still there.

    A killed client may leave processes in sessions of their own; they would disturb the next measurement.
    """
    mark = f"{JOB_DIR}={folder}".encode()
    killed = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry.name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:  # ended meanwhile, or not ours
            continue
        if any(v == mark or v.startswith(mark + b"/") for v in variables):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(entry.name), signal.SIGKILL)
                killed.append(int(entry.name))
    return killed
