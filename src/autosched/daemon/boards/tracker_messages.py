"""Messages of TVM's tracker and its peers (TVM 0.27, tvm/rpc/tracker.py).

Both sides begin with MAGIC. Then each message is a length and a JSON text; the first element of a request is its code.
"""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

MAGIC = 0x2F271
SUCCESS, FAIL = 0, -1
PING, STOP, PUT, REQUEST, UPDATE_INFO, SUMMARY, GET_PENDING_MATCHKEYS = range(1, 8)
MESSAGE_BYTES_MAX = 64 * 1024
"""Maximum size of a message. TVM accepts a mebibyte; its messages have about a hundred bytes."""
_INT = struct.Struct("<i")
Key = Annotated[str, Meta(pattern=r"^\S{1,100}$")]
Matchkey = Annotated[str, Meta(pattern=r"^\S{1,300}$")]
Address = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:\-]{1,253}$")]
Port = Annotated[int, Meta(ge=1, le=65_535)]


class BadMessage(Exception):
    """The peer speaks another protocol."""


class Info(Struct, frozen=True):
    """Registration of a server."""

    key: Annotated[str, Meta(max_length=200)]
    """ "server:KEY" """
    addr: tuple[Address | None, Port]
    """The address, if the server names one, and the port."""


class Put(Struct, frozen=True):
    """Sent by a server that waits for a session."""

    key: Key
    port: Port
    matchkey: Matchkey
    """Key of the next session."""
    host: Address | None = None
    """The address, if the server names one."""


class Request(Struct, frozen=True):
    """Sent by a program that requests a session with a server of a key. Higher priorities come first."""

    key: Key
    priority: int


class Update(Struct, frozen=True):
    """Sent by a server to describe itself."""

    info: Info


class Plain(Struct, frozen=True):
    """A request without parameters."""

    code: int


Message = Put | Request | Update | Plain
_PUT = msgspec.json.Decoder(tuple[int, Key, tuple[Port, Matchkey], Address | None])
_PUT_SHORT = msgspec.json.Decoder(tuple[int, Key, tuple[Port, Matchkey]])
_REQUEST = msgspec.json.Decoder(tuple[int, Key, str, int])
_UPDATE = msgspec.json.Decoder(tuple[int, Info])
_ANY = msgspec.json.Decoder(list[Any])


async def read_message(reader: asyncio.StreamReader) -> Message:
    """The next message. Raises BadMessage, and IncompleteReadError when the peer hangs up."""
    (length,) = _INT.unpack(await reader.readexactly(_INT.size))
    if not 0 < length <= MESSAGE_BYTES_MAX:
        raise BadMessage(f"a message of {length} bytes: from 1 to {MESSAGE_BYTES_MAX} are right")
    return decoded(await reader.readexactly(length))


def decoded(text: bytes) -> Message:
    """The message of a JSON text. Raises BadMessage."""
    try:
        words = _ANY.decode(text)
        code = words[0] if words else None
        if not isinstance(code, int) or isinstance(code, bool):
            raise BadMessage("a message that begins with no code")
        if code == PUT and len(words) == 3:
            _, key, (port, matchkey) = _PUT_SHORT.decode(text)
            return Put(key, port, matchkey)
        if code == PUT:
            _, key, (port, matchkey), host = _PUT.decode(text)
            return Put(key, port, matchkey, host)
        if code == REQUEST:
            _, key, _, priority = _REQUEST.decode(text)
            return Request(key, priority)
        if code == UPDATE_INFO:
            return Update(_UPDATE.decode(text)[1])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadMessage(f"a message that is not right: {error}") from None
    return Plain(code)


def encoded(value: object) -> bytes:
    """An answer in one piece, so that no acknowledgement is waited for between the length and the text."""
    text = msgspec.json.encode(value)
    return _INT.pack(len(text)) + text


def granted(host: str, port: int, matchkey: str) -> bytes:
    """The answer to a request: address and key of the session."""
    return encoded([SUCCESS, [host, port, matchkey]])


def refused(why: str) -> bytes:
    """The answer to a refused request. TVM shows the reason to its user."""
    return encoded([FAIL, why])


def summary(queues: Mapping[str, tuple[int, int]], servers: Sequence[tuple[str, str, int]]) -> bytes:
    """The answer to SUMMARY. `queues`: numbers of free boards and of waiting requests, by key; `servers`: key, host and
    port of each."""
    return encoded(
        [
            SUCCESS,
            {
                "queue_info": {key: {"free": free, "pending": pending} for key, (free, pending) in queues.items()},
                "server_info": [{"key": f"server:{key}", "addr": [host, port]} for key, host, port in servers],
            },
        ]
    )


def greeting() -> bytes:
    """The first bytes of both sides."""
    return _INT.pack(MAGIC)
