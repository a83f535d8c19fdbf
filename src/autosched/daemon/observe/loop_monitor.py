"""Monitors the event loop: the lag of a timer, and stalls with the call that caused them.

A thread checks the timer, since a stalled loop cannot check itself. During a stall the thread reads the loop's stack.
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
"""Seconds between two beats of the timer."""
SLOW_S = 0.05
"""Minimum lag in seconds of a stall."""
NOTICED_S = 0.1
"""Minimum lag in seconds of a stall that is published as an event."""
STALLS_KEPT, LAGS_KEPT = 128, 600
"""Maximum numbers of stalls and of lags that are kept; the lags are those of a minute."""
FRAMES = 4
"""Maximum number of calls of a stack that are shown."""


class LoopMonitor:
    """Monitor of one event loop. `start` is called inside that loop."""

    def __init__(self, beat: Callable[[float, str], None] = lambda lag_s, where: None) -> None:
        """`beat`: called with each lag in seconds, and with the stack during a stall."""
        self._told = beat
        self.stalls: deque[Stall] = deque(maxlen=STALLS_KEPT)
        self._lags: deque[float] = deque(maxlen=LAGS_KEPT)
        self._due_at = 0.0
        self._where = ""
        self._count = 0
        self._over = threading.Event()

    def start(self) -> None:
        """Start the timer and the thread."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._due_at = time.monotonic() + BEAT_S
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        threading.Thread(target=self._watch, name="pulse", daemon=True).start()

    def stop(self) -> None:
        """Stop both."""
        self._timer.cancel()
        self._over.set()

    def lag_p99_ms(self) -> float:
        """99 % quantile of the latest lags, in milliseconds."""
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
        """Read the stack of a late loop, once for each beat. Runs in a thread."""
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
    """Function, file and line of a frame."""
    folder, _, file = frame.f_code.co_filename.rpartition("/")
    return f"{frame.f_code.co_qualname} {folder.rpartition('/')[2]}/{file}:{frame.f_lineno}"


def loop_tasks() -> tuple[LoopTask, ...]:
    """All tasks of this event loop."""
    found = []
    for task in asyncio.all_tasks():
        number = (id(task) >> 4) % 100_003  # short enough to type
        found.append(LoopTask(number, task.get_name(), tuple(_awaits(task))))
    return tuple(sorted(found, key=lambda one: one.name))


def _awaits(task: asyncio.Task[object]) -> list[str]:
    """The chain of coroutines that a task awaits, the outermost first."""
    found: list[str] = []
    waiting: object = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None and len(found) < 32:
        found.append(place(frame))
        waiting = getattr(waiting, "cr_await", None)
    return found
