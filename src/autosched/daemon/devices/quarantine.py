"""Quarantine of unreliable devices: they get no steps, are treated by their reboot hook, probed, and returned.

The daemon drains a quarantined device as an operator would. The device therefore stays drained over restarts, and
`explain` names it as the cause of a wait. After a pause, longer each time, the daemon calls the reboot hook. When the
sentinel then passes, the device returns. An operator who drains or undrains the device ends its quarantine.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from autosched import formatting, machine
from autosched.core.events import Event, Quarantined, UnitDrained, UnitReturned
from autosched.core.state import State
from autosched.daemon.devices.device_monitor import DeviceMonitor
from autosched.daemon.event_stream.daemon_events import DaemonEvent, DeviceUnreachable
from autosched.daemon.runtime import BY, Runtime, spawn
from autosched.device_probe import Pace, Unwell, treat
from autosched.model import DEVICE_POOL, OWN_HOST, DeviceNote, Unit, UnitName, is_lane
from autosched.records.failure_attribution import DeviceSuspicion, Verdict

log = logging.getLogger(__name__)

BOOT_S = 120.0
"""Seconds within which a board answers after the end of its reboot hook."""
CHECK_AGAIN_S = 60.0
"""Seconds for which a passed probe outweighs the reports of one owner."""
CHECK_LOOK_S, CHECK_WAIT_S = 0.1, 600.0
"""Seconds between two looks whether a device is free for its probe, and the maximum seconds of the wait."""
ALLOWED_LOOK_S = 1.0
"""Seconds between two looks at the cores that this process may use."""


def is_kept_free(state: State, unit: UnitName) -> bool:
    """Whether the daemon, and no operator, has drained a device."""
    return unit in state.drained and state.drained[unit].by == BY


def is_quarantined(state: State, unit: UnitName) -> bool:
    """Whether the daemon has drained a device because it is unreliable, and not for lack of its cores."""
    return is_kept_free(state, unit) and state.drained[unit].quarantine is not None


def in_words(cause: Quarantined) -> str:
    """The cause of a quarantine as a sentence."""
    attempt = f"; at last {cause.attempt}" if cause.attempt else ""
    return f"quarantined: {cause.reason}{attempt}; to be probed after {formatting.duration(cause.pause_s)} ({BY})"


class Quarantine:
    """All quarantined devices."""

    def __init__(
        self,
        runtime: Runtime,
        monitor: DeviceMonitor,
        suspicion: DeviceSuspicion,
        hooks: Mapping[UnitName, Sequence[str]],
        hook_s: float,
        elsewhere: Callable[..., Awaitable[Pace | None]],
        reach: Callable[[Unit, float], Awaitable[None]],
    ) -> None:
        """`hooks`: commands that reboot a device, by its name. `hook_s`: timeout of a command, in seconds. `elsewhere`:
        examines a device of another host; `reboots` says whether by its hook first. `reach`: checks whether a board
        answers within a number of seconds. Both raise Unwell."""
        self._runtime, self._monitor, self._suspicion = runtime, monitor, suspicion
        self._hooks, self._hook_s, self._elsewhere, self._reach = hooks, hook_s, elsewhere, reach
        self._watched: dict[UnitName, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._check_again_at: dict[UnitName, float] = {}
        runtime.stream.attach(self._hear, DeviceUnreachable)

    def _hear(self, event: DaemonEvent) -> None:
        if isinstance(what := event.what, DeviceUnreachable):
            self.enter(what.unit, what.reason)

    def enter(self, unit: UnitName, reason: str) -> None:
        """Quarantine a device, unless it only lacks its cores."""
        if unit not in self._runtime.state.drained and not self._lacks_cores(unit):
            self._watch(unit, self._isolate(unit, reason))

    def accuse(self, unit: UnitName, verdict: Verdict) -> None:
        """Quarantine a device of which clients report failures. The reports of one owner, who may have made them up,
        are checked by a probe, or count where no other owner needs the device."""
        if len(verdict.owners) > 1:
            self.enter(unit, verdict.reason)
        elif unit in self._runtime.state.drained or self._lacks_cores(unit):
            return
        elif self._has_probe(unit):
            self._watch(unit, self._check(unit, verdict.reason))
        elif self._is_needed_by_others(unit, verdict.owners):
            log.warning("%s is not quarantined, since one user alone reports: %s", unit, verdict.reason)
        else:
            self.enter(unit, verdict.reason)

    def _is_held(self, unit: UnitName) -> bool:
        """Whether a step holds a device."""
        return self._runtime.state.slots[unit].holder is not None

    def _has_probe(self, unit: UnitName) -> bool:
        """Whether a probe measures a device, and does not only reach it."""
        return bool(self._runtime.state.slots[unit].unit.cores)

    def _is_needed_by_others(self, unit: UnitName, owners: Collection[str]) -> bool:
        """Whether an active job of another owner may use a device."""
        state = self._runtime.state
        kinds = {pool.partition("@")[0] for pool, _ in state.slots[unit].places}
        others = (state.jobs[job] for job in state.active if state.jobs[job].owner not in owners)
        return any(f"{DEVICE_POOL}{job.spec.device}" in kinds for job in others)

    async def _check(self, unit: UnitName, reason: str) -> None:
        """Probe a device as soon as it is free, and quarantine it only if it does not pass."""
        if (now := self._runtime.clock()) < self._check_again_at.get(unit, 0.0):
            return log.warning("%s passed its probe a short time ago, but: %s", unit, reason)
        self._check_again_at[unit] = now + CHECK_AGAIN_S
        words = f"probed, since {reason} ({BY})"
        log.warning("%s is %s", unit, words)
        await self._runtime.post(lambda: None if unit in self._runtime.state.drained else UnitDrained(unit, words, BY))
        until = now + CHECK_WAIT_S
        while self._is_held(unit) and self._runtime.clock() < until:  # noqa: ASYNC110 - no event tells of one unit
            await asyncio.sleep(CHECK_LOOK_S)
        try:
            if not self._is_held(unit):
                await self._examine(unit, reboots=False)
        except Unwell as error:
            await self._isolate(unit, f"{reason}; {error}")
        else:
            log.warning("%s is not quarantined: it passes its probe", unit)
            await self._runtime.post(lambda: self._returned(unit))

    def resume(self) -> None:
        """Continue the quarantines of the earlier daemon. Called after the pools are declared."""
        state = self._runtime.state
        for unit in [unit for unit in state.drained if unit in state.slots and is_kept_free(state, unit)]:
            cause = state.drained[unit].quarantine
            if self._lacks_cores(unit):
                self._watch(unit, self._until_allowed(unit, self._cores(unit)))
                continue
            reason = cause.reason if cause is not None else "by an earlier version of the daemon"
            pause_s = self._suspicion.enters(unit, self._runtime.clock())
            self._watch(unit, self._until_well(unit, reason, pause_s))
        self._looking = spawn(self._look_for_cores(), "the look for cores")

    async def _look_for_cores(self) -> None:
        """Keep devices free whose cores the daemon's process may not use any more. The kernel sends no notification."""
        while True:
            await asyncio.sleep(ALLOWED_LOOK_S)
            state = self._runtime.state
            cores = {unit: self._cores(unit) for unit in state.slots if unit not in state.drained}
            taken = machine.forbidden(core for own in cores.values() for core in own)
            for unit in [unit for unit, own in cores.items() if not set(own).isdisjoint(taken)]:
                self._watch(unit, self._until_allowed(unit, cores[unit]))

    def _cores(self, unit: UnitName) -> Sequence[int]:
        """The cores of a device of this host; none for other units."""
        place = self._runtime.state.slots[unit].unit
        return () if place.host != OWN_HOST or is_lane(unit) else place.cores

    def _lacks_cores(self, unit: UnitName) -> bool:
        """Whether cores of a device of this host were taken from the daemon's process."""
        return bool(machine.forbidden(self._cores(unit)))

    def _watch(self, unit: UnitName, work: Coroutine[Any, Any, None]) -> None:
        if (before := self._watched.pop(unit, None)) is not None:
            before.cancel()
        self._watched[unit] = spawn(work, f"quarantine of {unit}")

    async def _isolate(self, unit: UnitName, reason: str) -> None:
        pause_s = self._suspicion.enters(unit, self._runtime.clock())
        await self._say(unit, Quarantined(reason, pause_s))
        await self._until_well(unit, reason, pause_s)

    async def _say(self, unit: UnitName, cause: Quarantined) -> None:
        words = in_words(cause)

        def drained() -> Event | None:
            state = self._runtime.state
            free = unit not in state.drained or is_kept_free(state, unit)
            return UnitDrained(unit, words, BY, quarantine=cause) if free else None

        log.error("%s is %s", unit, words)
        await self._runtime.post(drained)

    async def _until_well(self, unit: UnitName, reason: str, pause_s: float) -> None:
        """Wait, treat and probe until the device passes, or an operator decides about it."""
        while True:
            await asyncio.sleep(pause_s)
            if not is_kept_free(self._runtime.state, unit):
                return
            if self._is_held(unit):
                continue  # a step from before the quarantine must end first
            try:
                await self._examine(unit, reboots=True)
            except Unwell as error:
                pause_s = self._suspicion.probed(unit)
                await self._say(unit, Quarantined(reason, pause_s, str(error)))
            else:
                self._suspicion.leaves(unit, self._runtime.clock())
                await self._runtime.post(lambda: self._returned(unit))
                return

    async def _until_allowed(self, unit: UnitName, cores: Sequence[int]) -> None:
        """Keep a device free whose cores were taken from this process, which says nothing against the device."""
        words = f"not usable: {machine.cores_taken(cores)}. It returns by itself"
        log.error("%s is %s", unit, words)
        await self._runtime.post(lambda: None if unit in self._runtime.state.drained else UnitDrained(unit, words, BY))
        while machine.forbidden(cores):  # noqa: ASYNC110 - the kernel sends no notification
            await asyncio.sleep(ALLOWED_LOOK_S)
        await self._runtime.post(lambda: self._returned(unit))

    def _returned(self, unit: UnitName) -> Event | None:
        return UnitReturned(unit, BY) if is_kept_free(self._runtime.state, unit) else None

    async def _examine(self, unit: UnitName, *, reboots: bool) -> None:
        """Reboot a device by its hook, if it has one, and probe it. Raises Unwell."""
        place = self._runtime.state.slots[unit].unit
        if place.host == OWN_HOST:
            pace = await treat(unit, place.cores, self._hooks.get(unit, ()) if reboots else (), self._hook_s)
            if place.is_board:
                await self._reach(place, BOOT_S if unit in self._hooks else 0.0)
        else:
            pace = await self._elsewhere(place, reboots=reboots)
        if broken := self._monitor.health(self._runtime.state.slots[unit], self._runtime.clock()).broken:
            raise Unwell(broken)
        if pace is None:
            return  # only steps can test the device: should it fail again, the next pause is longer
        self._monitor.noted(unit, DeviceNote(pace.core_s, pace.memory_s), self._runtime.clock())
        if slow := self._monitor.of(unit).slow:
            raise Unwell(f"its sentinel was {slow}")
