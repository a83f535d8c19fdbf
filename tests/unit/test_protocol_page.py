"""docs/protocol.md matches protocol/, and the messages in tests/wire have the right bytes."""

import json
from pathlib import Path
from typing import Any

import msgpack
import msgspec
import pytest

import protocol_page
from autosched import model, protocol
from autosched.errors import WireError
from autosched.protocol import CLIENT_METHODS, DAEMON_METHODS, FRAME_BYTES, HELLO, USER_METHODS
from autosched.wire.frames import HEAD_BYTES, Answer, Call, Closing, Notice, Peer, Rejected, result_of

WIRE = Path(__file__).parents[1] / "wire"
VECTORS = sorted(WIRE.glob("*.json"))
SERVED = {"peer": {**HELLO, **USER_METHODS, **CLIENT_METHODS}, "daemon": DAEMON_METHODS}


def test_the_page_lists_every_method_as_it_is() -> None:
    """To write it anew: python tests/protocol_page.py."""
    assert protocol_page.PAGE.read_text() == protocol_page.page()


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    text = protocol_page.PAGE.read_text().split(protocol_page.BEGIN)[0]
    for number in (protocol.FRAME_BYTES_BEFORE_HELLO, FRAME_BYTES, protocol.CHUNK_BYTES, HEAD_BYTES):
        assert f"{number:,}" in text
    for method in {**HELLO, **USER_METHODS, **CLIENT_METHODS}.values():
        assert method.bytes_max == FRAME_BYTES or f"{method.bytes_max:,}" in text
    for seconds in (protocol.HEARTBEAT_S, protocol.SILENCE_S):
        assert f"{seconds:g} s" in text
    assert f"`protocol` is {list(protocol.PROTOCOL)}" in text


def read(path: Path) -> dict[str, Any]:
    def bytes_of(value: dict[str, Any]) -> Any:
        return bytes.fromhex(value["$bytes"]) if value.keys() == {"$bytes"} else value

    found: dict[str, Any] = json.loads(path.read_text(), object_hook=bytes_of)
    return found


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_a_vector_is_read_as_it_says(path: Path) -> None:
    vector = read(path)
    frame = bytes.fromhex(vector["frame"])
    peer = Peer(SERVED[vector["from"]], FRAME_BYTES)
    if vector.get("refused") == "connection":
        with pytest.raises(WireError):
            peer.receive(frame)
        return
    assert msgpack.unpackb(frame[4:]) == vector["message"]
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    for _ in range(9):
        peer.request(protocol.Info())  # so that answers with these ids are expected
    (message,) = peer.receive(frame)
    match message:
        case Rejected():
            assert vector["refused"] == "request"
        case Call(method=method) | Notice(method=method):
            name, params = vector["message"][-2:]
            assert protocol.wire_name(type(method)) == name
            back = msgspec.msgpack.decode(msgspec.msgpack.encode(method))
            assert covers(back, params)
        case Answer(error=None):
            kind = getattr(protocol, vector["result"], None) or getattr(model, vector["result"])
            assert covers(
                msgspec.msgpack.decode(msgspec.msgpack.encode(result_of(message, kind))), vector["message"][3]
            )
        case Answer(error=error):
            assert list(error or ()) == vector["message"][2]
        case Closing(reason=reason):
            assert reason == vector["message"][2][1]


def covers(whole: Any, part: Any) -> bool:
    """Returns whether the whole, which has defaults too, contains all of the part."""
    if isinstance(part, dict):
        return all(key in whole and covers(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(covers, whole, part))
    return bool(whole == part)


def test_there_are_vectors_of_both_directions_and_of_what_is_refused() -> None:
    vectors = [read(path) for path in VECTORS]
    assert {vector["from"] for vector in vectors} == {"peer", "daemon"}
    assert {vector.get("refused") for vector in vectors} == {None, "request", "connection"}
