"""Starts clients as processes of the daemon's own machine, which outlive it."""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence

from autosched.launch import ClientOrder, Launched
from autosched.launch.job_folder import JOB_DIR, LOG
from autosched.process.detached_process import Process

TOKEN = "AUTOSCHED_TOKEN"
"""Variable in the environment of a client with its token, which other users must not see among its arguments."""
CACHE, CACHE_BYTES = "AUTOSCHED_CACHE", "AUTOSCHED_CACHE_BYTES"
"""Variables with a folder in which backends keep what later jobs can use, and with the bytes that may lie there."""


class LocalLauncher:
    """Starts each client in a session of its own."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "autosched.client", "--watched")) -> None:
        self._command = command

    def launch(self, order: ClientOrder) -> Launched:
        """Start a client with a temporary folder of its own. Raises OSError."""
        order.folder.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.mkdtemp(prefix="autosched-job-")
        environment = {**os.environ, JOB_DIR: str(order.folder), TOKEN: order.token, "TMPDIR": temporary}
        environment |= {CACHE: str(order.cache), CACHE_BYTES: str(order.cache_bytes_max)}
        environment["XDG_CACHE_HOME"] = temporary  # libraries leave files there, some in HOME else
        command = [*self._command, "--connect", order.address, "--job", str(order.job)]
        command += ["--helps"] if order.helps else []
        try:
            process = Process.start(command, environment, order.folder / LOG)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return Launched(process, temporary)
