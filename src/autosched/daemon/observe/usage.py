"""Use of each unit, in seconds by stage, and its idle time by cause, with the last idle spells.

A gap is charged to the cause that held when it began; idle units are looked at again every second, so that a cause that
changes meanwhile gets its share. The part of a lease in which its stage does not work is idle too: the hand-over.
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
SPELLS_KEPT = 500
"""Idle spells remembered per unit, for people who look at the last minutes."""
SPELL_MIN_S = 0.01
"""Shorter ones are counted, and not remembered."""


class Cause(StrEnum):
    """Why a unit is idle."""

    NO_JOB = "no job"  # no job is active
    STARTING = "jobs start"  # no client of an active job is there yet
    NOTHING_READY = "nothing ready"  # all tasks are at stages that run elsewhere
    HELD_BACK = "held back"  # tasks wait for it, and the policy or another resource does not let them go on
    HELD = "held"  # who wants it, or would, is held
    PAUSED = "paused"
    DRAINED = "drained"
    AWAY = "host away"  # its host cannot be reached, or it is a board that is gone
    HAND_OVER = "hand-over"  # leased, and its client was not at work yet, or not any more


class Spell(Struct, frozen=True, array_like=True):
    """A unit was idle. Scheduler clock, seconds."""

    unit: UnitName
    began_at: float
    ended_at: float
    cause: Cause


class Usage:
    """Fed by the stream; `look` from time to time."""

    KINDS = (StepStarted, StepEnded, ResourcesDeclared, HostJoined, BoardJoined)

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self.looked_at = 0.0
        self._idle: dict[UnitName, tuple[float, float, Cause]] = {}
        """Since when and why; and from when on that is not charged yet."""
        self.busy_s: defaultdict[tuple[UnitName, str], float] = defaultdict(float)
        """By unit and stage, of ended steps."""
        self.idle_s: defaultdict[tuple[UnitName, Cause], float] = defaultdict(float)
        self.spells: defaultdict[UnitName, deque[Spell]] = defaultdict(lambda: deque(maxlen=SPELLS_KEPT))

    def take(self, happening: DaemonEvent) -> None:
        """Something happened."""
        match happening.what:
            case StepStarted(units=units):
                for unit in units:
                    self._end(unit, happening.at)
            case StepEnded() as ended:
                self._count(ended)
                for unit in ended.units:
                    self._begin(unit, happening.at)
            case ResourcesDeclared() | HostJoined() | BoardJoined():
                for unit in self._state().slots:
                    self._begin(unit, happening.at)

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
        """Charge what passed, and see whether the causes are still the same. O(idle units)."""
        self.looked_at = now
        slots = self._state().slots
        for unit, (began_at, charged_at, cause) in list(self._idle.items()):
            if unit not in slots or slots[unit].holder is not None:  # gone, or shared
                self._end(unit, now)
            elif (cause_now := self.cause(unit)) is cause:
                self.idle_s[unit, cause] += now - charged_at
                self._idle[unit] = began_at, now, cause
            else:
                self._end(unit, now)
                self._idle[unit] = now, now, cause_now

    def remembered_since(self) -> float:
        """From then on all idle spells are remembered; 0.0 when none was forgotten."""
        full = (kept[0].began_at for kept in self.spells.values() if len(kept) == SPELLS_KEPT)
        return max(full, default=0.0)

    def under_way(self, now: float) -> Iterator[Spell]:
        """The idle spells that last."""
        for unit, (began_at, _, cause) in self._idle.items():
            yield Spell(unit, began_at, now, cause)

    def idle(self, now: float, last_s: float) -> dict[UnitName, dict[str, float]]:
        """Seconds of the last so many, by unit and cause, of what is remembered."""
        found: defaultdict[UnitName, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for spell in (*(one for kept in self.spells.values() for one in kept), *self.under_way(now)):
            if (seconds := spell.ended_at - max(spell.began_at, now - last_s)) > 0:
                found[spell.unit][spell.cause.value] += seconds
        return {unit: dict(causes) for unit, causes in found.items()}

    def cause(self, unit: UnitName) -> Cause:
        """Why a unit that no step holds is idle now. O(its pools), and what of held jobs stands in their queues."""
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
