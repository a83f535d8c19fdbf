"""A note about a client beside its log, with which the next daemon or agent finds its process and adopts it."""

import contextlib
from pathlib import Path

import msgspec
from msgspec import Struct

from autosched.model import OWN_HOST, HostName
from autosched.process import private_file
from autosched.process.detached_process import Process, birth

NOTE = "client.json"


class Note(Struct, frozen=True):
    """Facts for adopting a client."""

    pid: int = 0
    """Process id; 0 if the client was not started here."""
    born: str = ""
    token: str = ""
    temporary: str = ""
    records_before: int = 0
    host: HostName = OWN_HOST
    """Host of the client; on another host, its agent knows the process."""


def note_of(process: Process, token: str, temporary: str, records_before: int = 0) -> Note:
    """The note of a client that runs on this machine."""
    return Note(process.pid, birth(process.pid), token, temporary, records_before)


def leave(folder: Path, note: Note) -> None:
    """Write the note atomically, for this user only. If the disk is full, the client is not adopted."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        private_file.write(folder / NOTE, msgspec.json.encode(note))


def tear(folder: Path) -> None:
    """Remove the note of a lost client."""
    with contextlib.suppress(OSError):
        (folder / NOTE).unlink(missing_ok=True)
        folder.rmdir()  # an external client's folder may not be empty


def read(folder: Path) -> Note | None:
    """The note in a folder; None if there is no readable one."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=Note)
    return None
