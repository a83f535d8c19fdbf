"""State of a process, which may vanish at any time."""

import threading
import time

import psutil

from deadlines import DEADLINE_S


def is_dead(pid: int) -> bool:
    """Returns whether the process is gone, or a zombie that waits for its parent."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def dies(pid: int, within_s: float = DEADLINE_S) -> bool:
    """Returns whether it dies before the deadline: a signal takes a moment to arrive."""
    deadline = time.monotonic() + within_s
    while not is_dead(pid):
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.01)
    return True
