"""Ends all clients of a machine that cannot reach its daemon any more, even if the agent is frozen or dead.

The agent's lease of its own machine is a moment until which clients may run. A sibling process of the agent knows it,
and kills all clients when it has passed. The next agent on this machine ends that process when its own is ready.
"""

import contextlib
import os
import select
import signal
import time
from pathlib import Path

import msgspec

from autosched.launch.job_folder import kill_strays
from autosched.process import standby_process, whole_file
from autosched.process.detached_process import birth
from autosched.process.standby_process import NEVER

OVER = -NEVER
"""Moment that means that nothing is left to guard."""
KEPT = "lease.json"
LOOK_S = 1.0
"""Maximum seconds between two looks at the clock."""


class _Kept(msgspec.Struct, frozen=True):
    """State for the next agent on this machine."""

    pid: int
    """Process id of the sibling."""
    born: str
    until_s: float = 0.0
    """Moment until which clients may run."""


class HostLease:
    """The moment until which clients may run on this machine, by a clock that includes sleep of the machine."""

    def __init__(self, folder: Path, jobs: Path) -> None:
        """`folder`: the agent's; `jobs`: the folder of all clients' folders. Forks: to be created before any thread."""
        self._until_s, self._note = 0.0, folder / KEPT
        guard, self._told = standby_process.fork(lambda heard: _stand_by(heard, jobs))
        self._kept = _Kept(guard, birth(guard))
        self._relieve()

    def _relieve(self) -> None:
        """Replace the sibling of an earlier agent."""
        earlier = None
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            earlier = msgspec.json.decode(self._note.read_bytes(), type=_Kept)
        same_boot = earlier is not None and _boot(earlier.born) == _boot(self._kept.born)
        self.renew(earlier.until_s if earlier is not None and same_boot else 0.0)
        if earlier is not None and birth(earlier.pid) == earlier.born:
            os.kill(earlier.pid, signal.SIGKILL)

    @property
    def valid(self) -> bool:
        """Whether clients may run and be started."""
        return now_s() < self._until_s

    @property
    def left_s(self) -> float:
        """Remaining seconds; negative after the end."""
        return self._until_s - now_s()

    def renew(self, until_s: float) -> None:
        """Extend the lease until a moment, by `now_s`. Never shortens it."""
        self._until_s = max(self._until_s, until_s)
        kept = msgspec.structs.replace(self._kept, until_s=self._until_s)
        with contextlib.suppress(OSError):  # if the disk is full, the next agent ends the clients that it finds
            whole_file.write(self._note, msgspec.json.encode(kept), private=True)
        standby_process.tell(self._told, self._until_s)

    def end(self) -> None:
        """End the lease: no client is left, and the agent ends."""
        with contextlib.suppress(OSError):
            standby_process.tell(self._told, OVER)


def _boot(born: str) -> str:
    """The boot of the machine in which a process was born."""
    return born.partition("/")[0]


def now_s() -> float:
    """Seconds since the machine's boot, including sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _stand_by(heard: int, jobs: Path) -> None:
    """Loop of the sibling. After the agent's death, it waits for the last moment, and ends."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    until_s, agents = NEVER, [heard]
    while agents or until_s != NEVER:
        looked_s = now_s()  # read before listening: a client that starts later may belong to a later moment
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
