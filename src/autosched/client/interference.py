"""Whether a device's cores are at rest: a sentinel that says how fast they are, and what others run on them.

The sentinel is fixed work that knows nothing of tuning: hashing needs the core alone, copying needs the caches and the
memory too. The best of some repeats counts, in processor time of its thread, so that it says how fast the core *can* be
at present; short disturbances are seen by the other half, which compares the time that the cores were busy with what
this client's own processes used on them.
"""

import ctypes
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psutil
from msgspec import Struct

from autosched.model import DeviceNote

HASHED_BYTES = 256 * 1024
"""Fits the L2 cache: 0.2 to 1 ms of hashing."""
COPIED_BYTES = 8 * 1024 * 1024
"""Larger than the L2 cache of today's cores: a copy takes some ms."""
REPEATS = 7
CORES_MAX = 16
"""Each core needs two buffers; of larger devices the first cores speak for all."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
BUSY_FIELDS = (1, 2, 3, 6, 7, 8)
"""Of a line of /proc/stat: user, nice, system, interrupts, soft interrupts, and what a hypervisor took away."""
TIME_FIELDS = range(1, 9)


class Pace(Struct, frozen=True):
    """How long the sentinel's two halves took on the slowest core, in seconds."""

    core_s: float
    memory_s: float


def pace(cores: tuple[int, ...]) -> Pace:
    """Run the sentinel on all of these cores at once; it takes some 20 ms."""
    with ThreadPoolExecutor(CORES_MAX, "sentinel") as threads:
        found = list(threads.map(_pace_of, cores[:CORES_MAX]))
    return Pace(max(one.core_s for one in found), max(one.memory_s for one in found))


def _pace_of(core: int) -> Pace:
    """In a thread of its own, which ends with it. Both halves let other threads of this process run meanwhile."""
    os.sched_setaffinity(0, {core})
    text = bytes(HASHED_BYTES)
    source, target = (ctypes.create_string_buffer(COPIED_BYTES) for _ in range(2))
    ctypes.memset(source, 1, COPIED_BYTES)
    return Pace(_best_s(lambda: hashlib.sha256(text)), _best_s(lambda: ctypes.memmove(target, source, COPIED_BYTES)))


def _best_s(work: Callable[[], object]) -> float:
    work()  # fetches code and data
    times = []
    for _ in range(REPEATS):
        began_at = time.thread_time_ns()
        work()
        times.append(time.thread_time_ns() - began_at)
    return max(min(times), 1) / 1e9


class ForeignLoad:
    """Watches cores from now on; what this process and its children do there is not foreign."""

    def __init__(self, cores: Iterable[int], stat: Path = Path("/proc/stat")) -> None:
        self._cores, self._stat = frozenset(cores), stat
        self._began_at = time.monotonic()
        self._busy_s, self._told_s = self._times()
        self._own = self._own_times()

    def seen(self) -> tuple[float | None, float]:
        """Processor time of others, in seconds, None when it cannot be seen here; and how long was watched."""
        own = self._own_times()
        busy_s, told_s = self._times()
        watched_s = time.monotonic() - self._began_at
        if told_s - self._told_s < watched_s / 2 - TICK_S:  # a system that only pretends to count
            return None, watched_s
        used_s = sum(max(0.0, spent_s - self._own.get(key, 0.0)) for key, spent_s in own.items())
        return max(0.0, busy_s - self._busy_s - used_s), watched_s

    def _times(self) -> tuple[float, float]:
        """How long the cores were busy, and for how long the system has counted at all."""
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
        """Processor time of our processes that may use these cores, and of all that have ended since."""
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


class Watch:
    """Observes other load on a step's device; a device without cores is not observed."""

    def __init__(self, cores: tuple[int, ...]) -> None:
        self.cores = cores
        self._pace: Pace | None = None
        self._load: ForeignLoad | None = None
        self._seen: tuple[float | None, float] = (None, 0.0)

    def begin(self, sentinel: Callable[[tuple[int, ...]], Pace] | None) -> None:
        """Run the sentinel when there is one, then watch the cores."""
        if self.cores:
            self._pace = sentinel(self.cores) if sentinel is not None else None
            self._load = ForeignLoad(self.cores)

    def end(self) -> None:
        """The measurements are over."""
        if self._load is not None:
            self._seen = self._load.seen()

    @property
    def disturbed(self) -> str:
        """By how much other load disturbed the step, in words; empty when it did not."""
        note = self.note
        if note is None or note.foreign_s is None or not note.disturbed:
            return ""
        return f"other programs used {100 * note.foreign_s / note.watched_s:.0f} % of a core of the device"

    @property
    def note(self) -> DeviceNote | None:
        """For the daemon."""
        if not self.cores:
            return None
        core_s, memory_s = (self._pace.core_s, self._pace.memory_s) if self._pace is not None else (None, None)
        foreign_s, watched_s = self._seen
        return DeviceNote(core_s, memory_s, foreign_s, watched_s)


if __name__ == "__main__":  # for the daemon, which probes a device on which no client is to work: the cores, as 1,2
    sys.stdout.buffer.write(msgspec.json.encode(pace(tuple(int(core) for core in sys.argv[1].split(",")))))
