"""The last events that people want to be told, for later viewers; steps and measurements are too many for it.

The failures on each unit are kept as well.
"""

from collections import defaultdict, deque
from datetime import UTC, datetime

from msgspec import Struct

from autosched.core import actions, events
from autosched.daemon.event_stream.daemon_events import (
    CandidatePoisoned,
    DaemonEvent,
    DeviceDisturbed,
    DeviceDrifts,
    DeviceSteady,
    Kept,
    LoopStalled,
    Recorded,
    RecordsTagged,
    Said,
    StepEnded,
    What,
)
from autosched.model import Failure, Outcome, UnitName
from autosched.protocol import RecentEvent

RUN_FAILURES = frozenset(one.value for one in (Failure.RUN_ERROR, Failure.RUN_TIMEOUT, Failure.RUN_CRASH))
"""Failures of a candidate while it is measured, which may be the unit's."""
KEPT = 100
TEXT_CHARS = 300
TOLD: frozenset[type[Struct]] = frozenset({
    events.JobSubmitted, events.JobAltered, events.JobCancelRequested, events.ClientCutOff, events.ClientLost,
    events.Paused, events.PolicyChosen, events.UnitDrained, events.UnitReturned,
    actions.EndJob, actions.ReplacePolicy, actions.RevokeStep,
    DeviceDrifts, DeviceSteady, DeviceDisturbed, RecordsTagged, CandidatePoisoned, Kept, LoopStalled, Said,
})  # fmt: skip
"""Not who gave which command: that is for operators."""


class Recent:
    """Fed by the stream."""

    KINDS: tuple[type[Struct], ...] = (*TOLD, StepEnded, Recorded)

    def __init__(self) -> None:
        self.last: deque[DaemonEvent] = deque(maxlen=KEPT)
        self._of: defaultdict[UnitName, deque[DaemonEvent]] = defaultdict(lambda: deque(maxlen=KEPT))

    def take(self, happening: DaemonEvent) -> None:
        """Something happened."""
        what = happening.what
        told = type(what) in TOLD
        if told:
            if isinstance(what, LoopStalled) and self.last and isinstance(self.last[-1].what, LoopStalled):
                self.last.pop()  # of a run the last one says enough; `slowlog` has all
            self.last.append(happening)
        if told or _failed(what):
            for unit in happening.units:
                self._of[unit].append(happening)

    def of(self, unit: UnitName, limit: int) -> tuple[RecentEvent, ...]:
        """The last things that happened on a unit."""
        lately = list(self._of.get(unit, ()))[-limit:]
        return tuple(
            RecentEvent(datetime.fromtimestamp(one.wall_s, UTC).isoformat(), one.text()[:TEXT_CHARS]) for one in lately
        )


def _failed(what: What) -> bool:
    match what:
        case StepEnded(outcome=outcome):
            return outcome != Outcome.DONE
        case Recorded(failure=failure):
            return failure in RUN_FAILURES
    return False
