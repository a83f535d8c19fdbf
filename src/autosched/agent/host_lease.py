"""Ends all clients of a machine that its daemon cannot reach any more, also when the agent itself is frozen or dead.

The agent's lease of its own machine is a moment until when clients may run. A process beside the agent knows it, and
kills everything when it has come. The next agent on this machine ends that process when its own stands by.
"""

import contextlib
import os
import select
import signal
import struct
import time
from pathlib import Path

import msgspec

from autosched.launch.job_folder import kill_strays
from autosched.process.detached_process import birth

MOMENT = struct.Struct("=d")
NEVER, OVER = float("inf"), float("-inf")
KEPT = "lease.json"
LOOK_S = 1.0
"""Maximum seconds between two looks at the clock."""


class _Kept(msgspec.Struct, frozen=True):
    """State for the next agent on this machine."""

    pid: int
    """The process beside the agent."""
    born: str
    until_s: float = 0.0
    """Until when clients may run."""


class HostLease:
    """Until when clients may run on this machine, by the clock that goes on while the machine sleeps."""

    def __init__(self, folder: Path, jobs: Path) -> None:
        """`folder`: the agent's; `jobs`: the one with all clients' folders. Forks: to be made before there are
        threads."""
        self._until_s, self._note = 0.0, folder / KEPT
        read, self._told = os.pipe()
        guard = os.fork()
        if guard == 0:
            try:
                os.closerange(3, read)
                os.closerange(read + 1, os.sysconf("SC_OPEN_MAX"))  # the folder's lock among them
                os.setsid()
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                _stand_by(read, jobs)
            finally:
                os._exit(0)
        os.close(read)
        os.set_blocking(self._told, False)
        self._kept = _Kept(guard, birth(guard))
        self._relieve()

    def _relieve(self) -> None:
        """Take over from the process of an earlier agent, whose moment no one moves any more."""
        until_s = 0.0
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            earlier = msgspec.json.decode(self._note.read_bytes(), type=_Kept)
            if _boot(earlier.born) == _boot(self._kept.born):
                until_s = earlier.until_s
            self.renew(until_s)
            if birth(earlier.pid) == earlier.born:
                os.kill(earlier.pid, signal.SIGKILL)
        self.renew(until_s)

    @property
    def valid(self) -> bool:
        """Whether clients may run, and be started."""
        return now_s() < self._until_s

    @property
    def left_s(self) -> float:
        """Seconds for which they may; negative when it is over."""
        return self._until_s - now_s()

    def renew(self, until_s: float) -> None:
        """The daemon trusts this machine until then, by `now_s`. Never shortened."""
        self._until_s = max(self._until_s, until_s)
        kept = msgspec.structs.replace(self._kept, until_s=self._until_s)
        with contextlib.suppress(OSError):  # on a full disk the next agent ends the clients that it finds
            new = self._note.with_suffix(".new")
            new.write_bytes(msgspec.json.encode(kept))
            new.replace(self._note)
        with contextlib.suppress(BlockingIOError):  # it is behind: then it will soon be told of a later moment
            os.write(self._told, MOMENT.pack(self._until_s))

    def end(self) -> None:
        """No client is left, and the agent ends."""
        with contextlib.suppress(OSError):
            os.write(self._told, MOMENT.pack(OVER))


def _boot(born: str) -> str:
    """The start of the machine in which a process was born."""
    return born.partition("/")[0]


def now_s() -> float:
    """Seconds since the machine was started, also those in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _stand_by(told: int, jobs: Path) -> None:
    """In the process beside. When the agent has died, the moment stands; then this ends."""
    until_s, alone = NEVER, False
    while True:
        left_s = until_s - now_s()
        if left_s <= 0:
            kill_strays(jobs)
            if alone:
                return
        pause_s = LOOK_S if left_s <= 0 else min(left_s, LOOK_S)
        if alone:
            if until_s == NEVER:
                return
            time.sleep(pause_s)
        elif select.select([told], [], [], pause_s)[0]:
            said = os.read(told, 4096 * MOMENT.size)
            alone = not said
            if said:
                (until_s,) = MOMENT.unpack(said[-MOMENT.size :])
                if until_s == OVER:
                    return
