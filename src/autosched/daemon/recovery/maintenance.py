"""Snapshots and backups, made beside the daemon by a process that only reads its database.

``python -m autosched.daemon.recovery.maintenance snapshot|backup FOLDER [KEEP]`` makes one. The daemon starts it when
enough was written since the last snapshot, or when the last backup is old enough.
"""

import asyncio
import contextlib
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path

from autosched.config import BackupConfig
from autosched.daemon.event_stream.daemon_events import Kept
from autosched.daemon.event_stream.stream import Stream
from autosched.daemon.recovery import backups, snapshot, state_recovery
from autosched.daemon.storage import database
from autosched.daemon.storage.journal import Journal
from autosched.errors import AutoschedError
from autosched.process import program_runner

log = logging.getLogger(__name__)

SNAPSHOT_EVERY = 20_000
"""Writes between two snapshots: what a restart has to replay, in about a second."""
FIRST_BACKUP = 1_000
"""Commits after which the first backup does not wait for its hour."""
LOOK_S = 10.0
NICE = 19
"""The priority of those that no caller waits for, the lowest: on a busy machine a second's work takes minutes at it."""
LIMIT_S = 1_800.0
"""One that takes longer is given up."""
AGAIN_S = 600.0
"""After a failure: its cause, such as a full disk, may take a while to pass."""


class Keeper:
    """Says when it is time."""

    def __init__(self, journal: Journal, stream: Stream, folder: Path, settings: BackupConfig, replayed: int) -> None:
        """`replayed`: what the last start had to replay."""
        self._journal, self._stream, self._folder, self.settings = journal, stream, folder, settings
        self._behind = replayed
        """Writes that no snapshot has, as of the beginning of this life."""
        self._quiet_until = 0.0

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        while True:
            await asyncio.sleep(LOOK_S)
            if loop.time() >= self._quiet_until:
                if self._behind + self._journal.written >= SNAPSHOT_EVERY:
                    await self.snapshot(hurried=False)
                if self._backup_is_due(loop.time() - began_at):
                    await self._make("backup", str(self.settings.keep), hurried=False)

    def _backup_is_due(self, uptime_s: float) -> bool:
        """A daemon that has made none yet begins with one, unless it is hardly more than an empty database."""
        interval_s = self.settings.interval_s
        if not interval_s:
            return False
        last = backups.newest(self._folder)
        if last is None:
            return self._journal.commits >= FIRST_BACKUP or uptime_s >= interval_s
        age_s = datetime.now(UTC).timestamp() - last.stat().st_mtime
        young = 0 <= age_s < interval_s  # one from the future says that the clock was set back, and not how old it is
        return not young and backups.commits(last) != self._journal.commits

    async def snapshot(self, *, hurried: bool = True) -> bool:
        """Make one now; whether it could be made. `hurried`: a caller waits for it."""
        written = self._journal.written
        if made := await self._make("snapshot", hurried=hurried):
            self._behind = -written
        return made

    async def _make(self, *words: str, hurried: bool) -> bool:
        """Whether it was made."""
        command = (
            sys.executable,
            "-m",
            "autosched.daemon.recovery.maintenance",
            words[0],
            str(self._folder),
            *words[1:],
        )
        try:
            ended = await program_runner.run(command, timeout_s=LIMIT_S, nice=0 if hurried else NICE)
            why = "" if ended.code == 0 else ended.last_words or f"its process {ended.how}"
        except TimeoutError:
            why = f"not done after {LIMIT_S:g} s"
        except OSError as error:
            why = str(error)
        if not why:
            self._journal.worry = ""
            where = database.backups(self._folder) if words[0] == "backup" else database.snapshots(self._folder)
            self._stream.publish(Kept(words[0], str(where)))
            return True
        self._quiet_until = asyncio.get_running_loop().time() + AGAIN_S
        self._journal.worry = f"no {words[0]} could be made: {why}"
        log.error("%s", self._journal.worry)
        return False


# In a process of its own ----------------------------------------------------------------------------------------------


def make_snapshot(folder: Path) -> Path:
    """Do what a restart does, and keep what comes of it. Raises OSError and AutoschedError."""

    async def make() -> Path:
        with contextlib.closing(Journal(database.database(folder), beside=True)) as journal:
            past = state_recovery.recover(journal, database.snapshots(folder))
            return snapshot.write(database.snapshots(folder), state_recovery.take(journal, past))

    return asyncio.run(make())


def main(words: list[str]) -> int:
    """The process border: what goes wrong becomes a line and an exit code."""
    what, folder, *keep = words
    try:
        if what == "snapshot":
            make_snapshot(Path(folder))
        else:
            backups.make(Path(folder), keep=int(keep[0]))
    except (AutoschedError, OSError) as error:
        print(str(error).replace("\n", " "), file=sys.stderr)  # noqa: T201 - its parent reads it
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
