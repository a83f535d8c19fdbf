"""Authenticates peers, and refuses those without access."""

import asyncio
import contextlib
import hmac
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from autosched.config import LimitsConfig
from autosched.daemon.access import peer_identity
from autosched.daemon.access.acceptor import Acceptor, Connection, Places
from autosched.daemon.access.access_rules import AccessRules
from autosched.daemon.access.endpoints import Endpoint
from autosched.daemon.access.login_rate_limit import LoginRateLimit
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.runtime import spawn
from autosched.errors import Refused, RequestError, WireError
from autosched.protocol import (
    FRAME_BYTES,
    FRAME_BYTES_BEFORE_HELLO,
    HELLO,
    NONCE_BYTES,
    PROTOCOL,
    Authenticate,
    Challenge,
    Hello,
    Method,
    Welcome,
)
from autosched.protocol.roles import COMES_AS, Role, may_come_as
from autosched.version import __version__
from autosched.wire import keys
from autosched.wire.frames import Peer
from autosched.wire.keys import Key, proof
from autosched.wire.link import IN_PROGRESS_MAX, Link

log = logging.getLogger(__name__)

HELLO_S = 5.0
"""Seconds within which a connection must authenticate."""
FAILED_S = 1.0
"""Seconds by which the answer to a wrong proof is delayed."""
KEYS_S = 2.0
"""Seconds between two checks of the folder with the keys."""

Admit = Callable[[Link, Hello, Principal], None]
"""Admits a peer: gives the link its methods and handler. Raises the error that answers Hello."""


@dataclass(eq=False, slots=True)
class RemotePeer:
    """The peer of a connection, before and after it has authenticated."""

    endpoint: Endpoint
    connection: Connection
    link: Link = field(init=False)
    who: Principal | None = None
    key: Key | None = None
    nonces: tuple[bytes, bytes] = (b"", b"")


class Authenticator:
    """Accepts connections, authenticates their peers, and hands them on."""

    def __init__(
        self,
        limits: LimitsConfig,
        rules: AccessRules,
        admit: Admit,
        client_key: Callable[[str], Key | None],
        changed: Callable[[str], None],
        idle: Callable[[], None],
    ) -> None:
        """`admit`: takes a connection over. `client_key`: the key that the token of a client is worth, by its id.
        `changed`: called when keys were added or removed. `idle`: called when a connection was closed."""
        self.limits, self._rules, self._admit, self._idle = limits, rules, admit, idle
        self._client_key, self._changed = client_key, changed
        self.keys = rules.keys
        self.failures = LoginRateLimit()
        self.acceptor = Acceptor(self.failures, self._places)
        self._visitors: dict[RemotePeer, None] = {}
        self._sessions = 0
        self._work: list[asyncio.Task[None]] = []

    def _places(self) -> Places:
        return Places(
            self.limits.connections_max,
            self.limits.user_connections_max,
            "limits.connections_max",
            "limits.user_connections_max",
        )

    @property
    def open(self) -> int:
        """Number of open connections."""
        return len(self.acceptor)

    async def _watch_keys(self) -> None:
        """Check the keys in intervals, without end."""
        while True:
            await asyncio.sleep(KEYS_S)
            self.look_at_keys()

    def look_at_keys(self) -> None:
        """Read the keys again if they have changed, and disconnect peers whose key was removed."""
        if self.keys.refresh():
            self._changed(f"{len(self.keys)} keys are valid now")
            for visitor in list(self._visitors):
                if visitor.who is not None and not self.keys.admits(visitor.who):
                    visitor.link.refuse(f"the {visitor.who.name} was withdrawn")

    # Accepting --------------------------------------------------------------------------------------------------------

    def listen(self, endpoint: Endpoint) -> None:
        """Accept connections of a listener, until `shut`."""
        self._work.append(spawn(self._accept(endpoint), "accepting connections"))
        if len(self._work) == 1:
            self._work.append(spawn(self._watch_keys(), "the keys"))

    def shut(self) -> None:
        """Stop accepting connections."""
        for work in self._work:
            work.cancel()

    async def _accept(self, endpoint: Endpoint) -> None:
        async for connection in self.acceptor.connections(endpoint.listener, _sorry if endpoint.tls is None else None):
            spawn(self.attend(RemotePeer(endpoint, connection)), "a connection")

    async def attend(self, visitor: RemotePeer) -> None:
        """Serve one connection until it is closed."""
        loop = asyncio.get_running_loop()
        link = visitor.link = Link(HELLO, frame_bytes=FRAME_BYTES_BEFORE_HELLO, in_progress_max=1)
        link.handler = lambda method: self._ask(visitor, method)
        self._visitors[visitor] = None
        deadline = loop.call_later(HELLO_S, self._check_hello, visitor)
        try:
            with contextlib.suppress(OSError):  # a handshake that fails
                await loop.connect_accepted_socket(
                    lambda: link,
                    visitor.connection.sock,
                    ssl=visitor.endpoint.tls,
                    ssl_handshake_timeout=HELLO_S if visitor.endpoint.tls is not None else None,
                )
            if link.closed:
                return
            log.debug("%s left: %s", link.address, await link.wait_closed())
        finally:
            deadline.cancel()
            self.acceptor.leave(visitor.connection)
            del self._visitors[visitor]
            self._idle()

    def _check_hello(self, visitor: RemotePeer) -> None:
        if visitor.who is None:
            visitor.link.refuse(f"no hello within {HELLO_S:g} s")

    # Authentication ---------------------------------------------------------------------------------------------------

    async def _ask(self, visitor: RemotePeer, method: Method) -> Struct:
        match method:
            case Authenticate():
                return self._challenge(visitor, method)
            case Hello():
                return await self._hello(visitor, method)
        raise WireError("the first request of a connection is hello, or authenticate before it")

    def _challenge(self, visitor: RemotePeer, method: Authenticate) -> Challenge:
        if visitor.key is not None:
            raise Refused("this connection has named its key already")
        self.look_at_keys()
        if not len(self.keys) and not method.key.startswith(keys.CLIENT):
            raise Refused("this daemon knows no keys: connect without one, or make one: autosched key new ROLE")
        # A wrong id gets the same answer as a wrong secret, after the same time.
        key = self._known(method.key) or Key(Role.VIEWER, method.key, os.urandom(32))
        visitor.key, visitor.nonces = key, (method.nonce, os.urandom(NONCE_BYTES))
        return Challenge(visitor.nonces[1], proof(key, "daemon", *visitor.nonces, visitor.endpoint.channel))

    def _known(self, id: str) -> Key | None:
        """The key with an id: of a user, or of a client that may connect."""
        return self._client_key(id) if id.startswith(keys.CLIENT) else self.keys.get(id)

    async def _hello(self, visitor: RemotePeer, hello: Hello) -> Welcome:
        if hello.protocol[0] != PROTOCOL[0]:
            theirs, ours = (".".join(map(str, version)) for version in (hello.protocol, PROTOCOL))
            raise Refused(
                f"{hello.software} speaks protocol {theirs}, this daemon (autosched {__version__}) speaks {ours}:"
                " install versions that belong together"
            )
        if hello.role not in COMES_AS:
            raise RequestError(f"no role is named {hello.role!r}; there are: {', '.join(COMES_AS)}")
        if visitor.endpoint.clients_only and hello.role != Role.CLIENT:
            raise Refused("this socket is for clients of jobs only; `autosched status` prints the address for users")
        try:
            who = await self._authenticated(visitor, hello)
        except Refused:
            await self._failed(visitor)
            raise
        if not may_come_as(hello.role, who.role):
            said = f"an {hello.role}" if hello.role == "agent" else f"a {hello.role}"
            raise Refused(f"the {who.name} has the role {who.role.value}, which cannot come as {said}")
        link, holder = visitor.link, _holder(hello, who)
        self.acceptor.check(holder)
        self._admit(link, hello, who)
        link.peer.frame_bytes, link.in_progress_max = FRAME_BYTES, IN_PROGRESS_MAX
        visitor.who = who
        self.acceptor.know(visitor.connection, holder)
        self._sessions += 1
        return Welcome(PROTOCOL, f"autosched {__version__}", self._sessions, who.role.value, who.name)

    async def _failed(self, visitor: RemotePeer) -> None:
        """Delay and count a failed login. The owner of the daemon's own socket is not delayed."""
        if visitor.endpoint.local:
            return
        log.warning("%s was refused", visitor.link.address)
        if visitor.connection.host:
            self.failures.note(visitor.connection.host, asyncio.get_running_loop().time())
        await asyncio.sleep(FAILED_S)

    async def _authenticated(self, visitor: RemotePeer, hello: Hello) -> Principal:
        """The principal, proved by a key or by the kernel. Raises Refused."""
        where = visitor.link.address
        client = _client(hello, where)  # its token is checked later
        if visitor.key is not None:
            key = visitor.key
            wanted = proof(key, "peer", *visitor.nonces, visitor.endpoint.channel)
            if not hmac.compare_digest(wanted, hello.proof) or self._known(key.id) != key:
                raise Refused(f"the key {key.id} is not known here, or its proof is wrong")
            return client if key.id.startswith(keys.CLIENT) else peer_identity.key_owner(key, where)
        if visitor.endpoint.clients_only:
            return client
        if visitor.endpoint.local:
            uid = peer_identity.peer_uid(visitor.connection.sock)
            return peer_identity.user(uid, await peer_identity.local_role(uid, self._rules.group), where)
        if visitor.endpoint.tls is None and hello.role == "client":
            return client
        raise Refused(
            "this daemon wants to see a key over TCP: its operator makes one (autosched key new user); put it into"
            " AUTOSCHED_KEY, or into a file that AUTOSCHED_KEY_FILE names. Its unix socket needs none"
        )

    # Stopping ---------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all connections, since the daemon stops."""
        links = [visitor.link for visitor in self._visitors if not visitor.link.closed]
        for link in links:
            link.close("the daemon stops")
        await asyncio.gather(*(link.wait_closed() for link in links))


def _holder(hello: Hello, who: Principal) -> Principal:
    """The holder of an admitted connection's place: its user, or the job or agent that it comes for."""
    if hello.role == Role.CLIENT:
        return _client(hello, who.address)
    return replace(who, role=Role.AGENT) if hello.role == Role.AGENT else who


def _client(hello: Hello, where: str) -> Principal:
    return Principal(f"job {hello.job}", Role.CLIENT, where)


def _sorry(why: str) -> bytes:
    return Peer({}).closing(WireError(why))
