"""Methods before all others of a connection: proof of a key, then Hello."""

from typing import Annotated

from msgspec import Meta, Struct

from autosched.model import JobId
from autosched.protocol.method import Asker, Method, Version

NONCE_BYTES = 32


class Welcome(Struct, frozen=True):
    """The answer to Hello."""

    protocol: Version
    software: str
    session: int
    role: str = ""
    """Role of this connection: "viewer", "user", "operator", "client" or "agent"."""
    who: str = ""
    """Name of the peer, as in the audit trail and as the owner of jobs: "uid 1000", "key ab12"."""


class Hello(Method, frozen=True, omit_defaults=True):
    """Identify the connecting peer. role: "user", "client" or "agent"; a client names its job and shows its token."""

    result = Welcome
    askers = (Asker.ANYONE,)
    protocol: Version
    software: Annotated[str, Meta(max_length=100)]
    role: Annotated[str, Meta(max_length=20)] = "user"
    job: JobId | None = None
    token: Annotated[str, Meta(max_length=200)] = ""
    proof: Annotated[bytes, Meta(max_length=32)] = b""
    """Proof that this end has the key named in Authenticate."""
    returns: bool = False
    """Whether the client reconnects, and will report its state with Return."""


class Challenge(Struct, frozen=True):
    """The answer to Authenticate."""

    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    proof: bytes
    """Proof that the daemon has the key too."""


class Authenticate(Method, frozen=True):
    """Before Hello, if keys are required: the id of this end's key, and a nonce. Hello then carries the proof."""

    result = Challenge
    askers = (Asker.ANYONE,)
    key: Annotated[str, Meta(max_length=32)]
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
