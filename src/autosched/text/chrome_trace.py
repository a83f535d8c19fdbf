"""Steps as a trace in Chrome's format, which Perfetto (ui.perfetto.dev) opens: one track for each unit."""

from collections.abc import Iterator, Sequence

import msgspec

from autosched.model import UnitName
from autosched.protocol import Span

MICROSECONDS = 1e6
PROCESS = 1
"""Number of the process whose threads are the units."""


def trace(spans: Sequence[Span], now: float, units: Sequence[UnitName] = ()) -> bytes:
    """The whole file. `now`: end of running steps, in seconds of the spans' clock; `units`: tracks that come first and
    exist without steps, too."""
    tracks = {
        unit: number for number, unit in enumerate(dict.fromkeys([*units, *(u for s in spans for u in s.units)]), 1)
    }
    events = [*_names(tracks), *(event for span in spans for event in _steps(span, now, tracks))]
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _names(tracks: dict[UnitName, int]) -> Iterator[dict[str, object]]:
    yield {"ph": "M", "name": "process_name", "pid": PROCESS, "args": {"name": "autosched"}}
    for unit, number in tracks.items():
        yield {"ph": "M", "name": "thread_name", "pid": PROCESS, "tid": number, "args": {"name": unit}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": PROCESS, "tid": number, "args": {"sort_index": number}}


def _steps(span: Span, now: float, tracks: dict[UnitName, int]) -> Iterator[dict[str, object]]:
    """Yield a complete event on each unit of a step."""
    ended_at = now if span.ended_at is None else span.ended_at
    said = {
        "step": span.step, "job": span.job, "task": span.task, "outcome": span.outcome,
        "waited_s": round(max(0.0, span.started_at - span.queued_at), 6), "worked_s": span.worked_s,
    }  # fmt: skip
    for unit in span.units:
        yield {
            "ph": "X", "name": f"{span.job} {span.stage}", "cat": span.stage, "pid": PROCESS, "tid": tracks[unit],
            "ts": round(span.started_at * MICROSECONDS), "dur": round((ended_at - span.started_at) * MICROSECONDS),
            "args": said,
        }  # fmt: skip
