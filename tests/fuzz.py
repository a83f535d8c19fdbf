"""Throws mutated frames at a daemon, before and after hello: ``python tests/fuzz.py`` (a million), or --frames N.

The daemon runs in this process, in a folder of its own; each attacker has a real socket to it. Frames are those of
tests/wire, and others that hypothesis draws from the names of the protocol and any value that MessagePack can hold;
most are mutated byte by byte. What the daemon's loop spends on one frame is processor time of its thread, in steps:
reading, deciding what it is, and each stretch of the handler between two waits.
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from autosched import config
from autosched.daemon import ground
from autosched.daemon.access.door import Visitor
from autosched.daemon.access.entrance import Entrance
from autosched.daemon.access.hall import Guest
from autosched.daemon.clients.process import resident_bytes
from autosched.daemon.main import Daemon as Served
from autosched.daemon.reload import Settings
from autosched.daemon.runtime import spawn
from autosched.errors import AutoschedError
from autosched.protocol import (
    DAEMON_METHODS,
    FRAME_BYTES,
    PROTOCOL,
    AskLoad,
    Done,
    Hello,
    Method,
    Welcome,
)
from autosched.remote import Daemon
from autosched.wire.frames import Peer
from autosched.wire.link import Link
from hostile_frames import METHODS, Mutator, drawn
from integration.served import PROFILE, spec, user

FRAMES = 1_000_000
ATTACKERS = 48
DRAWN = 400
"""Values that hypothesis draws for a run."""
FRAMES_EACH = 200
"""An attacker comes anew after so many at the latest."""
SLOW_S = 1e-3
KEPT_MAX = 1_000
OVER = "the fuzzing is over"


# What the loop spends -------------------------------------------------------------------------------------------------


class Clock:
    """Processor time of the loop's thread in the daemon's part, by step. That of Python's collector is told apart."""

    def __init__(self) -> None:
        self.total_s = self.worst_s = 0.0
        self.slow: Counter[str] = Counter()
        """Steps that took too long, by what was done: reading, or the method that was handled."""
        self.slow_frames: list[bytes] = []
        self.collection_worst_s = self._collecting_s = self._collection_began_at = 0.0
        self._inside = False
        gc.callbacks.append(self._collect)

    def close(self) -> None:
        gc.callbacks.remove(self._collect)

    def _collect(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began_at = time.thread_time()
        else:
            took_s = time.thread_time() - self._collection_began_at
            self._collecting_s += took_s
            self.collection_worst_s = max(self.collection_worst_s, took_s)

    def now(self) -> float:
        """Processor time without that of the collector."""
        return time.thread_time() - self._collecting_s

    def note(self, began_at: float, what: str) -> bool:
        """A step is over; returns whether it was slow."""
        took_s = self.now() - began_at
        self.total_s += took_s
        self.worst_s = max(self.worst_s, took_s)
        if took_s > SLOW_S:
            self.slow[what] += 1
        return took_s > SLOW_S

    def always_slow(self) -> list[bytes]:
        """Those frames of which none of five other tries is fast: the machine and the collector disturb single ones."""
        return [frame for frame in self.slow_frames if min(map(_decoding_s, [frame] * 5)) > SLOW_S]

    def timed(self, work: Callable[..., None]) -> Callable[..., None]:
        """The same function, timed where a daemon's connection runs it."""

        def run(link: Link, *words: Any) -> None:
            if isinstance(link, _Attacker) or self._inside:
                return work(link, *words)
            began_at, self._inside = self.now(), True
            try:
                work(link, *words)
            finally:
                self._inside = False
                if self.note(began_at, "reading") and words and len(self.slow_frames) < KEPT_MAX:
                    self.slow_frames.append(bytes(words[0]))

        return run

    def stepped(self, ask: Callable[[Link, Method], Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        """The same coroutine function, each stretch between two waits timed."""

        @types.coroutine
        def run(link: Link, method: Method) -> Generator[Any, Any, Any]:
            work = ask(link, method)
            said: Any = None
            raised: BaseException | None = None
            while True:
                began_at = self.now()
                try:
                    waits_for = work.send(said) if raised is None else work.throw(raised)
                except StopIteration as done:
                    return done.value
                finally:
                    self.note(began_at, type(method).__name__)
                said = raised = None
                try:
                    said = yield waits_for
                except BaseException as error:  # a cancellation belongs to the handler
                    raised = error

        return run


def _decoding_s(frame: bytes) -> float:
    began_at = time.thread_time()
    with suppress(AutoschedError):
        Peer(METHODS, FRAME_BYTES).receive(frame)
    return time.thread_time() - began_at


class _Attacker(Link):
    """The other end, whose time does not count."""


async def _obedient(method: Method) -> msgspec.Struct:
    return PROFILE if isinstance(method, AskLoad) else Done()


class Undying(Served):
    """A daemon that no frame can stop."""

    def stop(self, *words: Any, **named: Any) -> None:
        if words == (OVER,):
            super().stop(*words, **named)
        elif words[0] in (signal.SIGINT.name, signal.SIGTERM.name):  # whoever started this has had enough
            os._exit(130)


class Faults(logging.Handler):
    """Crashes of handlers are answered politely and logged: here they count."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


# The attack -----------------------------------------------------------------------------------------------------------


class Told(msgspec.Struct):
    """What came of it."""

    frames: int
    crashes: list[str]
    connections: dict[str, int]
    loop_mean_us: float
    loop_worst_ms: float
    slow_steps: int
    slow_in: dict[str, int]
    collection_worst_ms: float
    frames_always_slow: list[str]
    rss_before_mb: float
    rss_after_mb: float
    seconds: float


class Siege:
    """Attackers at one daemon."""

    def __init__(self, served: Served, control: Daemon, mutator: Mutator) -> None:
        self._served, self._control, self._mutator = served, control, mutator
        self._room = asyncio.Semaphore(1_000_000)
        # One client only: a job has one at a time.
        self._kinds = ["client", *("stranger" if number % 3 == 0 else "user" for number in range(ATTACKERS - 1))]
        self._links: list[_Attacker | None] = [None] * len(self._kinds)
        self._thrown = [0] * len(self._kinds)
        self._job: tuple[int, str] | None = None
        self.counts: Counter[str] = Counter()

    async def round(self) -> int:
        """One frame of each attacker; returns how many were thrown."""
        frames = 0
        for index, kind in enumerate(self._kinds):
            link = self._links[index]
            if link is None or link.closed or self._thrown[index] >= FRAMES_EACH:
                if link is not None:
                    self.counts[f"{kind}: {'closed' if link.closed else 'stood to the end'}"] += 1
                    link.abort("again")
                link = self._links[index] = await self._come(kind)
                self._thrown[index] = 0
            if not link.closed:
                link._write(self._mutator.frame())
                self._thrown[index] += 1
                frames += 1
        for _ in range(4):
            await asyncio.sleep(0)
        return frames

    async def _come(self, kind: str) -> _Attacker:
        ours, theirs = socket.socketpair()
        entrance = Entrance(ours, local=True)
        ours.setblocking(False)
        door, guest = self._served._door, Guest(ours, "", self._room)
        door.hall.enter(guest, None)
        spawn(door.attend(Visitor(entrance, guest)), "attacked")
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: _Attacker(DAEMON_METHODS, _obedient), sock=theirs)
        with suppress(AutoschedError):
            if kind == "user":
                await link.call(Hello(protocol=PROTOCOL, software="attacker"), Welcome)
            elif kind == "client":
                await self._come_as_client(link)
        link.peer._last_id = 2**64  # so that answers to what was thrown are not taken for a broken protocol
        return link

    async def _come_as_client(self, link: Link) -> None:
        for _ in range(2):
            if self._job is None:
                submitted = await self._control.submit(spec())
                self._job = submitted.job, submitted.token
            job, token = self._job
            hello = Hello(protocol=PROTOCOL, software="attacker", role="client", job=job, token=token)
            try:
                await link.call(hello, Welcome)
            except AutoschedError:
                await self._control.cancel(job)
                self._job = None
            else:
                return

    def close(self) -> None:
        """Everybody leaves."""
        for link in self._links:
            if link is not None:
                link.abort("over")


async def attack(folder: Path, frames: int, seed: int, values: int = DRAWN) -> Told:
    """Start a daemon, throw the frames, and look how it is."""
    settings_ = Settings(config.parse(f'[daemon]\nstate_dir = "{folder}"\n', "fuzz"))
    served = Undying(settings_, False)
    clock, faults = Clock(), Faults()
    logging.getLogger().addHandler(faults)
    logging.getLogger("autosched").setLevel(logging.ERROR)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.found.append(str(context)))
    before = {name: getattr(Link, name) for name in ("_hear", "_turn", "_send", "_ask_handler")}
    serving = asyncio.ensure_future(served.serve())
    while not (folder / ground.WHEREABOUTS).exists():  # noqa: ASYNC110 - another process would not do otherwise
        await asyncio.sleep(0.01)
    control = await user(folder)
    siege = Siege(served, control, Mutator(drawn(values, seed), seed))
    clock.collection_worst_s = 0.0  # so far it was the start's
    thrown, rss_before, began_at = 0, 0, time.monotonic()
    for name in ("_hear", "_turn", "_send"):
        setattr(Link, name, clock.timed(before[name]))
    Link._ask_handler = clock.stepped(before["_ask_handler"])  # type: ignore[method-assign]
    try:
        while thrown < frames:
            thrown += await siege.round()
            if not rss_before and thrown >= frames / 5:
                rss_before = resident_bytes("self")
        assert (await control.info()).version
        return Told(
            thrown, faults.found, dict(siege.counts), clock.total_s / thrown * 1e6, clock.worst_s * 1e3,
            clock.slow.total(), dict(clock.slow), clock.collection_worst_s * 1e3,
            [frame[:40].hex() for frame in clock.always_slow()],
            rss_before / 1e6, resident_bytes("self") / 1e6, time.monotonic() - began_at,
        )  # fmt: skip
    finally:
        siege.close()
        control.close()
        for name, method in before.items():
            setattr(Link, name, method)
        served.stop(OVER)
        await serving
        clock.close()
        logging.getLogger().removeHandler(faults)
        logging.getLogger("autosched").setLevel(logging.NOTSET)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="autosched-fuzz-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        told = runner.run(attack(Path(folder), args.frames, args.seed))
    print(msgspec.json.format(msgspec.json.encode(told), indent=1).decode())
    return 1 if told.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
