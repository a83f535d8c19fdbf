"""A daemon with a port for boards, as boards and programs with TVM see it, and peers that connect to it."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from autosched.config import BoardConfig
from autosched.core.actions import Action, EndJob, RevokeStep, StartStep, StopClient
from autosched.core.events import Event, ResourcesDeclared, StepEnded
from autosched.core.policies.policy import POLICIES
from autosched.core.scheduler import Scheduler
from autosched.daemon.boards.board_registry import BoardRegistry
from autosched.daemon.boards.board_sessions import BoardSessions
from autosched.daemon.boards.program_jobs import ProgramJobs
from autosched.daemon.boards.tracker_port import TrackerPort
from autosched.daemon.event_stream import daemon_events
from autosched.daemon.event_stream.daemon_events import DeviceUnreachable
from autosched.model import Pool, RpcServer, Step, Unit
from deadlines import DEADLINE_S

PEER = "127.0.0.1"
MAGIC = struct.pack("<i", 0x2F271)
OWN = (
    Pool("host", (Unit("host/0", (0,)),)),
    Pool("device:cpu", (Unit("cpu0", (1,)),)),
    Pool("device:listed", (Unit("board9", accelerator=RpcServer(f"{PEER}:9999", "listed")),)),
)
KINDS = (BoardConfig("pi4", "llvm -mcpu=cortex-a72", ("reboot-it",)),)


class World:
    """A daemon with a port for boards, whose events are processed at once."""

    def __init__(self, *networks: str) -> None:
        self.core = Scheduler(POLICIES["predictive"])
        self._take: Callable[[Any], None] = lambda event: None
        loop = asyncio.get_running_loop()
        self.core.handle(loop.time(), ResourcesDeclared(OWN, 600.0, 60.0))
        self.state = self.core.state
        self.events: list[Event] = []
        self.happened = asyncio.Event()
        self.sick: list[str] = []
        self.hooks: dict[str, Any] = {}
        stream = SimpleNamespace(attach=lambda take, *kinds: setattr(self, "_take", take), publish=self._note)
        runtime = SimpleNamespace(state=self.state, clock=loop.time, tell=self.tell, post=self.post, stream=stream)
        self.limits = 100, 600.0
        """Maximum number of active jobs, and time limit of a step in seconds."""
        self.started: list[Step] = []
        self.ended: list[EndJob] = []
        self.registry = BoardRegistry(cast(Any, runtime), KINDS, self.hooks)
        self.sessions = BoardSessions(cast(Any, runtime), self.registry)
        self.programs = ProgramJobs(cast(Any, runtime), self.registry, self.sessions, lambda: self.limits)
        self.port = TrackerPort(self.registry, self.sessions, self.programs, [ip_network(one) for one in networks])

    def _note(self, what: DeviceUnreachable) -> None:
        self.sick.append(what.unit)

    def tell(self, prepare: Callable[[], Event | None]) -> None:
        """Processes an event; its actions start in a later turn of the loop, as after a commit."""
        if (event := prepare()) is None:
            return
        step = self.state.steps.get(event.step) if isinstance(event, StepEnded) else None
        actions = self.core.handle(self._now(), event).actions
        self.state.check_all()
        self.events.append(event)
        asyncio.get_running_loop().call_soon(self._perform, actions, step)

    async def post(self, prepare: Callable[[], Event | None]) -> None:
        """Processes an event."""
        self.tell(prepare)

    def _now(self) -> float:
        return max(self.state.now, asyncio.get_running_loop().time())

    def _perform(self, actions: list[Action], ended: Step | None) -> None:
        if ended is not None:
            what = daemon_events.StepEnded(ended.id, ended.job, ended.task, ended.stage, ended.units, "done", 0.0, 0.0)
            self._take(SimpleNamespace(what=what))
        for action in actions:
            match action:
                case StartStep(step=step):
                    self.started.append(step)
                    if self.programs.has(step.job):
                        self.programs.start_step(step)
                case StopClient(job=job, reason=reason) if self.programs.has(job):
                    self.programs.stop(job, reason)
                case RevokeStep(job=job) if self.programs.has(job):
                    self.programs.revoke_step(action)
                case EndJob():
                    self.ended.append(action)
        self.happened.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits until the condition holds; events may change it."""
        while not holds():
            self.happened.clear()
            await self.happened.wait()

    async def left(self) -> None:
        """Waits until no peer is connected."""
        while world_tasks := tuple(self.port._serving.tasks):
            await asyncio.wait(world_tasks)
        assert not self.port._peers

    @property
    def there(self) -> list[str]:
        return [name for name, board in self.state.boards.items() if not board.gone]


class Peer:
    """A connection to the port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, *message: object) -> Any:
        """Returns the answer to a message, which is written in two pieces as TVM does."""
        text = json.dumps(message).encode()
        self.writer.write(struct.pack("<i", len(text)))
        self.writer.write(text)
        (length,) = struct.unpack("<i", await self.reader.readexactly(4))
        return json.loads(await self.reader.readexactly(length))

    async def register(
        self, key: str = "pi4", port: int = 9090, matchkey: str = "pi4:0.5", host: str | None = None
    ) -> None:
        """Registers as TVM's server does."""
        assert await self.ask(5, {"key": f"server:{key}", "addr": [host, port]}) == 0
        assert await self.ask(3, key, [port, matchkey], host) == 0

    def die(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def connected(world: World) -> AsyncIterator[Peer]:
    host, _, port = world.port.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(MAGIC)
    try:
        assert await reader.readexactly(4) == MAGIC
        yield Peer(reader, writer)
    finally:
        writer.close()


def played(story: Callable[[World], Awaitable[None]], *networks: str) -> None:
    async def play() -> None:
        async with asyncio.timeout(DEADLINE_S):
            world = World(*networks)
            await world.port.open(PEER, 0)
            try:
                await story(world)
            finally:
                await world.port.close()
                await world.sessions.close()

    asyncio.run(play())


def hostile(draw: Random) -> bytes:
    """Returns a frame that is almost valid, or not at all."""
    words: list[Any] = [
        draw.choice([-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 2**40, "3", None]),
        *draw.sample(
            ["pi4", "", [9090, "k"], [0, "k"], ["9090", 1], None, {}, 3, -1, "x" * 500, {"key": "server:x"}], 3
        ),
    ]
    text = json.dumps(words).encode()
    length = draw.choice([len(text)] * 8 + [len(text) - 1, 2**30, 0, -7])
    return struct.pack("<i", length) + text
