"""The clients on an agent's machine: starts, watches and kills them with all their processes, and adopts those of an
earlier agent."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from autosched import file_names
from autosched.agent import client_door
from autosched.agent.client_door import ClientDoor
from autosched.errors import Refused
from autosched.launch import ClientOrder, client_note, sandbox
from autosched.launch.client_note import NOTE
from autosched.launch.job_folder import kill_strays, sweep
from autosched.launch.local import LocalLauncher
from autosched.launch.sandbox import Bounds
from autosched.process import control_group
from autosched.process.detached_process import Process
from autosched.protocol import HostedClient, StartHostClient
from autosched.wire import keys

log = logging.getLogger(__name__)

LOGS_KEPT = 200
"""Maximum number of folders of ended clients, each with its log."""
JOBS, CACHE, CACHES = "jobs", "cache", "caches"
"""Folders in the agent's state folder: of clients, and of data that backends keep for later jobs; of the latter one
for each owner whose jobs run apart."""


class ClientKeeper:
    """All clients on this machine."""

    def __init__(self, folder: Path, address: str, ended: Callable[[str, str], None]) -> None:
        """`address`: of the daemon; `ended`: called with the name of a client without any process left, and how it
        ended."""
        self._jobs, self._cache, self._address, self._ended = folder / JOBS, folder / CACHE, address, ended
        self._caches = folder / CACHES
        self.door = ClientDoor(folder, address)
        self._clients: dict[str, tuple[Process, str]] = {}  # with its temporary folder
        self._held: dict[str, int] = {}
        """Bytes of memory of each client, as measured last."""
        self._watching: set[asyncio.Task[None]] = set()
        hidden = [folder, *(Path(path) for path in [os.environ.get(keys.FILE_VARIABLE, "")] if path)]
        self.launcher = LocalLauncher(bounds=Bounds(hidden=tuple(hidden), readable=(folder / client_door.FOLDER,)))

    @property
    def folder(self) -> Path:
        """Folder of all clients' folders, by which their processes are recognised."""
        return self._jobs

    @property
    def names(self) -> tuple[str, ...]:
        """Names of clients that may have processes."""
        return tuple(self._clients)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the clients."""
        return tuple(process.pid for process, _ in self._clients.values())

    def alive(self) -> tuple[HostedClient, ...]:
        """The clients with their memory, as it was measured last."""
        clients = self._clients.items()
        return tuple(HostedClient(name, self._held.get(name) or one.memory_bytes) for name, (one, _) in clients)

    def measure(self) -> None:
        """Measure the memory of all clients. Takes milliseconds for each gigabyte, so that a thread is to call it."""
        self._held = {name: process.exact_memory_bytes for name, (process, _) in list(self._clients.items())}

    def adopt(self) -> None:
        """Adopt living clients of an earlier agent; kill the processes of all others."""
        self._jobs.mkdir(parents=True, exist_ok=True)
        spared = []
        for path in sorted(self._jobs.glob(f"*/{NOTE}")):
            folder, note = path.parent, client_note.read(path.parent)
            process = client_note.adopt(note, folder) if note is not None else None
            if note is not None and process is not None:
                spared.append(folder)
                self._keep(folder.name, process, note.temporary)
            else:
                self._clear(folder, note.temporary if note is not None else "")
        if strays := kill_strays(self._jobs, spared):
            log.warning("killed what clients of an earlier agent left behind: %s", strays)
        if (groups := control_group.delegated()) is not None:
            groups.clear(self.pids)
        if spared:
            log.info("took over %d clients of an earlier agent", len(spared))

    def start(self, name: str, wanted: StartHostClient) -> None:
        """Start a client, or a helper of a client on another host. Raises OSError, and Refused if it cannot run apart
        but must."""
        folder, cache, address = self._jobs / name, self._cache, self._address
        if apart := bool(wanted.apart_for) and self._can_be_apart(wanted):
            cache, address = self._caches / file_names.made_from(wanted.apart_for), self.door.address
        order = ClientOrder(
            wanted.job, address, wanted.token, folder, cache, wanted.cache_bytes_max, wanted.memory_bytes_max,
            wanted.tasks_max, wanted.helps, apart,
        )  # fmt: skip
        launched = self.launcher.launch(order)
        client_note.leave(folder, client_note.note_of(launched, order))
        self._keep(name, launched.process, launched.temporary)

    def _can_be_apart(self, wanted: StartHostClient) -> bool:
        """Whether a client can run apart. Raises Refused if it cannot but must."""
        why = sandbox.unavailable() if self.door.address else "the agent reaches its daemon by a unix socket"
        if why and wanted.apart_only:
            raise Refused(f"jobs of users cannot run apart there: {why}")
        if why:
            log.warning(
                "the job of %s runs as this agent's own user, and can do what that user can: %s", wanted.apart_for, why
            )
        return not why

    def _keep(self, name: str, process: Process, temporary: str) -> None:
        self._clients[name] = process, temporary
        task = asyncio.get_running_loop().create_task(self._watch(name, process, temporary))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _watch(self, name: str, process: Process, temporary: str) -> None:
        how, folder = await process.wait(), self._jobs / name
        await asyncio.to_thread(kill_strays, folder)
        await asyncio.to_thread(self._clear, folder, temporary)
        del self._clients[name]
        await asyncio.to_thread(self._forget_old, self.names)
        log.info("client %s has ended: %s", name, how)
        self._ended(name, how)

    def _forget_old(self, alive: Collection[str]) -> None:
        """Remove the oldest logs."""
        over = [folder for folder in self._jobs.iterdir() if folder.name not in alive]
        for folder in sorted(over, key=_changed_at)[:-LOGS_KEPT]:
            shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def _clear(folder: Path, temporary: str) -> None:
        """Remove a client's files except logs."""
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
        client_note.tear(folder)
        sweep(folder)

    def kill(self, name: str) -> None:
        """Kill a client, if there is one of this name; its end is reported later."""
        if (known := self._clients.get(name)) is not None:
            known[0].kill()

    async def kill_all(self) -> None:
        """Kill all clients; returns when no process of them is left."""
        for name in self.names:
            self.kill(name)
        await asyncio.gather(*self._watching)


def _changed_at(folder: Path) -> float:
    """Time of a folder's last change; 0 if it does not exist."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
