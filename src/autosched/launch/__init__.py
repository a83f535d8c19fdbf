"""Start the clients that host jobs. A launcher for another machine or another engine is another `Launcher`.

Files: job_folder.py (processes and leftovers by job folder), local.py (on this machine), client_note.py (what the next
daemon or agent must know of a client), dask_agents.py (agents as tasks of a Dask cluster), dask_task.py (one of them),
slurm_agents.py (agents as jobs of Slurm), ssh_agents.py (agents on machines that ssh reaches).
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
    """The client's proof that it is the one."""
    folder: Path
    """Where it works, and leaves its log."""
    cache: Path
    """A folder for what backends keep for later jobs."""
    cache_bytes_max: int
    """How much may lie there; 0: nothing."""
    helps: bool = False
    """Whether it is a helper of the job's client, which is on another host."""


class ClientProcess(Protocol):
    """The process of a client, wherever it runs."""

    @property
    def memory_bytes(self) -> int:
        """Resident memory; 0 when it has ended or that is not known."""

    def kill(self) -> None:
        """Kill the process and its group, now or as soon as its host can be reached."""

    async def wait(self) -> str:
        """Wait for its end; returns how it ended, in words."""


class Launched(Struct, frozen=True):
    """A client that was started on this machine."""

    process: Process
    temporary: str
    """Folder for what its processes forget, with a short name, since sockets lie in it. Its owner removes it."""


class Launcher(Protocol):
    """Starts clients on this machine."""

    def launch(self, order: ClientOrder) -> Launched:
        """Start one; does not wait until it is up. Raises OSError where it cannot be started."""
