"""The port at which boards register and TVM programs request them: a TVM tracker, and a relay to the boards.

TVM's RPC has no authentication: a peer that reaches a board can run any program there. The port therefore refuses peers
outside this machine and the networks that the operator lists, before it reads a byte.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Sequence
from typing import Any, cast

from autosched.daemon.access.sockets import bind_tcp
from autosched.daemon.boards import rpc_handshake, tracker_messages
from autosched.daemon.boards.board_registry import LOOK_S, BoardRegistry, Server
from autosched.daemon.boards.board_sessions import BoardSessions
from autosched.daemon.boards.program_jobs import ProgramJobs
from autosched.daemon.boards.rpc_handshake import BadHandshake
from autosched.daemon.boards.session_relay import Connections, Line
from autosched.daemon.boards.tracker_messages import BadMessage, Plain, Put, Request, Update
from autosched.daemon.runtime import spawn
from autosched.errors import Refused

log = logging.getLogger(__name__)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

CONNECTIONS_MAX = 4_000
"""Maximum number of connections."""
CONNECTIONS_OF_PEER_MAX = 1_000
"""Maximum number of connections from one address."""
HELLO_S = 5.0
"""Seconds within which a peer sends its first message."""
IDLE_S = 600.0
"""Seconds after which an idle connection is closed; TVM programs reconnect."""
SILENT_S = 14
"""Seconds within which the loss of a peer's machine is detected."""
COMPLAIN_S = 60.0
"""Minimum seconds between two log messages about refused peers."""


class _Guarded(asyncio.StreamReaderProtocol):
    """Hangs up on refused peers before it reads anything."""

    def __init__(self, port: "TrackerPort") -> None:
        reader = asyncio.StreamReader(limit=tracker_messages.MESSAGE_BYTES_MAX)
        super().__init__(reader, port.accepted)
        self._port = port
        self._peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit or refuse a peer."""
        both_ways = cast(asyncio.Transport, transport)
        peer = str((both_ways.get_extra_info("peername") or ("",))[0])
        if not self._port.admits(peer):
            both_ways.abort()
            return
        self._peer = peer
        super().connection_made(both_ways)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the peer out."""
        if self._peer:
            self._port.left(self._peer)
            super().connection_lost(exc)


class TrackerPort:
    """The port and its connections."""

    def __init__(
        self, registry: BoardRegistry, sessions: BoardSessions, programs: ProgramJobs, networks: Sequence[Network]
    ) -> None:
        self._registry, self._sessions, self._programs, self._networks = registry, sessions, programs, networks
        self._peers: dict[str, int] = {}
        self._serving = Connections("a peer at the port for boards")
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self._refused, self._complained_at = 0, -COMPLAIN_S
        self.address = ""
        """HOST:PORT; empty before the port listens."""

    # Admission --------------------------------------------------------------------------------------------------------

    def admits(self, peer: str) -> bool:
        """Whether a peer is admitted; an admitted peer is counted."""
        known = self._knows(peer)
        full = sum(self._peers.values()) >= CONNECTIONS_MAX
        if not known or full or self._peers.get(peer, 0) >= CONNECTIONS_OF_PEER_MAX:
            self._complain(peer, "it is in none of boards.networks" if not known else "there are too many connections")
            return False
        self._peers[peer] = self._peers.get(peer, 0) + 1
        return True

    def _knows(self, host: str) -> bool:
        """Whether an address is that of this machine, or of a network that is admitted."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return address.is_loopback or any(address in network for network in self._networks)

    def _check_place(self, host: str | None) -> None:
        """Raises BadMessage if the daemon must not connect to the address that a server gives."""
        if host and not self._knows(host):
            raise BadMessage(f"a board at {host!r}: it must be an IP address of this machine or of boards.networks")

    def left(self, peer: str) -> None:
        """Count a closed connection out."""
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]

    def _complain(self, peer: str, why: str) -> None:
        self._refused += 1
        now = asyncio.get_running_loop().time()
        if now - self._complained_at >= COMPLAIN_S:
            log.warning("%s was refused at the port for boards: %s (%d in all)", peer, why, self._refused)
            self._complained_at = now

    # Life cycle -------------------------------------------------------------------------------------------------------

    async def open(self, host: str, port: int) -> None:
        """Listen. Raises ConfigError when the port is taken."""
        listening = bind_tcp("boards.listen", host, port)
        self._server = await asyncio.get_running_loop().create_server(lambda: _Guarded(self), sock=listening)
        name, number = listening.getsockname()[:2]
        self.address = f"[{name}]:{number}" if ":" in name else f"{name}:{number}"
        self._watch = spawn(self._look(), "silent boards")
        log.info("boards register themselves at %s", self.address)

    async def close(self) -> None:
        """Close all connections."""
        self._registry.closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._server is not None:
            self._server.close()
        await self._serving.close()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for server in list(self._registry.silent()):
                self._registry.lose(server, "its server has said nothing for a while, although it should")

    def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve an admitted peer."""
        self._serving.add(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer, SILENT_S)
        try:
            async with asyncio.timeout(HELLO_S):
                magic = await rpc_handshake.read_magic(reader)
                hello = await rpc_handshake.read_hello_key(reader) if magic == rpc_handshake.MAGIC else None
            if hello is not None:
                await self._sessions.serve(hello, line)
            elif magic == tracker_messages.MAGIC:
                writer.write(tracker_messages.greeting())
                await self._track(line, str(writer.get_extra_info("peername")[0]))
            else:
                raise BadMessage(f"it begins with no magic number of TVM: {magic:#x}")
        except (BadHandshake, BadMessage) as error:
            log.info("a peer at the port for boards is not understood: %s", error)
        except (OSError, EOFError, TimeoutError):
            pass  # it has hung up, or is silent
        finally:
            line.abort()

    # Messages ---------------------------------------------------------------------------------------------------------

    async def _track(self, line: Line, peer: str) -> None:
        """Answer the messages of a peer, one after the other."""
        server: Server | None = None
        why = "its server has hung up"
        try:
            while server is None or not server.lost:
                line.acknowledge_at_once()
                patience_s = None if server is not None else IDLE_S  # silent servers are found by `_look`
                async with asyncio.timeout(patience_s):
                    message = await tracker_messages.read_message(line.reader)
                if isinstance(message, Put):
                    if server is None:
                        self._check_place(message.host)
                        await self._registry.wait_free(message, peer)
                    server = self._registry.put(message, peer, server)
                if server is not None:
                    server.says(asyncio.get_running_loop().time())
                line.writer.write(await self._answer(message, server, line))
                async with asyncio.timeout(HELLO_S):
                    await line.writer.drain()
        except BadMessage as error:
            why = f"its server said what is not understood: {error}"
            raise
        except OSError as error:
            why = f"its machine does not answer: {error.strerror or error}"
            raise
        finally:
            if server is not None:
                self._registry.lose(server, why)

    async def _answer(self, message: tracker_messages.Message, server: Server | None, line: Line) -> bytes:
        match message:
            case Put() | Update():
                return tracker_messages.encoded(tracker_messages.SUCCESS)
            case Request():
                return await self._grant(message, line)
            case Plain(code=tracker_messages.PING):
                return tracker_messages.encoded(tracker_messages.SUCCESS)
            case Plain(code=tracker_messages.GET_PENDING_MATCHKEYS):
                pending = [server.matchkey] if server is not None and server.matchkey else []
                return tracker_messages.encoded(pending)
            case Plain(code=tracker_messages.STOP):
                return tracker_messages.encoded(tracker_messages.FAIL)
            case Plain(code=tracker_messages.SUMMARY):
                return self._summary()
        raise BadMessage(f"a message with the code {message.code}")

    async def _grant(self, wanted: Request, line: Line) -> bytes:
        """Wait for a board while the program stays connected."""
        peer = str(line.writer.get_extra_info("peername")[0])
        here = line.writer.get_extra_info("sockname")
        hung_up = asyncio.ensure_future(line.reader.read(1))
        try:
            kind = asyncio.ensure_future(self._programs.kind_of(wanted.key))
            await _first(kind, hung_up)
            asked = self._programs.ask(kind.result(), wanted.priority, peer)
            try:
                await _first(asked.granted, hung_up)
                return tracker_messages.granted(str(here[0]), int(here[1]), asked.granted.result())
            except BaseException:
                self._programs.withdraw(asked)
                raise
        except Refused as error:
            return tracker_messages.refused(str(error))
        finally:
            kind.cancel()
            hung_up.cancel()
            await asyncio.wait({hung_up})

    def _summary(self) -> bytes:
        servers = self._registry.servers
        queues = {}
        for key in sorted({one.key for one in servers}):
            free = sum(1 for one in servers if one.key == key and one.matchkey)
            queues[key] = free, self._programs.waiting(self._registry.kind(key))
        return tracker_messages.summary(queues, [(one.key, one.host, one.port) for one in servers])


async def _first(wanted: asyncio.Future[Any], hung_up: asyncio.Future[bytes]) -> None:
    """Wait for what is wanted. Raises EOFError when the peer hangs up before, BadMessage when it goes on to speak."""
    await asyncio.wait({wanted, hung_up}, return_when=asyncio.FIRST_COMPLETED)
    if not wanted.done():
        if hung_up.result():
            raise BadMessage("a request before the last one was answered")
        raise EOFError("it has hung up")
