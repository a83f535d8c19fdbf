"""Sends records and tags to the daemon. Each is kept until the daemon has acknowledged it."""

import logging
from collections.abc import Callable

from autosched.client.daemon_session import DaemonSession
from autosched.model import Record
from autosched.protocol import AddRecord, TagRecords

log = logging.getLogger(__name__)


class RecordOutbox:
    """Messages that must not be lost. The next acknowledged end of a step confirms them."""

    def __init__(self, line: DaemonSession, full: Callable[[], None]) -> None:
        """`full`: ends the client, which may not keep more; a later one measures again what is not stored."""
        self._line, self._full = line, full

    def add(self, record: Record) -> None:
        """Send a record."""
        self._send(AddRecord(record=record))

    def tag(self, numbers: tuple[int, ...], reason: str) -> None:
        """Say that records were disturbed, by their numbers."""
        self._send(TagRecords(numbers=numbers, reason=reason))

    def _send(self, method: AddRecord | TagRecords) -> None:
        if not self._line.tell(method):
            log.error("the daemon acknowledges nothing, and there is too much to keep; ending")
            self._full()
