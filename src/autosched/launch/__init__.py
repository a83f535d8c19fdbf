"""Start the clients that host jobs. A launcher for another machine or another engine is another `Launcher`.

Files: job_folder.py (processes and leftovers by job folder), local.py (on the daemon's own machine).
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


class Launched(Struct, frozen=True):
    """A client that was started."""

    process: Process
    temporary: str
    """Folder for what its processes forget, with a short name, since sockets lie in it. Its owner removes it."""


class Launcher(Protocol):
    """Starts clients."""

    def launch(self, order: ClientOrder) -> Launched:
        """Start one; does not wait until it is up. Raises OSError where it cannot be started."""
