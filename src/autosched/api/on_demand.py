"""Connects to the chosen daemon; starts a private one if none runs, and stops it."""

import asyncio
import os
import select
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from autosched import user_folders
from autosched.api.connection import Daemon
from autosched.api.daemon_address import default, named, own
from autosched.config import STATE_VARIABLE, Config, DaemonConfig, usable_cores
from autosched.errors import DaemonUnreachable, Refused, RequestError
from autosched.model import device_kind
from autosched.process import detached_process, isolated_python
from autosched.protocol import (
    Done,
    Shutdown,
    UnitView,
)
from autosched.wire.address import UNIX

ON_DEMAND_START_S = 30.0
"""Maximum seconds until a started daemon answers."""
STOP_TIMEOUT_S = 15.0
"""Maximum seconds for an idle daemon to stop."""
LOG_TAIL_LINES, LOG_LINE_CHARS = 10, 300
LOG_NAME = "daemon.log"
COMMAND = tuple(isolated_python.command("autosched", "serve", "--on-demand"))
Told = Callable[[str], None]
"""Called with a sentence about the present activity, for people."""


@asynccontextmanager
async def connected(
    daemon: str | None = None, *, start: bool = True, told: Told | None = None, serve: Sequence[str] = (),
    cores: int | None = None,
) -> AsyncIterator[Daemon]:  # fmt: skip
    """A connection to the daemon that is meant; this user's own is started if it does not run and `start` is true.

    `serve`: options of `autosched serve` for the one that is started. `cores`: number of cores that its device is to
    have; a private daemon that has no such device and nothing to do is replaced by one that has.
    """
    chosen = named(daemon)
    words = [*serve, *(["--cores", str(cores)] if cores is not None else [])]
    try:
        connection = await Daemon.connect(chosen or default())
        if cores is not None and chosen is None and await _replaceable(connection, cores):
            _check_cores(cores)
            if told is not None:
                told(f"The private daemon has nothing to do, and no device of {_cores(cores)}: starting another one.")
            await _stopped(connection)
            connection = await start_on_demand(own(), Config().state_dir, words)
    except DaemonUnreachable:
        if chosen is not None or not start:
            raise
        _check_cores(cores)
        if told is not None:
            told(f"No daemon at {own()}: starting a private one; it ends when it has nothing to do.")
        connection = await start_on_demand(own(), Config().state_dir, words)
    try:
        yield connection
    finally:
        connection.close()


def kind_of_cores(units: Sequence[UnitView], kind: str, cores: int | None) -> str:
    """The kind of device for a number of cores: `kind` if its devices have this number, otherwise another kind that
    has.

    Raises RequestError if there is none.
    """
    counts = _cores_of_kinds(units)
    if cores is None or counts.get(kind) == {cores}:
        return kind
    if fitting := sorted(name for name, found in counts.items() if found == {cores}):
        return fitting[0]
    there = ", ".join(f"{name} ({', '.join(map(_cores, sorted(found)))})" for name, found in sorted(counts.items()))
    raise RequestError(
        f"no device of the daemon that runs has {_cores(cores)}; there are: {there or 'none'}. Stop the daemon when its"
        " jobs are done (autosched stop) and try again, or list such a device in its settings: [[device]]"
    )


def _check_cores(cores: int | None) -> None:
    """Raise RequestError unless a daemon on this machine can have a device with this number of cores."""
    if cores is not None and cores > (usable := len(usable_cores())):
        raise RequestError(f"{_cores(cores)} are asked for, and this process may use {usable}. Give --cores {usable}")


def _cores(count: int) -> str:
    return f"{count} core{'' if count == 1 else 's'}"


def _cores_of_kinds(units: Sequence[UnitView]) -> dict[str, set[int]]:
    """Numbers of cores of the devices of each kind."""
    counts: dict[str, set[int]] = {}
    for unit in units:
        for pool in unit.pools:
            if kind := device_kind(pool):
                counts.setdefault(kind, set()).add(len(unit.cores))
    return counts


async def _replaceable(daemon: Daemon, cores: int) -> bool:
    """Whether a daemon that was started for one command is idle and has no device with this number of cores."""
    if any(found == {cores} for found in _cores_of_kinds(await daemon.units()).values()):
        return False
    info = await daemon.info()
    return info.on_demand and info.jobs_active == 0


async def _stopped(daemon: Daemon) -> None:
    """Stop a daemon on this machine, and wait for the end of its process. Raises DaemonUnreachable."""
    pid = (await daemon.info()).pid
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            await daemon.link.call(Shutdown(), Done)
            daemon.close()
            ended: list[int] = (await asyncio.to_thread(select.select, [process], [], [], STOP_TIMEOUT_S))[0]
        finally:
            os.close(process)
        if not ended:
            raise Refused(
                f"the private daemon (process {pid}) does not end within {STOP_TIMEOUT_S:.0f} s, so no other one can be"
                " started. See what is wrong with it: autosched doctor"
            )


@asynccontextmanager
async def separate(
    state_dir: Path, words: Sequence[str] = (), *, socket: str = "", start: bool = True
) -> AsyncIterator[Daemon]:
    """A connection to a separate daemon with this state folder; it is started if it does not run and `start` is true.

    `words`: options of `autosched serve`. `socket`: the one in its settings; empty if they name none.
    """
    address = f"{UNIX}{Config(daemon=DaemonConfig(state_dir=str(state_dir), socket=socket)).socket}"
    try:
        connection = await Daemon.connect(address)
    except DaemonUnreachable:
        if not start:
            raise
        connection = await start_on_demand(address, state_dir, words, variables={STATE_VARIABLE: str(state_dir)})
    try:
        yield connection
    finally:
        connection.close()


async def start_on_demand(
    address: str,
    state_dir: Path,
    words: Sequence[str] = (),
    *,
    timeout_s: float = ON_DEMAND_START_S,
    variables: Mapping[str, str] | None = None,
) -> Daemon:
    """Start a private daemon that survives this process, and wait until it answers. `words`: options of `serve`.
    `variables`: further variables of its environment.

    It stops when it is idle. Its output goes to a log file in the state folder. Raises DaemonUnreachable with the last
    lines of the log if it does not answer.
    """
    log = state_dir / LOG_NAME
    try:
        process = _spawn(log, words, variables or {})
    except OSError as error:
        raise DaemonUnreachable(
            f"no daemon runs, and none can be started: {error.filename or state_dir}: {error.strerror}."
            " Choose another folder for its state, for example: XDG_STATE_HOME=/path autosched ..."
        ) from None
    deadline_at = asyncio.get_running_loop().time() + timeout_s
    while asyncio.get_running_loop().time() < deadline_at:
        try:
            return await Daemon.connect(address)
        except DaemonUnreachable:
            if process.poll() is not None:  # it died, or another daemon was faster and may answer by now
                break
            await asyncio.sleep(0.05)
    try:
        return await Daemon.connect(address)
    except DaemonUnreachable:
        how = f"ended with exit code {process.poll()}" if process.poll() is not None else "does not answer"
        raise DaemonUnreachable(
            f"a private daemon was started but {how}. The end of its log, {log}:\n{tail(log)}"
            "\nSee what is wrong with this machine: autosched doctor"
        ) from None


def _spawn(log: Path, words: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment = isolated_python.environment(variables)
    if chosen := environment.get(STATE_VARIABLE):  # may be relative to the current folder, which is not the daemon's
        environment[STATE_VARIABLE] = str(user_folders.expanded(chosen))
    return detached_process.start([*COMMAND, *words], environment, log, log.parent)


def tail(log: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a log file, indented."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            text = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"  ({error.strerror})"
    return "\n".join(f"  {line[:LOG_LINE_CHARS]}" for line in text[-lines:]) or "  (empty)"
