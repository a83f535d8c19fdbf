"""A process in a separate session, watched without polling. It survives the daemon, and a later daemon adopts it."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autosched.machine import boot_id
from autosched.process import control_group, process_tree
from autosched.process.control_group import ControlGroup
from autosched.process.program_runner import killed_by

LOG_TAIL_BYTES = 4_096
"""Bytes at the end of a log in which the last line is looked for."""
LOG_BYTES_MAX, LOG_BYTES_KEPT = 16 * 1024**2, 1024**2
"""Size of a log from which on its beginning is removed, and the bytes at its end that stay."""
REMOVE_EVERY_S, REMOVE_TRIES = 0.1, 100
"""Seconds between two attempts to remove a control group, whose processes are about to end, and their number."""
LACK = ": its control group had no memory left; limits.client_bytes_max bounds it"
"""Words for the end of a process that the kernel killed."""
LOG_LOOK_S = 1.0
"""Seconds between two checks of the size of a log."""
WRAPPER = "bwrap"
"""Name of the program around a process that runs apart, and of the first process in there."""
SIGNALLED = 128
"""Exit code of that program, less the number of the signal that has ended the process in it."""


class _Started(subprocess.Popen[bytes]):
    """A process that is meant to survive this object."""

    def __del__(self) -> None:  # its base warns of a process that still runs
        pass


def start(
    command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in a separate session; its output is appended to a file. `folder`: its current folder.

    Raises OSError.
    """
    with log.open("ab") as output:
        return _Started(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=folder,
            start_new_session=True,
        )  # fmt: skip


class Process:
    """One running process, in a control group of its own where the service manager allows it. Its output goes to a
    file."""

    def __init__(
        self, pid: int, log: Path, popen: subprocess.Popen[bytes] | None, group: ControlGroup | None = None
    ) -> None:
        """Watch a process; without `popen` it is no child of this process. Raises ProcessLookupError."""
        self.pid = pid
        self._popen, self._wrapped, self._group, self._lack = popen, False, group, ""
        self._log = log
        self._ended = asyncio.get_running_loop().create_future()
        self._watched = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._watched, self._reap)
        self._look_at_log()

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        folder: Path | None = None,
        group: ControlGroup | None = None,
    ) -> "Process":
        """Start a child. `folder`: its current folder. `group`: an empty one. Raises OSError."""
        popen = start(command if group is None else group.command(command), environment, log, folder)
        started = cls(popen.pid, log, popen, group)
        started._wrapped = Path(command[0]).name == WRAPPER
        return started

    @classmethod
    def adopt(cls, pid: int, born: str, log: Path) -> "Process | None":
        """Watch a process of an earlier daemon; None if it has ended, and its number may be another's."""
        try:
            adopted = cls(pid, log, None)
        except OSError:
            return None
        if birth(pid) == born:  # checked when the number could not be reused any more
            groups = control_group.delegated()
            adopted._group = groups.of(pid) if groups is not None else None
            return adopted
        adopted.forget()
        return None

    def _look_at_log(self) -> None:
        """Cut the log when it is too large, until the process ends."""
        if self._watched >= 0:
            with contextlib.suppress(OSError):
                cut_log(self._log)
            asyncio.get_running_loop().call_later(LOG_LOOK_S, self._look_at_log)

    def _reap(self) -> None:
        self.forget()
        if self._popen is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # processes left in its group, while its number is still in use
            self._popen.wait()
        if self._group is not None:
            self._lack = LACK if self._group.was_full else ""
            self._group.kill()
            self._remove(self._group)
        with contextlib.suppress(OSError):
            cut_log(self._log)
        if not self._ended.done():
            self._ended.set_result(None)

    def _remove(self, group: ControlGroup, tries: int = REMOVE_TRIES) -> None:
        """Remove its group; one that could not be removed in time is removed at the next start."""
        if not group.remove() and tries:
            asyncio.get_running_loop().call_later(REMOVE_EVERY_S, self._remove, group, tries - 1)

    def forget(self) -> None:
        """Stop watching."""
        if self._watched >= 0:
            asyncio.get_running_loop().remove_reader(self._watched)
            os.close(self._watched)
            self._watched = -1

    @property
    def memory_bytes(self) -> int:
        """Resident memory of the process and its descendants, where shared pages count several times; 0 if it has
        ended."""
        return self._measured(process_tree.tree_bytes)

    @property
    def exact_memory_bytes(self) -> int:
        """The same, where each page counts once. Takes milliseconds for each gigabyte."""
        return self._measured(process_tree.exact_tree_bytes)

    def _measured(self, measure: Callable[[int], int]) -> int:
        """Memory as its control group counts it, else by `measure`."""
        if self._watched < 0:
            return 0
        counted = self._group.memory_bytes if self._group is not None and self._popen is not None else None
        return measure(self.pid) if counted is None else counted  # a group does not know what it held before a pause

    def limit(self, memory_bytes: int, tasks: int) -> None:
        """Set the limits of its control group, if it has one; 0: no limit."""
        if self._group is not None:
            self._group.limit(memory_bytes, tasks)

    def kill(self) -> None:
        """Kill the process and its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._watched >= 0:
                signal.pidfd_send_signal(self._watched, signal.SIGKILL)  # no other process can have this number now
                os.killpg(self.pid, signal.SIGKILL)
                if self._group is not None:
                    self._group.kill()

    async def wait(self) -> str:
        """Wait for its end; returns how it ended, with the last line it wrote."""
        await asyncio.shield(self._ended)
        if self._popen is None:
            return f"it ended{self._lack}"  # only its parent can know how
        code = self._popen.returncode
        if code > SIGNALLED and self._wrapped:  # as shells report a signal
            code = SIGNALLED - code
        if code == -signal.SIGKILL and self._lack:
            return f"killed by SIGKILL{self._lack}"
        how = killed_by(-code) if code < 0 else f"exit code {code}"
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


def cut_log(path: Path) -> None:
    """Remove the beginning of a log that is too large. Processes that append to it go on behind the rest; what they
    write within these microseconds is lost.

    Raises OSError.
    """
    if (size := path.stat().st_size) <= LOG_BYTES_MAX:
        return
    with path.open("r+b") as file:
        file.seek(size - LOG_BYTES_KEPT)
        end = file.read(LOG_BYTES_KEPT)
        file.truncate(0)
    with path.open("ab") as file:
        file.write(b"[%d bytes were removed here: the log was too large]\n" % (size - len(end)) + end)


def birth(pid: int) -> str:
    """Start time of a process, which distinguishes it from others with the same number; empty if it has ended."""
    ticks = _start_ticks(pid)
    return "" if ticks is None else f"{boot_id()}/{ticks}"


def started_before(pid: int, moment_s: float) -> bool:
    """Whether a process certainly started before a moment, in seconds since the boot; False if it has ended.

    The kernel reports the start in ticks of 10 ms, rounded down.
    """
    ticks = _start_ticks(pid)
    return ticks is not None and ticks < int(moment_s * os.sysconf("SC_CLK_TCK"))


def _start_ticks(pid: int) -> int | None:
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(fields[18])
