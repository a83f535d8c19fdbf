"""Facts about this machine."""

import os
import platform
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from autosched_runtime import cpu_model

PACKAGES = ("autosched", "apache-tvm", "tvm-ffi", "numpy", "xgboost-cpu", "xgboost")
"""Packages whose version affects the compiled code and its speed."""


def online_cores(listed: Path = Path("/sys/devices/system/cpu/online")) -> list[int]:
    """Numbers of this machine's cores that are online."""
    try:
        ranges = [part.partition("-") for part in listed.read_text().strip().split(",")]
        return [core for low, _, high in ranges for core in range(int(low), int(high or low) + 1)]
    except (OSError, ValueError):
        return list(range(os.cpu_count() or 1))


def unix_time_s() -> float:
    """The time of day, in Unix seconds. It may jump: for display and comparison, not for measurements."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def boot_id(told: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """Name of this boot of the machine, the same in all its containers; empty if the kernel has none."""
    try:
        return told.read_text().strip()
    except OSError:
        return ""


@cache
def cores() -> frozenset[int]:
    """Numbers of the cores that this process may use, whether or not it is pinned to some of them now."""
    found: set[int] = set()

    def look() -> None:
        """Runs in a thread that is moved from core to core."""
        for core in online_cores():
            with suppress(OSError):
                os.sched_setaffinity(0, {core})
                found.add(core)

    thread = threading.Thread(target=look, name="cores")
    thread.start()
    thread.join()
    return frozenset(found)


def cores_of(wanted: Iterable[int]) -> tuple[int, ...]:
    """The cores among `wanted` that this process may use; the numbers may be another machine's."""
    there = cores()
    return tuple(core for core in wanted if core in there)


def pin(cores: Iterable[int]) -> None:
    """Keep the calling thread to cores; without cores, leave it. Raises OSError, in words, if it may use none."""
    if not (wanted := set(cores)):
        return
    try:
        os.sched_setaffinity(0, wanted)
    except OSError as error:
        raise OSError(error.errno, cores_taken(wanted)) from None


CPUSET = "see its cpuset (docker update --cpuset-cpus, AllowedCPUs= of its service) or taskset"
"""Settings by which a process loses cores, in words."""


def forbidden(wanted: Iterable[int]) -> list[int]:
    """Those of some cores that this process may not use now, whatever it is pinned to. The thread that asks is not
    moved to them."""
    asked, granted = frozenset(wanted), set[int]()
    if not asked:
        return []

    def ask() -> None:
        with suppress(OSError):  # it may use none of them
            os.sched_setaffinity(0, asked | os.sched_getaffinity(0))
            granted.update(os.sched_getaffinity(0))  # the kernel leaves out what the process may not use

    thread = threading.Thread(target=ask, name="cores")
    thread.start()
    thread.join()
    return sorted(asked - granted)


def cores_taken(cores: Iterable[int]) -> str:
    """Says that this process may not use some cores any more."""
    return f"this process may not use these cores (any more): {', '.join(map(str, sorted(set(cores))))}; {CPUSET}"


def executable(folder: Path) -> bool:
    """Whether code in files of a folder may be executed; not on a file system that is mounted with noexec."""
    try:
        return not os.statvfs(folder).f_flag & os.ST_NOEXEC
    except OSError:
        return True  # using the folder will say what is wrong with it


UNITS = 2
"""Assumed floating-point units of a core that multiply and add."""
LANES = {"avx512f": 16, "avx": 8, "sse2": 4, "sve2": 16, "sve": 16, "asimd": 8}
"""Float32 numbers of one instruction, by flag of /proc/cpuinfo; an upper bound if a flag gives no exact number."""
LANES_UNKNOWN = 16
CLOCK_UNKNOWN_HZ = 5e9
"""Assumed maximum clock of a core in Hz if the kernel has none: no server or laptop runs faster for long."""


def peak_flops(
    cores: int, cpuinfo: Path = Path("/proc/cpuinfo"), devices: Path = Path("/sys/devices/system/cpu")
) -> float:
    """Upper bound of the float32 operations per second of some cores; a multiplication and an addition are two."""
    flags = cpu_model.flags(cpu_model.facts(cpuinfo))
    lanes = next((count for flag, count in LANES.items() if flag in flags), LANES_UNKNOWN)
    clocks_hz = []
    for path in devices.glob("cpu[0-9]*/cpufreq/cpuinfo_max_freq"):
        with suppress(OSError, ValueError):
            clocks_hz.append(1e3 * int(path.read_text()))
    return cores * UNITS * lanes * 2 * max(clocks_hz, default=CLOCK_UNKNOWN_HZ)


@cache
def versions() -> dict[str, str]:
    """Versions of Python, autosched, and the packages that affect the compiled code and its speed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
