"""Rate limit for failed logins, per host."""

from collections import OrderedDict, deque

FAILURES_MAX = 5
WITHIN_S = 60.0
"""A host with this number of wrong keys within this number of seconds is banned for the same time."""
HOSTS_MAX = 4_096
"""Hosts that are remembered; the one that failed longest ago makes room."""


class LoginRateLimit:
    """Wrong keys by host. Times are those of one clock, whichever."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, deque[float]] = OrderedDict()

    def note(self, host: str, now: float) -> None:
        """A wrong key came from there."""
        self._of.setdefault(host, deque(maxlen=FAILURES_MAX)).append(now)
        self._of.move_to_end(host)
        if len(self._of) > HOSTS_MAX:
            self._of.popitem(last=False)

    def banned(self, host: str, now: float) -> bool:
        """Whether its connections are cut now."""
        times = self._of.get(host, ())
        recent = [at for at in times if now - at < WITHIN_S]
        if not recent:
            self._of.pop(host, None)
        return len(recent) >= FAILURES_MAX
