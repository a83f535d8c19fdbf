"""The engine: a process beside the daemon that starts agents on a cluster and keeps them running.

The daemon restarts an engine that ends. A daemon that restarts leaves the agents running, and the next engine takes
them over. A daemon that stops for good ends the agents.
"""

import asyncio
import logging
from pathlib import Path

import msgspec

from autosched import user_folders
from autosched.config import LauncherConfig
from autosched.daemon.runtime import spawn
from autosched.errors import ConfigError
from autosched.launch.dask_agents import END
from autosched.launch.dask_task import Order
from autosched.process import isolated_python, whole_file
from autosched.process.detached_process import Process
from autosched.wire.pauses import pauses

log = logging.getLogger(__name__)

ORDER, LOG = "engine.json", "engine.log"
"""Files in the state folder: the engine's order and log."""
STEADY_S = 60.0
"""Minimum seconds of an engine that has worked before it ended."""


def order_of(settings: LauncherConfig) -> Order | None:
    """The order for the engine; None if the settings have none. Raises ConfigError."""
    if not settings.kind:
        return None
    if bool(settings.scheduler) == bool(settings.cluster):
        raise ConfigError(
            'launcher: name either the address of a Dask scheduler (scheduler = "tcp://HOST:8786") or the file in which'
            ' it leaves that (cluster = "FILE", as of: dask scheduler --scheduler-file FILE)'
        )
    if not settings.daemon:
        raise ConfigError(
            'launcher.daemon: name the address by which agents reach this daemon: daemon = "tls://HOST:PORT"'
        )
    try:
        key = user_folders.expanded(settings.key).read_text()
    except OSError as error:
        raise ConfigError(
            f"launcher.key: {settings.key} cannot be read ({error.strerror}). Make a key for the agents:  autosched key"
            " new agent dask"
        ) from None
    return Order(
        daemon=settings.daemon, key=key, agents=settings.agents, lab=settings.name, scheduler=settings.scheduler,
        cluster=settings.cluster, resource=settings.resource, settings=settings.settings,
    )  # fmt: skip


class Engine:
    """The engine of one daemon, if there is an order."""

    def __init__(self, order: Order | None, folder: Path) -> None:
        """`folder`: the state folder."""
        self._order, self._folder = order, folder
        self._process: Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._command = isolated_python.command("autosched.launch.dask_agents", str(folder / ORDER))

    def start(self) -> None:
        """Start the engine, and keep it running."""
        if self._order is not None:
            self._running = spawn(self._run(self._order), "the engine of agents")

    async def _run(self, order: Order) -> None:
        waits, clock, path = pauses(), asyncio.get_running_loop().time, self._folder / ORDER
        whole_file.write(path, msgspec.json.encode(order), private=True)  # it has the key of the agents
        while True:
            began_at = clock()
            self._process = self._started()
            log.info("the engine of agents starts; its log is %s", self._folder / LOG)
            how = await self._process.wait()
            waits = pauses() if clock() - began_at > STEADY_S else waits
            pause_s = next(waits)
            log.error("the engine of agents has ended: %s. It is started again in %.0f s", how, pause_s)
            await asyncio.sleep(pause_s)

    def _started(self, *words: str) -> Process:
        environment = isolated_python.environment()
        return Process.start([*self._command, *words], environment, self._folder / LOG, self._folder)

    def stop(self, *, ends: bool) -> None:
        """End the engine. `ends`: end the agents, too, by a process that outlives the daemon; else the next engine
        takes them over."""
        if self._running is None:
            return
        self._running.cancel()
        if self._process is not None:
            self._process.kill()
        if ends:
            self._process = self._started(END)
