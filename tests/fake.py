"""A scripted daemon on a real unix socket, in this process."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from autosched.cli.command_table import run
from autosched.protocol import HELLO, PROTOCOL, USER_METHODS, Hello, Method, Welcome
from autosched.wire.link import Link
from deadlines import DEADLINE_S

Answer = Callable[[Method], Awaitable[Struct]]
Said = tuple[int, str, str]
"""Exit code, stdout, stderr."""


@contextmanager
def fake_daemon(folder: Path, answer: Answer, *, mute: bool = False) -> Iterator[str]:
    """Yields its address; `answer` answers all requests but hello, in the daemon's own thread."""
    socket, up, down = folder / "fake.sock", threading.Event(), threading.Event()

    async def handle(method: Method) -> Struct:
        if mute:
            await asyncio.Event().wait()
        if isinstance(method, Hello):
            return Welcome(PROTOCOL, "fake", 1)
        return await answer(method)

    async def serve() -> None:
        loop, links = asyncio.get_running_loop(), list[Link]()

        def link() -> Link:
            links.append(Link({**HELLO, **USER_METHODS}, handle))
            return links[-1]

        server = await loop.create_unix_server(link, str(socket))
        up.set()
        await asyncio.to_thread(down.wait)
        server.close()
        for one in links:
            one.abort("the test is over")
            await one.wait_closed()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert up.wait(DEADLINE_S)
    try:
        yield f"unix:{socket}"
    finally:
        down.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@contextmanager
def fake_commands(
    folder: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Said]]:
    """Runs commands against such a daemon."""
    with fake_daemon(folder, answer) as address:
        monkeypatch.setenv("AUTOSCHED_HOST", address)

        def say(*words: str) -> Said:
            code = run(words)
            said = capsys.readouterr()
            return code, said.out, said.err

        yield say
