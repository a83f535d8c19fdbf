"""A connection on asyncio: calls in both directions, deadlines and limits. Used by daemon sessions, clients and users.

Requests of the peer are handled concurrently and may be answered out of order. Handlers are called in the order of
arrival, so that everything before a handler returns its awaitable happens in that order; coroutines start later, in
that order too. A heartbeat is answered here. Messages of one turn of the loop are sent together.

Limits: at most `in_progress_max` requests of the peer run at once. Beyond that, and while the peer does not read our
answers, nothing more is read; nor while it has sent much more than could be handled in its turns, which are shorter the
more peers do that. A peer that leaves 1 MiB unread, or anything unread for 10 s, is disconnected; answers
that wait for it to read count as unread.
"""

import asyncio
import errno
import hashlib
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar, cast

from msgspec import Struct

from autosched.errors import AutoschedError, Busy, DaemonUnreachable, RequestError, WireError
from autosched.protocol import FRAME_BYTES, Done, Heartbeat, Method
from autosched.wire import address as addresses
from autosched.wire import suspend_aware_clock, unix_sockets
from autosched.wire.address import TCP, TLS, TLS_UNIX, UNIX
from autosched.wire.frames import Answer, Call, Closing, Methods, Notice, Peer, Rejected, result_of

log = logging.getLogger(__name__)

Handler = Callable[[Method], Awaitable[Struct | None]]
"""Answers a method; None means Done."""
T = TypeVar("T", bound=Struct)

SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EAGAIN)
"""Error numbers of a system that has no room for a call now."""
SERVER_NAME = "autosched"
"""Name in TLS for a daemon behind a unix socket; no certificate has to name it."""
CALL_TIMEOUT_S = 30.0
IN_PROGRESS_MAX = 64
UNREAD_BYTES_HIGH = 64 * 1024
"""Unread bytes from which on answers wait until the peer reads."""
UNREAD_BYTES_MAX = 1024 * 1024
UNREAD_S_MAX = 10.0
"""Maximum bytes, and seconds, that a peer may leave unread; it is then disconnected."""
TURN_S, TURNS_S = 0.5e-3, 10e-3
"""Seconds of a turn, after which other connections are served, and of the turns of all connections that have more to
say. The synchronous part of handlers counts."""
BEHIND_BYTES = 64 * 1024
"""Bytes that may wait to be handled after a turn; with more of them, nothing is read."""
ARRIVED_BYTES = 256 * 1024
"""Bytes of the receive buffer."""
TIMER_SLACK_S = 1e-3
"""Resolution of the loop's timers in seconds."""


class _Shared(threading.local):
    """State of all connections of a thread: their receive buffer, from which received bytes are copied at once, and how
    many are busy. Without it, each TLS record would allocate 256 KiB."""

    def __init__(self) -> None:
        self.arrived = memoryview(bytearray(ARRIVED_BYTES))
        self.busy = 0
        """Number of connections whose last turn was too short."""


_SHARED = _Shared()
_DONE = Done()


class _Asked(Struct, eq=False):
    """A call of ours without an answer so far."""

    name: str
    timeout_s: float
    due_at: float
    over: Callable[[Answer | AutoschedError], None]
    """Called with the answer, or with the error."""


class Link(asyncio.BufferedProtocol):
    """One open connection, on either side."""

    def __init__(
        self,
        serves: Methods,
        handler: Handler | None = None,
        *,
        frame_bytes: int = FRAME_BYTES,
        in_progress_max: int = IN_PROGRESS_MAX,
        opened: Callable[["Link"], None] | None = None,
    ) -> None:
        self.peer = Peer(serves, frame_bytes)
        self.handler = handler
        self.in_progress_max = in_progress_max
        self.address = "?"
        """Address of the peer."""
        self.channel = b""
        """Channel binding of proofs: SHA-256 of the daemon's certificate; empty without one."""
        self.lost = ""
        """Why the connection ended; empty while it is open."""
        self.hung_up = False
        """Whether the peer ended the connection, and not this end or a fault between them."""
        self.last_heard_at = 0.0
        """When the peer last sent anything, by `clock`."""
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        self.clock = suspend_aware_clock.clock().time
        self._transport: asyncio.Transport | None = None
        self._arrived = _SHARED.arrived
        self._closed = asyncio.Event()
        self._readable = True  # while the peer reads what we write
        self._unread_alarm: asyncio.TimerHandle | None = None
        self._unread: list[bytes] = []  # answers that wait until the peer reads
        self._unread_bytes = 0
        self._unsent: list[bytes] = []  # sent at the end of this turn of the loop
        self._unsent_bytes = 0
        self._calls: dict[int, _Asked] = {}
        self._due_at = math.inf  # no later than the first deadline of a call
        self._due: asyncio.TimerHandle | None = None
        self._handling: set[asyncio.Future[Struct | None]] = set()
        self._reading = True
        self._turn_planned = False
        self._busy = False  # whether the last turn was too short

    @classmethod
    async def open(
        cls, address: str, *, serves: Methods | None = None, handler: Handler | None = None, timeout_s: float = 5.0
    ) -> "Link":
        """Connect to "unix:/path", "tcp://host:port" or "tls://host:port". Raises DaemonUnreachable."""
        loop = asyncio.get_running_loop()

        def link() -> Link:
            return cls(serves or {}, handler)

        try:
            async with asyncio.timeout(timeout_s):
                if address.startswith((UNIX, TLS_UNIX)):
                    tls = addresses.tls_to(address)
                    with unix_sockets.short(address.removeprefix(TLS_UNIX).removeprefix(UNIX)) as name:
                        _, opened = await loop.create_unix_connection(
                            link, name, ssl=tls, server_hostname=None if tls is None else SERVER_NAME
                        )
                else:
                    host, port = addresses.tcp(address)
                    _, opened = await loop.create_connection(link, host, port, ssl=addresses.tls_to(address))
        except TimeoutError:
            raise _unreachable(address, f"no answer in {timeout_s:g} s") from None
        except OSError as error:
            raise _unreachable(address, error.strerror or str(error)) from None
        opened.address = address
        return opened

    # Calling ----------------------------------------------------------------------------------------------------------

    async def call(self, method: Method, kind: type[T], *, timeout_s: float = CALL_TIMEOUT_S) -> T:
        """Call a method of the peer. Raises the error of the answer, or DaemonUnreachable if none comes."""
        return result_of(await self.ask(method, timeout_s), kind)

    def ask(self, method: Method, timeout_s: float) -> asyncio.Future[Answer]:
        """Send a request; the future fails with DaemonUnreachable if no answer comes. Raises DaemonUnreachable if the
        connection is already closed."""
        answered: asyncio.Future[Answer] = self._loop.create_future()

        def over(answer: Answer | AutoschedError) -> None:
            if answered.done():  # no caller waits any more
                return
            if isinstance(answer, Answer):
                answered.set_result(answer)
            else:
                answered.set_exception(answer)

        self._ask(method, timeout_s, over)
        return answered

    def order(self, method: Method, timeout_s: float, failed: Callable[[AutoschedError], None]) -> None:
        """Call a method whose answer is Done; `failed` is called with its error."""

        def over(answer: Answer | AutoschedError) -> None:
            if isinstance(answer, AutoschedError):
                return failed(answer)
            try:
                result_of(answer, Done)
            except AutoschedError as error:
                failed(error)

        try:
            self._ask(method, timeout_s, over)
        except AutoschedError as error:
            failed(error)

    def _ask(self, method: Method, timeout_s: float, over: Callable[[Answer | AutoschedError], None]) -> None:
        id, frame = self.peer.request(method)
        self._check_open()
        due_at = self.clock() + timeout_s
        self._calls[id] = _Asked(type(method).__name__, timeout_s, due_at, over)
        self._write(frame)
        if due_at < self._due_at:
            self._watch(due_at)

    def _watch(self, due_at: float) -> None:
        """Set a timer. One that fires too early is cheaper than one for each call: almost all are answered in time."""
        if self._due is not None:
            self._due.cancel()
        self._due_at, self._due = due_at, self._loop.call_later(due_at - self.clock(), self._overdue)

    def _overdue(self) -> None:
        now, self._due_at, self._due = self.clock() + TIMER_SLACK_S, math.inf, None
        for id, asked in list(self._calls.items()):
            if asked.due_at <= now:
                del self._calls[id]
                why = f"{self.address} did not answer {asked.name} within {asked.timeout_s:g} s"
                asked.over(DaemonUnreachable(why))
        if self._calls:
            self._watch(min(asked.due_at for asked in self._calls.values()))

    def notify(self, method: Method) -> None:
        """Send a notification. Raises DaemonUnreachable if the connection is already closed."""
        self._check_open()
        self._write(self.peer.notify(method))

    async def keep_alive(self, ask: Method, every_s: float, silence_s: float) -> None:
        """Send a request every `every_s` seconds until the connection ends; end it after `silence_s` seconds of
        silence.

        Answers are ignored and may be late: no caller waits for them.
        """
        while not self.closed:
            self._write(self.peer.request(ask)[1])
            await asyncio.sleep(every_s)
            if self.clock() - self.last_heard_at > silence_s and self._reading:
                self.abort(f"it said nothing for {silence_s:g} s")

    async def wait_silent(self, seconds: float) -> None:
        """Wait until the peer has been silent for some seconds. Silence counts only while this end reads."""
        while True:
            left_s = self.last_heard_at + seconds - self.clock()
            if left_s <= 0 and self._reading:
                return
            await asyncio.sleep(max(left_s, 1.0))

    async def abort_when_silent(self, seconds: float) -> None:
        """Abort the connection once the peer has been silent for some seconds."""
        await self.wait_silent(seconds)
        self.abort(f"it said nothing for {seconds:g} s")

    def close(self, reason: str = "closed by this end") -> None:
        """Close after everything written has been sent; the peer has 10 s to read it."""
        if self._transport is not None and not self._transport.is_closing():
            self.lost = self.lost or reason
            self._send()
            self._transport.close()
            if self._unread_alarm is None:
                self._unread_alarm = self._loop.call_later(UNREAD_S_MAX, self._transport.abort)

    def refuse(self, reason: str) -> None:
        """Tell the peer why the connection is refused, and close."""
        self.lost = self.lost or reason
        self._write(self.peer.closing(WireError(reason)))
        self.close()

    def abort(self, reason: str) -> None:
        """Close at once."""
        self.lost = self.lost or reason
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> str:
        """Wait for the end of the connection, by either side; returns the reason."""
        await self._closed.wait()
        return self.lost

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def reading(self) -> bool:
        """False while limits keep this end from reading."""
        return self._reading

    def _check_open(self) -> None:
        if self.closed:
            raise DaemonUnreachable(f"the connection to {self.address} is gone: {self.lost or 'closed'}")

    def _write(self, frame: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        if self._unsent_bytes > UNREAD_BYTES_HIGH:
            self._send()

    def _send(self) -> None:
        transport, unsent, self._unsent, self._unsent_bytes = self._transport, self._unsent, [], 0
        if not unsent or transport is None or transport.is_closing():
            return
        transport.write(b"".join(unsent))
        if transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self.abort(f"it left {UNREAD_BYTES_MAX} bytes unread")

    # Being called -----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Handle messages within the limits; the rest stays in the buffer, undecoded."""
        self._turn_planned = False
        if self.closed:
            return
        until = time.perf_counter() + min(TURN_S, TURNS_S / (_SHARED.busy or 1))
        while time.perf_counter() < until:
            if self.lost or len(self._handling) >= self.in_progress_max or not self._readable:
                break
            try:
                message = self.peer.next()
            except WireError as broken:
                self.refuse(str(broken))
                return
            if message is None:
                break
            match message:
                case Answer(id=id):
                    if (asked := self._calls.pop(id, None)) is not None:
                        asked.over(message)
                case Call(id=id, method=method):
                    if isinstance(method, Heartbeat):
                        self._write(self.peer.respond(id, _DONE))
                    else:
                        self._handle(id, method)
                case Notice(method=method):
                    if not isinstance(method, Heartbeat):
                        self._handle(None, method)
                case Rejected(id=id, error=error):
                    self._write(self.peer.fail(id, error))
                case Closing(reason=reason):
                    self.hung_up = True
                    self.close(f"the peer closed the connection: {reason}")
                    return
        else:
            self._plan_turn()
        self._set_busy(self._turn_planned)
        behind = self._turn_planned and self.peer.pending_bytes > BEHIND_BYTES
        self._set_reading(len(self._handling) < self.in_progress_max and self._readable and not behind)

    def _set_busy(self, busy: bool) -> None:
        if busy != self._busy:
            self._busy = busy
            _SHARED.busy += 1 if busy else -1

    def _plan_turn(self) -> None:
        if not self._turn_planned:
            self._turn_planned = True
            self._loop.call_soon(self._turn)

    def _set_reading(self, reading: bool) -> None:
        if reading == self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _handle(self, id: int | None, method: Method) -> None:
        """Handle a request, or a notification if `id` is None."""
        try:
            if self.handler is None:
                raise WireError(f"nothing here answers {type(method).__name__}")
            answer = self.handler(method)
            handled = answer if isinstance(answer, asyncio.Future) else asyncio.ensure_future(answer)
        except Exception as error:  # any exception of a handler is answered, and the connection goes on
            self._failed(id, method, error)
        else:
            self._handling.add(handled)
            handled.add_done_callback(partial(self._handled, id, method))

    def _handled(self, id: int | None, method: Method, handled: asyncio.Future[Struct | None]) -> None:
        self._handling.discard(handled)
        if not handled.cancelled():
            if (error := handled.exception()) is not None:
                self._failed(id, method, error)
            elif id is not None:
                self._respond(id, handled.result())
        if not self._reading or self.peer.pending_bytes:
            self._plan_turn()

    def _respond(self, id: int, result: Struct | None) -> None:
        try:
            frame = self.peer.respond(id, result or _DONE)
        except WireError as too_long:
            frame = self.peer.fail(id, too_long)
        self._answer(frame)

    def _failed(self, id: int | None, method: Method, error: BaseException) -> None:
        name = type(method).__name__
        if isinstance(error, OSError) and error.errno in SCARCE:  # a call may be repeated when the system has room
            log.error("%s of %s cannot be done now: %s", name, self.address, error)
            error = Busy(f"{name} cannot be done now: {error.strerror}; try again later")
        if not isinstance(error, AutoschedError):
            log.error("%s of %s crashed", name, self.address, exc_info=error)
            error = RequestError(f"{name} crashed; the log of the peer says why")
        elif id is None:
            log.warning("%s of %s was refused: %s", name, self.address, error)
        if id is not None:
            self._answer(self.peer.fail(id, error))

    def _answer(self, frame: bytes) -> None:
        """Send an answer now, or when the peer reads again."""
        if self._readable:
            self._write(frame)
            return
        self._unread.append(frame)
        self._unread_bytes += len(frame)
        if self._unread_bytes > UNREAD_BYTES_MAX:
            self.abort(f"it left {UNREAD_BYTES_MAX} bytes of answers unread")

    # asyncio.BufferedProtocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the connection is established."""
        transport = cast(asyncio.Transport, transport)  # uvloop has its own, unrelated class
        self._transport = transport
        transport.set_write_buffer_limits(high=UNREAD_BYTES_HIGH)
        self.last_heard_at = self.clock()
        peer, tls = transport.get_extra_info("peername"), transport.get_extra_info("ssl_object")
        if tls is not None:
            self.channel = hashlib.sha256(tls.getpeercert(binary_form=True) or b"").digest()
        if isinstance(peer, tuple):
            self.address = f"{TCP if tls is None else TLS}{peer[0]}:{peer[1]}"
            addresses.notice_silence(transport.get_extra_info("socket"))
        else:
            self.address = f"{UNIX}{peer or transport.get_extra_info('sockname') or ''}"
        if self._opened is not None:
            self._opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for received bytes."""
        return self._arrived

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop when bytes arrived."""
        self._hear(self._arrived[:nbytes])

    def _hear(self, data: memoryview) -> None:
        self.last_heard_at = self.clock()
        self.peer.feed(data)
        if not self._turn_planned:
            self._turn()

    def pause_writing(self) -> None:
        """Called when the peer does not read fast enough."""
        self._readable = False
        if self._unread_alarm is None:
            reason = f"it read nothing for {UNREAD_S_MAX:g} s"
            self._unread_alarm = self._loop.call_later(UNREAD_S_MAX, self.abort, reason)

    def resume_writing(self) -> None:
        """Called when the peer has caught up."""
        self._readable = True
        for frame in self._unread:
            self._write(frame)
        self._unread, self._unread_bytes = [], 0
        if self._unread_alarm is not None and not self.closed:
            self._unread_alarm.cancel()
            self._unread_alarm = None
        self._plan_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection is closed."""
        self._set_busy(False)
        self.hung_up |= exc is None and not self.lost
        self.lost = self.lost or (str(exc) if exc is not None else "the peer closed the connection")
        if self._unread_alarm is not None:
            self._unread_alarm.cancel()
        error = DaemonUnreachable(f"the connection to {self.address} was lost: {self.lost}")
        unanswered, self._calls = self._calls, {}
        for asked in unanswered.values():
            asked.over(error)
        if self._due is not None:
            self._due.cancel()
        for handled in self._handling:
            handled.cancel()
        self.handler = None  # the handler may refer to this link: only the garbage collector would free the two
        self._unread.clear()
        self._closed.set()


def _unreachable(address: str, why: str) -> DaemonUnreachable:
    return DaemonUnreachable(f"no daemon answers at {address} ({why}); start one with: autosched serve")
