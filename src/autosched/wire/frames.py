"""Converts bytes to messages and back, without any I/O.

A frame is a 4-byte big-endian length and one MessagePack-RPC message: a request ``[0, id, method, params]``, an answer
``[1, id, error, result]`` (error is nil or ``[code, message]``, and result then nil or Details), or a notification
``[2, method, params]``. Params are the fields of a method of protocol/ as a map. Both ends may send requests. Ids count
from 1; an answer with the id 0 says why the connection is about to be closed.

Limits are checked before anything is decoded: a frame that announces more bytes than allowed is refused by its header.
msgpack decodes the head of a message (its kind, id, and method or error) within separate limits; msgspec decodes the
rest, which must match the method.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgpack
import msgspec
from msgspec import Raw, Struct

from autosched.errors import AutoschedError, WireError, from_wire, misfit
from autosched.protocol import FRAME_BYTES, FRAME_BYTES_BEFORE_HELLO, Method, wire_name

HEADER_BYTES = 4
CLOSING_ID = 0
MESSAGE_CHARS_MAX = 2_000  # of an error message

T = TypeVar("T", bound=Struct)
Methods = Mapping[str, type[Method]]

UNDECODABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
UNPACKABLE = (msgpack.UnpackException, ValueError)
"""Errors of msgpack while decoding a head."""


class Call(Struct, frozen=True):
    """A request of the peer, which waits for `respond` or `fail` with this id."""

    id: int
    method: Method


class Rejected(Struct, frozen=True):
    """A request of the peer that is unknown or invalid; answer it with `fail(id, error)`."""

    id: int
    error: AutoschedError


class Notice(Struct, frozen=True):
    """A notification of the peer, which expects no answer."""

    method: Method


class Answer(Struct, frozen=True):
    """An answer of the peer to a request: a `result`, to be decoded by `result_of`, or an error."""

    id: int
    error: tuple[str, str] | None
    result: Raw


class Closing(Struct, frozen=True):
    """The peer closes the connection because of a message of ours."""

    reason: str


class Details(Struct, frozen=True, omit_defaults=True):
    """Fields of an error beyond its message; sent in place of the result, which older peers ignore."""

    retry_after_s: float | None = None


Message = Call | Rejected | Notice | Answer | Closing


HEAD_BYTES = 16 * 1024
"""Maximum bytes of a message without its parameters or its result."""
_HEAD_LIMITS = {
    "max_buffer_size": HEAD_BYTES, "max_str_len": 4 * MESSAGE_CHARS_MAX, "max_bin_len": 0, "max_array_len": 2,
    "max_map_len": 0, "max_ext_len": 0,
}  # fmt: skip
ASKS, ANSWERS, TELLS = 0, 1, 2
_LENGTHS = {ASKS: 4, ANSWERS: 4, TELLS: 3}
"""Number of elements of each kind of message."""
_ENCODER = msgspec.msgpack.Encoder()
_NIL = Raw(b"\xc0")


class Peer:
    """One end of a connection: decodes received bytes, and encodes messages to send."""

    def __init__(self, serves: Methods, frame_bytes: int = FRAME_BYTES_BEFORE_HELLO) -> None:
        self.serves = serves
        """Methods that the peer may call; looked up for each message, so the table may change at any time."""
        self.frame_bytes = frame_bytes
        """Maximum bytes of a frame, without its header."""
        self._pending = bytearray()
        self._last_id = 0

    # In ---------------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Message]:
        """All messages that are complete with `data`. Raises WireError; the caller then sends `closing(error)` and
        closes."""
        self.feed(data)
        messages = []
        while (message := self.next()) is not None:
            messages.append(message)
        return messages

    def feed(self, data: bytes | memoryview) -> None:
        """Buffer received bytes until `next` decodes them."""
        self._pending += data

    @property
    def pending_bytes(self) -> int:
        """Number of buffered bytes."""
        return len(self._pending)

    def next(self) -> Message | None:
        """The next complete message; None until more bytes arrive. Raises WireError."""
        pending = self._pending
        if len(pending) < HEADER_BYTES:
            return None
        length = int.from_bytes(pending[:HEADER_BYTES], "big")
        if length > self.frame_bytes:
            raise WireError(f"a frame of {length} bytes was announced; at most {self.frame_bytes} are allowed here")
        end = HEADER_BYTES + length
        if len(pending) < end:
            return None
        frame = bytes(pending[HEADER_BYTES:end])
        del pending[:end]
        return self._decode(frame)

    def _decode(self, frame: bytes) -> Message:
        try:
            kind, id, middle, begins_at = _head(frame)
        except UNPACKABLE as error:
            raise WireError(f"a frame is not a message of this protocol: {_say(error)}") from None
        rest = Raw(memoryview(frame)[begins_at:])
        if not isinstance(middle, str):
            return self._answer(id, middle, rest)
        return self._call(id, middle, rest) if kind == ASKS else Notice(self._read(middle, rest))

    def _call(self, id: int, name: str, params: Raw) -> Call | Rejected:
        try:
            return Call(id, self._read(name, params))
        except WireError as error:  # a new exception: the traceback of this one would keep its callers alive
            return Rejected(id, WireError(str(error)))

    def _read(self, name: str, params: Raw) -> Method:
        kind = self.serves.get(name)
        if kind is None:
            raise WireError(f"no method is named {name[:100]!r} here; there are: {', '.join(self.serves)}")
        if len(memoryview(params)) > kind.bytes_max:
            raise WireError(
                f"{name} with {len(memoryview(params))} bytes of parameters; at most {kind.bytes_max} are allowed"
            )
        try:
            return msgspec.msgpack.decode(params, type=kind)
        except UNDECODABLE as error:
            raise WireError(f"the parameters of {name} are not valid: {_say(error)}") from None

    def _answer(self, id: int, error: tuple[str, str] | None, result: Raw) -> Answer | Closing:
        if id == CLOSING_ID and error is not None:
            return Closing(error[1])
        if not 0 < id <= self._last_id:
            raise WireError(f"an answer carries the id {id}; the last request had {self._last_id}")
        return Answer(id, error, result)

    # Out --------------------------------------------------------------------------------------------------------------

    def request(self, method: Method) -> tuple[int, bytes]:
        """Encode a request; returns the id of its answer and the frame."""
        self._last_id += 1
        return self._last_id, _frame((0, self._last_id, wire_name(type(method)), method))

    def notify(self, method: Method) -> bytes:
        """Encode a notification."""
        return _frame((2, wire_name(type(method)), method))

    def respond(self, id: int, result: Struct) -> bytes:
        """Encode the answer to a request. Raises WireError if it does not fit a frame; the caller then uses `fail`."""
        return _frame((1, id, None, result))

    def fail(self, id: int, error: AutoschedError) -> bytes:
        """Encode the error that answers a request."""
        message = str(error)[:MESSAGE_CHARS_MAX].encode(errors="replace").decode()
        details = _NIL if error.retry_after_s is None else Details(error.retry_after_s)
        return _frame((1, id, (error.code, message), details))

    def closing(self, error: WireError) -> bytes:
        """Encode the last frame to a peer that broke the protocol."""
        return self.fail(CLOSING_ID, error)


def result_of(answer: Answer, kind: type[T]) -> T:
    """The typed result of an answer. Raises the error that it carries, or WireError."""
    if answer.error is not None:
        raise error_of(answer)
    return _result(answer, kind)


def _result(answer: Answer, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(answer.result, type=kind)
    except UNDECODABLE as error:
        raise WireError(f"an answer is not a {kind.__name__}: {_say(error)}") from None


def error_of(answer: Answer) -> AutoschedError:
    """The exception that an answer carries."""
    assert answer.error is not None
    error = from_wire(*answer.error)
    if answer.result != _NIL:
        error.retry_after_s = _result(answer, Details).retry_after_s
    return error


def _head(frame: bytes) -> tuple[int, int, str | tuple[str, str] | None, int]:
    """Kind, id (0 for a notification), and name or error of a message; and the position of its parameters or result.

    Raises one of UNPACKABLE. Nothing behind the head is decoded.
    """
    reader = msgpack.Unpacker(None, **_HEAD_LIMITS)
    reader.feed(memoryview(frame)[:HEAD_BYTES])
    length, kind = reader.read_array_header(), reader.unpack()
    if type(kind) is not int or _LENGTHS.get(kind) != length:
        raise ValueError(f"an array of {length} elements that begins with {kind!r:.50}")
    id = 0 if kind == TELLS else reader.unpack()
    middle = reader.unpack()
    if type(id) is not int:
        raise ValueError(f"the id is {id!r:.50}")
    if kind != ANSWERS:
        if type(middle) is not str:
            raise ValueError(f"the method is {middle!r:.50}")
    elif middle is not None:
        if type(middle) is not list or [type(part) for part in middle] != [str, str]:
            raise ValueError(f"the error is {middle!r:.50}")
        middle = middle[0], middle[1]
    return kind, id, middle, reader.tell()


def _frame(message: object) -> bytes:
    body = _ENCODER.encode(message)
    if len(body) > FRAME_BYTES:
        raise WireError(f"a message of {len(body)} bytes does not fit a frame of {FRAME_BYTES}; ask for less at once")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def _say(error: Exception) -> str:
    if isinstance(error, RecursionError | msgpack.StackError):
        return "it is nested too deeply"
    if isinstance(error, msgpack.OutOfData):
        return "its head is cut off, or too long"
    return misfit(error)[:500]
