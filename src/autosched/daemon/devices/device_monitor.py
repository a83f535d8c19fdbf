"""Detects devices whose measurements cannot be trusted, and tags the records concerned.

A client runs a sentinel (fixed work) on request: in each of the first steps on a device, then at intervals. The normal
variation of its times is the device's noise. Two successive sentinels beyond the noise are a drift: the records since
the last good sentinel are tagged. The client itself detects other load on a device's cores; here it is part of the
device's health. The pace of a device is learned again after a restart of the daemon.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from msgspec import Struct

from autosched import formatting
from autosched.core.state import Slot
from autosched.daemon.event_stream.daemon_events import (
    ClientNews,
    DeviceDisturbed,
    DeviceDrifts,
    DeviceSteady,
    RecordsTagged,
)
from autosched.daemon.event_stream.stream import Stream
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.storage.job_store import JobStore
from autosched.model import DEVICE_POOL, CudaDevice, DeviceNote, JobId, Unit, UnitName
from autosched.protocol import DeviceCondition, TagRecords

LEARNED_FROM = 5
"""Number of sentinels of a baseline. The median of fewer would not stand two bad ones."""
REMEMBERED = 30
"""Number of good sentinels from which the noise is estimated."""
NOISE_MIN = 0.03
"""Minimum relative noise: an idle virtual machine varies by as much."""
SIGMAS = 4.0
"""Noise in standard deviations, which the median absolute deviation estimates."""
SIGMA_PER_MAD = 1.4826
CONFIRMED_BY = 2
"""Number of bad sentinels that make a drift. A sentinel takes 20 ms only."""
SETTLES_AFTER = 10
"""Number of bad sentinels after which a drift becomes the device's new pace."""
FOREIGN_SHOWN_S = 300.0
"""Seconds for which the health mentions other load."""
RECORDS_MAX = 10_000
"""Maximum number of records of a device that can still be tagged."""
UNSEEN_ON_BOARDS = "its clock cannot be read, and other programs there are seen at the start of steps alone"
TIMED_MAX = 1_000
"""Maximum number of records of a device whose time of report is kept."""


@dataclass
class Quantity:
    """One of the sentinel's times: its baseline, noise and current deviation."""

    name: str
    learning: list[float] = field(default_factory=list)
    baseline_s: float | None = None
    deviations: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Relative deviations of good sentinels."""
    off: list[float] = field(default_factory=list)
    """Deviations of the last sentinels, all beyond the noise on the same side."""

    @property
    def noise(self) -> float:
        """Maximum relative deviation that counts as noise."""
        spread = median(abs(deviation) for deviation in self.deviations) if self.deviations else 0.0
        return max(NOISE_MIN, SIGMAS * SIGMA_PER_MAD * spread)

    @property
    def drift(self) -> float | None:
        """Relative slowdown against the baseline, negative for a speedup; None within the noise."""
        return median(self.off) if len(self.off) >= CONFIRMED_BY else None

    def add(self, seconds: float) -> None:
        """Add the time of a sentinel."""
        if self.baseline_s is None:
            self.learning.append(seconds)
            if len(self.learning) == LEARNED_FROM:
                self.baseline_s = median(self.learning)
                self.deviations.extend(s / self.baseline_s - 1 for s in self.learning)
            return
        deviation = seconds / self.baseline_s - 1
        if abs(deviation) <= self.noise:
            self.deviations.append(deviation)
            self.off.clear()
            return
        if self.off and (self.off[-1] < 0) != (deviation < 0):
            self.off.clear()
        self.off.append(deviation)

    def forget(self) -> None:
        """Learn baseline and noise again, starting with the current deviations."""
        assert self.baseline_s is not None
        self.learning = [self.baseline_s * (1 + deviation) for deviation in self.off[-LEARNED_FROM + 1 :]]
        self.baseline_s = None
        self.deviations.clear()
        self.off.clear()


class Tagged(Struct, frozen=True):
    """Records that are tagged as unreliable, with the reason."""

    records: tuple[tuple[JobId, int], ...]
    reason: str


@dataclass
class DeviceWatch:
    """Measurements of one device's health. Pure: times come from the caller."""

    interval_s: float
    core: Quantity = field(default_factory=lambda: Quantity("core"))
    memory: Quantity = field(default_factory=lambda: Quantity("memory"))
    measured_at: float | None = None
    """Time of the last sentinel's report, by the scheduler's clock, as all times here."""
    drifting_since: float | None = None
    why: str = ""
    """Description of the drift; empty without one."""
    sees_load: bool | None = None
    """Whether other load on the device can be measured; None before this is known."""
    foreign: tuple[float, float] | None = None
    """Time of the last other load, and its share of a core."""
    doubted: bool = False
    """Whether a failure makes the next step begin with a sentinel."""
    fresh: deque[tuple[JobId, int]] = field(default_factory=lambda: deque(maxlen=RECORDS_MAX))
    """Records since the last sentinel began."""
    open: deque[tuple[JobId, int]] = field(default_factory=lambda: deque(maxlen=RECORDS_MAX))
    """Earlier records, since the last good sentinel."""
    settled: deque[tuple[JobId, int]] = field(default_factory=lambda: deque(maxlen=RECORDS_MAX))
    """Records before these, on the same baseline."""
    timed: deque[tuple[float, JobId, int]] = field(default_factory=lambda: deque(maxlen=TIMED_MAX))
    """The latest records, each with its time of report."""

    def begin(self, now: float) -> bool:
        """Note the begin of a step; returns whether it runs the sentinel first."""
        if due := self._due(now):
            self.open.extend(self.fresh)
            self.fresh.clear()
        return due

    def recorded(self, job: JobId, number: int, now: float) -> None:
        """Note a record of the device."""
        self.fresh.append((job, number))
        self.timed.append((now, job, number))

    def _due(self, now: float) -> bool:
        if self.doubted or self.measured_at is None or now - self.measured_at >= self.interval_s:
            return True
        if self.foreign is not None and self.foreign[0] >= self.measured_at:
            return True
        return any(quantity.baseline_s is None or quantity.off for quantity in (self.core, self.memory))

    def noted(self, note: DeviceNote, now: float) -> Tagged | None:
        """Note what a step has observed of the device; returns the records that are unreliable because of it."""
        if note.watched_s > 0:
            self.sees_load = note.foreign_s is not None
        if note.disturbed and note.foreign_s is not None:
            self.foreign = now, note.foreign_s / note.watched_s
        if note.core_s is None or note.memory_s is None:
            return None
        self.measured_at, self.doubted = now, False
        self.core.add(note.core_s)
        self.memory.add(note.memory_s)
        return self._judge(now)

    def _judge(self, now: float) -> Tagged | None:
        worst = max((self.core, self.memory), key=lambda quantity: abs(quantity.drift or 0.0))
        drift, before = worst.drift, self.why
        if drift is None:
            self.drifting_since, self.why = None, ""
            if before:  # the records since the last bad sentinel began under the drift
                return self._tag(before)
            if not (self.core.off or self.memory.off):
                self.settled.extend(self.open)
                self.open.clear()
            return None
        if drift < 0:  # the baseline was taken while something slowed the device down
            worst.forget()
            self.drifting_since, self.why = None, ""
            self.open.extendleft(reversed(self.settled))
            self.settled.clear()
            return self._tag(f"the device was {_percent(-drift)} slower then ({worst.name})")
        self.drifting_since = now if self.drifting_since is None else self.drifting_since
        self.why = why = f"the device was {_percent(drift)} slower than its baseline ({worst.name})"
        if len(worst.off) >= SETTLES_AFTER:
            worst.forget()
            self.settled.clear()  # not comparable with later ones; finals measure again
            self.drifting_since, self.why = None, ""
        return self._tag(why)

    @property
    def slow(self) -> str:
        """Slowdown of the last sentinel against its baseline, in words; empty within the noise."""
        off = [(quantity.off[-1], quantity.name) for quantity in (self.core, self.memory) if quantity.off]
        return "; ".join(f"{_percent(ratio)} slower ({name})" for ratio, name in off if ratio > 0)

    def _tag(self, reason: str) -> Tagged | None:
        tagged = Tagged(tuple(self.open), reason)
        self.open.clear()
        return tagged if tagged.records else None

    @property
    def condition(self) -> DeviceCondition:
        """Health in one word."""
        if self.drifting_since is not None:
            return DeviceCondition.DRIFTING
        known = self.core.baseline_s is not None and self.memory.baseline_s is not None
        return DeviceCondition.STEADY if known and self.measured_at is not None else DeviceCondition.LEARNING

    def health(self, now: float) -> str:
        """Health in words, the worst first."""
        words = []
        if self.drifting_since is not None:
            words.append(f"drifting for {formatting.duration(now - self.drifting_since)}: {self.why}")
        if self.foreign is not None and now - self.foreign[0] < FOREIGN_SHOWN_S:
            at, share = self.foreign
            words.append(f"other programs used {_percent(share)} of a core {formatting.duration(now - at)} ago")
        if self.measured_at is None:
            words.append("not measured yet")
        elif self.core.baseline_s is None or self.memory.baseline_s is None:
            known = min(len(q.learning) for q in (self.core, self.memory) if q.baseline_s is None)
            words.append(f"learning its noise, {known} of {LEARNED_FROM}")
        elif self.drifting_since is None:
            words.insert(0, f"steady, noise {_percent(self.core.noise)} core, {_percent(self.memory.noise)} memory")
        if self.sees_load is False:
            words.append("other load cannot be seen on this system")
        return "; ".join(words)


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.0f} %"


class Health(Struct, frozen=True):
    """Health of a unit."""

    words: str = ""
    condition: DeviceCondition | None = None
    """None for a host lane."""
    broken: str = ""
    """Why it can run nothing; empty if it can, as far as is known."""


def is_device(slot: Slot) -> bool:
    """Whether a unit is a device."""
    return any(pool.startswith(DEVICE_POOL) for pool, _ in slot.places)


def is_watched(unit: Unit) -> bool:
    """Whether a sentinel can run on a unit: it has cores of a host, or is a board."""
    return bool(unit.cores) or unit.is_board


def no_gpus(_unit: Unit) -> Health:
    """The health of a GPU that is not watched."""
    return Health("not watched: no cores", DeviceCondition.NOT_WATCHED)


class DeviceMonitor:
    """The watches of all devices. Tags records, publishes events and notifies clients."""

    def __init__(
        self,
        store: JobStore,
        progress: ProgressRegistry,
        stream: Stream,
        interval_s: float,
        gpu_health: Callable[[Unit], Health] = no_gpus,
    ) -> None:
        """`gpu_health`: health of a device that is a GPU."""
        self._store, self._progress, self._stream = store, progress, stream
        self._gpu_health = gpu_health
        self._interval_s = interval_s
        self._watches: dict[UnitName, DeviceWatch] = {}

    def look_every(self, interval_s: float) -> None:
        """Change the seconds between two sentinels."""
        self._interval_s = interval_s
        for watch in self._watches.values():
            watch.interval_s = interval_s

    def of(self, unit: UnitName) -> DeviceWatch:
        """The watch of a device."""
        return self._watches.setdefault(unit, DeviceWatch(self._interval_s))

    @property
    def all(self) -> Mapping[UnitName, DeviceWatch]:
        """Watches of the devices that were used."""
        return self._watches

    def watched(self, unit: UnitName) -> DeviceWatch | None:
        """The watch of a device that was used; None for others."""
        return self._watches.get(unit)

    def begin(self, slot: Slot, now: float) -> bool:
        """Note the begin of a step; returns whether it runs the sentinel first. Only cores and boards are watched."""
        return is_watched(slot.unit) and is_device(slot) and self.of(slot.unit.name).begin(now)

    def doubt(self, unit: UnitName) -> None:
        """Let the next step on a device begin with a sentinel, after a failure."""
        self.of(unit).doubted = True

    def health(self, slot: Slot, now: float) -> Health:
        """Health of a device; empty for a host lane."""
        if not is_device(slot):
            return Health()
        if isinstance(slot.unit.accelerator, CudaDevice):
            return self._gpu_health(slot.unit)
        if not is_watched(slot.unit):
            return Health("not watched: no cores", DeviceCondition.NOT_WATCHED)
        watch = self.of(slot.unit.name)
        words = watch.health(now)
        return Health(f"{words}; {UNSEEN_ON_BOARDS}" if slot.unit.is_board else words, watch.condition)

    def disturbed(self, unit: UnitName, since: float, reason: str) -> None:
        """Tag the records that were reported since other programs used the device's machine."""
        if (watch := self.watched(unit)) is not None:
            recent = tuple((job, number) for reported_at, job, number in watch.timed if reported_at >= since)
            self._tag_all(Tagged(recent, reason))

    def noted(self, unit: UnitName, note: DeviceNote, now: float) -> None:
        """Note a client's observations of a device: tag unreliable records, and notify their clients."""
        watch = self.of(unit)
        before = watch.why
        tagged = watch.noted(note, now)
        if watch.why and not before:
            self._stream.publish(DeviceDrifts(unit, watch.why))
        elif before and not watch.why:
            self._stream.publish(DeviceSteady(unit))
        if note.disturbed and watch.foreign is not None:
            self._stream.publish(DeviceDisturbed(unit, watch.foreign[1]))
        if tagged is not None:
            self._tag_all(tagged)

    def _tag_all(self, tagged: Tagged) -> None:
        """Tag records of several jobs, and notify their clients."""
        numbers: dict[JobId, list[int]] = {}
        for job, number in tagged.records:
            numbers.setdefault(job, []).append(number)
        for job, own in numbers.items():
            self.tag(job, own, tagged.reason)
            self._stream.publish(ClientNews(job, TagRecords(numbers=tuple(own), reason=tagged.reason)))

    def tag(self, job: JobId, numbers: Sequence[int], reason: str) -> asyncio.Future[None]:
        """Tag records of a job as disturbed; done when the tags are durable."""
        stored = self._store.tag(job, numbers, reason)
        self._progress.get(job).tag(numbers)
        self._stream.publish(RecordsTagged(job, len(numbers), reason))
        self._progress.changed(job)
        return stored
