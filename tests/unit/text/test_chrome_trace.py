"""The trace file: all fields that viewers need, and all data of a step."""

import json

from autosched.protocol import Span
from autosched.text.chrome_trace import trace


def test_each_step_is_a_complete_event_on_each_of_its_units() -> None:
    spans = (
        Span(7, 3, 1, "build", ("host/0",), 1.0, 1.5, 2.75, "done", 1.2),
        Span(8, 4, 2, "profile", ("cpu0", "cpu1"), 2.0, 2.0, None, "running"),
    )
    said = json.loads(trace(spans, 5.0, ["cpu0", "idle0", "host/0"]))
    events = said["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(tracks.values()) == ["cpu0", "idle0", "host/0", "cpu1"]
    steps = [e for e in events if e["ph"] == "X"]
    assert [(tracks[e["tid"]], e["name"], e["ts"], e["dur"]) for e in steps] == [
        ("host/0", "3 build", 1_500_000, 1_250_000),
        ("cpu0", "4 profile", 2_000_000, 3_000_000),
        ("cpu1", "4 profile", 2_000_000, 3_000_000),
    ]
    assert steps[0]["args"] == {
        "step": 7, "job": 3, "task": 1, "outcome": "done", "waited_s": 0.5, "worked_s": 1.2,
    }  # fmt: skip
