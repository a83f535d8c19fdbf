"""Builds that move between hosts, by the hash of their content."""

import asyncio
import hashlib
import tarfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from autosched.backend import Built
from autosched.client import moved_builds
from autosched.client.daemon_session import DaemonSession
from autosched.client.moved_builds import MovedBuilds
from autosched.errors import NotFound, StepFailed
from autosched.protocol import BlobState, Chunk, GetBlob, Method, MovedBuild, PutMoved


class Daemon:
    """Keeps moved files, and counts transferred bytes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.sent = self.fetched = 0

    async def over(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        return await work(self)

    async def call(self, method: Method, kind: type) -> object:
        match method:
            case PutMoved(sha256=sha256, data=data, total=total):
                if not data and total:
                    return BlobState(0, sha256 in self.files)
                self.files[sha256], self.sent = data, self.sent + 1
                return BlobState(total, True)
            case GetBlob(sha256=sha256, offset=offset):
                if sha256 not in self.files:
                    raise NotFound("the daemon has no such file")
                self.fetched += not offset
                return Chunk(self.files[sha256][offset:], len(self.files[sha256]))
        raise AssertionError(method)


class Hosts:
    """A host that builds and one that measures, and the daemon between them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.daemon = folder, Daemon()
        self.here, self.there = (
            MovedBuilds(cast(DaemonSession, self.daemon), folder / name) for name in ("here", "there")
        )

    def built(self, name: str, content: bytes = b"code") -> Built:
        path = self.folder / name
        path.write_bytes(content)
        return Built(name.encode(), path, build_s=0.5, code="1")


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_a_sent_file_keeps_its_name(hosts: Hosts) -> None:
    moved = run(hosts.here.send(hosts.built("a.so")))
    assert moved == MovedBuild(b"a.so", hashlib.sha256(b"code").hexdigest(), "a.so", build_s=0.5, code="1")
    came = hosts.there.came(moved)
    assert came.artifact is not None and not came.artifact.exists(), "nothing is fetched that may not be needed"
    assert run(hosts.there.bring(came)) == came
    assert (came.artifact.name, came.artifact.read_bytes()) == ("a.so", b"code")
    assert (came.candidate, came.build_s, came.code) == (b"a.so", 0.5, "1")


def hostile(kind: str) -> list[tarfile.TarInfo]:
    """Members of an archive of which the last must be refused."""
    member = tarfile.TarInfo({"above": "../x", "absolute": "/tmp/x", "deep above": "a/../../x"}.get(kind, "x"))
    if kind in ("link", "hard link"):
        member.type, member.linkname = (tarfile.SYMTYPE if kind == "link" else tarfile.LNKTYPE), "/etc/passwd"
    elif kind == "device":
        member.type = tarfile.CHRTYPE
    elif kind == "pipe":
        member.type = tarfile.FIFOTYPE
    return [tarfile.TarInfo("x"), member] if kind == "twice" else [member]


@pytest.mark.parametrize("kind", ["above", "absolute", "deep above", "link", "hard link", "device", "pipe", "twice"])
def test_a_folder_of_another_host_puts_nothing_elsewhere(kind: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "packed.tar", "w") as file:
        for member in hostile(kind):
            file.addfile(member)
    (tmp_path / "folder").mkdir()
    with pytest.raises((tarfile.TarError, FileExistsError)):
        moved_builds._unpack(tmp_path / "packed.tar", tmp_path / "folder/build")
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "folder/build").exists()


def test_links_that_a_filter_misjudges_lead_nowhere(tmp_path: Path) -> None:
    """The archive of CVE-2025-4517: a link over more folders than a path may have."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("as it was")
    name, steps, path = "d" * 247, "abcdefghijklmnop", ""
    with tarfile.open(tmp_path / "packed.tar", "w") as file:
        for step in steps:
            for member_name, kind, target in ((name, tarfile.DIRTYPE, ""), (step, tarfile.SYMTYPE, name)):
                member = tarfile.TarInfo(f"{path}{member_name}")
                member.type, member.linkname = kind, target
                file.addfile(member)
            path = f"{path}{name}/"
        long = tarfile.TarInfo(f"{'/'.join(steps)}/{'l' * 254}")
        long.type, long.linkname = tarfile.SYMTYPE, "../" * len(steps)
        file.addfile(long)
        for kind, target in ((tarfile.LNKTYPE, f"{long.name}/../../outside/victim"), (tarfile.REGTYPE, "")):
            member = tarfile.TarInfo("flag")
            member.type, member.linkname = kind, target
            file.addfile(member)
    (tmp_path / "in").mkdir()
    with pytest.raises((tarfile.TarError, OSError)):
        moved_builds._unpack(tmp_path / "packed.tar", tmp_path / "in/folder")
    assert (outside / "victim").read_text() == "as it was"


def test_a_sent_folder_keeps_its_content(hosts: Hosts) -> None:
    folder = hosts.folder / "build"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "program").write_bytes(b"code")
    (folder / "deep" / "program").chmod(0o755)
    came = run(hosts.there.bring(hosts.there.came(run(hosts.here.send(Built(b"a", folder))))))
    assert came.artifact is not None and came.artifact.name == "build"
    assert (came.artifact / "deep" / "program").read_bytes() == b"code"
    assert (came.artifact / "deep" / "program").stat().st_mode & 0o100
    assert not list((hosts.folder / "here").glob("*.tar"))


def test_a_failed_build_has_no_file(hosts: Hosts) -> None:
    moved = run(hosts.here.send(Built(b"a", failure=None, detail="x")))
    assert (moved.file, moved.detail, hosts.daemon.sent) == (None, "x", 0)
    assert run(hosts.there.bring(hosts.there.came(moved))).artifact is None


def test_received_builds_are_not_sent_again(hosts: Hosts) -> None:
    moved = run(hosts.here.send(hosts.built("a.so")))
    assert run(hosts.there.send(hosts.there.came(moved))) == moved
    assert hosts.daemon.sent == 1


def test_local_builds_are_measured_without_a_transfer(hosts: Hosts) -> None:
    built = hosts.built("a.so")
    back = hosts.here.came(run(hosts.here.send(built)))
    assert run(hosts.here.bring(back)).artifact == built.artifact
    assert hosts.daemon.fetched == 0


def test_a_file_is_kept_while_another_round_has_the_same_code(hosts: Hosts) -> None:
    """Two candidates of different rounds may compile to the same code."""
    moved = run(hosts.here.send(hosts.built("a.so")))
    one, other = hosts.there.came(moved), hosts.there.came(moved)
    run(hosts.there.bring(one))
    assert hosts.there.forget([one]) == ()
    run(hosts.there.bring(other))
    assert other.artifact is not None and other.artifact.exists()
    assert hosts.there.forget([other]) == (moved.file,)
    assert not [path for path in (hosts.folder / "there").rglob("*") if path.is_file()]


def test_sent_builds_are_removed_after_their_measurement(hosts: Hosts) -> None:
    sent, own = hosts.built("a.so"), hosts.built("b.so", b"other")
    moved = run(hosts.here.send(sent))
    assert hosts.here.forget([sent, own]) == (moved.file,)
    assert sent.artifact is not None and not sent.artifact.exists()
    assert own.artifact is not None and own.artifact.exists(), "the backend removes what never moved"


def test_only_the_last_sent_builds_are_kept(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_builds, "SENT_MAX", 2)
    for number in range(4):
        run(hosts.here.send(hosts.built(f"{number}.so", b"%d" % number)))
    assert sorted(path.name for path in hosts.folder.glob("*.so")) == ["2.so", "3.so"]


def test_a_missing_file_is_an_error_of_the_step(hosts: Hosts) -> None:
    came = hosts.there.came(MovedBuild(b"a", "0" * 64, "a.so"))
    with pytest.raises(StepFailed, match="cannot be had here: the daemon has no such file"):
        run(hosts.there.bring(came))


def test_names_cannot_leave_the_folder(hosts: Hosts) -> None:
    came = hosts.there.came(MovedBuild(b"a", "0" * 64, "../../../etc/passwd"))
    assert came.artifact is not None
    assert came.artifact.resolve().is_relative_to((hosts.folder / "there").resolve())
