"""Links that sign their first reader in to the page, given out over authenticated connections.

The page's port tells nothing about who connects to it, and any user of the machine reaches it. So a user fetches a
link over the unix socket, for whose peer the kernel vouches, or over a connection with a key.
"""

import hashlib
import secrets
from collections.abc import Callable

from msgspec import Struct

from autosched.daemon.access.peer_identity import Principal

LINK_S = 12 * 3_600.0
"""Seconds for which a link is valid."""
LINKS_OF_ONE_MAX = 32
"""Maximum number of unused links of one principal; a further one replaces the oldest."""
TOKEN_BYTES = 24


class _Link(Struct, frozen=True):
    who: Principal
    until: float


class PageLinks:
    """The unused links. They end with the daemon."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._links: dict[bytes, _Link] = {}
        """By the SHA-256 of the token, so that the time of a look-up tells nothing about tokens."""

    def make(self, who: Principal) -> str:
        """The token of a new link for a principal."""
        own = [digest for digest, link in self._links.items() if link.who.name == who.name]
        for digest in own[: max(0, len(own) + 1 - LINKS_OF_ONE_MAX)]:
            del self._links[digest]
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._links[_digest(token)] = _Link(who, self._clock() + LINK_S)
        return token

    def take(self, token: str) -> Principal | None:
        """Use a link up: whose it is, or None for one that is unknown, used or too old."""
        link = self._links.pop(_digest(token), None)
        return link.who if link is not None and self._clock() < link.until else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
