"""A daemon under mutated frames; `make fuzz` sends a million."""

import asyncio
import os
from pathlib import Path

import pytest
import uvloop

import fuzz


def test_a_daemon_survives_hostile_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SLOW_S", 5 * fuzz.SLOW_S)
    cores = os.sched_getaffinity(0)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            told = runner.run(fuzz.attack(tmp_path, 3_000, seed=7, values=60))
    finally:
        os.sched_setaffinity(0, cores)
    assert told.frames >= 3_000
    assert told.crashes == []
    assert told.frames_always_slow == []
    assert told.rss_mb[-1] - told.rss_mb[0] < 64
    assert told.spent.steps > told.frames
    assert {"user: closed", "stranger: closed"} <= told.connections.keys()
