"""Blocked candidates: the daemon forbids them after two failures, in this job or in another."""

import hashlib
from collections.abc import Iterable

from autosched.model import TaskIndex
from autosched.protocol import CandidateBlock


class BlockedCandidates:
    """Blocked candidates of the job's tasks. Written by the client's loop, also read by the threads of its steps."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[TaskIndex, str], str] = {}

    def note(self, candidates: Iterable[CandidateBlock]) -> None:
        """Add blocks from the daemon."""
        for one in candidates:
            if one.reason:
                self._reasons[one.task, one.sha256] = one.reason
            else:
                self._reasons.pop((one.task, one.sha256), None)

    def reason(self, task: TaskIndex, candidate: bytes) -> str:
        """Why a candidate must not be run; empty if it may."""
        return self._reasons.get((task, hashlib.sha256(candidate).hexdigest()), "") if self._reasons else ""
