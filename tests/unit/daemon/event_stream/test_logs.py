"""The log: one line for each event and each message of a module, for people or for journald."""

import asyncio
import io
import json
import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from autosched.core.events import ClientLost, DeadlineReached
from autosched.daemon.event_stream.daemon_events import DeviceDrifts, Said
from autosched.daemon.event_stream.logs import ALIKE_MAX, ALIKE_S, Alike, Logs, begin, to_journald
from autosched.daemon.event_stream.stream import EVERYTHING, Stream
from deadlines import DEADLINE_S


@contextmanager
def logger_to(logs: Logs) -> Iterator[logging.Logger]:
    logger = logging.getLogger("autosched.daemon.somewhere")
    logger.addHandler(logs)
    logger.propagate = False
    try:
        yield logger
    finally:
        logger.removeHandler(logs)
        logger.propagate = True


def written(work: Callable[[Stream, logging.Logger], None], *, json: bool) -> list[str]:
    async def live() -> str:
        output, stream = io.StringIO(), Stream(lambda: 1.5)
        logs = Logs(output, json=json, level=logging.INFO)
        logs.follow(stream)
        with logger_to(logs) as logger:
            work(stream, logger)
        return output.getvalue()

    return asyncio.run(live()).splitlines()


def speak(stream: Stream, logger: logging.Logger) -> None:
    stream.publish(ClientLost(3, "killed by SIGKILL"))
    stream.publish(DeadlineReached())
    stream.publish(DeviceDrifts("cpu0", "hot"))
    logger.warning("the disk is %s", "slow")


def test_logs_for_people_are_lines_of_text() -> None:
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    lines = written(speak, json=False)
    wanted = [
        'INFO ClientLost job=3 reason="killed by SIGKILL" progressed=False hindered=False now_s=1.500',
        "WARNING DeviceDrifts unit=cpu0 reason=hot now_s=1.500",
        "WARNING autosched.daemon.somewhere the disk is slow",
    ]
    assert [bool(re.fullmatch(f"{when} {re.escape(words)}", line)) for words, line in zip(wanted, lines, strict=True)]
    assert all(re.match(when, line) for line in lines)
    assert [line[24:] for line in lines] == wanted


def test_journald_reads_objects_behind_their_priority() -> None:
    lines = written(speak, json=True)
    assert [line[:3] for line in lines] == ["<6>", "<4>", "<4>"]
    assert [json.loads(line[3:])["what"] for line in lines] == ["ClientLost", "DeviceDrifts", "Said"]
    assert json.loads(lines[2][3:])["source"] == "autosched.daemon.somewhere"


def test_an_exception_is_one_object_of_json_and_whole() -> None:
    def crash(_: Stream, logger: logging.Logger) -> None:
        try:
            raise ValueError("x" * 2_000)
        except ValueError:
            logger.exception("it crashed")

    (line,) = written(crash, json=True)
    assert line.startswith("<3>")
    assert json.loads(line[3:])["text"].endswith("ValueError: " + "x" * 2_000)


def test_messages_of_any_thread_are_streamed_and_written_once() -> None:
    async def live() -> tuple[list[object], str]:
        output, stream = io.StringIO(), Stream(lambda: 1.5)
        logs = Logs(output, json=False, level=logging.INFO)
        logs.follow(stream)
        with logger_to(logs) as logger, stream.subscribe(EVERYTHING) as reader:
            thread = threading.Thread(target=lambda: logger.warning("from afar"))
            thread.start()
            async with asyncio.timeout(DEADLINE_S):
                heard = (await anext(reader)).what
            thread.join()
        return [heard], output.getvalue()

    heard, text = asyncio.run(live())
    assert heard == [Said(logging.WARNING, "autosched.daemon.somewhere", "from afar")]
    assert text.count("from afar") == 1


def test_the_process_logs_to_stderr(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.Logger("root")
    monkeypatch.setattr(logging, "root", root)
    begin("text", "warning")
    root.info("this is not read")
    root.warning("the disk is full")
    assert capsys.readouterr().err[24:] == "WARNING root the disk is full\n"


def test_journald_is_known_by_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryFile("w") as file:
        there = os.fstat(file.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{there.st_dev}:{there.st_ino}")
        assert to_journald(file)
        monkeypatch.setenv("JOURNAL_STREAM", f"{there.st_dev}:{there.st_ino + 1}")
        assert not to_journald(file)
    assert not to_journald(io.StringIO())


def test_warnings_without_end_are_counted() -> None:
    alike = Alike()
    record = logging.LogRecord("a", logging.WARNING, "file.py", 7, "%d is %s", (1, "wrong"), None)
    passed = []

    def at(seconds: float, line: int = 7, level: int = logging.WARNING) -> bool:
        once = logging.makeLogRecord({**record.__dict__, "created": seconds, "lineno": line, "levelno": level})
        if kept := alike.filter(once):
            passed.append(once.getMessage())
        return kept

    assert [at(100.0 + number / 1e3) for number in range(1_000)] == [True] * ALIKE_MAX + [False] * (1_000 - ALIKE_MAX)
    assert passed[ALIKE_MAX - 2 :] == ["1 is wrong", "1 is wrong (more alike are left out for a while)"]
    assert at(101.0, line=8)
    assert all(at(101.0, level=logging.INFO) for _ in range(1_000))
    assert at(101.0 + ALIKE_S)
    assert passed[-1] == f"1 is wrong ({1_000 - ALIKE_MAX} alike were left out before)"
    assert at(101.0 + ALIKE_S)
    assert passed[-1] == "1 is wrong"
