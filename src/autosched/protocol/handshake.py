"""Types that every method needs: versions, limits, authentication, and pieces of files."""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from autosched.model import JobId, Record, Sha256

PROTOCOL = (1, 7)
"""(major, minor). Peers with another major are refused; a minor only ever adds methods and optional fields."""

FRAME_BYTES_BEFORE_HELLO = 4 * 1024
FRAME_BYTES = 512 * 1024
CHUNK_BYTES = 256 * 1024
BULK_BYTES = CHUNK_BYTES + 16 * 1024
"""A request that is one long string of bytes and little else."""
HEARTBEAT_S = 5.0
SILENCE_S = 20.0
"""A client that says nothing for so long is taken for dead."""
WAIT_MAX_S = 30.0
NONCE_BYTES = 32


Version = Annotated[tuple[int, int], Meta(description="(major, minor)")]


class Method(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request. `Result` is the type of its answer."""

    result: ClassVar[type[Struct]]
    bytes_max: ClassVar[int] = 32 * 1024
    """Longest parameters: small values in their thousands, a key that comes again and again among them, take 5 to 15 ns
    a byte to read."""


class Done(Struct, frozen=True):
    """The answer of a method that has nothing to tell."""


class Welcome(Struct, frozen=True):
    """The answer to Hello."""

    protocol: Version
    software: str
    session: int
    role: str = ""
    """Role of this connection: "viewer", "user", "operator" or "client"."""


class Challenge(Struct, frozen=True):
    """The answer to Authenticate."""

    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    proof: bytes
    """That the daemon has the key too."""


class Authenticate(Method, frozen=True):
    """Before Hello, where keys are asked for: the id of this end's key, and a nonce. Hello then carries the proof."""

    result = Challenge
    key: Annotated[str, Meta(max_length=32)]
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]


class Hello(Method, frozen=True, omit_defaults=True):
    """Says who comes. role: "user" or "client"; a client names its job and shows its token."""

    result = Welcome
    protocol: Version
    software: Annotated[str, Meta(max_length=100)]
    role: Annotated[str, Meta(max_length=20)] = "user"
    job: JobId | None = None
    token: Annotated[str, Meta(max_length=200)] = ""
    proof: Annotated[bytes, Meta(max_length=32)] = b""
    """That this end has the key that it named in Authenticate."""
    returns: bool = False
    """A client that had a connection before, has lost it, and says with Return how it stands."""


class BlobState(Struct, frozen=True):
    """How much of a blob the daemon has; complete when `bytes_have` equals the announced total."""

    bytes_have: int
    complete: bool


class PutBlob(Method, frozen=True):
    """Upload a piece of a file, in order. `total` is its whole length. An empty piece asks how far the upload is."""

    result = BlobState
    bytes_max = BULK_BYTES
    sha256: Sha256
    total: Annotated[int, Meta(ge=0, le=64 * 1024**3)]
    offset: Annotated[int, Meta(ge=0)]
    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES)]


class Chunk(Struct, frozen=True):
    """A piece of a file."""

    data: bytes
    total: int


class GetBlob(Method, frozen=True):
    """Download a piece of a file."""

    result = Chunk
    sha256: Sha256
    offset: Annotated[int, Meta(ge=0)]


class RecordPage(Struct, frozen=True):
    """Records in the order in which they were measured; `more` says that another page follows."""

    records: tuple[Record, ...]
    more: bool


class GetRecords(Method, frozen=True):
    """Records of a job, from the `after`-th on."""

    result = RecordPage
    job: JobId
    after: Annotated[int, Meta(ge=0)] = 0
