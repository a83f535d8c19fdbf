"""Submissions wait in a bounded queue."""

import asyncio

import pytest
from msgspec.structs import replace

from autosched.daemon.access import admission
from autosched.daemon.access.admission import RETRY_MAX_S, SUBMISSIONS, Admission, Bounds
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
        tasks = await crowd(queue, ["greedy"] * SUBMISSIONS.waiting_of_one, until)
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
        tasks = await crowd(queue, [f"user {number}" for number in range(SUBMISSIONS.waiting)], until)
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
        assert most == SUBMISSIONS.at_once

    asyncio.run(work())


def test_the_retry_time_follows_the_duration_of_submissions() -> None:
    bounds = replace(SUBMISSIONS, waiting_of_one=2)

    async def asked(each_s: float) -> float:
        clock, until = Clock(), asyncio.Event()
        queue = Admission(clock, bounds)
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

    assert asyncio.run(asked(0.1)) == pytest.approx(102 * 0.1 / bounds.at_once, rel=0.01)
    assert asyncio.run(asked(10.0)) == RETRY_MAX_S
    assert asyncio.run(asked(1e-6)) == admission.RETRY_MIN_S


def test_a_user_runs_less_at_once_than_all_and_waits_behind_few_of_another() -> None:
    async def work() -> None:
        queue, ran = Admission(Clock(), Bounds("questions", 3, 2, 100, 50)), list[str]()
        now, most = {"greedy": 0, "modest": 0}, {"greedy": 0, "modest": 0}

        async def one(name: str) -> None:
            async with queue.turn(name):
                now[name] += 1
                most[name] = max(most[name], now[name])
                await asyncio.sleep(0)
                now[name] -= 1
                ran.append(name)

        await asyncio.gather(*(one("greedy") for _ in range(40)), one("modest"))
        assert (most, ran.index("modest") < 4) == ({"greedy": 2, "modest": 1}, True)
        assert (queue._own_turns, queue._waiting) == ({}, {})

    asyncio.run(work())


def test_a_user_who_leaves_gives_the_turn_back() -> None:
    async def work() -> None:
        queue, until = Admission(Clock(), Bounds("questions", 1, 1, 9, 9)), asyncio.Event()
        running, waiting, last = await crowd(queue, ["a", "a", "a"], until)
        for task in (waiting, running):
            task.cancel()
        await asyncio.wait([waiting, running])
        until.set()
        await last

    asyncio.run(work())
