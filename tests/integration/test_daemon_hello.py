"""Connections to the daemon, and the limits of unauthenticated ones."""

import asyncio
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from autosched.api.connection import Daemon
from autosched.daemon.access import authenticator
from autosched.errors import AutoschedError, Busy, NotFound, Refused, RequestError
from autosched.protocol import (
    PROTOCOL,
    BlobState,
    Chunk,
    DaemonInfo,
    GetBlob,
    GetOrder,
    Hello,
    Info,
    JobOrder,
    PutBlob,
    Welcome,
)
from autosched.wire.link import Link
from integration.served import (
    run,
    serving,
    user,
)


async def opened(folder: Path) -> Link:
    return await Link.open(f"unix:{folder}/api.sock")


def test_another_protocol_and_unknown_roles_are_refused_with_the_reason(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            link = await opened(tmp_path)
            with pytest.raises(Refused, match=r"old 0\.1 speaks protocol 1\.12, this daemon .* speaks 2\.\d"):
                await link.call(Hello(protocol=(1, 12), software="old 0.1"), Welcome)
            with pytest.raises(RequestError, match="there are: user, client"):
                await link.call(Hello(protocol=PROTOCOL, software="x", role="king"), Welcome)
            with pytest.raises(AutoschedError, match="no method is named 'info' here; there are: hello"):
                await link.call(Info(), DaemonInfo)
            welcome = await link.call(Hello(protocol=(2, 99), software="x"), Welcome)
            assert welcome.protocol == PROTOCOL
            assert (await link.call(Info(), DaemonInfo)).pid == os.getpid()
            with pytest.raises(AutoschedError, match="no method is named 'get_order' here"):
                await link.call(GetOrder(), JobOrder)
            link.close()

    run(work)


def test_a_connection_without_hello_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            monkeypatch.setattr(authenticator, "HELLO_S", 0.05)
            link = await opened(tmp_path)
            assert "no hello within" in await link.wait_closed()

    run(work)


def test_more_connections_than_allowed_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, "[limits]\nconnections_max = 3\n"):
            daemons = [await Daemon.connect(f"unix:{tmp_path}/api.sock") for _ in range(3)]
            with pytest.raises(
                Busy, match=r"refuses: 3 connections of uid \d+ are open, which is limits\.connections_max"
            ):
                await Daemon.connect(f"unix:{tmp_path}/api.sock")
            assert (await daemons[0].info()).jobs_total == 0
            for daemon in daemons:
                daemon.close()

    run(work)


def test_the_socket_is_private(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            assert stat.S_IMODE(os.stat(tmp_path / "api.sock").st_mode) == 0o600

    run(work)


def test_hostile_bytes_of_one_connection_leave_others_unaffected(tmp_path: Path) -> None:
    hostile = [
        b"\xff" * 100_000,
        b"\x00\x00\x10\x01",
        b"\x00\x00\x0f\xff" + b"\x91" * 4_095,
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x0f\xff short",
        b"",
        os.urandom(5_000),
    ]

    async def work() -> None:
        async with serving(tmp_path):
            daemon = await Daemon.connect(f"unix:{tmp_path}/api.sock")
            for sent in hostile * 3:
                reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/api.sock")
                writer.write(sent)
                writer.write_eof()
                with suppress(ConnectionError):
                    await reader.read()
                writer.close()
                assert (await daemon.info()).jobs_total == 0
            daemon.close()

    run(work)


def test_an_interrupted_upload_continues(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            first = await user(tmp_path)
            put = PutBlob(sha256="1" * 64, total=100, offset=0, data=b"x" * 40)
            assert await first.link.call(put, BlobState) == BlobState(40, False)
            first.link.abort("cable cut")
            again = await user(tmp_path)
            ask = PutBlob(sha256="1" * 64, total=100, offset=0, data=b"")
            assert await again.link.call(ask, BlobState) == BlobState(40, False)
            with pytest.raises(NotFound):
                await again.link.call(GetBlob(sha256="1" * 64, offset=0), Chunk)
            again.close()

    run(work)
