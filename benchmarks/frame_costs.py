"""Processor time in which the largest frames are decoded, valid and hostile ones: ``python benchmarks/frame_costs.py``.

Prints one JSON object: milliseconds for each kind of frame, the median of some repeats. All are as long as a frame may
be.
"""

import json
import statistics
import sys
import time
from contextlib import suppress

import msgpack

from autosched.errors import WireError
from autosched.protocol import CHUNK_BYTES, CLIENT_METHODS, FRAME_BYTES, USER_METHODS, Return
from autosched.wire.frames import HEADER_BYTES, Peer

REPEATS = 15
SERVED = USER_METHODS | CLIENT_METHODS
ROOM = FRAME_BYTES - 64
"""Bytes behind the head of a message."""


def frame(body: bytes) -> bytes:
    """A body with its header."""
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def asking(method: str, params: bytes) -> bytes:
    """A request whose parameters are these bytes."""
    return frame(msgpack.packb([0, 1, method, 0])[:-1] + params)


def frames() -> dict[str, bytes]:
    """The largest frames of each kind."""
    upload = {"sha256": "0" * 64, "total": CHUNK_BYTES, "offset": 0, "data": bytes(CHUNK_BYTES)}
    task = {"task": 1, "stage_done": True, "resources_next": ["host"], "stage_next": "build"}
    count = (ROOM - 200) // (len(msgpack.packb(task)) + 2)
    loads = {"load": {"tasks": [{**task, "task": number} for number in range(min(count, 10_000))]}, "holds": []}
    return {
        "upload": frame(msgpack.packb([0, 1, "put_blob", upload])),
        "loads of many tasks": asking("return", msgpack.packb(loads)),
        "small values as parameters": asking("return", b"\xdd" + ROOM.to_bytes(4, "big") + b"\x01" * ROOM),
        "small values as a field": asking("return", b"\x81\xa4load\xdd" + ROOM.to_bytes(4, "big") + b"\x01" * ROOM),
        "small values as the name": frame(b"\x94\x00\x01\xdd" + ROOM.to_bytes(4, "big") + b"\x01" * ROOM),
        "small values as a message": frame(b"\xdd" + ROOM.to_bytes(4, "big") + b"\x01" * ROOM),
        "nested deeply": frame(b"\x91" * FRAME_BYTES),
        "nested deeply as parameters": asking("return", b"\x91" * ROOM),
        "many keys": asking("return", b"\xdf" + (ROOM // 2).to_bytes(4, "big") + b"\xa0\xc0" * (ROOM // 2)),
        "one key again and again": asking(
            "return", b"\xdf" + (ROOM // 6).to_bytes(4, "big") + b"\xa4load\x80" * (ROOM // 6)
        ),
        "one long text as the name": frame(b"\x94\x00\x01\xdb" + ROOM.to_bytes(4, "big") + b"a" * ROOM),
    }  # fmt: skip


def decoded_s(data: bytes) -> float:
    """Processor time, in seconds, in which one connection decodes a frame."""
    peer = Peer(SERVED, FRAME_BYTES)
    began_at = time.thread_time()
    with suppress(WireError):
        peer.receive(data)
    return time.thread_time() - began_at


def main() -> int:
    """Measure each kind."""
    assert Return.bytes_max == FRAME_BYTES
    took_ms = {
        name: round(1e3 * statistics.median(decoded_s(data) for _ in range(REPEATS)), 3)
        for name, data in frames().items()
    }
    print(json.dumps({"frame_bytes": FRAME_BYTES, "took_ms": took_ms, "worst_ms": max(took_ms.values())}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
