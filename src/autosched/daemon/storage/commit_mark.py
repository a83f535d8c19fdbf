"""A file beside the database with the number of acknowledged commits, which detects lost commits.

A flipped bit in the write-ahead log makes SQLite drop all later commits, and the remaining database looks sound. The
number of commits is therefore kept in a second file. It is written after each commit and not flushed: after a power
failure the file may lag behind the database, and never runs ahead of it.
"""

import contextlib
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

SLOT = struct.Struct(">QQI")
SLOTS = 2
"""Number of slots, written in turns: if one is damaged, the other remains."""


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
        """The last acknowledged mark; None if there is none, as for a database that a user put there."""
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
        """Record that the journal is durable up to a mark. If the write fails, later losses are harder to detect."""
        body = struct.pack(">QQ", mark.commits, mark.seq)
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._file, body + struct.pack(">I", zlib.crc32(body)), SLOT.size * (mark.commits % SLOTS))

    def forget(self) -> None:
        """Remove the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
