"""Both ends of a connection on a real socket, for tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from autosched.protocol import (
    USER_METHODS,
    Done,
    Hello,
    Method,
)
from autosched.wire.link import Link
from deadlines import DEADLINE_S

HI = Hello(protocol=(1, 0), software="test")


class Server:
    """Accepts connections and stores them."""

    def __init__(self, path: Path) -> None:
        self.address = f"unix:{path}"
        self.links: list[Link] = []
        self.arrived = asyncio.Event()

    def accepted(self, link: Link) -> None:
        self.links.append(link)
        self.arrived.set()


@asynccontextmanager
async def serving(path: Path, handler: Any, serves: Any = USER_METHODS, **words: Any) -> AsyncIterator[Server]:
    server = Server(path)
    loop = asyncio.get_running_loop()
    listener = await loop.create_unix_server(lambda: Link(serves, handler, opened=server.accepted, **words), str(path))
    try:
        yield server
    finally:
        listener.close()
        for link in server.links:
            link.abort("the test is over")
            await link.wait_closed()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(limited())


async def done(method: Method) -> Done:
    return Done()
