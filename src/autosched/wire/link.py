"""A connection on asyncio: calls out, calls in, deadlines and bounds. Daemon sessions, clients and users all use it.

Requests of the peer are handled concurrently and may be answered out of order. Handlers *start* in the order of
arrival, one loop turn each, so whatever a handler does before its first `await` happens in that order. A heartbeat is
answered right here. What is said within one turn of the loop leaves in one piece.

Bounds: at most `in_progress_max` requests of the peer run at once, beyond that nothing more is read; nor is it while
the peer does not read our answers. A peer that leaves 1 MiB unread, or anything unread for 10 s, is disconnected;
answers that wait until it reads count as unread.
"""

import asyncio
import hashlib
import logging
import math
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TypeVar, cast

from msgspec import Struct

from autosched.errors import AutoschedError, DaemonUnreachable, RequestError, WireError
from autosched.protocol import FRAME_BYTES, Done, Heartbeat, Method
from autosched.wire import address as addresses
from autosched.wire.address import TCP, TLS, UNIX
from autosched.wire.frames import Answer, Call, Closing, Methods, Notice, Peer, Rejected, result_of

log = logging.getLogger(__name__)

Handler = Callable[[Method], Awaitable[Struct]]
T = TypeVar("T", bound=Struct)

CALL_TIMEOUT_S = 30.0
IN_PROGRESS_MAX = 64
UNREAD_BYTES_HIGH = 64 * 1024
UNREAD_BYTES_MAX = 1024 * 1024
UNREAD_S_MAX = 10.0
MESSAGES_PER_TURN = 128
ARRIVED_BYTES = 256 * 1024
TIMER_SLACK_S = 1e-3
"""The loop's timers are as coarse as this."""


class _Shared(threading.local):
    """What all connections of a thread share: where bytes arrive, since they are taken from there at once. Without it
    each record of TLS would cost 256 KiB of fresh memory for a moment."""

    def __init__(self) -> None:
        self.arrived = memoryview(bytearray(ARRIVED_BYTES))


_SHARED = _Shared()


@dataclass(slots=True, eq=False)
class _Asked:
    """A call of ours that is not answered yet."""

    name: str
    timeout_s: float
    due_at: float
    answered: asyncio.Future[Answer]


class Link(asyncio.BufferedProtocol):
    """One open connection, seen from either end."""

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
        """Who is at the other end."""
        self.channel = b""
        """What proofs of keys are bound to: the SHA-256 of the certificate that the daemon showed, if it did."""
        self.lost = ""
        """Why the connection ended; empty while it stands."""
        self.hung_up = False
        """Whether the peer ended it, and not this end or a fault in between."""
        self.last_heard_at = 0.0
        """Loop time at which the peer last sent anything."""
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._arrived = _SHARED.arrived
        self._closed = asyncio.Event()
        self._readable = asyncio.Event()  # set while the peer reads what we write
        self._readable.set()
        self._unread_alarm: asyncio.TimerHandle | None = None
        self._answers_bytes = 0  # of answers that wait until the peer reads
        self._unsent: list[bytes] = []  # said in this turn of the loop
        self._unsent_bytes = 0
        self._calls: dict[int, _Asked] = {}
        self._due_at = math.inf  # not later than the first of their deadlines
        self._due: asyncio.TimerHandle | None = None
        self._handling: set[asyncio.Task[None]] = set()
        self._reading = True
        self._turn_planned = False

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
                if address.startswith(UNIX):
                    _, opened = await loop.create_unix_connection(link, address.removeprefix(UNIX))
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
        """Ask the peer. Raises the error it answers with, or DaemonUnreachable when no answer comes."""
        return result_of(await self.ask(method, timeout_s), kind)

    def ask(self, method: Method, timeout_s: float) -> asyncio.Future[Answer]:
        """Ask the peer; the future fails with DaemonUnreachable when no answer comes, and this raises it at once when
        the connection is gone already."""
        id, frame = self.peer.request(method)
        self._check_open()
        asked = _Asked(type(method).__name__, timeout_s, self._loop.time() + timeout_s, self._loop.create_future())
        self._calls[id] = asked
        self._write(frame)
        self._watch(asked.due_at)
        return asked.answered

    def order(self, method: Method, timeout_s: float, failed: Callable[[AutoschedError], None]) -> None:
        """Ask the peer for something that it answers with Done; `failed` is told why it did not."""

        def over(answered: asyncio.Future[Answer]) -> None:
            try:
                result_of(answered.result(), Done)
            except AutoschedError as error:
                failed(error)

        try:
            self.ask(method, timeout_s).add_done_callback(over)
        except AutoschedError as error:
            failed(error)

    def _watch(self, due_at: float) -> None:
        """A timer that goes off too early is cheaper than one for each call: almost all are answered in time."""
        if due_at < self._due_at:
            if self._due is not None:
                self._due.cancel()
            self._due_at, self._due = due_at, self._loop.call_at(due_at, self._overdue)

    def _overdue(self) -> None:
        now, self._due_at, self._due = self._loop.time() + TIMER_SLACK_S, math.inf, None
        for id, asked in list(self._calls.items()):
            if asked.answered.done():  # nobody waits any more
                del self._calls[id]
            elif asked.due_at <= now:
                del self._calls[id]
                why = f"{self.address} did not answer {asked.name} within {asked.timeout_s:g} s"
                asked.answered.set_exception(DaemonUnreachable(why))
        if self._calls:
            self._watch(min(asked.due_at for asked in self._calls.values()))

    def notify(self, method: Method) -> None:
        """Tell the peer something. Raises DaemonUnreachable when the connection is gone already."""
        self._check_open()
        self._write(self.peer.notify(method))

    async def keep_alive(self, ask: Method, every_s: float, silence_s: float) -> None:
        """Ask this now and then, until the connection ends; end it when the peer has said nothing for `silence_s`.

        It does not matter what the answer is, and answers take their time: nobody waits for one of them.
        """
        while not self.closed:
            asked_at = self._loop.time()
            self._write(self.peer.request(ask)[1])
            await asyncio.sleep(every_s)
            now = self._loop.time()
            stood_still = now - asked_at > 2 * every_s  # this process, so what has arrived is not read yet
            if now - self.last_heard_at > silence_s and self._reading and not stood_still:
                self.abort(f"it said nothing for {silence_s:g} s")

    def close(self, reason: str = "closed by this end") -> None:
        """Close after what was written has been sent; the peer has 10 s to take it."""
        if self._transport is not None and not self._transport.is_closing():
            self.lost = self.lost or reason
            self._send()
            self._transport.close()
            if self._unread_alarm is None:
                self._unread_alarm = self._loop.call_later(UNREAD_S_MAX, self._transport.abort)

    def refuse(self, reason: str) -> None:
        """Tell the peer why this end does not want it, and close."""
        self.lost = self.lost or reason
        self._write(self.peer.closing(WireError(reason)))
        self.close()

    def abort(self, reason: str) -> None:
        """Close at once."""
        self.lost = self.lost or reason
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> str:
        """Wait for the end of the connection, from whichever side; returns why."""
        await self._closed.wait()
        return self.lost

    @property
    def closed(self) -> bool:
        """True once nothing can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def reading(self) -> bool:
        """False while bounds keep this end from listening."""
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
        """Take as many messages as bounds allow; the rest stays where it is, undecoded."""
        self._turn_planned = False
        for _ in range(MESSAGES_PER_TURN):
            if self.closed or len(self._handling) >= self.in_progress_max or not self._readable.is_set():
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
                    if (asked := self._calls.pop(id, None)) is not None and not asked.answered.done():
                        asked.answered.set_result(message)
                case Call(id=id, method=Heartbeat()):
                    self._write(self.peer.respond(id, Done()))
                case Notice(method=Heartbeat()):
                    pass
                case Call(id=id, method=method):
                    self._handle(self._respond(id, method))
                case Notice(method=method):
                    self._handle(self._take(method))
                case Rejected(id=id, error=error):
                    self._write(self.peer.fail(id, error))
                case Closing(reason=reason):
                    self.hung_up = True
                    self.close(f"the peer closed the connection: {reason}")
                    return
        else:
            self._plan_turn()
        if (reading := len(self._handling) < self.in_progress_max and self._readable.is_set()) != self._reading:
            self._set_reading(reading)

    def _plan_turn(self) -> None:
        if not self._turn_planned:
            self._turn_planned = True
            self._loop.call_soon(self._turn)

    def _set_reading(self, reading: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._reading = reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _handle(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._handling.add(task)
        task.add_done_callback(self._handled)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._handling.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("handler of %s crashed", self.address, exc_info=error)
        if self.peer.pending_bytes or not self._reading:
            self._plan_turn()

    async def _respond(self, id: int, method: Method) -> None:
        try:
            frame = self.peer.respond(id, await self._ask_handler(method))
        except AutoschedError as error:
            frame = self.peer.fail(id, error)
        except Exception:
            log.exception("%s of %s crashed", type(method).__name__, self.address)
            frame = self.peer.fail(id, RequestError(f"{type(method).__name__} crashed; the log of the peer says why"))
        if not self._readable.is_set():
            await self._until_it_reads(len(frame))
        self._write(frame)

    async def _until_it_reads(self, answer_bytes: int) -> None:
        self._answers_bytes += answer_bytes
        if self._answers_bytes > UNREAD_BYTES_MAX:
            self.abort(f"it left {UNREAD_BYTES_MAX} bytes of answers unread")
        try:
            await self._readable.wait()
        finally:
            self._answers_bytes -= answer_bytes

    async def _take(self, method: Method) -> None:
        try:
            await self._ask_handler(method)
        except AutoschedError as error:
            log.warning("%s of %s was refused: %s", type(method).__name__, self.address, error)

    async def _ask_handler(self, method: Method) -> Struct:
        if self.handler is None:
            raise WireError(f"nothing here answers {type(method).__name__}")
        return await self.handler(method)

    # asyncio.BufferedProtocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        transport = cast(asyncio.Transport, transport)  # uvloop has its own, unrelated class
        self._transport = transport
        transport.set_write_buffer_limits(high=UNREAD_BYTES_HIGH)
        self.last_heard_at = self._loop.time()
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            tls = transport.get_extra_info("ssl_object")
            self.address = f"{TCP if tls is None else TLS}{peer[0]}:{peer[1]}"
            _notice_silence(transport.get_extra_info("socket"))
            if tls is not None:
                self.channel = hashlib.sha256(tls.getpeercert(binary_form=True) or b"").digest()
        else:
            self.address = f"{UNIX}{peer or transport.get_extra_info('sockname') or ''}"
        if self._opened is not None:
            self._opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what arrives."""
        return self._arrived

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes arrived."""
        self._hear(self._arrived[:nbytes])

    def _hear(self, data: memoryview) -> None:
        self.last_heard_at = self._loop.time()
        self.peer.feed(data)
        self._turn()

    def pause_writing(self) -> None:
        """The peer does not read fast enough."""
        self._readable.clear()
        if self._unread_alarm is None:
            reason = f"it read nothing for {UNREAD_S_MAX:g} s"
            self._unread_alarm = self._loop.call_later(UNREAD_S_MAX, self.abort, reason)

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._readable.set()
        if self._unread_alarm is not None and not self.closed:
            self._unread_alarm.cancel()
            self._unread_alarm = None
        self._plan_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self.hung_up |= exc is None and not self.lost
        self.lost = self.lost or (str(exc) if exc is not None else "the peer closed the connection")
        if self._unread_alarm is not None:
            self._unread_alarm.cancel()
        error = DaemonUnreachable(f"the connection to {self.address} was lost: {self.lost}")
        for asked in self._calls.values():
            if not asked.answered.done():
                asked.answered.set_exception(error)
        self._calls.clear()
        if self._due is not None:
            self._due.cancel()
        for task in self._handling:
            task.cancel()
        self.handler = None  # it may know this link: Python's collector would have to find both
        self._readable.set()
        self._closed.set()


def _notice_silence(sock: socket.socket | None) -> None:
    """Let the kernel report a peer that vanished without a word, within 20 s rather than 15 minutes."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 20_000)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _unreachable(address: str, why: str) -> DaemonUnreachable:
    return DaemonUnreachable(f"no daemon answers at {address} ({why}); start one with: autosched serve")
