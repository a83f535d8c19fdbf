"""The first bytes of a TVM RPC session, as a program and an RPC server exchange them (TVM 0.27, tvm/rpc/server.py).

A program sends MAGIC, a length and a key: "client:KEY -timeout=SECONDS". The server answers a code, a length and
"server:KEY". All numbers are 32 bits, little-endian. The daemon does not read the session that follows.
"""

import asyncio
import struct

from msgspec import Struct

MAGIC = 0xFF271
MISMATCH = MAGIC + 2
"""The server's code for an unexpected key."""
KEY_BYTES_MAX = 1_024
CLIENT = "client:"
TIMEOUT = "-timeout="
_INT = struct.Struct("<i")
_TWO = struct.Struct("<ii")


class BadHandshake(Exception):
    """The peer speaks another protocol, or refuses."""


class Hello(Struct, frozen=True):
    """A program's request for a session with a server."""

    key: str
    timeout_s: float | None = None
    """Time limit of the session in seconds; None: no limit."""

    def encoded(self) -> bytes:
        """The message as bytes."""
        words = f"{CLIENT}{self.key}"
        if self.timeout_s is not None:
            words += f" {TIMEOUT}{self.timeout_s:.3f}"
        key = words.encode()
        return _TWO.pack(MAGIC, len(key)) + key


async def read_magic(reader: asyncio.StreamReader) -> int:
    """The first number that a peer sends. Raises IncompleteReadError when it hangs up."""
    magic: int = _INT.unpack(await reader.readexactly(_INT.size))[0]
    return magic


async def read_hello(reader: asyncio.StreamReader) -> Hello:
    """The hello of a program. Raises BadHandshake, and IncompleteReadError when it hangs up."""
    if (magic := await read_magic(reader)) != MAGIC:
        raise BadHandshake(f"it does not begin with the magic number of TVM RPC: {magic:#x}")
    return await read_hello_key(reader)


async def read_hello_key(reader: asyncio.StreamReader) -> Hello:
    """The rest of the hello of a program, after MAGIC. Raises as `read_hello`."""
    words = (await _read_key(reader)).split()
    if not words or not words[0].startswith(CLIENT):
        raise BadHandshake(f"its key does not begin with {CLIENT!r}")
    own_s = [_seconds(word.removeprefix(TIMEOUT)) for word in words[1:] if word.startswith(TIMEOUT)]
    return Hello(words[0].removeprefix(CLIENT), own_s[-1] if own_s else None)


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """The answer of a server that accepts the session, as bytes. Raises BadHandshake, and IncompleteReadError."""
    head = await reader.readexactly(_INT.size)
    (code,) = _INT.unpack(head)
    if code == MISMATCH:
        raise BadHandshake("it waits for another key")
    if code != MAGIC:
        raise BadHandshake(f"it is no TVM RPC server: its first number is {code:#x}")
    key = (await _read_key(reader)).encode()
    return head + _INT.pack(len(key)) + key


def refusal() -> bytes:
    """The answer to a program whose session is refused."""
    return _INT.pack(MISMATCH)


async def _read_key(reader: asyncio.StreamReader) -> str:
    (length,) = _INT.unpack(await reader.readexactly(_INT.size))
    if not 0 <= length <= KEY_BYTES_MAX:
        raise BadHandshake(f"its key has {length} bytes: from 0 to {KEY_BYTES_MAX} are right")
    try:
        return (await reader.readexactly(length)).decode()
    except UnicodeDecodeError:
        raise BadHandshake("its key is no UTF-8 text") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise BadHandshake(f"its time limit is no number of seconds: {text[:50]!r}")
    return seconds
