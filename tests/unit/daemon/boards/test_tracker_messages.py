"""Messages to a TVM tracker, as TVM writes them."""

import asyncio
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched.daemon.boards import tracker_messages as messages
from autosched.daemon.boards.tracker_messages import BadMessage, Info, Plain, Put, Request, Update


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[5, {"key": "server:cpu-a", "addr": [null, 19310]}]', Update(Info("server:cpu-a", (None, 19310)))),
        ('[5, {"key": "server:cpu-a", "addr": ["10.0.0.7", 1]}]', Update(Info("server:cpu-a", ("10.0.0.7", 1)))),
        ('[3, "cpu-a", [19310, "cpu-a:0.5"], null]', Put("cpu-a", 19310, "cpu-a:0.5")),
        ('[3, "cpu-a", [19310, "cpu-a:0.5"]]', Put("cpu-a", 19310, "cpu-a:0.5")),
        ('[3, "cpu-a", [19310, "cpu-a:0.5"], "board.lab"]', Put("cpu-a", 19310, "cpu-a:0.5", "board.lab")),
        ('[4, "cpu-a", "", 3]', Request("cpu-a", 3)),
        ("[7]", Plain(messages.GET_PENDING_MATCHKEYS)),
        ("[6]", Plain(messages.SUMMARY)),
        ('[2, "tracker:0.5"]', Plain(messages.STOP)),
        ("[1]", Plain(messages.PING)),
    ],
)
def test_messages_of_tvm_are_read(text: str, message: object) -> None:
    assert messages.decoded(text.encode()) == message


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "7", "[]", '["7"]', "[true]", "[null]", "[3]", '[3, "a"]', '[3, "a b", [1, "m"], null]',
        '[3, "a", [0, "m"], null]', '[3, "a", [1, "m m"], null]', '[3, "a", [1, "m"], "h h"]', '[3, "a", [1, "m"], 7]',
        '[4, "a", "", "high"]', '[4, "a"]', '[5, {"key": "a"}]', '[5, {"key": "a", "addr": [1, 2]}]', "[" * 5_000,
        '[3, "' + "a" * 101 + '", [1, "m"], null]', '[4, "", "", 1]', "[7", "\xff",
    ],
)  # fmt: skip
def test_malformed_messages_are_refused_with_the_reason(text: str) -> None:
    with pytest.raises(BadMessage, match=r"a message that"):
        messages.decoded(text.encode("latin-1"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(st.integers(-2, 9) | JSON, max_size=5))
def test_any_list_is_a_message_or_refused(words: list[Any]) -> None:
    try:
        found = messages.decoded(json.dumps(words).encode())
    except BadMessage:
        return
    assert isinstance(found, (Put, Request, Update, Plain))


@pytest.mark.parametrize("length", [0, -1, messages.MESSAGE_BYTES_MAX + 1, 2**31 - 1, -(2**31)])
def test_a_length_out_of_range_is_refused_before_bytes_are_stored(length: int) -> None:
    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(struct.pack("<i", length))
        await messages.read_message(reader)

    with pytest.raises(BadMessage, match="bytes"):
        asyncio.run(read())


def test_answers_are_those_of_tvm() -> None:
    def of(data: bytes) -> Any:
        (length,) = struct.unpack("<i", data[:4])
        assert length == len(data) - 4
        return json.loads(data[4:])

    assert of(messages.encoded(messages.SUCCESS)) == 0
    assert of(messages.granted("127.0.0.1", 9190, "k")) == [0, ["127.0.0.1", 9190, "k"]]
    assert of(messages.refused("no")) == [-1, "no"]
    assert of(messages.summary({"pi4": (1, 2)}, [("pi4", "10.0.0.7", 9090)])) == [
        0,
        {
            "queue_info": {"pi4": {"free": 1, "pending": 2}},
            "server_info": [{"key": "server:pi4", "addr": ["10.0.0.7", 9090]}],
        },
    ]
    assert messages.greeting() == b"\x71\xf2\x02\x00"
