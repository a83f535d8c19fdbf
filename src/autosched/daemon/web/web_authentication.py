"""Authentication of visitors: by a link that the wire gave out, or by a key.

The listener knows no users: any user of this machine reaches a loopback port. A browser exchanges a link or a key for a
session at `/login`, keeps it in the storage of the page's origin, and sends it in `Authorization`. A cookie would not
do: browsers send cookies of a host to the servers at all of its ports. Programs send their key itself (`Bearer
role:id:secret`, or as the password of `Basic`).

A session is a text `uid:1000.UNTIL.MAC` or `key:ID.UNTIL.MAC`. Its MAC is made with a secret of this daemon's process,
so that who later gets the port of a dead daemon has no use for what browsers send there; and with the key, so that it
is invalid when the key is. With TLS no other server can take the daemon's place: sessions of keys outlive restarts.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
import time

from aiohttp import web

from autosched.config import Config
from autosched.daemon.access import peer_identity
from autosched.daemon.access.authenticator import FAILED_S, Authenticator
from autosched.daemon.access.page_links import PageLinks
from autosched.daemon.access.peer_identity import Principal
from autosched.errors import ConfigError, Refused
from autosched.protocol.roles import Role
from autosched.wire import keys
from autosched.wire.keys import Key

SESSION_S = 12 * 3_600
OF_USER, OF_KEY = "uid:", "key:"
"""Beginnings of sessions. Keys begin with a role."""
WRONG = "This key is not known here. `autosched key list` on the daemon's machine names those that are."
USED = "This link was used, is older than half a day, or is of an earlier run of the daemon."
SIGN_IN = (
    "Sign in with the link that `autosched status` prints, or with a key: `autosched key new viewer` makes one;"
    " programs send it as Authorization: Bearer KEY"
)


class WebAuthenticator:
    """Identifies the sender of a request."""

    def __init__(self, config: Config, authenticator: Authenticator, links: PageLinks, *, tls: bool) -> None:
        self._group = peer_identity.group_id(config.daemon.group)
        self._authenticator, self._links, self._tls = authenticator, links, tls
        self._secret = secrets.token_bytes(32)

    def check_name(self, request: web.Request) -> None:
        """Refuse host names other than this machine's: a foreign page whose name resolves to this machine must not act
        in the name of its reader (DNS rebinding). Without TLS, only addresses and localhost are accepted. Raises
        HTTPMisdirectedRequest."""
        host = (request.url.host or "").strip("[]")
        if self._tls or host == "localhost":
            return
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise web.HTTPMisdirectedRequest(
                text=f"This server is not called {host!r}: use the address that `autosched status` names.\n"
            ) from None

    async def who(self, request: web.Request) -> Principal:
        """The identity of the sender of a request. Raises HTTPException."""
        text = _credential(request.headers.get("Authorization", ""))
        if text.startswith((OF_USER, OF_KEY)):
            if (who := await self._in_session(text, request.remote or "")) is not None:
                return who
        elif text:
            return await self.with_key(request, text)
        raise web.HTTPUnauthorized(text=f"{SIGN_IN}\n", headers={"WWW-Authenticate": 'Bearer realm="autosched"'})

    async def _in_session(self, text: str, where: str) -> Principal | None:
        """The user of a session; None if the session is invalid. Raises HTTPForbidden if the user has lost the role."""
        whose, until, mac = (*text.split("."), "", "", "")[:3]
        if not (until.isascii() and until.isdecimal()) or len(until) > 12 or int(until) <= _now_s():
            return None
        key = self._authenticator.keys.get(whose.removeprefix(OF_KEY)) if whose.startswith(OF_KEY) else None
        if whose.startswith(OF_KEY) and (key is None or not _may_look(key)):
            return None
        if not hmac.compare_digest(self._mac(key, whose, until).encode(), mac.encode(errors="replace")):
            return None
        return (
            peer_identity.key_owner(key, where)
            if key is not None
            else await self._user(int(whose.removeprefix(OF_USER)), where)
        )

    async def _user(self, uid: int, where: str) -> Principal:
        try:
            return peer_identity.user(uid, await peer_identity.local_role(uid, self._group), where)
        except Refused as error:
            raise web.HTTPForbidden(text=f"{error}\n") from None

    async def with_link(self, token: str, where: str) -> Principal:
        """The user of a link, which is used up. Raises HTTPException."""
        who = self._links.take(token)
        if who is not None and who.uid is not None:
            return await self._user(who.uid, where)
        if who is None or who.key is None or not self._authenticator.keys.admits(who) or not _may_look(who.key):
            raise web.HTTPUnauthorized(text=f"{USED} {SIGN_IN}\n")
        return peer_identity.key_owner(who.key, where)

    async def with_key(self, request: web.Request, text: str) -> Principal:
        """The owner of a key. Raises HTTPException. Answers to wrong keys are delayed; hosts with many are banned."""
        host, failures = request.remote or "", self._authenticator.failures
        now = asyncio.get_running_loop().time()
        if self._tls and failures.banned(host, now):
            raise web.HTTPTooManyRequests(text="Too many wrong keys; try again in a minute.\n")
        try:
            shown = keys.parse(text, "the request")
        except ConfigError:
            shown = None
        known = self._authenticator.keys.get(shown.id) if shown is not None else None
        proved = shown is not None and known is not None and hmac.compare_digest(known.secret, shown.secret)
        if known is None or not proved or not _may_look(known):
            if self._tls:
                failures.note(host, now)
            await asyncio.sleep(FAILED_S)
            raise web.HTTPUnauthorized(text=WRONG + "\n")
        return peer_identity.key_owner(known, host)

    def admits(self, who: Principal) -> bool:
        """Whether a user may still watch the page."""
        return self._authenticator.keys.admits(who)

    def session(self, who: Principal) -> str:
        """A new session of a principal."""
        whose = f"{OF_KEY}{who.key.id}" if who.key is not None else f"{OF_USER}{who.uid}"
        until = str(_now_s() + SESSION_S)
        return f"{whose}.{until}.{self._mac(who.key, whose, until)}"

    def _mac(self, key: Key | None, whose: str, until: str) -> str:
        own = b"" if self._tls and key is not None else self._secret
        secret = own + (key.secret if key is not None else b"")
        return hmac.new(secret, f"autosched page {whose} {until}".encode(), hashlib.sha256).hexdigest()


def _credential(said: str) -> str:
    """The key or session in a header `Authorization`; empty if there is none."""
    scheme, _, value = said.partition(" ")
    if scheme.lower() != "basic":
        return value.strip()
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _may_look(key: Key) -> bool:
    return key.role is not Role.CLIENT


def _now_s() -> int:
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000_000_000
