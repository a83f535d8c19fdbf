"""Agents of other hosts, which die, freeze, and are cut off."""

import os
import random
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lent_host import LentHost, boards, lane


def free_port() -> int:
    """One that no program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class ChaosAgent(LentHost):
    """One agent, on a machine of its own where there is a cable."""

    def __init__(self, folder: Path, name: str, devices: int, address: str, environment: Mapping[str, str]) -> None:
        """`address`: of the daemon."""
        super().__init__(folder / f"host-{name}", name, address)
        self.environment, self.settings = dict(environment), lane() + boards(devices)

    def kill_client(self, rng: random.Random) -> bool:
        """Kill -9 of one of its clients; whether there was one."""
        if not (pids := self.clients()):
            return False
        with suppress(ProcessLookupError):
            os.kill(rng.choice(pids), signal.SIGKILL)
        return True
