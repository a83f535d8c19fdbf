"""Agents of other hosts, which are killed, frozen, and cut off."""

import os
import random
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lent_host import LentHost, boards, lane


def free_port() -> int:
    """Returns an unused port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class ChaosAgent(LentHost):
    """One agent, in its own network namespace where there is a cable."""

    def __init__(self, folder: Path, name: str, devices: int, address: str, environment: Mapping[str, str]) -> None:
        """`address`: address of the daemon."""
        super().__init__(folder / f"host-{name}", name, address)
        self.environment, self.settings = dict(environment), lane() + boards(devices)

    def kill_client(self, rng: random.Random) -> bool:
        """Kills one of its clients; returns whether there was one."""
        if not (pids := self.clients()):
            return False
        with suppress(ProcessLookupError):
            os.kill(rng.choice(pids), signal.SIGKILL)
        return True
