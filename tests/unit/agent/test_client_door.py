"""The socket of an agent's machine for clients that run apart."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from autosched.agent import client_door
from autosched.agent.client_door import ClientDoor
from autosched.errors import ConfigError
from deadlines import DEADLINE_S


def run(folder: Path, story: Callable[[ClientDoor, Path], Awaitable[None]], *, daemon: str = "") -> None:
    """Runs a story with a door to a server that answers each byte string with its reverse."""

    attending: list[asyncio.Task[None]] = []

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attending.append(cast("asyncio.Task[None]", asyncio.current_task()))
        with suppress(ConnectionResetError):
            while piece := await reader.read(1_000):
                writer.write(piece[::-1])
        writer.close()
        with suppress(ConnectionResetError):
            await writer.wait_closed()

    async def work() -> None:
        server = await asyncio.start_server(attend, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        door = ClientDoor(folder, daemon or f"tcp://127.0.0.1:{port}")
        await door.open()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await story(door, folder / client_door.FOLDER / client_door.SOCKET)
        finally:
            await door.close()
            server.close()
            await asyncio.gather(*attending, return_exceptions=True)

    asyncio.run(work())


async def answer(path: Path, said: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(said)
        return await reader.read(1_000)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with suppress(ConnectionResetError):
            await writer.wait_closed()


def test_bytes_pass_in_both_directions_of_several_connections(tmp_path: Path) -> None:
    async def story(door: ClientDoor, path: Path) -> None:
        assert door.address == f"unix:{path}"
        heard = await asyncio.gather(*(answer(path, b"%d-x" % number) for number in range(3)))
        assert heard == [b"x-0", b"x-1", b"x-2"]
        modes.append(await asyncio.to_thread(lambda: path.stat().st_mode & 0o777))

    modes: list[int] = []
    run(tmp_path, story)
    assert modes == [0o600]


def test_a_client_is_hung_up_on_while_the_daemon_is_away(tmp_path: Path) -> None:
    async def story(door: ClientDoor, path: Path) -> None:
        assert await answer(path, b"x") == b""

    run(tmp_path, story, daemon="tcp://127.0.0.1:1")


def test_too_many_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_door, "CONNECTIONS_MAX", 1)

    async def story(door: ClientDoor, path: Path) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"ab")
        assert await reader.read(10) == b"ba"
        assert await answer(path, b"x") == b""
        writer.close()
        await writer.wait_closed()

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("daemon", "beginning"), [("tls://lab:1", "tls+unix:/"), ("tcp://lab:1", "unix:/"), ("unix:/run/api.sock", "")]
)
def test_its_address_tells_how_the_daemon_speaks(daemon: str, beginning: str, tmp_path: Path) -> None:
    address = ClientDoor(tmp_path, daemon).address
    assert address.startswith(beginning)
    assert bool(address) is bool(beginning)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / client_door.FOLDER).write_text("a file")
    with pytest.raises(ConfigError, match="choose another --state-dir"):
        asyncio.run(ClientDoor(tmp_path, "tls://lab:1").open())
