"""Ends all clients of a machine that its daemon cannot reach any more, also when the agent itself is frozen or dead.

The agent's lease of its own machine is a moment until when clients may run. A process beside the agent knows it, and
kills everything when it has come. The next agent on this machine ends that process when its own stands by.
"""

import contextlib
import os
import select
import signal
import time
from pathlib import Path

import msgspec

from autosched.launch.job_folder import kill_strays
from autosched.process import private_file, standby_process
from autosched.process.detached_process import birth
from autosched.process.standby_process import NEVER

OVER = -NEVER
"""Told when nothing is left to guard."""
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
        guard, self._told = standby_process.fork(lambda heard: _stand_by(heard, jobs))
        self._kept = _Kept(guard, birth(guard))
        self._relieve()

    def _relieve(self) -> None:
        """Take over from the process of an earlier agent, whose moment no one moves any more."""
        earlier = None
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            earlier = msgspec.json.decode(self._note.read_bytes(), type=_Kept)
        same_boot = earlier is not None and _boot(earlier.born) == _boot(self._kept.born)
        self.renew(earlier.until_s if earlier is not None and same_boot else 0.0)
        if earlier is not None and birth(earlier.pid) == earlier.born:
            os.kill(earlier.pid, signal.SIGKILL)

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
            private_file.write(self._note, msgspec.json.encode(kept))
        standby_process.tell(self._told, self._until_s)

    def end(self) -> None:
        """No client is left, and the agent ends."""
        with contextlib.suppress(OSError):
            standby_process.tell(self._told, OVER)


def _boot(born: str) -> str:
    """The start of the machine in which a process was born."""
    return born.partition("/")[0]


def now_s() -> float:
    """Seconds since the machine was started, also those in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _stand_by(heard: int, jobs: Path) -> None:
    """In the process beside. When the agent has died, the moment stands; then this ends."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    until_s, agents = NEVER, [heard]
    while agents or until_s != NEVER:
        looked_s = now_s()  # before it listens: a client that starts later may be let by a moment not heard yet
        over = looked_s >= until_s
        if select.select(agents, [], [], 0.0 if over else min(until_s - looked_s, LOOK_S))[0]:
            moment = standby_process.hear(heard)
            if moment == OVER:
                return
            if moment is None:
                agents = []
            else:
                until_s = moment
        elif over and agents:
            kill_strays(jobs, before_s=looked_s)
            select.select(agents, [], [], LOOK_S)
        elif over:
            kill_strays(jobs)
            return
