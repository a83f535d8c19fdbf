"""Copies of the database, made while the daemon writes to it, each checked row by row before it counts as one.

A copy holds all jobs, events and records. Models and results lie in files beside the database, by the hash of their
content; nothing ever changes or removes them, so that every copy finds those it names.
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
    """The newest first."""
    return sorted(database.backups(state_dir).glob(f"{PREFIX}*.db"), reverse=True)


def newest(state_dir: Path) -> Path | None:
    """The last one that was made."""
    return next(iter(all_of(state_dir)), None)


def commits(path: Path) -> int | None:
    """How many commits it holds; None when it cannot be read."""
    try:
        with contextlib.closing(open_beside(path)) as db:
            return commits_of(db)
    except UNREADABLE:
        return None


def there(path: Path) -> Path:
    """The same path. Raises NotFound when nothing is there, ConfigError when that cannot be seen."""
    try:
        path.stat()
    except PermissionError:
        raise ConfigError(f"{path} is not yours to look at; be root, or the user of its daemon") from None
    except OSError:
        raise NotFound(f"there is no database at {path}; name the daemon's settings with -c") from None
    return path


def stamp(after: datetime | None = None) -> str:
    """This moment, as part of a name; a later one than that, whatever the clock says."""
    now = datetime.now(UTC)
    return (now if after is None or now > after else after + timedelta(microseconds=1)).strftime(MOMENT)


def _last_moment(state_dir: Path) -> datetime | None:
    """Moment in the newest backup's name.

    The clock may have been set back since; a backup made now is newer all the same, and not the first to go.
    """
    if (last := newest(state_dir)) is None:
        return None
    try:
        return datetime.strptime(last.stem, f"{PREFIX}{MOMENT}").replace(tzinfo=UTC)
    except ValueError:  # a user put it there
        return None


def make(state_dir: Path, to: Path | None = None, keep: int | None = None) -> Path:
    """Copy the database as it is at this moment; `keep`: number of earlier copies that stay.

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
    """Check all of a database as it is at this moment; `files`: also whether those that it names are there. Raises
    Damaged when it is no database, and ConfigError."""
    acknowledged = CommitMark(path).read()  # first: what is committed meanwhile is more and never less
    with database.reading(path) as db:
        schema.version(db, path)
        found = integrity_check.check(db, acknowledged)
        if files is not None:
            found = replace(found, damage=(*found.damage, *integrity_check.missing(db, files)))
    return found


def verify(path: Path) -> integrity_check.Findings:
    """The same; raises Damaged also when anything is damaged."""
    found = look(path)
    if found.damage:
        raise found.error(path)
    return found


class Upgraded(Struct, frozen=True):
    """The form of a database before and after, and where it is kept as it was; empty when nothing was done."""

    before: int
    after: int
    backup: str = ""


def upgrade(state_dir: Path) -> Upgraded:
    """Bring the database to the present form; only while no daemon runs. Raises Damaged, ConfigError and NotFound."""
    path = there(database.database(state_dir))
    before = verify(path).format
    if before in (0, schema.VERSION):  # 0: its first life ended before it was made
        return Upgraded(before, before)
    backup = make(state_dir)
    Journal(path, *database.TABLES).close()
    verify(path)
    return Upgraded(before, schema.VERSION, str(backup))


def restore(state_dir: Path, backup: Path) -> Path | None:
    """Put a backup in the database's place; only while no daemon runs. Returns where the former one is now, if there
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
        database.copy(backup, new)  # and not its file: what is beside a database that was replaced belongs to it
        flush(new)
        former = set_aside(state_dir, "replaced")
        new.rename(path)
        flush(path.parent)
    except OSError as error:
        raise ConfigError(f"{path} cannot be replaced ({error}); nothing was changed") from None
    return former


def set_aside(state_dir: Path, why: str) -> Path | None:
    """Move the database away, with all that is true only of it, so that another can take its place. Returns where it is
    now; None: there was none."""
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
    """A file, or a folder's names, to the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
