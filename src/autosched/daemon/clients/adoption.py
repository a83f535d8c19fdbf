"""Finds clients that have survived a restart of the daemon.

A note with the process and token of each client lies beside its log until the client is known to be lost. After a
restart the daemon adopts the clients that had told their load before, and kills all other processes of jobs.
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
from autosched.model import OWN_HOST, JobId, Pool
from autosched.process.detached_process import Process

HANG_UP_S = 0.5
"""Seconds within which an external client reconnects after it has hung up, or counts as ended."""
SECRET = "secret"


class Survivor(Struct, frozen=True):
    """A client of the daemon before this one that may reconnect. Only for this machine it is known to run."""

    job: JobId
    note: Note
    process: Process | None
    """None for a client on another machine."""


def disown(folder: Path) -> None:
    """Refuse all earlier clients, since numbers of steps and jobs may be given a second time from now on.

    The next start kills local clients. Units of external clients stay leased until their steps' time is over.
    """
    (folder / SECRET).unlink(missing_ok=True)
    for path in folder.glob(f"*/{NOTE}"):
        if (note := client_note.read(path.parent)) is None or note.pid or note.host:
            path.unlink(missing_ok=True)


def find(state: State, folder: Path, pools: Iterable[Pool]) -> list[Survivor]:
    """The clients that may be alive and whose steps hold no unit that has been removed or changed.

    `pools`: the units of this machine; those of lent hosts and boards are known from the state.
    """
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
        process = None if elsewhere else client_note.adopt(note, folder / str(job.id))
        if process is not None or elsewhere:
            found.append(Survivor(job.id, note, process))
    return found


def clear(folder: Path, found: Sequence[Survivor] = ()) -> None:
    """Delete the temporary folders and notes of earlier local clients, except of those found alive."""
    alive = {str(survivor.job) for survivor in found}
    for path in folder.glob(f"*/{NOTE}"):
        if path.parent.name not in alive and (note := client_note.read(path.parent)) is not None and note.temporary:
            shutil.rmtree(note.temporary, ignore_errors=True)
            client_note.tear(path.parent)


def any_in_time(state: State, job: JobId, now: float) -> bool:
    """Whether a step of the job may still run: the client's own watchdog ends it at its deadline, after a margin."""
    return any(state.steps[step].deadline_at + REVOKE_GRACE_S > now for step in state.jobs[job].steps)


def _has_spoken(job: Job) -> bool:
    """Whether to wait for a job's client. After the end of a job only an external client with running steps counts."""
    return job.connected and (not job.state.ended or (job.spec.external and bool(job.steps)))


def secret(folder: Path) -> bytes:
    """The daemon's secret key, made at its first start."""
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
