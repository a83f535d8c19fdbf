"""Sends mutated frames to a daemon, before and after hello: ``python tests/fuzz.py`` (a million), or --frames N.

The daemon runs in this process, in its own folder, and its attackers in another one (tests/attackers.py), so that
garbage collections and memory here are the daemon's. The time that its loop spends on one frame is measured in steps:
reading and decoding, each stretch of a handler between two awaits, the scheduler's decision, and passing answers to the
kernel. CPU time counts, including the garbage collector's; wall time, reported beside it, contains that of other
processes on the core. To separate the effects of the machine, above all a virtual one, each of the daemon's steps is
followed by a harmless one, an addition and a write to a reader, timed by the same clock.
"""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvloop

import attackers
from autosched import config
from autosched.daemon.compose import Daemon as Served
from autosched.daemon.runtime import Runtime
from autosched.daemon.settings_reload import LiveSettings
from autosched.errors import AutoschedError
from autosched.process.process_tree import resident_bytes
from autosched.protocol import FRAME_BYTES
from autosched.wire.frames import Peer
from autosched.wire.link import Link
from hostile_frames import METHODS

FRAMES = 1_000_000
DRAWN = 400
"""Number of values that hypothesis draws for a run."""
SLOW_S = 1e-3
KEPT_MAX = 1_000
ONE_BY_ONE, ANSWER = range(1_000), bytes(90)
"""Harmless work of some 20 us, and a write of maximum usual length."""
OVER = "the fuzzing is over"


# What the loop spends -------------------------------------------------------------------------------------------------


class Collections(msgspec.Struct):
    """Runs of Python's garbage collector."""

    count: int = 0
    found: int = 0
    worst_ms: float = 0.0
    """CPU time."""


class Harmless(msgspec.Struct):
    """Steps of known work."""

    total_s: float = 0.0
    worst_ms: float = 0.0
    slow: int = 0


class Spent(msgspec.Struct):
    """Steps of the daemon's loop. Times are CPU times including the garbage collector's, unless called wall."""

    steps: int = 0
    total_s: float = 0.0
    worst_ms: float = 0.0
    worst_wall_ms: float = 0.0
    slow: int = 0
    """Number of steps of more than a millisecond."""
    slow_for_collector: int = 0
    """Number of those that would have been shorter without garbage collections."""
    slow_wall: int = 0
    slow_in: dict[str, int] = {}
    """Slow steps by kind: reading, sending, deciding, or the method that was handled."""
    worst_in_ms: dict[str, float] = {}
    adding: Harmless = msgspec.field(default_factory=Harmless)
    writing: Harmless = msgspec.field(default_factory=Harmless)
    """Harmless steps, one for each step of the daemon."""
    collections: list[Collections] = []
    """Collections by generation."""


class Clock:
    """Times the steps of the loop in the thread that creates it."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._collection_began_at = self._collecting_s = 0.0
        self._inside = False
        self._frame = b""
        self._answer: Callable[[bytes], object] = bytes
        self.reset()

    def reset(self) -> None:
        """Resets all figures."""
        self.spent = Spent(collections=[Collections() for _ in range(3)])
        self.slow_frames: list[bytes] = []

    def _collect(self, phase: str, told: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._collection_began_at = now
            return
        of = self.spent.collections[told["generation"]]
        of.count, of.found = of.count + 1, of.found + told["collected"]
        of.worst_ms = max(of.worst_ms, 1e3 * (now - self._collection_began_at))
        if threading.get_ident() == self._thread:
            self._collecting_s += now - self._collection_began_at

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Times one step; nested steps belong to the outer one."""
        if self._inside:
            yield
            return
        self._inside, self._frame = True, b""
        began_at, wall_began_at, collecting_s = time.thread_time(), time.perf_counter(), self._collecting_s
        try:
            yield
        finally:
            took_s, wall_s = time.thread_time() - began_at, time.perf_counter() - wall_began_at
            self._inside = False
            self._note(what, took_s, wall_s, self._collecting_s - collecting_s)

    def _note(self, what: str, took_s: float, wall_s: float, collecting_s: float) -> None:
        spent = self.spent
        spent.steps, spent.total_s = spent.steps + 1, spent.total_s + took_s
        spent.worst_ms, spent.worst_wall_ms = max(spent.worst_ms, 1e3 * took_s), max(spent.worst_wall_ms, 1e3 * wall_s)
        spent.slow_wall += wall_s > SLOW_S
        if took_s > SLOW_S:
            spent.slow += 1
            spent.slow_for_collector += took_s - collecting_s <= SLOW_S
            spent.slow_in[what] = spent.slow_in.get(what, 0) + 1
            spent.worst_in_ms[what] = max(spent.worst_in_ms.get(what, 0.0), 1e3 * took_s)
            if self._frame and len(self.slow_frames) < KEPT_MAX:
                self.slow_frames.append(self._frame)
        _timed_alone(spent.adding, partial(sum, ONE_BY_ONE))
        _timed_alone(spent.writing, partial(self._answer, ANSWER))

    def always_slow(self) -> list[bytes]:
        """Returns the frames that are slow in all of five further tries: the machine and the collector disturb single
        ones."""
        return [frame for frame in self.slow_frames if min(map(_decoding_s, [frame] * 5)) > SLOW_S]

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Times a daemon that starts in the block."""
        places: list[tuple[Any, str, Callable[..., Any], str]] = [
            (Link, "_hear", self._timed, "reading"),
            (Link, "_turn", self._timed, "reading"),
            (Link, "_send", self._timed, "sending"),
            (Link, "_handle", self._handling, "reading"),
            (Runtime, "_go_on", self._timed, "deciding"),
            (Runtime, "run", self._stepped, "deciding"),
        ]
        before = [(kind, name, getattr(kind, name)) for kind, name, _, _ in places] + [(Peer, "_decode", Peer._decode)]
        for kind, name, how, what in places:
            setattr(kind, name, how(getattr(kind, name), what))
        Peer._decode = self._noted(Peer._decode)  # type: ignore[method-assign]
        gc.callbacks.append(self._collect)
        mine, theirs = socket.socketpair()
        try:
            with (
                subprocess.Popen(["cat"], stdin=theirs, stdout=subprocess.DEVNULL),
                theirs,
                mine,
            ):  # closed last to first
                self._answer = mine.sendall
                yield
        finally:
            gc.callbacks.remove(self._collect)
            for kind, name, work in before:
                setattr(kind, name, work)

    def _noted(self, decode: Callable[[Peer, bytes], Any]) -> Callable[[Peer, bytes], Any]:
        def run(peer: Peer, frame: bytes) -> Any:
            self._frame = frame
            return decode(peer, frame)

        return run

    def _timed(self, work: Callable[..., None], what: str) -> Callable[..., None]:
        def run(*words: Any) -> None:
            with self.step(what):
                work(*words)

        return run

    def _stepped(self, work: Callable[..., Coroutine[Any, Any, Any]], what: str) -> Callable[..., Any]:
        """Returns the coroutine function with each stretch between two awaits timed."""
        return lambda *words: self._drive(work(*words), what)

    def _handling(self, work: Callable[..., None], what: str) -> Callable[..., None]:
        """Times the handler: its first stretch belongs to the reading, the stretches of a coroutine are timed
        separately."""

        def run(link: Link, id: int | None, method: Any) -> None:
            handler = link.handler

            def handle(method: Any) -> Any:
                assert handler is not None
                going = handler(method)
                name = type(method).__name__
                return self._drive(going, name) if isinstance(going, Coroutine) else going

            link.handler = handler and handle
            try:
                work(link, id, method)
            finally:
                link.handler = handler

        return run

    @types.coroutine
    def _drive(self, going: Coroutine[Any, Any, Any], name: str) -> Generator[Any, Any, Any]:
        said: Any = None
        raised: BaseException | None = None
        waits_for: Any = None
        while True:
            try:
                with self.step(name):
                    waits_for = going.send(said) if raised is None else going.throw(raised)
            except StopIteration as done:
                return done.value
            finally:
                raised = None  # it refers to this frame, and only the collector would free both
            try:
                said = yield waits_for
            except BaseException as error:  # a cancellation belongs to the handler
                raised = error
            finally:
                waits_for = None


def _timed_alone(told: Harmless, work: Callable[[], object]) -> None:
    began_at = time.thread_time()
    work()
    took_s = time.thread_time() - began_at
    told.total_s, told.worst_ms = told.total_s + took_s, max(told.worst_ms, 1e3 * took_s)
    told.slow += took_s > SLOW_S


def _decoding_s(frame: bytes) -> float:
    peer = Peer(METHODS, FRAME_BYTES)
    began_at = time.thread_time()
    with suppress(AutoschedError):
        peer._decode(frame)
    return time.thread_time() - began_at


class Undying(Served):
    """A daemon that no frame may stop."""

    def stop(self, *words: Any, **named: Any) -> None:
        if words == (OVER,):
            super().stop(*words, **named)
        elif words[0] in (signal.SIGINT.name, signal.SIGTERM.name):  # the user interrupts
            os._exit(130)


class Faults(logging.Handler):
    """Counts crashes of handlers, which the daemon answers and logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


# The attack -----------------------------------------------------------------------------------------------------------


class Told(msgspec.Struct):
    """Figures of the run."""

    frames: int
    crashes: list[str]
    connections: dict[str, int]
    spent: Spent
    frames_always_slow: list[str]
    rss_mb: list[float]
    """Resident memory in MB after each fifth of the frames."""
    seconds: float


async def attack(folder: Path, frames: int, seed: int, values: int = DRAWN) -> Told:
    """Starts a daemon, lets attackers send the frames, and returns the figures."""
    clock, faults = Clock(), Faults()
    logging.getLogger().addHandler(faults)
    logging.getLogger("autosched").setLevel(logging.ERROR)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.found.append(str(context)))
    try:
        with _attacked(folder, frames, seed, values) as throwing, clock.watching():
            served = Undying(LiveSettings(config.parse(f'[daemon]\nstate_dir = "{folder}"\n', "fuzz")), False)
            serving = asyncio.ensure_future(served.serve())
            rss_mb, came_to, began_at = await _follow(throwing, clock)
            served.stop(OVER)
            await serving
            assert throwing.wait() == 0, "the attackers failed; what they say is above"
        slow = [frame[:40].hex() for frame in clock.always_slow()]
        return Told(
            came_to.thrown, faults.found, came_to.connections, clock.spent, slow, rss_mb, time.monotonic() - began_at
        )
    finally:
        logging.getLogger().removeHandler(faults)
        logging.getLogger("autosched").setLevel(logging.NOTSET)


@contextlib.contextmanager
def _attacked(folder: Path, frames: int, seed: int, values: int) -> Iterator[subprocess.Popen[bytes]]:
    words = map(str, (sys.executable, attackers.__file__, folder, frames, seed, values))
    with subprocess.Popen(list(words), stdout=subprocess.PIPE) as throwing:
        try:
            yield throwing
        finally:
            throwing.kill()


async def _follow(throwing: subprocess.Popen[bytes], clock: Clock) -> tuple[list[float], attackers.Thrown, float]:
    """Follows the attackers to their end; returns the memory at each fifth, their result, and the time of their
    start."""
    rss_mb: list[float] = []
    came_to, began_at = attackers.Thrown(0), 0.0
    assert throwing.stdout is not None
    while line := await asyncio.to_thread(throwing.stdout.readline):
        came_to = msgspec.json.decode(line, type=attackers.Thrown)
        if came_to.thrown:
            rss_mb.append(resident_bytes("self") / 1e6)
        else:
            clock.reset()  # figures so far belong to the start
            began_at = time.monotonic()
    return rss_mb, came_to, began_at


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
    return 1 if told.crashes or told.frames_always_slow else 0


if __name__ == "__main__":
    sys.exit(main())
