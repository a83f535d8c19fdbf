"""A PostgreSQL server for a test, from the programs that Debian installs; it does not run as root, which it refuses."""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

START_S = 60.0
NO_PRIVILEGES = 65534
"""User id without privileges."""
"""Maximum time for one of its programs to end, in seconds."""
_names = itertools.count(1)


def programs() -> Path | None:
    """Returns the folder of `initdb` and `postgres`; None: not installed."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if (on_path := shutil.which("initdb")) is not None:
        found.append(Path(on_path).resolve())
    return found[0].parent if found else None


class Server:
    """A server with its own port and folder."""

    def __init__(self, folder: Path, bin_dir: Path, user: str | None) -> None:
        self._data, self._bin, self._user, self._log = folder / "data", bin_dir, user, folder / "log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._pid = -1
        self._run("initdb", "--no-sync", "--auth=trust", "--username=lab", "--encoding=UTF8", "-D", str(self._data))

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [str(self._bin / program), *words], user=self._user, check=True, capture_output=True, timeout=START_S,
            cwd=self._data.parent,
        )  # fmt: skip

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        options = f"-p {self.port} -k {self._data} -h 127.0.0.1 -c fsync=off"
        self._run(
            "pg_ctl", "start", "-w", "-t", f"{START_S:.0f}", "-D", str(self._data), "-l", str(self._log), "-o", options
        )
        self._pid = int((self._data / "postmaster.pid").read_text().split()[0])

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the server and all its processes."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        processes = self._processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, START_S)

    def _processes(self) -> list[psutil.Process]:
        try:
            first = psutil.Process(self._pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def database(self) -> str:
        """Returns the URL of a new, empty database."""
        name = f"test_{next(_names)}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "lab", name)
        return f"postgresql://lab@127.0.0.1:{self.port}/{name}"

    def drop(self, url: str) -> None:
        """Replaces this database by an empty one."""
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "lab", url.rpartition("/")[2])
        self._run("dropdb", "--force", *where)
        self._run("createdb", *where)


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Yields a running server; skips the test where none is installed."""
    if (bin_dir := programs()) is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    user = None
    if os.geteuid() == 0:
        users = pwd.getpwall()
        user = next(one.pw_name for one in users if one.pw_name == "postgres" or one.pw_uid == NO_PRIVILEGES)
    with tempfile.TemporaryDirectory(prefix="autosched-pg-", dir="/tmp", ignore_cleanup_errors=True) as name:
        if user is not None:
            os.chown(name, pwd.getpwnam(user).pw_uid, -1)
        made = Server(Path(name), bin_dir, user)
        made.start()
        try:
            yield made
        finally:
            made.signal(signal.SIGCONT)
            made.kill()
