"""Copies of the database, made while the daemon writes to it, each checked row by row before it counts as a backup.

A copy contains all jobs, events and records. Models and results are files beside the database, named by the hash of
their content. They never change, so that every copy finds the files that it names.
"""

import contextlib
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from autosched.daemon.clients import adoption
from autosched.daemon.recovery import snapshot
from autosched.daemon.storage import database, integrity_check, schema
from autosched.daemon.storage.commit_mark import CommitMark
from autosched.daemon.storage.journal import UNREADABLE, Journal, commits_of, open_beside
from autosched.errors import ConfigError, Damaged, NotFound

PREFIX = "autosched-"
MOMENT = "%Y%m%dT%H%M%S.%fZ"
SIDES = ("", "-wal", "-shm")


def all_of(state_dir: Path) -> list[Path]:
    """Backups, the newest first."""
    return sorted(database.backups(state_dir).glob(f"{PREFIX}*.db"), reverse=True)


def newest(state_dir: Path) -> Path | None:
    """The newest backup; None if there is none."""
    return next(iter(all_of(state_dir)), None)


def commits(path: Path) -> int | None:
    """Number of commits in a backup; None if it cannot be read."""
    try:
        with contextlib.closing(open_beside(path)) as db:
            return commits_of(db)
    except UNREADABLE:
        return None


def there(path: Path) -> Path:
    """Return the path of an existing file. Raises NotFound if it does not exist, ConfigError without permission to see
    it."""
    try:
        path.stat()
    except PermissionError:
        raise ConfigError(f"{path} is not yours to look at; be root, or the user of its daemon") from None
    except OSError:
        raise NotFound(f"there is no database at {path}; name the daemon's settings with -c") from None
    return path


def stamp(after: datetime | None = None) -> str:
    """The present time as part of a file name, later than `after` even if the clock was set back."""
    now = datetime.now(UTC)
    return (now if after is None or now > after else after + timedelta(microseconds=1)).strftime(MOMENT)


def _last_moment(state_dir: Path) -> datetime | None:
    """The time in the newest backup's name.

    If the clock was set back since, a backup made now still counts as newer and is not the first to be deleted.
    """
    if (last := newest(state_dir)) is None:
        return None
    try:
        return datetime.strptime(last.stem, f"{PREFIX}{MOMENT}").replace(tzinfo=UTC)
    except ValueError:  # not a backup's name: a user put the file there
        return None


def make(state_dir: Path, to: Path | None = None, keep: int | None = None) -> Path:
    """Copy the database in its present state; `keep`: number of earlier copies to keep.

    Raises Damaged, ConfigError and NotFound.
    """
    path = there(database.database(state_dir))
    if to is None:
        database.backups(state_dir).mkdir(mode=0o700, exist_ok=True)
        to = database.backups(state_dir) / f"{PREFIX}{stamp(_last_moment(state_dir))}.db"
    elif to.exists():
        raise ConfigError(f"{to} exists; name a file that does not")
    new = to.with_name(f"{to.name}.new")
    try:
        new.unlink(missing_ok=True)
        database.copy(path, new)
        verify(new)
        flush(new)
        new.rename(to)
    except OSError as error:
        raise ConfigError(f"{to} cannot be written ({error}); free some space there, or name another place") from None
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
    for old in all_of(state_dir)[keep:] if keep is not None else ():
        old.unlink(missing_ok=True)
    return to


def look(path: Path, files: Path | None = None) -> integrity_check.Findings:
    """Check the whole database in its present state; `files`: also check that the files it names exist. Raises Damaged
    if it is no database, and ConfigError."""
    acknowledged = CommitMark(path).read()  # read first: commits that come meanwhile only add to it
    with database.reading(path) as db:
        schema.version(db, path)
        found = integrity_check.check(db, acknowledged)
        if files is not None:
            found = replace(found, damage=(*found.damage, *integrity_check.missing(db, files)))
    return found


def verify(path: Path) -> integrity_check.Findings:
    """Like `look`, and raises Damaged if anything is damaged."""
    found = look(path)
    if found.damage:
        raise found.error(path)
    return found


class Upgraded(Struct, frozen=True):
    """The database's schema version before and after, and the path of its copy; empty if nothing was done."""

    before: int
    after: int
    backup: str = ""


def upgrade(state_dir: Path) -> Upgraded:
    """Upgrade the database to the present schema version; only while no daemon runs. Raises Damaged, ConfigError and
    NotFound."""
    path = there(database.database(state_dir))
    before = verify(path).format
    if before in (0, schema.VERSION):  # 0: the daemon's first life ended before the tables existed
        return Upgraded(before, before)
    backup = make(state_dir)
    Journal(path, *database.TABLES).close()
    verify(path)
    return Upgraded(before, schema.VERSION, str(backup))


def restore(state_dir: Path, backup: Path) -> Path | None:
    """Replace the database with a backup; only while no daemon runs. Returns the path of the former database, if there
    was one. Raises Damaged, ConfigError and NotFound."""
    if not backup.is_file():
        raise NotFound(
            f"there is no backup at {backup}; autosched db restore without a name lists those that there are"
        )
    if verify(backup).format == 0:
        raise Damaged(
            f"{backup} holds no database of autosched, and nothing was changed;"
            " autosched db restore without a name lists the backups that there are"
        )
    path = database.database(state_dir)
    new = path.with_name(f"{path.name}.new")
    try:
        new.unlink(missing_ok=True)
        database.copy(backup, new)  # not a copy of the file: files beside it belong to the replaced database
        flush(new)
        former = set_aside(state_dir, "replaced")
        new.rename(path)
        flush(path.parent)
    except OSError as error:
        raise ConfigError(f"{path} cannot be replaced ({error}); nothing was changed") from None
    return former


def set_aside(state_dir: Path, why: str) -> Path | None:
    """Move the database away, with all files that belong only to it. Returns its new path; None if there was none."""
    path = database.database(state_dir)
    there = [side for side in (*(Path(f"{path}{side}") for side in SIDES), CommitMark(path).path) if side.exists()]
    snapshot.forget(database.snapshots(state_dir))
    adoption.disown(state_dir / "jobs")
    if not there:
        return None
    folder = state_dir / f"{why}-{stamp()}"
    folder.mkdir(mode=0o700)
    for side in there:
        side.rename(folder / side.name)
    return folder / path.name


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
