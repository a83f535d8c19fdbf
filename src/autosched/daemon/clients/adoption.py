"""Clients that outlive the daemon: what the next one must know of each to take it over.

Beside each client's log lies a note of its process and token, as long as it is not known to be lost. The next daemon
looks for those that had said what they can do; every other process of an earlier life is killed.
"""

import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from autosched.core.scheduler import REVOKE_GRACE_S
from autosched.core.state import Job, State
from autosched.launch import client_note
from autosched.launch.client_note import NOTE, Note
from autosched.launch.job_folder import LOG
from autosched.model import OWN_HOST, JobId, Pool
from autosched.process.detached_process import Process

HANG_UP_S = 0.5
"""Seconds within which an external client that has hung up comes back, or counts as ended."""
SECRET = "secret"


class Survivor(Struct, frozen=True):
    """A client of an earlier life of the daemon that may come back. Of one on another host its agent will tell; an
    external one is only hoped for."""

    job: JobId
    note: Note
    process: Process | None
    """None: it does not run on this machine."""


def disown(folder: Path) -> None:
    """Steps and jobs that come now may have numbers that were given before: clients of that time must not get in.

    Local ones are killed at the next start. The units of external ones stay leased until their time is over.
    """
    (folder / SECRET).unlink(missing_ok=True)
    for path in folder.glob(f"*/{NOTE}"):
        if (note := client_note.read(path.parent)) is None or note.pid or note.host:
            path.unlink(missing_ok=True)


def find(state: State, folder: Path, pools: Iterable[Pool]) -> list[Survivor]:
    """Clients of the state's jobs that may be alive, and whose steps hold only units that these pools, or hosts that
    have not left, have."""
    lent = (pool for host in state.hosts.values() if not host.left for pool in host.pools)
    units = {unit.name: unit for pool in (*pools, *lent) for unit in pool.units}
    units |= {name: board.unit for name, board in state.boards.items()}
    found = []
    for job in state.jobs.values():
        if not _has_spoken(job) or any(
            state.slots[name].unit != units.get(name) for step in job.steps for name in state.steps[step].units
        ):
            continue
        if (note := client_note.read(folder / str(job.id))) is None or note.host != job.host:
            continue
        elsewhere = job.spec.external or note.host != OWN_HOST
        process = None if elsewhere else Process.adopt(note.pid, note.born, folder / str(job.id) / LOG)
        if process is not None or elsewhere:
            found.append(Survivor(job.id, note, process))
    return found


def clear(folder: Path, found: Sequence[Survivor] = ()) -> None:
    """Take away what local clients of an earlier life have left behind, but for those found alive."""
    alive = {str(survivor.job) for survivor in found}
    for path in folder.glob(f"*/{NOTE}"):
        if path.parent.name not in alive and (note := client_note.read(path.parent)) is not None and note.temporary:
            shutil.rmtree(note.temporary, ignore_errors=True)
            client_note.tear(path.parent)


def any_in_time(state: State, job: JobId, now: float) -> bool:
    """Whether a client's own watchdog may not have ended all steps of the job yet."""
    return any(state.steps[step].deadline_at + REVOKE_GRACE_S > now for step in state.jobs[job].steps)


def _has_spoken(job: Job) -> bool:
    """Whether to wait for the client of a job. The client of an ended job counts only if it is external and has steps
    under way."""
    return job.attached and (not job.state.ended or (job.spec.external and bool(job.steps)))


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
