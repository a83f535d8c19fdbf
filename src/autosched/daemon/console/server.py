"""Connections of the console: reads lines and writes answers.

An answer is a status line, `OK ...` or `ERR code ...`, then lines, then a line with a dot; a line that begins with a
dot gets one more, as in SMTP. Every wait has a deadline, and a slow reader cannot delay the daemon.
"""

import asyncio
import contextlib
import hmac
import logging
import re
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable, Sequence
from difflib import get_close_matches
from functools import partial

import msgspec
from msgspec import Struct

from autosched import formatting
from autosched.config import Config, ConsoleConfig
from autosched.daemon.access import endpoints, peer_identity, sockets
from autosched.daemon.access.acceptor import Acceptor, Connection, Places
from autosched.daemon.access.authenticator import FAILED_S, HELLO_S, Authenticator
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.console.command import Said
from autosched.daemon.console.commands import ALL, COMMANDS, OPTIONS
from autosched.daemon.console.line_parser import SYNONYMS, Line, as_typed_here, commands
from autosched.daemon.event_stream.daemon_events import DaemonEvent, Dropped
from autosched.daemon.event_stream.stream import Filter
from autosched.daemon.operations.user_session import Services, UserSession
from autosched.daemon.runtime import spawn
from autosched.errors import AutoschedError, Busy, Refused, RequestError, misfit
from autosched.protocol import Method
from autosched.protocol.roles import Role, at_most
from autosched.text.visible import one_line, visible_json
from autosched.version import __version__
from autosched.wire.address import TCP

log = logging.getLogger(__name__)

LINE_BYTES_MAX = 4_096
PLACES = Places(32, 8, "the console", "as many as one gets at the console")
"""Places of one listener. Connections over the network cannot use those of the unix socket."""
STRANGER_S, IDLE_S = 60.0, 3_600.0
"""Seconds that a connection may be silent, before it is authenticated and after."""
ANSWER_S = 30.0
"""Seconds within which the daemon must answer."""
WRITE_S = 30.0
"""Seconds for which a peer may leave an answer unread."""
CLOSE_S = 5.0
"""Seconds for which a peer may leave unread what is written when its connection ends."""
BUFFER_BYTES_MAX = 64 * 1024
HTTP = re.compile(r"[A-Za-z]+ \S+ HTTP/\d")
"""First line of a request of HTTP."""
USAGE = "type help"
WHAT = "the console"


class Console:
    """The console's listeners and connections."""

    def __init__(
        self, config: ConsoleConfig, group: int | None, services: Services, authenticator: Authenticator
    ) -> None:
        self._config, self._group, self._services, self._authenticator = config, group, services, authenticator
        self._listeners: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self._work: dict[asyncio.Task[None], None] = {}

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of the listeners: unix:PATH, HOST:PORT, tls://HOST:PORT."""
        return tuple(_address(listener, tls is not None) for listener, tls in self._listeners)

    def listen(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept connections from a socket until `close`."""
        self._listeners.append((listener, tls))
        acceptor = Acceptor(self._authenticator.failures, lambda: PLACES)
        self._do(self._accept(listener, tls, acceptor), "accepting consoles")

    async def close(self) -> None:
        """End all connections and listeners."""
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    def _do(self, work: Coroutine[None, None, None], name: str) -> None:
        task = spawn(work, name)
        self._work[task] = None
        task.add_done_callback(lambda done: self._work.pop(done, None))

    async def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None, acceptor: Acceptor) -> None:
        async for connection in acceptor.connections(listener, _sorry if tls is None else None):
            self._do(self._attend(connection, tls, acceptor), "a console")

    async def _attend(self, connection: Connection, tls: ssl.SSLContext | None, acceptor: Acceptor) -> None:
        """Serve one connection until its end."""
        try:
            with contextlib.suppress(OSError):  # the TLS handshake fails
                reader, writer = await _opened(connection.sock, tls)
                peer = ConsoleConnection(reader, writer, self._services, self._authenticator, connection.host)
                peer.take_place = partial(_take_place, acceptor, connection)
                await self._serve(peer, None if tls is not None else connection.sock)
        finally:
            acceptor.leave(connection)

    async def _serve(self, peer: "ConsoleConnection", local: socket.socket | None) -> None:
        try:
            if local is not None and (who := await self._local_principal(local)) is not None:
                peer.set_identity(who)
            await peer.serve()
        except Busy as error:
            with contextlib.suppress(OSError, TimeoutError):
                await peer.answer(f"ERR {error.code} {error}")
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the peer has disconnected, or does not read
        except asyncio.LimitOverrunError:
            with contextlib.suppress(OSError, TimeoutError):
                await peer.answer(f"ERR request a line of more than {LINE_BYTES_MAX} bytes; {USAGE}")
        finally:
            await peer.disconnect()

    async def _local_principal(self, sock: socket.socket) -> Principal | None:
        """The user that the kernel names, with at most the role of the socket; None if a key is needed."""
        if sock.family != socket.AF_UNIX:
            return None
        uid = peer_identity.peer_uid(sock)
        try:
            role = at_most(await peer_identity.local_role(uid, self._group), Role(self._config.role))
        except Refused:
            return None
        return peer_identity.user(uid, role, "the console's socket")


def open_console(
    config: Config,
    passed: Sequence[socket.socket],
    held: contextlib.ExitStack,
    services: Services,
    authenticator: Authenticator,
) -> Console:
    """Listen at the addresses of the settings, and on sockets passed by systemd. `held` closes the console. Raises
    ConfigError."""
    group = peer_identity.group_id(config.daemon.group)
    console = Console(config.console, group, services, authenticator)
    listeners: list[socket.socket] = [held.enter_context(listener) for listener in passed]
    kinds = {listener.family == socket.AF_UNIX for listener in listeners}
    if True not in kinds:
        path = config.console_socket
        listeners.insert(0, sockets.own_unix(path, held))
        if group is not None:
            endpoints.share(path, group, config)
    if False not in kinds and (where := config.console_listen()) is not None:
        listeners.append(held.enter_context(sockets.bind_tcp("console.listen", *where)))
    protected = [
        (listener, None if listener.family == socket.AF_UNIX else endpoints.tls_for_others(config, listener, WHAT))
        for listener in listeners
    ]
    for listener, tls in protected:
        console.listen(listener, tls)
    return console


async def _opened(sock: socket.socket, tls: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Streams of an accepted connection, after the TLS handshake. Raises OSError if the handshake takes too long."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, sock, ssl=tls, ssl_handshake_timeout=HELLO_S if tls is not None else None
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _take_place(acceptor: Acceptor, connection: Connection, who: Principal) -> None:
    acceptor.check(who)
    acceptor.know(connection, who)


def _address(listener: socket.socket, tls: bool) -> str:
    if listener.family == socket.AF_UNIX:
        return sockets.unix_address(listener)
    return sockets.tcp_address(listener, tls=tls).removeprefix(TCP)


def _sorry(why: str) -> bytes:
    return f"ERR busy {why}\n.\n".encode()


class ConsoleConnection:
    """One connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        services: Services,
        authenticator: Authenticator,
        host: str,
    ) -> None:
        """`host`: address of the other machine, empty for this one."""
        self._reader, self._writer, self._host = reader, writer, host
        self._services, self._authenticator = services, authenticator
        self.who: Principal | None = None
        self.take_place: Callable[[Principal], None] = lambda who: None
        """Called when the peer has authenticated. Raises Busy if there is no place for it."""
        writer.transport.set_write_buffer_limits(BUFFER_BYTES_MAX)

    def set_identity(self, who: Principal) -> None:
        """Set the authenticated user. Raises Busy if there is no place for him."""
        self.take_place(who)
        self.who = who

    async def disconnect(self) -> None:
        """End the connection, after the peer has read what was written, within a deadline."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()

    async def answer(self, first: str, lines: Iterable[str] = ()) -> None:
        """Write an answer. Raises TimeoutError if the peer does not read it."""
        shown = (one_line(line) for line in lines)
        text = "".join(f"{'.' if line.startswith('.') else ''}{line}\n" for line in shown)
        await self._write(f"{one_line(first).rstrip()}\n{text}.\n")

    async def _write(self, text: str) -> None:
        self._writer.write(text.encode(errors="replace"))
        async with asyncio.timeout(WRITE_S):
            await self._writer.drain()

    async def serve(self) -> None:
        """Greet, then answer line by line until one side ends the connection."""
        uptime = formatting.duration(self._services.runtime.clock() - self._services.runtime.timeline.began_at)
        role = self.who.role.value if self.who is not None else "none"
        await self._write(
            f"# autosched {__version__} {socket.gethostname()} uptime {uptime} role={role}   help | quit\n"
        )
        async with asyncio.timeout(STRANGER_S if self.who is None else IDLE_S):
            text = await self._line()
        if text is not None and HTTP.match(text):
            return  # a page of another site would have its browser type here
        while True:
            if text is None or not await self._obey(text) or self._guesses:
                return
            async with asyncio.timeout(STRANGER_S if self.who is None else IDLE_S):
                text = await self._line()

    @property
    def _guesses(self) -> bool:
        """Whether the peer's machine has sent too many wrong keys."""
        failures, now = self._authenticator.failures, asyncio.get_running_loop().time()
        return self.who is None and bool(self._host) and failures.banned(self._host, now)

    async def _line(self) -> str | None:
        """The next line; None at the end."""
        try:
            raw = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            raw = error.partial  # `printf jobs | nc`: the last line may lack its end
            if not raw:
                return None
        return raw.decode(errors="replace").strip("\r\n\0 \t")

    async def _obey(self, text: str) -> bool:
        """Run the commands of a line, each with its own answer; returns False if the peer says goodbye."""
        try:
            lines = list(commands(text, OPTIONS))
        except AutoschedError as error:
            await self._refuse(error)
            return True
        for line in lines:
            if line.name in ("quit", "exit"):
                await self.answer("OK goodbye")
                return False
            try:
                await self._one(line)
            except AutoschedError as error:
                await self._refuse(error)
        return True

    async def _one(self, line: Line) -> None:
        match line.name:
            case "help" | "?":
                await self.answer("OK", _help(line.words))
            case "auth":
                await self._auth(line)
            case "monitor":
                await self._monitor(line)
            case name if (command := ALL.get(name)) is not None:
                if line.words[:1] == ("?",):
                    return await self.answer("OK", _help((name,)))
                try:
                    async with asyncio.timeout(ANSWER_S):
                        said = await command.run(self._ask, line)
                except TimeoutError:
                    raise Busy(f"no answer within {ANSWER_S:g} s; why may stand in: slowlog, status storage") from None
                await self._say(line, said)
            case name:
                near = get_close_matches(name, [*COMMANDS, "monitor", "auth", "quit"], 1)
                raise RequestError(
                    f"there is no command {name[:40]!r}; {f'did you mean {near[0]}?' if near else USAGE}"
                )

    async def _say(self, line: Line, said: Said) -> None:
        if line.json:
            value = said.value if said.value is not None else said.first
            encoded = msgspec.json.encode({"schema": 1, said.key: value}, enc_hook=str)
            return await self.answer("OK", [visible_json(encoded.decode())])
        await self.answer(f"OK {as_typed_here(said.first)}", map(as_typed_here, said.lines))

    async def _refuse(self, error: AutoschedError) -> None:
        await self.answer(f"ERR {error.code} {as_typed_here(' '.join(str(error).split()))}")

    def _known(self) -> Principal:
        """The identity of the peer. Raises Refused if it is unknown, or no longer valid."""
        if self.who is None:
            raise Refused("who are you? Type: auth KEY SECRET. An operator makes keys with: autosched key new ROLE")
        if not self._authenticator.keys.admits(self.who):
            gone, self.who = self.who, None
            raise Refused(f"the {gone.name} was withdrawn; who are you now? Type: auth KEY SECRET")
        return self.who

    async def _ask(self, method: Method) -> Struct:
        """Call a method as over the wire, with the bounds of its fields checked: constructing a method checks none.
        Raises RequestError."""
        session = UserSession(self._services, self._known())
        try:
            method = msgspec.convert(msgspec.to_builtins(method), type(method))
        except msgspec.ValidationError as error:
            raise RequestError(f"{misfit(error)}; {USAGE}") from None
        return await session.handle(method)

    async def _auth(self, line: Line) -> None:
        """Authenticate with a key, given as `autosched key new` prints it, or as id and secret."""
        id, secret = (*" ".join(line.words).replace(":", " ").split()[-2:], "", "")[:2]
        self._authenticator.look_at_keys()
        key = self._authenticator.keys.get(id)
        known = key.secret.hex() if key is not None else "-" * 64
        if not hmac.compare_digest(known.encode(), secret.encode(errors="replace")) or key is None:
            log.warning("a wrong key was shown at the console")
            if self._host:
                self._authenticator.failures.note(self._host, asyncio.get_running_loop().time())
            await asyncio.sleep(FAILED_S)
            raise Refused(f"the key {id[:32]!r} is not known here, or its secret is wrong. Type: auth KEY SECRET")
        if key.role is Role.CLIENT:
            raise Refused(f"the key {key.id} is for clients; they do not come here")
        self.set_identity(peer_identity.key_owner(key, " ".join(("the console", self._host)).rstrip()))
        await self.answer(f"OK role={key.role.value}")

    async def _monitor(self, line: Line) -> None:
        """Write events until a line comes; a slow reader is told how many events it missed."""
        self._known()
        with self._services.runtime.stream.subscribe(Filter.parse(" ".join(line.words))) as events:
            await self._write("OK a line ends it\n")
            stop = asyncio.ensure_future(self._line())
            stop.add_done_callback(lambda done: events.close())
            try:
                async for event in events:
                    if stop.done():
                        break
                    self._known()
                    await self._write(f"{_told(event, json=line.json)}\n")
            finally:
                stop.cancel()
                await asyncio.wait([stop])  # only one task may read at a time
            await self._write(".\n")


def _told(event: DaemonEvent, *, json: bool) -> str:
    if json:
        return event.json().decode()
    if isinstance(event.what, Dropped):
        return f"… {event.what.count} events dropped"
    return event.line()


_OTHERS: dict[str, tuple[str, str]] = {
    "monitor": ("monitor [job=N] [unit=NAME] [what=StepEnded] [level=debug]", "what happens; a line ends it"),
    "auth": ("auth KEY SECRET", "authenticate with a key"),
    "help": ("help [COMMAND]", "this"),
    "quit": ("quit", "leave"),
}


def _help(words: tuple[str, ...]) -> list[str]:
    there = {name: (command.usage, command.help) for name, command in ALL.items()} | _OTHERS
    if words:
        name = SYNONYMS.get(words[0], words[0])
        if name not in there:
            raise RequestError(f"there is no command {name[:40]!r}; {USAGE}")
        usage, text = there[name]
        return [usage, f"  {text}"]
    listed = [there[name] for name in (*COMMANDS, *_OTHERS)]
    lines = [f" {usage:44} {text}" if len(usage) <= 44 else f" {usage}\n {'':44} {text}" for usage, text in listed]
    notes = (
        "`;` parts commands; -j: as JSON; times: 5m; jobs: 12, 12-15, 12,14, last, all, @name, team=vision",
        "each method of docs/protocol.md is a command too: list_idle 1h; help list_idle",
    )
    return [part for line in (*lines, *notes) for part in line.split("\n")]
