"""Cache of builds: a candidate or network is not built twice for the same target with the same tools.

Source: the compilation cache of Tensor Comprehensions (Vasilache et al., 2018), section 5.3. An entry is a folder named
by the digest of all inputs of the build. It appears complete, by a rename; its files have checksums, because a power
failure may leave them empty. The least recently used entries are deleted first. Loads without TVM.
"""

import hashlib
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

log = logging.getLogger(__name__)

FOLDER, BYTES_MAX = "AUTOSCHED_CACHE", "AUTOSCHED_CACHE_BYTES"
"""Environment variables of a daemon's clients: a folder that survives jobs, and its maximum bytes."""
ENTRY = "entry.json"
KEPT_UNTIL_LOOK = 32
"""Number of entries that a process adds between two checks of the size."""
ENTRY_SHARE = 0.125
"""Maximum share of the limit of one entry: a larger one would displace too many others."""
ROOM_SHARE = 0.9
"""Share of the limit that is kept when entries are deleted."""


class Entry(Struct, frozen=True):
    """The content of an entry."""

    files: dict[str, str]
    """SHA-256 of each file, by its name."""
    note: str
    """Text of the caller, returned by `take`."""


def digest_of(*parts: object) -> str:
    """The key of a build with these inputs, of types that msgpack supports."""
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


class BuildCache:
    """Used by several processes and threads at once. A full disk, or a missing folder, costs a build."""

    def __init__(self, folder: Path | None, bytes_max: int) -> None:
        """None, or 0 bytes: the cache is off."""
        self._folder = folder if bytes_max > 0 else None
        self._bytes_max = bytes_max
        self._kept = 0
        self._lock = threading.Lock()

    @classmethod
    def of_environment(cls) -> "BuildCache":
        """The cache of the daemon that started this process; off without one."""
        folder, bytes_max = os.environ.get(FOLDER, ""), os.environ.get(BYTES_MAX, "0")
        return cls(Path(folder) if folder else None, int(bytes_max) if bytes_max.isdecimal() else 0)

    @property
    def keeps(self) -> bool:
        """Whether the cache is on."""
        return self._folder is not None

    def take(self, key: str, files: Mapping[str, Path] | Path) -> str | None:
        """Copy the files of an entry, each from its name to a path, or all of them to a folder; returns the note.

        None if there is no such entry.
        """
        if self._folder is None:
            return None
        place = self._folder / key
        try:
            entry = msgspec.json.decode((place / ENTRY).read_bytes(), type=Entry)
            wanted = {name: files / name for name in entry.files} if isinstance(files, Path) else files
            for name, path in wanted.items():
                content = (place / name).read_bytes()
                if hashlib.sha256(content).hexdigest() != entry.files[name]:
                    raise ValueError(f"{name} is damaged")
                path.write_bytes(content)
            os.utime(place)
        except FileNotFoundError:
            return None
        except (OSError, KeyError, ValueError, msgspec.MsgspecError) as error:
            log.warning("an entry of the build cache is not used: %s", error)
            shutil.rmtree(place, ignore_errors=True)
            return None
        return entry.note

    def keep(self, key: str, files: Mapping[str, Path], note: str = "") -> None:
        """Add copies of files, each by its name, with a note."""
        if self._folder is None:
            return
        try:
            if sum(path.stat().st_size for path in files.values()) > ENTRY_SHARE * self._bytes_max:
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(prefix=".part-", dir=self._folder))
            try:
                sums = {}
                for name, path in files.items():
                    content = path.read_bytes()
                    sums[name] = hashlib.sha256(content).hexdigest()
                    (part / name).write_bytes(content)
                (part / ENTRY).write_bytes(msgspec.json.encode(Entry(sums, note)))
                part.rename(self._folder / key)
            finally:
                shutil.rmtree(part, ignore_errors=True)  # another process was faster
        except OSError as error:
            log.debug("a build is not kept: %s", error)
        with self._lock:
            self._kept += 1
            look = self._kept % KEPT_UNTIL_LOOK == 1
        if look:
            self.make_room()

    def make_room(self) -> None:
        """Delete the least recently used entries above the limit."""
        if self._folder is None:
            return
        found = []
        for place in list(self._folder.iterdir()) if self._folder.is_dir() else []:
            try:
                with os.scandir(place) as files:
                    found.append((place.stat().st_mtime, sum(file.stat().st_size for file in files), place))
            except OSError:  # another process is deleting it
                continue
        held = sum(size for _, size, _ in found)
        if held <= self._bytes_max:
            return
        for _, size, place in sorted(found):
            shutil.rmtree(place, ignore_errors=True)
            held -= size
            if held <= ROOM_SHARE * self._bytes_max:
                return
