"""The last things that people want to be told, for whoever comes later; steps and measurements are too many for it.

Of each unit those that failed there are kept as well.
"""

from collections import defaultdict, deque
from datetime import UTC, datetime

from autosched.daemon.telling.happenings import Happening, Recorded, StepEnded
from autosched.model import Outcome, UnitName
from autosched.protocol import News

KEPT = 100
TEXT_CHARS = 300
STALL = "LoopStalled"
NAMES = frozenset(
    {
        "JobSubmitted", "JobAltered", "EndJob", "ClientLost", "JobCancelRequested", "Paused", "PolicyChosen",
        "ReplacePolicy", "UnitDrained", "UnitReturned", "DeviceDrifts", "DeviceSteady", "DeviceDisturbed", "RevokeStep",
        "RecordsTagged", "CandidatePoisoned", "Kept", STALL, "Said",
    }
)  # fmt: skip
"""Not who gave which command: that is for operators."""


class Recent:
    """Fed by the stream."""

    def __init__(self) -> None:
        self.last: deque[Happening] = deque(maxlen=KEPT)
        self._of: defaultdict[UnitName, deque[Happening]] = defaultdict(lambda: deque(maxlen=KEPT))

    def take(self, happening: Happening) -> None:
        """Something happened."""
        told = happening.name in NAMES
        if told:
            if happening.name == STALL and self.last and self.last[-1].name == STALL:
                self.last.pop()  # of a run the last one says enough; `slowlog` has all
            self.last.append(happening)
        if told or _failed(happening):
            for unit in happening.units:
                self._of[unit].append(happening)

    def of(self, unit: UnitName, limit: int) -> tuple[News, ...]:
        """The last things that happened on a unit."""
        lately = list(self._of.get(unit, ()))[-limit:]
        return tuple(
            News(datetime.fromtimestamp(one.wall_s, UTC).isoformat(), one.text()[:TEXT_CHARS]) for one in lately
        )


def _failed(happening: Happening) -> bool:
    match happening.what:
        case StepEnded(outcome=outcome):
            return outcome != Outcome.DONE.value
        case Recorded(failure=failure):
            return failure.startswith("run ")
    return False
