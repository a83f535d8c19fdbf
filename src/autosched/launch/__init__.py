"""Starts the client processes of jobs. A launcher for another machine or another engine is another `Launcher`.

Files: job_folder.py (processes and leftovers by job folder), local.py (on this machine), sandbox.py (apart from the
rest of it), client_note.py (facts about a client for the next daemon or agent), dask_agents.py (agents as tasks of a
Dask cluster), dask_task.py (one of them), slurm_agents.py (agents as jobs of Slurm), ssh_agents.py (agents on machines
that ssh reaches).
"""

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from autosched.model import JobId
from autosched.process.detached_process import Process


class ClientOrder(Struct, frozen=True):
    """The client to start."""

    job: JobId
    address: str
    """Address of the daemon."""
    token: str
    """The client's proof of its identity."""
    folder: Path
    """Work folder, with the log."""
    cache: Path
    """Folder of data that backends keep for later jobs."""
    cache_bytes_max: int
    """Maximum bytes in that folder; 0: nothing."""
    memory_bytes_max: int = 0
    """Maximum bytes of its memory, and of that of each of its workers; 0: no limit."""
    tasks_max: int = 0
    """Maximum number of its processes and threads; 0: no limit."""
    helps: bool = False
    """Whether it is a helper of the job's client, which is on another host."""
    apart: bool = False
    """Whether it must not act as the user of the process that starts it, since its job is another user's."""


class ClientProcess(Protocol):
    """The process of a client, on any host."""

    @property
    def memory_bytes(self) -> int:
        """Resident memory with all that it has started, roughly; 0 if it has ended or is unknown."""

    @property
    def exact_memory_bytes(self) -> int:
        """The same, where each page counts once."""

    def kill(self) -> None:
        """Kill the process and its group, now or as soon as its host can be reached."""

    async def wait(self) -> str:
        """Wait for its end; returns how it ended, in words."""


class Launched(Struct, frozen=True):
    """A client that was started on this machine."""

    process: Process
    temporary: str
    """Folder for temporary files, with a short name, since sockets are in it. The caller removes it."""


class Launcher(Protocol):
    """Starts clients on this machine."""

    def launch(self, order: ClientOrder) -> Launched:
        """Start a client without waiting until it is up. Raises OSError if it cannot be started."""
