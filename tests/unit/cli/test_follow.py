import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import Struct
from msgspec.structs import replace

from autosched.api.connection import Daemon
from autosched.cli import follow
from autosched.cli.follow import Keys, Warned, failures
from autosched.cli.progress_display import Progress
from autosched.errors import Refused
from autosched.protocol import JobView
from samples import job_view, records


def test_failures_are_shown_with_reasons_tasks_and_the_last_message() -> None:
    lines = list(failures(job_view(), records()))
    assert lines[0] == " 27 of 384 trials failed: 21 build timeout, 6 wrong result"
    assert [line.split()[-2:] for line in lines[2:4]] == [["20", "200"], ["7", "184"]], "the worst first"
    assert lines[4] == " the last build timeout: killed <after> 15 s, task 2"
    assert max(map(len, lines)) <= 80


def test_failures_are_shown_without_records_too() -> None:
    assert len(list(failures(job_view(), []))) == 4
    fine = replace(job_view(), failed=0, failures={})
    assert list(failures(fine, records())) == [" none of 384 trials has failed"]
    broken = replace(fine, failed_steps=2, last_error="build: RuntimeError")
    assert "build: RuntimeError" in next(failures(broken, []))


class Screen:
    """Stores what it is to show."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, view: JobView) -> None: ...

    def above(self, lines: Iterable[str]) -> None:
        self.lines += lines

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *_: object) -> None: ...


class Link:
    """A daemon that refuses."""

    link: "Link"
    asked = 0

    def __init__(self) -> None:
        self.link = self

    async def call(self, *_: object) -> Struct:
        self.asked += 1
        raise Refused("not yours: ask an operator")


def test_keys_work_before_the_first_report_and_when_the_daemon_refuses() -> None:
    async def press() -> tuple[list[str], int, list[str]]:
        screen, left, link = Screen(), list[str](), Link()
        keys = Keys(screen, lambda: left.append("left"))
        for key in "wfex\x1b":
            keys.press(key)
        assert screen.lines == []
        keys.daemon, keys.view = cast(Daemon, link), replace(job_view(), tasks=())
        for key in "weef":  # no second question is asked
            keys.press(key)
        assert keys.asking is not None
        await keys.asking
        keys.press("q")
        return screen.lines, link.asked, left

    lines, asked, left = asyncio.run(press())
    assert lines == [
        " its tasks are not known yet: the network is imported first", "autosched: not yours: ask an operator",
    ]  # fmt: skip
    assert (asked, left) == (1, ["left"])


def test_warnings_of_the_daemon_are_shown_when_they_come_up_and_when_they_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []
    told: list[tuple[str, ...]] = [(), ("the disk is full",), ("the disk is full",), ("it is slow",)]

    class Told:
        async def info(self) -> SimpleNamespace:
            return SimpleNamespace(warnings=told.pop(0))

    async def work() -> None:
        warned = Warned(cast(Progress, SimpleNamespace(above=shown.extend)))
        await warned.look(cast(Daemon, Told()))
        await warned.look(cast(Daemon, Told()))
        assert len(told) == 3, "a warning is asked for every few seconds only"
        monkeypatch.setattr(follow, "WARNINGS_EVERY_S", 0.0)
        while told:
            await warned.look(cast(Daemon, Told()))

    asyncio.run(work())
    assert shown == [" ! the disk is full", " ! it is slow", "   over: the disk is full"]
