"""How long a test waits for what should happen at once: a busy machine is no failure."""

import time
from collections.abc import Callable

DEADLINE_S = 100.0
"""Less than pytest's own limit, which does not say what was waited for."""
ASK_AGAIN_S = 0.05


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds. Raises AssertionError, which names `what` was waited for, after DEADLINE_S."""
    deadline_at = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline_at, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(ASK_AGAIN_S)
