"""Note of a client beside its log, from which the next daemon or agent finds its process and takes it over."""

import contextlib
from pathlib import Path

import msgspec
from msgspec import Struct

from autosched.model import OWN_HOST, HostName
from autosched.process import private_file
from autosched.process.detached_process import Process, birth

NOTE = "client.json"


class Note(Struct, frozen=True):
    """Facts by which a client is taken over."""

    pid: int = 0
    """Process number; 0: the client was not started here."""
    born: str = ""
    token: str = ""
    temporary: str = ""
    records_before: int = 0
    host: HostName = OWN_HOST
    """Where it runs; on another host than this one its agent knows the process."""


def note_of(process: Process, token: str, temporary: str, records_before: int = 0) -> Note:
    """The note of a client that runs on this machine."""
    return Note(process.pid, birth(process.pid), token, temporary, records_before)


def leave(folder: Path, note: Note) -> None:
    """Write it, whole or not at all, for this user only. On a full disk the client just is not taken over."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        private_file.write(folder / NOTE, msgspec.json.encode(note))


def tear(folder: Path) -> None:
    """The client is lost."""
    with contextlib.suppress(OSError):
        (folder / NOTE).unlink(missing_ok=True)
        folder.rmdir()  # but for an external client's it is not empty


def read(folder: Path) -> Note | None:
    """The note in a folder; None where there is none that can be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=Note)
    return None
