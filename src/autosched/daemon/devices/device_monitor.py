"""Watches over devices: whether what is measured on them can be trusted, and which records cannot.

A client runs a sentinel (fixed work) when it is told to: at each of the first steps on a device, then at intervals. How
much its times vary while all is well is the device's noise. Two sentinels in a row beyond it are a drift, and then the
records since the last good sentinel are tagged. Other load on a device's cores is seen by the client itself; here it
only becomes part of the device's health. The pace of a device is learned again after a restart.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from msgspec import Struct

from autosched import formatting
from autosched.core.state import Slot
from autosched.daemon.event_stream.daemon_events import DeviceDisturbed, DeviceDrifts, DeviceSteady, RecordsTagged
from autosched.daemon.event_stream.stream import Stream
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.storage.job_store import JobStore
from autosched.model import DEVICE_POOL, DeviceNote, JobId, Unit, UnitName
from autosched.protocol import DeviceCondition, TagRecords

LEARNED_FROM = 5
"""Sentinels that make a baseline: the median of fewer would be at the mercy of two bad ones."""
REMEMBERED = 30
"""Good sentinels of which the noise is made."""
NOISE_MIN = 0.03
"""Deviations up to 3 % are never called a drift: that is what a resting virtual machine shows."""
SIGMAS = 4.0
"""Standard deviations, estimated by the median absolute deviation, beyond which a difference is no noise."""
SIGMA_PER_MAD = 1.4826
CONFIRMED_BY = 2
"""A single bad sentinel proves nothing: it lasts 20 ms."""
SETTLES_AFTER = 10
"""Number of sentinels after which a drift is taken for the device's new pace."""
FOREIGN_SHOWN_S = 300.0
"""Seconds for which other load is shown as part of the health."""
RECORDS_MAX = 10_000
"""Records per device that can still be tagged."""
UNSEEN_ON_BOARDS = "its clock cannot be read, and other programs there are seen at the start of steps alone"
TIMED_MAX = 1_000
"""Latest records per device of which it is known when they were reported."""


@dataclass
class Quantity:
    """One of the sentinel's times: its baseline, its noise, and how it is now."""

    name: str
    learning: list[float] = field(default_factory=list)
    baseline_s: float | None = None
    deviations: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Relative ones, of good sentinels."""
    off: list[float] = field(default_factory=list)
    """Deviations of the last sentinels, all beyond the noise on the same side."""

    @property
    def noise(self) -> float:
        """Deviations up to this are noise."""
        spread = median(abs(deviation) for deviation in self.deviations) if self.deviations else 0.0
        return max(NOISE_MIN, SIGMAS * SIGMA_PER_MAD * spread)

    @property
    def drift(self) -> float | None:
        """By what ratio it is slower (or, negative, faster) than its baseline; None while that is noise."""
        return median(self.off) if len(self.off) >= CONFIRMED_BY else None

    def add(self, seconds: float) -> None:
        """Another sentinel."""
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
        """Learn baseline and noise anew, beginning with how it is now."""
        assert self.baseline_s is not None
        self.learning = [self.baseline_s * (1 + deviation) for deviation in self.off[-LEARNED_FROM + 1 :]]
        self.baseline_s = None
        self.deviations.clear()
        self.off.clear()


class Tagged(Struct, frozen=True):
    """Records that are not to be trusted, and why."""

    records: tuple[tuple[JobId, int], ...]
    reason: str


@dataclass
class DeviceWatch:
    """Measurements of one device's health. Pure: times come from the caller."""

    interval_s: float
    core: Quantity = field(default_factory=lambda: Quantity("core"))
    memory: Quantity = field(default_factory=lambda: Quantity("memory"))
    measured_at: float | None = None
    """When the last sentinel was reported; scheduler clock, as below."""
    drifting_since: float | None = None
    why: str = ""
    """Description of the drift; empty without one."""
    sees_load: bool | None = None
    """Whether other load on it can be seen; None: not known yet."""
    foreign: tuple[float, float] | None = None
    """When other load was seen last, and what share of a core it took."""
    doubted: bool = False
    """Something failed on it, so the next step begins with a sentinel."""
    fresh: deque[tuple[JobId, int]] = field(default_factory=lambda: deque(maxlen=RECORDS_MAX))
    """Records since the last sentinel began."""
    open: deque[tuple[JobId, int]] = field(default_factory=lambda: deque(maxlen=RECORDS_MAX))
    """Those before it, since the last good one."""
    settled: deque[tuple[JobId, int]] = field(default_factory=lambda: deque(maxlen=RECORDS_MAX))
    """Those before that, on the same baseline."""
    timed: deque[tuple[float, JobId, int]] = field(default_factory=lambda: deque(maxlen=TIMED_MAX))
    """The latest of all, each with the time at which it was reported."""

    def begin(self, now: float) -> bool:
        """A step on the device begins: whether it is to run the sentinel first."""
        if due := self._due(now):
            self.open.extend(self.fresh)
            self.fresh.clear()
        return due

    def recorded(self, job: JobId, trial: int, now: float) -> None:
        """A record was made on the device."""
        self.fresh.append((job, trial))
        self.timed.append((now, job, trial))

    def _due(self, now: float) -> bool:
        if self.doubted or self.measured_at is None or now - self.measured_at >= self.interval_s:
            return True
        if self.foreign is not None and self.foreign[0] >= self.measured_at:
            return True
        return any(quantity.baseline_s is None or quantity.off for quantity in (self.core, self.memory))

    def noted(self, note: DeviceNote, now: float) -> Tagged | None:
        """A step on the device is over: returns what it shows about records up to now."""
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
            if before:  # what was measured since the last bad sentinel began under the drift
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
            self.settled.clear()  # older ones cannot be compared with what comes, which finals make up for
            self.drifting_since, self.why = None, ""
        return self._tag(why)

    @property
    def slow(self) -> str:
        """How much slower than its baseline the last sentinel was, in words; empty: not more than noise."""
        off = [(quantity.off[-1], quantity.name) for quantity in (self.core, self.memory) if quantity.off]
        return "; ".join(f"{_percent(ratio)} slower ({name})" for ratio, name in off if ratio > 0)

    def _tag(self, reason: str) -> Tagged | None:
        tagged = Tagged(tuple(self.open), reason)
        self.open.clear()
        return tagged if tagged.records else None

    @property
    def condition(self) -> DeviceCondition:
        """Its health in one word."""
        if self.drifting_since is not None:
            return DeviceCondition.DRIFTING
        known = self.core.baseline_s is not None and self.memory.baseline_s is not None
        return DeviceCondition.STEADY if known and self.measured_at is not None else DeviceCondition.LEARNING

    def health(self, now: float) -> str:
        """In words: the worst first."""
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


def is_device(slot: Slot) -> bool:
    """Whether a unit is one to measure on."""
    return any(pool.startswith(DEVICE_POOL) for pool, _ in slot.places)


def is_watched(unit: Unit) -> bool:
    """Whether a sentinel can run on it: on cores of a host, and on a board."""
    return bool(unit.cores) or unit.is_board


class DeviceMonitor:
    """The watches of all devices, and what follows when one of them finds something."""

    def __init__(
        self,
        store: JobStore,
        progress: ProgressRegistry,
        stream: Stream,
        tell: Callable[[JobId, TagRecords], None],
        interval_s: float,
    ) -> None:
        self._store, self._progress, self._stream, self._tell = store, progress, stream, tell
        self._interval_s = interval_s
        self._watches: dict[UnitName, DeviceWatch] = {}

    def look_every(self, interval_s: float) -> None:
        """From now on sentinels run so often."""
        self._interval_s = interval_s
        for watch in self._watches.values():
            watch.interval_s = interval_s

    def of(self, unit: UnitName) -> DeviceWatch:
        """The watch of a device."""
        return self._watches.setdefault(unit, DeviceWatch(self._interval_s))

    @property
    def all(self) -> Mapping[UnitName, DeviceWatch]:
        """Those of devices on which something ran."""
        return self._watches

    def watched(self, unit: UnitName) -> DeviceWatch | None:
        """The same, where there is one already."""
        return self._watches.get(unit)

    def begin(self, slot: Slot, now: float) -> bool:
        """A step begins: whether it is to run the sentinel first. Host lanes and accelerators are not watched."""
        return is_watched(slot.unit) and is_device(slot) and self.of(slot.unit.name).begin(now)

    def doubt(self, unit: UnitName) -> None:
        """Something failed on a device: its next step begins with a sentinel."""
        self.of(unit).doubted = True

    def health(self, slot: Slot, now: float) -> Health:
        """Health of a device; of a host lane there is none."""
        if not is_device(slot):
            return Health()
        if not is_watched(slot.unit):
            return Health("not watched: no cores", DeviceCondition.NOT_WATCHED)
        watch = self.of(slot.unit.name)
        words = watch.health(now)
        return Health(f"{words}; {UNSEEN_ON_BOARDS}" if slot.unit.is_board else words, watch.condition)

    def disturbed(self, unit: UnitName, since: float, reason: str) -> None:
        """Other programs used a device's machine since then: tag what was reported from then on."""
        if (watch := self.watched(unit)) is not None:
            recent = tuple((job, trial) for reported_at, job, trial in watch.timed if reported_at >= since)
            self._tag_all(Tagged(recent, reason))

    def noted(self, unit: UnitName, note: DeviceNote, now: float) -> None:
        """A client tells what it saw of a device: tag what cannot be trusted, and say so to whose it is."""
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
        """Tag the records of each job, and tell its client."""
        trials: dict[JobId, list[int]] = {}
        for job, trial in tagged.records:
            trials.setdefault(job, []).append(trial)
        for job, own in trials.items():
            self.tag(job, own, tagged.reason)
            self._tell(job, TagRecords(trials=tuple(own), reason=tagged.reason))

    def tag(self, job: JobId, trials: Sequence[int], reason: str) -> asyncio.Future[None]:
        """Something disturbed these records; done when that is durable."""
        stored = self._store.tag(job, trials, reason)
        self._progress.get(job).tag(trials)
        self._stream.publish(RecordsTagged(job, len(trials), reason))
        self._progress.changed(job)
        return stored
