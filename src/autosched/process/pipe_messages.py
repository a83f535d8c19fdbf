"""Messages from a child process: one a line, MessagePack in hexadecimal, each read with a deadline."""

import os
import select
import time

import msgspec
from msgspec import Struct


def line(message: Struct) -> bytes:
    """Encode a message as a line."""
    return msgspec.msgpack.encode(message).hex().encode() + b"\n"


class Lines:
    """Reads from a file descriptor; the other end may die or fall silent at any time."""

    def __init__(self, file: int) -> None:
        self._file, self._pending = file, b""
        self._poll = select.poll()
        self._poll.register(file, select.POLLIN)

    def next(self, timeout_s: float) -> bytes | None:
        """The next message, undecoded; empty at the end, None if the deadline passes first."""
        until = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            left_s = until - time.monotonic()
            if left_s <= 0 or not self._poll.poll(1e3 * left_s):
                return None
            if not (data := os.read(self._file, 65_536)):
                return b""
            self._pending += data
        text, _, self._pending = self._pending.partition(b"\n")
        return bytes.fromhex(text.decode())
