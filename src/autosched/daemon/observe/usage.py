"""Busy time of each unit by stage, and idle time by cause, with the latest idle spells.

An idle spell is charged to the cause at its begin. Idle units are checked every second, so that a cause that changes
gets its share. The part of a lease in which its stage does not run is idle time, too: the hand-over.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from enum import StrEnum

from msgspec import Struct

from autosched.core.events import BoardJoined, HostJoined, ResourcesDeclared
from autosched.core.state import State
from autosched.daemon.event_stream.daemon_events import DaemonEvent, StepEnded, StepStarted
from autosched.model import JobState, UnitName

LOOK_EVERY_S = 1.0
"""Seconds between two checks of the idle units."""
SPELLS_KEPT = 500
"""Maximum number of idle spells that are kept of a unit."""
SPELL_MIN_S = 0.01
"""Minimum seconds of a spell that is kept; shorter ones are only counted."""


class Cause(StrEnum):
    """Why a unit is idle."""

    NO_JOB = "no job"  # no job is active
    STARTING = "jobs start"  # no client of an active job has attached
    NOTHING_READY = "nothing ready"  # all tasks are at stages of other resources
    HELD_BACK = "held back"  # tasks wait, but the policy or another resource delays them
    HELD = "held"  # the waiting jobs are held
    PAUSED = "paused"
    DRAINED = "drained"
    AWAY = "host away"  # its host cannot be reached, or the board is gone
    HAND_OVER = "hand-over"  # leased, before or after the work of the client


class Spell(Struct, frozen=True, array_like=True):
    """An idle spell of a unit. Times by the scheduler's clock, in seconds."""

    unit: UnitName
    began_at: float
    ended_at: float
    cause: Cause


class Usage:
    """Accounts for all units. Takes events of the stream; `look` is called every `LOOK_EVERY_S`."""

    KINDS = (StepStarted, StepEnded, ResourcesDeclared, HostJoined, BoardJoined)

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self.looked_at = 0.0
        self._idle: dict[UnitName, tuple[float, float, Cause]] = {}
        """Idle units: begin of the spell, time up to which it is charged, cause."""
        self.busy_s: defaultdict[tuple[UnitName, str], float] = defaultdict(float)
        """Seconds of ended steps, by unit and stage."""
        self.idle_s: defaultdict[tuple[UnitName, Cause], float] = defaultdict(float)
        self.spells: defaultdict[UnitName, deque[Spell]] = defaultdict(lambda: deque(maxlen=SPELLS_KEPT))

    def take(self, event: DaemonEvent) -> None:
        """Take an event."""
        match event.what:
            case StepStarted(units=units):
                for unit in units:
                    self._end(unit, event.at)
            case StepEnded() as ended:
                self._count(ended)
                for unit in ended.units:
                    self._begin(unit, event.at)
            case ResourcesDeclared() | HostJoined() | BoardJoined():
                for unit in self._state().slots:
                    self._begin(unit, event.at)

    def _count(self, ended: StepEnded) -> None:
        worked_s = ended.held_s if ended.worked_s is None else min(ended.worked_s, ended.held_s)
        for unit in ended.units:
            self.busy_s[unit, ended.stage] += worked_s
            self.idle_s[unit, Cause.HAND_OVER] += ended.held_s - worked_s

    def _begin(self, unit: UnitName, now: float) -> None:
        slot = self._state().slots.get(unit)
        if slot is not None and slot.holder is None and unit not in self._idle:
            self._idle[unit] = now, now, self.cause(unit)

    def _end(self, unit: UnitName, now: float) -> None:
        if (idle := self._idle.pop(unit, None)) is not None:
            began_at, charged_at, cause = idle
            self.idle_s[unit, cause] += now - charged_at
            if now - began_at >= SPELL_MIN_S:
                self.spells[unit].append(Spell(unit, began_at, now, cause))

    def look(self, now: float) -> None:
        """Charge the time since the last call, and update the causes. O(idle units)."""
        self.looked_at = now
        slots = self._state().slots
        for unit, (began_at, charged_at, cause) in list(self._idle.items()):
            if unit not in slots or slots[unit].holder is not None:  # removed, or shared
                self._end(unit, now)
            elif (cause_now := self.cause(unit)) is cause:
                self.idle_s[unit, cause] += now - charged_at
                self._idle[unit] = began_at, now, cause
            else:
                self._end(unit, now)
                self._idle[unit] = now, now, cause_now

    def remembered_since(self) -> float:
        """Time from which on all idle spells are kept; 0.0 if none was dropped."""
        full = (kept[0].began_at for kept in self.spells.values() if len(kept) == SPELLS_KEPT)
        return max(full, default=0.0)

    def under_way(self, now: float) -> Iterator[Spell]:
        """The current idle spells."""
        for unit, (began_at, _, cause) in self._idle.items():
            yield Spell(unit, began_at, now, cause)

    def idle(self, now: float, last_s: float) -> dict[UnitName, dict[str, float]]:
        """Idle seconds within the last `last_s`, by unit and cause, from the spells that are kept."""
        found: defaultdict[UnitName, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for spell in (*(one for kept in self.spells.values() for one in kept), *self.under_way(now)):
            if (seconds := spell.ended_at - max(spell.began_at, now - last_s)) > 0:
                found[spell.unit][spell.cause.value] += seconds
        return {unit: dict(causes) for unit, causes in found.items()}

    def cause(self, unit: UnitName) -> Cause:
        """Why a unit without a step is idle now. O(its pools), plus the entries of held jobs in their queues."""
        state = self._state()
        if unit in state.drained:
            return Cause.DRAINED
        if state.slots[unit].away:
            return Cause.AWAY
        if not state.active:
            return Cause.NO_JOB
        if state.paused:
            return Cause.PAUSED
        if all(state.jobs[job].held for job in state.active):
            return Cause.HELD
        if queues := [queue for pool, _ in state.slots[unit].places if (queue := state.queues[pool]).waiting]:
            live = any(state.is_live(*entry) for queue in queues for _, *entry in queue.heap)
            return Cause.HELD_BACK if live else Cause.HELD
        first = state.jobs[next(iter(state.active))]
        if len(state.starting) == len(state.active) and first.state is JobState.STARTING:
            return Cause.STARTING
        return Cause.NOTHING_READY
