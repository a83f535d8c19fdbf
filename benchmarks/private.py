"""A private daemon for a measurement."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from autosched.api.connection import Daemon
from autosched.errors import DaemonUnreachable

START_S, END_S, POLL_S = 300.0, 30.0, 0.05


@contextmanager
def private_daemon(folder: Path, settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a daemon in this folder, with these settings and its socket at api.sock; the caller stops it."""
    file = folder / "autosched.toml"
    file.write_text(f'[daemon]\nstate_dir = "{folder}/state"\nsocket = "{folder}/api.sock"\n{settings}')
    command = [sys.executable, "-m", "autosched", "serve", "-c", str(file)]
    with (folder / "daemon.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
        process.wait(END_S)
    finally:
        process.kill()
        process.wait()


async def answering(address: str, process: psutil.Process) -> Daemon:
    """Waits until the daemon answers."""
    async with asyncio.timeout(START_S):
        while True:
            try:
                return await Daemon.connect(address)
            except DaemonUnreachable:
                if process.status() == psutil.STATUS_ZOMBIE:
                    raise
                await asyncio.sleep(POLL_S)
