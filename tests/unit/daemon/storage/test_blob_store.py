"""Files by content: resumable, checked, and complete or absent."""

import asyncio
import errno
import gc
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from autosched.daemon.storage.blob_store import Blobs
from autosched.errors import NotFound, Refused
from autosched.protocol import CHUNK_BYTES, BlobState, GetBlob, PutBlob

DATA = bytes(range(256)) * 3_000
NAME = hashlib.sha256(DATA).hexdigest()


def piece(offset: int, data: bytes, name: str = NAME, total: int = len(DATA)) -> PutBlob:
    return PutBlob(sha256=name, total=total, offset=offset, data=data)


def put(blobs: Blobs, *pieces: PutBlob) -> list[BlobState]:
    async def all_of_them() -> list[BlobState]:
        return [await blobs.put(one) for one in pieces]

    return asyncio.run(all_of_them())


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs", 10_000_000)


def test_an_upload_is_complete_when_its_hash_matches(blobs: Blobs) -> None:
    states = put(blobs, piece(0, b""), piece(0, DATA[:200_000]), piece(200_000, DATA[200_000:400_000]))
    assert states == [BlobState(0, False), BlobState(200_000, False), BlobState(400_000, False)]
    assert blobs.size(NAME) is None
    pieces = [piece(start, DATA[start : start + 200_000]) for start in range(400_000, len(DATA), 200_000)]
    assert put(blobs, *pieces)[-1] == BlobState(len(DATA), True)
    assert blobs.path(NAME).read_bytes() == DATA
    assert put(blobs, piece(0, b"")) == [BlobState(len(DATA), True)]


def test_an_upload_continues_even_after_a_restart(blobs: Blobs, tmp_path: Path) -> None:
    put(blobs, piece(0, DATA[:100_000]))
    again = Blobs(tmp_path / "blobs", 10_000_000)
    assert put(again, piece(0, b"")) == [BlobState(100_000, False)]


@pytest.mark.parametrize("left", [DATA, bytes(len(DATA))], ids=["all bytes", "as many others"])
def test_a_complete_upload_is_finished_after_a_restart(blobs: Blobs, tmp_path: Path, left: bytes) -> None:
    (tmp_path / "blobs" / f"{NAME}.part").write_bytes(left)
    whole = left == DATA
    assert put(blobs, piece(0, b"")) == [BlobState(len(DATA) if whole else 0, whole)]
    assert not list((tmp_path / "blobs").glob("*.part"))


def test_a_piece_out_of_order_is_refused_with_the_right_offset(blobs: Blobs) -> None:
    assert (
        put(blobs, piece(0, DATA[:100_000]), piece(5, b"x"), piece(200_000, b"x"), piece(0, DATA[:100_000]))
        == [BlobState(100_000, False)] * 4
    )


def test_more_bytes_than_announced_are_refused(blobs: Blobs) -> None:
    assert put(blobs, piece(0, b"x" * 100, total=50)) == [BlobState(0, False)]


def test_an_upload_with_a_wrong_hash_is_refused_and_deleted(blobs: Blobs) -> None:
    with pytest.raises(Refused, match="send the file again"):
        put(blobs, piece(0, b"x" * 50, total=50))
    assert put(blobs, piece(0, b"")) == [BlobState(0, False)]


def test_a_disconnected_uploader_gets_no_failure(blobs: Blobs) -> None:
    async def hang_up() -> list[dict[str, Any]]:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        asked = asyncio.ensure_future(blobs.put(piece(0, b"x" * 10, total=10)))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait([asked])
        async with blobs._locks[NAME[0]]:  # once the thread has found that the bytes are wrong
            pass
        await asyncio.sleep(0)
        gc.collect()
        return complaints

    assert asyncio.run(hang_up()) == []


def test_an_empty_file_is_a_file(blobs: Blobs) -> None:
    name = hashlib.sha256(b"").hexdigest()
    assert put(blobs, piece(0, b"", name, 0)) == [BlobState(0, True)]
    assert asyncio.run(blobs.get(GetBlob(sha256=name, offset=0))).total == 0


def test_a_file_over_the_limit_is_refused(blobs: Blobs) -> None:
    with pytest.raises(Refused, match=r"larger than limits\.blob_bytes_max"):
        put(blobs, piece(0, b"", total=10_000_001))


def test_reading_gives_pieces_up_to_the_end(blobs: Blobs) -> None:
    blobs.path(NAME).write_bytes(DATA)

    async def read() -> bytes:
        data = b""
        while len(data) < len(DATA):
            chunk = await blobs.get(GetBlob(sha256=NAME, offset=len(data)))
            assert chunk.total == len(DATA)
            assert 0 < len(chunk.data) <= CHUNK_BYTES
            data += chunk.data
        assert (await blobs.get(GetBlob(sha256=NAME, offset=2**63))).data == b""
        return data

    assert asyncio.run(read()) == DATA


def test_an_unknown_file_is_not_found(blobs: Blobs) -> None:
    put(blobs, piece(0, DATA[:1_000]))
    with pytest.raises(NotFound, match="upload it first"):
        asyncio.run(blobs.get(GetBlob(sha256=NAME, offset=0)))


def test_a_full_disk_is_reported_and_uploads_continue_later(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(Path, "open", full)
        with pytest.raises(Refused, match="disk is full"):
            put(blobs, piece(0, DATA[:100_000]))
    assert put(blobs, piece(0, DATA[:100_000])) == [BlobState(100_000, False)]


def test_two_uploads_of_one_file_share_their_pieces(blobs: Blobs) -> None:
    async def upload() -> None:
        state = await blobs.put(piece(0, b""))
        while not state.complete:
            state = await blobs.put(piece(state.bytes_have, DATA[state.bytes_have : state.bytes_have + 50_000]))

    async def both() -> None:
        await asyncio.gather(upload(), upload())

    asyncio.run(both())
    assert blobs.path(NAME).read_bytes() == DATA


def test_only_old_unneeded_files_are_deleted(blobs: Blobs) -> None:
    put(blobs, piece(0, DATA), piece(0, b"x", "0" * 64, 9))
    kept = blobs.path("1" * 64)
    kept.write_bytes(b"a job's model")
    assert blobs.unneeded((), young_s=60.0) == []
    old = sorted([blobs.path(NAME), kept.with_name(f"{'0' * 64}.part")])
    for path in (kept, *old):
        os.utime(path, (0.0, 0.0))
    assert sorted(blobs.unneeded({kept.name}, 60.0)) == old
    gone = blobs.take_away(blobs.path(NAME))
    assert blobs.size(NAME) is None
    assert gone in blobs.unneeded({kept.name}, 60.0), "who dies before it is removed leaves it to the next one"


def test_uploading_a_file_again_keeps_it_from_deletion(blobs: Blobs) -> None:
    put(blobs, piece(0, DATA))
    os.utime(blobs.path(NAME), (0.0, 0.0))
    assert put(blobs, piece(0, b"")) == [BlobState(len(DATA), True)]
    assert blobs.unneeded((), young_s=60.0) == []
