"""Registry of the boards that register themselves as with TVM's tracker, and the keys of their next sessions.

A server that waits for a session sends the session's key (PUT), and asks every two seconds whether the key is still
unused. While it serves a session it sends nothing; then it sends another key. A server is gone when its connection
closes, when it waits and sends nothing, or when its machine does not answer.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count

from autosched.config import BoardConfig, loopback
from autosched.core.events import BoardForgotten, BoardGone, BoardJoined, Event
from autosched.daemon.boards.tracker_messages import BadMessage, Put
from autosched.daemon.event_stream.daemon_events import DeviceUnreachable
from autosched.daemon.runtime import Runtime
from autosched.device_probe import Unwell
from autosched.errors import NotFound, Refused
from autosched.model import DEVICE_POOL, PoolName, RpcServer, Unit, UnitName, device_kind

log = logging.getLogger(__name__)

SILENT_S = 7.0
"""Maximum seconds between two messages of a waiting server, which sends one every two seconds."""
LOOK_S = 1.0
"""Seconds between two checks for silent servers."""
NAME_CHARS = 180
"""Maximum number of characters of a board's name, without its number."""
BOARDS_MAX, BOARDS_OF_PEER_MAX = 1_000, 100
"""Maximum number of boards, and of those that one machine has registered. Further ones replace boards that are gone."""
TAKEN_S = 2 * SILENT_S
"""Seconds within which an earlier connection of a board is known to be dead or alive."""
TAKEN_LOOK_S = 0.25


@dataclass(eq=False)
class Server:
    """A registered server, while its connection lasts."""

    unit: UnitName
    key: str
    host: str
    port: int
    peer: str
    """Address of the machine that has registered it."""
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
    ) -> None:
        """`hooks`: filled with the reboot commands of boards whose kind has one."""
        self._runtime, self._hooks = runtime, hooks
        self.closed = False
        """Whether the daemon is stopping, so that closed connections are no fault of boards."""
        self._kinds = {one.kind: one for one in kinds}
        self._servers: dict[UnitName, Server] = {}
        self._peers: dict[UnitName, str] = {}
        """Address of the machine that has registered each board last, since the start."""

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
        server = before or self._registered(said.key, host, said.port, peer)
        server.says(self._clock())
        server.matchkey = said.matchkey
        server.changed.set()
        return server

    async def wait_free(self, said: Put, peer: str) -> None:
        """Wait until no other connection has registered the board and is alive. Raises BadMessage if one is.

        A board that connects from its own address, or from that of the earlier connection, is believed at once, unless
        the users of this machine share the address.
        """
        host = said.host or peer
        if (older := self._server_at(host, said.port)) is None:
            return
        if not loopback(peer) and peer in (host, older.peer):
            return
        heard_at, until = older.heard_at, self._clock() + TAKEN_S
        while not older.lost:
            if older.heard_at > heard_at or self._clock() > until:
                raise BadMessage(f"another connection has registered the board at {host}:{said.port}, and is alive")
            await asyncio.sleep(TAKEN_LOOK_S)

    def _server_at(self, host: str, port: int) -> Server | None:
        return next((one for one in self._servers.values() if (one.host, one.port) == (host, port)), None)

    async def forget(self, unit: UnitName) -> None:
        """Forget a board that is gone. Raises NotFound and Refused."""

        def forgotten() -> Event:
            boards = self._runtime.state.boards
            if unit not in boards:
                raise NotFound(f"no board {unit!r} has registered itself; there are: {', '.join(boards) or 'none'}")
            if why := self._needed(unit):
                raise Refused(f"{unit} cannot be forgotten: {why}")
            return BoardForgotten(unit)

        await self._runtime.post(forgotten)
        self._peers.pop(unit, None)

    def _needed(self, unit: UnitName) -> str:
        """Why a board cannot be forgotten; empty if it can."""
        state = self._runtime.state
        board, kind = state.boards[unit], device_kind(state.boards[unit].pool)
        if not board.gone or unit in self._servers:
            return "it is there; end its server first"
        if state.slots[unit].holder is not None:
            return "a step holds it"
        if len(state.queues[board.pool].pool.units) > 1:
            return ""
        waiting = next((job for job in state.active if state.jobs[job].spec.device == kind), None)
        return "" if waiting is None else f"job {waiting} waits for the last device of the kind {kind}"

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

    def _registered(self, key: str, host: str, port: int, peer: str) -> Server:
        kind = self.kind(key)
        name = self._name(kind, host, port, peer)
        if (older := self._servers.get(name)) is not None:
            self.lose(older, "it has another connection")
        server = self._servers[name] = Server(name, key, host, port, peer, self._clock())
        self._peers[name] = peer
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

    def _name(self, kind: str, host: str, port: int, peer: str) -> UnitName:
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
        self._make_room(peer)
        return name

    def _make_room(self, peer: str) -> None:
        """Forget a board that is gone if there are too many: one of the machine that registers another, or of the
        machine that has registered the most. Raises BadMessage if all are needed."""
        boards = self._runtime.state.boards
        by_peer: dict[str, list[UnitName]] = {}
        for name, board in boards.items():
            device = board.unit.accelerator
            host = device.address.rpartition(":")[0] if isinstance(device, RpcServer) else ""
            by_peer.setdefault(self._peers.get(name, host), []).append(name)
        crowd = by_peer.get(peer, [])
        if len(crowd) < BOARDS_OF_PEER_MAX:
            if len(boards) < BOARDS_MAX:
                return
            crowd = max(by_peer.values(), key=len)
        gone = [name for name in crowd if not self._needed(name)]
        if not gone:
            raise BadMessage(f"there are {len(boards)} boards already, {len(by_peer.get(peer, []))} of this machine")
        oldest = min(gone, key=lambda name: boards[name].gone_at)
        self._peers.pop(oldest, None)
        self._runtime.tell(lambda: self._forgotten(oldest))

    def _forgotten(self, unit: UnitName) -> Event | None:
        return BoardForgotten(unit) if unit in self._runtime.state.boards and not self._needed(unit) else None

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
            self._runtime.stream.publish(DeviceUnreachable(server.unit, f"it is gone: {server.lost}"))
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
