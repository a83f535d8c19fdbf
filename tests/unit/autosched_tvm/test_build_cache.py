"""Cached builds: returned whole or not at all, within the size limit."""

import os
import threading
from pathlib import Path

import pytest

from autosched_tvm import build_cache
from autosched_tvm.build_cache import BuildCache, digest_of


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "cache", 20_000)


def kept(cache: BuildCache, key: str, folder: Path, content: bytes = b"code") -> None:
    (folder / "made").write_bytes(content)
    cache.keep(key, {"kernel": folder / "made"}, f"note of {key}")


def taken(cache: BuildCache, key: str, folder: Path) -> tuple[str | None, bytes | None]:
    path = folder / "taken"
    path.unlink(missing_ok=True)
    note = cache.take(key, {"kernel": path})
    return note, path.read_bytes() if note is not None else None


def test_an_entry_is_found_again(cache: BuildCache, tmp_path: Path) -> None:
    assert taken(cache, "a", tmp_path) == (None, None)
    kept(cache, "a", tmp_path)
    assert taken(cache, "a", tmp_path) == ("note of a", b"code")
    assert taken(cache, "b", tmp_path) == (None, None)
    kept(cache, "a", tmp_path, b"other")  # the first one stays
    assert taken(cache, "a", tmp_path) == ("note of a", b"code")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["a"]


def test_a_copy_that_is_changed_changes_nothing_in_the_cache(cache: BuildCache, tmp_path: Path) -> None:
    kept(cache, "a", tmp_path)
    taken(cache, "a", tmp_path)
    (tmp_path / "taken").write_bytes(b"changed")
    (tmp_path / "made").write_bytes(b"changed")
    assert taken(cache, "a", tmp_path)[1] == b"code"


@pytest.mark.parametrize("damage", [b"", b"c0de", None], ids=["empty", "flipped", "gone"])
@pytest.mark.parametrize("name", ["kernel", build_cache.ENTRY])
def test_a_damaged_entry_is_not_used_and_can_be_made_again(
    cache: BuildCache, tmp_path: Path, name: str, damage: bytes | None
) -> None:
    kept(cache, "a", tmp_path)
    file = tmp_path / "cache/a" / name
    file.unlink() if damage is None else file.write_bytes(damage)
    assert cache.take("a", {"kernel": tmp_path / "taken"}) is None
    if damage is not None:
        kept(cache, "a", tmp_path)
        assert taken(cache, "a", tmp_path) == ("note of a", b"code")


def test_the_least_recently_used_entry_is_deleted(cache: BuildCache, tmp_path: Path) -> None:
    for number in range(10):
        kept(cache, f"{number}", tmp_path, bytes(2_400))
        os.utime(tmp_path / f"cache/{number}", (number, number))
    taken(cache, "0", tmp_path)
    cache.make_room()
    left = {path.name for path in (tmp_path / "cache").iterdir()}
    assert "0" in left
    assert not {"1", "2"} & left
    assert {"8", "9"} <= left
    size = sum(file.stat().st_size for file in (tmp_path / "cache").rglob("*") if file.is_file())
    assert size <= build_cache.ROOM_SHARE * 20_000


def test_a_huge_entry_displaces_no_other(cache: BuildCache, tmp_path: Path) -> None:
    kept(cache, "huge", tmp_path, bytes(3_000))
    assert taken(cache, "huge", tmp_path) == (None, None)


def test_all_files_of_an_entry_are_copied_into_a_folder(cache: BuildCache, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    cache.keep("key", {"a": tmp_path / "a", "b": tmp_path / "b"}, "note")
    (tmp_path / "into").mkdir()
    assert cache.take("key", tmp_path / "into") == "note"
    assert {path.name: path.read_text() for path in (tmp_path / "into").iterdir()} == {"a": "a", "b": "b"}


def test_old_entries_are_deleted_while_builds_are_added(cache: BuildCache, tmp_path: Path) -> None:
    for number in range(3 * build_cache.KEPT_UNTIL_LOOK):
        kept(cache, f"{number}", tmp_path, bytes(1_000))
    assert len(list((tmp_path / "cache").iterdir())) < 2 * build_cache.KEPT_UNTIL_LOOK


@pytest.mark.parametrize("made", [lambda _: BuildCache(None, 10**9), lambda folder: BuildCache(folder, 0)])
def test_without_a_folder_or_room_nothing_is_kept(made: object, tmp_path: Path) -> None:
    cache = made(tmp_path / "cache")  # type: ignore[operator]
    kept(cache, "a", tmp_path)
    assert taken(cache, "a", tmp_path) == (None, None)
    cache.make_room()
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_cannot_be_written_costs_a_build_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    cache = BuildCache(tmp_path / "cache", 10_000)
    kept(cache, "a", tmp_path)
    assert taken(cache, "a", tmp_path) == (None, None)


def test_concurrent_readers_find_complete_entries_or_none(cache: BuildCache, tmp_path: Path) -> None:
    wrong: list[bytes] = []

    def work(number: int) -> None:
        folder = tmp_path / f"{number}"
        folder.mkdir()
        for turn in range(40):
            key = f"{turn % 7}"
            kept(cache, key, folder, key.encode() * 2_000)
            note, content = taken(cache, key, folder)
            if note is not None and content != key.encode() * 2_000:
                wrong.append(content or b"")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_client_finds_the_cache_by_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build_cache.FOLDER, str(tmp_path / "cache"))
    monkeypatch.setenv(build_cache.BYTES_MAX, "10000")
    kept(BuildCache.of_environment(), "a", tmp_path)
    assert taken(BuildCache.of_environment(), "a", tmp_path)[0] == "note of a"
    monkeypatch.delenv(build_cache.FOLDER)
    assert taken(BuildCache.of_environment(), "a", tmp_path)[0] is None


def test_keys_of_different_parts_differ() -> None:
    keys = {digest_of("a", "b"), digest_of("ab", ""), digest_of("b", "a"), digest_of(b"a", "b"), digest_of("a", "b", 1)}
    assert len(keys) == 5
