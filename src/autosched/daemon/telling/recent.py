"""The last things that people want to be told, for whoever comes later; steps and measurements are too many for it."""

from collections import deque

from autosched.daemon.telling.happenings import Happening

KEPT = 100
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

    def take(self, happening: Happening) -> None:
        """Something happened."""
        if happening.name not in NAMES:
            return
        if happening.name == STALL and self.last and self.last[-1].name == STALL:
            self.last.pop()  # of a run the last one says enough; `slowlog` has all
        self.last.append(happening)
