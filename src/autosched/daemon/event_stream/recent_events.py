"""The latest events of interest to users, without steps and measurements, and the latest failures of each unit."""

from collections import defaultdict, deque
from datetime import UTC, datetime

from msgspec import Struct

from autosched.core import actions, events
from autosched.daemon.event_stream.daemon_events import (
    CandidateBlocked,
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
"""Failures of a measurement, which the unit may have caused."""
KEPT = 100
"""Maximum number of events that are kept, and of each unit."""
TEXT_CHARS = 300
"""Maximum number of characters of an event's text."""
TOLD: frozenset[type[Struct]] = frozenset({
    events.JobSubmitted, events.JobAltered, events.JobCancelRequested, events.ClientCutOff, events.ClientLost,
    events.Paused, events.PolicyChosen, events.UnitDrained, events.UnitReturned,
    actions.EndJob, actions.ReplacePolicy, actions.RevokeStep,
    DeviceDrifts, DeviceSteady, DeviceDisturbed, RecordsTagged, CandidateBlocked, Kept, LoopStalled, Said,
})  # fmt: skip
"""Types of events for all users. Commands are for operators only."""


class Recent:
    """Keeps the latest events of the stream."""

    KINDS: tuple[type[Struct], ...] = (*TOLD, StepEnded, Recorded)

    def __init__(self) -> None:
        self.last: deque[DaemonEvent] = deque(maxlen=KEPT)
        self._of: defaultdict[UnitName, deque[DaemonEvent]] = defaultdict(lambda: deque(maxlen=KEPT))

    def take(self, event: DaemonEvent) -> None:
        """Take an event."""
        what = event.what
        told = type(what) in TOLD
        if told:
            if isinstance(what, LoopStalled) and self.last and isinstance(self.last[-1].what, LoopStalled):
                self.last.pop()  # one stall of several in a row suffices; `slowlog` has all
            self.last.append(event)
        if told or _failed(what):
            for unit in event.units:
                self._of[unit].append(event)

    def of(self, unit: UnitName, limit: int) -> tuple[RecentEvent, ...]:
        """The latest events of a unit."""
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
