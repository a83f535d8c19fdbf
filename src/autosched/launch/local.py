"""Starts clients as processes of the daemon's own machine, which survive the daemon."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autosched import machine
from autosched.launch import ClientOrder, Launched, sandbox
from autosched.launch.job_folder import JOB_DIR, LOG
from autosched.launch.sandbox import Bounds
from autosched.process import control_group, isolated_python
from autosched.process.client_limits import MEMORY_BYTES, TASKS
from autosched.process.detached_process import Process

TOKEN = "AUTOSCHED_TOKEN"
"""Environment variable with a client's token, which other users must not see among its arguments."""
CACHE, CACHE_BYTES = "AUTOSCHED_CACHE", "AUTOSCHED_CACHE_BYTES"
"""Environment variables with the folder in which backends keep data for later jobs, and its maximum bytes."""


class LocalLauncher:
    """Starts each client in a separate session."""

    def __init__(self, command: Sequence[str] = (), bounds: Bounds | None = None) -> None:
        """`command`: the client's program; empty: that of this project. `bounds`: of clients that run apart."""
        self._command = command or isolated_python.command("autosched.client", "--watched")
        self._bounds = bounds or Bounds()

    def launch(self, order: ClientOrder) -> Launched:
        """Start a client with a separate temporary folder. Raises OSError."""
        order.folder.mkdir(parents=True, exist_ok=True)
        runs_programs = machine.executable(Path(tempfile.gettempdir()))
        temporary = tempfile.mkdtemp(prefix="autosched-job-", dir=None if runs_programs else order.folder)
        own = {
            JOB_DIR: str(order.folder), TOKEN: order.token, CACHE: str(order.cache),
            CACHE_BYTES: str(order.cache_bytes_max), "TMPDIR": temporary,
            MEMORY_BYTES: str(order.memory_bytes_max),
            "XDG_CACHE_HOME": temporary,  # libraries write files there, some otherwise to HOME
        }  # fmt: skip
        command = [*self._command, "--connect", order.address, "--job", str(order.job)]
        command += ["--helps"] if order.helps else []
        if order.apart:
            order.cache.mkdir(parents=True, exist_ok=True)
            command = sandbox.command(command, (order.folder, order.cache, Path(temporary)), self._bounds)
            own[TASKS] = str(order.tasks_max or "")
            environment = isolated_python.environment_apart({**own, "HOME": temporary})
        else:
            environment = isolated_python.environment(own)
        groups, group = control_group.delegated(), None
        try:
            if groups is not None:
                group = groups.new(order.memory_bytes_max, order.tasks_max)
            process = Process.start(command, environment, order.folder / LOG, order.folder, group)
        except OSError:
            if group is not None:
                group.remove()
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return Launched(process, temporary)
