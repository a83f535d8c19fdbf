"""Facts about this machine."""

import os
import platform
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name of the processor's model, as the kernel tells it; its architecture where the kernel tells none."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if model := told.get("model name") or told.get("Model"):
        return model
    arm = [told[name] for name in ("CPU implementer", "CPU part", "CPU variant") if name in told]
    return " ".join([platform.machine(), *arm])


def online_cores(listed: Path = Path("/sys/devices/system/cpu/online")) -> list[int]:
    """Numbers of this machine's cores that are online."""
    try:
        ranges = [part.partition("-") for part in listed.read_text().strip().split(",")]
        return [core for low, _, high in ranges for core in range(int(low), int(high or low) + 1)]
    except (OSError, ValueError):
        return list(range(os.cpu_count() or 1))


@cache
def cores() -> frozenset[int]:
    """Numbers of the cores that this process may use, whether it is kept to some of them at present or not."""
    found: set[int] = set()

    def look() -> None:
        """In a thread of its own, which is moved from core to core."""
        for core in online_cores():
            with suppress(OSError):
                os.sched_setaffinity(0, {core})
                found.add(core)

    thread = threading.Thread(target=look, name="cores")
    thread.start()
    thread.join()
    return frozenset(found)


def cores_of(wanted: Iterable[int]) -> tuple[int, ...]:
    """Those of some cores that this process may use; the numbers may be another machine's."""
    there = cores()
    return tuple(core for core in wanted if core in there)
