"""Files by the hash of their content: models from users, results from clients."""

import asyncio
import errno
import hashlib
import os
from collections.abc import Container
from datetime import UTC, datetime
from pathlib import Path

from autosched import formatting
from autosched.daemon.storage.upload_quota import UploadQuota
from autosched.errors import Busy, NotFound, Refused, StorageFull
from autosched.protocol import CHUNK_BYTES, BlobState, Chunk, GetBlob, PutBlob, PutMoved

GONE = ".gone"
FREE_BYTES, FREE_SHARE = 2 * 1024**3, 0.05
"""Free space, in bytes and as a share of the disk, of which users may upload nothing into the lesser."""


class Blobs:
    """A folder of complete files, and of partial uploads."""

    def __init__(self, folder: Path, bytes_max: int, *, durable: bool = True) -> None:
        """`durable`: whether acknowledged files survive a crash of the machine."""
        self._folder, self._durable = folder, durable
        self.bytes_max = bytes_max
        self.uploads = UploadQuota()
        self._locks = {digit: asyncio.Lock() for digit in "0123456789abcdef"}  # by the first digit of the hash
        folder.mkdir(exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Path of a complete file."""
        return self._folder / sha256

    def size(self, sha256: str) -> int | None:
        """Length of a complete file in bytes; None if there is none."""
        try:
            return self.path(sha256).stat().st_size
        except FileNotFoundError:
            return None

    async def put(self, piece: PutBlob | PutMoved, whose: str = "") -> BlobState:
        """Append a piece if it continues the file; returns the progress of the file in any case. Raises Refused and
        StorageFull. `whose`: the user or job whose quota counts; empty: none."""
        if piece.total > self.bytes_max:
            raise Refused(f"a file of {piece.total} bytes is larger than limits.blob_bytes_max, {self.bytes_max}")
        if whose and piece.data and self.size(piece.sha256) is None:
            self.uploads.count(whose, piece.sha256, piece.offset + len(piece.data))
        # The lock is held until the thread is done, even if the uploader disconnects and does not see the failure.
        alone = asyncio.ensure_future(self._put_alone(piece))
        alone.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([alone])  # unlike `shield`, it logs no failure after its caller has left
        return alone.result()

    async def _put_alone(self, piece: PutBlob | PutMoved) -> BlobState:
        async with self._locks[piece.sha256[0]]:
            return await asyncio.to_thread(self._put, piece)

    def _put(self, piece: PutBlob | PutMoved) -> BlobState:
        if (size := self.size(piece.sha256)) is not None:
            os.utime(self.path(piece.sha256))  # a job is about to refer to it: it must not be swept away now
            return BlobState(size, True)
        part = self._folder / f"{piece.sha256}.part"
        try:
            there = part.stat().st_size if part.exists() else 0
            if not piece.data and there < piece.total:
                return BlobState(there, False)  # a part may be whole already: a daemon died before it said so
            with part.open("ab") as file:
                have = file.tell()
                if have > piece.total:
                    file.truncate(have := 0)
                if piece.offset == have and have + len(piece.data) <= piece.total:
                    file.write(piece.data)
                    have += len(piece.data)
                if have < piece.total:
                    return BlobState(have, False)
                file.flush()
                if self._durable:
                    os.fsync(file.fileno())
            self._complete(part, piece.sha256)
        except OSError as error:
            raise self._refused(error) from None
        except Refused:
            if piece.data or not piece.total:
                raise
            return BlobState(0, False)  # a crash of the machine left other bytes there
        return BlobState(piece.total, True)

    def _complete(self, part: Path, sha256: str) -> None:
        with part.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != sha256:
            part.unlink()
            raise Refused(f"the uploaded bytes have the hash {actual}, not {sha256}; send the file again")
        part.rename(self.path(sha256))
        if not self._durable:
            return
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _refused(self, error: OSError) -> Refused:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        what = "the daemon's disk is full" if full else f"the daemon cannot write ({error.strerror})"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return Busy(
                f"{what}: raise its limit of open files (`ulimit -n`, LimitNOFILE= of a service), then send again"
            )
        kind = StorageFull if full else Refused
        return kind(f"{what}: {self._folder}; free some space there, then send the file again")

    def check_room(self) -> None:
        """Raises StorageFull if the disk has so little space left that only jobs may use it."""
        found = os.statvfs(self._folder)
        free, most = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        if free < min(FREE_BYTES, FREE_SHARE * most):
            raise StorageFull(
                f"this daemon refuses: its disk has {formatting.size(free)} left, which are for running jobs; its"
                " operator makes room: autosched db prune"
            )

    def unneeded(self, needed: Container[str], young_s: float) -> list[Path]:
        """Files, whole or not, that are not among those needed, and that were not put for this time."""
        until = datetime.now(UTC).timestamp() - young_s
        with os.scandir(self._folder) as found:
            old = [Path(entry) for entry in found if entry.is_file() and entry.stat().st_mtime < until]
        return [path for path in old if path.name not in needed]

    def take_away(self, path: Path) -> Path:
        """From this moment on the file is not there; returns what is to be removed, which may take a while."""
        self.uploads.used(path.stem)
        return path.replace(path.with_suffix(GONE))

    async def get(self, wish: GetBlob) -> Chunk:
        """A piece of a complete file."""
        size = self.size(wish.sha256)
        if size is None:
            raise NotFound(f"the daemon has no file with the hash {wish.sha256}; upload it first")
        if wish.offset >= size:
            return Chunk(b"", size)
        return Chunk(await asyncio.to_thread(self._read, wish), size)

    def _read(self, wish: GetBlob) -> bytes:
        with self.path(wish.sha256).open("rb") as file:
            return os.pread(file.fileno(), CHUNK_BYTES, wish.offset)
