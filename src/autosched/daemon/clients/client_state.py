"""State of one client in the daemon."""

import asyncio
from dataclasses import dataclass, field

from autosched.launch import ClientProcess
from autosched.model import OWN_HOST, HostName, JobId
from autosched.protocol import PROTOCOL
from autosched.wire.link import Link


@dataclass(eq=False)
class Client:
    """One client of one job; a job may have several, one after the other."""

    job: JobId
    token: str
    process: ClientProcess | None = None
    link: Link | None = None
    protocol: tuple[int, int] = PROTOCOL
    temporary: str = ""
    """Folder for what its processes forget; with a short name, since sockets lie in it. It goes when they are gone."""
    records_before: int = 0
    """Records of the job when it began."""
    host: HostName = OWN_HOST
    """Where it runs."""
    why: str = ""
    """Why the daemon ended it; empty when it ended by itself."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    """It has said hello, or is gone."""
    coming: Link | None = None
    """Over this connection it is back, but has not said yet which steps it has."""

    @property
    def lost(self) -> bool:
        """True when nothing of it is left."""
        return self.gone.is_set()
