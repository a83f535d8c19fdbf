"""Methods that transfer files in pieces, and records in pages."""

from typing import Annotated

from msgspec import Meta, Struct

from autosched.model import JobId, Record, Sha256
from autosched.protocol.method import BULK_BYTES, CHUNK_BYTES, Asker, Method, Role


class BlobState(Struct, frozen=True):
    """Progress of an upload; complete when `bytes_have` equals the announced total."""

    bytes_have: int
    complete: bool


class PutBlob(Method, frozen=True):
    """Upload a piece of a file, in order. `total` is its whole length. An empty piece asks for the progress of the
    upload."""

    result = BlobState
    askers = (Asker.USER, Asker.CLIENT)
    least_role = Role.USER
    audited = False  # a file in the store has no effect until a job names it
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
    askers = (Asker.USER, Asker.CLIENT)
    least_role = Role.VIEWER
    sha256: Sha256
    offset: Annotated[int, Meta(ge=0)]


class RecordPage(Struct, frozen=True):
    """Records in the order in which they were measured; `more` means that another page follows."""

    records: tuple[Record, ...]
    more: bool


class GetRecords(Method, frozen=True):
    """Get records of a job, from the `after`-th on."""

    result = RecordPage
    askers = (Asker.USER, Asker.CLIENT)
    least_role = Role.VIEWER
    job: JobId
    after: Annotated[int, Meta(ge=0)] = 0
