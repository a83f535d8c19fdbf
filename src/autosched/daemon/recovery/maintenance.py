"""Makes snapshots and backups in a process beside the daemon that only reads its database.

``python -m autosched.daemon.recovery.maintenance snapshot|backup FOLDER [KEEP]`` makes one. The daemon starts it after
enough writes since the last snapshot, or when the last backup is old enough.
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
from autosched.process import isolated_python, program_runner

log = logging.getLogger(__name__)

SNAPSHOT_EVERY = 20_000
"""Number of writes between two snapshots: what a restart replays in about a second."""
FIRST_BACKUP = 1_000
"""Number of commits after which the first backup is made without waiting for its interval."""
LOOK_S = 10.0
NICE = 19
"""Nice level of snapshots and backups that no caller waits for. On a busy machine, a second of work then takes
minutes."""
LIMIT_S = 1_800.0
"""Maximum seconds for a snapshot or backup."""
AGAIN_S = 600.0
"""Seconds until the next try after a failure: a cause such as a full disk may take a while to pass."""


class Keeper:
    """Starts snapshots and backups when they are due."""

    def __init__(self, journal: Journal, stream: Stream, folder: Path, settings: BackupConfig, replayed: int) -> None:
        """`replayed`: number of rows that the last start replayed."""
        self._journal, self._stream, self._folder, self.settings = journal, stream, folder, settings
        self._behind = replayed
        """Number of writes without a snapshot at the start."""
        self._quiet_until = 0.0

    async def run(self) -> None:
        """Run until cancelled."""
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
        """A daemon without a backup makes one first, unless its database is almost empty."""
        interval_s = self.settings.interval_s
        if not interval_s:
            return False
        last = backups.newest(self._folder)
        if last is None:
            return self._journal.commits >= FIRST_BACKUP or uptime_s >= interval_s
        age_s = datetime.now(UTC).timestamp() - last.stat().st_mtime
        young = 0 <= age_s < interval_s  # a date in the future means that the clock was set back; its age is unknown
        return not young and backups.commits(last) != self._journal.commits

    async def snapshot(self, *, hurried: bool = True) -> bool:
        """Make a snapshot now; returns whether it was made. `hurried`: a caller waits for it."""
        written = self._journal.written
        if made := await self._make("snapshot", hurried=hurried):
            self._behind = -written
        return made

    async def _make(self, *words: str, hurried: bool) -> bool:
        """Run the process; returns whether it succeeded."""
        command = isolated_python.command(
            "autosched.daemon.recovery.maintenance", words[0], str(self._folder), *words[1:]
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
    """Recover the state as a restart does, and save it. Raises OSError and AutoschedError."""

    async def make() -> Path:
        with contextlib.closing(Journal(database.database(folder), beside=True)) as journal:
            past = state_recovery.recover(journal, database.snapshots(folder))
            return snapshot.write(database.snapshots(folder), state_recovery.take(journal, past))

    return asyncio.run(make())


def main(words: list[str]) -> int:
    """Process boundary: turns exceptions into a line and an exit code."""
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
