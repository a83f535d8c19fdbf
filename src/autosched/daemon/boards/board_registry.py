"""Registry of the boards that register themselves as with TVM's tracker, and the keys of their next sessions.

A server that waits for a session sends the session's key (PUT), and asks every two seconds whether the key is still
unused. While it serves a session it sends nothing; then it sends another key. A server is gone when its connection
closes, when it waits and sends nothing, or when its machine does not answer.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count

from autosched.config import BoardConfig
from autosched.core.events import BoardGone, BoardJoined, Event
from autosched.daemon.boards.tracker_messages import BadMessage, Put
from autosched.daemon.runtime import Runtime
from autosched.device_probe import Unwell
from autosched.model import DEVICE_POOL, PoolName, RpcServer, Unit, UnitName, device_kind

log = logging.getLogger(__name__)

SILENT_S = 7.0
"""Maximum seconds between two messages of a waiting server, which sends one every two seconds."""
LOOK_S = 1.0
"""Seconds between two checks for silent servers."""
NAME_CHARS = 180
"""Maximum number of characters of a board's name, without its number."""
BOARDS_MAX = 1_000
"""Maximum number of registered boards."""


@dataclass(eq=False)
class Server:
    """A registered server, while its connection lasts."""

    unit: UnitName
    key: str
    host: str
    port: int
    heard_at: float
    matchkey: str = ""
    """Key of the server's next session; empty while it serves or begins one."""
    serves: bool = False
    """Whether the server serves a session, during which it sends nothing."""
    lost: str = ""
    """Why the server is gone; empty while it is connected."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server waits for a session, and when it is gone."""

    def says(self, now: float) -> None:
        """Note a message of the server. A server sends none while it serves a session."""
        self.heard_at, self.serves = now, False


class BoardRegistry:
    """All boards that register themselves."""

    def __init__(
        self,
        runtime: Runtime,
        kinds: Iterable[BoardConfig],
        hooks: dict[UnitName, Sequence[str]],
        sick: Callable[[UnitName, str], None],
    ) -> None:
        """`hooks`: filled with the reboot commands of boards whose kind has one. `sick`: called with a board that is
        gone and can be rebooted, and the reason."""
        self._runtime, self._hooks, self._sick = runtime, hooks, sick
        self.closed = False
        """Whether the daemon is stopping, so that closed connections are no fault of boards."""
        self._kinds = {one.kind: one for one in kinds}
        self._servers: dict[UnitName, Server] = {}

    def resume(self) -> None:
        """Restore the reboot commands of boards that registered with the earlier daemon."""
        for name, board in self._runtime.state.boards.items():
            self._note_hook(name, device_kind(board.pool))

    # Servers ----------------------------------------------------------------------------------------------------------

    @property
    def servers(self) -> tuple[Server, ...]:
        """All connected servers."""
        return tuple(self._servers.values())

    def put(self, said: Put, peer: str, before: Server | None) -> Server:
        """Note that a server waits for a session. `peer`: its address; `before`: the server that this connection has
        registered earlier. Raises BadMessage."""
        host = said.host or peer
        if before is not None and (before.key, before.host, before.port) != (said.key, host, said.port):
            raise BadMessage("a server that becomes another one")
        server = before or self._registered(said.key, host, said.port)
        server.says(self._clock())
        server.matchkey = said.matchkey
        server.changed.set()
        return server

    def lose(self, server: Server, why: str) -> None:
        """Remove a server that is gone."""
        if server.lost:
            return
        server.lost, server.matchkey = why, ""
        server.changed.set()
        if self._servers.get(server.unit) is server:
            del self._servers[server.unit]
            if not self.closed:
                self._runtime.tell(lambda: self._gone(server))

    def silent(self) -> Iterator[Server]:
        """Servers that wait and have been silent for too long."""
        now = self._clock()
        return (one for one in self.servers if not one.serves and now - one.heard_at > SILENT_S)

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()

    def _registered(self, key: str, host: str, port: int) -> Server:
        kind = self.kind(key)
        name = self._name(kind, host, port)
        if (older := self._servers.get(name)) is not None:
            self.lose(older, "it has another connection")
        server = self._servers[name] = Server(name, key, host, port, self._clock())
        target = self._kinds[kind].target if kind in self._kinds else ""
        unit = Unit(name, accelerator=RpcServer(f"{host}:{port}", key, target))
        self._note_hook(name, kind)
        self._runtime.tell(lambda: self._joined(server, unit, DEVICE_POOL + kind))
        return server

    def kind(self, key: str) -> str:
        """The kind of device for boards with a key. A kind of other devices is not shared with boards."""
        kind = re.sub(r"[^a-z0-9_.\-]", "-", key.lower()).lstrip("_.-") or "board"
        queue = self._runtime.state.queues.get(DEVICE_POOL + kind)
        if queue is not None and not queue.pool.units[0].is_board:
            return f"{kind}.board"
        return kind

    def _name(self, kind: str, host: str, port: int) -> UnitName:
        """The earlier name of a board, or a new one. Raises BadMessage when there are too many boards."""
        slots, boards = self._runtime.state.slots, self._runtime.state.boards
        address = f"{host}:{port}"
        for name, slot in slots.items():  # boards of the settings included
            device = slot.unit.accelerator
            if isinstance(device, RpcServer) and device.address == address and _is_in(slot.places, kind):
                return name
        first = f"{kind}-{host}"[:NAME_CHARS]
        for name in chain([first], (f"{first}-{number}" for number in count(2))):
            if name in self._servers:
                continue
            if (board := boards.get(name)) is not None and board.pool == DEVICE_POOL + kind:
                return name
            if name not in slots:
                break
        if len(boards) >= BOARDS_MAX:
            raise BadMessage(f"there are {BOARDS_MAX} boards already")
        return name

    def _note_hook(self, name: UnitName, kind: str) -> None:
        if kind in self._kinds and self._kinds[kind].reboot:
            self._hooks.setdefault(name, self._kinds[kind].reboot)

    def _joined(self, server: Server, unit: Unit, pool: PoolName) -> Event | None:
        state = self._runtime.state
        known = state.boards.get(unit.name)
        if server.lost or (known is not None and not known.gone and known.unit == unit):
            return None
        if known is None and unit.name in state.slots:
            return None  # the settings list it
        log.info("board %s is there, at %s:%d", unit.name, server.host, server.port)
        return BoardJoined(unit, pool)

    def _gone(self, server: Server) -> Event | None:
        known = self._runtime.state.boards.get(server.unit)
        if known is None or known.gone or server.unit in self._servers:
            return None
        if server.unit in self._hooks:
            self._sick(server.unit, f"it is gone: {server.lost}")
        return BoardGone(server.unit, server.lost)

    # Sessions ---------------------------------------------------------------------------------------------------------

    def knows(self, unit: UnitName) -> bool:
        """Whether the board registers itself, so that its next session needs a key from it."""
        return unit in self._servers or unit in self._runtime.state.boards

    async def claim(self, unit: UnitName, patience_s: float) -> RpcServer:
        """Take the key of a board's next session; returns the server's address with that key. Waits at most
        `patience_s` for the key. Raises Unwell."""
        until = self._clock() + patience_s
        while (server := self._servers.get(unit)) is None or not server.matchkey:
            left_s = until - self._clock()
            if server is None or left_s <= 0:
                raise Unwell("its server is gone" if server is None else "its server does not wait for a session")
            server.changed.clear()
            try:
                async with asyncio.timeout(left_s):
                    await server.changed.wait()
            except TimeoutError:
                continue
        key, server.matchkey, server.serves = server.matchkey, "", True
        return RpcServer(f"{server.host}:{server.port}", key)

    def released(self, unit: UnitName) -> None:
        """Expect messages again from a board whose session is over."""
        if (server := self._servers.get(unit)) is not None:
            server.says(self._clock())


def _is_in(places: Sequence[tuple[PoolName, int]], kind: str) -> bool:
    return any(pool == DEVICE_POOL + kind for pool, _ in places)
