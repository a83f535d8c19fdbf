"""The daemon's keys: a file each in one folder, which is read again when it changes.

Several keys of a role may be valid at the same time, so that a new key can be handed out before the old one is revoked.
A service reads the copies that systemd's LoadCredential= makes of files that only root can read. Without them the
folder is that of the settings, or `keys` in the state folder.
"""

import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from autosched import user_folders
from autosched.config import Config
from autosched.daemon.access.peer_identity import Principal
from autosched.errors import ConfigError, NotFound, RequestError
from autosched.protocol.roles import Role
from autosched.wire.keys import NAME, SECRET_BYTES, Key, read

log = logging.getLogger(__name__)

NAMES = "*-*.key"
"""Pattern of file names: role-id.key, after a prefix of systemd's. Names of TLS keys do not match."""
TICK_NS = 1_000_000_000
"""Time in nanoseconds after a change of the folder in which another change may leave the same time of change: file
systems round it, to 10 ms or less on Linux."""
NEVER = (-1, -1)
"""Equal to the inode and time of no folder, so that it is read again."""
KEYS_MAX = 10_000
"""Maximum number of keys that are read."""


class Kept(Struct, frozen=True):
    """A key without its secret, for lists."""

    id: str
    role: str
    jobs: str
    """Maximum number of active jobs; empty: no limit of its own."""
    made_at: str
    file: str


def folder_of(config: Config) -> Path:
    """Folder of the keys of a daemon with these settings."""
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and any(Path(credentials).glob(NAMES)):
        return Path(credentials)
    if config.daemon.keys:
        return user_folders.expanded(config.daemon.keys)
    return config.state_dir / "keys"


def make(folder: Path, role: Role, name: str = "", jobs_max: int | None = None) -> tuple[Key, Path]:
    """Make a key in a file that no other user can read. Without a name the id is random.

    Raises RequestError for a name that is invalid or taken, and ConfigError when the key cannot be written.
    """
    key = Key(role, name or secrets.token_hex(4), secrets.token_bytes(SECRET_BYTES), jobs_max)
    if NAME.fullmatch(key.id) is None:
        raise RequestError(f"{name!r} cannot name a key; write up to 32 of a-z, 0-9, - and _, for example: alice")
    if any(one.id == key.id for one in kept(folder)):
        raise RequestError(f"there is a key {key.id} already; withdraw it first: autosched key revoke {key.id}")
    path = folder / f"{key.role.value}-{key.id}.key"
    new = path.with_suffix(".new")
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(key.line() + (f" jobs={jobs_max}" if jobs_max else "") + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
    except OSError as error:
        raise ConfigError(f"no key can be written to {folder} ({error.strerror}); set daemon.keys") from None
    return key, path


def kept(folder: Path) -> list[Kept]:
    """All keys in the folder, the oldest first."""
    found = []
    for path, key in sorted(_read(folder), key=lambda one: one[0].stat().st_mtime_ns):
        made_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        jobs = str(key.jobs_max or "")
        found.append(Kept(key.id, key.role.value, jobs, made_at.isoformat(timespec="seconds"), str(path)))
    return found


def revoke(folder: Path, id: str) -> Kept:
    """Revoke a key. Raises NotFound."""
    one = next((one for one in kept(folder) if one.id == id), None)
    if one is None:
        raise NotFound(f"no key with the id {id!r} is in {folder}; see: autosched key list")
    Path(one.file).unlink(missing_ok=True)
    return one


def _read(folder: Path) -> list[tuple[Path, Key]]:
    """The valid keys of a folder. Files that cannot be used are logged and skipped."""
    private = str(folder) != os.environ.get("CREDENTIALS_DIRECTORY")  # systemd's ACL looks like a right of the group
    found = []
    for path in sorted(folder.glob(NAMES))[:KEYS_MAX]:
        try:
            found.append((path, read(path, private=private)))
        except ConfigError as error:
            log.error("a key is not used: %s", error)
    return found


class Keyring:
    """The valid keys by id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: tuple[int, int] | None = None
        self._keys: dict[str, Key] = {}
        self.refresh()

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys.values())

    def get(self, id: str) -> Key | None:
        """The key with an id."""
        return self._keys.get(id)

    def admits(self, who: Principal) -> bool:
        """Whether a principal has no key, or one that is still valid. A new key with the same id is another key."""
        return who.key is None or self.get(who.key.id) == who.key

    def refresh(self) -> bool:
        """Read the folder again if it has changed; returns whether the keys have changed."""
        settled, seen = True, None
        with suppress(OSError):
            status = self.folder.stat()
            seen = (status.st_ino, status.st_mtime_ns)
            settled = time.time_ns() - status.st_mtime_ns > TICK_NS
        if seen == self._seen:
            return False
        before, self._seen = self._keys, seen if settled else NEVER
        self._keys = {key.id: key for _, key in _read(self.folder)}
        return before != self._keys
