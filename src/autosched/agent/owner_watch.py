"""Detects use of a borrowed machine by other programs: the machine is lent only while it is unused.

The CPU time of the whole machine is compared with that of the agent and all its descendants.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autosched import formatting
from autosched.errors import Refused

log = logging.getLogger(__name__)

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
LOOK_S = 0.2
"""Seconds between two checks."""
LOOKS = 2
"""Number of checks over which load is averaged, because the kernel counts in ticks."""
BUSY_CORES = 0.5
"""Minimum load of other programs, in cores, of a machine in use."""
BUSY_SHARE = 0.02
"""Minimum load as a share of the machine's cores, if that is more: a large machine is never quite idle."""
TELL_EVERY_S = 600.0
"""Seconds between two log lines about a machine in use."""


@dataclass(frozen=True)
class OwnerBack:
    """Other programs use the machine again."""

    cores: float
    """Their load, in cores."""
    since_s: float
    """Earliest start of the load, by the clock of the event loop."""

    def __str__(self) -> str:
        return f"its owner is back: other programs use {self.cores:.1f} of its cores"


@dataclass(frozen=True)
class _Spent:
    """CPU time of one process and its ended children."""

    born: str
    """Start of the process in ticks since the boot, which distinguishes it from a later one with the same number."""
    ticks: int


class ForeignTime:
    """CPU time of other programs on this machine."""

    def __init__(self, roots: Callable[[], Iterable[int]], proc: Path = Path("/proc")) -> None:
        """`roots`: the processes that are not foreign, with all their descendants."""
        self._roots, self._proc = roots, proc
        self._own: dict[int, _Spent] = {}
        self._busy = self._told = 0
        self.look()

    def look(self) -> tuple[float, bool]:
        """Seconds of CPU time of other programs since the last call; and whether the kernel counts at all."""
        busy, told = self._machine()
        passed, counted = busy - self._busy, told > self._told
        self._busy, self._told = busy, told
        before, self._own = self._own, self._spent({*self._own, *self._roots()})
        used = _used(before, self._own, passed)
        # the load may come from processes started since the last call
        if (passed - used) * TICK_S >= LOOK_S * BUSY_CORES:
            self._own = self._spent(self._descendants())
            used = _used(before, self._own, passed)
        return max(0, passed - used) * TICK_S, counted

    def _machine(self) -> tuple[int, int]:
        """Ticks in which the machine's cores ran programs, and all counted ticks."""
        fields = [int(field) for field in (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields[:3]), sum(fields)  # user, nice and system

    def _spent(self, pids: Iterable[int]) -> dict[int, _Spent]:
        """CPU time of each of these processes that is alive."""
        found = {}
        for pid in pids:
            if fields := self._fields(pid):
                found[pid] = _Spent(fields[19], sum(map(int, fields[11:15])))
        return found

    def _descendants(self) -> set[int]:
        """The roots with all their descendants."""
        children: dict[int, list[int]] = {}
        for entry in os.scandir(self._proc):
            if entry.name.isdecimal() and (fields := self._fields(int(entry.name))):
                children.setdefault(int(fields[1]), []).append(int(entry.name))
        found, fresh = set[int](), list(self._roots())
        while fresh:
            pid = fresh.pop()
            if pid not in found:
                found.add(pid)
                fresh += children.get(pid, ())
        return found

    def _fields(self, pid: int) -> list[str]:
        """The fields of a process' stat after its name (man 5 proc_pid_stat); empty if it has ended."""
        try:
            return (self._proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return []


def _used(before: Mapping[int, _Spent], after: Mapping[int, _Spent], busy: int) -> int:
    """Ticks that processes used between two checks, of all in which the machine was busy.

    A parent has the time of its ended children. If the parent of an ended one is unknown, its time is missing; the
    check is then inconclusive, and all time counts as their own.
    """
    used = sum(one.ticks for one in after.values()) - sum(one.ticks for one in before.values())
    gone = any(pid not in after or after[pid].born != one.born for pid, one in before.items())
    return busy if gone and used < 0 else used


class OwnerWatch:
    """Waits for a borrowed machine to be quiet, and for its owner to return."""

    def __init__(self, foreign: ForeignTime, quiet_s: float, cores: int) -> None:
        """`quiet_s`: seconds without use before the machine is lent; `cores`: number of its cores."""
        self._foreign, self.quiet_s = foreign, quiet_s
        self.busy_cores = max(BUSY_CORES, BUSY_SHARE * cores)
        self._looks: deque[tuple[float, float, float]] = deque(maxlen=LOOKS)  # begun at, lasted, seconds of others

    async def quiet(self) -> None:
        """Return when the machine has not been in use for long enough. Raises Refused if use cannot be detected."""
        self._begin()
        since, told_at = self._now(), -TELL_EVERY_S
        while (now := self._now()) - since < self.quiet_s:
            if (load := await self._look()) >= self.busy_cores:
                since = self._now()
                if now - told_at >= TELL_EVERY_S:
                    told_at = now
                    log.info(
                        "the machine is in use (other programs use %.1f of its cores): it is lent when that was not so"
                        " for %s", load, formatting.duration(self.quiet_s),
                    )  # fmt: skip

    async def back(self) -> OwnerBack:
        """Return when other programs use the machine. Raises Refused if use cannot be detected."""
        self._begin()
        while (load := await self._look()) < self.busy_cores:
            pass
        return OwnerBack(load, self._looks[0][0])

    def _begin(self) -> None:
        self._foreign.look()
        self._looks.clear()
        self._looks.append((self._now(), 0.0, 0.0))

    async def _look(self) -> float:
        """Load of other programs in the last checks, in cores."""
        began, lasted, _ = self._looks[-1]
        await asyncio.sleep(LOOK_S)
        begins = began + lasted
        used_s, counted = self._foreign.look()
        if not counted:
            raise Refused(
                "this system does not count its processor time (/proc/stat), so that an agent cannot see when other"
                " programs use it: run the agent without --idle"
            )
        self._looks.append((begins, self._now() - begins, used_s))
        return sum(used for _, _, used in self._looks) / sum(lasts for _, lasts, _ in self._looks)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
