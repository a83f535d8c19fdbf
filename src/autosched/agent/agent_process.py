"""The process of an agent: its folder, its signals, its log."""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import uvloop

from autosched import config, gpus, machine
from autosched.agent.agent import Agent
from autosched.agent.client_keeper import JOBS
from autosched.agent.host_lease import HostLease
from autosched.agent.owner_watch import ForeignTime, OwnerWatch
from autosched.config import Config
from autosched.errors import ConfigError
from autosched.model import HostName
from autosched.process import folder_lock

log = logging.getLogger(__name__)


def serve(
    address: str,
    host: HostName,
    settings: Config,
    folder: Path,
    *,
    quiet_s: float | None = None,
    until_eof: bool = False,
) -> int:
    """Lend this machine until SIGTERM or SIGINT or, with `until_eof`, until the standard input closes; returns the exit
    code. `quiet_s`: for a borrowed machine, seconds without load of other programs after which it is lent.

    Raises ConfigError for an unusable folder, and permanent refusals of the daemon.
    """
    logging.basicConfig(
        level=settings.log.level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    resources = config.resources(settings, there=gpus.inventory())
    for warning in resources.warnings:
        log.warning("%s", warning)
    resources.stay_off_devices()
    try:
        lock = folder_lock.take(folder)
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be written ({error.strerror}): choose another --state-dir"
        ) from None
    if lock is None:
        raise ConfigError(f"another agent works in {folder}: end that one, or choose another --state-dir")
    try:
        lease = HostLease(folder, folder / JOBS)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            hook_s = settings.guard.reboot_timeout_s
            agent = Agent(address, host, resources.pools, folder, lease, settings.reboot_hooks, hook_s)
            runner.run(_run(agent, quiet_s, until_eof=until_eof))
        lease.end()
        return 0
    finally:
        os.close(lock)


async def _run(agent: Agent, quiet_s: float | None, *, until_eof: bool) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    watching = loop.create_task(_wait_eof(stop)) if until_eof else None
    owner = None
    if quiet_s is not None:
        owner = OwnerWatch(ForeignTime(lambda: (os.getpid(), *agent.clients.pids)), quiet_s, len(machine.cores()))
    await agent.run(stop, owner)
    if watching is not None:
        watching.cancel()


async def _wait_eof(stop: asyncio.Event) -> None:
    """Stop when the standard input closes."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4_096):
        pass
    log.info("its standard input is closed: whatever started it has ended")
    stop.set()
