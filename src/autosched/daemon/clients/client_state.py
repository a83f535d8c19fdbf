"""State of one client in the daemon."""

import asyncio
from dataclasses import dataclass, field

from autosched.launch import ClientProcess
from autosched.model import OWN_HOST, HostName, JobId
from autosched.wire.link import Link


@dataclass(eq=False)
class Client:
    """One client of one job; a job may have several, one after the other."""

    job: JobId
    token: str
    process: ClientProcess | None = None
    link: Link | None = None
    temporary: str = ""
    """Temporary folder of the client's processes, deleted when the client is lost. Its name is short: sockets are in
    it."""
    records_before: int = 0
    """Number of the job's records when the client began."""
    host: HostName = OWN_HOST
    """Host on which the client runs."""
    end_reason: str = ""
    """Why the daemon ended the client; empty for a client that ended by itself."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when no process of the client is left."""
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client has said hello, or is gone."""
    returning: Link | None = None
    """New connection of a client that has reconnected and has not named its steps yet."""

    @property
    def lost(self) -> bool:
        """Whether no process of the client is left."""
        return self.gone.is_set()
