"""A process in a session of its own, watched without polling. It outlives the daemon, and a later one adopts it."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

LOG_TAIL_BYTES = 4_096
LOOKS = 5
LOOK_AGAIN_S = 0.002
JOB_DIR = "AUTOSCHED_JOB_DIR"
"""In the environment of a client and of everything it starts: by this its processes are known."""


class Process:
    """One running process. Its output goes to a file."""

    def __init__(self, pid: int, log: Path, popen: subprocess.Popen[bytes] | None) -> None:
        """Watch it; without `popen` it is no child of this process. Raises ProcessLookupError."""
        self.pid = pid
        self._popen = popen
        self._log = log
        self._ended = asyncio.get_running_loop().create_future()
        self._watched = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._watched, self._reap)

    @classmethod
    def start(cls, command: Sequence[str], environment: Mapping[str, str], log: Path) -> "Process":
        """Start a child. Raises OSError."""
        with log.open("ab") as output:
            popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        return cls(popen.pid, log, popen)

    @classmethod
    def adopt(cls, pid: int, born: str, log: Path) -> "Process | None":
        """Watch what an earlier daemon started; None when it has ended, and the number is perhaps another's."""
        try:
            adopted = cls(pid, log, None)
        except OSError:
            return None
        if birth(pid) == born:  # asked when the number could not change hands any more
            return adopted
        adopted.forget()
        return None

    def _reap(self) -> None:
        self.forget()
        if self._popen is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # what it left in its group, while its number is still its own
            self._popen.wait()
        if not self._ended.done():
            self._ended.set_result(None)

    def forget(self) -> None:
        """Watch it no more."""
        if self._watched >= 0:
            asyncio.get_running_loop().remove_reader(self._watched)
            os.close(self._watched)
            self._watched = -1

    @property
    def memory_bytes(self) -> int:
        """Resident memory of the process without its children; 0 when it has ended."""
        return resident_bytes(self.pid) if self._watched >= 0 else 0

    def kill(self) -> None:
        """Kill the process and its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._watched >= 0:
                signal.pidfd_send_signal(self._watched, signal.SIGKILL)  # no other process can have this one's number
                os.killpg(self.pid, signal.SIGKILL)

    async def wait(self) -> str:
        """Wait for its end; returns how it ended, with the last line it wrote."""
        await asyncio.shield(self._ended)
        if self._popen is None:
            return "it ended"  # only its parent learns how
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
    """Resident memory of a process; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def birth(pid: int) -> str:
    """Start time of a process, which tells it from others with the same number; empty when it has ended."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else f"{boot}/{fields[18]}"  # when it began, in ticks since the boot


def sweep(folder: Path) -> None:
    """Delete what the client of an ended job worked with, several copies of the network; logs stay."""
    for path in sorted(folder.rglob("*"), reverse=True):  # what lies in a folder comes before the folder
        with contextlib.suppress(OSError):  # a folder with logs is not empty
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            elif path.suffix != ".log":
                path.unlink()


def kill_strays(folder: Path, spared: Collection[Path] = ()) -> list[int]:
    """Kill the processes that were started for a job folder, or for one below it, and are still there.

    Those for the folders `spared` live on. A killed client may leave processes in sessions of their own; they would
    disturb the next measurement. While they die they may start others, so it looks until it finds none.
    """
    mark = f"{JOB_DIR}={folder}".encode()
    spared_marks = {f"{JOB_DIR}={path}".encode() for path in spared}
    killed: list[int] = []
    for _ in range(LOOKS):
        clear = True
        for pid in {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()} - {
            os.getpid(),
            *killed,
        }:
            variables = _variables(pid)
            if variables is None:
                clear = False
            elif any((v == mark or v.startswith(mark + b"/")) and v not in spared_marks for v in variables):
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
