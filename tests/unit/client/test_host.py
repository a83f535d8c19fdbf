import asyncio
import time
from pathlib import Path
from typing import cast

import pytest

from autosched.backend import Lease
from autosched.client import host
from autosched.link import Link
from autosched.protocol import Heartbeat, Method

BUSY_S = 0.5


class Line:
    """Remembers what was told."""

    def __init__(self) -> None:
        self.told: list[Method] = []

    def notify(self, method: Method) -> None:
        self.told.append(method)


def test_a_busy_step_does_not_silence_the_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "HEARTBEAT_S", 0.01)

    def busy() -> None:
        """As bad as a step can be: it never waits, and holds the interpreter as long as that allows."""
        until = time.monotonic() + BUSY_S
        while time.monotonic() < until:
            pass

    async def work() -> None:
        hosting, line = host.Host(tmp_path), Line()
        hosting._link = cast(Link, line)
        beat = asyncio.ensure_future(hosting.beat())
        await hosting._in_thread(Lease("build", ("host/0",), (), 10.0), busy)
        beat.cancel()
        assert line.told.count(Heartbeat()) >= 3

    asyncio.run(work())
