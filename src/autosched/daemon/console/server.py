"""Connections of the console: who is there, lines in, answers out.

An answer is a status line, `OK ...` or `ERR code ...`, then lines, then a line with a dot; a line that begins with a
dot gets one more, as in SMTP. Nothing here waits without a deadline, and nobody can hold up the daemon by not reading.
"""

import asyncio
import contextlib
import hmac
import logging
import socket
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import msgspec
from msgspec import Struct

from autosched import units
from autosched.address import UNIX
from autosched.config import Config, ConsoleConfig
from autosched.daemon import ground
from autosched.daemon.access import entrance, identity
from autosched.daemon.access.door import FAILED_S, Door
from autosched.daemon.access.identity import Who
from autosched.daemon.console.commands import COMMANDS, OPTIONS, Said
from autosched.daemon.console.words import Line, commands
from autosched.daemon.runtime import spawn
from autosched.daemon.sessions import Services, UserSession
from autosched.daemon.telling.happenings import Dropped, Happening
from autosched.daemon.telling.stream import Filter
from autosched.errors import AutoschedError, Busy, Refused, RequestError
from autosched.protocol import Method
from autosched.roles import Role, at_most
from autosched.version import __version__

log = logging.getLogger(__name__)

LINE_BYTES_MAX = 4_096
CONNECTIONS_MAX = 32
STRANGER_S, IDLE_S = 60.0, 3_600.0
"""So long a connection may be silent before it has a role, and after."""
ANSWER_S = 30.0
"""So long the daemon may take for an answer."""
WRITE_S = 30.0
"""So long a visitor may leave what was written unread."""
BUFFER_BYTES_MAX = 64 * 1024
USAGE = "type help"


class Console:
    """The console's listeners, and who is connected."""

    def __init__(self, config: ConsoleConfig, group: int | None, services: Services, door: Door) -> None:
        self._config, self._group, self._services, self._door = config, group, services, door
        self._servers: list[asyncio.Server] = []
        self._visitors: dict[asyncio.Task[None], None] = {}

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it is: unix:PATH, HOST:PORT."""
        names = [server.sockets[0].getsockname() for server in self._servers]
        return tuple(f"{UNIX}{name}" if isinstance(name, str) else f"{name[0]}:{name[1]}" for name in names)

    async def listen(self, listener: socket.socket) -> None:
        """Serve it until `close`."""
        listener.setblocking(False)
        start = asyncio.start_unix_server if listener.family == socket.AF_UNIX else asyncio.start_server
        self._servers.append(await start(self._visit, sock=listener, limit=LINE_BYTES_MAX))

    async def close(self) -> None:
        """Everybody has to leave."""
        for server in self._servers:
            server.close()
        for task in list(self._visitors):
            task.cancel()
        await asyncio.gather(*self._visitors, return_exceptions=True)

    def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = spawn(self._attend(reader, writer), "a console")
        self._visitors[task] = None
        task.add_done_callback(lambda done: self._visitors.pop(done, None))

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visitor = Visitor(reader, writer, self._services, self._door)
        try:
            if len(self._visitors) > CONNECTIONS_MAX:
                await visitor.answer(f"ERR busy {CONNECTIONS_MAX} consoles are open; close one")
                return
            visitor.who = await self._whoever(writer.get_extra_info("socket"))
            await visitor.serve()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # it is gone, or does not read
        except asyncio.LimitOverrunError:
            with contextlib.suppress(OSError, TimeoutError):
                await visitor.answer(f"ERR request a line of more than {LINE_BYTES_MAX} bytes; {USAGE}")
        finally:
            writer.close()

    async def _whoever(self, sock: socket.socket) -> Who | None:
        """As the kernel says, and no more than this socket allows; None: nobody, until a key is shown."""
        try:
            if sock.family == socket.AF_UNIX:
                uid = identity.peer_uid(sock)
                role = at_most(identity.local_role(uid, self._group), Role(self._config.role))
                return Who(f"uid {uid}", role, "the console's socket")
            there = await asyncio.to_thread(identity.loopback_uid, sock)
            if there is None:
                return None
            role = at_most(identity.local_role(there, None), Role(self._config.listen_role))
            return Who(f"uid {there}", role, "the console")
        except Refused:
            return None


async def open_console(
    config: Config, passed: Sequence[socket.socket], held: contextlib.ExitStack, services: Services, door: Door
) -> Console:
    """Listen where the settings say, and on what systemd has passed instead. `held` closes it. Raises ConfigError."""
    group = identity.group_id(config.daemon.group)
    console = Console(config.console, group, services, door)
    listeners = [held.enter_context(listener) for listener in passed]
    kinds = {listener.family == socket.AF_UNIX for listener in listeners}
    if True not in kinds:
        path = config.console_socket
        listeners.insert(0, held.enter_context(ground.bind_unix(path)))
        held.callback(path.unlink, missing_ok=True)
        if group is not None:
            entrance.share(path, group, config)
    if False not in kinds and (where := config.console_listen()) is not None:
        listeners.append(held.enter_context(ground.bind_tcp("console.listen", *where)))
    for listener in listeners:
        await console.listen(listener)
    return console


class Visitor:
    """One connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, services: Services, door: Door
    ) -> None:
        self._reader, self._writer, self._services, self._door = reader, writer, services, door
        self.who: Who | None = None
        writer.transport.set_write_buffer_limits(BUFFER_BYTES_MAX)

    async def answer(self, first: str, lines: Iterable[str] = ()) -> None:
        """Write an answer. Raises TimeoutError when nobody reads it."""
        text = "".join(f"{'.' if line.startswith('.') else ''}{line}\n" for line in lines)
        await self._write(f"{first.rstrip()}\n{text}.\n")

    async def _write(self, text: str) -> None:
        self._writer.write(text.encode(errors="replace"))
        async with asyncio.timeout(WRITE_S):
            await self._writer.drain()

    async def serve(self) -> None:
        """Greet, then answer line by line until one side has enough."""
        uptime = units.duration(self._services.runtime.clock() - self._services.runtime.timeline.began_at)
        role = self.who.role.value if self.who is not None else "none"
        await self._write(
            f"# autosched {__version__} {socket.gethostname()} uptime {uptime} role={role}   help | quit\n"
        )
        while True:
            async with asyncio.timeout(STRANGER_S if self.who is None else IDLE_S):
                text = await self._line()
            if text is None or not await self._obey(text):
                return

    async def _line(self) -> str | None:
        """The next line; None: there are no more."""
        try:
            raw = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            raw = error.partial  # `printf jobs | nc`: the last line need not end
            if not raw:
                return None
        return raw.decode(errors="replace").strip("\r\n\0 \t")

    async def _obey(self, text: str) -> bool:
        """Do what a line says, each command with an answer of its own; False: it says goodbye."""
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
            case name if name in COMMANDS:
                if line.words[:1] == ("?",):
                    return await self.answer("OK", _help((name,)))
                try:
                    async with asyncio.timeout(ANSWER_S):
                        said = await COMMANDS[name].run(self._ask, line)
                except TimeoutError:
                    raise Busy(f"no answer within {ANSWER_S:g} s; why may stand in: slowlog, info storage") from None
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
            return await self.answer("OK", [encoded.decode()])
        await self.answer(f"OK {said.first}", said.lines)

    async def _refuse(self, error: AutoschedError) -> None:
        await self.answer(f"ERR {error.code} {' '.join(str(error).split())}")

    def _session(self) -> UserSession:
        if self.who is None:
            raise Refused("who are you? Type: auth KEY SECRET. An operator makes keys with: autosched key new ROLE")
        if self.who.key and self._door.keys.get(self.who.key) is None:
            gone, self.who = self.who, None
            raise Refused(f"the {gone.name} was withdrawn; who are you now? Type: auth KEY SECRET")
        return UserSession(self._services, self.who)

    async def _ask(self, method: Method) -> Struct:
        """As over the wire, bounds of its parameters included: making a method checks none. Raises RequestError."""
        session = self._session()
        try:
            method = msgspec.convert(msgspec.to_builtins(method), type(method))
        except msgspec.ValidationError as error:
            raise RequestError(f"{error}; {USAGE}") from None
        return await session.handle(method)

    async def _auth(self, line: Line) -> None:
        """Rise to the role of a key, which is shown as `autosched key new` prints it, or as id and secret."""
        id, secret = (*" ".join(line.words).replace(":", " ").split()[-2:], "", "")[:2]
        self._door.look_at_keys()
        key = self._door.keys.get(id)
        known = key.secret.hex() if key is not None else "-" * 64
        if not hmac.compare_digest(known.encode(), secret.encode(errors="replace")) or key is None:
            log.warning("a wrong key was shown at the console")
            await asyncio.sleep(FAILED_S)
            raise Refused(f"the key {id[:32]!r} is not known here, or its secret is wrong. Type: auth KEY SECRET")
        if key.role is Role.CLIENT:
            raise Refused(f"the key {key.id} is for clients; they do not come here")
        self.who = Who(f"key {key.id}", key.role, "the console", key.id)
        await self.answer(f"OK role={key.role.value}")

    async def _monitor(self, line: Line) -> None:
        """Tell what happens until a line comes; whoever reads too slowly is told how much he missed."""
        self._session()
        with self._services.runtime.stream.subscribe(Filter.parse(" ".join(line.words))) as happenings:
            await self._write("OK a line ends it\n")
            stop = asyncio.ensure_future(self._line())
            stop.add_done_callback(lambda done: happenings.close())
            try:
                async for happening in happenings:
                    if stop.done():
                        break
                    await self._write(f"{_told(happening, json=line.json)}\n")
            finally:
                stop.cancel()
            await self._write(".\n")


def _told(happening: Happening, *, json: bool) -> str:
    if json:
        return happening.json().decode()
    if isinstance(happening.what, Dropped):
        return f"… {happening.what.count} events dropped"
    return happening.line()


_OTHERS: dict[str, tuple[str, str]] = {
    "monitor": ("monitor [job=N] [unit=NAME] [what=StepEnded] [level=debug]", "what happens; a line ends it"),
    "auth": ("auth KEY SECRET", "rise to the role of a key"),
    "help": ("help [COMMAND]", "this"),
    "quit": ("quit", "leave"),
}


def _help(words: tuple[str, ...]) -> list[str]:
    there = {name: (command.usage, command.help) for name, command in COMMANDS.items()} | _OTHERS
    if words:
        if words[0] not in there:
            raise RequestError(f"there is no command {words[0][:40]!r}; {USAGE}")
        usage, text = there[words[0]]
        return [usage, f"  {text}"]
    lines = [
        f" {usage:44} {text}" if len(usage) <= 44 else f" {usage}\n {'':44} {text}" for usage, text in there.values()
    ]
    notes = ("`;` parts commands; -j: as JSON; times: 90s, 5m, 2h; jobs: 12, 12-15, 12,14, last, all, @name",)
    return [part for line in (*lines, *notes) for part in line.split("\n")]
