"""An RPC server in its own process, TVM's or ours, which can be killed and restarted at the same address."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deadlines import DEADLINE_S, until
from wires import Wire

HOST = "127.0.0.1"


class RpcServer:
    """An RPC server on this machine. A context manager."""

    def __init__(
        self,
        folder: Path,
        key: str,
        words: Sequence[str] = (),
        name: str = "rpc",
        *,
        ours: bool = False,
        cable: Wire | None = None,
    ) -> None:
        """`words`: further options. `ours`: `autosched board` instead of TVM's own. `cable`: the server is at its far
        end."""
        self._program = ["autosched", "board"] if ours else ["tvm.exec.rpc_server"]
        self._folder, self._log, self._key, self._words = folder, folder / f"{name}.log", key, tuple(words)
        self._cable = cable
        self._host = cable.far if cable is not None else HOST
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Address as HOST:PORT."""
        return f"{self._host}:{self.port}"

    @property
    def log(self) -> str:
        """Output of all processes of the server."""
        return self._log.read_text()

    @property
    def sessions(self) -> int:
        """Number of sessions that it has begun."""
        return self.log.count("start serving")

    def start(self) -> None:
        """Starts it, at its earlier port if it had one."""
        first = self.port or 20_000 + os.getpid() % 20_000
        command = [sys.executable, "-m", *self._program, "--host", self._host, "--port", str(first), "--key", self._key]
        if self._program[0] != "autosched":
            command += ["--port-end", str(self.port + 1 if self.port else 65_000)]
        command += self._words
        if self._cable is not None:
            allowed = ["--allow", self._cable.near] if self._program[0] == "autosched" else []
            command = self._cable.within([*command, *allowed])
        before = self._log.stat().st_size if self._log.exists() else 0
        environment = {**os.environ, "TVM_NUM_THREADS": "1", "TVM_BIND_THREADS": "0"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, env=environment, start_new_session=True
            )
        until(lambda: "bind to" in self.log[before:], f"the RPC server of {self._key} listens")
        found = re.findall(r"bind to \S+:(\d+)", self.log)
        self.port = int(found[-1])

    def kill(self) -> None:
        """Kills it and all its children."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(DEADLINE_S)
            self._process = None

    def __enter__(self) -> "RpcServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def settings(
    server: RpcServer, key: str, kind: str = "pi4", name: str = "board0", more: str = "", cpu: str = "x86-64-v2"
) -> str:
    """Returns settings of a daemon with this board."""
    return (
        f'[[device]]\nname = "{name}"\nkind = "{kind}"\nrpc = "{server.address}"\nrpc_key = "{key}"\n'
        f'target = "llvm -mcpu={cpu} -num-cores=1"\n{more}'
    )
