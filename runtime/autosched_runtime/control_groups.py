"""Limits of the control groups of this process: processor time and memory."""

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC_GROUPS, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""The control groups of this process, and the folder in which they are mounted."""


def cpu_quota(proc: Path = PROC_GROUPS, mounted: Path = GROUPS) -> float:
    """Number of cores' time that the control groups of this process may use; infinite without a limit.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst.
    """
    return min(map(_quota_of, _control_groups("cpu", proc, mounted)), default=math.inf)


def memory_limit(proc: Path = PROC_GROUPS, mounted: Path = GROUPS) -> float:
    """Bytes of memory that the control groups of this process may use; infinite without a limit.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst (memory.max) and cgroup-v1/memory.rst.
    """
    return min(map(_memory_of, _control_groups("memory", proc, mounted)), default=math.inf)


def throttled(proc: Path = PROC_GROUPS, mounted: Path = GROUPS) -> int:
    """How often a quota of the control groups of this process has stopped it.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.stat, nr_throttled).
    """
    return sum(map(_throttled_of, _control_groups("cpu", proc, mounted)))


def _control_groups(controller: str, proc: Path, mounted: Path) -> Iterator[Path]:
    """Folders of the groups that this process is in, of both versions, with all groups around them."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return
    for _, controllers, name in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers and controller not in controllers.split(","):
            continue
        root = mounted / controller if controllers else mounted
        own = root / name.lstrip("/")
        for folder in (own, *own.parents):
            yield folder
            if folder == root:
                break


def _quota_of(folder: Path) -> float:
    """The limit of one control group, in cores."""
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota_us = int((folder / "cpu.cfs_quota_us").read_text())
        return quota_us / int((folder / "cpu.cfs_period_us").read_text()) if quota_us > 0 else math.inf
    return math.inf


def _throttled_of(folder: Path) -> int:
    with suppress(OSError, ValueError):
        counts = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        return int(counts.get("nr_throttled", 0))
    return 0


def _memory_of(folder: Path) -> float:
    """The limit of one control group, in bytes."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limit = int((folder / name).read_text())
            return math.inf if limit > NO_MEMORY_LIMIT_BYTES else limit
    return math.inf


NO_MEMORY_LIMIT_BYTES = 1 << 62
"""A group of version 1 without a limit has a larger number."""
