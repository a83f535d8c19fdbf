"""Replaces a damaged database with its sound rows, if the operator accepts the loss of the rest."""

import contextlib
import logging
from pathlib import Path

from msgspec import Struct

from autosched import policy_registry
from autosched.core.events import Event
from autosched.core.scheduler import Scheduler
from autosched.daemon.recovery import backups
from autosched.daemon.recovery.state_recovery import recover
from autosched.daemon.storage import database, row_salvage
from autosched.daemon.storage.commit_mark import CommitMark
from autosched.daemon.storage.journal import WAYS_OUT, Decided, Journal
from autosched.errors import ConfigError, Damaged
from autosched.model import JobId, StepId

log = logging.getLogger(__name__)


class Salvaged(Struct, frozen=True):
    """Result of repairing a damaged database."""

    copy: Path | None
    """Path of the damaged database."""
    events: int
    events_lost: int
    """Number of acknowledged events that are lost."""
    rows_lost: dict[str, int]
    """Lost rows of other tables, as far as they could be counted."""

    def words(self) -> str:
        """The result in words."""
        lost = [f"{self.events_lost} events after event {self.events}"] if self.events_lost else []
        lost += [f"{count} rows of {table}" for table, count in self.rows_lost.items()]
        return f"lost: {', '.join(lost) or 'nothing'}; the damaged database is kept at {self.copy}"


def see_to(state_dir: Path, *, accept_data_loss: bool) -> None:
    """Check the database before the daemon uses it, and upgrade it to the present schema version after making a backup.
    Raises Damaged unless `accept_data_loss`, and ConfigError. Call in the running loop."""
    path = database.database(state_dir)
    try:
        if not path.exists():
            if (acknowledged := CommitMark(path).read()) is not None:
                raise Damaged(f"{path} is gone, with {acknowledged.seq} events. {WAYS_OUT}")
            return
        done = backups.upgrade(state_dir)
        if done.backup:
            log.warning("the database had format %d; as it was it is at %s", done.before, done.backup)
        if accept_data_loss:  # events with correct checksums may still be ones that the scheduler cannot replay
            with contextlib.closing(Journal(path, beside=True)) as journal:
                recover(journal, database.snapshots(state_dir))
    except Damaged as error:
        if not accept_data_loss:
            raise
        log.error("%s", error)
        try:
            log.warning("this was accepted; %s", salvage(state_dir).words())
        except OSError as failed:
            raise ConfigError(f"{path} cannot be replaced ({failed.strerror}); free some space there") from None


def salvage(state_dir: Path) -> Salvaged:
    """Move the damaged database away and replace it with a sound one; only while no daemon runs. Raises OSError."""
    path = database.database(state_dir)
    acknowledged = CommitMark(path).read()
    copy = backups.set_aside(state_dir, "damaged")
    new = path.with_name(f"{path.name}.new")
    for side in backups.SIDES:
        Path(f"{new}{side}").unlink(missing_ok=True)
    events, last, lost = row_salvage.take_over(copy, new, _Past())
    backups.flush(new)
    new.rename(path)
    backups.flush(path.parent)
    were = max(acknowledged.seq if acknowledged is not None else 0, last + lost.pop("journal", 0))
    return Salvaged(copy, events, were - last, {table: count for table, count in lost.items() if count})


class _Past:
    """The events of a damaged database, as far as the scheduler can replay them."""

    def __init__(self) -> None:
        self._core = Scheduler(policies=policy_registry.Installed())

    def handle(self, now: float, event: Event, steps: Decided) -> None:
        """Apply an event. Raises the scheduler's exceptions."""
        self._core.handle(now, event, steps)

    @property
    def last_job(self) -> JobId:
        """The number of the last job."""
        return self._core.state.last_job

    @property
    def last_step(self) -> StepId:
        """The number of the last step."""
        return self._core.state.last_step
