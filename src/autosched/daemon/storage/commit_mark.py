"""Beside the database: how much of it was acknowledged, so that what vanishes as a whole is missed.

A flipped bit in the write-ahead log makes SQLite forget all commits from there on, and what is left looks sound. So the
number of commits is also kept here. It is written after each commit and never before it, and is not flushed: after a
power failure it may lag behind the database, and never runs ahead of it.
"""

import contextlib
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

SLOT = struct.Struct(">QQI")
SLOTS = 2
"""Written in turns: one that is damaged leaves the other."""


@dataclass(frozen=True, order=True)
class Mark:
    """Number of commits, and number of the last event in them."""

    commits: int
    seq: int


class CommitMark:
    """The file that belongs to a database."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(f"{database.name}.ack")
        self._file: int | None = None

    def read(self) -> Mark | None:
        """The last acknowledged mark; None where there is none, as with a database that was put there by hand."""
        try:
            content = self.path.read_bytes()
        except OSError:
            return None
        marks = []
        for at in range(0, len(content) - SLOT.size + 1, SLOT.size):
            commits, seq, crc = SLOT.unpack_from(content, at)
            if crc == zlib.crc32(content[at : at + 16]):
                marks.append(Mark(commits, seq))
        return max(marks, default=None)

    def write(self, mark: Mark) -> None:
        """Note that the journal is durable up to a mark. Where this write fails, only a later loss is harder to see."""
        body = struct.pack(">QQ", mark.commits, mark.seq)
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._file, body + struct.pack(">I", zlib.crc32(body)), SLOT.size * (mark.commits % SLOTS))

    def forget(self) -> None:
        """Nothing is known."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
