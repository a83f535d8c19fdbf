"""Submissions wait in a bounded queue."""

import asyncio

import pytest

from autosched.daemon.access import admission
from autosched.daemon.access.admission import AT_ONCE, RETRY_MAX_S, WAITING_MAX, WAITING_OF_ONE_MAX, Admission
from autosched.errors import Busy


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def crowd(queue: Admission, who: list[str], until: asyncio.Event) -> list[asyncio.Task[None]]:
    async def one(name: str) -> None:
        async with queue.turn(name):
            await until.wait()

    tasks = [asyncio.ensure_future(one(name)) for name in who]
    await asyncio.sleep(0)
    return tasks


def test_one_host_cannot_take_all_connections() -> None:
    async def work() -> None:
        queue, until = Admission(Clock()), asyncio.Event()
        tasks = await crowd(queue, ["greedy"] * WAITING_OF_ONE_MAX, until)
        with pytest.raises(Busy, match="of them yours") as busy:
            async with queue.turn("greedy"):
                raise AssertionError("no peer is admitted here")
        assert busy.value.retry_after_s is not None
        tasks += await crowd(queue, ["modest"], until)
        until.set()
        await asyncio.gather(*tasks)
        async with queue.turn("greedy"):
            pass

    asyncio.run(work())


def test_connections_of_all_hosts_together_are_limited() -> None:
    async def work() -> None:
        queue, until = Admission(Clock()), asyncio.Event()
        tasks = await crowd(queue, [f"user {number}" for number in range(WAITING_MAX)], until)
        with pytest.raises(Busy, match="of others"):
            async with queue.turn("late"):
                pass
        until.set()
        await asyncio.gather(*tasks)

    asyncio.run(work())


def test_few_submissions_run_at_once() -> None:
    async def work() -> None:
        queue, now, most = Admission(Clock()), 0, 0

        async def one(name: str) -> None:
            nonlocal now, most
            async with queue.turn(name):
                now += 1
                most = max(most, now)
                await asyncio.sleep(0)
                now -= 1

        await asyncio.gather(*(one(str(number)) for number in range(20)))
        assert most == AT_ONCE

    asyncio.run(work())


def test_the_retry_time_follows_the_duration_of_submissions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "WAITING_OF_ONE_MAX", 2)

    async def asked(each_s: float) -> float:
        clock, until = Clock(), asyncio.Event()
        queue = Admission(clock)
        for _ in range(100):
            async with queue.turn("x"):
                clock.now += each_s
        tasks = await crowd(queue, ["x"] * 2 + [f"{number}" for number in range(100)], until)
        with pytest.raises(Busy) as busy:
            async with queue.turn("x"):
                pass
        until.set()
        await asyncio.gather(*tasks)
        assert busy.value.retry_after_s is not None
        return busy.value.retry_after_s

    assert asyncio.run(asked(0.1)) == pytest.approx(102 * 0.1 / AT_ONCE, rel=0.01)
    assert asyncio.run(asked(10.0)) == RETRY_MAX_S
    assert asyncio.run(asked(1e-6)) == admission.RETRY_MIN_S
