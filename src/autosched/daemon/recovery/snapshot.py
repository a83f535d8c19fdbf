"""The state after all rows up to a certain one; a restart replays the later rows only.

Snapshots are made from the database alone, by a process that does what a restart does (`maintenance.py`): a snapshot
equals a replay, and the daemon does not wait for it. Snapshots are files beside the database that can be deleted at any
time. A damaged one, one of another version and one ahead of the database are ignored.
"""

import logging
import struct
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct, inspect

from autosched.core.estimates import RATIOS, JobTimes, Mean, Ratios
from autosched.core.state import State
from autosched.daemon.jobs.progress import JobProgress
from autosched.model import JobId
from autosched.process import whole_file

log = logging.getLogger(__name__)

KEEP = 2
MAGIC = b"autosched snapshot\n"
_SUMS = struct.Struct(">II")
VERSION = 1
"""Version number, to be increased when the same rows lead to another state of the same form."""


class Snapshot(Struct, frozen=True):
    """All state that is kept in memory between two events."""

    seq: int
    """Number of the last event in it."""
    policy: str
    replaced: str
    sharing: tuple[JobId, ...]
    state: State
    jobs: dict[JobId, msgspec.Raw]
    """Progress of each job."""
    prints: dict[JobId, tuple[int, int]]
    """Checksums of what may change after it was counted, see `JobStore.checksums`."""
    records: int
    """The last record in it, by its position in the table."""
    crc: int
    """Checksum of the last event's row; a database with another row there has another history."""


def _plain(value: object) -> object:
    """Convert a value that msgspec does not support into one that it does."""
    if isinstance(value, deque):
        return list(value)
    raise NotImplementedError(f"no snapshot can hold a {type(value).__name__}")


def _again(kind: Any, value: object) -> object:
    """The inverse of `_plain`."""
    origin, words = get_origin(kind) or kind, get_args(kind)
    if origin is deque:
        return deque(msgspec.convert(value, list[float]), RATIOS)
    if origin is Counter:
        return Counter(msgspec.convert(value, dict[str, int]))
    if origin is defaultdict:
        return defaultdict(words[1], msgspec.convert(value, dict[words[0], words[1]], dec_hook=_again))  # type: ignore[valid-type]
    raise NotImplementedError(f"no snapshot can hold a {kind}")


_DECODER = msgspec.msgpack.Decoder(Snapshot, dec_hook=_again)
_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
_PROGRESS = msgspec.msgpack.Decoder(JobProgress, dec_hook=_again)
_HIDDEN = (JobTimes, Mean, Ratios, JobProgress)
"""Classes behind types that msgspec does not inspect."""


def _shape(kind: Any, seen: dict[Any, None]) -> Iterator[str]:
    """Yield names and types of everything in a snapshot, so that snapshots of other versions are recognised."""
    yield type(kind).__name__
    if isinstance(kind, inspect.StructType | inspect.DataclassType):
        if kind.cls in seen:
            return
        seen[kind.cls] = None
        for field in kind.fields:
            yield field.name
            yield from _shape(field.type, seen)
    elif isinstance(kind, inspect.EnumType):
        yield from (str(member) for member in kind.cls)
    for part in ("key_type", "value_type", "item_type"):
        if (inner := getattr(kind, part, None)) is not None:
            yield from _shape(inner, seen)
    for part in ("item_types", "types"):
        for inner in getattr(kind, part, ()):
            yield from _shape(inner, seen)


@cache
def shape() -> int:
    """Checksum of the form of a snapshot."""
    seen: dict[Any, None] = {}
    words = [word for kind in inspect.multi_type_info((Snapshot, *_HIDDEN)) for word in _shape(kind, seen)]
    return zlib.crc32(" ".join((str(VERSION), *words)).encode())


class PackedProgress:
    """A job's progress as stored in a snapshot."""

    def __init__(self, raw: msgspec.Raw) -> None:
        self.raw = raw

    @classmethod
    def of(cls, progress: JobProgress) -> "PackedProgress":
        """Pack a job's progress."""
        return cls(msgspec.Raw(_ENCODER.encode(progress)))

    def __call__(self) -> JobProgress:
        """Unpack it; the data was checked with the rest of the snapshot."""
        return _PROGRESS.decode(self.raw)


def encode(snapshot: Snapshot) -> bytes:
    """Encode a snapshot as the content of a file."""
    body = _ENCODER.encode(snapshot)
    return MAGIC + _SUMS.pack(shape(), zlib.crc32(body)) + body


def decode(content: bytes) -> Snapshot:
    """The inverse of `encode`. Raises ValueError with the reason if the content cannot be used."""
    start = len(MAGIC) + _SUMS.size
    if content[: len(MAGIC)] != MAGIC or len(content) < start:
        raise ValueError("it is no snapshot")
    form, crc = _SUMS.unpack_from(content, len(MAGIC))
    body = memoryview(content)[start:]
    if form != shape():
        raise ValueError("another version of autosched made it")
    if crc != zlib.crc32(body):
        raise ValueError("its checksum does not match")
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


# Files ----------------------------------------------------------------------------------------------------------------


def write(folder: Path, snapshot: Snapshot) -> Path:
    """Write a snapshot atomically, and keep one earlier snapshot. Raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{snapshot.seq:015d}.snapshot"
    whole_file.write(path, encode(snapshot), durable=True)
    for old in _files(folder)[KEEP:]:
        old.unlink(missing_ok=True)
    return path


def last(folder: Path) -> int:
    """Number of the last event in the latest snapshot, whether it can be used or not; 0 if there is none."""
    return int(files[0].stem) if (files := _files(folder)) else 0


def newest(folder: Path, row_crc: Callable[[int], int | None]) -> Snapshot | None:
    """The latest snapshot that fits a database; `row_crc` returns the checksum of one of its events."""
    for path in _files(folder):
        try:
            found = decode(path.read_bytes())
            if row_crc(found.seq) != found.crc:
                raise ValueError("the database has another past")
        except (OSError, ValueError) as error:
            log.warning("the snapshot %s is passed over: %s", path, error)
        else:
            return found
    return None


def forget(folder: Path) -> None:
    """Remove all snapshots: the database has another history from now on."""
    for path in _files(folder):
        path.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    """Files of snapshots, the latest first."""
    return sorted(folder.glob("*.snapshot"), reverse=True)
