"""An agent of a test: a process that lends a host, its clients, and settings of a daemon reached over TLS."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from autosched.launch.job_folder import kill_strays
from deadlines import DEADLINE_S, until
from wires import Wire

TLS_FILES = Path(__file__).parent / "tls"


def lane(*, last: bool = False) -> str:
    """Returns settings of one lane on the first or the last core."""
    cores = sorted(os.sched_getaffinity(0))
    return f"[resources]\nhost_cores = [{cores[-1 if last else 0]}]\n"


def boards(count: int, kind: str = "cpu") -> str:
    """Returns settings of devices without cores, on which other load causes no repeated measurements."""
    return "".join(f'[[device]]\nname = "board{number or ""}"\nkind = "{kind}"\n' for number in range(count))


def tls(listen: str = "127.0.0.1:0") -> str:
    """Returns settings of [daemon] with a TLS listener."""
    return f'listen = "{listen}"\ntls_certificate = "{TLS_FILES}/tls.crt"\ntls_key = "{TLS_FILES}/tls.key"\n'


class LentHost:
    """One agent with its own folder."""

    def __init__(self, folder: Path, name: str, address: str) -> None:
        """`address`: address of the daemon."""
        self.folder, self.name, self.address = folder, name, address
        self.settings = lane() + boards(1)
        self.program = [sys.executable, "-m", "autosched"]
        self.environment: Mapping[str, str] | None = None
        self.within: Callable[[Sequence[str]], list[str]] = list
        """Turns a command into one that runs in a network namespace."""
        self.cable: Wire | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def reach(self, cable: Wire, port: int | str) -> None:
        """Runs in the cable's namespace, and reaches the daemon's TLS port over the cable."""
        self.cable, self.within, self.address = cable, cable.within, f"tls://{cable.near}:{port}"

    @property
    def jobs(self) -> Path:
        """Folder with the clients of the host."""
        return self.folder / "state" / "jobs"

    def log(self) -> str:
        """Text of its log."""
        return (self.folder / "agent.log").read_text()

    def start(self, *options: str) -> None:
        """Starts it, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.folder.mkdir(exist_ok=True)
        (self.folder / "agent.toml").write_text(self.settings)
        command = [*self.program, "agent", "--daemon", self.address, "--name", self.name]
        command += ["-c", str(self.folder / "agent.toml"), "--state-dir", str(self.folder / "state"), *options]
        with (self.folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.within(command), stdout=log, stderr=log, env=self.environment, start_new_session=True
            )

    def send(self, how: signal.Signals) -> None:
        """Sends it a signal, and waits for its end if the signal kills."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(how)
        if how is signal.SIGKILL:
            self.gone()

    def gone(self) -> int:
        """Waits for its end; returns its exit code."""
        assert self._process is not None
        return self._process.wait(DEADLINE_S)

    def clients(self) -> list[int]:
        """Returns the living processes of its clients."""
        mark, found = f"AUTOSCHED_JOB_DIR={self.jobs}".encode(), []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                ours = entry.name.isdigit() and mark in (entry / "environ").read_bytes()
                if ours and b"autosched.client" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    def end(self) -> None:
        """Leave no process behind."""
        if self._process is not None and self._process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGKILL)
        until(lambda: not kill_strays(self.jobs), "its clients end")
