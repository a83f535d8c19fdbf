"""Detects that the loop is delayed, and where."""

import asyncio
import time

from autosched.daemon.observe.loop_monitor import LoopMonitor, loop_tasks
from deadlines import DEADLINE_S


def hold_up() -> None:
    time.sleep(0.6)


def test_a_blocked_loop_is_reported_with_the_place() -> None:
    async def live() -> tuple[LoopMonitor, list[tuple[float, str]]]:
        beats, turned = list[tuple[float, str]](), asyncio.Event()

        def beat(lag_s: float, where: str) -> None:
            beats.append((lag_s, where))
            if "hold_up" in where:
                turned.set()

        pulse = LoopMonitor(beat)
        pulse.start()
        async with asyncio.timeout(DEADLINE_S):
            while not turned.is_set():  # on a busy machine the monitor may not have looked in time
                asyncio.get_running_loop().call_later(0.15, hold_up)
                await asyncio.sleep(0.3)
        pulse.stop()
        return pulse, beats

    pulse, beats = asyncio.run(live())
    stall = next(stall for stall in pulse.stalls if "hold_up" in stall.where)
    assert stall.where.startswith("hold_up observe/test_loop_monitor.py:")
    assert stall.seconds >= 0.3
    assert max(beats)[0] >= 0.3
    assert pulse.lag_p99_ms() >= 0


def test_running_tasks_are_listed_with_their_calls() -> None:
    async def inner() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await inner()

    async def live() -> None:
        task = asyncio.ensure_future(outer())
        task.set_name("the one")
        await asyncio.sleep(0)
        (found,) = (one for one in loop_tasks() if one.name == "the one")
        assert [place.split()[0].rpartition(".")[2] for place in found.stack[:2]] == ["outer", "inner"]
        assert found.stack[-1].startswith("Event.wait asyncio/locks.py:")
        task.cancel()

    asyncio.run(live())
