"""Quotas of uploads that no job uses."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from autosched.daemon.storage import blob_store, upload_quota
from autosched.daemon.storage.blob_store import Blobs
from autosched.daemon.storage.upload_quota import UploadQuota
from autosched.errors import Refused, StorageFull
from autosched.protocol import PutBlob


@pytest.fixture
def quota() -> UploadQuota:
    made = UploadQuota()
    made.bytes_max = 100
    return made


def test_unused_bytes_of_one_user_are_bounded(quota: UploadQuota) -> None:
    quota.count("key a", "1", 40)
    quota.count("key a", "1", 60)
    quota.count("key a", "1", 10)  # a piece that was sent again
    with pytest.raises(Refused, match=r"key a has uploaded 60 B that no job uses.*user_upload_bytes_max is 100 B"):
        quota.count("key a", "2", 41)
    quota.count("key a", "2", 40)
    quota.count("job 7", "1", 100)


def test_files_that_a_job_uses_do_not_count(quota: UploadQuota) -> None:
    quota.count("key a", "1", 100)
    quota.used(None)
    quota.used("1")
    quota.used("1")
    assert quota._of == {}
    quota.count("key a", "2", 100)


def test_many_small_files_are_refused_too(quota: UploadQuota, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_quota, "FILES_MAX", 3)
    for name in "123":
        quota.count("key a", name, 1)
    with pytest.raises(Refused, match="3 files that no job uses"):
        quota.count("key a", "4", 1)
    quota.count("key a", "3", 2)


def test_without_a_limit_any_bytes_may_come() -> None:
    UploadQuota().count("key a", "1", 2**60)


def put(blobs: Blobs, body: bytes, whose: str) -> None:
    sha256 = hashlib.sha256(body).hexdigest()
    asyncio.run(blobs.put(PutBlob(sha256=sha256, total=len(body), offset=0, data=body), whose))


def test_what_is_there_already_and_what_is_swept_does_not_count(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path, 1_000)
    blobs.uploads.bytes_max = 100
    put(blobs, b"a" * 90, "")
    put(blobs, b"a" * 90, "key a")
    put(blobs, b"b" * 90, "key a")
    with pytest.raises(Refused):
        put(blobs, b"c" * 90, "key a")
    blobs.take_away(blobs.path(hashlib.sha256(b"b" * 90).hexdigest()))
    put(blobs, b"c" * 90, "key a")


def test_the_last_of_the_disk_is_for_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = Blobs(tmp_path, 1_000)
    monkeypatch.setattr(blob_store, "FREE_BYTES", 0)
    blobs.check_room()
    monkeypatch.setattr(blob_store, "FREE_BYTES", 2**62)
    monkeypatch.setattr(blob_store, "FREE_SHARE", 1.0)
    with pytest.raises(StorageFull, match="left, which are for running jobs"):
        blobs.check_room()
