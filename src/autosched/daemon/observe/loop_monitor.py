"""Whether the loop turns: how late its timer is, when it stood still, and what it did then.

A thread looks at the loop's beat, since a loop that stands still cannot look at itself; while it does, the thread sees
in which call it is.
"""

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from types import FrameType

from autosched.protocol import LoopTask, Stall
from autosched.records.statistics import p99

BEAT_S = 0.1
SLOW_S = 0.05
"""A beat that is later than this is a stall;"""
NOTICED_S = 0.1
"""and one that people notice is told to everybody."""
STALLS_KEPT, LAGS_KEPT = 128, 600
"""The latest stalls; the lags of the last minute."""
FRAMES = 4


class LoopMonitor:
    """One loop's beat; `start` it inside that loop."""

    def __init__(self, beat: Callable[[float, str], None] = lambda lag_s, where: None) -> None:
        """`beat` is called with each lag in seconds, and where the loop was meanwhile if that was long."""
        self._told = beat
        self.stalls: deque[Stall] = deque(maxlen=STALLS_KEPT)
        self._lags: deque[float] = deque(maxlen=LAGS_KEPT)
        self._due_at = 0.0
        self._where = ""
        self._count = 0
        self._over = threading.Event()

    def start(self) -> None:
        """Beat until `stop`."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._due_at = time.monotonic() + BEAT_S
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        threading.Thread(target=self._watch, name="pulse", daemon=True).start()

    def stop(self) -> None:
        """Beat no more."""
        self._timer.cancel()
        self._over.set()

    def lag_p99_ms(self) -> float:
        """How late the loop is in one of a hundred of the last beats, milliseconds."""
        return 1e3 * p99(self._lags)

    def _beat(self) -> None:
        now = time.monotonic()
        lag_s, where = now - self._due_at, self._where
        self._lags.append(max(0.0, lag_s))
        if lag_s > SLOW_S:
            self._count += 1
            at = datetime.now().astimezone().isoformat(timespec="milliseconds")
            self.stalls.append(Stall(self._count, at, lag_s, where))
        self._told(max(0.0, lag_s), where)
        self._where, self._due_at = "", now + BEAT_S
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _watch(self) -> None:
        """In a thread: look where a loop is that is late, once for each beat."""
        while not self._over.wait(BEAT_S / 2):
            if time.monotonic() - self._due_at > SLOW_S and not self._where:
                self._where = " < ".join(calls(sys._current_frames().get(self._thread)))


def calls(frame: FrameType | None) -> list[str]:
    """The innermost calls of a stack."""
    found: list[str] = []
    while frame is not None and len(found) < FRAMES:
        found.append(place(frame))
        frame = frame.f_back
    return found


def place(frame: FrameType) -> str:
    """Function, file and line."""
    folder, _, file = frame.f_code.co_filename.rpartition("/")
    return f"{frame.f_code.co_qualname} {folder.rpartition('/')[2]}/{file}:{frame.f_lineno}"


def loop_tasks() -> tuple[LoopTask, ...]:
    """The tasks of this event loop."""
    found = []
    for task in asyncio.all_tasks():
        number = (id(task) >> 4) % 100_003  # short enough to type
        found.append(LoopTask(number, task.get_name(), tuple(_awaits(task))))
    return tuple(sorted(found, key=lambda one: one.name))


def _awaits(task: asyncio.Task[object]) -> list[str]:
    """The coroutines that wait for each other, the outermost first."""
    found: list[str] = []
    waiting: object = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None and len(found) < 32:
        found.append(place(frame))
        waiting = getattr(waiting, "cr_await", None)
    return found
