"""Frames for attacks on a daemon: recorded ones, drawn ones, bombs, and mutations of all of these."""

import json
import random
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from autosched.protocol import (
    CLIENT_METHODS,
    DAEMON_METHODS,
    HELLO,
    USER_METHODS,
)

METHODS = {**HELLO, **USER_METHODS, **CLIENT_METHODS, **DAEMON_METHODS}
WIRE = Path(__file__).parent / "wire"
EXTREMES = (0, 1, 127, 128, 255, 2**15, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def _values() -> st.SearchStrategy[Any]:
    leaves = (
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=30)
        | st.binary(max_size=60) | st.sampled_from(EXTREMES) | st.just("0" * 64)
        | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20))
    )  # fmt: skip
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5)
    )


def drawn(count: int, seed: int) -> list[Any]:
    """Returns values of each MessagePack kind, including some that decoders reject."""
    values: list[Any] = []

    @seeded(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_values())
    def collect(value: Any) -> None:
        with suppress(OverflowError, ValueError, UnicodeEncodeError):
            msgpack.packb(value)
            values.append(value)

    collect()
    return values


def recorded() -> list[bytes]:
    """Returns the bodies of the messages in tests/wire."""
    return [bytes.fromhex(json.loads(path.read_text())["frame"])[4:] for path in sorted(WIRE.glob("*.json"))]


def requests(bodies: list[bytes]) -> list[tuple[str, dict[str, Any]]]:
    """Returns names and parameters of readable requests and notifications, and one for each other method."""
    found = [(name, {}) for name in METHODS]
    for body in bodies:
        with suppress(ValueError, msgpack.UnpackException):
            message = msgpack.unpackb(body)
            match message:
                case [*_, str(name), dict(params)]:  # an answer has no name
                    found += [(name, params)] * 3
    return found


def bombs() -> list[bytes]:
    """Returns values that are expensive to decode."""
    shapes = {str(name): [1] * 99 for name in range(999)}
    info = b"\x94\x00\x01\xa4info"
    return [
        b"\x91" * 4_000,
        b"\x81\xa0" * 2_000,
        *(head + b"\xff\xff\xff\xff" for head in (b"\xdd", b"\xdf", b"\xc6", b"\xc9", b"\xdb")),
        info + b"\x81\xa1x" + b"\x91" * 100_000,
        info + b"\xdc\xff\xff" + b"\x80" * 65_535,
        info + b"\x81\xa1x\xdd\x00\x03\xd0\x90" + b"\x80" * 250_000,
        msgpack.packb([0, 1, "get_job", {"job": float("nan")}]),
        msgpack.packb([0, 1, "submit", {"spec": {"name": "n", "model": "0" * 64, "shapes": shapes}}]),
        msgpack.packb([0, 1, "tag_records", {"trials": [1] * 50_000, "reason": "x"}]),
    ]


class Mutator:
    """An endless sequence of frames from one seed: half with a changed structure, half with changed bytes."""

    def __init__(self, values: list[Any], seed: int) -> None:
        self._values = [*values, *EXTREMES]
        self._bodies = [*recorded(), *(msgpack.packb(value) for value in values[:20])]
        self._bombs = bombs()
        self._requests = requests(self._bodies)
        self._random = random.Random(seed)

    def frame(self) -> bytes:
        """Returns the next frame."""
        chance = self._random
        kind = chance.random()
        if kind < 0.005:
            body = chance.choice(self._bombs)
        elif kind < 0.55:
            body = self._request()
        else:
            body = self._mutated(chance.choice((self._request(), chance.choice(self._bodies))))
            while chance.random() < 0.3:
                body = self._mutated(body)
        length = len(body)
        if chance.random() < 0.01:
            length = chance.choice((0, 1, length + 1, 4_096, 4_097, 512 * 1024, 512 * 1024 + 1, 2**32 - 1))
        return struct.pack(">I", length) + body

    def _request(self) -> bytes:
        """Returns a request whose name and fields may be valid, with some invalid values."""
        chance = self._random
        name, params = chance.choice(self._requests)
        params = {key: self._value(value) for key, value in params.items() if chance.random() < 0.97}
        if chance.random() < 0.2 and name in METHODS and (fields := METHODS[name].__struct_fields__):
            params[chance.choice(fields)] = chance.choice(self._values)
        if chance.random() < 0.01:
            return msgpack.packb([chance.randrange(4), chance.randrange(5), name, chance.choice(self._values)])
        return msgpack.packb([0, chance.randrange(2**32), name, params])

    def _value(self, value: Any) -> Any:
        """Returns the value, or the value with one inner value changed."""
        chance = self._random
        if chance.random() < 0.15:
            return chance.choice(self._values)
        if isinstance(value, dict):
            return {key: self._value(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._value(inner) for inner in value]
        return value

    def _mutated(self, body: bytes) -> bytes:
        chance = self._random
        at = chance.randrange(len(body) + 1)
        match chance.randrange(8):
            case 0 | 1 if body:
                at = min(at, len(body) - 1)
                return body[:at] + bytes([body[at] ^ 1 << chance.randrange(8)]) + body[at + 1 :]
            case 2:
                return body[:at] + body[at + chance.randrange(1, 9) :]
            case 3:
                return body[:at] + chance.randbytes(chance.randrange(1, 9)) + body[at:]
            case 4:
                return body[:at] + body[max(0, at - chance.randrange(1, 30)) :]
            case 5:
                return body[:at]
            case 6:
                other = chance.choice(self._bodies)
                return body[:at] + other[chance.randrange(len(other) + 1) :]
        return body[:at] + msgpack.packb(chance.choice(EXTREMES)) + body[at:]
