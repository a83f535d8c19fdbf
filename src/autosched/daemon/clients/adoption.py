"""Clients that outlive the daemon: what the next one must know of each to take it over.

Beside each client's log lies a note of its process and token, as long as it is not known to be lost. The next daemon
looks for those that had said what they can do; every other process of an earlier life is killed.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from autosched.core.scheduler import REVOKE_GRACE_S
from autosched.core.state import Job, State
from autosched.launch.job_folder import LOG
from autosched.model import JobId, Pool
from autosched.process.detached_process import Process, birth

HANG_UP_S = 0.5
"""Seconds within which an external client that has hung up comes back, or counts as ended."""
NOTE = "client.json"
SECRET = "secret"


class Note(Struct, frozen=True):
    """Note of a client for the next daemon, written when it starts, or when an external one attaches."""

    pid: int = 0
    born: str = ""
    token: str = ""
    temporary: str = ""
    records_before: int = 0


class Survivor(Struct, frozen=True):
    """A client of an earlier life of the daemon that may come back. An external one is only hoped for."""

    job: JobId
    note: Note
    process: Process | None


def leave_note(folder: Path, process: Process | None, token: str, temporary: str, records_before: int) -> None:
    """Write it, whole or not at all, for this user only. On a full disk the client just has no next daemon."""
    note = Note() if process is None else Note(process.pid, birth(process.pid), token, temporary, records_before)
    new = folder / f"{NOTE}.new"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with open(os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            file.write(msgspec.json.encode(note))
        new.replace(folder / NOTE)


def tear_note(folder: Path) -> None:
    """The client is lost."""
    with contextlib.suppress(OSError):
        (folder / NOTE).unlink(missing_ok=True)
        folder.rmdir()  # but for an external client's it is not empty


def disown(folder: Path) -> None:
    """Steps and jobs that come now may have numbers that were given before: clients of that time must not get in.

    Local ones are killed at the next start. The units of external ones stay leased until their time is over.
    """
    (folder / SECRET).unlink(missing_ok=True)
    for path in folder.glob(f"*/{NOTE}"):
        if (note := _note(path.parent)) is None or note.pid:
            path.unlink(missing_ok=True)


def find(state: State, folder: Path, pools: Iterable[Pool]) -> list[Survivor]:
    """Clients of the state's jobs that may be alive, and whose steps hold only units that these pools have."""
    units = {unit.name: unit for pool in pools for unit in pool.units}
    found = []
    for job in state.jobs.values():
        if not _has_spoken(job) or any(
            state.slots[name].unit != units.get(name) for step in job.steps for name in state.steps[step].units
        ):
            continue
        if (note := _note(folder / str(job.id))) is None:
            continue
        process = None if job.spec.external else Process.adopt(note.pid, note.born, folder / str(job.id) / LOG)
        if process is not None or job.spec.external:
            found.append(Survivor(job.id, note, process))
    return found


def clear(folder: Path, found: Sequence[Survivor] = ()) -> None:
    """Take away what local clients of an earlier life have left behind, but for those found alive."""
    alive = {str(survivor.job) for survivor in found}
    for path in folder.glob(f"*/{NOTE}"):
        if path.parent.name not in alive and (note := _note(path.parent)) is not None and note.temporary:
            shutil.rmtree(note.temporary, ignore_errors=True)
            tear_note(path.parent)


def any_in_time(state: State, job: JobId, now: float) -> bool:
    """Whether a client's own watchdog may not have ended all steps of the job yet."""
    return any(state.steps[step].deadline_at + REVOKE_GRACE_S > now for step in state.jobs[job].steps)


def _has_spoken(job: Job) -> bool:
    """Whether to wait for the client of a job. The client of an ended job counts only if it is external and has steps
    under way."""
    return job.attached and (not job.state.ended or (job.spec.external and bool(job.steps)))


def _note(folder: Path) -> Note | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=Note)
    return None


def secret(folder: Path) -> bytes:
    """The daemon's own secret, made once."""
    path = folder / SECRET
    try:
        return path.read_bytes()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        secret = secrets.token_bytes(32)
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(secret)
            os.fsync(file.fileno())
        return secret
