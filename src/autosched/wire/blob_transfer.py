"""Uploads and downloads files, named by the hash of their content. An interrupted upload resumes where it ended."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from autosched.errors import RequestError, WireError
from autosched.protocol import CHUNK_BYTES, BlobState, Chunk, GetBlob, PutBlob, PutMoved
from autosched.wire.link import Link

Progress = Callable[[int, int], None]
"""Called with the bytes transferred and the total."""


def sha256(path: Path) -> str:
    """Content hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def upload(
    link: Link, path: Path, progress: Progress | None = None, put: type[PutBlob | PutMoved] = PutBlob
) -> str:
    """Upload a file to the daemon's blob store, or to the moved files of the client's job; returns its hash."""
    name = sha256(path)
    with path.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        state = await link.call(put(sha256=name, total=total, offset=0, data=b""), BlobState)
        while not state.complete:
            file.seek(state.bytes_have)
            data = file.read(CHUNK_BYTES)
            if not data and state.bytes_have < total:
                raise RequestError(f"{path} became shorter while it was uploaded: let it be written first, then retry")
            piece = put(sha256=name, total=total, offset=state.bytes_have, data=data)
            state = await link.call(piece, BlobState)
            if progress is not None:
                progress(state.bytes_have, total)
    return name


async def download(link: Link, name: str, path: Path) -> None:
    """Download a blob to a file. The file appears under its name only when it is complete and its hash is right.

    Raises OSError if it cannot be written (a full disk leaves no partial file behind).
    """
    part = path.with_name(f".{path.name}.part")
    digest = hashlib.sha256()
    try:
        with part.open("wb") as file:
            offset = 0
            while True:
                chunk = await link.call(GetBlob(sha256=name, offset=offset), Chunk)
                offset += file.write(chunk.data)
                digest.update(chunk.data)
                if offset >= chunk.total:
                    break
                if not chunk.data:
                    raise WireError(f"the daemon sent nothing where {chunk.total - offset} bytes of {path.name} remain")
        if digest.hexdigest() != name:
            raise WireError(f"{path.name} arrived damaged: its content does not match its hash. Fetch it again")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def is_full_disk(error: OSError) -> bool:
    """Whether an error means that there was no space, on the disk or in the user's quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


async def fetch(link: Link, name: str) -> bytes:
    """The content of a small blob."""
    data = bytearray()
    while True:
        chunk = await link.call(GetBlob(sha256=name, offset=len(data)), Chunk)
        data += chunk.data
        if len(data) >= chunk.total or not chunk.data:
            return bytes(data)
