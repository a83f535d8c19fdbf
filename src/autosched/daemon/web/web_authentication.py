"""Authentication of visitors, with the same keys as over the wire.

For local connections the kernel names the user. Once there are keys, and for all other machines, a key is required:
programs send it in `Authorization` (`Bearer role:id:secret`, or as the password of `Basic`), browsers once in a form
and then as a cookie. The cookie is a MAC with the key itself, so it is invalid when the key is.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import time
from socket import socket
from typing import cast

from aiohttp import web

from autosched.config import Config
from autosched.daemon.access import peer_identity
from autosched.daemon.access.authenticator import FAILED_S, Authenticator
from autosched.daemon.access.peer_identity import Principal
from autosched.errors import ConfigError, Refused
from autosched.protocol.roles import Role
from autosched.wire import keys
from autosched.wire.keys import Key

COOKIE = "autosched"
COOKIE_S = 12 * 3_600
WRONG = "This key is not known here. `autosched key list` on the daemon's machine names those that are."


class WebAuthenticator:
    """Identifies the sender of a request."""

    def __init__(self, config: Config, authenticator: Authenticator, *, tls: bool) -> None:
        self._group = peer_identity.group_id(config.daemon.group)
        self._authenticator, self._tls = authenticator, tls

    @property
    def keys_asked(self) -> bool:
        """Whether a key is required."""
        return self._tls or len(self._authenticator.keys) > 0

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
        where = request.remote or ""
        if not self.keys_asked:
            return await self._local(request, where)
        if (said := request.headers.get("Authorization")) is not None:
            return await self.with_key(request, _key_text(said))
        if (key := self._remembered(request.cookies.get(COOKIE, ""))) is not None:
            return _whose(key, where)
        if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
            raise web.HTTPSeeOther("/login")
        raise web.HTTPUnauthorized(
            text="A key is asked for: autosched key new viewer makes one; send it as Authorization: Bearer KEY\n",
            headers={"WWW-Authenticate": 'Bearer realm="autosched"'},
        )

    def _remembered(self, cookie: str) -> Key | None:
        id, until, mac = (*cookie.split("."), "", "", "")[:3]
        key = self._authenticator.keys.get(id)
        if key is None or not _may_look(key) or not until.isdecimal() or len(until) > 12 or int(until) <= _now_s():
            return None
        return key if hmac.compare_digest(_mac(key, until).encode(), mac.encode(errors="replace")) else None

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
        return _whose(known, host)

    def admits(self, who: Principal) -> bool:
        """Whether a user may still watch the page."""
        return self._authenticator.keys.admits(who)

    def remember(self, response: web.StreamResponse, who: Principal) -> None:
        """Set the cookie, valid for half a day."""
        if (key := who.key) is not None:
            until = str(_now_s() + COOKIE_S)
            response.set_cookie(
                COOKIE, f"{key.id}.{until}.{_mac(key, until)}", max_age=COOKIE_S, httponly=True, samesite="Strict",
                secure=self._tls, path="/",
            )  # fmt: skip

    async def _local(self, request: web.Request, where: str) -> Principal:
        transport = request.transport
        sock = transport.get_extra_info("socket") if transport is not None else None
        uid = await asyncio.to_thread(peer_identity.loopback_uid, cast(socket, sock)) if sock is not None else None
        if uid is None:
            raise web.HTTPForbidden(text="This machine does not tell whose connection it is; make a key.\n")
        try:
            return Principal(f"uid {uid}", await peer_identity.local_role(uid, self._group), where)
        except Refused as error:
            raise web.HTTPForbidden(text=f"{error}\n") from None


def _key_text(said: str) -> str:
    scheme, _, value = said.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _whose(key: Key, where: str) -> Principal:
    return Principal(f"key {key.id}", key.role, where, key)


def _may_look(key: Key) -> bool:
    return key.role is not Role.CLIENT


def _mac(key: Key, until: str) -> str:
    return hmac.new(key.secret, f"autosched page {key.id} {until}".encode(), hashlib.sha256).hexdigest()


def _now_s() -> int:
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000_000_000
