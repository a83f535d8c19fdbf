"""The daemon's state in one line: "3 running, 5 waiting; host 93%, devices 2/3 up, next free 22 s"."""

from collections import deque
from collections.abc import Sequence

from autosched.core.state import Slot, State
from autosched.daemon.timeline import Timeline
from autosched.model import DEVICE_POOL, HOST_POOL, OWN_HOST, at_host

WINDOW = 12
"""Number of lines over which the busy share of lanes is averaged."""


class Headline:
    """Makes successive status lines."""

    def __init__(self) -> None:
        self._before: deque[tuple[float, float]] = deque(maxlen=WINDOW)

    def words(self, state: State, timeline: Timeline, now: float, stalled: str = "") -> str:
        """The current line. `stalled`: why the disk cannot be written, else empty."""
        running = sum(1 for job in state.active if state.jobs[job].steps)
        parts = [f"host {100 * self._host_busy(state, timeline, now):.0f}%"]
        devices = [
            slot for slot in state.slots.values() if any(pool.startswith(DEVICE_POOL) for pool, _ in slot.places)
        ]
        up = [slot for slot in devices if state.is_usable(slot.unit.name)]
        parts.append(f"devices {len(up)}/{len(devices)} up")
        if free := sum(1 for slot in up if slot.holder is None):
            parts.append(f"{free} free")
        elif (free_s := next_free_s(state, up, now)) is not None:
            parts.append(f"next free {free_s:.0f} s")
        if stalled:
            parts.append(f"WAITS FOR ITS DISK: {stalled}")
        return f"{running} running, {len(state.active) - running} waiting; {', '.join(parts)}"

    def _host_busy(self, state: State, timeline: Timeline, now: float) -> float:
        """Share of the lanes' time since the earlier lines in which they were leased."""
        hosts = (OWN_HOST, *(name for name, host in state.hosts.items() if not host.left))
        lanes = [unit.name for host in hosts for unit in state.queues[at_host(HOST_POOL, host)].pool.units]
        busy_s = sum(timeline.busy_s(lane, now) for lane in lanes)
        then, busy_then_s = self._before[0] if self._before else (timeline.began_at, 0.0)
        self._before.append((now, busy_s))
        return min(1.0, (busy_s - busy_then_s) / max((now - then) * len(lanes), 1e-9))


def next_free_s(state: State, slots: Sequence[Slot], now: float) -> float | None:
    """Seconds until the first of these units is expected to be free; None without an estimate."""
    steps = [state.steps[slot.holder] for slot in slots if slot.holder is not None]
    expected = [(step, state.estimates.forecasts[step.id]) for step in steps if step.id in state.estimates.forecasts]
    return min((max(0.0, step.started_at + forecast[0] - now) for step, forecast in expected), default=None)
