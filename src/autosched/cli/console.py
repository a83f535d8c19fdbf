"""`autosched console`: the daemon's console in this terminal, without nc, and over TLS."""

import asyncio
import contextlib
import os
import ssl
import sys
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import click

from autosched.api import daemon_address
from autosched.cli.output import say
from autosched.errors import DaemonUnreachable, Refused, RequestError
from autosched.text.visible import visible
from autosched.wire import address, keys, unix_sockets
from autosched.wire.address import TLS, UNIX

CONNECT_S = 5.0
CHUNK_BYTES = 4_096
GOODBYE = b"\nquit\n"


@click.command()
@click.argument("where", metavar="[ADDRESS]", required=False)
@click.option(
    "--certificate", type=click.Path(dir_okay=False, path_type=Path),
    help="A copy of the daemon's certificate; needed for tls://.",
)  # fmt: skip
@click.pass_obj
def console(host: str | None, where: str | None, certificate: Path | None) -> None:
    """Type commands to the daemon itself: `help` lists them, `quit` leaves.

    ADDRESS is a socket, HOST:PORT or tls://HOST:PORT, as in daemon.json in the state folder; by default the socket of
    this user's daemon, or of this machine's. Over TLS, your key is sent for you.
    """
    there = daemon_address.named(where) if where else f"{UNIX}{_usual(daemon_address.named(host))}"
    assert there is not None
    greeting = b""
    if there.startswith(TLS):
        if certificate is None:
            raise Refused(
                f"nothing tells whose certificate is shown at {there}, and your key is to go there: copy the daemon's"
                " (daemon.tls_certificate in its settings), and name it: --certificate FILE"
            )
        if (key := keys.for_address(there)) is not None:
            greeting = f"auth {key.id} {key.secret.hex()}\n".encode()
    asyncio.run(_relay(there, _trusting(certificate) if there.startswith(TLS) else None, greeting))


def _usual(daemon: str | None) -> Path:
    """The console's socket: beside that of the chosen daemon, of this user's, or of this machine's."""
    daemon = daemon or daemon_address.default()
    if not daemon.startswith(UNIX):
        raise RequestError(f"{daemon} has its console elsewhere: autosched console tls://HOST:PORT --certificate FILE")
    return Path(daemon.removeprefix(UNIX)).with_name("console.sock")


def _trusting(certificate: Path | None) -> ssl.SSLContext:
    """TLS settings that accept one certificate only, with any name. Raises RequestError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    try:
        context.load_verify_locations(cafile=certificate)
    except (OSError, ssl.SSLError) as error:
        raise RequestError(f"{certificate} is no certificate that can be read ({error}); name the daemon's") from None
    return context


async def _relay(there: str, tls: ssl.SSLContext | None, greeting: bytes) -> None:
    """Relay input and answers until one side ends the connection."""
    try:
        async with asyncio.timeout(CONNECT_S):
            if there.startswith(UNIX):
                with unix_sockets.short(there.removeprefix(UNIX)) as name:
                    reader, writer = await asyncio.open_unix_connection(name)
            else:
                reader, writer = await asyncio.open_connection(*address.tcp(there), ssl=tls)
    except (OSError, TimeoutError) as error:
        why = getattr(error, "strerror", None) or str(error) or f"no answer in {CONNECT_S:g} s"
        raise DaemonUnreachable(
            f"no console answers at {there} ({why}); daemon.json in the daemon's state folder says where it is"
        ) from None
    writer.write(greeting)
    threading.Thread(target=_type, args=(asyncio.get_running_loop(), writer), daemon=True).start()
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(CHUNK_BYTES):
            sys.stdout.write(visible(chunk.decode(errors="replace")))
            sys.stdout.flush()
    writer.close()
    if sys.stdin.isatty():
        say("The console has closed.")


def _type(loop: asyncio.AbstractEventLoop, writer: asyncio.StreamWriter) -> None:
    """Copy input to the connection, in a thread, since files cannot be awaited; without Python's buffer, whose lock a
    daemon thread must not keep."""

    async def send(chunk: bytes) -> None:
        writer.write(chunk)
        await writer.drain()

    with contextlib.suppress(OSError, RuntimeError, CancelledError):  # the other side has closed the connection
        while chunk := os.read(sys.stdin.fileno(), CHUNK_BYTES):
            asyncio.run_coroutine_threadsafe(send(chunk), loop).result()
        asyncio.run_coroutine_threadsafe(send(GOODBYE), loop)
