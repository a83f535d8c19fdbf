"""Agents of other hosts, which die, freeze, and are cut off."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from autosched.launch.job_folder import kill_strays
from wires import Wire

LANES = "[resources]\nhost_cores = [{core}]\n"
TLS_FILES = Path(__file__).parents[1] / "tls"


def listening(port: int) -> str:
    """Settings of a daemon that agents behind cables reach."""
    files = f'tls_certificate = "{TLS_FILES}/tls.crt"\ntls_key = "{TLS_FILES}/tls.key"\n'
    return f'listen = "0.0.0.0:{port}"\n{files}'


def free_port() -> int:
    """One that no program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class ChaosAgent:
    """One agent, on a machine of its own where there is a cable."""

    def __init__(
        self, folder: Path, name: str, boards: int, address: str, environment: Mapping[str, str],
        cable: Wire | None = None,
    ) -> None:  # fmt: skip
        """`address`: of the daemon."""
        self.name, self.cable = name, cable
        self._folder, self._address, self._environment = folder / f"host-{name}", address, environment
        self._folder.mkdir()
        devices = "".join(f'[[device]]\nname = "board{n}"\nkind = "cpu"\n' for n in range(boards))
        (self._folder / "agent.toml").write_text(LANES.format(core=min(os.sched_getaffinity(0))) + devices)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def jobs(self) -> Path:
        """The folder with the clients of the host."""
        return self._folder / "state" / "jobs"

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        command = [sys.executable, "-m", "autosched", "agent", "--daemon", self._address, "--name", self.name]
        command += ["-c", str(self._folder / "agent.toml"), "--state-dir", str(self._folder / "state")]
        with (self._folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.cable.within(command) if self.cable is not None else command,
                stdout=log, stderr=log, env=dict(self._environment), start_new_session=True,
            )  # fmt: skip

    def send(self, how: signal.Signals) -> None:
        """Send it a signal; one that kills is waited for."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(how)
        if how is signal.SIGKILL:
            self._process.wait()

    def clients(self) -> list[int]:
        """Processes of its clients."""
        mark, found = f"AUTOSCHED_JOB_DIR={self.jobs}".encode(), []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                ours = entry.name.isdigit() and mark in (entry / "environ").read_bytes()
                if ours and b"autosched.client" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    def kill_client(self, rng: random.Random) -> bool:
        """Kill -9 of one of its clients; whether there was one."""
        if not (pids := self.clients()):
            return False
        with suppress(ProcessLookupError):
            os.kill(rng.choice(pids), signal.SIGKILL)
        return True

    def end(self) -> None:
        """Leave no process behind."""
        if self._process is not None and self._process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGKILL)
        until = time.monotonic() + 10.0
        while kill_strays(self.jobs) and time.monotonic() < until:
            pass
