"""Reasons why this machine may be slower than another one, or than it can be: told by Linux, over a span of time."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autosched_runtime import control_groups

OTHERS_SHARE = 0.1
"""Share of this process' cores that other programs must use to be named."""
STOLEN_SHARE = 0.03
"""Share of the machine's time that its hypervisor must withhold to be named."""
CLOCK_SHARE = 0.8
"""Share of its highest clock below which a core is called slow."""
_IDLE, _WAITS, _STEAL = 3, 4, 7
"""Positions of times in a line of /proc/stat: idle, waiting for a disk, withheld by the hypervisor."""
_TIMES = 8
"""Number of times that count; the time of guests is in another one already."""


@dataclass(frozen=True)
class Counters:
    """Counters of the kernel at a time."""

    at_s: float
    own_s: float
    """Processor time of this process."""
    busy_s: float
    """Processor time of all programs on all cores."""
    stolen_s: float
    throttled: int
    """How often the quota of a control group stopped this process."""
    hot: int
    """How often cores were slowed down since they were hot."""


def counters(root: Path = Path("/")) -> Counters:
    """The counters now; zero where the kernel tells nothing. `root`: where its files are."""
    busy_s = stolen_s = 0.0
    with suppress(OSError, ValueError, IndexError):
        ticks = [int(word) for word in (root / "proc/stat").read_text().split("\n", 1)[0].split()[1 : _TIMES + 1]]
        second = os.sysconf("SC_CLK_TCK")
        stolen_s = ticks[_STEAL] / second
        busy_s = (sum(ticks) - ticks[_IDLE] - ticks[_WAITS] - ticks[_STEAL]) / second
    own = os.times()
    throttled = control_groups.throttled(root / "proc/self/cgroup", root / "sys/fs/cgroup")
    return Counters(time.monotonic(), own.user + own.system, busy_s, stolen_s, throttled, _hot(root))


def _hot(root: Path) -> int:
    total = 0
    for path in (root / "sys/devices/system/cpu").glob("cpu*/thermal_throttle/*_throttle_count"):
        with suppress(OSError, ValueError):
            total += int(path.read_text())
    return total


def between(before: Counters, after: Counters, root: Path = Path("/")) -> Iterator[str]:
    """Disturbances of this process between two times, in words."""
    seconds = max(after.at_s - before.at_s, 1e-9)
    others = (after.busy_s - before.busy_s - (after.own_s - before.own_s)) / seconds
    if others > OTHERS_SHARE * len(os.sched_getaffinity(0)):
        yield f"other programs use {others:.1f} cores"
    if after.throttled > before.throttled:
        yield "the processor quota of its container stops it"
    stolen = (after.stolen_s - before.stolen_s) / seconds / (os.cpu_count() or 1)
    if stolen > STOLEN_SHARE:
        yield f"the hypervisor withholds {stolen:.0%} of the processor time"
    if after.hot > before.hot:
        yield "the processor is hot, and slows down"
    clocks = list(_clocks(root))
    if clocks and max(now / highest for now, highest in clocks) < CLOCK_SHARE:
        now, highest = max(clocks, key=lambda clock: clock[0] / clock[1])
        yield f"the processor's clock runs at {now / 1e6:.1f} of {highest / 1e6:.1f} GHz"


def _clocks(root: Path) -> Iterator[tuple[float, float]]:
    """The clock of each usable core now, and its highest one, in kHz."""
    for core in sorted(os.sched_getaffinity(0)):
        folder = root / f"sys/devices/system/cpu/cpu{core}/cpufreq"
        with suppress(OSError, ValueError):
            yield float((folder / "scaling_cur_freq").read_text()), float((folder / "cpuinfo_max_freq").read_text())
