"""The audit trail: each command that changes state, its user, and its outcome.

A command's row is queued before the command runs, and so becomes durable in the same transaction as the command's
effect, or earlier. The outcome follows. A row without outcome belongs to a command that ran when the daemon died.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from datetime import datetime

import msgspec
from msgspec import Struct

from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.event_stream.daemon_events import Commanded
from autosched.daemon.event_stream.stream import Stream
from autosched.daemon.storage import audit_log
from autosched.daemon.storage.batched_statements import Statement
from autosched.daemon.storage.journal import Journal
from autosched.errors import AutoschedError
from autosched.protocol import AuditEntry, Method, Submit, Submitted, wire_name
from autosched.protocol.roles import Role

log = logging.getLogger(__name__)

KEPT_OF_OPERATOR_MAX, KEPT_OF_USER_MAX = 200_000, 20_000
"""Maximum number of rows of one operator and of one other user; the oldest are deleted. No user pushes the rows of
another one out."""
FORGET_EVERY = 1_000
"""Number of rows of one user between two times when old ones are deleted, which reads the whole table."""
ABOUT_CHARS = 500
"""Maximum number of characters of a command's parameters, and of its outcome."""
UNANSWERED = "not told: its connection was lost"
SPEC_FIELDS = ("name", "model", "backend", "device", "target", "trials", "priority", "deadline_s", "seed", "external")
"""Fields of a submitted job that are recorded. Options are not, since they may contain secrets."""
ID_MAX = 2**63 - 1


class Audit:
    """Writes and reads the rows through the journal's writer."""

    def __init__(self, journal: Journal, stream: Stream) -> None:
        """Called before the journal accepts writes."""
        self._journal, self._stream = journal, stream
        self._last = audit_log.last(journal)
        self._written: Counter[str] = Counter()
        """Number of rows since the start, by user."""

    async def of(self, who: Principal, method: Method, work: Awaitable[Struct]) -> Struct:
        """Run a command and record it."""
        number = self._begin(who, wire_name(type(method)), about(method))
        outcome = UNANSWERED
        try:
            answer = await work
            outcome = f"job {answer.job}" if isinstance(answer, Submitted) else "done"
            return answer
        except AutoschedError as error:
            outcome = f"{error.code}: {error}"[:ABOUT_CHARS]
            raise
        except Exception as error:
            outcome = f"crashed: {type(error).__name__}"
            raise
        finally:
            self._end(number, outcome)

    def note(self, who: Principal, command: str, words: str) -> None:
        """Record a command that came without a connection."""
        self._end(self._begin(who, command, words), "done")

    def _begin(self, who: Principal, command: str, words: str) -> int:
        at = datetime.now().astimezone().isoformat(timespec="milliseconds")
        self._stream.publish(Commanded(who.name, who.role.value, who.address, command, words))
        if self._journal.stalled:  # rows must not pile up in memory while the disk is full
            return 0
        self._last += 1
        row = (self._last, at, who.name, who.role.value, who.address, command, words)
        statements: list[Statement] = [(audit_log.INSERT, row)]
        if self._written[who.name] % FORGET_EVERY == 0:
            kept = KEPT_OF_OPERATOR_MAX if who.role is Role.OPERATOR else KEPT_OF_USER_MAX
            statements.append((audit_log.FORGET, (who.name, kept)))
        self._written[who.name] += 1
        _unwatched(self._journal.write(*statements, lazy=True))
        return self._last

    def _end(self, number: int, outcome: str) -> None:
        if number:
            text = outcome.encode(errors="replace").decode()  # file names may be no text
            _unwatched(self._journal.write((audit_log.END, (text, number)), lazy=True))

    async def latest(self, limit: int, before: int | None) -> tuple[AuditEntry, ...]:
        """The last rows before a row, newest last, including those that are being written."""
        await self._journal.write()
        rows = await self._journal.read(audit_log.LATEST, min(before if before is not None else ID_MAX, ID_MAX), limit)
        fields = AuditEntry.__struct_fields__
        return tuple(msgspec.convert(dict(zip(fields, row, strict=True)), AuditEntry) for row in reversed(rows))


def about(method: Method) -> str:
    """A command's parameters as JSON, cut to `ABOUT_CHARS`."""
    words: dict[str, object]
    if isinstance(method, Submit):
        words = {name: value for name in SPEC_FIELDS if (value := getattr(method.spec, name, None)) is not None}
    else:
        words = {name: value for name in method.__struct_fields__ if (value := getattr(method, name)) is not None}
    text = msgspec.json.encode(words, enc_hook=str).decode()
    return text if len(text) <= ABOUT_CHARS else text[: ABOUT_CHARS - 1] + "…"


def _unwatched(written: asyncio.Future[None]) -> None:
    """Log the failure of a write that nothing awaits."""

    def look(done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("a row of the audit trail is lost: %s", error)

    written.add_done_callback(look)
