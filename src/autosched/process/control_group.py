"""Control groups for clients, below that of this process, where the service manager has delegated it (Delegate=).

A group bounds the memory and the number of tasks of a client with all that it starts, and is killed as a whole.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst; systemd, docs/CGROUP_DELEGATION.md.
"""

import logging
import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

log = logging.getLogger(__name__)

OWN, CLIENT = "main", "client-"
"""Name of the group of this process, and the beginning of those of its clients."""
CONTROLLERS = ("memory", "pids")
DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes with which systemd marks a group that its service may divide."""
ENTER = 'echo 0 > "$0/cgroup.procs" || exit 75; exec "$@"'
"""Script that runs a program in a group. Without it the machine cannot run the client (EX_TEMPFAIL)."""
HELD = ("anon", "shmem")
"""Counters in memory.stat that are memory of processes; files that were read can be dropped."""


MAIN_PROCESS = "SYSTEMD_EXEC_PID"
"""Environment variable of a service with the number of the process that systemd has started (systemd.exec(5))."""


def mounted() -> Path | None:
    """Where the groups of version 2 are mounted."""
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields, _, kind = line.partition(" - ")
            if kind.startswith("cgroup2 "):
                return Path(fields.split()[4])
    return None


def _group_of(pid: int | str) -> Path | None:
    """The group of a process; None if it has ended, or without groups of version 2."""
    if (root := mounted()) is None:
        return None
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            if line.startswith("0::/") and not line.endswith(" (deleted)"):
                return root / line.removeprefix("0::/")
    return None


def _is_delegated(group: Path) -> bool:
    for name in DELEGATED:
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return os.access(group / "cgroup.subtree_control", os.W_OK)
    return False


class ControlGroup(Struct, frozen=True):
    """The group of one client."""

    folder: Path

    def command(self, program: Sequence[str]) -> list[str]:
        """The command that runs a program in this group."""
        return ["/bin/sh", "-c", ENTER, str(self.folder), *program]

    def limit(self, memory_bytes: int, tasks: int) -> None:
        """Set its maximum memory, and number of processes and threads; 0: no limit."""
        for name, most in (("memory.max", memory_bytes), ("pids.max", tasks)):
            with suppress(OSError):  # the controller may be missing
                (self.folder / name).write_text(str(most or "max"))

    @property
    def memory_bytes(self) -> int | None:
        """Memory of its processes, where each page counts once; None without the controller."""
        counted = self._counted("memory.stat")
        return sum(counted.get(name, 0) for name in HELD) if counted else None

    @property
    def was_full(self) -> bool:
        """Whether its processes wanted more memory than its limit, so that the kernel killed one."""
        return self._counted("memory.events").get("oom", 0) > 0

    def _counted(self, name: str) -> dict[str, int]:
        """The lines of a file with a name and a number each; none without the controller."""
        with suppress(OSError, ValueError):
            lines = (line.split() for line in (self.folder / name).read_text().splitlines())
            return {what: int(count) for what, count in lines}
        return {}

    def kill(self) -> None:
        """Kill all of its processes."""
        with suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")

    def remove(self) -> bool:
        """Remove it with the groups in it; False while a process lives in it."""
        for folder, _, _ in os.walk(self.folder, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
        return not self.folder.exists()


class ControlGroups:
    """The groups of all clients of this process, in the group that was delegated to it."""

    def __init__(self, unit: Path) -> None:
        self._unit = unit

    def new(self, memory_bytes: int, tasks: int) -> ControlGroup:
        """Make the group of a client. Raises OSError."""
        folder = self._unit / (CLIENT + secrets.token_hex(8))
        folder.mkdir()
        group = ControlGroup(folder)
        group.limit(memory_bytes, tasks)
        return group

    def of(self, pid: int) -> ControlGroup | None:
        """The group of a client, by one of its processes; None if it has none of its own."""
        group = _group_of(pid)
        while group is not None and group.parent.is_relative_to(self._unit):
            if group.parent == self._unit and group.name.startswith(CLIENT):
                return ControlGroup(group)
            group = group.parent
        return None

    def clear(self, spared: Iterable[int]) -> None:
        """Kill what is in the groups of earlier clients, except of those with these processes."""
        kept = {self.of(pid) for pid in spared}
        for folder in self._unit.glob(f"{CLIENT}*"):
            if (group := ControlGroup(folder)) not in kept:
                group.kill()
                group.remove()

    def divide(self) -> bool:
        """Move the processes of this service to a group of their own, so that groups beside it can have limits. False
        if the kernel does not allow it."""
        own = self._unit / OWN
        try:
            own.mkdir(exist_ok=True)
            for pid in (self._unit / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    (own / "cgroup.procs").write_text(pid)
            (self._unit / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS))
        except OSError as error:
            log.warning("clients have no control groups: %s", error)
            return False
        return True

    def release(self) -> None:
        """Let a process be in the delegated group itself again, as systemd before version 254 needs it to start the
        next daemon beside clients that live on. They are without limits until then."""
        (self._unit / "cgroup.subtree_control").write_text(" ".join(f"-{name}" for name in CONTROLLERS))


@cache
def delegated() -> ControlGroups | None:
    """The groups of this process's clients; None where the service manager has delegated none."""
    if (unit := _delegated_unit()) is None or not (groups := ControlGroups(unit)).divide():
        return None
    return groups


def _delegated_unit() -> Path | None:
    """The delegated group that this process is in, also by a group below it; None if it is not its main process."""
    if os.environ.get(MAIN_PROCESS) != str(os.getpid()):
        return None
    group = _group_of("self")
    if group is not None and group.name in (OWN, ".control"):
        group = group.parent
    return group if group is not None and _is_delegated(group) else None


if __name__ == "__main__":
    if (found := _delegated_unit()) is not None:
        ControlGroups(found).release()
