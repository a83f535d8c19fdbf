"""The time that a third party's policy may take: its code runs in the only thread of the daemon.

The budget of a decision is processor time, so that a busy machine makes no policy look slow. Wall time stands behind
it for code that sleeps or never returns: an alarm then raises inside that code.
"""

import signal
import time
from types import FrameType, TracebackType

WALL_FACTOR = 6.0
"""Wall time limit of a decision, in multiples of its limit of processor time."""


class PolicyOverran(Exception):
    """The policy took longer than a decision may take."""


class _Alarm(BaseException):
    """Raised inside the policy; no Exception, so that code which catches everything does not swallow it."""


class PolicyTimeLimit:
    """A context to call a policy in; only in the main thread. The calls of one decision share `limit_s`."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._used_s = 0.0
        self._armed = False

    def renewed(self) -> "PolicyTimeLimit":
        """The next decision begins."""
        self._used_s = 0.0
        return self

    def __enter__(self) -> None:
        self._handler = signal.signal(signal.SIGALRM, self._ring)
        wall_s = WALL_FACTOR * self.limit_s
        self._timer = signal.setitimer(signal.ITIMER_REAL, wall_s, wall_s)
        self._began_at = time.thread_time()
        self._armed = True

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            raise _Alarm

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._armed = False
        self._used_s += time.thread_time() - self._began_at
        signal.setitimer(signal.ITIMER_REAL, *self._timer)
        signal.signal(signal.SIGALRM, self._handler)
        if kind is _Alarm:
            raise PolicyOverran(f"it did not return within {WALL_FACTOR * self.limit_s:g} s") from None
        if kind is None and self._used_s > self.limit_s:
            raise PolicyOverran(f"a decision took it {self._used_s:.3f} s, and {self.limit_s:g} s are allowed")
