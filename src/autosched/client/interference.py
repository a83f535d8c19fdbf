"""Detects load of other programs on a device's cores: compares the cores' busy time with the CPU time of this client's
own processes on them. The sentinel runs before the measurements and cannot detect short disturbances."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from autosched.model import DeviceNote
from autosched.sentinel import SentinelTimes

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
BUSY_FIELDS = (1, 2, 3, 6, 7, 8)
"""Columns of a line of /proc/stat: user, nice, system, interrupts, soft interrupts, and time taken by a hypervisor."""
TIME_FIELDS = range(1, 9)


class ForeignLoad:
    """Watches cores from its creation on. Load of this process and its children does not count."""

    def __init__(self, cores: Iterable[int], stat: Path = Path("/proc/stat")) -> None:
        self._cores, self._stat = frozenset(cores), stat
        self._began_at = time.monotonic()
        self._busy_s, self._told_s = self._times()
        self._own = self._own_times()

    def seen(self) -> tuple[float | None, float]:
        """CPU time of other programs in seconds, None if it cannot be seen; and the duration of the watch in
        seconds."""
        own = self._own_times()
        busy_s, told_s = self._times()
        watched_s = time.monotonic() - self._began_at
        if told_s - self._told_s < watched_s / 2 - TICK_S:  # a system that only emulates /proc/stat
            return None, watched_s
        used_s = sum(max(0.0, spent_s - self._own.get(key, 0.0)) for key, spent_s in own.items())
        return max(0.0, busy_s - self._busy_s - used_s), watched_s

    def _times(self) -> tuple[float, float]:
        """Busy time of the cores, and time that the system has counted in all, in seconds."""
        busy = told = 0
        try:
            lines = self._stat.read_text().splitlines()
        except OSError:
            return 0.0, 0.0
        names = {f"cpu{core}" for core in self._cores}
        for fields in (line.split() for line in lines):
            if fields and fields[0] in names:
                busy += sum(int(fields[i]) for i in BUSY_FIELDS if i < len(fields))
                told += sum(int(fields[i]) for i in TIME_FIELDS if i < len(fields))
        return busy * TICK_S, told * TICK_S

    def _own_times(self) -> dict[tuple[int, str], float]:
        """CPU time of our processes that may use these cores, and of all that have ended since."""
        this = psutil.Process()
        spent: dict[tuple[int, str], float] = {}
        for process in (this, *(this.children(recursive=True) if _has_children() else ())):
            try:
                times = process.cpu_times()
                spent[process.pid, "ended"] = times.children_user + times.children_system
                if self._cores & os.sched_getaffinity(process.pid):
                    spent[process.pid, "own"] = times.user + times.system
            except (psutil.Error, OSError):  # it has just ended
                continue
        return spent


def _has_children() -> bool:
    """One system call; to look for them means to read about every process of the machine."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


class InterferenceMonitor:
    """Observes other load on a step's device; a device that has no cores and is no board is not observed."""

    def __init__(self, cores: tuple[int, ...]) -> None:
        self.cores = cores
        self.board: DeviceNote | None = None
        """The result of the backend's sentinel on a board; None where the device is no board, or it did not run."""
        self._pace: SentinelTimes | None = None
        self._load: ForeignLoad | None = None
        self._seen: tuple[float | None, float] = (None, 0.0)

    def begin(self, sentinel: Callable[[tuple[int, ...]], SentinelTimes] | None) -> None:
        """Run the sentinel if there is one, then watch the cores."""
        if self.cores:
            self._pace = sentinel(self.cores) if sentinel is not None else None
            self._load = ForeignLoad(self.cores)

    def end(self) -> None:
        """End the watch."""
        if self._load is not None:
            self._seen = self._load.seen()

    @property
    def disturbed(self) -> str:
        """The disturbance of the step by other load, in words; empty if there was none."""
        note = self.note
        if note is None or note.foreign_s is None or not note.disturbed:
            return ""
        return f"other programs used {100 * note.foreign_s / note.watched_s:.0f} % of a core of the device"

    @property
    def note(self) -> DeviceNote | None:
        """The observation for the daemon."""
        if not self.cores:
            return self.board
        core_s, memory_s = (self._pace.core_s, self._pace.memory_s) if self._pace is not None else (None, None)
        foreign_s, watched_s = self._seen
        return DeviceNote(core_s, memory_s, foreign_s, watched_s)
