"""Reconnecting session: unacknowledged messages are resent in order, to the next connection or the next daemon."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import Struct

from autosched.client import daemon_session as module
from autosched.client.daemon_session import DaemonSession
from autosched.errors import Refused, RequestError
from autosched.model import JobLoad, Outcome, Record
from autosched.protocol import (
    CLIENT_METHODS,
    HELLO,
    PROTOCOL,
    AddRecord,
    Done,
    EndStep,
    GetOrder,
    Hello,
    Method,
    Return,
    Welcome,
)
from autosched.wire.link import Link
from autosched.wire.pauses import pauses
from deadlines import DEADLINE_S

JOB = 7
STANDING = Return(steps=(3,), load=JobLoad())
END = EndStep(step=3, outcome=Outcome.DONE, load=JobLoad())


def record(trial: int, size: int = 1) -> AddRecord:
    return AddRecord(record=Record(task=1, number=trial, candidate=b"x" * size))


class Daemon:
    """Stores messages; may fail to answer, or refuse a returning client."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "api.sock"
        self.told: list[Method] = []
        self.links: list[Link] = []
        self.mute = False
        self.refuses = False
        self.asked = asyncio.Event()
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_unix_server(self._link, str(self.path))

    def _link(self) -> Link:
        self.links.append(Link({**HELLO, **CLIENT_METHODS}, self._answer))
        return self.links[-1]

    async def _answer(self, method: Method) -> Struct:
        if isinstance(method, Hello):
            return Welcome(PROTOCOL, "a daemon", 1)
        self.told.append(method)
        if isinstance(method, Return) and self.refuses:
            raise Refused("the job has another client")
        if self.mute:
            self.asked.set()
            await asyncio.Event().wait()
        return Done()

    def trials(self) -> list[int]:
        return [method.record.number for method in self.told if isinstance(method, AddRecord)]

    async def die(self) -> None:
        """Ends like kill -9."""
        assert self._server is not None
        self._server.close()
        self.path.unlink(missing_ok=True)  # since Python 3.13 the server removes it
        for link in self.links:
            link.abort("killed")
            await link.wait_closed()
        self.links.clear()


Story = Callable[[Daemon, DaemonSession], Awaitable[None]]


def play(folder: Path, story: Story) -> None:
    async def work() -> None:
        async with asyncio.timeout(DEADLINE_S):
            daemon = Daemon(folder)
            await daemon.start()
            line = DaemonSession(f"unix:{daemon.path}", JOB, "token")
            await line.open(_nothing)
            try:
                await story(daemon, line)
            finally:
                line.close()
                if daemon.path.exists():
                    await daemon.die()

    asyncio.run(work())


async def _nothing(method: Method) -> Struct:
    raise RequestError(f"{type(method).__name__} was not expected")


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "pauses", lambda: pauses(most_s=0.01))


def test_unacknowledged_messages_are_resent_in_order(tmp_path: Path) -> None:
    async def story(daemon: Daemon, line: DaemonSession) -> None:
        keeping = asyncio.ensure_future(line.keep(lambda: STANDING))
        line.tell(record(0))
        await line.end(lambda _: END)
        assert daemon.trials() == [0]
        daemon.mute = True
        for trial in (1, 2):
            line.tell(record(trial))
        ending = asyncio.ensure_future(line.end(lambda _: END))
        await daemon.asked.wait()
        await daemon.die()
        for trial in range(3, 40):
            assert line.tell(record(trial))
        daemon.told.clear()
        daemon.mute = False
        await daemon.start()
        await ending
        assert daemon.told[0] == STANDING
        assert daemon.trials() == list(range(1, 40))
        assert daemon.told[-1] == END
        line.tell(record(40))
        await line.end(lambda _: END)
        assert daemon.trials()[-1] == 40
        await daemon.die()
        daemon.told.clear()
        await daemon.start()
        await line.ask(GetOrder(), Done)
        assert daemon.told == [STANDING, GetOrder()], "nothing is said again that was acknowledged"
        keeping.cancel()

    play(tmp_path, story)


def test_an_unanswered_request_is_repeated_on_the_next_connection(tmp_path: Path) -> None:
    async def story(daemon: Daemon, line: DaemonSession) -> None:
        keeping = asyncio.ensure_future(line.keep(lambda: STANDING))
        daemon.mute = True
        asking = asyncio.ensure_future(line.ask(GetOrder(), Done))
        await daemon.asked.wait()
        daemon.mute = False
        daemon.links[0].abort("a cable was pulled")
        assert await asking == Done()
        assert daemon.told == [GetOrder(), STANDING, GetOrder()]
        keeping.cancel()

    play(tmp_path, story)


def test_a_refused_client_ends(tmp_path: Path) -> None:
    async def story(daemon: Daemon, line: DaemonSession) -> None:
        daemon.refuses = True
        daemon.links[0].abort("a cable was pulled")
        assert "does not take this client back: the job has another client" in await line.keep(lambda: STANDING)

    play(tmp_path, story)


def test_a_daemon_whose_folder_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()

    async def story(daemon: Daemon, line: DaemonSession) -> None:
        await daemon.die()
        folder.rmdir()
        assert "nothing is left of the daemon" in await line.keep(lambda: STANDING)

    play(folder, story)


def test_a_client_ends_when_the_daemon_does_not_return(tmp_path: Path) -> None:
    async def story(daemon: Daemon, line: DaemonSession) -> None:
        line._search_s = 0.05
        await daemon.die()
        assert "did not come back within 0.05 s" in await line.keep(lambda: STANDING)

    play(tmp_path, story)


def test_a_client_that_has_not_begun_does_not_reconnect(tmp_path: Path) -> None:
    async def story(daemon: Daemon, line: DaemonSession) -> None:
        await daemon.die()
        assert await line.keep(lambda: None)

    play(tmp_path, story)


def test_too_many_unacknowledged_messages_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSAID_BYTES_MAX", 10_000)

    async def story(daemon: Daemon, line: DaemonSession) -> None:
        assert line.tell(record(0, 5_000))
        await line.end(lambda _: END)
        assert line.tell(record(1, 5_000))
        assert not line.tell(record(2, 5_000))

    play(tmp_path, story)


@pytest.mark.parametrize("lost", [None, SimpleNamespace(closed=True)])
def test_heartbeats_continue_after_a_reconnect(lost: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.001)

    async def work() -> None:
        line, told = DaemonSession("unix:/nowhere", JOB, ""), asyncio.Event()

        async def keep_alive(ask: Method, every_s: float, silence_s: float) -> None:
            told.set()
            await asyncio.Event().wait()

        line._link = cast(Link | None, lost)
        beat = asyncio.ensure_future(line.beat())
        await asyncio.sleep(0)
        assert not told.is_set()
        line._link = cast(Link, SimpleNamespace(closed=False, keep_alive=keep_alive))
        async with asyncio.timeout(DEADLINE_S):
            await told.wait()
        beat.cancel()

    asyncio.run(work())
