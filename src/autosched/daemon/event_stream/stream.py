"""The single stream of the daemon's events. An event that must be durable is published after it is.

Logs, metrics, the monitor and the page all read this stream, so that they agree. A fast listener is called directly
(`attach`). A slow reader gets a bounded buffer (`subscribe`): events without room there are dropped and counted. No
reader can delay the daemon.
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
"""Maximum events in a reader's buffer. An event has about 300 bytes, and at most a kilobyte for each text."""

Take = Callable[[DaemonEvent], None]
_Taker = tuple[Take, tuple[type[Struct], ...]]
"""A listener and the types of events that it takes; none: all."""


class Filter(Struct, frozen=True):
    """The events that a reader wants. An empty field restricts nothing."""

    jobs: frozenset[JobId] = frozenset()
    units: frozenset[UnitName] = frozenset()
    names: frozenset[str] = frozenset()
    level: int = logging.INFO

    @classmethod
    def parse(cls, words: str) -> "Filter":
        """Parse a filter such as `job=12,14 unit=cpu0 what=StepEnded level=debug`. Raises RequestError."""
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

    def wants(self, event: DaemonEvent) -> bool:
        """Whether an event passes. Events that are named in the filter pass at any level."""
        if self.names and event.name not in self.names:
            return False
        if not self.names and event.level < self.level:
            return False
        if self.jobs and event.job not in self.jobs:
            return False
        return not self.units or not self.units.isdisjoint(event.units)


USUAL = Filter()
EVERYTHING = Filter(level=logging.NOTSET)


class Subscription:
    """Buffer of one reader: an asynchronous iterator that ends with `close`, and a context manager."""

    def __init__(self, stream: "Stream", wants: Filter, waiting_max: int) -> None:
        self._stream, self._wants = stream, wants.wants
        self._waiting: deque[DaemonEvent] = deque()
        self._room = waiting_max
        self._missed = 0
        """Number of events dropped since the last one in the buffer."""
        self._last_missed: DaemonEvent
        """The last dropped event; unset before the first."""
        self._news = asyncio.Event()
        self.dropped = 0
        """Number of dropped events."""
        self.closed = False

    def offer(self, event: DaemonEvent) -> None:
        """Add an event, if it passes the filter and there is room."""
        if not self._wants(event):
            return
        if len(self._waiting) >= self._room:
            self._missed += 1
            self._last_missed = event
            self.dropped += 1
            self._stream.dropped += 1
        else:
            if self._missed:
                self._waiting.append(self._gap())
            self._waiting.append(event)
        self._news.set()

    def _gap(self) -> DaemonEvent:
        """An event that stands for the dropped ones."""
        missed, self._missed, last = self._missed, 0, self._last_missed
        return DaemonEvent(last.at, last.wall_s, Dropped(missed))

    def take(self) -> list[DaemonEvent]:
        """Take all events of the buffer. Dropped events are represented by their number."""
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
        """Stop receiving. Events in the buffer can still be taken."""
        self.closed = True
        self._stream.leave(self)
        self._news.set()

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Stream:
    """Publishes events. To be used in the event loop's thread only."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: the scheduler's clock in seconds."""
        self._clock = clock
        self._takers: tuple[_Taker, ...] = ()
        self._takers_of: dict[type[Struct], tuple[_Taker, ...]] = {}
        """Listeners by type of event, for types that were published."""
        self.dropped = 0
        """Number of dropped events of all readers."""
        self._readers: dict[Subscription, None] = {}

    @property
    def readers(self) -> int:
        """Number of readers with a buffer."""
        return len(self._readers)

    def attach(self, take: Take, *kinds: type[Struct]) -> None:
        """Call a listener with each event of some types; without types with all. A listener must neither wait nor
        publish. A listener that raises is removed."""
        self._set_takers((*self._takers, (take, kinds)))

    def _set_takers(self, takers: tuple[_Taker, ...]) -> None:
        self._takers = takers
        self._takers_of.clear()

    def subscribe(self, wants: Filter = USUAL, waiting_max: int = WAITING_MAX) -> Subscription:
        """Buffer the events from now on that pass a filter, at most `waiting_max`. To be closed by the reader."""
        reader = Subscription(self, wants, waiting_max)
        self._readers[reader] = None
        return reader

    def leave(self, reader: Subscription) -> None:
        """Remove a reader."""
        self._readers.pop(reader, None)

    def publish(self, what: What, at: float | None = None) -> None:
        """Publish an event. `at`: its time by the scheduler's clock; None: now."""
        if not self._takers and not self._readers:
            return
        now = self._clock() if at is None else at
        wall_s = time.time()  # noqa: TID251 - to be shown; a datetime takes ten times as long
        kind, event = type(what), DaemonEvent(now, wall_s, what)
        if (takers := self._takers_of.get(kind)) is None:
            takers = tuple(taker for taker in self._takers if not taker[1] or kind in taker[1])
            self._takers_of[kind] = takers
        for taker in takers:
            try:
                taker[0](event)
            except Exception:
                self._set_takers(tuple(one for one in self._takers if one is not taker))
                log.exception("%r fails at %s, and is told nothing more", taker[0], event.name)
        for reader in self._readers:
            reader.offer(event)
