"""Diagnostics for operators: figures by section, and the waiting tasks of each pool."""

import os
import time
from heapq import nsmallest

from autosched.core.state import State
from autosched.daemon.event_stream.stream import Stream
from autosched.daemon.observe.loop_monitor import LoopMonitor
from autosched.daemon.runtime import Runtime
from autosched.errors import NotFound
from autosched.process.process_tree import resident_bytes
from autosched.protocol import (
    Figures,
    Place,
    QueueList,
    QueueView,
)
from autosched.version import __version__

Section = dict[str, str | int | float]


def queues(runtime: Runtime, limit: int) -> QueueList:
    """The first `limit` waiting tasks of each pool."""
    return QueueList(tuple(_queue(runtime.state, pool, limit, runtime.clock()) for pool in runtime.state.queues))


def figures(section: str, runtime: Runtime, pulse: LoopMonitor) -> Figures:
    """The figures of one section, or of all. Raises NotFound."""
    made = {
        "daemon": _daemon(runtime),
        "sched": _sched(runtime, pulse),
        "devices": _devices(runtime),
        "storage": _storage(runtime),
        "stream": _stream(runtime.stream),
    }
    if section and section not in made:
        raise NotFound(f"there is no section {section!r}; there are: {', '.join(made)}")
    return Figures({section: made[section]} if section else made)


def _daemon(runtime: Runtime) -> Section:
    uptime_s = round(runtime.clock() - runtime.timeline.began_at, 1)
    return {
        "version": __version__,
        "pid": os.getpid(),
        "uptime_s": uptime_s,
        "cpu_s": round(time.process_time(), 2),
        "rss_bytes": resident_bytes("self"),
    }


def _sched(runtime: Runtime, pulse: LoopMonitor) -> Section:
    state = runtime.state
    running = sum(1 for job in state.active if state.jobs[job].steps)
    known = state.estimates.calibration()
    return {
        "policy": runtime.scheduler.policy.name,
        "goal": state.goal.value,
        "rule": state.rule,
        "paused": state.paused,
        "jobs_running": running,
        "jobs_waiting": len(state.active) - running,
        "jobs_held": sum(1 for job in state.active if state.jobs[job].held),
        "jobs_total": len(state.jobs),
        "steps_running": len(state.steps),
        "tasks_waiting": sum(state.jobs[job].waiting for job in state.active),
        "decisions": runtime.decisions,
        "decision_us_p99": round(runtime.decision_p99_us(), 1),
        "loop_lag_ms_p99": round(pulse.lag_p99_ms(), 2),
        "loop_stalls": pulse.stalls[-1].id if pulse.stalls else 0,
        "estimates_judged": known.steps,
        "estimates_off_by": round(known.mape, 3) if known.mape is not None else "",
    }


def _devices(runtime: Runtime) -> Section:
    state, now = runtime.state, runtime.clock()
    made: Section = {
        "units": len(state.slots),
        "busy": sum(1 for slot in state.slots.values() if slot.holder is not None),
        "drained": sum(1 for unit in state.slots if unit in state.drained),
        "away": sum(1 for slot in state.slots.values() if slot.away),
    }
    return made | {f"busy_ratio[{unit}]": round(runtime.timeline.busy_ratio(unit, now), 3) for unit in state.slots}


def _storage(runtime: Runtime) -> Section:
    journal, records = runtime.journal, runtime.records
    return {
        "path": str(journal.path),
        "events": journal.seq,
        "writes": journal.written,
        "stalled": journal.stalled,
        "record_store": records.url,
        "records_stored": records.stored,
        "records_behind": records.behind,
        "record_store_trouble": records.trouble,
    }


def _stream(stream: Stream) -> Section:
    return {"readers": stream.readers, "dropped": stream.dropped}


def _queue(state: State, pool: str, limit: int, now: float) -> QueueView:
    queue = state.queues[pool]
    live = nsmallest(limit, (entry for entry in queue.heap if state.is_live(*entry[1:])))
    places = []
    for _, _, job, index in live:
        task = state.jobs[job].tasks[index]
        places.append(Place(job, index, task.load.stage_next, now - task.ready_at))
    units = [unit.name for unit in queue.pool.units]
    free = sum(1 for unit in units if state.slots[unit].holder is None and state.is_usable(unit))
    return QueueView(pool, len(units), free, queue.waiting, tuple(places))
