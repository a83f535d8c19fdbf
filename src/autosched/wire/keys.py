"""Keys for connections over TCP: both ends prove that they have the key, without sending it.

A key is a line ``role:id:secret``, the secret being 32 random bytes in hexadecimal. The connecting end sends
`Authenticate` with the key's id and a nonce. The daemon answers with its own nonce and its proof, an HMAC-SHA256 over
side, role, id, both nonces and the channel. Only if that proof is right does the connecting end send its own in
`Hello`. The side is part of each proof, so that none can be sent back as the other's.

The channel is the SHA-256 of the daemon's certificate (RFC 5929, tls-server-end-point), and empty without TLS. An
attacker in between has to show another certificate, with which no proof is right. Users with a key therefore need no
certificate authority.
"""

import hashlib
import hmac
import os
import re
from pathlib import Path

from msgspec import Struct

from autosched import user_folders
from autosched.errors import ConfigError, Refused
from autosched.protocol import NONCE_BYTES, Authenticate, Challenge, client_name
from autosched.protocol.roles import Role

VARIABLE = "AUTOSCHED_KEY"
FILE_VARIABLE = "AUTOSCHED_KEY_FILE"
SECRET_BYTES = 32
CLIENT = ":"
"""Beginning of the ids of keys that tokens are worth."""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_ROLES = "|".join(role.value for role in Role)
_LINE = re.compile(rf"({_ROLES}):({NAME.pattern}):([0-9a-f]{{64}})(?: jobs=([1-9][0-9]{{0,8}}))?")


class Key(Struct, frozen=True):
    """A key: the right to one role."""

    role: Role
    id: str
    secret: bytes
    jobs_max: int | None = None
    """Maximum number of active jobs of the key's owner; None without a limit. Set in the daemon's copy only."""

    def __repr__(self) -> str:
        return f"Key({self.role.value}, {self.id})"  # the secret stays out of logs

    def line(self) -> str:
        """The key as one line of text."""
        return f"{self.role.value}:{self.id}:{self.secret.hex()}"


def parse(text: str, where: str) -> Key:
    """Parse a key. Raises ConfigError, which does not contain the text."""
    match = _LINE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{where} holds no key of the form role:id:secret; make one with: autosched key new ROLE")
    return Key(Role(match[1]), match[2], bytes.fromhex(match[3]), int(match[4]) if match[4] else None)


def of_client(token: str) -> Key:
    """The key that the token of a job's client is worth. No key of a user has such an id."""
    return Key(
        Role.CLIENT, f"{CLIENT}{client_name(token)}", hashlib.sha256(b"autosched client " + token.encode()).digest()
    )


def proof(key: Key, side: str, nonce: bytes, daemon_nonce: bytes, channel: bytes) -> bytes:
    """Proof of the possession of a key for these nonces on this channel; `side`: "daemon" or "peer"."""
    words = "\0".join(("autosched/1", side, key.role.value, key.id, "")).encode()
    return hmac.digest(key.secret, words + nonce + daemon_nonce + channel, hashlib.sha256)


def own() -> Key | None:
    """This user's key: from AUTOSCHED_KEY, from the file named by AUTOSCHED_KEY_FILE, or from autosched/key beside the
    settings.

    Raises ConfigError if it is no key, or if other users can read it.
    """
    if text := os.environ.get(VARIABLE, ""):
        return parse(text, VARIABLE)
    if named := os.environ.get(FILE_VARIABLE, ""):
        return read(Path(named))
    usual = user_folders.settings() / "autosched/key"
    return read(usual) if usual.exists() else None


def read(path: Path, *, private: bool = True) -> Key:
    """Read the key in a file. Raises ConfigError; with `private` also if other users may read it."""
    try:
        with path.open("rb") as file:
            if private and os.fstat(file.fileno()).st_mode & 0o077:
                raise ConfigError(f"other users may read the key in {path}; run: chmod 600 {path}")
            return parse(file.read(4_096).decode(errors="replace"), str(path))
    except OSError as error:
        raise ConfigError(f"the key file {path} cannot be read ({error.strerror})") from None


class Proving:
    """The connecting side of the handshake: request, check of the daemon's proof, proof."""

    def __init__(self, key: Key, channel: bytes) -> None:
        self._key, self._channel = key, channel
        self._nonce = os.urandom(NONCE_BYTES)

    def question(self) -> Authenticate:
        """The first message."""
        return Authenticate(key=self._key.id, nonce=self._nonce)

    def answer(self, challenge: Challenge) -> bytes:
        """The proof for Hello. Raises Refused if the daemon does not have the same key."""
        theirs = proof(self._key, "daemon", self._nonce, challenge.nonce, self._channel)
        if not hmac.compare_digest(theirs, challenge.proof):
            raise Refused(
                f"the daemon does not have the key {self._key.id}, or a man in the middle shows another certificate:"
                " nothing was sent to it. Check the address, and whether the key is still in: autosched key list"
            )
        return proof(self._key, "peer", self._nonce, challenge.nonce, self._channel)


def for_address(address: str) -> Key | None:
    """The key for an address; None for a unix socket, where the kernel names the user.

    Raises Refused for TLS without a key, because the certificate could then be anybody's.
    """
    if address.startswith("unix:"):
        return None
    key = own()
    if key is None and address.startswith("tls:"):
        raise Refused(
            f"{address} asks for a key: put the one that its operator has made (autosched key new ROLE) into"
            f" {VARIABLE}, or into a file that {FILE_VARIABLE} names"
        )
    return key
