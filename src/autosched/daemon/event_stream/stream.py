"""The one stream of the daemon's events: each is published once, after it is durable where it has to be.

Logs, metrics, the monitor and the page all read it, so they cannot disagree. A listener that only counts is called at
once (`attach`) and must be quick. A listener with a slow reader has a bounded buffer of its own (`subscribe`): an event
that finds no room there is dropped and counted. No reader can hold up the daemon.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from msgspec import Struct

from autosched.daemon.event_stream.daemon_events import DaemonEvent, Dropped, What
from autosched.errors import RequestError
from autosched.model import JobId, UnitName

log = logging.getLogger(__name__)

WAITING_MAX = 1_000
"""Happenings that wait for one reader: some 300 bytes each, and a kilobyte at the very most for each of its words."""

Take = Callable[[DaemonEvent], None]
_Taker = tuple[Take, tuple[type[Struct], ...]]
"""And the kinds that it takes; none: all."""


class Filter(Struct, frozen=True):
    """The events that a reader wants. An empty field restricts nothing."""

    jobs: frozenset[JobId] = frozenset()
    units: frozenset[UnitName] = frozenset()
    names: frozenset[str] = frozenset()
    level: int = logging.INFO

    @classmethod
    def parse(cls, words: str) -> "Filter":
        """From words as people type them: `job=12,14 unit=cpu0 what=StepEnded level=debug`. Raises RequestError."""
        jobs: set[int] = set()
        units: set[str] = set()
        names: set[str] = set()
        level = logging.INFO
        for word in words.split():
            key, _, value = word.partition("=")
            values = {part for part in value.split(",") if part}
            levels = logging.getLevelNamesMapping()
            if key == "job" and values and all(part.isdecimal() for part in values):
                jobs |= {int(part) for part in values}
            elif key == "unit" and values:
                units |= values
            elif key == "what" and values:
                names |= values
            elif key == "level" and value.upper() in levels:
                level = levels[value.upper()]
            else:
                raise RequestError(
                    f"{word!r} is no filter; write for example: job=12,14 unit=cpu0 what=StepEnded level=debug"
                )
        return cls(frozenset(jobs), frozenset(units), frozenset(names), level)

    def wants(self, happening: DaemonEvent) -> bool:
        """Whether it passes. A kind that is asked for by name passes at any level."""
        if self.names and happening.name not in self.names:
            return False
        if not self.names and happening.level < self.level:
            return False
        if self.jobs and happening.job not in self.jobs:
            return False
        return not self.units or not self.units.isdisjoint(happening.units)


USUAL = Filter()
EVERYTHING = Filter(level=logging.NOTSET)


class Subscription:
    """Buffer of one reader. An asynchronous iterator that ends when it is closed; also a context manager."""

    def __init__(self, stream: "Stream", wants: Filter, waiting_max: int) -> None:
        self._stream, self._wants = stream, wants.wants
        self._waiting: deque[DaemonEvent] = deque()
        self._room = waiting_max
        self._missed = 0
        """Since the last that was kept or told as missing."""
        self._last_missed: DaemonEvent
        """Only there once something was missed."""
        self._news = asyncio.Event()
        self.dropped = 0
        """How many found no room so far."""
        self.closed = False

    def offer(self, happening: DaemonEvent) -> None:
        """Keep it, if it is wanted and there is room."""
        if not self._wants(happening):
            return
        if len(self._waiting) >= self._room:
            self._missed += 1
            self._last_missed = happening
            self.dropped += 1
            self._stream.dropped += 1
        else:
            if self._missed:
                self._waiting.append(self._gap())
            self._waiting.append(happening)
        self._news.set()

    def _gap(self) -> DaemonEvent:
        """In place of what was missed."""
        missed, self._missed, last = self._missed, 0, self._last_missed
        return DaemonEvent(last.at, last.wall_s, Dropped(missed))

    def take(self) -> list[DaemonEvent]:
        """Everything that waits, at once; what was dropped stands where it is missing."""
        taken = list(self._waiting)
        if self._missed:
            taken.append(self._gap())
        self._waiting.clear()
        self._news.clear()
        return taken

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> DaemonEvent:
        while not self._waiting and not self._missed:
            if self.closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft() if self._waiting else self._gap()

    def close(self) -> None:
        """Want nothing more; what waits can still be taken."""
        self.closed = True
        self._stream.leave(self)
        self._news.set()

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Stream:
    """Where everything is published. Only to be used in the loop's thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: the scheduler's, seconds."""
        self._clock = clock
        self._takers: tuple[_Taker, ...] = ()
        self._takers_of: dict[type[Struct], tuple[_Taker, ...]] = {}
        """Those who want such happenings, as far as that was asked."""
        self.dropped = 0
        """Number of events that found no room in a buffer, of all readers so far."""
        self._readers: dict[Subscription, None] = {}

    @property
    def readers(self) -> int:
        """Number of readers with a buffer."""
        return len(self._readers)

    def attach(self, take: Take, *kinds: type[Struct]) -> None:
        """Call this with each happening of these kinds; without any: with all. It must not wait, nor publish; one that
        raises is never called again."""
        self._set_takers((*self._takers, (take, kinds)))

    def _set_takers(self, takers: tuple[_Taker, ...]) -> None:
        self._takers = takers
        self._takers_of.clear()

    def subscribe(self, wants: Filter = USUAL, waiting_max: int = WAITING_MAX) -> Subscription:
        """Events from now on that pass the filter; at most `waiting_max` of them are buffered. Close it in the end."""
        reader = Subscription(self, wants, waiting_max)
        self._readers[reader] = None
        return reader

    def leave(self, reader: Subscription) -> None:
        """It wants nothing more."""
        self._readers.pop(reader, None)

    def publish(self, what: What, at: float | None = None) -> None:
        """Tell everybody. `at`: scheduler clock; None: now."""
        if not self._takers and not self._readers:
            return
        now = self._clock() if at is None else at
        wall_s = time.time()  # noqa: TID251 - to be shown; a datetime takes ten times as long
        kind, happening = type(what), DaemonEvent(now, wall_s, what)
        if (takers := self._takers_of.get(kind)) is None:
            takers = tuple(taker for taker in self._takers if not taker[1] or kind in taker[1])
            self._takers_of[kind] = takers
        for taker in takers:
            try:
                taker[0](happening)
            except Exception:
                self._set_takers(tuple(one for one in self._takers if one is not taker))
                log.exception("%r fails at %s, and is told nothing more", taker[0], happening.name)
        for reader in self._readers:
            reader.offer(happening)
