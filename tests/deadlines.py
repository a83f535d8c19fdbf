"""Waits for events that should come at once, with a deadline that suits a busy machine."""

import time
from collections.abc import Callable

DEADLINE_S = 100.0
"""Maximum wait in seconds. It is below pytest's own limit, whose message does not name the event."""
ASK_AGAIN_S = 0.05


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits until the condition holds. Raises AssertionError, which names `what`, after DEADLINE_S."""
    deadline_at = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline_at, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(ASK_AGAIN_S)
