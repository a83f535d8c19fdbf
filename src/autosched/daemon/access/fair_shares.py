"""Shares of each user in the daemon's time: answers at a time, and changes per second.

Operators have turns of their own, and may change as much as they like.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from autosched.config import LimitsConfig
from autosched.daemon.access.admission import Admission, Bounds
from autosched.daemon.access.peer_identity import Principal
from autosched.errors import Busy
from autosched.protocol.roles import Role

ANSWERS = Bounds("questions", 8, 2, 1_024, 256)
REPORTS = Bounds("reports", 2, 1, 64, 16)
"""Bounds of answers that read what is there, and of those that need seconds and tens of megabytes."""
BURST_S = 20.0
"""Seconds whose changes a user may make at once."""
USERS_MAX = 1_000
"""Number of users from which on those who have their whole burst left are forgotten."""


class FairShares:
    """The shares of all users."""

    def __init__(self, clock: Callable[[], float], limits: Callable[[], LimitsConfig]) -> None:
        """`limits`: those in force."""
        self._clock, self._limits = clock, limits
        self._answers = {operator: Admission(clock, ANSWERS) for operator in (False, True)}
        self._reports = {operator: Admission(clock, REPORTS) for operator in (False, True)}
        self._left: dict[str, tuple[float, float]] = {}
        """Number of changes that a user may make, and when that was so."""

    def answer(self, who: Principal) -> AbstractAsyncContextManager[None]:
        """A turn to read what is there. Raises Busy on entry."""
        return self._answers[who.role is Role.OPERATOR].turn(who.name)

    def report(self, who: Principal) -> AbstractAsyncContextManager[None]:
        """A turn to make a report. Raises Busy on entry."""
        return self._reports[who.role is Role.OPERATOR].turn(who.name)

    def change(self, who: Principal) -> None:
        """Count one change. Raises Busy if a user makes too many (a token bucket)."""
        if who.role is Role.OPERATOR:
            return
        rate = self._limits().user_changes_per_s
        most, now = max(1.0, BURST_S * rate), self._clock()
        left, since = self._left.get(who.name, (most, now))
        left = min(most, left + rate * (now - since))
        if left < 1.0:
            raise Busy(
                f"this daemon refuses: {who.name} changes more than {rate:g} things a second, which is"
                " limits.user_changes_per_s; try again later",
                (1.0 - left) / rate,
            )
        if len(self._left) >= USERS_MAX:
            self._left = {name: one for name, one in self._left.items() if one[0] + rate * (now - one[1]) < most}
        self._left[who.name] = left - 1.0, now
