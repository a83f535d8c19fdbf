"""Time during a suspension of the process does not count."""

import asyncio
import os
import time
from collections.abc import Callable

import pytest

from autosched.protocol import Done, GetBlob, Method, wire_name
from autosched.wire import suspend_aware_clock
from autosched.wire.link import Link
from autosched.wire.suspend_aware_clock import Clock


class Loop(asyncio.AbstractEventLoop):
    """A loop with a scripted clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: tuple[float, Callable[[], None]] = (0.0, lambda: None)

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., object], *args: object, **kwargs: object) -> None:  # type: ignore[override]
        self.due = when, lambda: callback(*args) and None

    def pass_time(self, seconds: float) -> None:
        """Advances the clock as a running loop does: timers are on time."""
        until = self.now + seconds
        while self.due[0] <= until:
            self.now, beat = self.due
            beat()
        self.now = until


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_it_is_the_loops_clock_while_the_loop_turns(loop: Loop) -> None:
    clock = Clock(loop)
    loop.pass_time(1_000.5)
    assert clock.time() == pytest.approx(1_100.5)


@pytest.mark.parametrize("still_s", [30.0, 2.5])
def test_it_stands_still_with_the_process(loop: Loop, still_s: float) -> None:
    clock = Clock(loop)
    loop.pass_time(10.5)
    before = clock.time()
    loop.now += still_s
    after = clock.time()
    assert before <= after <= before + suspend_aware_clock.BEAT_S, (
        "the first caller is told, before the beat that is due"
    )
    loop.due[1]()
    loop.pass_time(7.0)
    assert clock.time() == pytest.approx(after + 7.0)


def test_a_busy_loop_does_not_count_as_suspended(loop: Loop) -> None:
    clock = Clock(loop)
    for _ in range(20):
        loop.now = loop.due[0] + 0.9 * suspend_aware_clock.STOOD_STILL_S
        loop.due[1]()
    assert clock.time() == pytest.approx(loop.now)


def stand_still() -> None:
    """The whole process is suspended."""
    time.sleep(0.5)


def test_a_call_that_was_asked_before_has_its_time_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspend_aware_clock, "BEAT_S", 0.02)
    monkeypatch.setattr(suspend_aware_clock, "STOOD_STILL_S", 0.02)

    async def answer(method: Method) -> Done:
        stand_still()
        return Done()

    async def ask(path: str) -> Done:
        serving = await asyncio.get_running_loop().create_unix_server(
            lambda: Link({wire_name(GetBlob): GetBlob}, answer), path
        )
        async with serving:
            link = await Link.open(f"unix:{path}")
            try:
                return await link.call(GetBlob(sha256="0" * 64, offset=0), Done, timeout_s=0.3)
            finally:
                link.close()

    assert asyncio.run(ask(f"\0autosched-test-awake-{os.getpid()}")) == Done()
