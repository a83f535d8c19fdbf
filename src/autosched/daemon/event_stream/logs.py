"""The log: a line for each happening, and for whatever a part of the daemon says in words.

People read lines of words. Journald, and a user who asks for it, gets one JSON object a line, behind its priority as
systemd reads it (`<6>`), so that `journalctl -p warning` shows what it should.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, TextIO

from autosched.daemon.event_stream.daemon_events import TEXT_CHARS, DaemonEvent, Said, StepEnded, StepStarted
from autosched.daemon.event_stream.stream import Stream
from autosched.model import Outcome

ROUTINE = logging.INFO - logging.DEBUG
"""Levels by which steps that go well matter less: there may be thousands in a second, and the timeline has them."""
Form = Literal["auto", "text", "json"]


class Logs(logging.Handler):
    """Writes both what modules log and what the stream tells, in the same form."""

    def __init__(self, output: TextIO, *, json: bool, level: int) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter())  # the words alone, and a traceback
        self._output, self._least = output, level
        self._write: Callable[[DaemonEvent, str], str] = _as_json if json else _as_text
        self._stream: Stream | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def follow(self, stream: Stream) -> None:
        """From now on also write what the stream tells, and tell it what is logged; inside the running loop."""
        self._stream, self._loop = stream, asyncio.get_running_loop()
        stream.attach(self._take)

    def _take(self, happening: DaemonEvent) -> None:
        what = happening.what
        least = self._least
        if type(what) is StepStarted or (type(what) is StepEnded and what.outcome == Outcome.DONE):
            least += ROUTINE
        if happening.level >= least and not isinstance(what, Said):  # that is written already
            self._put(self._write(happening, ""))

    def emit(self, record: logging.LogRecord) -> None:
        """A module logs something, perhaps in another thread."""
        try:
            said = Said(record.levelno, record.name, self.format(record))
            if record.levelno >= self._least:
                self._put(self._write(DaemonEvent(0.0, record.created, said), record.name))
        except Exception:
            self.handleError(record)
            return
        if self._stream is not None and self._loop is not None and not self._loop.is_closed():
            short = Said(said.level, said.source, said.text[:TEXT_CHARS])
            self._loop.call_soon_threadsafe(self._stream.publish, short)

    def _put(self, line: str) -> None:
        self._output.write(line)
        self._output.flush()


def _as_text(happening: DaemonEvent, source: str) -> str:
    at = datetime.fromtimestamp(happening.wall_s, UTC).astimezone()
    when = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"
    now = f" now_s={happening.at:.3f}" if not source else ""
    return f"{when} {logging.getLevelName(happening.level)} {source + ' ' if source else ''}{happening.text()}{now}\n"


def _as_json(happening: DaemonEvent, source: str) -> str:
    return f"<{_priority(happening.level)}>{happening.json().decode()}\n"


def _priority(level: int) -> int:
    """Syslog priority of a level, as systemd reads it."""
    for least, priority in ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6)):
        if level >= least:
            return priority
    return 7


def to_journald(output: TextIO) -> bool:
    """Whether this is the stream that systemd has connected with journald ($JOURNAL_STREAM: device:inode)."""
    try:
        there = os.fstat(output.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{there.st_dev}:{there.st_ino}"


def begin(form: Form, level: str) -> Logs:
    """Log to stderr from now on; for a process that has not done so yet."""
    json = form == "json" or (form == "auto" and to_journald(sys.stderr))
    least = logging.getLevelNamesMapping()[level.upper()]
    logs = Logs(sys.stderr, json=json, level=least)
    logging.basicConfig(level=least, handlers=[logs])
    return logs
