"""The wire format against an independent implementation, hostile bytes, and its own limits."""

import contextlib
import struct
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched import protocol
from autosched.errors import Busy, NotFound, WireError
from autosched.model import JobLoad, JobSpec, Outcome, Record
from autosched.protocol import (
    CHUNK_BYTES,
    CLIENT_METHODS,
    FRAME_BYTES,
    FRAME_BYTES_BEFORE_HELLO,
    HELLO,
    USER_METHODS,
    AddRecord,
    Done,
    EndStep,
    GetJob,
    Heartbeat,
    Hello,
    Info,
    PutBlob,
    Submit,
    Submitted,
    Welcome,
)
from autosched.wire.frames import Answer, Call, Closing, Notice, Peer, Rejected, error_of, result_of


def frame(message: object) -> bytes:
    body = message if isinstance(message, bytes) else msgpack.packb(message)
    return struct.pack(">I", len(body)) + body


def peer() -> Peer:
    return Peer(USER_METHODS, FRAME_BYTES)


HELLO_MAP = {"protocol": [1, 0], "software": "x", "role": "user"}


# Format -----------------------------------------------------------------------------------------------------------


def test_a_request_is_messagepack_rpc_behind_a_length() -> None:
    id, sent = peer().request(GetJob(job=7, since=3, wait_s=1.5))
    length, body = sent[:4], sent[4:]
    assert int.from_bytes(length, "big") == len(body)
    assert msgpack.unpackb(body) == [0, id, "get_job", {"job": 7, "since": 3, "wait_s": 1.5}]


def test_a_notification_carries_no_id() -> None:
    assert msgpack.unpackb(peer().notify(Heartbeat())[4:]) == [2, "heartbeat", {}]


def test_an_answer_has_a_result_or_a_code_and_a_message() -> None:
    result = {"job": 2, "token": "", "forecast": None}
    assert msgpack.unpackb(peer().respond(5, Submitted(job=2))[4:]) == [1, 5, None, result]
    assert msgpack.unpackb(peer().fail(5, NotFound("no job 9"))[4:]) == [1, 5, ["not_found", "no job 9"], None]


def test_when_to_try_again_stands_where_older_peers_do_not_look() -> None:
    user, daemon = peer(), peer()
    id, _ = user.request(Info())
    sent = daemon.fail(id, Busy("too much", 1.5))
    assert msgpack.unpackb(sent[4:]) == [1, id, ["busy", "too much"], {"retry_after_s": 1.5}]
    (answer,) = user.receive(sent)
    assert isinstance(answer, Answer)
    error = error_of(answer)
    assert (type(error), str(error), error.retry_after_s) == (Busy, "too much", 1.5)
    (plain,) = user.receive(daemon.fail(id, NotFound("no job")))
    assert isinstance(plain, Answer)
    assert error_of(plain).retry_after_s is None


def test_another_implementation_is_understood() -> None:
    (message,) = peer().receive(frame([0, 1, "get_job", {"job": 4}]))
    assert message == Call(1, GetJob(job=4))


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_message_may_arrive_in_any_pieces(cut: int) -> None:
    _, sent = peer().request(GetJob(job=7, since=3))
    here = peer()
    messages = [*here.receive(sent[:cut]), *here.receive(sent[cut:] + sent)]
    assert messages == [Call(1, GetJob(job=7, since=3))] * 2
    assert here.pending_bytes == 0


def test_what_one_end_asks_the_other_end_answers() -> None:
    user, daemon = Peer({}, FRAME_BYTES), peer()
    id, asked = user.request(Submit(spec=JobSpec(name="net", model="0" * 64)))
    (call,) = daemon.receive(asked)
    assert isinstance(call, Call)
    (answer,) = user.receive(daemon.respond(call.id, Submitted(job=3)))
    assert isinstance(answer, Answer)
    assert (answer.id, result_of(answer, Submitted)) == (id, Submitted(job=3))


def test_every_method_crosses_the_wire_under_its_own_name() -> None:
    tables = (protocol.USER_METHODS, protocol.CLIENT_METHODS, protocol.DAEMON_METHODS, protocol.HELLO)
    for name, kind in {name: kind for table in tables for name, kind in table.items()}.items():
        assert protocol.wire_name(kind) == name
        assert issubclass(kind.result, msgspec.Struct)


# What is refused, and how --------------------------------------------------------------------------------------------


def test_an_unknown_method_is_refused_and_the_known_ones_are_named() -> None:
    (message,) = Peer(HELLO).receive(frame([0, 9, "get_job", {"job": 1}]))
    assert isinstance(message, Rejected)
    assert message.id == 9
    assert "no method is named 'get_job' here; there are: hello" in str(message.error)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({}, "missing required field `job`"),
        ({"job": "one"}, "job: expected a whole number, got text"),
        ({"job": 1, "wait_s": float("nan")}, "wait_s"),
        ({"job": 1, "wait_s": 1e9}, "wait_s"),
        ({"job": 1, "colour": "red"}, "unknown field `colour`"),
        ([1], "Expected a map, got a list"),
        (msgpack.ExtType(5, b"x"), "Expected a map, got an extension type"),
    ],
)
def test_wrong_parameters_are_refused_and_the_connection_lives(params: object, why: str) -> None:
    here = peer()
    (message,) = here.receive(frame([0, 9, "get_job", params]))
    assert isinstance(message, Rejected)
    assert why in str(message.error)
    assert here.receive(frame([0, 10, "info", {}])) == [Call(10, Info())]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",  # never used by MessagePack
        b"\x91" * 100_000,  # nested deeply
        b"\xdf\xff\xff\xff\xff",  # a map of 2**32 - 1 entries
        b"\xdd\xff\xff\xff\xff",  # an array of as many
        b"\x94\x00\x01\xa4\xff\xfe\xfd\xfc\x80",  # bad UTF-8 in the method's name
        msgpack.packb({"method": "info"}),
        msgpack.packb([3, 1, "info", {}]),
        msgpack.packb([0, "one", "info", {}]),
        msgpack.packb([0, 1, "info"]),
        msgpack.packb([0, 1, "info", {}, 5]),
        msgpack.packb([2, "no_such_notification", {}]),
        msgpack.packb([2, "get_job", {"job": "x"}]),
        msgpack.packb([1, 77, None, {}]),  # an answer without a request
        msgpack.packb([1, -1, None, {}]),
        msgpack.packb(msgpack.ExtType(1, b"x" * 50)),
    ],
)
def test_a_broken_message_breaks_the_connection(body: bytes) -> None:
    with pytest.raises(WireError):
        peer().receive(frame(body))


def test_deep_nesting_inside_parameters_is_refused_with_words() -> None:
    body = msgpack.packb([0, 1, "get_job", 0])[:-1] + b"\x91" * 10_000 + b"\xc0"
    (message,) = peer().receive(frame(body))
    assert isinstance(message, Rejected)
    assert "Expected a map, got a list" in str(message.error)


def test_bytes_behind_the_parameters_are_refused() -> None:
    (message,) = peer().receive(frame(msgpack.packb([0, 1, "info", {}]) + b"\x00"))
    assert isinstance(message, Rejected)
    assert "trailing characters" in str(message.error)


def test_a_long_frame_is_refused_by_its_header_alone() -> None:
    here = Peer(HELLO)
    with pytest.raises(WireError, match="at most 4096 are allowed"):
        here.receive(struct.pack(">I", FRAME_BYTES_BEFORE_HELLO + 1))
    assert here.pending_bytes <= 4


def test_the_limit_is_wider_after_hello() -> None:
    big = frame([0, 1, "hello", {**HELLO_MAP, "software": "x" * 5_000}])
    here = Peer(HELLO)
    with pytest.raises(WireError):
        here.receive(big)
    here = Peer(HELLO)
    here.frame_bytes = FRAME_BYTES
    (message,) = here.receive(big)
    assert isinstance(message, Rejected), "read, and refused for its content"


def test_what_is_served_may_change_between_two_messages() -> None:
    here = Peer(HELLO, FRAME_BYTES)
    here.feed(frame([0, 1, "hello", HELLO_MAP]) + frame([0, 2, "info", {}]))
    assert here.next() == Call(1, Hello(protocol=(1, 0), software="x", role="user"))
    here.serves = USER_METHODS
    assert here.next() == Call(2, Info())
    assert here.next() is None


def test_a_late_answer_is_an_answer_and_no_crime() -> None:
    here = peer()
    id, _ = here.request(Info())
    here.request(Info())
    (message,) = here.receive(frame([1, id, None, {}]))
    assert isinstance(message, Answer)


def test_a_closing_word_says_why() -> None:
    theirs, ours = peer(), peer()
    assert ours.receive(theirs.closing(WireError("too long"))) == [Closing("too long")]


def test_an_answer_of_the_wrong_type_is_a_broken_wire() -> None:
    here = peer()
    id, _ = here.request(Info())
    (answer,) = here.receive(frame([1, id, None, {"protocol": "x"}]))
    assert isinstance(answer, Answer)
    with pytest.raises(WireError, match="not a Welcome"):
        result_of(answer, Welcome)


def test_nothing_longer_than_a_frame_is_sent() -> None:
    with pytest.raises(WireError, match="does not fit"):
        peer().respond(1, Submitted(job=1, token="x" * FRAME_BYTES))
    assert len(peer().fail(1, NotFound("x" * 1_000_000))) < 3_000


def test_lists_are_limited_before_they_are_decoded() -> None:
    load = {"tasks": [{"task": 1}] * 5_000}
    (message,) = Peer(CLIENT_METHODS, FRAME_BYTES).receive(
        frame([0, 1, "end_step", {"step": 1, "outcome": "done", "load": load}])
    )
    assert isinstance(message, Rejected)
    assert "length <= 4097" in str(message.error)


# Long frames ---------------------------------------------------------------------------------------------------------

LONG = PutBlob(sha256="0" * 64, total=2**20, offset=0, data=b"x" * CHUNK_BYTES)
SMALL_VALUES = b"\xdd\x00\x03\xd0\x90" + b"\x80" * 250_000
"""An array of empty maps."""


@pytest.mark.parametrize("id", [1, 0xD9, 0xA4, 0xFFFF, 2**32 - 1, 2**40])
def test_a_long_request_is_read_like_a_short_one(id: int) -> None:
    params = msgspec.to_builtins(LONG, builtin_types=[bytes])
    assert peer().receive(frame([0, id, "put_blob", params])) == [Call(id, LONG)]


def test_a_long_notification_is_read_like_a_short_one() -> None:
    told = AddRecord(record=Record(task=1, number=0, candidate=b"x" * 100_000))
    assert Peer(CLIENT_METHODS, FRAME_BYTES).receive(peer().notify(told)) == [Notice(told)]


def test_a_method_may_have_a_long_name() -> None:
    name = "no_such_method_in_the_whole_wide_world"
    (message,) = peer().receive(frame([0, 1, name, {"data": b"x" * 20_000}]))
    assert isinstance(message, Rejected)
    assert f"no method is named '{name}' here" in str(message.error)


def test_a_long_answer_is_read_when_its_type_is_known() -> None:
    here = peer()
    id, _ = here.request(Info())
    long = Submitted(job=1, token="x" * 100_000)
    (message,) = here.receive(peer().respond(id, long))
    assert isinstance(message, Answer)
    assert result_of(message, Submitted) == long
    (message,) = here.receive(frame(b"\x94\x01\x01\xc0" + SMALL_VALUES))
    assert isinstance(message, Answer)
    with pytest.raises(WireError, match="not a Submitted"):
        result_of(message, Submitted)


def test_a_long_answer_to_no_question_breaks_the_connection() -> None:
    with pytest.raises(WireError, match="an answer carries the id 7"):
        peer().receive(peer().respond(7, Submitted(job=1, token="x" * 100_000)))


@pytest.mark.parametrize(
    "begins",
    [b"", b"\x94\x00", b"\x94\x01\x01\x93\xa1a\xa1b\xa1c", b"\x94\x03\x01\xa4info", b"\x94\x00\x01\xda\x7f\xff"],
)
def test_what_is_long_and_does_not_begin_as_a_message_breaks_the_connection(begins: bytes) -> None:
    with pytest.raises(WireError, match="is not a message of this protocol"):
        peer().receive(frame(begins + SMALL_VALUES))


def test_values_that_no_method_wants_are_not_stepped_over() -> None:
    (message,) = peer().receive(frame(b"\x94\x00\x01\xa8put_blob\x81\xa4data" + SMALL_VALUES[:-1]))
    assert isinstance(message, Rejected)
    assert "data: expected bytes, got a list" in str(message.error), "and not that the last one is missing"


def test_each_method_has_a_limit_of_its_own() -> None:
    (message,) = peer().receive(frame([0, 1, "get_job", {"job": 1, "why": "x" * 40_000}]))
    assert isinstance(message, Rejected)
    assert "at most 32768 are allowed" in str(message.error)


def test_a_rejected_request_keeps_no_objects_alive() -> None:
    (message,) = peer().receive(frame([0, 1, "get_job", {}]))
    assert isinstance(message, Rejected)
    assert message.error.__traceback__ is message.error.__context__ is None


# Anything at all -----------------------------------------------------------------------------------------------------

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=12,
)
methods = st.sampled_from([*sorted({**USER_METHODS, **CLIENT_METHODS}), "", "no_such"])
params = st.dictionaries(st.sampled_from(["job", "spec", "step", "load", "record", "wait_s"]), values, max_size=4)
messages = st.one_of(
    st.tuples(st.integers(0, 3), values, methods, values),
    st.tuples(st.just(0), st.integers(0, 2**40), methods, params),
    st.tuples(st.just(2), methods, values),
    values,
)
TYPES = (Call, Rejected, Notice, Answer, Closing)


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_random_bytes_give_messages_or_a_wire_error(pieces: list[bytes]) -> None:
    here = Peer({**USER_METHODS, **CLIENT_METHODS}, FRAME_BYTES_BEFORE_HELLO)
    try:
        for piece in pieces:
            assert all(isinstance(message, TYPES) for message in here.receive(piece))
            assert here.pending_bytes <= FRAME_BYTES_BEFORE_HELLO + 4
    except WireError:
        pass


@given(st.lists(messages, min_size=1, max_size=4), st.integers(1, 50))
def test_any_message_gives_messages_or_a_wire_error(sent: list[Any], cut: int) -> None:
    here = Peer({**USER_METHODS, **CLIENT_METHODS}, FRAME_BYTES)
    here.request(Info())
    data = b"".join(frame(message) for message in sent)
    try:
        for start in range(0, len(data), cut):
            assert all(isinstance(message, TYPES) for message in here.receive(data[start : start + cut]))
    except WireError:
        pass


@given(st.data())
def test_a_flipped_bit_gives_messages_or_a_wire_error(data: st.DataObject) -> None:
    load = JobLoad(complete=True)
    _, sent = peer().request(EndStep(step=5, outcome=Outcome.DONE, load=load, error="é"))
    bits = bytearray(sent)
    place = data.draw(st.integers(0, len(bits) * 8 - 1))
    bits[place // 8] ^= 1 << place % 8
    with contextlib.suppress(WireError):
        assert all(isinstance(m, TYPES) for m in Peer(CLIENT_METHODS, FRAME_BYTES).receive(bytes(bits)))


def test_a_message_may_hold_what_is_no_text() -> None:
    """File names need not be UTF-8; Python then uses lone surrogates."""
    error = NotFound("no file \udcff")
    assert msgpack.unpackb(peer().fail(1, error)[4:])[2] == ["not_found", "no file ?"]


def test_done_has_nothing_to_tell() -> None:
    assert msgpack.unpackb(peer().respond(1, Done())[4:]) == [1, 1, None, {}]
