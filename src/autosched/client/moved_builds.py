"""Builds that move between the hosts of a job, by the hash of their content: files, or folders of files."""

import contextlib
import itertools
import os
import shutil
import tarfile
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from msgspec import structs

from autosched.backend import Built
from autosched.client.daemon_session import DaemonSession
from autosched.errors import NotFound, StepFailed
from autosched.protocol import MovedBuild, PutMoved
from autosched.wire import blob_transfer

SENT_MAX = 256
"""Maximum builds that a host keeps after sending them, because the next stage may run on the same host."""


class MovedBuilds:
    """Sends builds of this host, and downloads those of other hosts when they are needed."""

    def __init__(self, line: DaemonSession, folder: Path) -> None:
        """`folder`: used by this process only; files of an earlier process are removed."""
        self._line, self._folder = line, folder
        self._numbers = itertools.count()
        self._sent: OrderedDict[str, Path] = OrderedDict()
        """Builds of this host, by their hash."""
        self._wanted: defaultdict[str, set[Path]] = defaultdict(set)
        """Artifacts with the same hash that are still to be measured."""
        shutil.rmtree(folder, ignore_errors=True)

    async def send(self, built: Built) -> MovedBuild:
        """Upload a build. A build from another host is there already. Raises StepFailed."""
        if built.artifact is None:
            return _said(built)
        if (moved := self._moved(built)) is not None:
            return moved
        path, folder = built.artifact, built.artifact.is_dir()
        packed = self._folder / f"{next(self._numbers)}.tar" if folder else path
        try:
            if folder:
                _pack(path, packed)
            sha256 = await self._line.over(partial(blob_transfer.upload, path=packed, put=PutMoved))
        except OSError as error:
            raise StepFailed(f"a build cannot be sent to another host: {error}") from None
        finally:
            if folder:
                packed.unlink(missing_ok=True)
        self._wanted[sha256].add(path)
        self._sent[sha256] = path
        if len(self._sent) > SENT_MAX:
            _remove(self._sent.popitem(last=False)[1])
        return structs.replace(_said(built), file=sha256, name=path.name, folder=folder)

    def came(self, moved: MovedBuild) -> Built:
        """Register a build of another host. Its artifact is not on this host before `bring`."""
        path = None
        if moved.file is not None:
            kind, name = "folder" if moved.folder else "file", Path(moved.name).name or "build"
            path = self._folder / moved.file / kind / str(next(self._numbers)) / name
            self._wanted[moved.file].add(path)
        return Built(moved.candidate, path, moved.failure, moved.detail, moved.build_s, moved.code)

    async def bring(self, built: Built) -> Built:
        """Download the artifact of a build if another host built it. Raises StepFailed if no host has it any more."""
        if (moved := self._moved(built)) is None or moved.file is None:
            return built
        if (own := self._sent.get(moved.file)) is not None and own.exists():
            return structs.replace(built, artifact=own)
        path = built.artifact
        assert path is not None
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            packed = path.with_name(f".{path.name}.tar") if moved.folder else path
            try:
                await self._line.over(partial(blob_transfer.download, name=moved.file, path=packed))
                if moved.folder:
                    _unpack(packed, path)
            except (OSError, tarfile.TarError, NotFound) as error:
                raise StepFailed(f"a build of another host cannot be had here: {error}") from None
        return built

    async def bring_all(self, builts: Iterable[Built]) -> list[Built]:
        """Like `bring`, for several builds."""
        return [await self.bring(built) for built in builts]

    def forget(self, builts: Iterable[Built]) -> tuple[str, ...]:
        """Release builds that are no longer needed. Returns the hashes of files that the daemon need not keep."""
        over: dict[str, None] = {}
        sent = {path: sha256 for sha256, path in self._sent.items()}
        for built in builts:
            if (path := built.artifact) is None:
                continue
            moved = self._moved(built)
            if (sha256 := sent.get(path) if moved is None else moved.file) is None:
                continue
            _remove(path if moved is None else path.parent)
            self._wanted[sha256].discard(path)
            if not self._wanted[sha256]:
                del self._wanted[sha256]
                self._sent.pop(sha256, None)
                over[sha256] = None
        return tuple(over)

    def _moved(self, built: Built) -> MovedBuild | None:
        """Describe a build of another host; None if it was built here or has no artifact."""
        path = built.artifact
        if path is None or self._folder not in path.parents:
            return None
        file, kind, _, name = path.relative_to(self._folder).parts
        return structs.replace(_said(built), file=file, name=name, folder=kind == "folder")


def _said(built: Built) -> MovedBuild:
    return MovedBuild(
        built.candidate, failure=built.failure, detail=built.detail, build_s=built.build_s, code=built.code
    )


def _pack(source: Path, packed: Path) -> None:
    packed.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(packed, "w", dereference=True) as file:
        file.add(source, arcname=".")


def _unpack(packed: Path, folder: Path) -> None:
    part = folder.with_name(f".{folder.name}.part")
    _remove(part)  # of an earlier attempt
    part.mkdir()
    with tarfile.open(packed) as file:
        for member in file:
            _extract(file, member, part)
    part.rename(folder)
    packed.unlink()


def _extract(file: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write one file or folder of an archive of another host. Raises TarError for any other kind of member, and for a
    place outside of the folder.

    The filters of `tarfile` can be led outside by links (CVE-2025-4517); here no link is made.
    """
    parts = Path(member.name).parts
    if ".." in parts or Path(member.name).is_absolute() or member.issparse() or not (member.isreg() or member.isdir()):
        raise tarfile.ExtractError(f"{member.name!r} is no plain file inside the folder")
    path = folder.joinpath(*parts)
    if member.isdir():
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    content = file.extractfile(member)
    assert content is not None, "it is a plain file"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with content, open(os.open(path, flags, member.mode & 0o755), "wb") as copy:
        shutil.copyfileobj(content, copy)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
