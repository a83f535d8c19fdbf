"""The log: one line for each event and each message of a module.

The default is lines of text. Journald, or the setting, gets one JSON object per line, after the priority in systemd's
form (`<6>`), so that `journalctl -p warning` works.
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

ALIKE_MAX, ALIKE_S = 50, 10.0
"""Maximum number of warnings from one line of the program within some seconds. Further ones are counted."""
ROUTINE = logging.INFO - logging.DEBUG
"""Difference by which the level of successful steps is lower: there may be thousands per second."""
Form = Literal["auto", "text", "json"]


class Alike(logging.Filter):
    """Leaves out warnings of which there are too many alike, and says later how many: strangers can cause some."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}
        """When a line began to be counted, and how often it came since, by its place."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is written."""
        if record.levelno < logging.WARNING:
            return True
        place = record.pathname, record.lineno
        since, count = self._seen.get(place, (record.created, 0))
        if record.created - since > ALIKE_S:
            if (left_out := count - ALIKE_MAX) > 0:
                record.msg, record.args = f"{record.getMessage()} ({left_out} alike were left out before)", None
            since, count = record.created, 0
        self._seen[place] = since, count + 1
        if count == ALIKE_MAX - 1:
            record.msg, record.args = f"{record.getMessage()} (more alike are left out for a while)", None
        return count < ALIKE_MAX


class Logs(logging.Handler):
    """Writes the messages of modules and the events of the stream in the same form."""

    def __init__(self, output: TextIO, *, json: bool, level: int) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter())  # the message alone, and a traceback
        self.addFilter(Alike())
        self._output, self._least = output, level
        self._write: Callable[[DaemonEvent, str], str] = _as_json if json else _as_text
        self._stream: Stream | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def follow(self, stream: Stream) -> None:
        """Also write the events of a stream, and publish messages on it. Called inside the running loop."""
        self._stream, self._loop = stream, asyncio.get_running_loop()
        stream.attach(self._take)

    def _take(self, event: DaemonEvent) -> None:
        what = event.what
        least = self._least
        if type(what) is StepStarted or (type(what) is StepEnded and what.outcome == Outcome.DONE):
            least += ROUTINE
        if event.level >= least and not isinstance(what, Said):  # messages are written already
            self._put(self._write(event, ""))

    def emit(self, record: logging.LogRecord) -> None:
        """Write and publish a message of a module, from any thread."""
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


def _as_text(event: DaemonEvent, source: str) -> str:
    at = datetime.fromtimestamp(event.wall_s, UTC).astimezone()
    when = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"
    now = f" now_s={event.at:.3f}" if not source else ""
    return f"{when} {logging.getLevelName(event.level)} {source + ' ' if source else ''}{event.text()}{now}\n"


def _as_json(event: DaemonEvent, source: str) -> str:
    return f"<{_priority(event.level)}>{event.json().decode()}\n"


def _priority(level: int) -> int:
    """Syslog priority of a level."""
    for least, priority in ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6)):
        if level >= least:
            return priority
    return 7


def to_journald(output: TextIO) -> bool:
    """Whether systemd has connected an output with journald ($JOURNAL_STREAM: device:inode)."""
    try:
        there = os.fstat(output.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{there.st_dev}:{there.st_ino}"


def begin(form: Form, level: str) -> Logs:
    """Begin to log to stderr. Called once in a process."""
    json = form == "json" or (form == "auto" and to_journald(sys.stderr))
    least = logging.getLevelNamesMapping()[level.upper()]
    logs = Logs(sys.stderr, json=json, level=least)
    logging.basicConfig(level=least, handlers=[logs])
    return logs
