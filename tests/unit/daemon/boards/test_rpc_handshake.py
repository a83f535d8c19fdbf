"""The first bytes of a TVM RPC session."""

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched.daemon.boards import rpc_handshake
from autosched.daemon.boards.rpc_handshake import KEY_BYTES_MAX, MAGIC, BadHandshake, Hello

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Zs", "Cc", "Zl", "Zp"]), min_size=1, max_size=60)


def hello_of(data: bytes) -> Hello:
    """Returns the result of reading these bytes from a peer that then disconnects."""

    async def read() -> Hello:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await rpc_handshake.read_hello(reader)

    return asyncio.run(read())


def framed(key: bytes) -> bytes:
    return struct.pack("<ii", MAGIC, len(key)) + key


@given(KEYS, st.none() | st.integers(1, 10**9))
def test_a_hello_is_read_as_it_was_written(key: str, milliseconds: int | None) -> None:
    hello = Hello(key, None if milliseconds is None else milliseconds / 1_000)
    assert hello_of(hello.encoded()) == hello


def test_the_bytes_are_those_of_tvm() -> None:
    words = b"client:pi4:0.5 -timeout=3.000"
    assert Hello("pi4:0.5", 3.0).encoded() == b"\x71\xf2\x0f\x00" + b"\x1d\x00\x00\x00" + words


def test_of_several_time_limits_the_last_one_counts_as_for_the_server() -> None:
    assert hello_of(framed(b"client:a -timeout=5 -other=1 -timeout=2.5")) == Hello("a", 2.5)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "magic number"),
        (framed(b"server:pi4"), "client:"),
        (framed(b"   "), "client:"),
        (framed(b"client:\xff\xfe"), "UTF-8"),
        (struct.pack("<ii", MAGIC, -1), "-1 bytes"),
        (struct.pack("<ii", MAGIC, KEY_BYTES_MAX + 1), f"{KEY_BYTES_MAX + 1} bytes"),
        *((framed(b"client:a -timeout=" + text), "seconds") for text in (b"", b"x", b"-1", b"0", b"nan", b"inf")),
    ],
)  # fmt: skip
def test_a_malformed_handshake_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(BadHandshake, match=said):
        hello_of(data)


@given(st.binary(max_size=100))
def test_other_bytes_raise_the_expected_error(data: bytes) -> None:
    with pytest.raises((BadHandshake, asyncio.IncompleteReadError)):
        hello_of(data)
