"""A connection without an event loop, for commands that make one call and end.

Importing asyncio and creating a loop takes longer than a whole listing may; a socket and the sans-I/O `Peer` do not.
"""

import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

import msgspec
from msgspec import Struct

from autosched.errors import Busy, DaemonUnreachable, Refused
from autosched.protocol import FRAME_BYTES, PROTOCOL, Challenge, Hello, Method, Welcome, wire_name
from autosched.version import __version__
from autosched.wire import address as addresses
from autosched.wire import unix_sockets
from autosched.wire.address import UNIX
from autosched.wire.frames import Answer, Closing, Peer, result_of

T = TypeVar("T", bound=Struct)
TIMEOUT_S = 10.0


class BlockingLink:
    """One open connection as a user. `with BlockingLink(address) as daemon: daemon.call(ListJobs(), JobList)`."""

    def __init__(
        self, address: str, *, timeout_s: float = TIMEOUT_S, told: Callable[[str], None] | None = None
    ) -> None:
        """Connect and send Hello. `told` is called with a description of each call. Raises DaemonUnreachable."""
        self.address = address
        self._timeout_s, self._told = timeout_s, told
        self._peer = Peer({}, FRAME_BYTES)
        self._socket = _connect(address, timeout_s)
        try:
            self.welcome = self._introduce()
        except BaseException:
            self._socket.close()
            raise

    def _introduce(self) -> Welcome:
        hello = Hello(protocol=PROTOCOL, software=f"autosched {__version__}")
        if not self.address.startswith(UNIX):
            from autosched.wire import keys  # imported here, because a command on the unix socket must start fast

            if (key := keys.for_address(self.address)) is not None:
                proving = keys.Proving(key, self._channel)
                proof = proving.answer(self._once(proving.question(), Challenge))
                hello = msgspec.structs.replace(hello, proof=proof)
        return self._once(hello, Welcome)

    @property
    def _channel(self) -> bytes:
        """The channel of proofs, see Link."""
        import hashlib

        shown = getattr(self._socket, "getpeercert", None)
        return hashlib.sha256(shown(binary_form=True) or b"").digest() if shown is not None else b""

    def call(self, method: Method, kind: type[T]) -> T:
        """Call a method and wait for the answer, again if the daemon asks for it. Raises the error of the answer, or
        DaemonUnreachable."""
        until = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._once(method, kind)
            except Busy as busy:
                if busy.retry_after_s is None or time.monotonic() + busy.retry_after_s > until:
                    raise
                time.sleep(busy.retry_after_s)

    def _once(self, method: Method, kind: type[T]) -> T:
        id, frame = self._peer.request(method)
        deadline_at = time.monotonic() + self._timeout_s
        try:
            self._socket.sendall(frame)
            while True:
                message = self._peer.next()
                if isinstance(message, Answer) and message.id == id:
                    break
                if isinstance(message, Closing):
                    raise Refused(f"the daemon at {self.address} closed the connection: {message.reason}")
                if message is None:
                    self._socket.settimeout(max(0.001, deadline_at - time.monotonic()))
                    if not (received := self._socket.recv(65_536)):
                        raise DaemonUnreachable(f"the daemon at {self.address} closed the connection; {_log_hint()}")
                    self._peer.feed(received)
        except TimeoutError:
            raise DaemonUnreachable(
                f"the daemon at {self.address} did not answer {type(method).__name__} within {self._timeout_s:g} s;"
                f" {_log_hint()}"
            ) from None
        except OSError as error:
            raise unreachable(self.address, error) from None
        if self._told is not None:
            took_ms = 1e3 * (time.monotonic() - deadline_at + self._timeout_s)
            self._told(f"{wire_name(type(method))}: {len(frame)} bytes to {self.address}, answered in {took_ms:.1f} ms")
        return result_of(message, kind)

    def __enter__(self) -> "BlockingLink":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._socket.close()


def unreachable(address: str, error: OSError) -> DaemonUnreachable:
    """The exception for an operating-system error while connecting, with the command that helps."""
    service = address == f"{UNIX}{addresses.SERVICE}"
    start = "Start it:  systemctl start autosched" if service else "Start one:  autosched serve"
    if isinstance(error, FileNotFoundError):
        return DaemonUnreachable(f"no daemon runs here: there is no socket at {address.removeprefix(UNIX)}. {start}")
    if isinstance(error, ConnectionRefusedError) and address.startswith(UNIX):
        path = address.removeprefix(UNIX)
        return DaemonUnreachable(
            f"the socket {path} is there but no process listens: the daemon that made it is dead."
            f" {start}  (it resumes the jobs and replaces the socket)"
        )
    if isinstance(error, PermissionError):
        return DaemonUnreachable(f"the socket at {address} belongs to another user: {error.strerror}. Ask its owner")
    why = error.strerror or str(error) or type(error).__name__
    return DaemonUnreachable(f"no daemon answers at {address}: {why}. {start}  or name another:  --host ADDRESS")


def _connect(address: str, timeout_s: float) -> socket.socket:
    try:
        if not address.startswith(UNIX):
            opened = socket.create_connection(addresses.tcp(address), timeout_s)
            try:
                tls = addresses.tls_to(address)
                return opened if tls is None else tls.wrap_socket(opened)
            except BaseException:
                opened.close()
                raise
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            opened.settimeout(timeout_s)
            with unix_sockets.short(address.removeprefix(UNIX)) as name:
                opened.connect(name)
        except BaseException:
            opened.close()
            raise
        return opened
    except TimeoutError:
        raise DaemonUnreachable(
            f"no daemon answers at {address} within {timeout_s:g} s. Is this its address? Or does a firewall keep you"
            " out, or the IPAddressDeny= of its service (systemctl edit autosched: IPAddressAllow=)?"
        ) from None
    except OSError as error:
        raise unreachable(address, error) from None


def _log_hint() -> str:
    return "what happened stands in its log (see `autosched status`)"
