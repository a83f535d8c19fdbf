import asyncio
import errno
import hashlib
from pathlib import Path

import pytest
from msgspec import Struct

from autosched.api.on_demand import connected
from autosched.errors import WireError
from autosched.protocol import CHUNK_BYTES, BlobState, Chunk, GetBlob, Method, PutBlob
from autosched.wire import blob_transfer
from fake import fake_daemon


class Store:
    """One blob, some of which may be there already."""

    def __init__(self, data: bytes = b"", claimed: int | None = None) -> None:
        self.data = bytearray(data)
        self.claimed = claimed
        self.pieces = 0

    async def answer(self, method: Method) -> Struct:
        if isinstance(method, PutBlob):
            assert method.offset in (0, len(self.data))
            if method.data:
                self.pieces += 1
                self.data += method.data
            return BlobState(len(self.data), len(self.data) == method.total)
        assert isinstance(method, GetBlob)
        piece = bytes(self.data[method.offset : method.offset + CHUNK_BYTES])
        return Chunk(piece, len(self.data) if self.claimed is None else self.claimed)


CONTENT = bytes(range(256)) * (2 * CHUNK_BYTES // 256) + b"end"


def test_an_upload_goes_on_where_an_earlier_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(CONTENT)
    store, told = Store(CONTENT[:CHUNK_BYTES]), []

    async def upload(address: str) -> str:
        async with connected(address) as daemon:
            return await daemon.upload(path, lambda have, total: told.append((have, total)))

    with fake_daemon(tmp_path, store.answer) as address:
        name = asyncio.run(upload(address))
    assert name == hashlib.sha256(CONTENT).hexdigest()
    assert bytes(store.data) == CONTENT
    assert store.pieces == 2
    assert told[-1] == (len(CONTENT), len(CONTENT))


def fetch(tmp_path: Path, store: Store, name: str) -> Path:
    async def download(address: str) -> None:
        async with connected(address) as daemon:
            await blob_transfer.download(daemon.link, name, tmp_path / "out")

    with fake_daemon(tmp_path, store.answer) as address:
        asyncio.run(download(address))
    return tmp_path / "out"


def test_a_download_is_whole_or_not_there(tmp_path: Path) -> None:
    assert fetch(tmp_path, Store(CONTENT), hashlib.sha256(CONTENT).hexdigest()).read_bytes() == CONTENT
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("store", "message"), [(Store(CONTENT), "arrived damaged"), (Store(b"abc", claimed=10), "sent nothing")]
)
def test_a_damaged_download_leaves_nothing(tmp_path: Path, store: Store, message: str) -> None:
    with pytest.raises(WireError, match=message):
        fetch(tmp_path, store, "0" * 64)
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".sock"] == []


def test_which_errors_mean_a_full_disk() -> None:
    assert blob_transfer.is_full_disk(OSError(errno.ENOSPC, "x"))
    assert blob_transfer.is_full_disk(OSError(errno.EDQUOT, "x"))
    assert not blob_transfer.is_full_disk(OSError(errno.EACCES, "x"))


@pytest.mark.parametrize("claimed", [None, len(CONTENT) + 1], ids=["whole", "cut off"])
def test_small_content_is_fetched_to_its_end(tmp_path: Path, claimed: int | None) -> None:
    """Even when the daemon has less than it reports: an empty piece ends it."""
    store = Store(CONTENT, claimed)

    async def fetched(address: str) -> bytes:
        async with connected(address) as daemon:
            return await blob_transfer.fetch(daemon.link, "0" * 64)

    with fake_daemon(tmp_path, store.answer) as address:
        assert asyncio.run(fetched(address)) == CONTENT
