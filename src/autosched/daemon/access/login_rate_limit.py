"""Rate limit for failed logins, per host."""

from collections import OrderedDict, deque

FAILURES_MAX = 5
"""Number of failed logins within `WITHIN_S` that bans a host."""
WITHIN_S = 60.0
"""Seconds in which failed logins are counted, and for which a host is banned."""
HOSTS_MAX = 4_096
"""Maximum number of hosts in memory; the one whose failure is oldest is dropped."""


class LoginRateLimit:
    """Failed logins by host. All times are of the same clock."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, deque[float]] = OrderedDict()

    def note(self, host: str, now: float) -> None:
        """Count a failed login of a host."""
        self._of.setdefault(host, deque(maxlen=FAILURES_MAX)).append(now)
        self._of.move_to_end(host)
        if len(self._of) > HOSTS_MAX:
            self._of.popitem(last=False)

    def banned(self, host: str, now: float) -> bool:
        """Whether a host is banned now."""
        times = self._of.get(host, ())
        recent = [at for at in times if now - at < WITHIN_S]
        if not recent:
            self._of.pop(host, None)
        return len(recent) >= FAILURES_MAX
