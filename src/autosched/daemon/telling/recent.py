"""The last things that people want to be told, for whoever comes later; steps and measurements are too many for it."""

from collections import deque

from autosched.daemon.telling.happenings import Happening

KEPT = 100
NAMES = frozenset(
    {
        "JobSubmitted", "JobAltered", "EndJob", "ClientLost", "JobCancelRequested", "Paused", "PolicyChosen",
        "ReplacePolicy", "UnitDrained", "UnitReturned", "DeviceDrifts", "DeviceSteady", "DeviceDisturbed", "RevokeStep",
        "RecordsTagged", "CandidatePoisoned", "Kept", "LoopStalled", "Said",
    }
)  # fmt: skip
"""Not who gave which command: that is for operators."""


class Recent:
    """Fed by the stream."""

    def __init__(self) -> None:
        self.last: deque[Happening] = deque(maxlen=KEPT)

    def take(self, happening: Happening) -> None:
        """Something happened."""
        if happening.name in NAMES:
            self.last.append(happening)
