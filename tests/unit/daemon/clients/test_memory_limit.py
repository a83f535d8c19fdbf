"""Clients and helpers that hold too much memory are ended, with the reason."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autosched.daemon.clients import memory_limit
from autosched.daemon.clients.client_session import Parts
from autosched.daemon.clients.helper_registry import Helper, HelperRegistry
from autosched.daemon.clients.memory_limit import MemoryLimit
from autosched.model import Step, TaskInfo
from autosched.protocol import PartEnded, RunElsewhere, Work
from deadlines import DEADLINE_S

MIB = 1024**2
REASON = "it held 2.0 MiB of memory; limits.client_bytes_max is 1.0 MiB"


class FakeProcess:
    """Holds two MiB until it is killed."""

    memory_bytes = 8 * MIB
    exact_memory_bytes = 2 * MIB

    def __init__(self) -> None:
        self._ended = asyncio.Event()

    def kill(self) -> None:
        self._ended.set()

    async def wait(self) -> str:
        await self._ended.wait()
        return "killed by SIGKILL"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks come one after the other."""
    monkeypatch.setattr(memory_limit, "INTERVAL_S", 0.001)
    monkeypatch.setattr(memory_limit, "UNLIMITED_INTERVAL_S", 0.001)


def test_a_limit_that_is_set_later_holds_for_a_running_process() -> None:
    async def main() -> None:
        limit, gone = MemoryLimit(), asyncio.Event()
        watch = asyncio.ensure_future(limit.exceeded(FakeProcess(), gone))
        assert not (await asyncio.wait({watch}, timeout=0.01))[0], "without a limit, it may hold any memory"
        limit.bytes_max = 3 * MIB
        assert not (await asyncio.wait({watch}, timeout=0.01))[0]
        limit.bytes_max = MIB
        async with asyncio.timeout(DEADLINE_S):
            assert await watch == REASON

    asyncio.run(main())


def test_the_watch_ends_with_the_process() -> None:
    async def main() -> None:
        gone = asyncio.Event()
        watch = asyncio.ensure_future(MemoryLimit().exceeded(FakeProcess(), gone))
        await asyncio.sleep(0)
        gone.set()
        async with asyncio.timeout(DEADLINE_S):
            assert await watch == ""

    asyncio.run(main())


def test_a_helper_that_holds_too_much_is_killed_and_its_parts_are_lost() -> None:
    async def main() -> None:
        limit, told = MemoryLimit(), asyncio.Queue[PartEnded]()
        limit.bytes_max = MIB
        step = Step(id=7, job=1, task=1, stage="build", units=("lab2/host/0",), started_at=0.0, deadline_at=700.0)
        state = SimpleNamespace(
            steps={7: step}, jobs={1: SimpleNamespace(host="")}, hosts={}, step_timeout_s=600.0,
            host_of=lambda _: "lab2", cores_of=lambda _: (), gpu_of=lambda _: "",
        )  # fmt: skip
        parts = cast(Parts, SimpleNamespace(runtime=SimpleNamespace(state=state), moved=None))

        def launch(_: Helper) -> tuple[Any, str]:
            return FakeProcess(), ""

        helpers = HelperRegistry(parts, launch, lambda _, ended: told.put_nowait(ended), limit)
        helpers.run(1, RunElsewhere(step=7, part=0, work=Work.BUILD, task=TaskInfo(task=1, name="n", workload="w")))
        async with asyncio.timeout(DEADLINE_S):
            ended = await told.get()
        assert (ended.step, ended.part) == (7, 0)
        assert ended.ended.lost == f"the helper on lab2 is gone: {REASON}"
        assert helpers.of(1) == ()

    asyncio.run(main())
