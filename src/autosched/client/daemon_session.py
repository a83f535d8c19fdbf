"""Reconnecting session with the daemon. Unacknowledged messages are sent again after a reconnect.

The daemon identifies a record by its number and the end of a step by the step's id, and counts each once. Messages that
may not have arrived are therefore repeated, in order.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from autosched.errors import AutoschedError, Busy, DaemonUnreachable, RequestError
from autosched.protocol import (
    DAEMON_METHODS,
    HEARTBEAT_S,
    PROTOCOL,
    SILENCE_S,
    AddRecord,
    Done,
    EndStep,
    ForgetMoved,
    Heartbeat,
    Hello,
    Method,
    Return,
    StopElsewhere,
    TagRecords,
)
from autosched.version import __version__
from autosched.wire.address import UNIX
from autosched.wire.handshake import introduce
from autosched.wire.link import CALL_TIMEOUT_S, Handler, Link
from autosched.wire.pauses import pauses

log = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

SEARCH_S = 600.0
"""Seconds after which the client gives up a lost daemon. A later client resumes the job from its records."""
ACKNOWLEDGE_S = 600.0
"""Maximum seconds for an acknowledgement. The daemon acknowledges durable data only, and so waits while its disk is
full."""
UNSAID_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes of messages kept for a daemon that does not acknowledge them."""
SAID_AT_ONCE = 16
"""Maximum repeated messages in flight."""


class DaemonSession:
    """The successive connections of one client."""

    def __init__(self, address: str, job: int, token: str, search_s: float = SEARCH_S) -> None:
        """`search_s`: maximum seconds of the search for a lost daemon."""
        self._address, self._job, self._token, self._search_s = address, job, token, search_s
        self._link: Link | None = None
        self._handler: Handler | None = None
        self._open = asyncio.Event()
        self._unsaid: deque[tuple[AddRecord | TagRecords, int]] = deque()  # with its size, in bytes
        self._dropped = 0  # number of messages removed from the left end
        self._bytes = 0
        self._back = asyncio.Condition()
        self.returns = 0
        """Number of reconnects after which this client has reported its state."""

    async def open(self, handler: Handler) -> None:
        """Connect for the first time. Raises DaemonUnreachable, or the daemon's refusal."""
        self._handler = handler
        self._link = await self._connect(returns=False)
        self._open.set()

    async def _connect(self, *, returns: bool) -> Link:
        link = await Link.open(self._address, serves=DAEMON_METHODS, handler=self._handler)
        try:
            hello = Hello(
                protocol=PROTOCOL,
                software=f"autosched {__version__}",
                role="client",
                job=self._job,
                token=self._token,
                returns=returns,
            )
            await introduce(link, hello)
        except BaseException:
            link.abort("hello failed")
            raise
        return link

    def close(self) -> None:
        """End the connection; the daemon then counts this client as lost."""
        if self._link is not None:
            self._link.close()

    # Saying -----------------------------------------------------------------------------------------------------------

    async def over(self, work: Callable[[Link], Awaitable[T]]) -> T:
        """Do work over a connection, and repeat it from its beginning over the next one if the connection is lost."""
        while True:
            await self._open.wait()
            link = self._link
            assert link is not None
            try:
                return await work(link)
            except DaemonUnreachable:
                if not link.closed:  # connected, but the daemon does not answer
                    raise
                if self._link is link:
                    self._open.clear()  # until the next connection

    async def ask(self, method: Method, kind: type[S], *, timeout_s: float = CALL_TIMEOUT_S) -> S:
        """Call the daemon, again if the connection is lost before the answer."""
        return await self.over(lambda link: link.call(method, kind, timeout_s=timeout_s))

    def tell(self, method: AddRecord | TagRecords) -> bool:
        """Send a message that must not be lost; the next acknowledged end of a step confirms it.

        Returns False if more bytes are unacknowledged than may be kept; the client must then end.
        """
        size = len(msgspec.msgpack.encode(method))
        self._bytes += size
        self._unsaid.append((method, size))
        if self._open.is_set() and self._link is not None and not self._link.closed:
            self._link.notify(method)
        return self._bytes <= UNSAID_BYTES_MAX

    def mention(self, method: StopElsewhere | ForgetMoved) -> None:
        """Send a message that may be lost."""
        if self._open.is_set() and self._link is not None and not self._link.closed:
            self._link.notify(method)

    async def wait_return(self, returns: int) -> None:
        """Wait until this client has reconnected more often than `returns`."""
        async with self._back:
            await self._back.wait_for(lambda: self.returns > returns)

    async def end(self, says: Callable[[bool], EndStep]) -> None:
        """Report the end of a step; returns when it and all earlier messages are durable in the daemon.

        `says` is called when the report is sent, with True if it was sent before, over a connection that was lost.
        """
        again = False

        async def say(link: Link) -> int:
            nonlocal again
            told = self._dropped + len(self._unsaid)
            report, again = says(again), True
            await link.call(report, Done, timeout_s=ACKNOWLEDGE_S)
            return told

        self._drop(await self.over(say))

    def _drop(self, told: int) -> None:
        while self._unsaid and self._dropped < told:
            self._bytes -= self._unsaid.popleft()[1]
            self._dropped += 1

    async def beat(self) -> None:
        """Send heartbeats, without end; each answer shows that the daemon is alive."""
        while True:
            if self._link is not None and not self._link.closed:
                await self._link.keep_alive(Heartbeat(), HEARTBEAT_S, SILENCE_S)
            else:
                await asyncio.sleep(HEARTBEAT_S)

    # Coming back ------------------------------------------------------------------------------------------------------

    async def keep(self, standing: Callable[[], Return | None]) -> str:
        """Reconnect whenever the connection is lost, and report the client's state; returns the reason of the end."""
        while True:
            assert self._link is not None
            why = await self._link.wait_closed()
            self._open.clear()
            if standing() is None:
                return why
            log.warning("the connection to the daemon was lost: %s", why)
            if over := await self._search(standing):
                return over
            log.info("back at the daemon")

    async def _search(self, standing: Callable[[], Return | None]) -> str:
        """Search for the daemon; returns why it was not found."""
        clock, why = asyncio.get_running_loop().time, "it does not answer"
        until = clock() + self._search_s
        for pause_s in pauses():
            if clock() + pause_s > until:
                break
            await asyncio.sleep(pause_s)
            try:
                return await self._return(standing)
            except AutoschedError as error:
                why = str(error)
                if isinstance(error, RequestError) and not isinstance(error, Busy):
                    return f"the daemon does not take this client back: {why}"
            if not self._can_come_back():
                return f"nothing is left of the daemon: {why}"
        return f"the daemon did not come back within {self._search_s:g} s: {why}"

    def _can_come_back(self) -> bool:
        return not self._address.startswith(UNIX) or Path(self._address.removeprefix(UNIX)).parent.is_dir()

    async def _return(self, standing: Callable[[], Return | None]) -> str:
        self._link = link = await self._connect(returns=True)
        try:
            said = standing()
            assert said is not None, "a client that has reported its load can report it again"
            self.returns += 1
            await link.call(said, Done, timeout_s=ACKNOWLEDGE_S)
            while self._unsaid:
                some = [method for method, _ in list(self._unsaid)[:SAID_AT_ONCE]]
                calls = (link.call(one, Done, timeout_s=ACKNOWLEDGE_S) for one in some)
                for answer in await asyncio.gather(*calls, return_exceptions=True):
                    stored = isinstance(answer, RequestError) and not isinstance(answer, Busy)
                    if isinstance(answer, BaseException) and not stored:
                        raise answer
                self._drop(self._dropped + len(some))
        except BaseException:
            link.abort("it did not get back")
            raise
        self._open.set()
        async with self._back:
            self._back.notify_all()
        return ""
