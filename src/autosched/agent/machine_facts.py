"""Facts about this machine that an agent reports to its daemon."""

import os
import platform
from pathlib import Path

from autosched.machine import boot_id, cores, versions
from autosched.protocol import HostFacts
from autosched_runtime.cpu_model import cpu_model


def facts() -> HostFacts:
    """The facts about this machine."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return HostFacts(system[:200], cpu_model()[:200], len(cores()), memory_bytes(), boot_id()[:64], versions())


def memory_bytes() -> int:
    """Memory of this machine in bytes, or of the process' control group if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdecimal() else total


def memory_free_bytes() -> int:
    """Available memory in bytes; 0 if the kernel does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 0)


def load() -> float:
    """Load average of the last minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0
