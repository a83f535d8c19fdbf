"""Which steps may have a session with a board, and the connections of those that have one.

Nobody but the daemon connects to a board. A step that holds one is given a key; whoever shows it at the daemon's port
on this machine gets a session with the board, until the step is over or its time is. A board serves one session at a
time.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from autosched.core.state import Slot
from autosched.daemon.boards.rpc_handshake import BadHandshake, Hello, read_answer, read_hello, refusal
from autosched.daemon.boards.session_relay import Line, Session
from autosched.daemon.event_stream.daemon_events import DaemonEvent, StepEnded
from autosched.daemon.runtime import Runtime, spawn
from autosched.device_probe import Unwell
from autosched.errors import Refused
from autosched.model import RpcServer, StepId, Unit, UnitName
from autosched.protocol import BoardAccess

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
HELLO_S = 5.0
"""Seconds within which a program says hello."""
REACH_S = 10.0
"""Seconds within which a board that is free accepts a connection and answers."""
CLOSE_S = 1.0
"""Seconds that boards have to end their sessions when the daemon ends."""
PROBE_EVERY_S = 2.0
"""Seconds between two attempts to reach a board that is starting."""


@dataclass
class BoardState:
    """What is known of a board in this life of the daemon."""

    session: Session | None = None
    """Its session under way."""
    trouble: str = ""
    """Why the last session did not begin, or ended; empty: nothing was wrong."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one that has a session with it, or begins one."""


class BoardSessions:
    """The sessions of all boards."""

    def __init__(self, runtime: Runtime, sick: Callable[[UnitName, str], None]) -> None:
        """`sick`: what to do with a board that cannot be reached, and why."""
        self._runtime, self._sick = runtime, sick
        self._boards: dict[UnitName, BoardState] = {}
        self._keys: dict[StepId, str] = {}
        """The key of each step that has asked for one."""
        self._steps: dict[str, StepId] = {}
        """The same the other way round."""
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        runtime.stream.attach(self._take, StepEnded)

    async def access(self, step_id: StepId) -> BoardAccess:
        """How the holder of a step reaches the board that the step holds. Raises Refused."""
        step = self._runtime.state.steps.get(step_id)
        if step is None or len(step.units) != 1 or board_of(self._runtime.state.slots[step.units[0]]) is None:
            raise Refused(f"step {step_id} holds no board")
        if (key := self._keys.get(step_id)) is None:
            key = self._keys[step_id] = f"step-{step_id}-{secrets.token_hex(16)}"
            self._steps[key] = step_id
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return BoardAccess(LOOPBACK, port, key, self._state(step.units[0]).trouble)

    async def probe(self, unit: Unit, patience_s: float) -> None:
        """See whether a board answers, for so many seconds. Raises Unwell."""
        server = unit.accelerator
        assert isinstance(server, RpcServer)
        until = self._clock() + patience_s
        while True:
            try:
                async with self._state(unit.name).turn:
                    line, _ = await self._reach(server, REACH_S)
                    await line.finish(REACH_S)
                line.abort()
                self._state(unit.name).trouble = ""
                return
            except Unwell:
                if self._clock() + PROBE_EVERY_S > until:
                    raise
            await asyncio.sleep(PROBE_EVERY_S)

    async def close(self) -> None:
        """End all sessions; boards have a moment for their last words."""
        if self._server is not None:
            self._server.close()
        for board in self._boards.values():
            if board.session is not None:
                board.session.end("the daemon ends")
        if serving := tuple(self._serving):
            await asyncio.wait(serving, timeout=CLOSE_S)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    # Sessions ---------------------------------------------------------------------------------------------------------

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()

    def _state(self, unit: UnitName) -> BoardState:
        return self._boards.setdefault(unit, BoardState())

    def _take(self, event: DaemonEvent) -> None:
        """A step has ended: so does its session."""
        ended = event.what
        assert isinstance(ended, StepEnded)
        if (key := self._keys.pop(ended.step, None)) is None:
            return
        del self._steps[key]
        for unit in ended.units:
            if (session := self._state(unit).session) is not None:
                session.end("its step has ended")

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = spawn(self._serve(reader, writer), "a session with a board")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A program has connected."""
        program = Line(reader, writer)
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await read_hello(reader)
            step = self._steps.get(hello.key)
            if step is None:
                writer.write(refusal())
                await program.close()
            else:
                await self._begin(step, hello, program)
        except (BadHandshake, OSError, EOFError) as error:
            log.info("a program gets no session with a board: %s", error or type(error).__name__)
        finally:
            program.abort()

    async def _begin(self, step_id: StepId, hello: Hello, program: Line) -> None:
        """Let a program have the board of a step."""
        step = self._runtime.state.steps.get(step_id)
        if step is None:
            return
        unit = step.units[0]
        server, board = board_of(self._runtime.state.slots[unit]), self._state(unit)
        assert server is not None
        if board.session is not None:
            board.session.end("its program began another one")
        async with board.turn:
            left_s = step.deadline_at - self._runtime.clock()
            session_s = left_s if hello.timeout_s is None else min(hello.timeout_s, left_s)
            if session_s <= 0 or step_id not in self._runtime.state.steps:
                return
            try:
                line, answer = await self._reach(server, session_s)
            except Unwell as unwell:
                board.trouble = str(unwell)
                self._sick(unit, f"{board.trouble} ({server.address})")
                return
            board.session = session = Session(program, line)
            program.writer.write(answer)
            if step_id not in self._runtime.state.steps:  # it ended while the board was reached
                session.end("its step has ended")
            try:
                await session.run(session_s)
            finally:
                board.session = None
            board.trouble = "it ended the session" if session.ended_by_board else session.why

    async def _reach(self, server: RpcServer, session_s: float) -> tuple[Line, bytes]:
        """Connect to a board's server, and ask for a session of so many seconds; the answer as it came.

        Raises Unwell.
        """
        host, port = server.host_and_port
        answered = False
        try:
            async with asyncio.timeout(REACH_S):
                reader, writer = await asyncio.open_connection(host, port)
            line = Line(reader, writer)
            try:
                writer.write(Hello(server.key, session_s).encoded())
                line.acknowledge_at_once()
                async with asyncio.timeout(REACH_S):
                    answer = await read_answer(reader)
                answered = True
            finally:
                if not answered:
                    line.abort()
        except TimeoutError:
            raise Unwell("it cannot be reached: it does not answer") from None
        except asyncio.IncompleteReadError:
            raise Unwell("its server hung up instead of an answer") from None
        except BadHandshake as error:
            raise Unwell(f"its server does not take the session: {error}") from None
        except OSError as error:
            raise Unwell(f"it cannot be reached: {error.strerror or error}") from None
        return line, answer


def board_of(slot: Slot) -> RpcServer | None:
    """The server of a unit that is a board."""
    return slot.unit.accelerator if isinstance(slot.unit.accelerator, RpcServer) else None
