"""A note about a client beside its log, with which the next daemon or agent finds its process and adopts it."""

import contextlib
from pathlib import Path

import msgspec
from msgspec import Struct

from autosched.launch import ClientOrder, Launched
from autosched.launch.job_folder import LOG
from autosched.model import OWN_HOST, HostName
from autosched.process import whole_file
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
    memory_bytes_max: int = 0
    """Limits of its control group, as in its order."""
    tasks_max: int = 0
    host: HostName = OWN_HOST
    """Host of the client; on another host, its agent knows the process."""


def note_of(launched: Launched, order: ClientOrder, records_before: int = 0) -> Note:
    """The note of a client that runs on this machine."""
    pid, limits = launched.process.pid, (order.memory_bytes_max, order.tasks_max)
    return Note(pid, birth(pid), order.token, launched.temporary, records_before, *limits)


def adopt(note: Note, folder: Path) -> Process | None:
    """Watch the process of an earlier client of this machine; None if it has ended."""
    process = Process.adopt(note.pid, note.born, folder / LOG) if note.pid else None
    if process is not None:
        process.limit(note.memory_bytes_max, note.tasks_max)  # which are gone while no daemon runs
    return process


def leave(folder: Path, note: Note) -> None:
    """Write the note atomically, for this user only. If the disk is full, the client is not adopted."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        whole_file.write(folder / NOTE, msgspec.json.encode(note), private=True)


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
