"""Grants steps sessions with their boards, and runs these sessions.

Only the daemon connects to boards. A step that holds a board gets a key. A program that presents the key at the
daemon's port on this machine gets a session with the board. The session ends with the step, at the latest at the step's
deadline. A board serves one session at a time.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from autosched.daemon.access.sockets import LOOPBACK, bind_tcp
from autosched.daemon.boards.board_registry import BoardRegistry
from autosched.daemon.boards.rpc_handshake import BadHandshake, Hello, read_answer, read_hello, refusal
from autosched.daemon.boards.session_relay import Connections, Line, Session
from autosched.daemon.event_stream.daemon_events import DaemonEvent, DeviceUnreachable, StepEnded
from autosched.daemon.runtime import Runtime
from autosched.device_probe import Unwell
from autosched.errors import Refused
from autosched.model import RpcServer, StepId, Unit, UnitName
from autosched.protocol import BoardAccess

log = logging.getLogger(__name__)

HELLO_S = 5.0
"""Seconds within which a program sends its hello."""
REACH_S = 10.0
"""Seconds within which a board that is free accepts a connection and answers."""
CLOSE_S = 1.0
"""Seconds for boards to end their sessions when the daemon stops."""
PROBE_EVERY_S = 2.0
"""Seconds between two attempts to reach a board that is starting."""


def _nothing() -> None:
    pass


@dataclass
class BoardState:
    """State of a board since the daemon started."""

    session: Session | None = None
    """The running session."""
    step: StepId = 0
    """Step of the running session."""
    trouble: str = ""
    """Fault of the last session; empty if there was none."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a session begins or runs."""


class BoardSessions:
    """The sessions of all boards."""

    def __init__(self, runtime: Runtime, registry: BoardRegistry) -> None:
        self._runtime, self._registry = runtime, registry
        self._boards: dict[UnitName, BoardState] = {}
        self._keys: dict[StepId, str] = {}
        """Keys by step."""
        self._steps: dict[str, StepId] = {}
        """Steps by key."""
        self._told: dict[StepId, tuple[Callable[[], None], Callable[[str], None] | None]] = {}
        """Callbacks of each step for the begin and end of its sessions."""
        self._server: asyncio.Server | None = None
        self._serving = Connections("a session with a board")
        runtime.stream.attach(self._take, StepEnded)

    async def access(
        self, step_id: StepId, *, began: Callable[[], None] = _nothing, over: Callable[[str], None] | None = None
    ) -> BoardAccess:
        """Address and key with which a step reaches its board.

        `began` is called when a program presents the key, `over` with the fault, if any, when the session has ended.
        Raises Refused.
        """
        step = self._runtime.state.steps.get(step_id)
        if step is None or len(step.units) != 1 or not self._runtime.state.slots[step.units[0]].unit.is_board:
            raise Refused(f"step {step_id} holds no board")
        if (key := self._keys.get(step_id)) is None:
            key = self._keys[step_id] = f"step-{step_id}-{secrets.token_hex(16)}"
            self._steps[key] = step_id
            self._told[step_id] = began, over
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, sock=bind_tcp("boards", LOOPBACK, 0))
        host, port = self._server.sockets[0].getsockname()[:2]
        return BoardAccess(host, port, key, self._state(step.units[0]).trouble)

    async def probe(self, unit: Unit, patience_s: float) -> None:
        """Try for `patience_s` to begin a session with a board. Raises Unwell when none begins."""
        until = self._clock() + patience_s
        while True:
            try:
                async with self._state(unit.name).turn:
                    line, _ = await self._reach(unit.name, REACH_S)
                    await line.finish(REACH_S)
                line.abort()
                self._state(unit.name).trouble = ""
                return
            except Unwell:
                if self._clock() + PROBE_EVERY_S > until:
                    raise
            await asyncio.sleep(PROBE_EVERY_S)

    def end(self, step_id: StepId, why: str) -> bool:
        """End the session of a step and revoke its key; returns whether there was a session."""
        step = self._runtime.state.steps.get(step_id)
        if (key := self._keys.get(step_id)) is not None:
            self._steps.pop(key, None)
        board = self._boards.get(step.units[0]) if step is not None else None
        if board is None or board.session is None or board.step != step_id:
            return False
        board.session.end(why)
        return True

    async def close(self) -> None:
        """End all sessions. Boards get `CLOSE_S` for it."""
        if self._server is not None:
            self._server.close()
        for board in self._boards.values():
            if board.session is not None:
                board.session.end("the daemon ends")
        await self._serving.close(CLOSE_S)

    # Sessions ---------------------------------------------------------------------------------------------------------

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()

    def _state(self, unit: UnitName) -> BoardState:
        return self._boards.setdefault(unit, BoardState())

    def _take(self, event: DaemonEvent) -> None:
        """End the session of a step that has ended."""
        ended = event.what
        assert isinstance(ended, StepEnded)
        if (key := self._keys.pop(ended.step, None)) is None:
            return
        self._steps.pop(key, None)
        del self._told[ended.step]
        for unit in ended.units:
            if (session := self._state(unit).session) is not None:
                session.end("its step has ended")

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a program that has connected."""
        program = Line(reader, writer)
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await read_hello(reader)
            await self.serve(hello, program)
        except (BadHandshake, OSError, EOFError, TimeoutError) as error:
            log.info("a program gets no session with a board: %s", error or type(error).__name__)
        finally:
            program.abort()

    async def serve(self, hello: Hello, program: Line) -> None:
        """Give a program the board of the step whose key its hello has, if the step runs."""
        if (step := self._steps.get(hello.key)) is not None:
            await self._begin(step, hello, program)
        else:
            program.writer.write(refusal())
            await program.close()

    async def _begin(self, step_id: StepId, hello: Hello, program: Line) -> None:
        """Run a program's session with the board of a step."""
        step = self._runtime.state.steps.get(step_id)
        if step is None:
            return
        unit = step.units[0]
        board, (began, over) = self._state(unit), self._told[step_id]
        began()
        if board.session is not None:
            board.session.end("its program began another one")
        async with board.turn:
            left_s = step.deadline_at - self._runtime.clock()
            session_s = left_s if hello.timeout_s is None else min(hello.timeout_s, left_s)
            if session_s <= 0 or step_id not in self._runtime.state.steps:
                return
            try:
                line, answer = await self._reach(unit, session_s)
            except Unwell as unwell:
                board.trouble = str(unwell)
                if not self._is_gone(unit):
                    self._runtime.stream.publish(DeviceUnreachable(unit, board.trouble))
                if over is not None:
                    over(board.trouble)
                return
            board.session, board.step = (session := Session(program, line)), step_id
            program.writer.write(answer)
            if step_id not in self._runtime.state.steps:  # it ended while the board was reached
                session.end("its step has ended")
            try:
                await session.run(session_s)
            finally:
                board.session = None
                self._registry.released(unit)
            board.trouble = "it ended the session" if session.ended_by_board else session.why
            if over is not None:
                over(session.why)

    def _is_gone(self, unit: UnitName) -> bool:
        """Whether a board that registers itself has signed off, so that it needs no treatment."""
        board = self._runtime.state.boards.get(unit)
        return board is not None and bool(board.gone)

    async def _reach(self, unit: UnitName, session_s: float) -> tuple[Line, bytes]:
        """Connect to a board's server and ask for a session of `session_s`. Returns the connection, and the server's
        answer as it came. Raises Unwell."""
        if self._registry.knows(unit):
            server = await self._registry.claim(unit, REACH_S)
        else:
            listed = self._runtime.state.slots[unit].unit.accelerator
            assert isinstance(listed, RpcServer)
            server = listed
        host, port = server.host_and_port
        try:
            async with asyncio.timeout(REACH_S):
                reader, writer = await asyncio.open_connection(host, port)
            line = Line(reader, writer)
            try:
                writer.write(Hello(server.key, session_s).encoded())
                line.acknowledge_at_once()
                async with asyncio.timeout(REACH_S):
                    answer = await read_answer(reader)
            except BaseException:
                line.abort()
                raise
        except TimeoutError:
            raise Unwell(f"it cannot be reached: {server.address} does not answer") from None
        except asyncio.IncompleteReadError:
            raise Unwell(f"its server at {server.address} hung up instead of an answer") from None
        except BadHandshake as error:
            raise Unwell(f"its server at {server.address} does not take the session: {error}") from None
        except OSError as error:
            raise Unwell(f"it cannot be reached: {server.address}: {error.strerror or error}") from None
        return line, answer
